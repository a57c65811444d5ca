//! The database: a store, and the catalog that belongs to its latest state.

use crate::catalog::Catalog;
use crate::catalog_read;
use crate::clock::Clock;
use crate::collection::Collection;
use crate::cursor::Cursors;
use crate::history::History;
use crate::keys::CATALOG;
use crate::operation::{BlockingHook, Operation};
use crate::storage_error;
use crate::strict::Strict;
use crate::transaction::Transactions;
use crate::turns::Turns;
use crate::watch::Watchers;
use crate::write::{StoredRetry, retryable};
use base::bson::ObjectId;
use base::random::Random;
use base::{Namespace, Result, err};
use parking_lot::{Mutex, RwLock};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use storage::store::{Change, Exclusive, Local, LogOptions, Store};
use storage::{Batch, Engine, Ident, Snapshot};

/// What an index build may hold in memory unless somebody says less: MongoDB's
/// maxIndexBuildMemoryUsageMegabytes.
const BUILD_MEMORY: usize = 200 * 1024 * 1024;

/// Everything a server needs to store and find documents. Shared by all connections.
pub struct Database {
    /// Where everything lies.
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Read together with the store's sight: see [`view`](Self::view).
    published: RwLock<Published>,
    /// What collections' UUIDs are made of.
    pub(crate) random: Random,
    /// How threads wait.
    pub(crate) blocking: OnceLock<BlockingHook>,
    /// Set once all operations are to end.
    stopping: Arc<AtomicBool>,
    pub(crate) turns: Turns,
    pub(crate) transactions: Transactions,
    /// What an index build may hold in memory, in bytes.
    build_memory: AtomicUsize,
    pub(crate) watchers: Watchers,
    pub(crate) history: History,
    pub(crate) strict: Strict,
    /// Whether changes are logged.
    pub(crate) logs: bool,
    /// Whether retryable writes are recorded: the engine outlives the process.
    pub(crate) keeps_retries: bool,
    /// The records found at opening, until somebody takes them.
    pub(crate) found_retries: Mutex<Vec<StoredRetry>>,
    /// Open cursors.
    pub cursors: Cursors,
    /// Counts what the writes did, for serverStatus.
    pub counters: Counters,
    process: [u8; 5],
    object_ids: AtomicU32,
}

/// The latest catalog, and the one before for whoever got his sight just before the change.
struct Published {
    current: (u64, Arc<Catalog>),
    previous: (u64, Arc<Catalog>),
}

impl Published {
    fn new(generation: u64, catalog: Arc<Catalog>) -> Published {
        Published { current: (generation, catalog.clone()), previous: (generation, catalog) }
    }
}

/// What happened since the start, for serverStatus' `metrics`.
#[derive(Default)]
#[allow(missing_docs)]
pub struct Counters {
    pub documents_inserted: AtomicU64,
    pub documents_updated: AtomicU64,
    pub documents_deleted: AtomicU64,
    pub documents_returned: AtomicU64,
    pub ttl_passes: AtomicU64,
    pub ttl_deleted: AtomicU64,
}

/// A consistent sight of everything: the catalog and the data that belongs to it.
#[derive(Clone)]
pub struct View {
    /// Which collections there are.
    pub catalog: Arc<Catalog>,
    /// What is in them.
    pub snapshot: Arc<dyn Snapshot>,
}

impl Database {
    /// Opens the database in an engine, reading the catalog that an earlier process left there.
    /// `seed` starts random numbers and the process part of object ids.
    ///
    /// Errors: DataCorruptionDetected, and the engine's own.
    pub fn open(engine: Arc<dyn Engine>, clock: Arc<dyn Clock>, seed: u64) -> Result<Arc<Database>> {
        Database::open_with(engine, clock, seed, None)
    }

    /// The same with a log of changes, as a replica set keeps one.
    ///
    /// Errors: as [`open`](Self::open).
    pub fn open_with(
        engine: Arc<dyn Engine>,
        clock: Arc<dyn Clock>,
        seed: u64,
        log: Option<LogOptions>,
    ) -> Result<Arc<Database>> {
        #[cfg(debug_assertions)]
        let engine: Arc<dyn Engine> = Arc::new(storage::contract::Checked::sampling(engine));
        let store = Local::new(engine, log).map_err(storage_error)?;
        Database::open_on(Arc::new(store), clock, seed)
    }

