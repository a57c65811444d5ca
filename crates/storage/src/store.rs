//! The store: what a database stands on, which prepares changes anywhere and commits them conditionally.
//!
//! A statement reads on a [`Sight`] and works out a [`Change`]: what it expects of the present state, and a
//! batch to apply if all of that holds. [`Store::commit`] checks and applies in one step, or refuses and
//! changes nothing; whoever was refused reads again. So no statement holds anybody up while it works.
//!
//! A transaction of many statements is an [`Owner`]. It [claims](Store::claim) each key that it is going to
//! change, and nobody else can change a claimed key until the owner [releases](Store::release) its claims.
//!
//! [`Local`] is the store of a single process: an engine and a lock. All is bytes here, as in the engines.

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

/// A consistent state of everything, and which catalog belongs to it: see [`Store::sight`] for stores that are
/// shared.
#[derive(Clone)]
pub struct Sight {
    /// The data.
    pub snapshot: Arc<dyn Snapshot>,
    /// The number of catalog changes up to this state.
    pub generation: u64,
}

/// A transaction of many statements, as the store knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(pub u64);

/// Something that must hold at the moment of a commit.
#[derive(Debug, Clone, PartialEq)]
pub enum Expect {
    /// A key still has the value that was read, or still has none.
    Value {
        /// The tree.
        ident: Ident,
        /// Where in the tree.
        key: Key,
        /// What was read there.
        value: Option<Value>,
    },
    /// A key has this value, or none.
    NoneOr {
        /// The tree.
        ident: Ident,
        /// Where in the tree.
        key: Key,
        /// The value.
        value: Value,
    },
    /// No key consists of these bytes and eight more: no entry of an index that isn't unique has this key
    /// string.
    NoneUnder {
        /// The tree.
        ident: Ident,
        /// What the eight bytes would follow.
        prefix: Key,
    },
    /// What the catalog says of a collection is what it said when the change was prepared.
    Generation {
        /// The tree of the collection's documents.
        ident: Ident,
        /// The number of the catalog change that made the collection what it is.
        generation: u64,
    },
}

/// What a transaction claims.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Claim {
    /// A key, with whatever is there or is not.
    Key(Ident, Key),
    /// All keys that consist of these bytes and eight more: those that [`Expect::NoneUnder`] means.
    Under(Ident, Key),
}

impl Claim {
    /// The tree, and the key or what keys begin with.
    pub fn place(&self) -> (Ident, &Key) {
        match self {
            Claim::Key(ident, key) | Claim::Under(ident, key) => (*ident, key),
        }
    }

    /// Whether there is anything that it means in a state, and whether that is the same in another.
    ///
    /// Errors: the states'.
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
    /// Whether it holds in a state. What is expected of a collection no state can tell: it passes.
    ///
    /// Errors: the state's.
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

/// Whether two values are equal; those that share their bytes needn't be compared.
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

/// The keys that consist of a prefix and eight bytes more.
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

/// The first of these keys that is accepted.
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

/// Running counts of a collection, changed with each commit.
#[derive(Debug, Default)]
pub struct Counts {
    /// Documents.
    pub records: AtomicI64,
    /// Their sizes together, in bytes.
    pub bytes: AtomicI64,
    /// The next record id.
    pub next_record: AtomicU64,
}

/// What happens together with a batch, besides what the batch itself says.
#[derive(Debug, Clone)]
pub enum Beside {
    /// Adds to running counts.
    Count {
        /// Whose counts.
        counts: Arc<Counts>,
        /// Documents more.
        records: i64,
        /// Bytes more.
        bytes: i64,
    },
    /// Notes that a record was changed while an index is being built.
    Mark(Arc<Build>, u64),
    /// Notes the same of all records.
    MarkAll(Arc<Build>),
    /// What the catalog says of the collection with this tree, from now on; `None` when it is gone.
    Generation(Ident, Option<u64>),
}

/// A change that was prepared: what it expects, and what it does.
#[derive(Debug, Clone, Default)]
pub struct Change {
    /// What must hold.
    pub expect: SmallVec<[Expect; 3]>,
    /// What is stored then.
    pub batch: Batch,
    /// Entries that are stored with the batch, each value followed by the commit's time in eight bytes. Only
    /// stores of one process take them.
    pub stamped: Vec<(Ident, Key, Value)>,
    /// What happens at the same moment.
    pub beside: SmallVec<[Beside; 1]>,
    /// The parts of the log's entry, by number, where a log is kept.
    pub log: Vec<(u32, Value)>,
    /// How many times the commit takes, of which its own is the last; zero is one.
    pub ticks: u32,
    /// The earliest time that the commit may be given: the clock's.
    pub earliest: u64,
    /// The transaction that commits, whose own claims don't stand in its way.
    pub owner: Option<Owner>,
}

/// Who must have a commit before its write is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acknowledged {
    /// The journal of whoever holds the data.
    Journal,
    /// As many members as outlive the loss of any fewer.
    Majority,
    /// So many members.
    Members(usize),
}

