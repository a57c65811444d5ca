//! Words that have been met lately, with the terms that they are indexed as: finding a stem takes a
//! microsecond, and texts repeat their words.

use super::{Language, Version};
use std::cell::Cell;
use std::hash::{BuildHasher, Hasher};

/// How many words are kept. A power of two.
const PLACES: usize = 16_384;

/// The longest word that is kept, and the longest term of one, in bytes.
const LONGEST: usize = 30;

/// The length of no term: that of a stop word.
const STOPPED: u8 = u8::MAX;

thread_local! {
    static KNOWN: Cell<Known> = const { Cell::new(Known(Vec::new())) };
}

/// A word in one language, as one version of index has it; a cache line.
#[derive(Clone, Copy)]
struct Entry {
    /// Which language and version; zero is none, where nothing is kept.
    rules: u8,
    length: u8,
    /// Of the term.
    term_length: u8,
    word: [u8; LONGEST],
    term: [u8; LONGEST],
}

const NOTHING: Entry = Entry { rules: 0, length: 0, term_length: 0, word: [0; LONGEST], term: [0; LONGEST] };

/// The words that a thread has met, each in the one place that its hash gives it.
#[derive(Default)]
pub(super) struct Known(Vec<Entry>);

/// What is known of a word.
pub(super) enum Term<'k> {
    Stopped,
    Is(&'k str),
}

impl Known {
    /// Lends what the thread knows to `work`.
    pub(super) fn with<R>(work: impl FnOnce(&mut Known) -> R) -> R {
        let mut known = KNOWN.take();
        if known.0.is_empty() {
            known.0 = vec![NOTHING; PLACES];
        }
        let result = work(&mut known);
        KNOWN.set(known);
        result
    }

    /// What a word has become before.
    #[inline]
    pub(super) fn get(&self, word: &str, rules: u8) -> Option<Term<'_>> {
        let entry = self.0.get(place(word, rules))?;
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

    /// Keeps what a word becomes, `None` for a stop word, in place of another.
    pub(super) fn keep(&mut self, word: &str, rules: u8, term: Option<&str>) {
        let mut entry = Entry { rules, length: word.len() as u8, term_length: STOPPED, ..NOTHING };
        let Some(own) = entry.word.get_mut(..word.len()) else { return };
        own.copy_from_slice(word.as_bytes());
        if let Some(term) = term {
            let Some(own) = entry.term.get_mut(..term.len()) else { return };
            own.copy_from_slice(term.as_bytes());
            entry.term_length = term.len() as u8;
        }
        if let Some(old) = self.0.get_mut(place(word, rules)) {
            *old = entry;
        }
    }
}

fn place(word: &str, rules: u8) -> usize {
    let mut hasher = foldhash::fast::FixedState::default().build_hasher();
    hasher.write(word.as_bytes());
    hasher.write_u8(rules);
    hasher.finish() as usize % PLACES
}

/// The number of a language's and a version's rules, not zero.
pub(super) fn rules(language: Language, version: Version) -> u8 {
    1 + language.number() * 3 + (version as u8 - 1)
}
