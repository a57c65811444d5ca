//! The store: the base of a database. It commits prepared changes under conditions.
//!
//! A statement reads a view ([`Sight`]) and computes a [`Change`]: its expectations of the present
//! state, and a batch to apply if all of them hold. [`Store::commit`] checks and applies in one
//! step, or refuses and changes nothing. After a refusal, the statement reads again. Statements
//! therefore hold no lock while they compute.
//!
//! A transaction of many statements is an [`Owner`]. It [claims](Store::claim) each key before it
//! changes the key. No other operation can change a claimed key until the owner
//! [releases](Store::release) its claims.
//!
//! [`Local`] is the store of a single process: an engine and a lock. Keys and values are bytes
//! here, as in the engines.

mod local;
mod log;
mod marks;
mod recent;
#[cfg(test)]
mod tests;

pub use local::Local;
pub use log::{LOG, LOG_TREES, LogCursor, LogEntry, LogOptions};
pub use marks::{Build, Marks};

use crate::{Batch, Direction, Engine, Ident, Key, Position, Range, Result, Snapshot, Value};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// A view: a consistent state of all data, and its catalog generation. See [`Store::sight`] for
/// shared stores.
#[derive(Clone)]
pub struct Sight {
    /// The data.
    pub snapshot: Arc<dyn Snapshot>,
    /// Number of catalog changes up to this state.
    pub generation: u64,
}

/// Transaction id in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(pub u64);

/// A condition that must hold at the moment of a commit.
#[derive(Debug, Clone, PartialEq)]
pub enum Expect {
    /// A key still has the value that was read, or is still missing.
    Value {
        /// The tree.
        ident: Ident,
        /// The key.
        key: Key,
        /// The value that was read.
        value: Option<Value>,
    },
    /// A key has this value or is missing.
    NoneOr {
        /// The tree.
        ident: Ident,
        /// The key.
        key: Key,
        /// The value.
        value: Value,
    },
    /// No key consists of these bytes and eight more. This means that no entry of a non-unique
    /// index has this key string.
    NoneUnder {
        /// The tree.
        ident: Ident,
        /// The bytes before the eight.
        prefix: Key,
    },
    /// The catalog entry of a collection is unchanged since the change was prepared.
    Generation {
        /// The tree of the collection's documents.
        ident: Ident,
        /// Generation of the collection's latest catalog change.
        generation: u64,
    },
}

/// A claim of a transaction.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Claim {
    /// A key, existing or missing.
    Key(Ident, Key),
    /// All keys that consist of these bytes and eight more, as in [`Expect::NoneUnder`].
    Under(Ident, Key),
}

impl Claim {
    /// Returns the tree, and the key or the prefix of keys.
    pub fn place(&self) -> (Ident, &Key) {
        match self {
            Claim::Key(ident, key) | Claim::Under(ident, key) => (*ident, key),
        }
    }

    /// Returns whether the claimed place has an entry in a view, and whether it is equal in another
    /// state.
    ///
    /// Errors: read errors.
    pub fn compare(&self, sight: &dyn Snapshot, present: &dyn Snapshot) -> Result<(bool, bool)> {
        let value = |of: &dyn Snapshot, ident: Ident, key: &Key| match of.contains(ident)? {
            true => of.get(ident, key),
            false => Ok(None),
        };
        match self {
            Claim::Key(ident, key) => {
                let there = value(sight, *ident, key)?;
                Ok((there.is_some(), same(&there, &value(present, *ident, key)?)))
            }
            Claim::Under(ident, prefix) => {
                let there = under(sight, *ident, prefix)?;
                Ok((!there.is_empty(), there == under(present, *ident, prefix)?))
            }
        }
    }
}

impl Expect {
    /// Returns true if the expectation holds in a state. Generations of collections cannot be
    /// checked in a state and pass.
    ///
    /// Errors: read errors.
    pub fn holds(&self, state: &dyn Snapshot) -> Result<bool> {
        match self {
            Expect::Value { ident, key, value } => Ok(same(&state.get(*ident, key)?, value)),
            Expect::NoneOr { ident, key, value } => {
                Ok(state.get(*ident, key)?.is_none_or(|there| there == *value))
            }
            Expect::NoneUnder { ident, prefix } => none_under(state, *ident, prefix),
            Expect::Generation { .. } => Ok(true),
        }
    }
}

