//! Traits of an engine: atomic batches and consistent snapshots.
//!
//! An engine holds any number of ordered trees, each with a number. Trees are cheap: a collection
//! and each of its indexes have one. Ordinary batches create and drop them. All calls are
//! synchronous, from any number of threads. [`crate::testing::Checked`] asserts the guarantees of
//! the traits.

use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use crate::differences::{Differences, merged};
use crate::disk::{Backup, Since};
use crate::{Batch, Error, Key, Lent, Result, Value, Wanted, WorkingSet};

/// Number of an ordered tree: MongoDB's ident of a collection or an index. It does not change when
/// the collection is renamed. It has no other meaning for the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ident(pub u64);

/// Position in the order of commits, returned by [`Engine::commit`]. A later commit has a greater
/// position.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

/// Direction of a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the lower bound upwards.
    Forward,
    /// From the upper bound downwards.
    Backward,
}

impl Direction {
    /// Compares two keys in scan order.
    #[inline]
    pub fn order(self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            Direction::Forward => a.cmp(b),
            Direction::Backward => b.cmp(a),
        }
    }

    /// Returns true if a scan reaches `a` before `b`.
    #[inline]
    pub fn is_before(self, a: &[u8], b: &[u8]) -> bool {
        self.order(a, b) == Ordering::Less
    }
}

/// The keys between two bounds. `lower` is the smaller bound in both directions. A range with
/// crossed bounds is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// The lower bound.
    pub lower: Bound<Key>,
    /// The upper bound.
    pub upper: Bound<Key>,
}

impl Range {
    /// Returns the range of all keys.
    pub const fn all() -> Self {
        Range { lower: Bound::Unbounded, upper: Bound::Unbounded }
    }

    /// Returns the range from `lower` (included) to `upper` (excluded).
    pub fn half_open(lower: impl Into<Key>, upper: impl Into<Key>) -> Self {
        Range { lower: Bound::Included(lower.into()), upper: Bound::Excluded(upper.into()) }
    }

    /// Returns the range of keys with the given prefix.
    pub fn prefix(prefix: &[u8]) -> Self {
        let upper = match prefix.iter().rposition(|byte| *byte != u8::MAX) {
            None => Bound::Unbounded,
            Some(last) => {
                let mut after: Vec<u8> = prefix.iter().take(last + 1).copied().collect();
                if let Some(byte) = after.last_mut() {
                    *byte += 1;
                }
                Bound::Excluded(after.into())
            }
        };
        Range { lower: Bound::Included(prefix.into()), upper }
    }

    /// Returns the intersection of two ranges.
    pub fn intersection(&self, other: &Range) -> Range {
        let order = |a: &Bound<Key>, b: &Bound<Key>| match (a, b) {
            (Bound::Unbounded, Bound::Unbounded) => Ordering::Equal,
            (Bound::Unbounded, _) => Ordering::Less,
            (_, Bound::Unbounded) => Ordering::Greater,
            (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => a.cmp(b),
        };
        // Of two bounds at one key, the excluded one is narrower.
        let is_out = |bound: &Bound<Key>| matches!(bound, Bound::Excluded(_));
        let lower = match order(&self.lower, &other.lower) {
            Ordering::Greater => &self.lower,
            Ordering::Equal if is_out(&self.lower) => &self.lower,
            _ => &other.lower,
        };
        let upper = match (&self.upper, &other.upper) {
            (Bound::Unbounded, upper) | (upper, Bound::Unbounded) => upper,
            (own, their) => match order(own, their) {
                Ordering::Less => own,
                Ordering::Equal if is_out(own) => own,
                _ => their,
            },
        };
        Range { lower: lower.clone(), upper: upper.clone() }
    }

    /// Returns true if no key can be in the range.
    pub fn is_empty(&self) -> bool {
        match (&self.lower, &self.upper) {
            (Bound::Unbounded, Bound::Excluded(upper)) => upper.is_empty(),
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(lower), Bound::Included(upper)) => lower > upper,
            (
                Bound::Included(lower) | Bound::Excluded(lower),
                Bound::Included(upper) | Bound::Excluded(upper),
            ) => lower >= upper,
        }
    }

