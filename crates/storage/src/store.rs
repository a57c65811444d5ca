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

mod claims;
mod local;
mod log;
mod marks;
#[cfg(test)]
mod tests;

pub use local::{Exclusive, Local};
pub use log::{LOG, LogCursor, LogEntry, LogOptions};
pub use marks::Marks;

use crate::{Batch, Direction, Ident, Key, Position, Range, Result, Snapshot, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64};

/// A consistent state of everything, and which catalog belongs to it.
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

impl Expect {
    /// Whether it holds in a state. What is expected of a collection no state can tell: it passes.
    ///
    /// Errors: the state's.
    pub fn holds(&self, state: &dyn Snapshot) -> Result<bool> {
        match self {
            Expect::Value { ident, key, value } => Ok(same(&state.get(*ident, key)?, value)),
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
    let mut entries = state.scan(ident, Range::prefix(prefix), Direction::Forward)?;
    while let Some((key, _)) = entries.next()? {
        if key.len() == prefix.len() + 8 {
            return Ok(false);
        }
    }
    Ok(true)
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
    Mark(Arc<Marks>, u64),
    /// Notes the same of all records.
    MarkAll(Arc<Marks>),
    /// What the catalog says of the collection with this tree, from now on; `None` when it is gone.
    Generation(Ident, Option<u64>),
}

/// A change that was prepared: what it expects, and what it does.
#[derive(Debug, Clone, Default)]
pub struct Change {
    /// What must hold.
    pub expect: Vec<Expect>,
    /// What is stored then.
    pub batch: Batch,
    /// What happens at the same moment.
    pub beside: Vec<Beside>,
    /// The parts of the log's entries, where a log is kept: the number of an entry in the high half, that of
    /// the part in the low one. The first entry has number 0, and each has a time of its own; the commit's is
    /// that of the last.
    pub log: Vec<(u32, Value)>,
    /// The earliest time that the commit may be given: the clock's.
    pub earliest: u64,
    /// The transaction that commits, whose own claims don't stand in its way.
    pub owner: Option<Owner>,
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

/// Where documents and indexes are kept, for one process or for several at a time.
pub trait Store: Send + Sync {
    /// The state after the latest commit. Takes constant time, and none at all where a store is far away: it
    /// is asked when the sight is first read.
    fn view(&self) -> Result<Sight>;

    /// Checks what a change expects, and applies it whole; or refuses and changes nothing. Gives a refused
    /// change back, for its expectations tell the caller what to say.
    fn commit(&self, change: Change) -> Result<std::result::Result<Written, (Refusal, Change)>>;

    /// Claims keys for a transaction, whose sight is given: no other change to them is admitted until
    /// [`release`](Self::release). `held` are collections, by tree and generation, that must be the same
    /// still and stay so.
    ///
    /// Refuses, having claimed nothing: with an expectation's number where the collection of that number has
    /// changed, and where a key has been claimed by another or changed since the sight.
    fn claim(
        &self,
        owner: Owner,
        keys: &[(Ident, Key)],
        held: &[(Ident, u64)],
        sight: &dyn Snapshot,
    ) -> Result<std::result::Result<(), Refusal>>;

    /// Gives up all claims of a transaction.
    fn release(&self, owner: Owner);

    /// Waits until a transaction has given its claims up, asking `go_on` at least every ten milliseconds;
    /// returns early when that says no.
    fn wait_released(&self, owner: Owner, go_on: &mut dyn FnMut() -> bool);

    /// Waits until a change is likely to find room, asking `go_on` as [`wait_released`](Self::wait_released)
    /// does.
    fn wait_for_room(&self, go_on: &mut dyn FnMut() -> bool) -> Result<()>;

    /// Returns once everything up to `position` would survive a crash, as [`crate::Engine::wait_journaled`].
    fn wait_journaled(&self, position: Position) -> Result<()>;

    /// The time of the latest commit, and `earliest` if that is later.
    fn time(&self, earliest: u64) -> u64;
}
