//! An open transaction: its view and its changes so far.
//!
//! Each statement [acquires write intents](storage::store::Intents::acquire_intents) before its changes are added. It
//! fails with WriteConflict if another transaction has an intent of the same document or unique key, or if a commit has
//! changed it since the view. The commit therefore cannot fail with a conflict.

use crate::catalog::Catalog;
use crate::catalog::collection::Collection;
use crate::catalog::history::View;
use crate::changes::logged::Logged;
use crate::changes::retry_record::RetryKey;
use crate::changes::{Applied, Changes};
use crate::storage_error;
use base::{Error, Namespace, Result, bail, err};
use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use storage::store::{Change, CommitError, Committed, Expect, Store, TransactionId, WriteIntent};
use storage::sync::Mutex;
use storage::{Ident, Op, Overlay, Snapshot, mutant};

/// Approximate limit of a transaction's changes, in bytes.
const CHANGES_MAX: usize = 256 * 1024 * 1024;

/// Approximate overhead of a change besides its key and value, in bytes.
const CHANGE_OVERHEAD: usize = 64;

/// An open transaction. Dropping it aborts it.
pub struct OpenTransaction {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) owner: TransactionId,
    /// Time of the latest commit in its view.
    pub(crate) time: u64,
    /// Bytes replaced by commits when its view was taken.
    pub(crate) replaced_at: u64,
    /// True if it was ended because its view kept too many old versions.
    lost: AtomicBool,
    pub(crate) inner: Mutex<Inner>,
}

/// Changes of a transaction so far.
pub(crate) struct Inner {
    pub(crate) overlay: Arc<Overlay>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) change: Change,
    /// Collections created in the transaction, in their present form.
    pub(crate) created: Vec<Arc<Collection>>,
    pub(crate) changed: Vec<Namespace>,
    pub(crate) logged: Vec<Logged>,
    pub(crate) retry: Option<RetryKey>,
    pub(crate) bytes: usize,
    pub(crate) ended: bool,
}

/// Changes of an ended transaction.
pub(crate) struct TransactionChanges {
    pub(crate) change: Change,
    pub(crate) created: Vec<Arc<Collection>>,
    pub(crate) changed: Vec<Namespace>,
    pub(crate) logged: Vec<Logged>,
    pub(crate) retry: Option<RetryKey>,
}

/// The open transactions.
#[derive(Default)]
pub(crate) struct Transactions(Mutex<Vec<Weak<OpenTransaction>>>);

impl Transactions {
    /// Adds a new transaction.
    pub(crate) fn note(&self, transaction: &Arc<OpenTransaction>) {
        let mut open = self.0.lock();
        if open.len() == open.capacity() {
            open.retain(|known| known.strong_count() > 0);
        }
        open.push(Arc::downgrade(transaction));
    }

    /// Ends the transactions whose views were taken with fewer replaced bytes than `least`. Appends
    /// the number of replaced bytes of each remaining view.
    pub(crate) fn end_before(&self, least: u64, remaining: &mut Vec<u64>) {
        let open: Vec<Arc<OpenTransaction>> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        let (old, left): (Vec<_>, Vec<_>) = open.into_iter().partition(|one| one.replaced_at < least);
        old.iter().for_each(|transaction| transaction.lose());
        remaining.extend(left.iter().filter(|one| !one.inner.lock().ended).map(|one| one.replaced_at));
    }
}

