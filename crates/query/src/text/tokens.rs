//! The words of a text: split, folded, without stop words, stemmed.
//!
//! Folding removes case and diacritics as in version 3 of MongoDB's text indexes. Case folding is simple, so no letter
//! becomes two. A letter is replaced by its canonical decomposition without Unicode diacritics, if one letter remains.
//! Words end at white space, dashes, quotation marks and punctuation.
//!
//! A per-thread cache holds recent words with their terms. Stemming takes a microsecond, and texts repeat their words.

use super::{Language, Version};
use icu_casemap::CaseMapper;
use icu_normalizer::{ComposingNormalizerBorrowed, DecomposingNormalizerBorrowed};
use icu_properties::CodePointSetData;
use icu_properties::props::{
    Dash, Diacritic, Hyphen, PatternSyntax, QuotationMark, SentenceTerminal, TerminalPunctuation, WhiteSpace,
};
use rust_stemmers::Stemmer;
use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashSet;
use std::hash::{BuildHasher, Hasher};
use std::sync::LazyLock;

/// Treatment of the words of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    /// Whether stop words are skipped.
    pub(super) filters: bool,
    /// Whether words keep their case.
    pub(super) keeps_case: bool,
    /// Whether words keep their diacritics.
    pub(super) keeps_diacritics: bool,
}

impl Options {
    /// The treatment of a text index's terms.
    pub(super) const INDEXED: Options = Options { filters: true, keeps_case: false, keeps_diacritics: false };
}

