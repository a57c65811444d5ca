//! Multi-statement transactions.
//!
//! A transaction reads one view with its own changes on top ([`Overlay`]). Each statement checks
//! the conditions of its changes ([`OpenTransaction`]). The commit applies all changes as one batch
//! and cannot fail with a conflict.
//!
//! Single statements wait for the end of a transaction that has write intents of their documents. Changes of
//! collections wait for transactions that have written to them.
//!
//! Records of committed transactions: a driver whose connection broke sends `commitTransaction`
//! again, to the restarted server or to another process of the same store.
//!
//! A commit writes its session's record in its own batch, so after a crash either both exist or
//! neither. At the start, the server's sessions read these records like records of retryable
//! writes.
//!
//! Processes that share a store have separate sessions. A transaction therefore acquires a
//! write intent of its session's record before it commits. If a process is asked for a number without a record, it
//! writes a record that the transaction will never commit. The intent and the commit then fail. The
//! answer is therefore valid in either order.

use crate::catalog::collection::{Collection, Options};
use crate::catalog::history::{View, replaced_by};
use crate::changes::open_transaction::{Inner, OpenTransaction, TransactionChanges, write_conflict};
use crate::changes::retry_record::{COMMIT, RetryKey, SessionId, from_entry, to_value};
use crate::commit::catalog_change::CatalogChange;
use crate::database::Database;
use crate::index::{Index, IndexSpec};
use crate::keys::{CATALOG, RETRIES};
use crate::operation::Operation;
use crate::storage_error;
use base::bson::{Builder, Document};
use base::{Namespace, Result, bail};
use query::Interrupt;
use std::sync::Arc;
use storage::store::{Change, CommitError, Committed, Expect, WriteIntent};
use storage::{Batch, Key, Overlay, Snapshot, mark, mutant};

impl Database {
    /// Begins a transaction that reads the present state, or the state at the earlier time `at`.
    /// `retry` is its session and number for the log.
    ///
    /// Errors: as [`snapshot_at`](Self::snapshot_at).
    pub fn begin_transaction(
        self: &Arc<Self>,
        at: Option<u64>,
        retry: Option<RetryKey>,
    ) -> Result<Arc<OpenTransaction>> {
        let replaced_at = self.replaced();
        let (owner, read_view, time) = self.store.begin(self.earliest_cluster_time());
        let view = match at {
            Some(at) => self.snapshot_at(Some(at)),
            None => self
                .catalog_at(&read_view)
                .map(|catalog| (time, View { snapshot: read_view.snapshot, catalog, replaced_at })),
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
        let transaction = OpenTransaction::new(self.store.clone(), owner, time, view.replaced_at, inner);
        let transaction = Arc::new(transaction);
        self.transactions.note(&transaction);
        Ok(transaction)
    }

    /// Commits a transaction atomically. The transaction has ended afterwards in any case.
    ///
    /// Errors: NoSuchTransaction if it has already ended; WriteConflict; storage errors;
    /// interrupted waits while writes are locked.
    pub fn commit_transaction(
        &self,
        operation: &Operation,
        transaction: &OpenTransaction,
    ) -> Result<Committed> {
        if let Err(error) = self.record_transaction(transaction) {
            self.abort_transaction(transaction);
            return Err(error);
        }
        let Some(TransactionChanges { mut change, created, changed, logged, retry }) = transaction.take()
        else {
            return Err(transaction.ended_error());
        };
        self.log_transaction(&mut change, &created, logged, retry);
        let replaced = replaced_by(&change);
        if mutant!("write intents are released before the commit") {
            self.store.release(transaction.owner);
        }
        let outcome = self.commit_taken(operation, change, &created);
        self.store.release(transaction.owner);
        let committed = outcome?;
        self.count_replaced(replaced);
        self.notify_watchers(&changed, committed.position);
        Ok(committed)
    }

    fn commit_taken(
        &self,
        operation: &Operation,
        mut change: Change,
        created: &[Arc<Collection>],
    ) -> Result<Committed> {
        debug_assert!(change.owner.is_some(), "its own intents would refuse the commit");
        if change.batch.is_empty() {
            return Ok(Committed { position: self.latest_position(), cluster_time: self.cluster_time() });
        }
        if !created.is_empty() {
            return self.commit_with_collections(operation, change, created);
        }
        loop {
            change.earliest = self.earliest_cluster_time();
            self.wait_for_room(operation)?;
            match self.store.commit(&mut change).map_err(storage_error)? {
                Ok(written) => return Ok(written),
                Err(CommitError::Frozen) => operation.check()?,
                Err(_) => {
                    mark!("a transaction's commit is refused");
                    return Err(write_conflict());
                }
            }
        }
    }

    fn commit_with_collections(
        &self,
        operation: &Operation,
        change: Change,
        created: &[Arc<Collection>],
    ) -> Result<Committed> {
        mark!("a transaction creates a collection");
        let lock = self.exclusive(operation)?;
        let mut catalog_change = CatalogChange::new(self, lock)?;
        catalog_change.adopt(change);
        for collection in created {
            catalog_change.put_collection(Collection::clone(collection))?;
        }
        catalog_change.commit()?.map_err(|_| write_conflict())
    }

    /// Aborts a transaction. Its changes were never visible to other operations. Returns true if it
    /// was open.
    pub fn abort_transaction(&self, transaction: &OpenTransaction) -> bool {
        let changes = transaction.take();
        let was_open = changes.is_some();
        if mutant!("aborted changes are stored")
            && let Some(TransactionChanges { mut change, .. }) = changes
        {
            let _ = self.store.commit(&mut change);
        }
        if was_open {
            self.store.release(transaction.owner);
        }
        was_open
    }

    /// Creates a collection within a transaction. Returns an existing collection if it was created
    /// earlier.
    ///
    /// Errors: WriteConflict if another operation creates it, or has created it since the
    /// transaction began.
    pub(crate) fn create_within(
        &self,
        transaction: &OpenTransaction,
        namespace: &Namespace,
        options: Options,
    ) -> Result<Arc<Collection>> {
        let mut inner = transaction.inner.lock();
        if inner.ended {
            return Err(transaction.ended_error());
        }
        let name = [WriteIntent::Key(CATALOG, Key::from(namespace.as_str().as_bytes()))];
        transaction.acquire_intents(&inner, &name, &[])?;
        let collection = Arc::new(self.new_collection(namespace, options));
        let mut change = Change::default();
        collection.data.iter().flat_map(|data| data.idents()).for_each(|ident| change.batch.create(ident));
        inner.add(change)?;
        Arc::make_mut(&mut inner.catalog).put(collection.clone())?;
        inner.changed.push(namespace.clone());
        inner.created.push(collection.clone());
        Ok(collection)
    }

    /// Adds indexes to an empty collection created by the transaction.
    ///
    /// Errors: OperationNotSupportedInTransaction for another collection.
    pub(crate) fn index_within(
        &self,
        transaction: &OpenTransaction,
        collection: &Collection,
        specs: Vec<Arc<IndexSpec>>,
    ) -> Result<()> {
        let mut inner = transaction.inner.lock();
        let inner = &mut *inner;
        let created = inner.created.iter_mut().find(|created| created.uuid == collection.uuid);
        let ident = collection.data()?.ident;
        let is_empty = inner.overlay.entries(ident).map_err(storage_error)? == 0;
        let Some(created) = created.filter(|_| is_empty) else {
            bail!(
                OperationNotSupportedInTransaction,
                "Cannot create new indexes on {} collection {} in a multi-document transaction.",
                if is_empty { "existing" } else { "non-empty" },
                collection.namespace
            );
        };
        let mut changed = Collection::clone(created);
        let mut batch = Batch::new();
        if let Some(data) = &mut changed.data {
            for spec in specs {
                let index = Index::new(spec, self.store.new_ident(), &[], self.now_millis());
                batch.create(index.ident);
                data.indexes.push(Arc::new(index));
            }
        }
        *created = Arc::new(changed);
        Arc::make_mut(&mut inner.catalog).put(created.clone())?;
        inner.add(Change { batch, ..Change::default() })
    }
}

impl Database {
    /// Returns true if other processes may run a session's writes.
    pub(crate) fn shares_retries(&self) -> bool {
        self.records_retries && self.store.known_generation().is_some()
    }