impl OpenTransaction {
    /// Returns a transaction that reads a view.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        owner: TransactionId,
        time: u64,
        replaced_at: u64,
        inner: Inner,
    ) -> Self {
        let lost = AtomicBool::new(false);
        OpenTransaction { store, owner, time, replaced_at, lost, inner: Mutex::new(inner) }
    }

    /// Ends it because its view keeps too many old versions.
    fn lose(&self) {
        self.lost.store(true, Relaxed);
        if self.take().is_some() {
            log::info!("a transaction was ended: its snapshot kept more than maxSnapshotHistoryBytes");
            self.store.release(self.owner);
        }
    }

    /// Returns true if it was ended because its view kept too many old versions.
    pub fn has_lost_snapshot(&self) -> bool {
        self.lost.load(Relaxed)
    }

    /// Returns the error of a statement or commit after its end.
    pub fn ended_error(&self) -> Error {
        match self.has_lost_snapshot() {
            true => err!(
                SnapshotTooOld,
                "Transaction has been aborted: its snapshot is older than the oldest available one."
            ),
            false => has_ended(),
        }
    }

    /// Adds a statement's changes to the transaction.
    ///
    /// Errors: DuplicateKey, WriteConflict, SnapshotUnavailable, TransactionTooLargeForCache,
    /// NoSuchTransaction if it has ended.
    pub(crate) fn absorb(&self, changes: Changes) -> Result<Applied> {
        let mut inner = self.inner.lock();
        if inner.ended {
            return Err(self.ended_error());
        }
        let is_own = |ident: Ident| {
            let created = inner.created.iter().filter_map(|collection| collection.data.as_ref());
            created.flat_map(|data| data.idents()).any(|created| created == ident)
        };
        let collections = changes.collections.iter().filter_map(|collection| {
            let ident = collection.data.as_ref()?.ident;
            (!is_own(ident)).then_some((ident, collection.generation))
        });
        let collections: Vec<(Ident, u64)> = collections.collect();
        let keys: Vec<WriteIntent> =
            changes.write_intents().into_iter().filter(|intent| !is_own(intent.tree_and_key().0)).collect();
        debug_assert!(changes.change.owner.is_none(), "the changes have another owner");
        debug_assert!(changes.change.stamped.is_empty(), "statements of a transaction have no records");
        self.acquire_intents(&inner, &keys, &collections)?;
        if let Some(violated) = first_violated(&changes.change.expect, &inner.overlay)? {
            return Ok(match changes.restarts_build(violated) {
                true => Applied::Retry,
                false => changes.outcome_of(violated),
            });
        }
        if mutant!("statements are stored before the commit") {
            let mut change =
                Change { expect: SmallVec::default(), owner: Some(self.owner), ..changes.change.clone() };
            let _ = self.store.commit(&mut change);
        }
        inner.bytes += changes.logged.iter().flatten().map(Logged::held_bytes).sum::<usize>();
        inner.add(changes.change)?;
        inner.changed.extend(changes.changed);
        inner.logged.extend(changes.logged.into_iter().flatten());
        Ok(Applied::Committed(Committed::default()))
    }

    /// Acquires write intents of the keys of changes, so that no other transaction can change them.
    ///
    /// Errors: WriteConflict, SnapshotUnavailable.
    pub(crate) fn acquire_intents(
        &self,
        inner: &Inner,
        keys: &[WriteIntent],
        collections: &[(Ident, u64)],
    ) -> Result<()> {
        let base = inner.overlay.base().as_ref();
        match self.store.acquire_intents(self.owner, keys, collections, base).map_err(storage_error)? {
            Ok(()) => Ok(()),
            Err(CommitError::Expectation(_)) => Err(snapshot_unavailable()),
            Err(_) => Err(write_conflict()),
        }
    }

    /// Returns the view of its next statement.
    pub(crate) fn view(&self) -> View {
        let inner = self.inner.lock();
        if mutant!("transactions don't see their own changes") {
            let snapshot = inner.overlay.base().clone();
            return View { catalog: inner.catalog.clone(), snapshot, replaced_at: self.replaced_at };
        }
        View {
            catalog: inner.catalog.clone(),
            snapshot: inner.overlay.clone(),
            replaced_at: self.replaced_at,
        }
    }

    /// Returns the time of the latest commit in its view.
    pub fn time(&self) -> u64 {
        self.time
    }

    /// Returns true if it has changes.
    pub fn has_written(&self) -> bool {
        !self.inner.lock().change.batch.is_empty()
    }

    /// Returns true if it has created a collection.
    pub(crate) fn has_created(&self, collection: &Collection) -> bool {
        self.inner.lock().created.iter().any(|created| created.uuid == collection.uuid)
    }

    /// Ends it and returns its changes; `None` if it has already ended.
    pub(crate) fn take(&self) -> Option<TransactionChanges> {
        let mut inner = self.inner.lock();
        if std::mem::replace(&mut inner.ended, true) {
            return None;
        }
        let inner = &mut *inner;
        // Releases its view, so that the engine's trees are unshared.
        inner.overlay = Arc::new(Overlay::new(Arc::new(EmptySnapshot)));
        debug_assert!(inner.change.owner.is_none(), "the transaction was taken before");
        let mut change = std::mem::take(&mut inner.change);
        change.owner = Some(self.owner);
        Some(TransactionChanges {
            change,
            created: std::mem::take(&mut inner.created),
            changed: std::mem::take(&mut inner.changed),
            logged: std::mem::take(&mut inner.logged),
            retry: inner.retry,
        })
    }
}

