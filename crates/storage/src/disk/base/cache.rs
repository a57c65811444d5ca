//! The page cache: the most recently read pages.
//!
//! Each page belongs to one of several partitions by a hash of its number. Each partition keeps the most recently used
//! pages within its share of memory. The policy is plain LRU, so a sample of reads predicts the effect of another size
//! (`reuse.rs`).
//!
//! The module also reads the base's file page by page through the cache.
//!
//! A page is never changed in place while it may be read. The cache therefore only removes a page when a new page is
//! written at its offset. The checksum is verified when a page is read from the file, and its entries are located then.
//! Later lookups only search.

use super::page::{Page, PageHandle, UNIT, unframe};
use super::{IDENTS_TABLE, TABLES_TABLE, table_name};
use crate::disk::files::{File, during};
use crate::disk::reuse::{Reuse, TableReads, Visited};
use crate::{Error, Result};
use lru::LruCache;
use parking_lot::Mutex;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Minimum size of a partition.
const PART_BYTES: u64 = 4 << 20;
const PARTS_MAX: u64 = 16;

/// Counters of the cache.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::disk) struct CacheCounts {
    pub(in crate::disk) hits: u64,
    pub(in crate::disk) misses: u64,
    pub(in crate::disk) evictions: u64,
    /// Memory of the cached pages.
    pub(in crate::disk) bytes: u64,
}

/// Pages by number, of successive files as the base is compacted.
pub(super) struct PageCache {
    parts: Vec<Mutex<Part>>,
    /// Size limit of each partition.
    part_bytes: u64,
    hits: AtomicU64,
    misses: AtomicU64,
    evictions: AtomicU64,
    /// Number of the latest file.
    files: AtomicU64,
}

/// A partition: pages by number, in the order of their last use.
struct Part {
    /// Pages in the order of their last use.
    pages: LruCache<u64, Arc<Page>, foldhash::fast::FixedState>,
    /// Memory of the pages.
    bytes: u64,
}

impl Part {
    /// Asserts that the partition is within its limit, and counts no bytes without pages.
    fn assert_bounded(&self, limit: u64) {
        debug_assert!(self.bytes <= limit, "{} bytes in a partition of {limit}", self.bytes);
        debug_assert_eq!(self.pages.is_empty(), self.bytes == 0, "{} pages", self.pages.len());
    }
}

impl PageCache {
    /// Creates a cache of this size in bytes.
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

