//! `$text` as given, and its terms for one index.
//!
//! The search also checks documents that an index has found by a term.

use super::spec::Text;
use super::tokens::{self, Options};
use super::{Language, TextSpec, Version};
use base::bson::{Builder, Document, Element, Value};
use base::{Result, bail, err};
use std::collections::BTreeSet;
use std::ffi::CStr;
use std::sync::OnceLock;

/// The argument of `$text`.
#[derive(Debug)]
pub struct TextQuery {
    search: String,
    /// `None` means the index's default language.
    language: Option<String>,
    /// The index's default language, set once an index is known.
    index_language: OnceLock<Language>,
    case_sensitive: bool,
    diacritic_sensitive: bool,
}

/// A search with one index: terms, phrases and negations.
#[derive(Clone, Debug)]
pub struct Search {
    /// The terms to look up in the index, sorted.
    pub terms: Vec<String>,
    /// Words of which the document must contain one, with case and diacritics as requested.
    pub(super) words: BTreeSet<String>,
    pub(super) negated_words: BTreeSet<String>,
    pub(super) phrases: Vec<String>,
    pub(super) negated_phrases: Vec<String>,
    pub(super) case_sensitive: bool,
    pub(super) diacritic_sensitive: bool,
}

impl TextQuery {
    /// Parses the argument of `$text`.
    ///
    /// Errors: BadValue unless the argument is a document, and for unknown fields; NoSuchKey without `$search`;
    /// TypeMismatch.
    pub(crate) fn parse(element: &Element<'_>) -> Result<TextQuery> {
        let Value::Document(argument) = element.value() else {
            bail!(BadValue, "$text expects an object");
        };
        let text = |name: &str| match argument.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.to_string())),
            Some(other) => Err(wrong_type(name, "string", other)),
        };
        let flag = |name: &str| match argument.get(name) {
            None => Ok(false),
            Some(Value::Boolean(flag)) => Ok(flag),
            Some(other) => Err(wrong_type(name, "bool", other)),
        };
        let search = text("$search")?.ok_or_else(|| err!(NoSuchKey, "Missing expected field \"$search\""))?;
        let query = TextQuery {
            search,
            // An empty name means the language of the index.
            language: text("$language")?.filter(|language| !language.is_empty()),
            index_language: OnceLock::new(),
            case_sensitive: flag("$caseSensitive")?,
            diacritic_sensitive: flag("$diacriticSensitive")?,
        };
        let known = ["$search", "$language", "$caseSensitive", "$diacriticSensitive"];
        if argument.iter().any(|field| !known.contains(&field.name())) {
            bail!(BadValue, "extra fields in $text");
        }
        Ok(query)
    }

    /// Appends the argument as given, with the language of the index that was searched last.
    pub(crate) fn describe(&self, out: &mut Builder) {
        let index_language = self.index_language.get().map_or("", |language| language.name());
        out.begin_document(c"$text").append(c"$search", self.search.as_str());
        out.append(c"$language", self.language.as_deref().unwrap_or(index_language));
        out.append(c"$caseSensitive", self.case_sensitive);
        out.append(c"$diacriticSensitive", self.diacritic_sensitive).end();
    }

    /// Returns the search for an index.
    ///
    /// Errors: BadValue for a language that the index does not know.
    pub fn by(&self, spec: &TextSpec) -> Result<Search> {
        let language = match &self.language {
            None => *self.index_language.get_or_init(|| spec.default_language),
            Some(name) => Language::named(name, spec.version).ok_or_else(|| {
                let version = spec.version as i32;
                err!(BadValue, "unsupported language: \"{name}\" for text index version {version}")
            })?,
        };
        let mut parts = Parts::default();
        parts.read(&self.search);
        let words = |text: &str, options: Options| {
            let mut words = BTreeSet::new();
            tokens::any(text, (language, spec.version), options, &mut |word| {
                words.insert(word.to_string());
                false
            });
            words
        };
        let compared = Options {
            keeps_case: self.case_sensitive,
            keeps_diacritics: self.diacritic_sensitive,
            ..Options::INDEXED
        };
        Ok(Search {
            terms: words(&parts.included, Options::INDEXED).into_iter().collect(),
            words: words(&parts.included, compared),
            negated_words: words(&parts.negated, compared),
            phrases: parts.phrases,
            negated_phrases: parts.negated_phrases,
            case_sensitive: self.case_sensitive,
            diacritic_sensitive: self.diacritic_sensitive,
        })
    }
}

