//! The traits an engine keeps: atomic batches in, consistent snapshots out.
//!
//! An engine holds any number of ordered trees, each known by a number. Trees are cheap: one per collection
//! and one per index, created and dropped within ordinary batches. All calls are synchronous and may be made
//! from many threads at once. [`crate::testing::Checked`] asserts what the traits promise.

use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use crate::differences::{Differences, merged};
use crate::disk::{Backup, Since};
use crate::{Batch, Error, Key, Lent, Result, Value, Wanted, WorkingSet};

/// The number of an ordered tree, which is what MongoDB calls the ident of a collection or an index: it
/// stays the same when the collection is renamed, and the engine gives it no other meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ident(pub u64);

/// A place in the order of commits, handed out by [`Engine::commit`]: a later commit has a greater one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

/// Which way a cursor walks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the lower bound upwards.
    Forward,
    /// From the upper bound downwards.
    Backward,
}

impl Direction {
    /// Which of two keys a walk comes to first.
    #[inline]
    pub fn order(self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            Direction::Forward => a.cmp(b),
            Direction::Backward => b.cmp(a),
        }
    }

    /// Whether a walk comes to `a` before `b`.
    #[inline]
    pub fn is_before(self, a: &[u8], b: &[u8]) -> bool {
        self.order(a, b) == Ordering::Less
    }
}

/// The keys between two bounds. `lower` is the smaller one whichever way the cursor walks; a range whose
/// bounds cross is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// Where the range begins.
    pub lower: Bound<Key>,
    /// Where the range ends.
    pub upper: Bound<Key>,
}

impl Range {
    /// Every key of a tree.
    pub const fn all() -> Self {
        Range { lower: Bound::Unbounded, upper: Bound::Unbounded }
    }

    /// The keys from `lower` (included) up to `upper` (excluded).
    pub fn half_open(lower: impl Into<Key>, upper: impl Into<Key>) -> Self {
        Range { lower: Bound::Included(lower.into()), upper: Bound::Excluded(upper.into()) }
    }

    /// The keys that begin with the given bytes.
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

    /// The keys that lie in both.
    pub fn intersection(&self, other: &Range) -> Range {
        let order = |a: &Bound<Key>, b: &Bound<Key>| match (a, b) {
            (Bound::Unbounded, Bound::Unbounded) => Ordering::Equal,
            (Bound::Unbounded, _) => Ordering::Less,
            (_, Bound::Unbounded) => Ordering::Greater,
            (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => a.cmp(b),
        };
        // Of two ends at one key that without it is the narrower.
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

    /// Whether no key can lie within.
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

    /// Whether a key lies within both bounds.
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

/// How many spans of time [`Statistics::sync_counts`] tells apart.
pub const SYNC_SPANS: usize = 22;

/// What an engine counts about itself since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// The lengths of all keys and values that the latest state holds; trees forked from one another are
    /// counted each in full.
    pub bytes: u64,
    /// Pages found in the cache, inner pages included.
    pub cache_hits: u64,
    /// Pages that had to be read from the file system.
    pub cache_misses: u64,
    /// Times a file was synced.
    pub syncs: u64,
    /// Batches committed; divided by `syncs` it tells how many commits shared one.
    pub commits: u64,
    /// Pages given up because the cache was full.
    pub cache_evictions: u64,
    /// Visits of pages of entries in the files that hold the data: by lookups that find something, and by cursors.
    pub entry_reads: u64,
    /// How many of them had to wait for the file system.
    pub entry_misses: u64,
    /// Bytes in the cache.
    pub cache_bytes: u64,
    /// Microseconds within which half of the journal's syncs were done.
    pub sync_micros_p50: u64,
    /// Microseconds within which 95 % of the journal's syncs were done.
    pub sync_micros_p95: u64,
    /// Microseconds within which 99 % of the journal's syncs were done.
    pub sync_micros_p99: u64,
    /// Microseconds spent in all syncs of the journal.
    pub sync_micros: u64,
    /// How many of them took less than 16 microseconds, 16 to 31, and so on by doublings; the last are all that took
    /// longer.
    pub sync_counts: [u64; SYNC_SPANS],
    /// Checkpoints completed.
    pub checkpoints: u64,
    /// About how much memory the changes since the latest checkpoint take.
    pub changed_bytes: u64,
    /// Bytes of journal since the latest checkpoint.
    pub journal_bytes: u64,
    /// Bytes of the files that hold the data, without the journal.
    pub file_bytes: u64,
    /// The archive of the journal, where one is kept.
    pub archive: Option<ArchiveCounts>,
}

/// How the archive of a journal stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ArchiveCounts {
    /// The position of the last commit in it.
    pub position: u64,
    /// How often it couldn't be written since the engine was opened.
    pub failures: u64,
    /// Whether the latest attempt failed, so that the journal is kept longer.
    pub failing: bool,
}

/// What a commit survives without having asked for more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Durability {
    /// Nothing is synced unless somebody waits for it: a commit may be lost when the machine stops.
    #[default]
    None,
    /// A commit survives the end of the process, and after a short interval that of the machine.
    Relaxed,
    /// Whoever commits is to wait until it survives the end of the machine.
    Journaled,
}

