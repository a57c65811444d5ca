//! Hints to stores with round trips. A hint never changes what a read returns.

use super::Cursor;
use crate::{Direction, Ident, Key, Range, Result, Value};
use std::sync::Arc;

/// Returns true if a scan needs an entry, by its key and value.
pub type RecordFilter = Box<dyn FnMut(&[u8], &[u8]) -> bool + Send>;

/// The part of each value that a scan reads, near the start of the value.
pub trait Excerpt: Send + Sync {
    /// Returns the number of bytes at the start of a value that its excerpt needs.
    fn bytes_needed(&self, value: &[u8]) -> usize;

    /// Returns the excerpt of a value by its first bytes. Returns `None` if it needs more bytes.
    fn of_start(&self, start: &[u8]) -> Option<Value>;
}

/// The parts of a cursor's range that a scan reads, in the direction of the scan. The cursor skips the keys between.
pub trait Ranges: Send {
    /// Moves to the first range that ends at or behind `key`, from any earlier place.
    fn go_to(&mut self, key: &[u8]);

    /// The next range, which may begin before that key; `None` at the end, and ever after.
    fn next_range(&mut self) -> Option<Range>;
}

/// The hints for one cursor, which has not begun.
#[derive(Default)]
pub struct Hints {
    /// The tree of the records that the entries of an index name, and whether the index is unique. A page of entries
    /// carries their records. The record's key is the first eight bytes of the value in a unique index, else the
    /// last eight bytes of the key.
    pub prefetch_records: Option<(Ident, bool)>,
    /// The ranges that the scan reads; `None` is all. The cursor may leave out every other entry.
    pub ranges: Option<Box<dyn Ranges>>,
    /// The entries whose records the scan reads; `None` is all.
    pub record_filter: Option<RecordFilter>,
    /// The number of entries after which the scan probably ends.
    pub limit: Option<u64>,
    /// The part of each value that the scan reads. The cursor may return excerpts in place of values.
    pub excerpt: Option<Arc<dyn Excerpt>>,
    /// Bytes within each value that the scan needs, in a tree whose keys have eight bytes. The cursor may leave out
    /// other entries, which [`Cursor::take_omitted`] counts, or return them with empty values.
    pub contains: Option<Box<[u8]>>,
}

/// Reads of a remote store that save round trips. [`Snapshot::remote`](crate::Snapshot::remote) returns it.
pub trait RemoteHints: Send + Sync {
    /// [`scan`](crate::Snapshot::scan) with hints.
    fn scan_hinted(
        &self,
        ident: Ident,
        range: Range,
        hints: Hints,
        direction: Direction,
    ) -> Result<Box<dyn Cursor>>;

    /// [`get`](crate::Snapshot::get) as the only read of this state. The store need not keep the state then, and a
    /// later read may be of a later state.
    fn get_alone(&self, ident: Ident, key: &[u8]) -> Result<Option<Value>>;

    /// Several cursors in one direction. The first read of any of them reads the first page of all.
    fn scan_together(
        &self,
        scans: Vec<(Ident, Range, Hints)>,
        direction: Direction,
    ) -> Result<Vec<Box<dyn Cursor>>> {
        scans
            .into_iter()
            .map(|(ident, range, hints)| self.scan_hinted(ident, range, hints, direction))
            .collect()
    }

    /// The values of several keys in one round trip, in the order of the keys. `None` stands for a missing key and
    /// for a value that [`get`](crate::Snapshot::get) must read. So does every key beyond the end of the result.
    fn prefetch_records(&self, ident: Ident, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
        let _ = (ident, keys);
        Ok(Vec::new())
    }

    /// The number of documents of a collection and their bytes, by the tree of its documents, if the store keeps
    /// these counts as part of this state.
    fn counts(&self, ident: Ident) -> Result<Option<(i64, i64)>> {
        let _ = ident;
        Ok(None)
    }

    /// The keys of a tree's entries with the times of the commits that wrote them, in the order of the keys, as far as
    /// the store's log reaches. If several commits were written together, an entry may have the latest of their times.
    fn commit_times(&self, ident: Ident) -> Result<Vec<(Key, u64)>> {
        let _ = ident;
        Ok(Vec::new())
    }

    /// Checks that the catalog of this view belongs to its state. Every read does so. This call serves a
    /// caller that reads nothing.
    ///
    /// Fails with `CatalogChanged`, as the reads do.
    fn confirm(&self) -> Result<()>;

    /// Whether all reads so far were of one state. A store may release an idle state. The next read is then of a later
    /// state, in which an index entry that was read before may name no record.
    fn is_pinned(&self) -> bool {
        true
    }

    /// Pins this state: once the store has released it, reads fail with `SnapshotTooOld`.
    fn pin(&self) {}
}
