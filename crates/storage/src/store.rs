//! The store below a database: changes are prepared without a lock and committed conditionally.
//!
//! A statement reads on a [`ReadView`] and computes a [`Change`]: expectations of the present state, and a batch that
//! is applied if all of them hold. [`Commits::commit`] checks and applies in one step, or refuses and changes
//! nothing. A refused statement reads again. So no statement blocks another while it works.
//!
//! A transaction of many statements is a [`TransactionId`]. It [acquires a write intent](Intents::acquire_intents) of
//! each key before it changes the key. No other change to that key is admitted until the owner
//! [releases](Intents::release) its intents.
//!
//! [`Local`] is the store of a single process: an engine and a lock. A store handles bytes only, like the engines.
//! `storage::testing::check_store` is the contract of these traits as a suite, which every store passes. A new
//! condition of commits is a variant of [`Expect`]; a new effect is a variant of [`SideEffect`].

mod local;
mod log;
mod marks;
mod recent;
#[cfg(test)]
mod tests;

pub use local::Local;
pub use log::{LOG, LOG_TREES, LogCursor, LogEntry, LogOptions};
pub use marks::{Build, Marks};

use crate::{Batch, Direction, Engine, Ident, Key, Position, Range, Result, Room, Snapshot, Value};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::task::Waker;

/// A consistent state of all data, and its catalog generation. See [`ReadViews::read_view`] for
/// shared stores.
#[derive(Clone)]
pub struct ReadView {
    /// The data.
    pub snapshot: Arc<dyn Snapshot>,
    /// Number of catalog changes up to this state.
    pub generation: u64,
}

/// Transaction id in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionId(pub u64);

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

/// A key that only its transaction may change.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum WriteIntent {
    /// A key, existing or missing.
    Key(Ident, Key),
    /// All keys that consist of these bytes and eight more, as in [`Expect::NoneUnder`].
    Under(Ident, Key),
}

impl WriteIntent {
    /// Returns the tree, and the key or the prefix of keys.
    pub fn tree_and_key(&self) -> (Ident, &Key) {
        match self {
            WriteIntent::Key(ident, key) | WriteIntent::Under(ident, key) => (*ident, key),
        }
    }

    /// Returns whether the key or prefix has an entry in a view, and whether it is equal in another
    /// state.
    ///
    /// Errors: read errors.
    pub fn compare(&self, read_view: &dyn Snapshot, present: &dyn Snapshot) -> Result<(bool, bool)> {
        let value = |of: &dyn Snapshot, ident: Ident, key: &Key| match of.contains(ident)? {
            true => of.get(ident, key),
            false => Ok(None),
        };
        match self {
            WriteIntent::Key(ident, key) => {
                let before = value(read_view, *ident, key)?;
                Ok((before.is_some(), is_same(&before, &value(present, *ident, key)?)))
            }
            WriteIntent::Under(ident, prefix) => {
                let before = under(read_view, *ident, prefix)?;
                Ok((!before.is_empty(), before == under(present, *ident, prefix)?))
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
            Expect::Value { ident, key, value } => Ok(is_same(&state.get(*ident, key)?, value)),
            Expect::NoneOr { ident, key, value } => {
                Ok(state.get(*ident, key)?.is_none_or(|found| found == *value))
            }
            Expect::NoneUnder { ident, prefix } => none_under(state, *ident, prefix),
            Expect::Generation { .. } => Ok(true),
        }
    }
}

/// Returns true if two values are equal. Values that share their bytes need no comparison.
fn is_same(a: &Option<Value>, b: &Option<Value>) -> bool {
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
    let mut keys = Vec::new();
    if state.contains(ident)? {
        first_under(state, ident, prefix, &mut |key| {
            keys.push(Key::from(key));
            false
        })?;
    }
    Ok(keys)
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
        debug_assert!(key.starts_with(prefix), "{prefix:?} is no prefix of {key:?}");
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
    /// A record id that no document is before, for a capped collection.
    pub oldest_record: AtomicU64,
}

/// An effect of a commit besides its batch.
#[derive(Debug, Clone)]
pub enum SideEffect {
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
    pub side_effects: SmallVec<[SideEffect; 1]>,
    /// Parts of the log entry, by number, if a log is kept.
    pub log: Vec<(u32, Value)>,
    /// Number of times that the commit takes; the last is its own. Zero means one.
    pub ticks: u32,
    /// Earliest time of the commit, from the clock.
    pub earliest: u64,
    /// The committing transaction. Its own write intents do not conflict.
    pub owner: Option<TransactionId>,
}

/// Members that must have a commit before its write is acknowledged: the `w` of a write concern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcknowledgmentLevel {
    /// The journal of the member that holds the data.
    Journal,
    /// A majority of the members.
    Majority,
    /// This number of members.
    Members(usize),
}