    /// Adds the session's record to a transaction before its commit. As in MongoDB, a transaction
    /// without writes has no record.
    ///
    /// Errors: WriteConflict if another process has asked for the record, storage errors.
    pub(crate) fn record_transaction(&self, transaction: &OpenTransaction) -> Result<()> {
        let mut inner = transaction.inner.lock();
        let writes = self.records_retries && !inner.change.batch.is_empty();
        let writes = writes && !mutant!("transactions leave no record");
        let Some(retry) = inner.retry.filter(|_| writes) else { return Ok(()) };
        debug_assert!(!inner.ended, "a record of an ended transaction");
        let key = RetryKey { statement: COMMIT, ..retry }.to_key();
        let value = to_value(retry.number, self.now_millis(), Document::EMPTY);
        match self.shares_retries() {
            true => {
                transaction.acquire_intents(&inner, &[WriteIntent::Key(RETRIES, key.clone())], &[])?;
                inner.change.batch.put(RETRIES, key, value);
            }
            false => inner.change.stamped.push((RETRIES, key, value)),
        }
        Ok(())
    }

    /// Returns the outcome of a session's transaction that this process does not know. A
    /// transaction that has not committed will never commit.
    ///
    /// Errors: DataCorruptionDetected, storage errors, interruption of the operation.
    pub fn find_transaction(
        &self,
        operation: &Operation,
        session: SessionId,
        number: i64,
    ) -> Result<Option<Committed>> {
        let key = RetryKey { session, number, statement: COMMIT }.to_key();
        let mut never = Builder::new();
        never.append(c"never", true);
        let never = never.finish();
        loop {
            operation.check()?;
            let seen = self.engine().snapshot().get(RETRIES, &key).map_err(storage_error)?;
            if let Some(value) = &seen {
                let record = from_entry(&key, value)?;
                if record.key.number == number && record.answer.view().is_empty() {
                    let position = self.latest_position();
                    return Ok(Some(Committed { position, cluster_time: self.cluster_time() }));
                }
                if record.key.number >= number {
                    return Ok(None);
                }
            }
            let mut change = Change::default();
            change.expect.push(Expect::Value { ident: RETRIES, key: key.clone(), value: seen });
            change.batch.put(RETRIES, key.clone(), to_value(number, self.now_millis(), never.view()));
            if self.store.commit(&mut change).map_err(storage_error)?.is_ok() {
                return Ok(None);
            }
        }
    }
}
