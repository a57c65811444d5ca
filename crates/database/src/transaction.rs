//! Transactions of many statements.
//!
//! A transaction reads one view, with its own changes on top of it ([`Overlay`]). Each statement's changes are
//! [claimed](storage::store::Store::claim) before they are added: where another transaction has claimed the
//! same document or unique key, or where somebody has changed it since the view, the statement fails with
//! WriteConflict. So nothing is left to fail at the commit, which applies all of it as one batch.
//!
//! Single statements wait for the end of a transaction that has claimed what they want to change, and so do
//! changes of the collections that it has written to.

use crate::catalog::Catalog;
use crate::catalog_change::CatalogChange;
use crate::changes::Changes;
use crate::collection::{Collection, Options};
use crate::commit::{Applied, Committed};
use crate::database::{Database, View};
use crate::index::{Index, IndexSpec};
use crate::keys::CATALOG;
use crate::operation::Operation;
use crate::oplog::Logged;
use crate::storage_error;
use crate::write::RetryKey;
use base::{Error, Namespace, Result, err};
use query::Interrupt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use storage::store::{Change, Claim, Expect, Owner, Refusal};
use storage::sync::Mutex;
use storage::{Batch, Ident, Key, Op, Overlay, Snapshot, mutant};

/// The most that the changes of one transaction may take, in bytes, about.
const CHANGES_MAX: usize = 256 * 1024 * 1024;

/// What a change takes besides its key and value, about.
const CHANGE_OVERHEAD: usize = 64;

/// A transaction under way. Dropping it aborts it.
pub struct OpenTransaction {
    database: Arc<Database>,
    owner: Owner,
    /// The time of the latest commit that it reads.
    time: u64,
    inner: Mutex<Inner>,
}

struct Inner {
    overlay: Arc<Overlay>,
    catalog: Arc<Catalog>,
    change: Change,
    /// Collections made in the transaction, as they are now.
    created: Vec<Arc<Collection>>,
    changed: Vec<Namespace>,
    logged: Vec<Logged>,
    retry: Option<RetryKey>,
    bytes: usize,
    ended: bool,
}

/// What a transaction has come to.
struct Taken {
    change: Change,
    created: Vec<Arc<Collection>>,
    changed: Vec<Namespace>,
    logged: Vec<Logged>,
    retry: Option<RetryKey>,
}

/// A bound on what transactions may hold.
pub(crate) struct Transactions {
    bytes_max: AtomicU64,
}

impl Default for Transactions {
    fn default() -> Transactions {
        Transactions { bytes_max: AtomicU64::new(CHANGES_MAX as u64) }
    }
}

impl Database {
    /// Begins a transaction that reads the state as of now, or as of the earlier time `at`; `retry` is its
    /// session and number, for the log.
    ///
    /// Errors: as [`snapshot_at`](Self::snapshot_at).
    pub fn begin_transaction(
        self: &Arc<Self>,
        at: Option<u64>,
        retry: Option<RetryKey>,
    ) -> Result<Arc<OpenTransaction>> {
        let (owner, sight, time) = self.store.begin(self.earliest_cluster_time());
        let view = match at {
            Some(at) => self.snapshot_at(Some(at)),
            None => self.catalog_at(&sight).map(|catalog| (time, View { snapshot: sight.snapshot, catalog })),
        };
        let (time, view) = view.inspect_err(|_| self.store.release(owner))?;
        let inner = Inner {
            overlay: Arc::new(Overlay::new(view.snapshot)),
            catalog: view.catalog,
            change: Change::default(),
            created: Vec::new(),
            changed: Vec::new(),
            logged: Vec::new(),
            retry,
            bytes: 0,
            ended: false,
        };
        Ok(Arc::new(OpenTransaction { database: self.clone(), owner, time, inner: Mutex::new(inner) }))
    }

    /// Bounds what the changes of one transaction may take, in bytes.
    pub fn set_transaction_bytes(&self, bytes: u64) {
        self.transactions.bytes_max.store(bytes, Relaxed);
    }

    /// Commits a transaction whole. Afterwards it has ended, whatever came of it.
    ///
    /// Errors: NoSuchTransaction where it has ended before; WriteConflict; the engine's; what interrupts
    /// waiting while writes are locked.
    pub fn commit_transaction(
        &self,
        operation: &Operation,
        transaction: &OpenTransaction,
    ) -> Result<Committed> {
        let Some(Taken { mut change, created, changed, logged, retry }) = transaction.take() else {
            return Err(has_ended());
        };
        self.log_transaction(&mut change, &created, logged, retry);
        if mutant!("claims are given up before the commit") {
            self.store.release(transaction.owner);
        }
        let outcome = self.commit_taken(operation, change, &created);
        self.store.release(transaction.owner);
        let committed = outcome?;
        self.watchers.notify_all(&changed);
        Ok(committed)
    }