    /// Returns true if a key is within both bounds.
    pub fn contains(&self, key: &[u8]) -> bool {
        let above = match &self.lower {
            Bound::Included(lower) => key >= &**lower,
            Bound::Excluded(lower) => key > &**lower,
            Bound::Unbounded => true,
        };
        let below = match &self.upper {
            Bound::Included(upper) => key <= &**upper,
            Bound::Excluded(upper) => key < &**upper,
            Bound::Unbounded => true,
        };
        above && below
    }
}

/// Number of buckets of [`Statistics::sync_counts`].
pub const SYNC_SPANS: usize = 22;

/// Statistics of an engine since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Total length of all keys and values in the latest state. Forked trees count in full.
    pub bytes: u64,
    /// Pages found in the cache, including inner pages.
    pub cache_hits: u64,
    /// Pages read from the file system.
    pub cache_misses: u64,
    /// Number of file syncs.
    pub syncs: u64,
    /// Number of committed batches. Divided by `syncs`, it is the number of commits per sync.
    pub commits: u64,
    /// Pages evicted from the full cache.
    pub cache_evictions: u64,
    /// Reads of leaf pages in the data files, by successful lookups and by cursors.
    pub entry_reads: u64,
    /// Number of these reads that waited for the file system.
    pub entry_misses: u64,
    /// Bytes in the cache.
    pub cache_bytes: u64,
    /// Median duration of the journal's syncs, in microseconds.
    pub sync_micros_p50: u64,
    /// 95th percentile of the duration of the journal's syncs, in microseconds.
    pub sync_micros_p95: u64,
    /// 99th percentile of the duration of the journal's syncs, in microseconds.
    pub sync_micros_p99: u64,
    /// Total duration of all syncs of the journal, in microseconds.
    pub sync_micros: u64,
    /// Histogram of these durations: less than 16 microseconds, 16 to 31, and further doublings.
    /// The last bucket has all longer syncs.
    pub sync_counts: [u64; SYNC_SPANS],
    /// Number of completed checkpoints.
    pub checkpoints: u64,
    /// Approximate memory of the changes since the latest checkpoint, in bytes.
    pub changed_bytes: u64,
    /// Bytes of journal since the latest checkpoint.
    pub journal_bytes: u64,
    /// Size of the data files in bytes, without the journal.
    pub file_bytes: u64,
    /// The archive of the journal, if any.
    pub archive: Option<ArchiveCounts>,
}

/// State of a journal archive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ArchiveCounts {
    /// Position of its last commit.
    pub position: u64,
    /// Number of failed writes since the engine was opened.
    pub failures: u64,
    /// True if the latest attempt failed, so that the journal is kept longer.
    pub failing: bool,
}

/// Default durability of a commit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Durability {
    /// No automatic syncs: a crash of the machine may lose a commit.
    #[default]
    None,
    /// A commit survives the end of the process, and after a short interval a crash of the machine.
    Relaxed,
    /// The caller of a commit must wait until it survives a crash of the machine.
    Journaled,
}

impl Durability {
    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Durability::None => "none",
            Durability::Relaxed => "relaxed",
            Durability::Journaled => "journaled",
        }
    }
}

/// Progress of a wait for the journal without a thread ([`Engine::await_journaled`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Awaited {
    /// The wait is over.
    There,
    /// No thread syncs. The caller must call [`Engine::wait_journaled`] at once, and other waiters
    /// rely on it.
    Yours,
    /// Another thread syncs, and will call the waker.
    Later,
}

/// Ordered trees of bytes, changed by atomic batches.
pub trait Engine: Send + Sync {
    /// Returns the state of all trees after the latest commit, in constant time. The state does not
    /// change while it is held.
    fn snapshot(&self) -> Arc<dyn Snapshot>;

