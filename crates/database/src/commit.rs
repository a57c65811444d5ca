//! The one way in which documents change: changes that were prepared are committed conditionally.
//!
//! [`Database::apply`] hands [`Changes`] to the store, which checks under its lock that what they rest on
//! still holds, and applies them whole. Nothing is computed under the lock, and nobody waits there: where an
//! open transaction has claimed a document, the statement waits for its end without the lock, and starts
//! again.

pub use crate::changes::Committed;
use crate::changes::{Applied, Changes};
use crate::database::Database;
use crate::history::replaced_by;
use crate::operation::{Operation, wait_through};
use crate::storage_error;
use base::{Result, err};
use query::Interrupt;
use std::task::Waker;
use storage::store::{Acknowledged, Member, Owner, Reached, Refusal};
use storage::{Awaited, Position};

impl Database {
    /// Commits changes, if what they rest on still holds. A statement of a transaction adds them to the
    /// transaction instead. Gives the commit, or `None` where something has changed.
    ///
    /// Errors: DuplicateKey; WriteConflict in a transaction; what interrupts waiting; the engine's.
    pub(crate) fn apply(&self, operation: &Operation, changes: Changes) -> Result<Option<Committed>> {
        match self.apply_several(operation, changes)? {
            Applied::Done(committed) => Ok(Some(committed)),
            Applied::Again => Ok(None),
            Applied::Duplicate(_, error) => Err(error),
        }
    }

    /// The same for changes of several documents, telling which one has a key that isn't free.
    ///
    /// Errors: as [`apply`](Self::apply), but for DuplicateKey.
    pub(crate) fn apply_several(&self, operation: &Operation, mut changes: Changes) -> Result<Applied> {
        if changes.stores {
            self.operations.check_room()?;
        }
        if let Some(transaction) = operation.transaction() {
            return transaction.absorb(changes, self.transactions.bytes_max());
        }
        if let Some(logged) = changes.logged.take() {
            self.log_changes(&mut changes.change, logged, changes.retry);
        }
        let replaced = replaced_by(&changes.change);
        loop {
            changes.change.earliest = self.earliest_cluster_time();
            if self.store.must_wait().map_err(storage_error)? {
                self.waiting(operation, |go_on| self.store.wait_for_room(go_on))?.map_err(storage_error)?;
            }
            let (refusal, change) =
                match self.store.commit(std::mem::take(&mut changes.change)).map_err(storage_error)? {
                    Ok(written) => {
                        self.note_replaced(replaced);
                        self.tell(&changes.changed, written.position);
                        return Ok(Applied::Done(written.into()));
                    }
                    Err(refused) => refused,
                };
            changes.change = change;
            match refusal {
                Refusal::Frozen => operation.check()?,
                Refusal::Claimed(owner) => {
                    self.wait_for(owner, operation)?;
                    return Ok(Applied::Again);
                }
                Refusal::Changed => return Ok(Applied::Again),
                Refusal::Expectation(number) if changes.fails_build(number) => return Ok(Applied::Again),
                Refusal::Expectation(number) if changes.is_retry(number) => {
                    return Err(err!(
                        ConflictingOperationInProgress,
                        "the same retryable write was carried out by another process at the same time"
                    ));
                }
                Refusal::Expectation(number) => return Ok(changes.outcome_of(number)),
            }
        }
    }

    /// Waits until an open transaction has ended.
    ///
    /// Errors: what interrupts waiting.
    pub(crate) fn wait_for(&self, owner: Owner, interrupt: &dyn Interrupt) -> Result<()> {
        self.waiting(interrupt, |go_on| self.store.wait_released(owner, go_on))
    }

    /// Runs something that may wait long, where it holds up no network thread.
    ///
    /// Errors: what interrupts it.
    pub(crate) fn waiting<T>(
        &self,
        interrupt: &dyn Interrupt,
        wait: impl FnOnce(&mut dyn FnMut() -> bool) -> T,
    ) -> Result<T> {
        wait_through(self.blocking_hook(), interrupt, wait)
    }

    /// Whether every commit is to wait for the journal, whatever its write concern says.
    pub fn always_journals(&self) -> bool {
        self.engine().durability() == storage::Durability::Journaled
    }

    /// The position of the latest commit: what a write that changed nothing, or one answered from
    /// the record of its first sending, has to wait for.
    pub fn latest_position(&self) -> Position {
        self.store.latest_position()
    }

    /// The position of a commit at or after each commit that a read so far may have shown, or whose time was given.
    pub fn shown_position(&self) -> Position {
        self.store.shown_position()
    }

    /// Whether what was committed at `position` would survive a crash.
    pub fn is_journaled(&self, position: Position) -> bool {
        self.engine().durable() >= position
    }

    /// The time up to which all commits would survive a crash, on a store that keeps a log.
    pub fn durable_time(&self) -> u64 {
        self.store.log_sight(self.earliest_cluster_time()).1
    }

    /// Waits until what was committed at `position` would survive a crash. Returns at once on an
    /// engine without a journal.
    pub fn wait_journaled(&self, position: Position) -> Result<()> {
        self.store.wait_journaled(position).map_err(storage_error)
    }

    /// The same for whoever waits without a thread, on an engine of this process: what is to be done until then.
    pub fn await_journaled(&self, position: Position, waker: &Waker) -> Awaited {
        self.engine().await_journaled(position, waker)
    }

    /// How many members hold the data: one, or those of a server that several processes share.
    ///
    /// Errors: the store's.
    pub fn members(&self) -> Result<usize> {
        self.store.members().map_err(storage_error)
    }

    /// Who they are, where there may be several.
    ///
    /// Errors: the store's.
    pub fn list_members(&self) -> Result<Vec<Member>> {
        self.store.list_members().map_err(storage_error)
    }

    /// Waits until what was committed at `position` is where it has to be, or `go_on` says no.
    ///
    /// Errors: the store's.
    pub fn wait_acknowledged(
        &self,
        position: Position,
        by: Acknowledged,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Reached> {
        self.store.wait_acknowledged(position, by, go_on).map_err(storage_error)
    }

    /// The time of the latest commit, for `operationTime`; advances with the clock when nothing
    /// is written.
    pub fn cluster_time(&self) -> u64 {
        self.store.time(self.earliest_cluster_time())
    }
}

/// A UUID as MongoDB's messages show it.
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}