/// Returns true if two values are equal. Values that share their bytes need no comparison.
fn same(a: &Option<Value>, b: &Option<Value>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => (a.len() == b.len() && a.as_ptr() == b.as_ptr()) || a == b,
        (None, None) => true,
        _ => false,
    }
}

fn none_under(state: &dyn Snapshot, ident: Ident, prefix: &Key) -> Result<bool> {
    Ok(first_under(state, ident, prefix, &mut |_| true)?.is_none())
}

/// Returns the keys that consist of a prefix and eight more bytes.
fn under(state: &dyn Snapshot, ident: Ident, prefix: &Key) -> Result<Vec<Key>> {
    let mut found = Vec::new();
    if state.contains(ident)? {
        first_under(state, ident, prefix, &mut |key| {
            found.push(Key::from(key));
            false
        })?;
    }
    Ok(found)
}

/// Returns the first of these keys that is accepted.
fn first_under(
    state: &dyn Snapshot,
    ident: Ident,
    prefix: &Key,
    accept: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<Option<Key>> {
    let mut entries = state.scan(ident, Range::prefix(prefix), Direction::Forward)?;
    while let Some((key, _)) = entries.next()? {
        if key.len() == prefix.len() + 8 && accept(key) {
            return Ok(Some(Key::from(key)));
        }
    }
    Ok(None)
}

/// Running counts of a collection, changed by each commit.
#[derive(Debug, Default)]
pub struct Counts {
    /// Number of documents.
    pub records: AtomicI64,
    /// Total size of the documents in bytes.
    pub bytes: AtomicI64,
    /// The next record id.
    pub next_record: AtomicU64,
}

/// An effect of a commit besides its batch.
#[derive(Debug, Clone)]
pub enum Beside {
    /// Adds to running counts.
    Count {
        /// The counts.
        counts: Arc<Counts>,
        /// Change of the number of documents.
        records: i64,
        /// Change of the number of bytes.
        bytes: i64,
    },
    /// Marks a record as changed for an index build.
    Mark(Arc<Build>, u64),
    /// Marks all records as changed for an index build.
    MarkAll(Arc<Build>),
    /// Sets the generation of the collection with this tree; `None` for a dropped collection.
    Generation(Ident, Option<u64>),
}

/// A prepared change: its expectations and its effects.
#[derive(Debug, Clone, Default)]
pub struct Change {
    /// Conditions of the commit.
    pub expect: SmallVec<[Expect; 3]>,
    /// Changes of the data.
    pub batch: Batch,
    /// Entries stored with the batch, each value followed by the commit's time in eight bytes. Only
    /// stores of one process support them.
    pub stamped: Vec<(Ident, Key, Value)>,
    /// Effects at the moment of the commit.
    pub beside: SmallVec<[Beside; 1]>,
    /// Parts of the log entry, by number, if a log is kept.
    pub log: Vec<(u32, Value)>,
    /// Number of times that the commit takes; the last is its own. Zero means one.
    pub ticks: u32,
    /// Earliest time of the commit, from the clock.
    pub earliest: u64,
    /// The committing transaction. Its own claims do not conflict.
    pub owner: Option<Owner>,
}

/// Members that must have a commit before its write is acknowledged: the write concern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acknowledged {
    /// The journal of the member that holds the data.
    Journal,
    /// A majority of the members.
    Majority,
    /// This number of members.
    Members(usize),
}

/// Result of a wait for acknowledgement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reached {
    /// The members have the commit.
    There,
    /// The caller ended the wait.
    GaveUp,
    /// The wait was cancelled on the database server, with this message. The members may or may not
    /// have the commit.
    Cancelled(String),
}

/// A member that holds the data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The name.
    pub name: String,
    /// True if it accepts writes.
    pub is_primary: bool,
    /// Its state in the server's terms: `streaming`, `catchup`.
    pub state: String,
    /// Its role for a majority in the server's terms: `async`, `potential`, `sync`, `quorum`.
    pub counts_as: String,
    /// Position in the primary's log up to which its disk has everything.
    pub on_disk: u64,
    /// Position up to which reads see everything.
    pub applied: u64,
    /// Delay behind the primary in microseconds, if known.
    pub lag_micros: Option<i64>,
}

