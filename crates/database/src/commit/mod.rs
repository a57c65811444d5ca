//! Commits of document changes, under conditions.
//!
//! [`Database::apply`] passes [`Changes`] to the store, which checks their conditions under its
//! lock and applies them atomically. No computation and no wait happens under the lock. If an open
//! transaction has a write intent of a document, the statement waits for its end without the lock and starts
//! again.
//!
//! `fsync {lock: true}` locks all writes while the files are copied. New commits wait until the last lock is released.
//! The lock waits for running commits. When [`Database::lock_writes`] returns, the engine has written all data to its
//! files and does not change them.

use crate::catalog::history::replaced_by;
use crate::changes::retry_record::note_stored;
use crate::changes::{Applied, Changes};
use crate::database::Database;
use crate::operation::{Operation, Ready, wait_interruptibly};
use crate::storage_error;
use base::{ErrorCode, Result, bail};
use query::Interrupt;
use std::mem;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Waker;
use std::time::Duration;
use storage::store::{
    AcknowledgmentLevel, CommitError, Committed, Member, TransactionId, WriteConcernStatus,
};
use storage::{JournalWait, Position, Room, mark};

pub(crate) mod catalog_change;
pub(crate) mod transaction;

impl Database {
    /// Commits changes if their conditions still hold. A statement in a transaction adds them to
    /// the transaction instead. Returns the commit, or `None` if a condition no longer holds.
    ///
    /// Errors: DuplicateKey; WriteConflict in a transaction; interrupted waits; storage errors.
    pub(crate) fn apply(&self, operation: &Operation, changes: &mut Changes) -> Result<Option<Committed>> {
        match self.apply_several(operation, changes)? {
            Applied::Committed(committed) => Ok(Some(committed)),
            Applied::Retry => Ok(None),
            Applied::Duplicate(_, error) => Err(error),
        }
    }

    /// Commits changes of several documents. Returns the number of a document whose key is not
    /// free.
    ///
    /// Errors: as [`apply`](Self::apply), except DuplicateKey.
    pub(crate) fn apply_several(&self, operation: &Operation, changes: &mut Changes) -> Result<Applied> {
        let applied = self.try_apply(operation, changes);
        let is_conflict = match &applied {
            Ok(Applied::Retry) => true,
            Err(error) => error.code() == ErrorCode::WriteConflict,
            Ok(_) => false,
        };
        if is_conflict {
            self.operations.write_conflicts.fetch_add(1, Relaxed);
        }
        applied
    }

    fn try_apply(&self, operation: &Operation, changes: &mut Changes) -> Result<Applied> {
        if changes.grows_data {
            self.operations.check_growth()?;
        }
        operation.check_suspended()?;
        if let Some(transaction) = operation.transaction() {
            return transaction.absorb(mem::take(changes));
        }
        if let Some(logged) = changes.logged.take() {
            self.log_changes(&mut changes.change, logged, changes.retry);
        }
        let replaced = replaced_by(&changes.change);
        let expected = changes.change.expect.len();
        loop {
            changes.change.earliest = self.earliest_cluster_time();
            self.wait_for_room(operation)?;
            let refusal = match self.store.commit(&mut changes.change).map_err(storage_error)? {
                Ok(written) => {
                    debug_assert!(written.position <= self.latest_position(), "{written:?} is not visible");
                    operation.note_change();
                    note_stored(&self.seen_retries, mem::take(&mut changes.records));
                    self.count_replaced(replaced);
                    self.notify_watchers(&changes.changed, written.position);
                    return Ok(Applied::Committed(written));
                }
                Err(refused) => refused,
            };
            debug_assert_eq!(changes.change.expect.len(), expected, "the store has changed a refused change");
            match refusal {
                CommitError::Frozen => operation.check()?,
                CommitError::IntentConflict(owner) => {
                    self.wait_for(owner, operation)?;
                    return Ok(Applied::Retry);
                }
                CommitError::Changed => return Ok(Applied::Retry),
                CommitError::Expectation(number) if changes.restarts_build(number) => {
                    mark!("a write makes an index build start again");
                    return Ok(Applied::Retry);
                }
                CommitError::Expectation(number) if changes.is_retry(number) => {
                    bail!(
                        ConflictingOperationInProgress,
                        "the same retryable write was carried out by another process at the same time"
                    );
                }
                CommitError::Expectation(number) => return Ok(changes.outcome_of(number)),
            }
        }
    }

    /// Returns a function that returns true after the end of a transaction and otherwise registers its waker. `None` if
    /// the store waits with a thread.
    fn release_check(&self, owner: TransactionId) -> Option<Ready> {
        self.store.has_released(owner, Waker::noop())?;
        let store = self.store.clone();
        Some(Box::new(move |waker: &Waker| store.has_released(owner, waker) != Some(false)))
    }

