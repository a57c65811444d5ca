//! The base's file, read page by page through a cache.
//!
//! A page never changes where it lies as long as somebody may read it, so that the cache needs no more than to forget
//! what lay where a new page is written. Its checksum is looked at when it is read from the file, and its entries are
//! found then: a page in the cache is only searched.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::cache::PageCache;
use super::page::{Page, Place, UNIT, unframe};
use super::{IDENTS_TABLE, TABLES_TABLE, table_name};
use crate::disk::files::File;
use crate::disk::journal::during;
use crate::disk::reuse::{Reuse, Uses, Visited};
use crate::{Error, Result};

/// Files are told apart in the bits above those of any offset.
const OFFSET_BITS: u32 = 40;

/// The file, open, and its part of the cache.
pub(super) struct PageFile {
    pub(super) file: Arc<dyn File>,
    path: PathBuf,
    cache: Arc<PageCache>,
    reuse: Arc<Reuse>,
    /// Tells its pages from those of another file in the cache.
    number: u64,
    closed: AtomicBool,
}

impl PageFile {
    pub(super) fn new(file: Arc<dyn File>, path: PathBuf, cache: Arc<PageCache>, reuse: Arc<Reuse>) -> Self {
        let number = cache.next_file() << OFFSET_BITS;
        PageFile { file, path, cache, reuse, number, closed: AtomicBool::new(false) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Lets everything fail that isn't in memory.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// The counters of a table's reads; those that tell of the others have none.
    pub(super) fn uses(&self, table: u64) -> Option<Arc<Uses>> {
        (![IDENTS_TABLE, TABLES_TABLE].contains(&table)).then(|| self.reuse.uses(table))
    }

    /// A page of a table, which stays in memory from now on if there is room; the visit is noted, and counted if it is a
    /// read and the page a leaf.
    #[inline]
    pub(super) fn visit(
        &self,
        uses: Option<&Uses>,
        is_read: bool,
        table: u64,
        place: Place,
    ) -> Result<Arc<Page>> {
        let Some(uses) = uses else { return self.page(table, place) };
        let number = self.number | place.offset;
        let (page, is_miss) = match self.cache.get(number) {
            Some(page) => (page, false),
            None => (self.take_in(table, place)?, true),
        };
        let (bytes, is_leaf) = (page.memory(), is_read && page.height() == 0);
        self.reuse.visit(uses, Visited { number, bytes, is_leaf, is_miss });
        Ok(page)
    }

    /// The same without noting it, for what isn't a read of the table's entries.
    pub(super) fn page(&self, table: u64, place: Place) -> Result<Arc<Page>> {
        match self.cache.get(self.number | place.offset) {
            Some(page) => Ok(page),
            None => self.take_in(table, place),
        }
    }

    fn take_in(&self, table: u64, place: Place) -> Result<Arc<Page>> {
        let page = self.load(table, place)?;
        self.cache.insert(self.number | place.offset, Arc::clone(&page));
        Ok(page)
    }

    /// A page, for somebody who reads it once; and whether it was in memory.
    pub(super) fn page_once(&self, table: u64, place: Place) -> Result<(Arc<Page>, bool)> {
        match self.cache.peek(self.number | place.offset) {
            Some(page) => Ok((page, true)),
            None => Ok((self.load(table, place)?, false)),
        }
    }

    fn load(&self, table: u64, place: Place) -> Result<Arc<Page>> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        let mut bytes = vec![0; place.units as usize * UNIT];
        let at = place.offset * UNIT as u64;
        let read = self.file.read_at(&mut bytes, at);
        read.map_err(|error| during("reading", &self.path, error))?;
        let page = unframe(&bytes, place.sum).ok_or_else(|| self.damaged(table, place))?;
        Ok(Arc::new(page))
    }

    /// Says that a page isn't what was written.
    pub(super) fn damaged(&self, table: u64, place: Place) -> Error {
        let (path, at, table) = (self.path.display(), place.offset * UNIT as u64, table_name(table));
        Error::Corrupted(format!("{path}: the page at offset {at}, of table {table}, has a wrong checksum"))
    }

    /// Notes what has been written somewhere: the page there, if it is to stay in memory.
    pub(super) fn note(&self, offset: u64, page: Option<Page>) {
        let number = self.number | offset;
        match page {
            Some(page) => {
                self.reuse.written(number, page.memory());
                self.cache.insert(number, Arc::new(page));
            }
            None => self.cache.remove(number),
        }
    }

    /// Lets go of all pages, others having taken their place in another file.
    pub(super) fn forget_all(&self) {
        self.cache.remove_all(&(self.number..self.number + (1 << OFFSET_BITS)));
        self.reuse.forget_pages();
    }

    /// Lets go of a page that is no longer needed.
    pub(super) fn forget(&self, offset: u64) {
        let number = self.number | offset;
        self.cache.remove(number);
        self.reuse.freed(number);
    }
}