    /// Applies a batch completely, or fails and changes nothing. Later snapshots see the batch.
    /// [`Engine::wait_journaled`] waits until it survives a crash.
    ///
    /// Errors: `NoSuchIdent` or `IdentExists` if an operation names a missing or an existing tree
    /// after the operations before it; `KeyTooLong`.
    ///
    /// Never waits for a sync or for a checkpoint, so that it may be called with locks held.
    /// Callers call [`Engine::wait_for_room`] before they take their locks. A commit fails with
    /// `Full` if the changes are far beyond the limit of that call.
    fn commit(&self, batch: Batch) -> Result<Position>;

    /// Waits until a commit would have room. Must be called before a commit, without locks. It
    /// slows writers down to the speed at which the engine writes changes to its files.
    ///
    /// Calls `go_on` at least every 10 ms. If it returns false, the call returns `Ok`, and the
    /// caller reports the interruption. Errors: `Full` if room requires an action by the user, file
    /// errors, `Closed`.
    fn wait_for_room(&self, go_on: &mut dyn FnMut() -> bool) -> Result<()>;

    /// Returns the greatest time of any committed batch ([`Batch::set_time`]), including batches
    /// before the latest opening; 0 without any time.
    fn latest_time(&self) -> u64;

    /// Waits until everything up to `position` would survive a crash. Without a journal it returns
    /// at once, as MongoDB's in-memory engine does for `j: true`.
    fn wait_journaled(&self, position: Position) -> Result<()>;

    /// Waits without a thread until everything up to `position` would survive a crash. Returns the
    /// caller's next action. While another thread syncs, the waker is called after its success or
    /// failure, and the caller must ask again.
    fn await_journaled(&self, position: Position, waker: &Waker) -> Awaited {
        let _ = waker;
        match self.durable() >= position {
            true => Awaited::There,
            false => Awaited::Yours,
        }
    }

    /// Returns the position up to which everything would survive a crash:
    /// [`Engine::wait_journaled`] returns at once for it. Without a journal, it is the position of
    /// the latest commit.
    fn durable(&self) -> Position;

    /// Registers the function to call each time [`Engine::durable`] has advanced, and replaces the
    /// earlier function. The syncing thread calls it without any of the engine's locks. It should
    /// be quick. An engine without a journal never calls it.
    fn when_durable(&self, wake: Arc<dyn Fn() + Send + Sync>);

    /// Requests a sync of everything committed so far, and returns at once. A caller that first
    /// registers with [`Engine::when_durable`], then requests, and then reads [`Engine::durable`]
    /// misses nothing.
    fn sync_soon(&self);

    /// Returns the default durability of commits. At [`Durability::Journaled`], the caller of a
    /// commit calls [`Engine::wait_journaled`] after it has released its locks and before it
    /// acknowledges the commit. Many commits then share one sync. For this reason, `commit` itself
    /// never waits for one.
    fn durability(&self) -> Durability {
        Durability::None
    }

    /// Writes all commits so far durably to the data files. Nothing more is written until the next
    /// commit. Does nothing without files.
    fn checkpoint(&self) -> Result<()> {
        Ok(())
    }

    /// Sets the longest time that committed data may be in the journal alone before it is written
    /// to the data files; `None` disables the time limit. Has no effect without data files.
    fn checkpoint_after(&self, _: Option<Duration>) {}

    /// Sets the interval of automatic journal syncs. Has no effect if they are disabled.
    fn sync_every(&self, _: Duration) {}

    /// Begins a backup of all committed data, or of the commits since an earlier backup if all of
    /// them are available. `covers` is a time before every commit that is not in the backup.
    ///
    /// Does not block other operations, and contains the present state. Waits until that state
    /// would survive a crash.
    ///
    /// Errors: `Unavailable` for an engine without backups.
    fn backup(&self, since: Option<Since>, covers: u64) -> Result<Backup> {
        let _ = (since, covers);
        Err(Error::Unavailable(format!("the engine {} makes no backups", self.name())))
    }