/// Result of a wait for acknowledgement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteConcernStatus {
    /// The members have the commit.
    Satisfied,
    /// The caller ended the wait.
    Interrupted,
    /// The wait was cancelled on the database server, with this message. The members may or may not
    /// have the commit.
    Cancelled(String),
}

/// A member that holds the data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Name of the member.
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

/// Requirements of a read on a standby.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StandbyRead {
    /// The time that the standby must have reached.
    pub after: Option<u64>,
    /// The members that may serve the read.
    pub preference: MemberPreference,
}

/// Members that may answer a read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MemberPreference {
    /// Secondaries.
    #[default]
    Secondary,
    /// Secondaries, or the primary if no secondary is available.
    SecondaryPreferred,
    /// All members with a similar distance to the nearest, in turn.
    Nearest,
    /// The primary, or secondaries without a primary.
    PrimaryPreferred,
}

impl MemberPreference {
    /// Returns true if the primary may answer.
    pub fn allows_primary(self) -> bool {
        self != MemberPreference::Secondary
    }
}

/// A completed commit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Committed {
    /// Position to wait for if the write concern requires the journal.
    pub position: Position,
    /// Its cluster time: seconds since 1970 in the high half, a counter in the low. It is unique among commits with an
    /// entry for the log. A commit without an entry may have the time of the commit before.
    pub cluster_time: u64,
}

/// Reason for the refusal of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitError {
    /// The expectation of this number does not hold.
    Expectation(usize),
    /// Another transaction has a write intent of a key of the change, or relies on a tree that the change drops.
    IntentConflict(TransactionId),
    /// The key of a write intent has changed since the transaction's view.
    Changed,
    /// Commits are locked, as by fsync.
    Frozen,
}

/// Result of a change: the commit, or the reason of a refusal.
pub type CommitResult = std::result::Result<Committed, CommitError>;

/// The place of documents and indexes, for one process or for several. Everything that all users of a store must agree
/// on comes from here: numbers, counts, times, the generation of the catalog.
pub trait Store: ReadViews + Commits + Intents + Replication + Counters + IndexBuilds + ChangeLog {
    /// The engine that holds the data, for statistics, checkpoints and backups.
    fn engine(&self) -> &Arc<dyn Engine>;
}

/// Consistent states to read, each with its catalog and its time. A state never changes after its first read.
pub trait ReadViews: Send + Sync {
    /// The state after the latest commit. The call makes no round trip: the first read of a remote store's view takes
    /// the state of that moment.
    ///
    /// A remote store does not know yet if another process has changed the catalog. The view has the
    /// [`known_generation`](Self::known_generation). If that is not the latest, every read of the view fails with
    /// [`CatalogChanged`](crate::Error::CatalogChanged). The store then knows the latest generation, and the caller
    /// takes a new view. A caller that reads nothing calls [`RemoteHints::confirm`](crate::RemoteHints::confirm).
    fn read_view(&self) -> ReadView;

    /// The number of catalog changes until now. A round trip if other processes may make them.
    fn generation(&self) -> u64;

    /// The latest generation that this process has seen, without a round trip: from its own changes, from failed
    /// reads, from refused changes. `None` if [`generation`](Self::generation) makes no round trip, so that every
    /// view has the latest.
    fn known_generation(&self) -> Option<u64> {
        None
    }

    /// The present state with the catalog and the time that belong to it. The call reads the state.
    fn read_view_with_time(&self, earliest: u64) -> (ReadView, u64);

    /// The state of a standby with the catalog that belongs to it. Both may be older than what this process knows.
    /// `None` if there is no standby, or none has reached the time.
    ///
    /// Errors: those of a remote store.
    fn standby_read_view(&self, requested: StandbyRead) -> Result<Option<ReadView>> {
        let _ = requested;
        Ok(None)
    }
}

/// Conditional commits and catalog changes. A change is applied completely or not at all.
pub trait Commits: Send + Sync {
    /// Checks the expectations of a change and applies it, or refuses it and changes nothing. A refused change stays
    /// as it is, since its expectations decide the error. The content of an applied change is taken. After a refusal
    /// by a collection's generation the store knows the latest generation.
    fn commit(&self, change: &mut Change) -> Result<CommitResult>;

    /// Takes the commit lock for a short change of the catalog. `None` if `should_continue` returned false while
    /// commits were frozen. Does not wait for [`room`](Self::room).
    ///
    /// Errors: those of a remote store.
    fn lock<'a>(
        &'a self,
        should_continue: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Box<dyn Exclusive + 'a>>>;

