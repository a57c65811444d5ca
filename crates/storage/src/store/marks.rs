//! Information from writers for an index build: the records that they have changed, and a duplicate
//! key.

use crate::EventCount;
use crate::sync::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Number of ids per page.
const PAGE: u64 = 4096;

type Page = Box<[u64; (PAGE / 64) as usize]>;

/// An index build, as known to its writers.
#[derive(Debug)]
pub struct Build {
    /// Records that have changed since the loaded snapshot.
    pub changed: Marks,
    /// A key of a unique index that a writer found under another document, as its bytes and type bits. The build
    /// starts again, because the write may not commit.
    pub duplicate: Mutex<Option<(Vec<u8>, Vec<u8>)>>,
    /// Advances when the build ends in this process.
    pub ended: Arc<EventCount>,
}

impl Build {
    /// Returns a build that loads records up to the id `greatest`.
    pub fn new(greatest: u64) -> Build {
        Build { changed: Marks::up_to(greatest), duplicate: Mutex::default(), ended: Arc::default() }
    }

    /// Returns true if a writer has met a duplicate. The entries are incomplete from then on.
    pub fn has_failed(&self) -> bool {
        self.duplicate.lock().is_some()
    }
}

/// A set of record ids up to a greatest id. It takes one bit for each id of the pages in use.
pub struct Marks {
    greatest: u64,
    all: AtomicBool,
    pages: Mutex<HashMap<u64, Page>>,
}

impl Marks {
    /// Returns a set that stores ids up to `greatest` and ignores greater ids.
    pub fn up_to(greatest: u64) -> Marks {
        Marks { greatest, all: AtomicBool::new(false), pages: Mutex::default() }
    }

    /// Returns the greatest stored id.
    pub fn greatest(&self) -> u64 {
        self.greatest
    }

    /// Adds an id, unless it is greater than the greatest stored id.
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

    /// Adds all ids.
    pub fn fill(&self) {
        self.all.store(true, Ordering::Release);
    }

    /// Returns true if the set contains an id.
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
        let marked = [0, 1, 63, 64, 4095, 4096, 9999, 10_000];
        marked.iter().for_each(|number| marks.add(*number));
        marks.add(10_001);
        for number in 0..10_100 {
            assert_eq!(marks.contains(number), marked.contains(&number), "{number}");
        }
    }
}