impl Durability {
    /// What it is called on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Durability::None => "none",
            Durability::Relaxed => "relaxed",
            Durability::Journaled => "journaled",
        }
    }
}

/// How far a wait for the journal is that holds no thread ([`Engine::await_journaled`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Awaited {
    /// It is over.
    There,
    /// Nobody is at it: who asked is to call [`Engine::wait_journaled`] at once, which others rely on from now on.
    Yours,
    /// Somebody else is, and will call the waker.
    Later,
}

/// Ordered trees of bytes that change by atomic batches.
pub trait Engine: Send + Sync {
    /// The state after the latest commit, over all trees, kept as it is for as long as it is held. Takes
    /// constant time.
    fn snapshot(&self) -> Arc<dyn Snapshot>;

    /// Applies a batch whole, or fails and changes nothing. When it returns, later snapshots see the batch;
    /// whether it survives a crash is for [`Engine::wait_journaled`].
    ///
    /// Fails with `NoSuchIdent` or `IdentExists` if an operation names a tree that isn't there or is there
    /// already, given the operations before it, and with `KeyTooLong`.
    ///
    /// Never waits for a sync or for a checkpoint, so that it may be called with locks held: whoever commits
    /// calls [`Engine::wait_for_room`] before taking them. A commit that finds changes far beyond what that
    /// call lets pass fails with `Full`.
    fn commit(&self, batch: Batch) -> Result<Position>;

    /// Waits until a commit would find room, to be called before a commit and without locks: where changes
    /// are made faster than the engine can write them to its files, this is what slows the writers down.
    ///
    /// `go_on` is asked at least every 10 ms of waiting. Once it says no the call returns `Ok`, and the caller,
    /// who knows why, reports what interrupted him. Fails with `Full` if room will only come when somebody
    /// makes some, with the error of the files where they refuse, and with `Closed`.
    fn wait_for_room(&self, go_on: &mut dyn FnMut() -> bool) -> Result<()>;

    /// The greatest time of any batch committed ([`Batch::set_time`]), those of before the engine was last
    /// closed or crashed included; 0 if none had one.
    fn latest_time(&self) -> u64;

    /// Returns once everything up to `position` would survive a crash. On an engine without a journal it
    /// returns at once, as MongoDB's in-memory engine does for `j: true`.
    fn wait_journaled(&self, position: Position) -> Result<()>;

    /// The same for whoever waits without a thread: what is to be done until everything up to `position` would
    /// survive a crash. Where others are at it the waker is called once they are done, well or not, and the
    /// question is to be put again.
    fn await_journaled(&self, position: Position, waker: &Waker) -> Awaited {
        let _ = waker;
        match self.durable() >= position {
            true => Awaited::There,
            false => Awaited::Yours,
        }
    }

    /// Up to where everything would survive a crash: what [`Engine::wait_journaled`] returns at once for. On
    /// an engine without a journal it is the position of the latest commit.
    fn durable(&self) -> Position;

    /// Registers the one function that is called each time [`Engine::durable`] has advanced, in place of the
    /// one before. It is called by whichever thread has synced, with none of the engine's locks held, and
    /// should be quick. An engine without a journal never calls it.
    fn when_durable(&self, wake: Arc<dyn Fn() + Send + Sync>);

    /// Asks for everything committed so far to be made durable soon, and returns at once. Who registers with
    /// [`Engine::when_durable`], then asks, and then looks at [`Engine::durable`] misses nothing.
    fn sync_soon(&self);

    /// What commits survive. At [`Durability::Journaled`] whoever commits calls [`Engine::wait_journaled`]
    /// before he tells anybody, once he has released his own locks: so that many share one sync, `commit`
    /// itself never waits for one.
    fn durability(&self) -> Durability {
        Durability::None
    }