    /// Returns true if the engine has a journal, so that data survives a crash.
    fn has_journal(&self) -> bool;

    /// Returns the engine's name for `serverStatus`.
    fn name(&self) -> &'static str;

    /// Returns statistics since the engine was opened.
    fn statistics(&self) -> Statistics;

    /// Returns the hit rate of the cache, and estimates for other sizes; `None` without a limited
    /// cache.
    fn working_set(&self) -> Option<WorkingSet> {
        None
    }
}

/// An engine that delegates to another engine. Its methods are the methods of [`Engine`] that
/// wrappers change.
pub trait Wrapper: Send + Sync {
    /// Type of the engine beneath.
    type Beneath: Engine + ?Sized;

    /// Returns the engine beneath.
    fn beneath(&self) -> &Self::Beneath;

    /// See [`Engine::snapshot`].
    fn snapshot(&self) -> Arc<dyn Snapshot> {
        self.beneath().snapshot()
    }

    /// See [`Engine::commit`].
    fn commit(&self, batch: Batch) -> Result<Position> {
        self.beneath().commit(batch)
    }

    /// See [`Engine::wait_for_room`].
    fn wait_for_room(&self, go_on: &mut dyn FnMut() -> bool) -> Result<()> {
        self.beneath().wait_for_room(go_on)
    }

    /// See [`Engine::latest_time`].
    fn latest_time(&self) -> u64 {
        self.beneath().latest_time()
    }

    /// See [`Engine::wait_journaled`].
    fn wait_journaled(&self, position: Position) -> Result<()> {
        self.beneath().wait_journaled(position)
    }

    /// See [`Engine::durable`].
    fn durable(&self) -> Position {
        self.beneath().durable()
    }

    /// See [`Engine::has_journal`].
    fn has_journal(&self) -> bool {
        self.beneath().has_journal()
    }

    /// See [`Engine::name`].
    fn name(&self) -> &'static str {
        self.beneath().name()
    }
}

impl<E: Engine + ?Sized> Wrapper for Arc<E> {
    type Beneath = E;

    fn beneath(&self) -> &E {
        self
    }
}

impl<W: Wrapper> Engine for W {
    fn snapshot(&self) -> Arc<dyn Snapshot> {
        Wrapper::snapshot(self)
    }

    fn commit(&self, batch: Batch) -> Result<Position> {
        Wrapper::commit(self, batch)
    }

    fn wait_for_room(&self, go_on: &mut dyn FnMut() -> bool) -> Result<()> {
        Wrapper::wait_for_room(self, go_on)
    }

    fn latest_time(&self) -> u64 {
        Wrapper::latest_time(self)
    }

    fn wait_journaled(&self, position: Position) -> Result<()> {
        Wrapper::wait_journaled(self, position)
    }

    fn await_journaled(&self, position: Position, waker: &Waker) -> Awaited {
        self.beneath().await_journaled(position, waker)
    }

    fn durable(&self) -> Position {
        Wrapper::durable(self)
    }

    fn when_durable(&self, wake: Arc<dyn Fn() + Send + Sync>) {
        self.beneath().when_durable(wake);
    }

    fn sync_soon(&self) {
        self.beneath().sync_soon();
    }

    fn durability(&self) -> Durability {
        self.beneath().durability()
    }

    fn checkpoint(&self) -> Result<()> {
        self.beneath().checkpoint()
    }

    fn checkpoint_after(&self, longest: Option<Duration>) {
        self.beneath().checkpoint_after(longest);
    }

    fn sync_every(&self, interval: Duration) {
        self.beneath().sync_every(interval);
    }

    fn backup(&self, since: Option<Since>, covers: u64) -> Result<Backup> {
        self.beneath().backup(since, covers)
    }

    fn has_journal(&self) -> bool {
        Wrapper::has_journal(self)
    }

    fn name(&self) -> &'static str {
        Wrapper::name(self)
    }

    fn statistics(&self) -> Statistics {
        self.beneath().statistics()
    }

    fn working_set(&self) -> Option<WorkingSet> {
        self.beneath().working_set()
    }
}

