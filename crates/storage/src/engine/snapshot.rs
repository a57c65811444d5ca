//! The traits for reading: a snapshot of all trees, cursors over it, and differences of two trees.
//!
//! Stores with round trips take hints. A hint never changes what a read returns.

use crate::{Direction, Error, Ident, Key, Range, Result, Value, ValueRef};
use std::cmp::Ordering;
use std::sync::Arc;

/// One state of all trees, which does not change. Every call with the number of a tree fails with `NoSuchIdent` if
/// this state has no such tree.
pub trait Snapshot: Send + Sync {
    /// Returns the value of a key.
    fn get(&self, ident: Ident, key: &[u8]) -> Result<Option<Value>>;

    /// Looks up an entry of a unique index, and the record that the first eight bytes of its value name. Returns the
    /// values of both. One round trip to a remote store.
    ///
    /// Fails with `Corrupted` if the record is missing.
    fn lookup(&self, index: Ident, key: &[u8], records: Ident) -> Result<Option<(Value, Value)>> {
        let Some(entry) = self.get(index, key)? else { return Ok(None) };
        let record = match entry.get(..8) {
            Some(id) => self.get(records, id)?,
            None => None,
        };
        match record {
            Some(record) => Ok(Some((entry, record))),
            None => Err(Error::Corrupted("an index entry refers to a missing record".to_string())),
        }
    }

    /// [`lookup`](Self::lookup) as the only read of this state. A remote store need not keep the state then, and a
    /// later read may be of a later state.
    fn lookup_alone(&self, index: Ident, key: &[u8], records: Ident) -> Result<Option<(Value, Value)>> {
        self.lookup(index, key, records)
    }

    /// A cursor over the entries of a range. It outlives the snapshot.
    fn scan(&self, ident: Ident, range: Range, direction: Direction) -> Result<Box<dyn Cursor>>;

    /// The differences of two trees; `None` stands for an empty tree. They outlive the snapshot. The time is that of a
    /// scan of both trees, except that forks of one tree may share parts that are skipped.
    fn differences(&self, before: Option<Ident>, after: Option<Ident>) -> Result<Box<dyn Differences>> {
        merged(self, before, after)
    }

    /// Returns the number of entries of a tree.
    fn entries(&self, ident: Ident) -> Result<u64>;

    /// Returns the total length of all keys and values in a tree.
    fn bytes(&self, ident: Ident) -> Result<u64>;

    /// Returns true if a tree exists.
    fn contains(&self, ident: Ident) -> Result<bool>;

    /// Reads everything that files hold of a tree, also what later changes hide, and returns the damage. Without files
    /// there is none. The call ends early once `should_continue` returns false.
    fn verify(&self, ident: Ident, should_continue: &mut dyn FnMut() -> bool) -> Result<Vec<Damage>> {
        let _ = should_continue;
        match self.contains(ident)? {
            true => Ok(Vec::new()),
            false => Err(Error::NoSuchIdent(ident)),
        }
    }

    /// The hints that a store with round trips takes. `None` for a store in this process.
    fn remote(&self) -> Option<&dyn RemoteHints> {
        None
    }
}

/// A place where the stored bytes are not the bytes that were written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Key of the damaged entry, if the damage is limited to one.
    pub key: Option<Key>,
    /// Description and location of the damage.
    pub message: String,
}

/// A walk over the entries of a range: each once, in the order of their keys or the reverse.
pub trait Cursor: Send {
    /// Returns the next entry, borrowed until the next call; `None` at the end and in all later
    /// calls.
    fn next(&mut self) -> Result<Option<(&[u8], ValueRef<'_>)>>;

    /// Moves in the direction of the walk to the entry at `key`, or to the first entry behind it. Does nothing if the
    /// cursor has passed the key. Cheap if the key is near.
    fn seek(&mut self, key: &[u8]) -> Result<()>;

    /// Returns the number of entries left out since the last call, see [`Hints::contains`](crate::Hints::contains).
    fn take_omitted(&mut self) -> u64 {
        0
    }

    /// The record that the last entry names, once, if the cursor was opened with
    /// [`Hints::prefetch_records`](crate::Hints::prefetch_records) and its page carried the record.
    ///
    /// Fails as [`next`](Self::next) does.
    fn prefetched_record(&mut self) -> Result<Option<Value>> {
        Ok(None)
    }
}

/// Number of equal entries between two interrupt checks.
const ASK: u32 = 256;

/// An entry that differs between two trees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The key.
    pub key: Key,
    /// The value in the first tree.
    pub before: Option<Value>,
    /// The value in the second tree.
    pub after: Option<Value>,
}