    /// Writes all commits so far to the files that hold the data, durably, and returns once that is done:
    /// until the next commit nothing is written any more. Without files there is nothing to do.
    fn checkpoint(&self) -> Result<()> {
        Ok(())
    }

    /// How long what is committed may lie in the journal alone, before it is written to the files that hold the
    /// data; `None`: until there is another reason. Without such files that means nothing.
    fn checkpoint_after(&self, _: Option<Duration>) {}

    /// How often the journal is synced unasked. Where it never is, that stays as it is.
    fn sync_every(&self, _: Duration) {}

    /// Begins a backup: everything that is committed, or the commits since an earlier backup where these are all
    /// there. `covers` is a time that every commit comes behind which isn't in it.
    ///
    /// Holds nobody up, and is of the state as it is now. Waits until that would survive a crash.
    ///
    /// Fails with `Unavailable` on an engine that makes none.
    fn backup(&self, since: Option<Since>, covers: u64) -> Result<Backup> {
        let _ = (since, covers);
        Err(Error::Unavailable(format!("the engine {} makes no backups", self.name())))
    }

    /// Whether there is a journal, that is whether anything survives a crash.
    fn has_journal(&self) -> bool;

    /// The engine's name, as shown by `serverStatus`.
    fn name(&self) -> &'static str;

    /// Counters since the engine was opened.
    fn statistics(&self) -> Statistics;

    /// How often pages were found in the cache, and how often they would be in caches of other sizes; `None` where
    /// there is no cache whose size is bounded.
    fn working_set(&self) -> Option<WorkingSet> {
        None
    }
}

/// An engine that passes on what it does not do itself. Its methods are those of [`Engine`] that wrappers change.
pub trait Wrapper: Send + Sync {
    /// The engine beneath.
    type Beneath: Engine + ?Sized;

    /// The engine beneath.
    fn beneath(&self) -> &Self::Beneath;

    /// [`Engine::snapshot`].
    fn snapshot(&self) -> Arc<dyn Snapshot> {
        self.beneath().snapshot()
    }

    /// [`Engine::commit`].
    fn commit(&self, batch: Batch) -> Result<Position> {
        self.beneath().commit(batch)
    }

    /// [`Engine::wait_for_room`].
    fn wait_for_room(&self, go_on: &mut dyn FnMut() -> bool) -> Result<()> {
        self.beneath().wait_for_room(go_on)
    }

    /// [`Engine::latest_time`].
    fn latest_time(&self) -> u64 {
        self.beneath().latest_time()
    }

    /// [`Engine::wait_journaled`].
    fn wait_journaled(&self, position: Position) -> Result<()> {
        self.beneath().wait_journaled(position)
    }

    /// [`Engine::durable`].
    fn durable(&self) -> Position {
        self.beneath().durable()
    }

    /// [`Engine::has_journal`].
    fn has_journal(&self) -> bool {
        self.beneath().has_journal()
    }

    /// [`Engine::name`].
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

/// One unchanging state of all trees. Every call that names a tree fails with `NoSuchIdent` if this state
/// has none of that number.
pub trait Snapshot: Send + Sync {
    /// The value under a key.
    fn get(&self, ident: Ident, key: &[u8]) -> Result<Option<Value>>;

    /// Looks up an entry of a unique index, and the record that its value names in its first eight bytes: the
    /// entry's value, and the record's. One question to an engine that is far away.
    ///
    /// Fails with `Corrupted` where the entry names a record that isn't there.
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

    /// The same where nothing else is read from this state, which an engine that is far away need not keep then:
    /// what is read next all the same may be of a later one.
    fn lookup_alone(&self, index: Ident, key: &[u8], records: Ident) -> Result<Option<(Value, Value)>> {
        self.lookup(index, key, records)
    }

    /// A cursor over the entries of a range. It owns what it needs and outlives the snapshot.
    fn scan(&self, ident: Ident, range: Range, direction: Direction) -> Result<Box<dyn Cursor>>;

    /// A cursor over each of several ranges, all in one direction. An engine that is far away reads the beginnings of
    /// all when the first of them is read.
    fn scan_many(&self, ranges: Vec<(Ident, Range)>, direction: Direction) -> Result<Vec<Box<dyn Cursor>>> {
        ranges.into_iter().map(|(ident, range)| self.scan(ident, range, direction)).collect()
    }