/// Requirements of a read from a secondary.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Elsewhere {
    /// Time that the member must have reached.
    pub after: Option<u64>,
    /// The allowed members.
    pub among: Among,
}

/// Members that may answer a read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Among {
    /// Secondaries.
    #[default]
    Others,
    /// Secondaries, or the primary if no secondary is available.
    OthersFirst,
    /// All members with a similar distance to the nearest, in turn.
    Nearest,
    /// The primary, or secondaries without a primary.
    WriterFirst,
}

impl Among {
    /// Returns true if the primary may answer.
    pub fn writer_will_do(self) -> bool {
        self != Among::Others
    }
}

/// A completed commit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Written {
    /// Position to wait for if the commit must survive a crash.
    pub position: Position,
    /// Time of the commit: seconds since 1970 in the high half, a counter in the low half. Unique
    /// among commits.
    pub time: u64,
}

/// Reason for the refusal of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The expectation of this number does not hold.
    Expectation(usize),
    /// A transaction has claimed a key of the change, or relies on a tree that the change drops.
    Claimed(Owner),
    /// A key to claim has changed since the transaction's view.
    Changed,
    /// Commits are locked, as by fsync.
    Frozen,
}

/// Result of a change: the commit, or the reason and the returned change.
pub type Outcome = std::result::Result<Written, (Refusal, Change)>;

/// Storage of documents and indexes for one or several processes. All shared state comes from the
/// store: idents, counts, times, the catalog generation.
pub trait Store: ReadViews + Commits + Intents + Replication + Counters + IndexBuilds + ChangeLog {
    /// Returns the engine that holds the data, for statistics and checkpoints.
    fn engine(&self) -> &Arc<dyn Engine>;
}

/// Consistent states for reads, each with its catalog and time.
pub trait ReadViews: Send + Sync {
    /// Returns a view of the state after the latest commit, at almost no cost. A remote store is
    /// first asked at the first read of the view, and fixes the state at that moment.
    ///
    /// A remote store does not know whether other processes have changed the catalog. The view has
    /// the latest [`known_generation`](Self::known_generation). If it is outdated, the first read
    /// fails with [`CatalogChanged`](crate::Error::CatalogChanged), and all other reads of this
    /// view fail too. The store then knows the new generation, and a new view succeeds. Callers
    /// without a read use [`Snapshot::confirm`].
    fn sight(&self) -> Sight;

    /// Returns the number of catalog changes. Asks the store if other processes may make them.
    fn generation(&self) -> u64;

    /// Returns the number of catalog changes known to this process, without a request: from its own
    /// changes, failed reads and refused changes. Returns `None` if
    /// [`generation`](Self::generation) costs nothing, so that views are never outdated.
    fn known_generation(&self) -> Option<u64> {
        None
    }

    /// Returns a view of the present state between two commits, with its time and its exact
    /// catalog. Asks the store at once.
    fn sight_with_time(&self, earliest: u64) -> (Sight, u64);

    /// Returns a view of a secondary, which may be slightly outdated, with its exact catalog. The
    /// catalog may be older than the catalog known here. Returns `None` if no secondary qualifies
    /// in time.
    ///
    /// Errors: errors of a remote store.
    fn sight_elsewhere(&self, asked: Elsewhere) -> Result<Option<Sight>> {
        let _ = asked;
        Ok(None)
    }
}

/// Conditional commits and catalog changes. A change is applied completely or not at all.
pub trait Commits: Send + Sync {
    /// Checks the expectations of a change and applies it completely, or refuses it and changes
    /// nothing. Returns a refused change, because its expectations determine the caller's error. A
    /// refusal because of a collection's generation also updates the known generation.
    fn commit(&self, change: Change) -> Result<Outcome>;