    /// Opens a database on a store, which other databases may share.
    ///
    /// Errors: DataCorruptionDetected, and the store's own.
    pub fn open_on(store: Arc<dyn Store>, clock: Arc<dyn Clock>, seed: u64) -> Result<Arc<Database>> {
        prepare(store.as_ref())?;
        let keeps_retries = store.engine().has_journal();
        let found_retries =
            if keeps_retries { retryable::open(store.engine().as_ref())? } else { Vec::new() };
        let lock = store.lock(&mut || true).map_err(storage_error)?;
        let mut lock = lock.ok_or_else(|| err!(InternalError, "commits are held up"))?;
        let sight = lock.sight();
        let read = catalog_read::read(store.as_ref(), sight.snapshot.as_ref(), &Catalog::default())?;
        let mut generation = sight.generation;
        for collection in read.catalog.all() {
            collection.data.iter().for_each(|data| lock.declare(data.ident, collection.generation));
            generation = generation.max(collection.generation);
        }
        lock.reserve(read.next_ident);
        drop(sight);
        let abandoned = read.abandoned;
        let published = Published::new(generation, Arc::new(read.catalog));
        drop_trees(lock, &abandoned)?;
        let [_, process @ .., _, _] = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
        let logs = store.log_bytes().is_some();
        let database = Arc::new(Database {
            store,
            logs,
            clock,
            published: RwLock::new(published),
            random: Random::new(seed),
            blocking: OnceLock::new(),
            stopping: Arc::default(),
            turns: Turns::default(),
            transactions: Transactions::default(),
            build_memory: AtomicUsize::new(BUILD_MEMORY),
            watchers: Watchers::default(),
            history: History::default(),
            strict: Strict::default(),
            keeps_retries,
            found_retries: Mutex::new(found_retries),
            cursors: Cursors::new(seed),
            counters: Counters::default(),
            process,
            object_ids: AtomicU32::new(seed as u32),
        });
        database.begin_log()?;
        let synced = Arc::downgrade(&database);
        database.engine().when_durable(Arc::new(move || {
            if let Some(database) = synced.upgrade()
                && database.watchers.any()
            {
                database.watchers.notify_everything();
            }
        }));
        Ok(database)
    }

    /// The catalog and data as of now, for as long as the view is held.
    pub fn view(&self) -> View {
        let sight = self.store.sight();
        let catalog = self.catalog_at(&sight).unwrap_or_else(|error| {
            // Whoever writes next meets the same error and can tell it.
            log::error!("the catalog can't be read: {error}");
            self.latest_catalog()
        });
        View { snapshot: sight.snapshot, catalog }
    }

    /// The catalog of a generation, if it is the latest known or the one before. Whoever got his sight just
    /// before a change may find the catalog after it, and is given the one before.
    pub(crate) fn catalog_of(&self, generation: u64) -> Option<Arc<Catalog>> {
        let published = self.published.read();
        let known = [&published.current, &published.previous];
        known.into_iter().find(|known| known.0 == generation).map(|known| known.1.clone())
    }

    /// Puts the catalog of a new generation in the place of the last.
    pub(crate) fn publish(&self, generation: u64, catalog: Arc<Catalog>) {
        let mut published = self.published.write();
        if generation > published.current.0 {
            published.previous = std::mem::replace(&mut published.current, (generation, catalog));
        }
    }

    /// The latest catalog that is known here.
    pub(crate) fn latest_catalog(&self) -> Arc<Catalog> {
        self.published.read().current.1.clone()
    }

    /// An operation on this database: it ends at [`stop_operations`](Self::stop_operations). Waits and long
    /// work go through the hook given to [`wait_through`](Self::wait_through).
    pub fn operation(&self, id: u64) -> Operation {
        Operation::with_blocking(id, self.blocking_hook()).stopping_with(self.stopping.clone())
    }

    /// Ends every operation at its next check, those that are yet to begin included.
    pub fn stop_operations(&self) {
        self.stopping.store(true, Relaxed);
    }

    /// What an index build may hold in memory, in bytes.
    pub(crate) fn build_memory(&self) -> usize {
        self.build_memory.load(Relaxed)
    }

    /// Bounds what an index build may hold in memory, in bytes; never beyond the 200 MB of MongoDB's
    /// maxIndexBuildMemoryUsageMegabytes.
    pub fn set_build_memory(&self, bytes: u64) {
        let bytes = usize::try_from(bytes).unwrap_or(BUILD_MEMORY);
        self.build_memory.store(bytes.min(BUILD_MEMORY), Relaxed);
    }

    /// What an operation reads: what its transaction does, the view it was given, or all there is now.
    pub(crate) fn view_for(&self, operation: &Operation) -> View {
        match (operation.transaction(), operation.snapshot()) {
            (Some(transaction), _) => transaction.view(),
            (None, Some((_, view))) => view.clone(),
            (None, None) => self.view(),
        }
    }

    /// The catalog alone.
    pub fn catalog(&self) -> Arc<Catalog> {
        let generation = self.store.generation();
        self.catalog_of(generation).unwrap_or_else(|| self.view().catalog)
    }

    /// The collection or view of this name.
    pub fn collection(&self, namespace: &Namespace) -> Option<Arc<Collection>> {
        self.catalog().get(namespace).cloned()
    }

    /// The time in milliseconds since 1970, by the injected clock.
    pub fn now_millis(&self) -> i64 {
        self.clock.now_millis()
    }

    /// The injected clock.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// The engine under it all.
    pub fn engine(&self) -> &Arc<dyn Engine> {
        self.store.engine()
    }

    /// A new object id.
    pub fn new_object_id(&self) -> ObjectId {
        let seconds = (self.clock.now_millis() / 1000) as u32;
        ObjectId::from_parts(seconds, self.process, self.object_ids.fetch_add(1, Relaxed))
    }
}

/// Makes the catalog's tree if it isn't there.
fn prepare(store: &dyn Store) -> Result<()> {
    let engine = store.engine();
    if engine.snapshot().contains(CATALOG).map_err(storage_error)? {
        return Ok(());
    }
    let mut batch = Batch::new();
    batch.create(CATALOG);
    engine.commit(batch).map(drop).map_err(storage_error)
}

/// Drops the trees of index builds that a crash has ended. Entries go on naming them until they are next
/// written, which does no harm: trees that aren't there are left out.
fn drop_trees(lock: Box<dyn Exclusive + '_>, idents: &[Ident]) -> Result<()> {
    let snapshot = lock.sight().snapshot;
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