    /// What a change must wait for: the end of a freeze, or [`Engine::room`].
    ///
    /// Errors: the engine's, if there is no room.
    fn room(&self) -> Result<Room>;

    /// Waits until a change probably finds room, or until `should_continue` returns false, which it calls at least
    /// every ten milliseconds.
    fn wait_for_space(&self, should_continue: &mut dyn FnMut() -> bool) -> Result<()>;

    /// Whether a tree is cleared in constant time. If false, only a drop takes constant time.
    fn clears_in_constant_time(&self) -> bool {
        true
    }

    /// Freezes commits and returns the number of freezes. No commit is under way when it returns.
    fn freeze(&self) -> u64;

    /// Ends one [`freeze`](Self::freeze) and returns the number of remaining freezes; `None` if commits were not
    /// frozen.
    fn thaw(&self) -> Option<u64>;

    /// The number of freezes.
    fn frozen(&self) -> u64;
}

/// Open transactions and their write intents. No other change may touch a key of an intent.
pub trait Intents: Send + Sync {
    /// Begins a transaction: its unique number, and the present state with the catalog and the time that belong to it.
    /// It is open until [`release`](Self::release).
    fn begin(&self, earliest: u64) -> (TransactionId, ReadView, u64);

    /// Acquires write intents for a transaction with this view. No other change to the keys is admitted until
    /// [`release`](Self::release) or the transaction's commit. `collections`, by tree and generation, must be
    /// unchanged and stay so.
    ///
    /// Refuses and acquires nothing: `Expectation` with the number of a changed collection, `IntentConflict` or
    /// `Changed` if another transaction holds a key, `Changed` if a key has changed since the view. A key that has its
    /// earlier value again counts as changed, as long as the store remembers.
    fn acquire_intents(
        &self,
        owner: TransactionId,
        keys: &[WriteIntent],
        collections: &[(Ident, u64)],
        read_view: &dyn Snapshot,
    ) -> Result<std::result::Result<(), CommitError>>;

    /// Ends a transaction and its write intents.
    fn release(&self, owner: TransactionId);

    /// Waits until a transaction has released its intents. Calls `should_continue` at least every ten milliseconds, and
    /// returns once that returns false. May return earlier.
    fn wait_released(&self, owner: TransactionId, should_continue: &mut dyn FnMut() -> bool);

    /// Returns true if a transaction has released its intents, and otherwise registers the waker. `None` if the store
    /// only waits with a thread.
    fn has_released(&self, owner: TransactionId, waker: &Waker) -> Option<bool> {
        _ = (owner, waker);
        None
    }
}

/// Durability of commits: in the journal, and on members. Positions and times grow with each commit.
pub trait Replication: Send + Sync {
    /// Returns the position of the latest commit.
    fn latest_position(&self) -> Position;

    /// A position at or after each commit that a snapshot or a time has shown before this call.
    fn visible_position(&self) -> Position {
        self.latest_position()
    }

    /// The time of the latest commit, or `earliest` if that is later. The clock of a shared log ignores `earliest`.
    fn time(&self, earliest: u64) -> u64;

    /// Returns once everything up to `position` survives a crash, as
    /// [`Journaling::wait_journaled`](crate::Journaling::wait_journaled).
    fn wait_journaled(&self, position: Position) -> Result<()>;

    /// Returns once the members have everything up to `position`, or once `should_continue` returns false. A store with
    /// one member waits for its journal, and `should_continue` cannot end that wait.
    ///
    /// Errors: `Unavailable` if the commit may be lost.
    fn wait_acknowledged(
        &self,
        position: Position,
        by: AcknowledgmentLevel,
        should_continue: &mut dyn FnMut() -> bool,
    ) -> Result<WriteConcernStatus> {
        let _ = (by, should_continue);
        self.wait_journaled(position).map(|()| WriteConcernStatus::Satisfied)
    }

    /// The number of members that hold the data.
    ///
    /// Errors: those of a remote store.
    fn members(&self) -> Result<usize> {
        Ok(1)
    }

    /// These members; empty for a store of one process.
    ///
    /// Errors: those of a remote store.
    fn list_members(&self) -> Result<Vec<Member>> {
        Ok(Vec::new())
    }
}

/// Numbers that all processes of a store share: idents of trees, record ids, and counts.
pub trait Counters: Send + Sync {
    /// A unique number for a new tree.
    fn new_ident(&self) -> Ident;

    /// An id for a new record of the collection with these counts. It is greater than the ids of all records that were
    /// committed before. Between processes that share a store this depends on their clocks.
    fn new_record(&self, counts: &Counts) -> u64 {
        counts.next_record.fetch_add(1, Ordering::Relaxed)
    }