    /// Waits while writes are locked or checkpoints lag.
    ///
    /// Errors: storage errors, interrupted waits; LockBusy for a statement that its caller suspends.
    pub fn wait_for_room(&self, interrupt: &dyn Interrupt) -> Result<()> {
        let suspended = match self.store.room().map_err(storage_error)? {
            Room::Free => return Ok(()),
            // The caller waits for the unlock before it continues the statement.
            Room::Frozen => interrupt.suspend_until(&mut || Some(Box::new(|_: &Waker| true))),
            Room::After(delay) => match interrupt.suspend_for(delay) {
                Some(Ok(())) => return Ok(()),
                suspended => suspended.and_then(Result::err),
            },
            Room::Checkpoint(progress) => {
                let mut progress = Some(progress);
                let mut ready = || {
                    let mut progress = progress.take()?;
                    Some(Box::new(move |waker: &Waker| progress.has_happened(waker)) as Ready)
                };
                interrupt.suspend_until(&mut ready)
            }
        };
        if let Some(suspended) = suspended {
            return Err(suspended);
        }
        self.waiting(interrupt, |should_continue| self.store.wait_for_space(should_continue))?
            .map_err(storage_error)
    }

    /// Waits until an open transaction has ended.
    ///
    /// Errors: interrupted waits; LockBusy for a statement that its caller suspends.
    pub(crate) fn wait_for(&self, owner: TransactionId, interrupt: &dyn Interrupt) -> Result<()> {
        if let Some(suspended) = interrupt.suspend_until(&mut || self.release_check(owner)) {
            mark!("a write is suspended until a transaction ends");
            return Err(suspended);
        }
        self.waiting(interrupt, |should_continue| self.store.wait_released(owner, should_continue))
    }

    /// Runs a function that may wait long, without blocking a network thread.
    ///
    /// Errors: interruption.
    pub(crate) fn waiting<T>(
        &self,
        interrupt: &dyn Interrupt,
        wait: impl FnOnce(&mut dyn FnMut() -> bool) -> T,
    ) -> Result<T> {
        wait_interruptibly(self.blocking_hook(), interrupt, wait)
    }

    /// Returns true if every commit must wait for the journal, independent of its write concern.
    pub fn always_journals(&self) -> bool {
        self.engine().durability() == storage::Durability::Journaled
    }

    /// Returns the position of the latest commit. A write that changed nothing waits for it, and a
    /// write answered from its record.
    pub fn latest_position(&self) -> Position {
        self.store.latest_position()
    }

    /// Returns a position at or after each commit that a read may have seen, or whose time was
    /// returned.
    pub fn visible_position(&self) -> Position {
        self.store.visible_position()
    }

    /// Returns true if the commit at `position` would survive a crash.
    pub fn is_journaled(&self, position: Position) -> bool {
        self.engine().durable() >= position
    }

    /// Returns the time up to which all commits would survive a crash, for a store with a log.
    pub fn durable_time(&self) -> u64 {
        self.store.log_read_view(self.earliest_cluster_time()).1
    }

    /// Waits until the commit at `position` would survive a crash. Returns at once for an engine
    /// without a journal.
    pub fn wait_journaled(&self, position: Position) -> Result<()> {
        self.store.wait_journaled(position).map_err(storage_error)
    }

    /// Waits for the journal without a thread, for an engine of this process. Returns the next
    /// action of the waiter.
    pub fn await_journaled(&self, position: Position, waker: &Waker) -> JournalWait {
        self.engine().await_journaled(position, waker)
    }

    /// Returns the number of members that hold the data: one, or the members of a database server that
    /// several processes share.
    ///
    /// Errors: storage errors.
    pub fn members(&self) -> Result<usize> {
        self.store.members().map_err(storage_error)
    }

    /// Returns these members, if the data may have several.
    ///
    /// Errors: storage errors.
    pub fn list_members(&self) -> Result<Vec<Member>> {
        self.store.list_members().map_err(storage_error)
    }

    /// Waits until the commit at `position` is acknowledged, or until `should_continue` returns false.
    ///
    /// Errors: storage errors.
    pub fn wait_acknowledged(
        &self,
        position: Position,
        by: AcknowledgmentLevel,
        should_continue: &mut dyn FnMut() -> bool,
    ) -> Result<WriteConcernStatus> {
        self.store.wait_acknowledged(position, by, should_continue).map_err(storage_error)
    }

    /// Returns the time of the latest commit, for `operationTime`. It advances with the clock
    /// without writes.
    pub fn cluster_time(&self) -> u64 {
        self.store.time(self.earliest_cluster_time())
    }
}

impl Database {
    /// Adds a lock of writes and runs a checkpoint. Returns the number of locks.
    ///
    /// Errors: storage errors of the checkpoint; the lock is then released.
    pub fn lock_writes(&self) -> Result<u64> {
        let count = self.store.freeze();
        match self.checkpoint() {
            Ok(()) => Ok(count),
            Err(error) => {
                self.unlock_writes();
                Err(error)
            }
        }
    }

    /// Releases one lock. Returns the number of remaining locks; `None` if writes were not locked.
    pub fn unlock_writes(&self) -> Option<u64> {
        self.store.thaw()
    }

    /// Returns the number of locks.
    pub fn write_locks(&self) -> u64 {
        self.store.frozen()
    }

    /// Runs a checkpoint of all committed data.
    ///
    /// Errors: storage errors.
    pub fn checkpoint(&self) -> Result<()> {
        self.engine().checkpoint().map_err(crate::storage_error)
    }

    /// Sets the longest time that committed data may be in the journal alone; `None` disables the
    /// time limit. An engine without files ignores it.
    pub fn checkpoint_after(&self, longest: Option<Duration>) {
        self.engine().checkpoint_after(longest);
    }

    /// Sets the interval of journal syncs, for an engine with a journal.
    pub fn sync_every(&self, interval: Duration) {
        self.engine().sync_every(interval);
    }
}
