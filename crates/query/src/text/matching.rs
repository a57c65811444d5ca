//! Whether a document that an index has found by a term is what a search asks for.

use super::spec::Text;
use super::tokens::{self, Options};
use super::{Search, TextSpec, Version, fold};
use base::Result;
use base::bson::Document;
use std::collections::BTreeSet;

impl Search {
    /// Whether a term's being in a document is all that is asked for.
    pub fn is_by_terms_alone(&self) -> bool {
        self.negated_words.is_empty()
            && self.phrases.is_empty()
            && self.negated_phrases.is_empty()
            && !self.case_sensitive
            && !self.diacritic_sensitive
    }

    /// Whether a document that has one of the terms is what is searched for.
    ///
    /// Errors: 17261 and 17262 for fields that name no language.
    pub fn matches(&self, document: Document<'_>, spec: &TextSpec) -> Result<bool> {
        let sensitive = self.case_sensitive || self.diacritic_sensitive;
        if sensitive && !self.has_word(&self.words, document, spec)? {
            return Ok(false);
        }
        if !self.negated_words.is_empty() && self.has_word(&self.negated_words, document, spec)? {
            return Ok(false);
        }
        for phrase in &self.phrases {
            if !self.has_phrase(phrase, document, spec)? {
                return Ok(false);
            }
        }
        for phrase in &self.negated_phrases {
            if self.has_phrase(phrase, document, spec)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn has_word(&self, words: &BTreeSet<String>, document: Document<'_>, spec: &TextSpec) -> Result<bool> {
        let options = Options {
            filters: false,
            keeps_case: self.case_sensitive,
            keeps_diacritics: self.diacritic_sensitive,
        };
        spec.any(document, &mut |text| {
            tokens::any(text.text, (text.language, spec.version), options, &mut |word| words.contains(word))
        })
    }

    /// Whether a phrase stands in a document, in the middle of words too.
    fn has_phrase(&self, phrase: &str, document: Document<'_>, spec: &TextSpec) -> Result<bool> {
        spec.any(document, &mut |text: Text<'_>| {
            let folded = |text_of: &str| match spec.version {
                Version::V3 => {
                    let turkish = text.language.is_turkish();
                    let mut out = String::with_capacity(text_of.len());
                    let (case, diacritics) = (!self.case_sensitive, !self.diacritic_sensitive);
                    fold::append(text_of, case, diacritics, turkish, &mut out);
                    out
                }
                _ if self.case_sensitive => text_of.to_string(),
                _ => text_of.to_ascii_lowercase(),
            };
            folded(text.text).contains(&folded(phrase))
        })
    }
}
