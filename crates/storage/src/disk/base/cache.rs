//! Pages in memory: those that were read last.
//!
//! Each page belongs to one of several parts by a hash of its number, and each part keeps the pages that were used last
//! within its share of the memory. Nothing cleverer: what another size of it would bring can then be told from a sample
//! of what is read (`reuse.rs`).

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lru::LruCache;
use parking_lot::Mutex;

use super::page::Page;

/// A part has at least so many bytes.
const PART_BYTES: u64 = 4 << 20;
const PARTS_MAX: u64 = 16;

/// What the cache counts about itself.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::disk) struct CacheCounts {
    pub(in crate::disk) hits: u64,
    pub(in crate::disk) misses: u64,
    pub(in crate::disk) evictions: u64,
    pub(in crate::disk) bytes: u64,
}

/// Pages by their numbers, of one file after another as the base is written anew.
pub(super) struct PageCache {
    parts: Vec<Mutex<Part>>,
    /// What each may have.
    part_bytes: u64,
    hits: AtomicU64,
    misses: AtomicU64,
    evictions: AtomicU64,
    files: AtomicU64,
}

struct Part {
    pages: LruCache<u64, Arc<Page>, foldhash::fast::FixedState>,
    bytes: u64,
}

impl PageCache {
    /// A cache of so many bytes.
    pub(super) fn new(bytes: u64) -> Self {
        let parts = (bytes / PART_BYTES).clamp(1, PARTS_MAX);
        let part = |_| {
            let pages = LruCache::unbounded_with_hasher(foldhash::fast::FixedState::default());
            Mutex::new(Part { pages, bytes: 0 })
        };
        PageCache {
            parts: (0..parts).map(part).collect(),
            part_bytes: bytes / parts,
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
            files: AtomicU64::new(0),
        }
    }

    /// The number of the next file.
    pub(super) fn next_file(&self) -> u64 {
        self.files.fetch_add(1, Ordering::Relaxed)
    }

    fn part(&self, number: u64) -> Option<&Mutex<Part>> {
        let spread = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        self.parts.get(((spread * self.parts.len() as u64) >> 32) as usize)
    }

    /// A page that is to be read.
    #[inline]
    pub(super) fn get(&self, number: u64) -> Option<Arc<Page>> {
        let found = self.part(number)?.lock().pages.get(&number).cloned();
        let counter = if found.is_some() { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }

    /// A page that is only looked at, and stays no longer for that.
    pub(super) fn peek(&self, number: u64) -> Option<Arc<Page>> {
        self.part(number)?.lock().pages.peek(&number).cloned()
    }

    /// Takes a page in, in the place of those that were not read for longest.
    pub(super) fn insert(&self, number: u64, page: Arc<Page>) {
        let Some(part) = self.part(number) else { return };
        let mut gone = Vec::new();
        let mut part = part.lock();
        part.bytes += page.memory();
        gone.extend(part.pages.put(number, page));
        part.bytes -= gone.iter().map(|page| page.memory()).sum::<u64>();
        while part.bytes > self.part_bytes
            && let Some((_, page)) = part.pages.pop_lru()
        {
            part.bytes -= page.memory();
            self.evictions.fetch_add(1, Ordering::Relaxed);
            gone.push(page);
        }
        // What has gone is freed outside of the lock.
        drop(part);
    }

    /// Forgets a page.
    pub(super) fn remove(&self, number: u64) {
        let Some(part) = self.part(number) else { return };
        let mut part = part.lock();
        let page = part.pages.pop(&number);
        part.bytes -= page.as_ref().map_or(0, |page| page.memory());
        drop(part);
    }

    /// Forgets all pages whose numbers are in a range.
    pub(super) fn remove_all(&self, numbers: &Range<u64>) {
        for part in &self.parts {
            let mut part = part.lock();
            let found: Vec<u64> = part
                .pages
                .iter()
                .map(|(number, _)| *number)
                .filter(|number| numbers.contains(number))
                .collect();
            let gone: Vec<Arc<Page>> = found.iter().filter_map(|number| part.pages.pop(number)).collect();
            part.bytes -= gone.iter().map(|page| page.memory()).sum::<u64>();
            drop(part);
        }
    }

    pub(super) fn counts(&self) -> CacheCounts {
        CacheCounts {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            evictions: self.evictions.load(Ordering::Relaxed),
            bytes: self.parts.iter().map(|part| part.lock().bytes).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::run::Run;
    use super::*;

    fn page(bytes: usize) -> Arc<Page> {
        let mut run = Run::default();
        run.push(&[], b"key", &vec![1; bytes]);
        let mut page = Vec::new();
        run.take(1, 0, &mut page);
        Arc::new(Page::read(page.into()).unwrap())
    }

    #[test]
    fn those_read_last_stay() {
        let cache = PageCache::new(10_000);
        (0..4).for_each(|number| cache.insert(number, page(2_000)));
        assert!(cache.get(0).is_some() && cache.peek(1).is_some());
        cache.insert(4, page(2_000));
        assert!(cache.get(1).is_none() && cache.get(0).is_some() && cache.get(4).is_some());
        cache.insert(0, page(10));
        cache.remove(4);
        cache.remove(9);
        let counts = cache.counts();
        assert_eq!((counts.hits, counts.misses, counts.evictions), (3, 1, 1));
        assert!((4_000..5_500).contains(&counts.bytes), "{counts:?}");
        cache.remove_all(&(0..1));
        assert!(cache.peek(0).is_none() && cache.peek(3).is_some());
        // One that is larger than all there is passes through.
        cache.insert(7, page(20_000));
        assert_eq!((cache.counts().bytes, cache.get(7).is_none()), (0, true));
    }
}
