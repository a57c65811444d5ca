//! A text's words: cut, folded, without stop words, each as its stem.

use super::{Language, Version, fold, stop_words};
use rust_stemmers::Stemmer;
use std::borrow::Cow;

/// What becomes of the words of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    /// Whether stop words are passed over.
    pub(super) filters: bool,
    /// Whether words keep their case.
    pub(super) keeps_case: bool,
    /// Whether words keep their diacritics.
    pub(super) keeps_diacritics: bool,
}

impl Options {
    /// As a text index has its terms.
    pub(super) const INDEXED: Options = Options { filters: true, keeps_case: false, keeps_diacritics: false };
}

/// Shows each word of a text to `visit` until that returns true, which is then the result.
pub(super) fn any(
    text: &str,
    (language, version): (Language, Version),
    options: Options,
    visit: &mut dyn FnMut(&str) -> bool,
) -> bool {
    let stop_words = stop_words::of(language).filter(|_| options.filters);
    let stemmer = language.algorithm().map(Stemmer::create);
    let unicode = version == Version::V3;
    let (english, turkish) = (language.is_english(), language.is_turkish());
    let ends_word = |letter: char| match unicode {
        true => fold::is_delimiter(letter, english),
        false => is_ascii_delimiter(letter, english),
    };
    let (mut lowered, mut folded) = (String::new(), String::new());
    for raw in text.split(ends_word).filter(|word| !word.is_empty()) {
        lowered.clear();
        match unicode {
            true => fold::append(raw, true, false, turkish, &mut lowered),
            false => {
                lowered.push_str(raw);
                lowered.make_ascii_lowercase();
            }
        }
        if stop_words.is_some_and(|words| words.contains(lowered.as_str())) {
            continue;
        }
        let word = if options.keeps_case { raw } else { lowered.as_str() };
        let stem = stemmer.as_ref().map_or(Cow::Borrowed(word), |stemmer| stemmer.stem(word));
        let found = if unicode && !options.keeps_diacritics && !stem.is_ascii() {
            folded.clear();
            fold::append(&stem, false, true, turkish, &mut folded);
            visit(&folded)
        } else {
            visit(&stem)
        };
        if found {
            return true;
        }
    }
    false
}

/// What ends words in indexes of versions 1 and 2: ASCII's punctuation but `_`, and white space.
fn is_ascii_delimiter(letter: char, english: bool) -> bool {
    match letter {
        '_' => false,
        '\'' => !english,
        _ => letter.is_ascii_punctuation() || matches!(letter, '\t'..='\r' | ' '),
    }
}