/// An immutable state of all trees. Every call with a tree fails with `NoSuchIdent` if the state
/// does not have the tree.
pub trait Snapshot: Send + Sync {
    /// Returns the value of a key.
    fn get(&self, ident: Ident, key: &[u8]) -> Result<Option<Value>>;

    /// Looks up an entry of a unique index, and the record named by the first eight bytes of its
    /// value. Returns the values of both. A remote engine needs one request.
    ///
    /// Errors: `Corrupted` if the entry names a missing record.
    fn lookup(&self, index: Ident, key: &[u8], records: Ident) -> Result<Option<(Value, Value)>> {
        let Some(entry) = self.get(index, key)? else { return Ok(None) };
        let record = match entry.get(..8) {
            Some(id) => self.get(records, id)?,
            None => None,
        };
        match record {
            Some(record) => Ok(Some((entry, record))),
            None => Err(crate::Error::Corrupted("an index names a record that isn't there".to_string())),
        }
    }

    /// Like [`lookup`](Self::lookup), for a state without other reads. A remote engine need not
    /// keep the state then, and later reads may see a later one.
    fn lookup_alone(&self, index: Ident, key: &[u8], records: Ident) -> Result<Option<(Value, Value)>> {
        self.lookup(index, key, records)
    }

    /// Returns a cursor over the entries of a range. The cursor outlives the snapshot.
    fn scan(&self, ident: Ident, range: Range, direction: Direction) -> Result<Box<dyn Cursor>>;

    /// Returns a cursor over each of several ranges in one direction. A remote engine reads the
    /// beginnings of all ranges at the first read of any.
    fn scan_many(&self, ranges: Vec<(Ident, Range)>, direction: Direction) -> Result<Vec<Box<dyn Cursor>>> {
        ranges.into_iter().map(|(ident, range)| self.scan(ident, range, direction)).collect()
    }

    /// Reads several keys of a remote engine in one round trip. Returns their values in the order
    /// of the keys. `None` stands for a missing key, or for a key that [`get`](Self::get) must
    /// read. The result may be shorter than the keys; a local engine returns nothing.
    fn get_ahead(&self, ident: Ident, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
        let _ = (ident, keys);
        Ok(Vec::new())
    }

    /// Returns the differences of two trees; `None` stands for an empty tree. The result outlives
    /// the snapshot. It reads both trees completely, unless the engine knows which nodes twins
    /// share.
    fn differences(&self, before: Option<Ident>, after: Option<Ident>) -> Result<Box<dyn Differences>> {
        merged(self, before, after)
    }

    /// Returns the number of entries of a tree.
    fn entries(&self, ident: Ident) -> Result<u64>;

    /// Returns the total length of all keys and values in a tree.
    fn bytes(&self, ident: Ident) -> Result<u64>;

    /// Returns a collection's number of documents and their bytes, by the tree of the documents, if
    /// the store keeps them as part of this state.
    fn counted(&self, ident: Ident) -> Result<Option<(i64, i64)>> {
        let _ = ident;
        Ok(None)
    }

    /// Returns true if a tree exists.
    fn contains(&self, ident: Ident) -> Result<bool>;

    /// Checks that the catalog returned with this state matches the state. For an unread
    /// [`sight`](crate::store::Store::sight), it may be older. Every read checks this itself.
    /// Callers that need no read, because the catalog has nothing to read, call this function.
    ///
    /// Errors: `CatalogChanged`, as for reads.
    fn confirm(&self) -> Result<()> {
        Ok(())
    }

    /// Returns true if all reads so far saw one state. A remote store may have to release a state
    /// without recent reads. The next read then sees a later state, in which an index entry read
    /// before may lead to no record.
    fn is_steady(&self) -> bool {
        true
    }

    /// Requires that later reads see this state: if a store has to release it (see
    /// [`is_steady`](Self::is_steady)), reads fail with `SnapshotTooOld`.
    fn keep_state(&self) {}