    /// Takes the commit lock for a short catalog change. Returns `None` if `go_on` returned false
    /// while commits were locked.
    ///
    /// Errors: storage errors without room.
    fn lock<'a>(&'a self, go_on: &mut dyn FnMut() -> bool) -> Result<Option<Box<dyn Exclusive + 'a>>>;

    /// Returns true if a commit would have to wait for more than the commit lock.
    ///
    /// Errors: storage errors without room.
    fn must_wait(&self) -> Result<bool>;

    /// Waits until a change is likely to have room. Calls `go_on` like
    /// [`wait_released`](Self::wait_released).
    fn wait_for_room(&self, go_on: &mut dyn FnMut() -> bool) -> Result<()>;

    /// Returns true if emptying a tree takes constant time. If not, dropping a tree does.
    fn empties_at_once(&self) -> bool {
        true
    }

    /// Adds a lock of commits. Returns the number of locks. Running commits have finished when it
    /// returns.
    fn freeze(&self) -> u64;

    /// Removes one lock of [`freeze`](Self::freeze). Returns the number of remaining locks; `None`
    /// without a lock.
    fn thaw(&self) -> Option<u64>;

    /// Returns the number of locks of commits.
    fn frozen(&self) -> u64;
}

/// Open transactions and their claimed keys, which no other change may touch.
pub trait Intents: Send + Sync {
    /// Begins a transaction. Returns a unique id, and the present state with its time and its exact
    /// catalog. The transaction is open until [`release`](Self::release).
    fn begin(&self, earliest: u64) -> (Owner, Sight, u64);

    /// Claims keys for a transaction with the given view: no other change of them is allowed until
    /// [`release`](Self::release). `held` are collections, by tree and generation, that must be
    /// unchanged and stay unchanged.
    ///
    /// Refuses, without any claim, with an expectation's number if the collection of that number
    /// has changed. Refuses also if a key is claimed by another transaction or has changed since
    /// the view. A key with its earlier value again counts as changed, as far as the store
    /// remembers.
    fn claim(
        &self,
        owner: Owner,
        keys: &[Claim],
        held: &[(Ident, u64)],
        sight: &dyn Snapshot,
    ) -> Result<std::result::Result<(), Refusal>>;

    /// Ends a transaction and releases all its claims.
    fn release(&self, owner: Owner);

    /// Waits until a transaction has released its claims. Calls `go_on` at least every ten
    /// milliseconds, and returns early if it returns false.
    fn wait_released(&self, owner: Owner, go_on: &mut dyn FnMut() -> bool);
}

/// Progress of commits to the journal and to members.
pub trait Replication: Send + Sync {
    /// Returns the position of the latest commit.
    fn latest_position(&self) -> Position;

    /// Returns a position at or after each commit visible to a snapshot or time before this call.
    fn shown_position(&self) -> Position {
        self.latest_position()
    }

    /// Returns the time of the latest commit, or `earliest` if that is later.
    fn time(&self, earliest: u64) -> u64;

    /// Waits until everything up to `position` would survive a crash, as
    /// [`Engine::wait_journaled`].
    fn wait_journaled(&self, position: Position) -> Result<()>;

    /// Waits until everything up to `position` is acknowledged, or until `go_on`, called from time
    /// to time, returns false. A single member is its own majority, and its wait for the disk
    /// cannot be interrupted.
    ///
    /// Errors: `Unavailable` if the commit may be lost.
    fn wait_acknowledged(
        &self,
        position: Position,
        by: Acknowledged,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Reached> {
        let _ = (by, go_on);
        self.wait_journaled(position).map(|()| Reached::There)
    }

    /// Returns the number of members that hold the data.
    ///
    /// Errors: errors of a remote store.
    fn members(&self) -> Result<usize> {
        Ok(1)
    }

    /// Returns these members, if there may be several.
    ///
    /// Errors: errors of a remote store.
    fn list_members(&self) -> Result<Vec<Member>> {
        Ok(Vec::new())
    }
}

/// Numbers shared by all users of a store: idents of trees, record ids, and running counts.
pub trait Counters: Send + Sync {
    /// Returns a unique ident for a new tree.
    fn new_ident(&self) -> Ident;