    /// Returns the number of the next file.
    pub(super) fn next_file(&self) -> u64 {
        self.files.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the partition of a page.
    fn part(&self, number: u64) -> Option<&Mutex<Part>> {
        let spread = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let at = ((spread * self.parts.len() as u64) >> 32) as usize;
        debug_assert!(at < self.parts.len(), "page {number} has no partition");
        self.parts.get(at)
    }

    /// Returns a page for reading.
    #[inline]
    pub(super) fn get(&self, number: u64) -> Option<Arc<Page>> {
        let found = self.part(number)?.lock().pages.get(&number).cloned();
        let counter = if found.is_some() { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }

    /// Returns a page without marking it as used.
    pub(super) fn peek(&self, number: u64) -> Option<Arc<Page>> {
        self.part(number)?.lock().pages.peek(&number).cloned()
    }

    /// Inserts a page and evicts the least recently used ones.
    pub(super) fn insert(&self, number: u64, page: Arc<Page>) {
        let Some(part) = self.part(number) else { return };
        let mut evicted = Vec::new();
        let mut part = part.lock();
        part.bytes += page.memory();
        evicted.extend(part.pages.put(number, page));
        part.bytes -= evicted.iter().map(|page| page.memory()).sum::<u64>();
        while part.bytes > self.part_bytes
            && let Some((_, page)) = part.pages.pop_lru()
        {
            part.bytes -= page.memory();
            self.evictions.fetch_add(1, Ordering::Relaxed);
            evicted.push(page);
        }
        part.assert_bounded(self.part_bytes);
        // Evicted pages are freed outside of the lock.
        drop(part);
    }

    /// Removes a page.
    pub(super) fn remove(&self, number: u64) {
        let Some(part) = self.part(number) else { return };
        let mut part = part.lock();
        let page = part.pages.pop(&number);
        part.bytes -= page.as_ref().map_or(0, |page| page.memory());
        part.assert_bounded(self.part_bytes);
        drop(part);
    }

    /// Removes all pages with numbers in a range.
    pub(super) fn remove_all(&self, numbers: &Range<u64>) {
        for part in &self.parts {
            let mut part = part.lock();
            let found: Vec<u64> = part
                .pages
                .iter()
                .map(|(number, _)| *number)
                .filter(|number| numbers.contains(number))
                .collect();
            let evicted: Vec<Arc<Page>> = found.iter().filter_map(|number| part.pages.pop(number)).collect();
            part.bytes -= evicted.iter().map(|page| page.memory()).sum::<u64>();
            debug_assert_eq!(part.bytes, part.pages.iter().map(|(_, page)| page.memory()).sum::<u64>());
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

/// Number of bits for the offset. Higher bits hold the number of the file.
const OFFSET_BITS: u32 = 40;

/// The open file and its part of the cache.
pub(super) struct PageFile {
    pub(super) file: Arc<dyn File>,
    path: PathBuf,
    cache: Arc<PageCache>,
    reuse: Arc<Reuse>,
    /// Distinguishes its pages from other files' in the cache.
    number: u64,
    /// True once reads of the file must fail.
    closed: AtomicBool,
}

impl PageFile {
    pub(super) fn new(file: Arc<dyn File>, path: PathBuf, cache: Arc<PageCache>, reuse: Arc<Reuse>) -> Self {
        let number = cache.next_file();
        debug_assert!(
            number < 1 << (u64::BITS - OFFSET_BITS),
            "file {number} shares its numbers with another"
        );
        let number = number << OFFSET_BITS;
        PageFile { file, path, cache, reuse, number, closed: AtomicBool::new(false) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes every read fail that is not in memory.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Returns the read counters of a table; `None` for catalog trees.
    pub(super) fn uses(&self, table: u64) -> Option<Arc<TableReads>> {
        (![IDENTS_TABLE, TABLES_TABLE].contains(&table)).then(|| self.reuse.uses(table))
    }

    /// Reads a page of a table into the cache and records the visit. A read of a leaf is counted.
    #[inline]
    pub(super) fn visit(
        &self,
        uses: Option<&TableReads>,
        is_read: bool,
        table: u64,
        handle: PageHandle,
    ) -> Result<Arc<Page>> {
        let Some(uses) = uses else { return self.page(table, handle) };
        let number = self.number | handle.offset;
        let (page, is_miss) = match self.cache.get(number) {
            Some(page) => (page, false),
            None => (self.take_in(table, handle)?, true),
        };
        let (bytes, is_leaf) = (page.memory(), is_read && page.height() == 0);
        self.reuse.visit(uses, Visited { number, bytes, is_leaf, is_miss });
        Ok(page)
    }

    /// Reads a page without recording it, for accesses other than reads of entries.
    pub(super) fn page(&self, table: u64, handle: PageHandle) -> Result<Arc<Page>> {
        match self.cache.get(self.number | handle.offset) {
            Some(page) => Ok(page),
            None => self.take_in(table, handle),
        }
    }

    /// Reads a page from the file and keeps it in the cache.
    fn take_in(&self, table: u64, handle: PageHandle) -> Result<Arc<Page>> {
        let page = self.load(table, handle)?;
        self.cache.insert(self.number | handle.offset, Arc::clone(&page));
        Ok(page)
    }

    /// Reads a page that is used once, bypassing the cache. Also returns whether it was in memory.
    pub(super) fn page_once(&self, table: u64, handle: PageHandle) -> Result<(Arc<Page>, bool)> {
        match self.cache.peek(self.number | handle.offset) {
            Some(page) => Ok((page, true)),
            None => Ok((self.load(table, handle)?, false)),
        }
    }

    /// Reads a page from the file and verifies its checksum.
    fn load(&self, table: u64, handle: PageHandle) -> Result<Arc<Page>> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        let mut bytes = vec![0; handle.units as usize * UNIT];
        let at = handle.offset * UNIT as u64;
        let read = self.file.read_at(&mut bytes, at);
        read.map_err(|error| during("reading", &self.path, error))?;
        let page = unframe(&bytes, handle.sum).ok_or_else(|| self.damaged(table, handle))?;
        Ok(Arc::new(page))
    }

    /// Returns an error about a damaged page.
    pub(super) fn damaged(&self, table: u64, handle: PageHandle) -> Error {
        let (path, at, table) = (self.path.display(), handle.offset * UNIT as u64, table_name(table));
        Error::Corrupted(format!("{path}: the page at offset {at}, of table {table}, has a wrong checksum"))
    }

    /// Records a written page. Keeps it in memory if `page` is given.
    pub(super) fn note(&self, offset: u64, page: Option<Page>) {
        debug_assert!(offset < 1 << OFFSET_BITS, "the offset {offset} is in the pages of another file");
        let number = self.number | offset;
        match page {
            Some(page) => {
                self.reuse.written(number, page.memory());
                self.cache.insert(number, Arc::new(page));
            }
            None => self.cache.remove(number),
        }
    }

    /// Removes all pages after a change of the file.
    pub(super) fn forget_all(&self) {
        self.cache.remove_all(&(self.number..self.number + (1 << OFFSET_BITS)));
        self.reuse.forget_pages();
    }

    /// Removes a page that is no longer needed.
    pub(super) fn forget(&self, offset: u64) {
        debug_assert!(offset < 1 << OFFSET_BITS, "the offset {offset} is in the pages of another file");
        let number = self.number | offset;
        self.cache.remove(number);
        self.reuse.freed(number);
    }
}

#[cfg(test)]
mod tests {
    use super::super::merge::Run;
    use super::*;

    fn page(bytes: usize) -> Arc<Page> {
        let mut run = Run::default();
        run.push(&[], b"key", &vec![1; bytes]);
        let mut page = Vec::new();
        run.take(1, 0, &mut page);
        Arc::new(Page::read(page.into()).unwrap())
    }

    #[test]
    fn recently_read_pages_stay() {
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
        // A page larger than the whole cache is not kept.
        cache.insert(7, page(20_000));
        assert_eq!((cache.counts().bytes, cache.get(7).is_none()), (0, true));
    }
}
