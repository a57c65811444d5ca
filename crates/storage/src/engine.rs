//! The traits of an engine: atomic batches, consistent snapshots, durability.
//!
//! An engine holds any number of ordered trees, each with a number. Trees are cheap: one per collection and one per
//! index, created and dropped within ordinary batches. All calls are synchronous. Many threads may call at once.
//! [`crate::testing::Checked`] asserts what the traits promise, and `crate::testing::check_engine` is the suite that
//! every engine passes.

mod backup;
mod snapshot;
mod statistics;

pub use backup::{Backup, End, Kind, Since};
pub(crate) use backup::{END_BYTES, HEAD_BYTES, PartHeader, Pieces};
pub(crate) use snapshot::alike;
#[cfg(any(test, debug_assertions, feature = "testing"))]
pub(crate) use snapshot::merged;
pub use snapshot::{
    Cursor, Damage, Difference, Differences, Excerpt, Hints, Ranges, RecordFilter, RemoteHints, Snapshot,
};
pub use statistics::{ArchiveCounts, Durability, JournalWait, SYNC_SPANS, Statistics};

use crate::{Batch, Error, Listener, Position, Result, WorkingSet, time};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

/// What a commit must wait for.
pub enum Room {
    /// Nothing.
    Free,
    /// This delay, at most 10 milliseconds, because checkpoints lag a little.
    After(Duration),
    /// This event of a checkpoint. Then the caller asks again.
    Checkpoint(Listener),
    /// The end of a lock of writes: see [`Commits::freeze`](crate::store::Commits::freeze).
    Frozen,
}

/// Ordered trees of bytes, changed by atomic batches.
pub trait Engine: Journaling {
    /// The state of all trees after the latest commit. It does not change. Takes constant time.
    fn snapshot(&self) -> Arc<dyn Snapshot>;

    /// Applies a batch whole, or fails and changes nothing. Snapshots taken after the call contain the batch.
    /// [`Journaling::wait_journaled`] waits until it survives a crash.
    ///
    /// Fails with `NoSuchIdent` if an operation needs a tree that is missing after the operations before it, with
    /// `IdentExists` if it creates a tree that exists, and with `KeyTooLong`.
    ///
    /// The call never waits for a sync or a checkpoint, so the caller may hold locks. The caller
    /// calls [`Engine::room`] before it takes them. Fails with `Full` if the changes are
    /// far beyond the bound that that call waits for.
    fn commit(&self, batch: Batch) -> Result<Position>;

    /// Returns what a commit must wait for. Call it before a commit, without locks. It slows writers down to the speed
    /// at which the engine writes changes to its files. An engine without files always has room.
    ///
    /// Fails with `Full` if only a user can free space, with the error of the files, and with `Closed`.
    fn room(&self) -> Result<Room> {
        Ok(Room::Free)
    }

    /// Waits on this thread until the engine has [`room`](Self::room) for a commit.
    ///
    /// Calls `should_continue` at least every 10 ms. Returns `Ok` once that returns false; the
    /// caller knows the reason. Fails as `room`.
    fn wait_for_space(&self, should_continue: &mut dyn FnMut() -> bool) -> Result<()> {
        loop {
            match self.room()? {
                Room::Free => return Ok(()),
                _ if !should_continue() => return Ok(()),
                Room::After(delay) => {
                    time::sleep(delay);
                    return Ok(());
                }
                Room::Checkpoint(progress) => progress.wait_briefly(),
                // An engine has no locks of writes.
                Room::Frozen => return Ok(()),
            }
        }
    }

    /// The greatest time of any committed batch ([`Batch::set_time`]), also from before a restart or a crash; 0 if no
    /// batch had a time.
    fn latest_time(&self) -> u64;

    /// Begins a backup of the present state: everything, or the commits since an earlier backup if all of them are
    /// still kept. Commits that are not in the backup have a time after `covers`.
    ///
    /// Commits go on. The call waits until the state survives a crash.
    ///
    /// Fails with `Unavailable` on an engine without backups.
    fn backup(&self, since: Option<Since>, covers: u64) -> Result<Backup> {
        let _ = (since, covers);
        Err(Error::Unavailable(format!("the engine {} does not support backups", self.name())))
    }

    /// Returns the engine's name for `serverStatus`.
    fn name(&self) -> &'static str;

    /// Returns statistics since the engine was opened.
    fn statistics(&self) -> Statistics;

    /// The hit ratio of the page cache, and the ratio that caches of other sizes would have; `None` without a bounded
    /// cache.
    fn working_set(&self) -> Option<WorkingSet> {
        None
    }
}

/// Durability: how commits reach the journal and the files that hold the data.
///
/// The durable position never goes back, and never exceeds the position of the latest commit.
pub trait Journaling: Send + Sync {
    /// Returns once everything up to `position` survives a crash. Returns at once on an engine without a journal, as
    /// MongoDB's in-memory engine does for `j: true`.
    fn wait_journaled(&self, position: Position) -> Result<()>;

