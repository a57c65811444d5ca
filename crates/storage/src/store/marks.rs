//! Information from writers for an index build: the records that they have changed, and a duplicate
//! key.

use crate::EventCount;
use crate::sync::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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

/// A set of record ids up to a greatest id. It takes some 30 bytes for each 64 ids in use.
pub struct Marks {
    greatest: u64,
    all: AtomicBool,
    /// A bit for each of 64 ids. Most ids of a store of several processes have a word of their own.
    words: Mutex<HashMap<u64, u64>>,
}

impl Marks {
    /// Returns a set that stores ids up to `greatest` and ignores greater ids.
    pub fn up_to(greatest: u64) -> Marks {
        Marks { greatest, all: AtomicBool::new(false), words: Mutex::default() }
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
        *self.words.lock().entry(number / 64).or_default() |= 1 << (number % 64);
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
        self.words.lock().get(&(number / 64)).is_some_and(|word| word & (1 << (number % 64)) != 0)
    }
}

impl fmt::Debug for Marks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Marks up to {} in {} words", self.greatest, self.words.lock().len())
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