/// Passes each word of a text to `visit` until it returns true; returns that result.
pub(super) fn any(
    text: &str,
    (language, version): (Language, Version),
    options: Options,
    visit: &mut dyn FnMut(&str) -> bool,
) -> bool {
    let mut rules = Rules::new(language, version, options);
    let (english, unicode) = (language.is_english(), version == Version::V3);
    let ends_word = |letter: char| match unicode {
        true => is_delimiter(letter, english),
        false => is_ascii_delimiter(letter, english),
    };
    let mut words = text.split(ends_word).filter(|word| !word.is_empty());
    if options != Options::INDEXED {
        return words.any(|word| rules.term(word).is_some_and(&mut *visit));
    }
    let number = rules_number(language, version);
    WordCache::with(|known| {
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

/// Treatment of a language's words.
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

    /// Returns the term of a word; `None` for a stop word.
    fn term(&mut self, raw: &str) -> Option<&str> {
        let turkish = self.language.is_turkish();
        self.lowered.clear();
        match self.unicode {
            true => append(raw, true, false, turkish, &mut self.lowered),
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
            true => append(&stem, false, true, turkish, &mut self.term),
            false => self.term.push_str(&stem),
        }
        Some(&self.term)
    }
}

/// Whether a letter ends a word in index versions 1 and 2: ASCII punctuation except `_`, and white space.
fn is_ascii_delimiter(letter: char, english: bool) -> bool {
    match letter {
        '_' => false,
        '\'' => !english,
        _ => letter.is_ascii_punctuation() || matches!(letter, '\t'..='\r' | ' '),
    }
}

/// The stop words of a language.
pub(super) type Words = HashSet<&'static str, foldhash::fast::FixedState>;

macro_rules! lists {
    ($($name:literal),+) => {
        /// Returns the stop words of a language, if it has a list.
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

/// Whether a letter ends a word. In English an apostrophe within a word belongs to the word.
#[inline]
pub(super) fn is_delimiter(letter: char, english: bool) -> bool {
    if letter.is_ascii() {
        let within = letter == '_' || (english && letter == '\'');
        return !within && (letter.is_ascii_punctuation() || matches!(letter, '\t'..='\r' | ' '));
    }
    CodePointSetData::new::<WhiteSpace>().contains(letter)
        || CodePointSetData::new::<TerminalPunctuation>().contains(letter)
        || CodePointSetData::new::<PatternSyntax>().contains(letter)
        || CodePointSetData::new::<Dash>().contains(letter)
        || CodePointSetData::new::<Hyphen>().contains(letter)
        || CodePointSetData::new::<QuotationMark>().contains(letter)
        || CodePointSetData::new::<SentenceTerminal>().contains(letter)
}

/// Folds the case of a letter.
#[inline]
pub(super) fn lower(letter: char, turkish: bool) -> char {
    match letter {
        'I' if turkish => 'ı',
        _ if letter.is_ascii() => letter.to_ascii_lowercase(),
        _ if turkish => CaseMapper::new().simple_fold_turkic(letter),
        _ => CaseMapper::new().simple_fold(letter),
    }
}

/// Removes the diacritics of a letter; `None` if the letter is only a diacritic.
#[inline]
pub(super) fn strip(letter: char) -> Option<char> {
    match letter {
        '^' | '`' => None,
        _ if letter.is_ascii() => Some(letter),
        _ => strip_beyond_ascii(letter),
    }
}

/// Decomposes a letter, removes diacritics and composes it again. A result of several letters leaves the letter
/// unchanged.
fn strip_beyond_ascii(letter: char) -> Option<char> {
    let diacritics = CodePointSetData::new::<Diacritic>();
    if diacritics.contains(letter) {
        return None;
    }
    let decomposed = DecomposingNormalizerBorrowed::new_nfd().normalize_iter(std::iter::once(letter));
    let bare = decomposed.filter(|part| !diacritics.contains(*part));
    let mut composed = ComposingNormalizerBorrowed::new_nfc().normalize_iter(bare);
    match (composed.next(), composed.next()) {
        (Some(one), None) => Some(one),
        _ => Some(letter),
    }
}

/// Appends a text with the requested folding.
pub(super) fn append(text: &str, folds_case: bool, strips: bool, turkish: bool, out: &mut String) {
    let lowered = text.chars().map(|letter| if folds_case { lower(letter, turkish) } else { letter });
    match strips {
        true => out.extend(lowered.filter_map(strip)),
        false => out.extend(lowered),
    }
}

/// Number of words in the cache; a power of two.
const PLACES: usize = 16_384;

/// Maximum length of a cached word and of its term, in bytes.
const LONGEST: usize = 30;

/// Term length that marks a stop word.
const STOPPED: u8 = u8::MAX;

thread_local! {
    static KNOWN: Cell<WordCache> = const { Cell::new(WordCache(Vec::new())) };
}

/// A cached word of one language and index version; one cache line in size.
#[derive(Clone, Copy)]
struct Entry {
    /// Number of the language and version; zero for an empty entry.
    rules: u8,
    length: u8,
    /// Length of the term in bytes.
    term_length: u8,
    word: [u8; LONGEST],
    term: [u8; LONGEST],
}

/// An empty entry of the cache.
const NOTHING: Entry = Entry { rules: 0, length: 0, term_length: 0, word: [0; LONGEST], term: [0; LONGEST] };

/// The word cache of a thread. A word's hash determines its only slot.
#[derive(Default)]
pub(super) struct WordCache(Vec<Entry>);

/// A cached term.
pub(super) enum Term<'k> {
    Stopped,
    Is(&'k str),
}

impl WordCache {
    /// Calls `work` with the cache of this thread.
    pub(super) fn with<R>(work: impl FnOnce(&mut WordCache) -> R) -> R {
        let mut known = KNOWN.take();
        if known.0.is_empty() {
            known.0 = vec![NOTHING; PLACES];
        }
        let result = work(&mut known);
        KNOWN.set(known);
        result
    }

    /// Returns the cached term of a word.
    #[inline]
    pub(super) fn get(&self, word: &str, rules: u8) -> Option<Term<'_>> {
        let entry = self.0.get(slot(word, rules))?;
        let same = entry.rules == rules
            && usize::from(entry.length) == word.len()
            && entry.word.get(..word.len()) == Some(word.as_bytes());
        if !same {
            return None;
        }
        match entry.term_length {
            STOPPED => Some(Term::Stopped),
            length => std::str::from_utf8(entry.term.get(..length.into())?).ok().map(Term::Is),
        }
    }

    /// Caches the term of a word (`None` for a stop word) and evicts another entry.
    pub(super) fn keep(&mut self, word: &str, rules: u8, term: Option<&str>) {
        let mut entry = Entry { rules, length: word.len() as u8, term_length: STOPPED, ..NOTHING };
        let Some(own) = entry.word.get_mut(..word.len()) else { return };
        own.copy_from_slice(word.as_bytes());
        if let Some(term) = term {
            let Some(own) = entry.term.get_mut(..term.len()) else { return };
            own.copy_from_slice(term.as_bytes());
            entry.term_length = term.len() as u8;
        }
        if let Some(old) = self.0.get_mut(slot(word, rules)) {
            *old = entry;
        }
    }
}

fn slot(word: &str, rules: u8) -> usize {
    let mut hasher = foldhash::fast::FixedState::default().build_hasher();
    hasher.write(word.as_bytes());
    hasher.write_u8(rules);
    hasher.finish() as usize % PLACES
}

/// The number of the rules of a language and version; not zero.
fn rules_number(language: Language, version: Version) -> u8 {
    1 + language.number() * 3 + (version as u8 - 1)
}