impl Drop for OpenTransaction {
    fn drop(&mut self) {
        if self.take().is_some() {
            self.store.release(self.owner);
        }
    }
}

impl Inner {
    /// Adds changes whose write intents are acquired.
    pub(crate) fn add(&mut self, change: Change) -> Result<()> {
        let size = |op: &Op| match op {
            Op::Put { key, value, .. } => key.len() + value.len() + CHANGE_OVERHEAD,
            Op::Delete { key, .. } => key.len() + CHANGE_OVERHEAD,
            _ => CHANGE_OVERHEAD,
        };
        debug_assert!(!self.ended, "changes after the end of the transaction");
        debug_assert!(change.log.is_empty(), "the log entry is made at the commit");
        self.bytes += change.batch.ops().iter().map(size).sum::<usize>();
        if self.bytes > CHANGES_MAX {
            bail!(
                TransactionTooLargeForCache,
                "transaction is too large and will not fit in the storage engine cache: its changes take more than \
                 {CHANGES_MAX} bytes"
            );
        }
        Arc::make_mut(&mut self.overlay).apply(&change.batch).map_err(storage_error)?;
        self.change.batch.append(change.batch);
        self.change.side_effects.extend(change.side_effects);
        self.change.log.extend(change.log);
        Ok(())
    }
}

/// Returns the first expectation that does not hold in a transaction's own view. Collections are
/// checked when their write intents are acquired.
fn first_violated(expect: &[Expect], view: &Overlay) -> Result<Option<usize>> {
    for (number, expect) in expect.iter().enumerate() {
        if !matches!(expect, Expect::Generation { .. }) && !expect.holds(view).map_err(storage_error)? {
            return Ok(Some(number));
        }
    }
    Ok(None)
}

/// The empty state of an ended transaction.
struct EmptySnapshot;

impl Snapshot for EmptySnapshot {
    fn get(&self, ident: Ident, _: &[u8]) -> storage::Result<Option<storage::Value>> {
        Err(storage::Error::NoSuchIdent(ident))
    }

    fn scan(
        &self,
        ident: Ident,
        _: storage::Range,
        _: storage::Direction,
    ) -> storage::Result<Box<dyn storage::Cursor>> {
        Err(storage::Error::NoSuchIdent(ident))
    }

    fn entries(&self, ident: Ident) -> storage::Result<u64> {
        Err(storage::Error::NoSuchIdent(ident))
    }

    fn bytes(&self, ident: Ident) -> storage::Result<u64> {
        Err(storage::Error::NoSuchIdent(ident))
    }

    fn contains(&self, _: Ident) -> storage::Result<bool> {
        Ok(false)
    }
}

/// Returns the error of a statement whose document another transaction has changed.
pub(crate) fn write_conflict() -> Error {
    err!(
        WriteConflict,
        "Caused by :: Write conflict during plan execution and yielding is disabled. :: Please retry your operation \
         or multi-document transaction."
    )
}

fn snapshot_unavailable() -> Error {
    err!(
        SnapshotUnavailable,
        "Unable to read from a snapshot due to pending collection catalog changes; please retry the operation."
    )
}

fn has_ended() -> Error {
    err!(NoSuchTransaction, "Transaction has been aborted.")
}