    /// [`wait_journaled`](Self::wait_journaled) for a request that holds no thread: what it must do until everything
    /// up to `position` survives a crash. If another thread syncs, that thread calls the waker when it is done, also
    /// after a failure. The request then calls this again.
    fn await_journaled(&self, position: Position, waker: &Waker) -> JournalWait {
        let _ = waker;
        match self.durable() >= position {
            true => JournalWait::Satisfied,
            false => JournalWait::SyncNeeded,
        }
    }

    /// Everything up to this position survives a crash. Without a journal it is the position of the latest commit.
    fn durable(&self) -> Position;

    /// Registers the function that is called each time [`Journaling::durable`] has advanced. It replaces the function
    /// before. The thread that has synced calls it without locks, and it should be quick. An engine without a journal
    /// never calls it.
    fn when_durable(&self, wake: Arc<dyn Fn() + Send + Sync>);

    /// Requests a sync of all commits until now, and returns at once. A caller that registers with
    /// [`Journaling::when_durable`], then requests, and then reads [`Journaling::durable`] misses no sync.
    fn sync_soon(&self);

    /// The durability level. At [`Durability::Journaled`] the caller of `commit` calls
    /// [`Journaling::wait_journaled`] before it acknowledges the commit, without locks. So many commits share one sync.
    fn durability(&self) -> Durability {
        Durability::None
    }

    /// Writes all commits durably to the files that hold the data. After it returns, nothing is written until the next
    /// commit. Does nothing without files.
    fn checkpoint(&self) -> Result<()> {
        Ok(())
    }

    /// Sets the longest time that a commit may be in the journal alone before a checkpoint; `None` is no limit. Does
    /// nothing without files.
    fn checkpoint_after(&self, _: Option<Duration>) {}

    /// Sets the interval of syncs at [`Durability::Relaxed`]. Does nothing at other levels.
    fn sync_every(&self, _: Duration) {}

    /// Returns true if the engine has a journal, so that commits can survive a crash.
    fn has_journal(&self) -> bool;
}

/// An engine that passes on what it does not do itself. Its methods are those of [`Engine`] and [`Journaling`] that
/// wrappers change.
pub trait Wrapper: Send + Sync {
    /// Type of the wrapped engine.
    type Wrapped: Engine + ?Sized;

    /// Returns the wrapped engine.
    fn wrapped(&self) -> &Self::Wrapped;

    /// See [`Engine::snapshot`].
    fn snapshot(&self) -> Arc<dyn Snapshot> {
        self.wrapped().snapshot()
    }

    /// See [`Engine::commit`].
    fn commit(&self, batch: Batch) -> Result<Position> {
        self.wrapped().commit(batch)
    }

    /// See [`Engine::room`].
    fn room(&self) -> Result<Room> {
        self.wrapped().room()
    }

    /// See [`Engine::latest_time`].
    fn latest_time(&self) -> u64 {
        self.wrapped().latest_time()
    }

    /// [`Journaling::wait_journaled`].
    fn wait_journaled(&self, position: Position) -> Result<()> {
        self.wrapped().wait_journaled(position)
    }

    /// [`Journaling::durable`].
    fn durable(&self) -> Position {
        self.wrapped().durable()
    }

    /// [`Journaling::has_journal`].
    fn has_journal(&self) -> bool {
        self.wrapped().has_journal()
    }

    /// See [`Engine::name`].
    fn name(&self) -> &'static str {
        self.wrapped().name()
    }
}

impl<E: Engine + ?Sized> Wrapper for Arc<E> {
    type Wrapped = E;

    fn wrapped(&self) -> &E {
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

    fn room(&self) -> Result<Room> {
        Wrapper::room(self)
    }

    fn latest_time(&self) -> u64 {
        Wrapper::latest_time(self)
    }

    fn backup(&self, since: Option<Since>, covers: u64) -> Result<Backup> {
        self.wrapped().backup(since, covers)
    }

    fn name(&self) -> &'static str {
        Wrapper::name(self)
    }

    fn statistics(&self) -> Statistics {
        self.wrapped().statistics()
    }

    fn working_set(&self) -> Option<WorkingSet> {
        self.wrapped().working_set()
    }
}

impl<W: Wrapper> Journaling for W {
    fn wait_journaled(&self, position: Position) -> Result<()> {
        Wrapper::wait_journaled(self, position)
    }

    fn await_journaled(&self, position: Position, waker: &Waker) -> JournalWait {
        self.wrapped().await_journaled(position, waker)
    }

    fn durable(&self) -> Position {
        Wrapper::durable(self)
    }

    fn when_durable(&self, wake: Arc<dyn Fn() + Send + Sync>) {
        self.wrapped().when_durable(wake);
    }

    fn sync_soon(&self) {
        self.wrapped().sync_soon();
    }

    fn durability(&self) -> Durability {
        self.wrapped().durability()
    }

    fn checkpoint(&self) -> Result<()> {
        self.wrapped().checkpoint()
    }

    fn checkpoint_after(&self, longest: Option<Duration>) {
        self.wrapped().checkpoint_after(longest);
    }

    fn sync_every(&self, interval: Duration) {
        self.wrapped().sync_every(interval);
    }

    fn has_journal(&self) -> bool {
        Wrapper::has_journal(self)
    }
}