/// A scan over the differences of two trees, in key order.
pub trait Differences: Send {
    /// Returns the next difference; `None` at the end and in all later calls. Calls `should_continue` from
    /// time to time while entries are equal. If it returns false, the result is also `None`, and
    /// the next call continues.
    fn next(&mut self, should_continue: &mut dyn FnMut() -> bool) -> Result<Option<Difference>>;
}

/// Reads both trees completely, for engines whose trees share nothing.
pub(crate) fn merged<S: Snapshot + ?Sized>(
    snapshot: &S,
    before: Option<Ident>,
    after: Option<Ident>,
) -> Result<Box<dyn Differences>> {
    Ok(Box::new(Merged { before: Side::new(snapshot, before)?, after: Side::new(snapshot, after)? }))
}

/// Two parallel scans.
struct Merged {
    before: Side,
    after: Side,
}

/// One scan and its current entry.
struct Side {
    cursor: Option<Box<dyn Cursor>>,
    entry: Option<(Key, Value)>,
}

impl Side {
    fn new<S: Snapshot + ?Sized>(snapshot: &S, ident: Option<Ident>) -> Result<Side> {
        let cursor = ident.map(|ident| snapshot.scan(ident, Range::all(), Direction::Forward)).transpose()?;
        Ok(Side { cursor, entry: None })
    }

    /// Reads the next entry if none is present.
    fn fill(&mut self) -> Result<()> {
        if let (None, Some(cursor)) = (&self.entry, &mut self.cursor) {
            match cursor.next()? {
                Some((key, value)) => self.entry = Some((Key::from(key), value.to_value())),
                None => self.cursor = None,
            }
        }
        Ok(())
    }
}

impl Differences for Merged {
    fn next(&mut self, should_continue: &mut dyn FnMut() -> bool) -> Result<Option<Difference>> {
        let mut passed = 0u32;
        loop {
            self.before.fill()?;
            self.after.fill()?;
            let order = match (&self.before.entry, &self.after.entry) {
                (None, None) => return Ok(None),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((before, _)), Some((after, _))) => (**before).cmp(&**after),
            };
            let before = if order.is_le() { self.before.entry.take() } else { None };
            let after = if order.is_ge() { self.after.entry.take() } else { None };
            let key = before.as_ref().or(after.as_ref()).map(|(key, _)| key.clone());
            let (before, after) = (before.map(|(_, value)| value), after.map(|(_, value)| value));
            if let Some(key) = key
                && !alike(before.as_ref(), after.as_ref())
            {
                return Ok(Some(Difference { key, before, after }));
            }
            passed += 1;
            if passed.is_multiple_of(ASK) && !should_continue() {
                return Ok(None);
            }
        }
    }
}

/// Returns true if two values are equal. Values that share their bytes need no comparison.
pub(crate) fn alike(before: Option<&Value>, after: Option<&Value>) -> bool {
    match (before, after) {
        (Some(before), Some(after)) => {
            (before.len() == after.len() && before.as_ptr() == after.as_ptr()) || before == after
        }
        (before, after) => before.is_none() && after.is_none(),
    }
}

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

    /// The numbers of documents of collections and their bytes, by the trees of their documents, in one round trip.
    /// Empty if the store does not keep these counts as part of this state.
    fn counts(&self, idents: &[Ident]) -> Result<Vec<(Ident, i64, i64)>> {
        let _ = idents;
        Ok(Vec::new())
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