    /// Returns an id for a new record of the collection with these counts. It is greater than the
    /// ids of all records committed before, as far as the clocks of processes sharing the store
    /// agree.
    fn new_record(&self, counts: &Counts) -> u64 {
        counts.next_record.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the greatest id given to a record of a collection, or a greater one if other
    /// processes also give ids.
    fn greatest_record(&self, counts: &Counts) -> u64 {
        counts.next_record.load(Ordering::Relaxed).saturating_sub(1)
    }

    /// Returns the running counts of a collection by its tree. `read` determines them at the first
    /// request.
    fn counts(&self, ident: Ident, read: &mut dyn FnMut(&Counts) -> Result<()>) -> Result<Arc<Counts>>;

    /// Announces requests for the counts of these collections. A remote store reads them together.
    ///
    /// Errors: errors of a remote store.
    fn counts_ahead(&self, idents: &[Ident]) -> Result<()> {
        let _ = idents;
        Ok(())
    }

    /// Refreshes running counts if other processes may have changed them.
    fn refresh_counts(&self, ident: Ident, counts: &Counts) -> Result<()> {
        let _ = (ident, counts);
        Ok(())
    }
}

/// Index builds concurrent with writes.
pub trait IndexBuilds: Send + Sync {
    /// Returns the index build of a tree, if any.
    fn build(&self, ident: Ident) -> Option<Arc<Build>>;

    /// Begins an index build in a tree, which loads all records up to an id.
    fn begin_build(&self, ident: Ident, greatest: u64) -> Arc<Build>;

    /// Ends an index build.
    fn end_build(&self, ident: Ident);
}

/// The log of all changes: its beginning, its end and its size limit.
pub trait ChangeLog: Replication {
    /// Returns the present state, and the time up to which it has all log entries and they would
    /// survive a crash. Later entries have later times. The time is `earliest` if no commit is in
    /// progress.
    fn log_sight(&self, earliest: u64) -> (Sight, u64);

    /// Returns the time of [`log_sight`](Self::log_sight), if the store knows it without a request.
    fn log_end(&self) -> Option<u64> {
        None
    }

    /// Returns a time before all commits from now on: the beginning of a stream.
    ///
    /// Errors: errors of a remote store.
    fn log_now(&self, earliest: u64) -> Result<u64> {
        Ok(self.time(earliest))
    }

    /// Calls `grown` when [`log_end`](Self::log_end) has advanced, while `anybody` returns true for
    /// waiting streams. Commits of other processes that share the store are not noticed otherwise.
    fn follow_log(&self, anybody: Arc<dyn Fn() -> bool + Send + Sync>, grown: Arc<dyn Fn() + Send + Sync>) {
        let _ = (anybody, grown);
    }

    /// Returns the time of the oldest entry in the log.
    fn log_begin(&self) -> Result<Option<u64>>;

    /// Returns the size limit of the log in bytes; `None` without a log.
    fn log_limit(&self) -> Option<u64>;

    /// Sets the size limit of the log in bytes. Returns false if the store cannot. The oldest
    /// entries are removed as new ones are added.
    fn set_log_limit(&self, bytes: u64) -> bool {
        let _ = bytes;
        false
    }

    /// Returns the number of steps in which the log has been written so far, each a small part of
    /// its size. A reader that reads on at each step is never overtaken by trimming. Zero if
    /// unknown.
    fn log_steps(&self) -> u64 {
        0
    }

    /// Returns the size of the log in bytes; `None` without a log.
    fn log_bytes(&self) -> Option<u64>;
}

/// The commit lock, held for a catalog change. No other commit happens meanwhile.
pub trait Exclusive {
    /// Returns the state before the change, with its exact catalog.
    fn sight(&self) -> Sight;

    /// Returns a transaction that relies on a tree, if any. The tree must then not be changed as a
    /// whole.
    fn relies(&self, ident: Ident, own: Option<Owner>) -> Option<Owner>;

    /// Records the generation of a collection, by its tree, when a database is opened.
    fn declare(&mut self, ident: Ident, generation: u64);

    /// Records the idents of existing trees, so that new trees get greater idents.
    fn reserve(&mut self, next: Ident);

    /// Checks and applies a change, and releases the lock. Calls `applied` with the catalog's
    /// generation after the change is applied and before any other commit. A catalog change has a
    /// new generation, which no view has seen yet.
    ///
    /// Errors: storage errors; nothing has changed then.
    fn commit(
        self: Box<Self>,
        change: Change,
        changes_catalog: bool,
        applied: &mut dyn FnMut(u64),
    ) -> Result<Outcome>;
}