fn wrong_type(name: &str, expected: &str, found: Value<'_>) -> base::Error {
    err!(TypeMismatch, "\"{name}\" had the wrong type. Expected {expected}, found {}", found.kind().alias())
}

impl Search {
    /// The search as explain prints it.
    pub fn describe(&self, out: &mut Builder) {
        let mut list = |name: &'static CStr, texts: &mut dyn Iterator<Item = &String>| {
            out.begin_array(name);
            texts.for_each(|text| {
                out.push(text.as_str());
            });
            out.end();
        };
        list(c"terms", &mut self.words.iter());
        list(c"negatedTerms", &mut self.negated_words.iter());
        list(c"phrases", &mut self.phrases.iter());
        list(c"negatedPhrases", &mut self.negated_phrases.iter());
    }
}

/// The parts of a search string. A `-` after white space negates the text up to the next white space. Quotes enclose
/// phrases. The words of a phrase are searched too, unless it is negated.
#[derive(Default)]
struct Parts {
    included: String,
    negated: String,
    phrases: Vec<String>,
    negated_phrases: Vec<String>,
}

impl Parts {
    /// Splits a search string as MongoDB does.
    fn read(&mut self, search: &str) {
        let (mut negates, mut phrase) = (false, None);
        let (mut at, mut behind_space) = (0, true);
        let is_space = |letter: char| matches!(letter, '\n'..='\r' | ' ');
        let ends_text = |letter: char| is_space(letter) || matches!(letter, '-' | '"');
        while let Some(rest) = search.get(at..).filter(|rest| !rest.is_empty()) {
            let spaces = rest.len() - rest.trim_start_matches(is_space).len();
            if spaces > 0 {
                (at, behind_space) = (at + spaces, true);
                continue;
            }
            let mut length = 1;
            if rest.starts_with('-') {
                negates |= phrase.is_none() && behind_space;
            } else if rest.starts_with('"') {
                match phrase.take() {
                    Some(start) => {
                        let text = search.get(start..at).unwrap_or_default().to_string();
                        let phrases = if negates { &mut self.negated_phrases } else { &mut self.phrases };
                        phrases.push(text);
                    }
                    None => {
                        negates &= !behind_space;
                        phrase = Some(at + 1);
                    }
                }
            } else {
                length = rest.find(ends_text).unwrap_or(rest.len());
                if !(negates && phrase.is_some()) {
                    negates &= !behind_space;
                    let sentence = if negates { &mut self.negated } else { &mut self.included };
                    sentence.push_str(rest.get(..length).unwrap_or_default());
                    sentence.push(' ');
                }
            }
            (at, behind_space) = (at + length, false);
        }
    }
}

impl Search {
    /// Whether the presence of a term is the only condition.
    pub fn is_by_terms_alone(&self) -> bool {
        self.negated_words.is_empty()
            && self.phrases.is_empty()
            && self.negated_phrases.is_empty()
            && !self.case_sensitive
            && !self.diacritic_sensitive
    }

    /// Whether a document with one of the terms matches the search.
    ///
    /// Errors: 17261 and 17262 for invalid language fields.
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

    /// Whether a document contains one of these words, with case and diacritics as requested.
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

    /// Whether a document contains a phrase, even in the middle of words.
    fn has_phrase(&self, phrase: &str, document: Document<'_>, spec: &TextSpec) -> Result<bool> {
        spec.any(document, &mut |text: Text<'_>| {
            let folded = |text_of: &str| match spec.version {
                Version::V3 => {
                    let turkish = text.language.is_turkish();
                    let mut out = String::with_capacity(text_of.len());
                    let (case, diacritics) = (!self.case_sensitive, !self.diacritic_sensitive);
                    tokens::append(text_of, case, diacritics, turkish, &mut out);
                    out
                }
                _ if self.case_sensitive => text_of.to_string(),
                _ => text_of.to_ascii_lowercase(),
            };
            folded(text.text).contains(&folded(phrase))
        })
    }
}