    fn commit_taken(
        &self,
        operation: &Operation,
        mut change: Change,
        created: &[Arc<Collection>],
    ) -> Result<Committed> {
        if change.batch.is_empty() {
            return Ok(Committed { position: self.latest_position(), cluster_time: self.cluster_time() });
        }
        if !created.is_empty() {
            return self.commit_with_collections(operation, change, created);
        }
        loop {
            change.earliest = self.earliest_cluster_time();
            if self.store.must_wait().map_err(storage_error)? {
                self.waiting(operation, |go_on| self.store.wait_for_room(go_on))?.map_err(storage_error)?;
            }
            match self.store.commit(change).map_err(storage_error)? {
                Ok(written) => return Ok(written.into()),
                Err((Refusal::Frozen, given_back)) => {
                    operation.check()?;
                    change = given_back;
                }
                Err(_) => return Err(write_conflict()),
            }
        }
    }

    fn commit_with_collections(
        &self,
        operation: &Operation,
        change: Change,
        created: &[Arc<Collection>],
    ) -> Result<Committed> {
        let lock = self.exclusive(operation)?;
        let mut catalog_change = CatalogChange::new(self, lock)?;
        catalog_change.adopt(change);
        for collection in created {
            catalog_change.put_collection(Collection::clone(collection))?;
        }
        catalog_change.commit()?.map_err(|_| write_conflict())
    }

    /// Aborts a transaction: nothing of it was ever visible to others. Whether it was still open.
    pub fn abort_transaction(&self, transaction: &OpenTransaction) -> bool {
        let taken = transaction.take();
        let was_open = taken.is_some();
        if mutant!("aborted changes are stored")
            && let Some(Taken { change, .. }) = taken
        {
            let _ = self.store.commit(change);
        }
        if was_open {
            self.store.release(transaction.owner);
        }
        was_open
    }

    /// Adds a statement's changes to its transaction.
    ///
    /// Errors: DuplicateKey, WriteConflict, SnapshotUnavailable, TransactionTooLargeForCache,
    /// NoSuchTransaction where it has ended meanwhile.
    pub(crate) fn absorb(&self, transaction: &OpenTransaction, changes: Changes) -> Result<Applied> {
        let mut inner = transaction.inner.lock();
        if inner.ended {
            return Err(has_ended());
        }
        let is_own = |ident: Ident| {
            let own = inner.created.iter().filter_map(|collection| collection.data.as_ref());
            own.flat_map(|data| data.idents()).any(|own| own == ident)
        };
        let held = changes.collections.iter().filter_map(|collection| {
            let ident = collection.data.as_ref()?.ident;
            (!is_own(ident)).then_some((ident, collection.generation))
        });
        let held: Vec<(Ident, u64)> = held.collect();
        let keys: Vec<Claim> =
            changes.claims().into_iter().filter(|claim| !is_own(claim.place().0)).collect();
        self.claim(transaction, &inner, &keys, &held)?;
        if let Some(violated) = first_violated(&changes.change.expect, &inner.overlay)? {
            return Ok(match changes.fails_build(violated) {
                true => Applied::Again,
                false => changes.outcome_of(violated),
            });
        }
        if mutant!("statements are stored before the commit") {
            let change =
                Change { expect: Vec::new(), owner: Some(transaction.owner), ..changes.change.clone() };
            let _ = self.store.commit(change);
        }
        inner.add(changes.change, self.transactions.bytes_max.load(Relaxed))?;
        inner.changed.extend(changes.changed);
        inner.logged.extend(changes.logged.into_iter().flatten());
        Ok(Applied::Done(Committed::default()))
    }

    fn claim(
        &self,
        transaction: &OpenTransaction,
        inner: &Inner,
        keys: &[Claim],
        held: &[(Ident, u64)],
    ) -> Result<()> {
        let base = inner.overlay.base().as_ref();
        match self.store.claim(transaction.owner, keys, held, base).map_err(storage_error)? {
            Ok(()) => Ok(()),
            Err(Refusal::Expectation(_)) => Err(snapshot_unavailable()),
            Err(_) => Err(write_conflict()),
        }
    }

    /// Makes a collection within a transaction; the one that is there where somebody has made it before.
    ///
    /// Errors: WriteConflict where somebody else makes it, or has since the transaction began.
    pub(crate) fn create_within(
        &self,
        transaction: &OpenTransaction,
        namespace: &Namespace,
        options: Options,
    ) -> Result<Arc<Collection>> {
        let mut inner = transaction.inner.lock();
        if inner.ended {
            return Err(has_ended());
        }
        let name = [Claim::Key(CATALOG, Key::from(namespace.as_str().as_bytes()))];
        self.claim(transaction, &inner, &name, &[])?;
        let collection = Arc::new(self.new_collection(namespace, options));
        let mut change = Change::default();
        collection.data.iter().flat_map(|data| data.idents()).for_each(|ident| change.batch.create(ident));
        inner.add(change, u64::MAX)?;
        Arc::make_mut(&mut inner.catalog).put(collection.clone())?;
        inner.changed.push(namespace.clone());
        inner.created.push(collection.clone());
        Ok(collection)
    }