    /// The greatest record id of a collection, or an upper bound if other processes assign ids too.
    fn greatest_record(&self, counts: &Counts) -> u64 {
        counts.next_record.load(Ordering::Relaxed).saturating_sub(1)
    }

    /// The running counts of a collection, by its tree. The first call uses `read` to find them.
    fn counts(&self, ident: Ident, read: &mut dyn FnMut(&Counts) -> Result<()>) -> Result<Arc<Counts>>;

    /// A hint that [`counts`](Self::counts) of these collections follow. A remote store reads them from this snapshot
    /// in one round trip.
    ///
    /// Errors: those of a remote store.
    fn prefetch_counts(&self, idents: &[Ident], snapshot: &dyn Snapshot) -> Result<()> {
        let _ = (idents, snapshot);
        Ok(())
    }

    /// Reads running counts again if other processes may have changed them.
    fn refresh_counts(&self, ident: Ident, counts: &Counts) -> Result<()> {
        let _ = (ident, counts);
        Ok(())
    }
}

/// Index builds concurrent with writes. The holder of the commit lock sees the marks of all earlier commits.
pub trait IndexBuilds: Send + Sync {
    /// The index build in a tree, if there is one.
    fn build(&self, ident: Ident) -> Option<Arc<Build>>;

    /// Begins an index build in a tree, which loads all records up to an id.
    fn begin_build(&self, ident: Ident, greatest: u64) -> Arc<Build>;

    /// Ends an index build.
    fn end_build(&self, ident: Ident);
}

/// The log of all changes: its bounds in time, and its size.
pub trait ChangeLog: Replication {
    /// The present state, and the end of its log: all entries up to this time are in the state and survive a crash, and
    /// no later entry has an earlier time. At least `earliest` if no commit is under way.
    fn log_read_view(&self, earliest: u64) -> (ReadView, u64);

    /// The end of the log as in [`log_read_view`](Self::log_read_view), if the store knows it without a round trip.
    fn log_end(&self) -> Option<u64> {
        None
    }

    /// A time before all later commits, at which a change stream begins.
    ///
    /// Errors: those of a remote store.
    fn log_now(&self, earliest: u64) -> Result<u64> {
        Ok(self.time(earliest))
    }

    /// Calls `grown` each time that [`log_end`](Self::log_end) has advanced, as long as `has_watchers` returns true.
    /// Only a store whose log other processes extend does so.
    fn follow_log(
        &self,
        has_watchers: Arc<dyn Fn() -> bool + Send + Sync>,
        grown: Arc<dyn Fn() + Send + Sync>,
    ) {
        let _ = (has_watchers, grown);
    }

    /// The time of the oldest entry of the log.
    fn log_begin(&self) -> Result<Option<u64>>;

    /// The largest size of the log in bytes; `None` without a log.
    fn log_limit(&self) -> Option<u64>;

    /// Sets the largest size of the log. New entries then remove the oldest. Returns false if the store cannot.
    fn set_log_limit(&self, bytes: u64) -> bool {
        let _ = bytes;
        false
    }

    /// The number of steps in which the log was written. A step is a small part of the log, so a reader that reads on
    /// at each step is always before the trimming. Zero if the number is unknown.
    fn log_steps(&self) -> u64 {
        0
    }

    /// The size of the log in bytes; `None` without a log.
    fn log_bytes(&self) -> Option<u64>;
}

/// The commit lock, held for a change of the catalog. No other commit happens meanwhile.
pub trait Exclusive {
    /// The state to change, and the catalog that belongs to it.
    fn read_view(&self) -> ReadView;

    /// A transaction other than `except` that relies on a tree, if there is one. The tree must not be changed as a
    /// whole.
    fn transaction_relying_on(&self, ident: Ident, except: Option<TransactionId>) -> Option<TransactionId>;

    /// Sets the generation of a collection, by its tree, or of a view, as it was read when a database was opened on the
    /// store.
    fn set_generation(&mut self, ident: Option<Ident>, generation: u64);

    /// Sets the minimum number of new trees.
    fn reserve(&mut self, next: Ident);

    /// Checks and applies a change, and releases the lock. Calls `applied` with the catalog's generation after the
    /// change is applied, before any other commit. A change of the catalog makes a new generation, and no view of it
    /// exists before that call.
    ///
    /// Errors: the engine's; nothing has changed then.
    fn commit(
        self: Box<Self>,
        change: Change,
        changes_catalog: bool,
        applied: &mut dyn FnMut(u64),
    ) -> Result<CommitResult>;
}
