//! Opening of a database: reads the catalog and starts the log.

use crate::catalog::{self, Catalog};
use crate::changes::retry_record;
use crate::clock::Clock;
use crate::database::Database;
use crate::keys::{CATALOG, RETRIES};
use crate::storage_error;
use base::{Result, err};
use std::sync::Arc;
use storage::store::{Change, Exclusive, Local, LogOptions, Store};
use storage::{Engine, Ident};

impl Database {
    /// Opens the database in an engine and reads the catalog of an earlier process. `seed` starts
    /// random numbers and the process part of ObjectIds.
    ///
    /// Errors: DataCorruptionDetected, storage errors.
    pub fn open(engine: Arc<dyn Engine>, clock: Arc<dyn Clock>, seed: u64) -> Result<Arc<Database>> {
        Database::open_with(engine, clock, seed, None)
    }

    /// Opens the database with a log of changes, as for a replica set.
    ///
    /// Errors: as [`open`](Self::open).
    pub fn open_with(
        engine: Arc<dyn Engine>,
        clock: Arc<dyn Clock>,
        seed: u64,
        log: Option<LogOptions>,
    ) -> Result<Arc<Database>> {
        #[cfg(debug_assertions)]
        let engine: Arc<dyn Engine> = Arc::new(storage::testing::Checked::sampling(engine));
        let store = Local::new(engine, log).map_err(storage_error)?;
        Database::open_on(Arc::new(store), clock, seed)
    }

    /// Opens a database on a store, which other processes may share.
    ///
    /// Errors: DataCorruptionDetected, storage errors.
    pub fn open_on(store: Arc<dyn Store>, clock: Arc<dyn Clock>, seed: u64) -> Result<Arc<Database>> {
        let is_new = store.engine().latest_time() == 0;
        prepare(store.as_ref())?;
        let lock = store.lock(&mut || true).map_err(storage_error)?;
        let mut lock = lock.ok_or_else(|| err!(InternalError, "commits are held up"))?;
        let read_view = lock.read_view();
        let read = catalog::read::read(store.as_ref(), read_view.snapshot.as_ref(), &Catalog::default())?;
        let mut generation = read_view.generation;
        for collection in read.catalog.all() {
            lock.set_generation(collection.data.as_ref().map(|data| data.ident), collection.generation);
            generation = generation.max(collection.generation);
        }
        debug_assert_eq!(lock.read_view().generation, generation, "the store knows another catalog");
        lock.reserve(read.next_ident);
        drop(read_view);
        let abandoned = read.abandoned;
        let published = (generation, Arc::new(read.catalog));
        drop_trees(lock, &abandoned)?;
        let database = Arc::new(Database::new(store, clock, seed, published));
        database.open_log(is_new)?;
        let synced = Arc::downgrade(&database);
        database.engine().when_durable(Arc::new(move || {
            if let Some(database) = synced.upgrade() {
                database.watchers.synced(database.engine().durable());
            }
        }));
        let (watched, grown) = (Arc::downgrade(&database), Arc::downgrade(&database));
        database.store.follow_log(
            Arc::new(move || watched.upgrade().is_some_and(|database| database.watchers.any())),
            Arc::new(move || {
                if let Some(database) = grown.upgrade() {
                    database.watchers.notify_all_watchers();
                }
            }),
        );
        Ok(database)
    }
}

/// Creates the trees of the catalog and of the retry records if they do not exist.
fn prepare(store: &dyn Store) -> Result<()> {
    let engine = store.engine().as_ref();
    retry_record::make_tree(engine, CATALOG)?;
    match engine.has_journal() {
        true => retry_record::make_tree(engine, RETRIES),
        false => Ok(()),
    }
}

/// Drops the trees of index builds that a crash has ended. Catalog entries name them until their
/// next write. This is harmless, because missing trees are ignored.
fn drop_trees(lock: Box<dyn Exclusive + '_>, idents: &[Ident]) -> Result<()> {
    let snapshot = lock.read_view().snapshot;
    let mut change = Change::default();
    for ident in idents {
        if snapshot.contains(*ident).map_err(storage_error)? {
            change.batch.drop_ident(*ident);
        }
    }
    drop(snapshot);
    match change.batch.is_empty() {
        true => Ok(()),
        false => lock.commit(change, false, &mut |_| {}).map(drop).map_err(storage_error),
    }
}