/// What came of waiting for that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reached {
    /// They have it.
    There,
    /// Whoever waited didn't want to go on.
    GaveUp,
    /// Somebody has ended the wait where the data is, who says so in words: whether they have it isn't known.
    Cancelled(String),
}

/// One of the members that hold the data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// What it is called.
    pub name: String,
    /// Whether it takes the writes.
    pub is_primary: bool,
    /// What it does, in the server's own words: `streaming`, `catchup`.
    pub state: String,
    /// How it counts for a majority, likewise: `async`, `potential`, `sync`, `quorum`.
    pub counts_as: String,
    /// Up to where in the primary's log it has everything on disk, and has applied it.
    pub on_disk: u64,
    /// The same for what can be read there.
    pub applied: u64,
    /// How far behind the primary it is, in microseconds, where that is known.
    pub lag_micros: Option<i64>,
}

/// What a read from a member asks for that doesn't take the writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Elsewhere {
    /// The time that the member must have come to.
    pub after: Option<u64>,
    /// Which members will do.
    pub among: Among,
}

/// Which members a read may be answered by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Among {
    /// Those that don't take the writes.
    #[default]
    Others,
    /// The same, or the one that takes the writes where none of them is at hand.
    OthersFirst,
    /// All that are about as near as the nearest, in turn.
    Nearest,
    /// The one that takes the writes, or others while there is none.
    WriterFirst,
}

impl Among {
    /// Whether the member that takes the writes will do, too.
    pub fn writer_will_do(self) -> bool {
        self != Among::Others
    }
}

/// A commit that was carried out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Written {
    /// What to wait for when it has to survive a crash.
    pub position: Position,
    /// Its time: seconds since 1970 in the high half, a counter in the low. No other commit has the same.
    pub time: u64,
}

/// Why a change was not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The expectation of this number doesn't hold.
    Expectation(usize),
    /// A transaction has claimed a key that the change touches, or relies on a tree that it takes away.
    Claimed(Owner),
    /// A key that a transaction would claim has changed since the transaction began to read.
    Changed,
    /// Commits are held up, as by fsync.
    Frozen,
}

/// What came of a change: it is applied, or it is given back with the reason.
pub type Outcome = std::result::Result<Written, (Refusal, Change)>;

/// Where documents and indexes are kept, for one process or for several at a time. Whatever must be the same
/// for all who share it comes from here: numbers, counts, times, the generation of the catalog.
pub trait Store: ReadViews + Commits + Intents + Replication + Counters + IndexBuilds + ChangeLog {
    /// The engine that holds the data, for what concerns it as a whole: statistics, checkpoints.
    fn engine(&self) -> &Arc<dyn Engine>;
}

/// Consistent states to read, each with the catalog and the time that belong to it.
pub trait ReadViews: Send + Sync {
    /// The state after the latest commit. Costs nothing to speak of, wherever the store is: one that is far
    /// away is asked when the sight is first read, and gives that moment's state from then on.
    ///
    /// Such a store doesn't know yet whether others have changed the catalog. The sight has the latest
    /// [`known_generation`](Self::known_generation), and if it is no longer the latest, the first read fails
    /// with [`CatalogChanged`](crate::Error::CatalogChanged), and so does every other of this sight. By then the
    /// store knows better: whoever takes a new sight gets on. Where nothing is read, there is
    /// [`Snapshot::confirm`].
    fn sight(&self) -> Sight;

    /// The number of catalog changes so far, asked for where others may make them.
    fn generation(&self) -> u64;

    /// The number of catalog changes that this process has heard of, without asking: by its own changes, by reads
    /// that have failed, by changes of its own that were refused. `None` where [`generation`](Self::generation)
    /// costs nothing, so that no sight is ever behind.
    fn known_generation(&self) -> Option<u64> {
        None
    }

    /// The present state with its time, between two commits, and its very catalog: asked for at once.
    fn sight_with_time(&self, earliest: u64) -> (Sight, u64);

    /// A state of a member that doesn't take the writes, which may be a little old, with its very catalog: that may be
    /// older than what is known here. `None` where there is no such member, or none has come far enough in time.
    ///
    /// Errors: those of a store that is far away.
    fn sight_elsewhere(&self, asked: Elsewhere) -> Result<Option<Sight>> {
        let _ = asked;
        Ok(None)
    }
}