    /// Reads everything in the files of a tree, including entries hidden by later changes, and
    /// returns the damage. An engine without files finds none. Calls `go_on` from time to time, and
    /// stops if it returns false.
    fn verify(&self, ident: Ident, go_on: &mut dyn FnMut() -> bool) -> Result<Vec<Damage>> {
        let _ = go_on;
        match self.contains(ident)? {
            true => Ok(Vec::new()),
            false => Err(crate::Error::NoSuchIdent(ident)),
        }
    }
}

/// A place where stored bytes differ from the written bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Key of the damaged entry, if the damage is limited to one.
    pub key: Option<Key>,
    /// Description and location of the damage.
    pub what: String,
}

/// A scan over the entries of a range, each returned once, in ascending or descending key order.
pub trait Cursor: Send {
    /// Returns the next entry, borrowed until the next call; `None` at the end and in all later
    /// calls.
    fn next(&mut self) -> Result<Option<(&[u8], Lent<'_>)>>;

    /// Skips, in the direction of the scan, to `key` or the first entry after it. Never moves back:
    /// a seek to a passed key has no effect. Cheap for a near key.
    fn seek(&mut self, key: &[u8]) -> Result<()>;

    /// Prefetch hint for a scan over an index: the records named by its entries will be read. Their
    /// ids are the last eight bytes of each key, or the first eight bytes of its value in a
    /// `unique` index. A remote engine fetches them with the entries.
    fn bring(&mut self, records: Ident, unique: bool) {
        let _ = (records, unique);
    }

    /// Returns the fetched record of the latest entry, once, if it was fetched.
    ///
    /// Errors: as [`next`](Self::next).
    fn record(&mut self) -> Result<Option<Value>> {
        Ok(None)
    }

    /// Returns true if the entries come in pages of one round trip each, so that prefetch hints by
    /// [`expect`](Self::expect) pay off.
    fn is_far(&self) -> bool {
        false
    }

    /// Sets prefetch hints before the first entry is read. Other entries may be omitted.
    fn expect(&mut self, wanted: Wanted) {
        let _ = wanted;
    }

    /// Prefetch hint before the first entry is read: the scan may end after this number of entries.
    fn expect_few(&mut self, entries: u64) {
        let _ = entries;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_range_ends_where_the_prefix_does() {
        let range = Range::prefix(b"ab");
        assert!(range.contains(b"ab") && range.contains(b"ab\xff\xff"));
        assert!(!range.contains(b"aa\xff") && !range.contains(b"ac"));
        assert_eq!(Range::prefix(b"a\xff").upper, Bound::Excluded(Key::from(b"b")));
        assert_eq!(Range::prefix(b"\xff").upper, Bound::Unbounded);
        assert_eq!(Range::prefix(b"").upper, Bound::Unbounded);
    }

    #[test]
    fn an_intersection_holds_what_both_do() {
        let key = |byte: u8| Key::from([byte]);
        let bounds = || {
            let at = |byte| [Bound::Included(key(byte)), Bound::Excluded(key(byte))];
            [1, 3].into_iter().flat_map(at).chain([Bound::Unbounded])
        };
        let ranges: Vec<Range> = bounds()
            .flat_map(|lower| bounds().map(move |upper| Range { lower: lower.clone(), upper }))
            .collect();
        for (a, b) in ranges.iter().flat_map(|a| ranges.iter().map(move |b| (a, b))) {
            let both = a.intersection(b);
            for byte in 0..5 {
                assert_eq!(both.contains(&[byte]), a.contains(&[byte]) && b.contains(&[byte]), "{a:?} {b:?}");
                assert!(!both.is_empty() || !both.contains(&[byte]));
            }
        }
    }

    #[test]
    fn a_half_open_range_holds_its_lower_bound_only() {
        let range = Range::half_open(b"a", b"c");
        assert!(range.contains(b"a") && range.contains(b"b") && !range.contains(b"c"));
    }
}