    /// What an engine that is far away brings of several keys in one round trip: their values in the order of the
    /// keys. `None` stands for a key that isn't there, and for what it leaves to [`get`](Self::get); so does
    /// every key beyond the end of what it gives, which for a near engine is nothing at all.
    fn get_ahead(&self, ident: Ident, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
        let _ = (ident, keys);
        Ok(Vec::new())
    }

    /// In what two trees differ, `None` standing for an empty one. It owns what it needs and outlives the
    /// snapshot. Takes as long as reading both, unless the engine knows what twins share.
    fn differences(&self, before: Option<Ident>, after: Option<Ident>) -> Result<Box<dyn Differences>> {
        merged(self, before, after)
    }

    /// How many entries a tree has.
    fn entries(&self, ident: Ident) -> Result<u64>;

    /// The lengths of all keys and values in a tree.
    fn bytes(&self, ident: Ident) -> Result<u64>;

    /// How many documents a collection has and their bytes, by the tree of its documents, where the store keeps that
    /// beside them as part of this state.
    fn counted(&self, ident: Ident) -> Result<Option<(i64, i64)>> {
        let _ = ident;
        Ok(None)
    }

    /// Whether there is a tree of that number.
    fn contains(&self, ident: Ident) -> Result<bool>;

    /// Makes sure that the catalog which was told with this state is that state's: where the state is that of a
    /// [`sight`](crate::store::Store::sight) which nobody has read from yet, it may be an older one. Every read
    /// does so by itself; this is for whoever finds out from the catalog alone that there is nothing to read.
    ///
    /// Fails with `CatalogChanged`, as the reads do.
    fn confirm(&self) -> Result<()> {
        Ok(())
    }

    /// Whether all reads so far were of one state. A store that is far away may have to give a state up which
    /// nobody has read from for a while: what is read next is of a later one, where an entry of an index that
    /// was read before may lead to no record.
    fn is_steady(&self) -> bool {
        true
    }

    /// Says that no later state than this one will do: a store that has to give it up, as
    /// [`is_steady`](Self::is_steady) tells, fails with `SnapshotTooOld` from then on.
    fn keep_state(&self) {}

    /// Reads all that files hold of a tree, hidden by later changes or not, and tells what isn't as it was
    /// written. An engine without files has nothing to tell. `go_on` is asked now and then, and ends the
    /// reading by saying no.
    fn verify(&self, ident: Ident, go_on: &mut dyn FnMut() -> bool) -> Result<Vec<Damage>> {
        let _ = go_on;
        match self.contains(ident)? {
            true => Ok(Vec::new()),
            false => Err(crate::Error::NoSuchIdent(ident)),
        }
    }
}

/// A place where stored bytes aren't what was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The key whose entry is damaged, if it is as small as that.
    pub key: Option<Key>,
    /// What is wrong, and where.
    pub what: String,
}

/// A walk over the entries of a range, each handed out once, in the order of their keys or the reverse.
pub trait Cursor: Send {
    /// The next entry, borrowed until the next call; `None` at the end, and ever after.
    fn next(&mut self) -> Result<Option<(&[u8], Lent<'_>)>>;

    /// Skips forward, in the direction of the walk, so that the next entry is the one at `key` or else the
    /// first one beyond it. Never goes back: a key that has been passed leaves the cursor where it is. Cheap
    /// when the key is near.
    fn seek(&mut self, key: &[u8]) -> Result<()>;

    /// Says that the walk is over an index, and that the records that its entries name are wanted as well: by the
    /// last eight bytes of each key, or by the first of its value where the index is `unique`. An engine that
    /// is far away brings them along.
    fn bring(&mut self, records: Ident, unique: bool) {
        let _ = (records, unique);
    }

    /// The record of the entry handed out last, if it has been brought along; once.
    ///
    /// Fails as [`next`](Self::next) does.
    fn record(&mut self) -> Result<Option<Value>> {
        Ok(None)
    }

    /// Whether the entries come by pages, each of which takes a round trip: then it is worth while to tell what is
    /// wanted by [`expect`](Self::expect).
    fn is_far(&self) -> bool {
        false
    }

    /// Says what will be wanted of the entries, before the first is read: what isn't may be left out.
    fn expect(&mut self, wanted: Wanted) {
        let _ = wanted;
    }

    /// Says before the first entry is read that the walk may well end after so many.
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