    /// Adds indexes to a collection that the transaction has made and that has no documents yet.
    ///
    /// Errors: OperationNotSupportedInTransaction for another collection.
    pub(crate) fn index_within(
        &self,
        transaction: &OpenTransaction,
        collection: &Collection,
        specs: Vec<IndexSpec>,
    ) -> Result<()> {
        let mut inner = transaction.inner.lock();
        let inner = &mut *inner;
        let own = inner.created.iter_mut().find(|own| own.uuid == collection.uuid);
        let is_empty = collection.data()?.ident;
        let is_empty = inner.overlay.entries(is_empty).map_err(storage_error)? == 0;
        let Some(own) = own.filter(|_| is_empty) else {
            return Err(err!(
                OperationNotSupportedInTransaction,
                "Cannot create new indexes on {} collection {} in a multi-document transaction.",
                if is_empty { "existing" } else { "non-empty" },
                collection.namespace
            ));
        };
        let mut changed = Collection::clone(own);
        let mut batch = Batch::new();
        if let Some(data) = &mut changed.data {
            for spec in specs {
                let index = Index::new(spec, self.store.new_ident(), &[], self.now_millis());
                batch.create(index.ident);
                data.indexes.push(Arc::new(index));
            }
        }
        *own = Arc::new(changed);
        Arc::make_mut(&mut inner.catalog).put(own.clone())?;
        inner.add(Change { batch, ..Change::default() }, u64::MAX)
    }
}

impl OpenTransaction {
    /// What its next statement reads.
    pub(crate) fn view(&self) -> View {
        let inner = self.inner.lock();
        if mutant!("transactions don't see their own changes") {
            return View { catalog: inner.catalog.clone(), snapshot: inner.overlay.base().clone() };
        }
        if mutant!("each statement reads anew") && inner.change.batch.is_empty() {
            return self.database.view();
        }
        View { catalog: inner.catalog.clone(), snapshot: inner.overlay.clone() }
    }

    /// The time of the latest commit that it reads.
    pub fn time(&self) -> u64 {
        self.time
    }

    /// Whether it has changed anything.
    pub fn has_written(&self) -> bool {
        !self.inner.lock().change.batch.is_empty()
    }

    /// Whether it has made a collection.
    pub(crate) fn has_created(&self, collection: &Collection) -> bool {
        self.inner.lock().created.iter().any(|own| own.uuid == collection.uuid)
    }

    /// Ends it, and gives what it has changed; `None` where it has ended before.
    fn take(&self) -> Option<Taken> {
        let mut inner = self.inner.lock();
        if std::mem::replace(&mut inner.ended, true) {
            return None;
        }
        let inner = &mut *inner;
        // What it read is no longer needed, so that the engine finds its trees unshared.
        inner.overlay = Arc::new(Overlay::new(Arc::new(Nothing)));
        let mut change = std::mem::take(&mut inner.change);
        change.owner = Some(self.owner);
        Some(Taken {
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
            self.database.store.release(self.owner);
        }
    }
}

impl Inner {
    /// Adds changes that nobody else can come between any more.
    fn add(&mut self, change: Change, bytes_max: u64) -> Result<()> {
        let size = |op: &Op| match op {
            Op::Put { key, value, .. } => key.len() + value.len() + CHANGE_OVERHEAD,
            Op::Delete { key, .. } => key.len() + CHANGE_OVERHEAD,
            _ => CHANGE_OVERHEAD,
        };
        self.bytes += change.batch.ops().iter().map(size).sum::<usize>();
        if self.bytes as u64 > bytes_max {
            return Err(err!(
                TransactionTooLargeForCache,
                "transaction is too large and will not fit in the storage engine cache: its changes take more than \
                 {bytes_max} bytes"
            ));
        }
        Arc::make_mut(&mut self.overlay).apply(&change.batch).map_err(storage_error)?;
        self.change.batch.append(change.batch);
        self.change.beside.extend(change.beside);
        self.change.log.extend(change.log);
        Ok(())
    }
}

/// The first expectation that doesn't hold in a transaction's own view. Collections are looked at when their
/// keys are claimed.
fn first_violated(expect: &[Expect], view: &Overlay) -> Result<Option<usize>> {
    for (number, expect) in expect.iter().enumerate() {
        if !matches!(expect, Expect::Generation { .. }) && !expect.holds(view).map_err(storage_error)? {
            return Ok(Some(number));
        }
    }
    Ok(None)
}

/// The state that a transaction that has ended reads.
struct Nothing;

impl Snapshot for Nothing {
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

fn write_conflict() -> Error {
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

/// Refuses what a transaction can't do.
///
/// Errors: OperationNotSupportedInTransaction.
pub(crate) fn check_writable_within(operation: &Operation, collection: &Collection) -> Result<()> {
    if operation.transaction().is_some() && collection.options.capped.is_some() {
        return Err(err!(
            OperationNotSupportedInTransaction,
            "Collection '{}' is a capped collection. Writes in transactions are not allowed on capped collections.",
            collection.namespace
        ));
    }
    Ok(())
}