/// Conditional commits and changes of the catalog. A change is applied whole or not at all.
pub trait Commits: Send + Sync {
    /// Checks what a change expects, and applies it whole; or refuses and changes nothing. Gives a refused
    /// change back, for its expectations tell the caller what to say. One that is refused because of a
    /// collection's generation makes the latest generation known.
    fn commit(&self, change: Change) -> Result<Outcome>;

    /// Takes the commit lock for a change of the catalog, which is short. `None` where `go_on` said no while
    /// commits were held up.
    ///
    /// Errors: the engine's, where there is no room.
    fn lock<'a>(&'a self, go_on: &mut dyn FnMut() -> bool) -> Result<Option<Box<dyn Exclusive + 'a>>>;

    /// Whether a commit would have to wait for anything but its turn.
    ///
    /// Errors: the engine's, where there is no room.
    fn must_wait(&self) -> Result<bool>;

    /// Waits until a change is likely to find room, asking `go_on` as [`wait_released`](Self::wait_released)
    /// does.
    fn wait_for_room(&self, go_on: &mut dyn FnMut() -> bool) -> Result<()>;

    /// Whether a tree is emptied in a moment, whatever it holds; where it isn't, one that is dropped is.
    fn empties_at_once(&self) -> bool {
        true
    }

    /// Holds commits up, once more; returns how often they are now. Commits under way are over when it
    /// returns.
    fn freeze(&self) -> u64;

    /// Takes one [`freeze`](Self::freeze) back; returns how many are left, `None` where there was none.
    fn thaw(&self) -> Option<u64>;

    /// How often commits are held up.
    fn frozen(&self) -> u64;
}

/// Open transactions and the keys that they have claimed, which no other change may touch.
pub trait Intents: Send + Sync {
    /// Begins a transaction: gives it a number that nobody else is given, and the present state with its
    /// time and its very catalog. It is open until [`release`](Self::release).
    fn begin(&self, earliest: u64) -> (Owner, Sight, u64);

    /// Claims keys for a transaction, whose sight is given: no other change to them is admitted until
    /// [`release`](Self::release). `held` are collections, by tree and generation, that must be the same
    /// still and stay so.
    ///
    /// Refuses, having claimed nothing: with an expectation's number where the collection of that number has
    /// changed, and where a key has been claimed by another or changed since the sight. A key that has its
    /// value of before again counts as changed, as far as the store remembers.
    fn claim(
        &self,
        owner: Owner,
        keys: &[Claim],
        held: &[(Ident, u64)],
        sight: &dyn Snapshot,
    ) -> Result<std::result::Result<(), Refusal>>;

    /// Ends a transaction, which gives up all its claims.
    fn release(&self, owner: Owner);

    /// Waits until a transaction has given its claims up, asking `go_on` at least every ten milliseconds;
    /// returns early when that says no.
    fn wait_released(&self, owner: Owner, go_on: &mut dyn FnMut() -> bool);
}

/// How far commits have come: to the journal, and to members.
pub trait Replication: Send + Sync {
    /// The position of the latest commit.
    fn latest_position(&self) -> Position;

    /// The position of a commit at or after each commit that a snapshot or a time may have shown before this call.
    fn shown_position(&self) -> Position {
        self.latest_position()
    }

    /// The time of the latest commit, and `earliest` if that is later.
    fn time(&self, earliest: u64) -> u64;

    /// Returns once everything up to `position` would survive a crash, as [`Engine::wait_journaled`].
    fn wait_journaled(&self, position: Position) -> Result<()>;

    /// Returns once everything up to `position` is where it has to be, or `go_on`, which is asked every now and then,
    /// has said no. One member alone is its own majority, and waits for its disk, which nobody can call off.
    ///
    /// Errors: `Unavailable` where it may be lost.
    fn wait_acknowledged(
        &self,
        position: Position,
        by: Acknowledged,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Reached> {
        let _ = (by, go_on);
        self.wait_journaled(position).map(|()| Reached::There)
    }

    /// How many members hold the data.
    ///
    /// Errors: those of a store that is far away.
    fn members(&self) -> Result<usize> {
        Ok(1)
    }

    /// The same members, one by one, where there may be several.
    ///
    /// Errors: those of a store that is far away.
    fn list_members(&self) -> Result<Vec<Member>> {
        Ok(Vec::new())
    }
}

/// Numbers that all who share a store must agree on: of trees, of records, and how many there are.
pub trait Counters: Send + Sync {
    /// A number for a new tree, which nobody else is given.
    fn new_ident(&self) -> Ident;

