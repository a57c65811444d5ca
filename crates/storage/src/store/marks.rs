//! What the writers of documents tell the builder of an index: which records they have changed, and of keys
//! that two documents have.

use crate::sync::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

/// How many numbers a page holds.
const PAGE: u64 = 4096;

type Page = Box<[u64; (PAGE / 64) as usize]>;

/// An index being built, as all know it who write to it.
#[derive(Debug)]
pub struct Build {
    /// The records that have changed since the snapshot that is being loaded.
    pub changed: Marks,
    /// A key that two documents have where that must not be, as its bytes and their type bits: the build is
    /// going to fail with it.
    pub duplicate: Mutex<Option<(Vec<u8>, Vec<u8>)>>,
}

impl Build {
    /// A build that loads records up to the id `greatest`.
    pub fn new(greatest: u64) -> Build {
        Build { changed: Marks::up_to(greatest), duplicate: Mutex::default() }
    }

    /// Whether the build is going to end without an index.
    pub fn has_failed(&self) -> bool {
        self.duplicate.lock().is_some()
    }
}

/// A set of record ids up to a greatest one; it takes a bit for each number of the pages in use.
pub struct Marks {
    greatest: u64,
    all: AtomicBool,
    pages: Mutex<HashMap<u64, Page>>,
}

impl Marks {
    /// A set that keeps numbers up to `greatest` and forgets others.
    pub fn up_to(greatest: u64) -> Marks {
        Marks { greatest, all: AtomicBool::new(false), pages: Mutex::default() }
    }

    /// The greatest number that is kept.
    pub fn greatest(&self) -> u64 {
        self.greatest
    }

    /// Adds a number, if it is one of those that are kept.
    pub fn add(&self, number: u64) {
        if number > self.greatest {
            return;
        }
        let mut pages = self.pages.lock();
        let page = pages.entry(number / PAGE).or_insert_with(|| Box::new([0; (PAGE / 64) as usize]));
        if let Some(word) = page.get_mut((number % PAGE / 64) as usize) {
            *word |= 1 << (number % 64);
        }
    }

    /// Adds all numbers.
    pub fn fill(&self) {
        self.all.store(true, Ordering::Release);
    }

    /// Whether a number is in the set.
    pub fn contains(&self, number: u64) -> bool {
        if self.all.load(Ordering::Acquire) {
            return true;
        }
        let pages = self.pages.lock();
        let word = pages.get(&(number / PAGE)).and_then(|page| page.get((number % PAGE / 64) as usize));
        word.is_some_and(|word| word & (1 << (number % 64)) != 0)
    }
}

impl fmt::Debug for Marks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Marks up to {} in {} pages", self.greatest, self.pages.lock().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_up_to_the_greatest_are_kept() {
        let marks = Marks::up_to(10_000);
        let kept = [0, 1, 63, 64, 4095, 4096, 9999, 10_000];
        kept.iter().for_each(|number| marks.add(*number));
        marks.add(10_001);
        for number in 0..10_100 {
            assert_eq!(marks.contains(number), kept.contains(&number), "{number}");
        }
    }
}
