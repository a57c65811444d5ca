//! A text's words: cut, folded, without stop words, each as its stem.

use super::known::{self, Known, Term};
use super::{Language, Version, fold};
use rust_stemmers::Stemmer;
use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::LazyLock;

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
    let mut rules = Rules::new(language, version, options);
    let (english, unicode) = (language.is_english(), version == Version::V3);
    let ends_word = |letter: char| match unicode {
        true => fold::is_delimiter(letter, english),
        false => is_ascii_delimiter(letter, english),
    };
    let mut words = text.split(ends_word).filter(|word| !word.is_empty());
    if options != Options::INDEXED {
        return words.any(|word| rules.term(word).is_some_and(&mut *visit));
    }
    let number = known::rules(language, version);
    Known::with(|known| {
        words.any(|word| match known.get(word, number) {
            Some(Term::Stopped) => false,
            Some(Term::Is(term)) => visit(term),
            None => {
                let term = rules.term(word);
                known.keep(word, number, term);
                term.is_some_and(&mut *visit)
            }
        })
    })
}

/// What becomes of a language's words.
struct Rules {
    language: Language,
    options: Options,
    unicode: bool,
    stop_words: Option<&'static Words>,
    stemmer: Option<Stemmer>,
    lowered: String,
    term: String,
}

impl Rules {
    fn new(language: Language, version: Version, options: Options) -> Rules {
        Rules {
            language,
            options,
            unicode: version == Version::V3,
            stop_words: of(language).filter(|_| options.filters),
            stemmer: language.algorithm().map(Stemmer::create),
            lowered: String::new(),
            term: String::new(),
        }
    }

    /// A word as it is compared; `None` for one that is passed over.
    fn term(&mut self, raw: &str) -> Option<&str> {
        let turkish = self.language.is_turkish();
        self.lowered.clear();
        match self.unicode {
            true => fold::append(raw, true, false, turkish, &mut self.lowered),
            false => {
                self.lowered.push_str(raw);
                self.lowered.make_ascii_lowercase();
            }
        }
        if self.stop_words.is_some_and(|words| words.contains(self.lowered.as_str())) {
            return None;
        }
        let word = if self.options.keeps_case { raw } else { self.lowered.as_str() };
        let stem = self.stemmer.as_ref().map_or(Cow::Borrowed(word), |stemmer| stemmer.stem(word));
        self.term.clear();
        match self.unicode && !self.options.keeps_diacritics && !stem.is_ascii() {
            true => fold::append(&stem, false, true, turkish, &mut self.term),
            false => self.term.push_str(&stem),
        }
        Some(&self.term)
    }
}

/// What ends words in indexes of versions 1 and 2: ASCII's punctuation but `_`, and white space.
fn is_ascii_delimiter(letter: char, english: bool) -> bool {
    match letter {
        '_' => false,
        '\'' => !english,
        _ => letter.is_ascii_punctuation() || matches!(letter, '\t'..='\r' | ' '),
    }
}

pub(super) type Words = HashSet<&'static str, foldhash::fast::FixedState>;

macro_rules! lists {
    ($($name:literal),+) => {
        /// The words of a language; none where it has no list.
        pub(super) fn of(language: Language) -> Option<&'static Words> {
            match language.name() {
                $($name => {
                    static WORDS: LazyLock<Words> = LazyLock::new(|| {
                        include_str!(concat!("stop_words/", $name, ".txt")).split_whitespace().collect()
                    });
                    Some(&WORDS)
                })+
                _ => None,
            }
        }
    };
}

lists!(
    "danish",
    "dutch",
    "english",
    "finnish",
    "french",
    "german",
    "hungarian",
    "italian",
    "norwegian",
    "portuguese",
    "russian",
    "spanish",
    "swedish",
    "turkish"
);