    /// An id for a new record of the collection whose counts these are: greater than those of all records that
    /// were committed before, as far as clocks agree where several processes share the store.
    fn new_record(&self, counts: &Counts) -> u64 {
        counts.next_record.fetch_add(1, Ordering::Relaxed)
    }

    /// The greatest id that has been given to a record of a collection, or a greater one where others give
    /// ids, too.
    fn greatest_record(&self, counts: &Counts) -> u64 {
        counts.next_record.load(Ordering::Relaxed).saturating_sub(1)
    }

    /// The running counts of a collection, by its tree; `read` finds out what they are where nobody has
    /// asked for them before.
    fn counts(&self, ident: Ident, read: &mut dyn FnMut(&Counts) -> Result<()>) -> Result<Arc<Counts>>;

    /// Says that the counts of these collections are about to be asked for: a store that is far away finds them out
    /// together.
    ///
    /// Errors: those of such a store.
    fn counts_ahead(&self, idents: &[Ident]) -> Result<()> {
        let _ = idents;
        Ok(())
    }

    /// Brings running counts up to date where others who share the store may have changed them.
    fn refresh_counts(&self, ident: Ident, counts: &Counts) -> Result<()> {
        let _ = (ident, counts);
        Ok(())
    }
}

/// Indexes that are built while others write.
pub trait IndexBuilds: Send + Sync {
    /// The index being built in a tree, if one is.
    fn build(&self, ident: Ident) -> Option<Arc<Build>>;

    /// Says that an index is built in a tree, with all records below an id to be loaded.
    fn begin_build(&self, ident: Ident, greatest: u64) -> Arc<Build>;

    /// Says that an index is no longer built.
    fn end_build(&self, ident: Ident);
}

/// The log of all changes: where it begins and ends, and how long it may grow.
pub trait ChangeLog: Replication {
    /// The present state, and the time up to which all of the log's entries are in it and would survive a
    /// crash; none after it will have an earlier one. That is `earliest` where nothing is under way.
    fn log_sight(&self, earliest: u64) -> (Sight, u64);

    /// The time that [`log_sight`](Self::log_sight) would give, where the store knows it without asking.
    fn log_end(&self) -> Option<u64> {
        None
    }

    /// A time that all commits from now on come behind: where a stream begins.
    ///
    /// Errors: those of a store that is far away.
    fn log_now(&self, earliest: u64) -> Result<u64> {
        Ok(self.time(earliest))
    }

    /// Has `grown` called when [`log_end`](Self::log_end) has advanced, as long as `anybody` says that somebody waits
    /// for that: what others commit who share the store is noticed by nobody else.
    fn follow_log(&self, anybody: Arc<dyn Fn() -> bool + Send + Sync>, grown: Arc<dyn Fn() + Send + Sync>) {
        let _ = (anybody, grown);
    }

    /// The time of the oldest entry that the log keeps.
    fn log_begin(&self) -> Result<Option<u64>>;

    /// The most bytes that the log takes; `None` where none is kept.
    fn log_limit(&self) -> Option<u64>;

    /// Keeps at most so many bytes of the log from now on; whether the store can: the oldest go as new entries
    /// come.
    fn set_log_limit(&self, bytes: u64) -> bool {
        let _ = bytes;
        false
    }

    /// In how many steps the log has been written so far, each of them a small part of what it keeps: whoever
    /// reads on in it at each step is never overtaken by its trimming. Zero where that isn't known.
    fn log_steps(&self) -> u64 {
        0
    }

    /// The bytes that the log takes; `None` where none is kept.
    fn log_bytes(&self) -> Option<u64>;
}

/// The commit lock in the hands of somebody who changes the catalog: nobody else commits meanwhile.
pub trait Exclusive {
    /// The state that is being changed, and its very catalog.
    fn sight(&self) -> Sight;

    /// A transaction that relies on a tree, if there is one: the tree is not to be changed as a whole.
    fn relies(&self, ident: Ident, own: Option<Owner>) -> Option<Owner>;

    /// Notes what was read when a database was opened on the store: the generation of a collection, by its
    /// tree.
    fn declare(&mut self, ident: Ident, generation: u64);

    /// Notes the numbers that trees have, so that new ones get greater numbers.
    fn reserve(&mut self, next: Ident);

    /// Checks and applies a change, and gives the lock back. Calls `applied` with the catalog's generation
    /// once the change is applied, before anybody else can commit; where the change is one of the catalog,
    /// that is a new generation, and nobody has had a sight of it.
    ///
    /// Errors: the engine's; then nothing has changed.
    fn commit(
        self: Box<Self>,
        change: Change,
        changes_catalog: bool,
        applied: &mut dyn FnMut(u64),
    ) -> Result<Outcome>;
}
