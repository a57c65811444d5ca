//! The database: a store, and the catalog that belongs to its latest state.

use crate::catalog::Catalog;
use crate::clean_slate::SavedStates;
use crate::clock::Clock;
use crate::collection::{Collection, Data, from_entry};
use crate::cursor::Cursors;
use crate::history::History;
use crate::keys::{CATALOG, RecordId, SAVED};
use crate::operation::{BlockingHook, Operation};
use crate::storage_error;
use crate::strict::Strict;
use crate::transaction::Transactions;
use crate::turns::Turns;
use crate::watch::Watchers;
use crate::write::{StoredRetry, retryable};
use base::bson::{Document, ObjectId};
use base::random::Random;
use base::{Namespace, Result};
use parking_lot::{Mutex, RwLock};
use query::Context;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use storage::store::Local;
use storage::{Direction, Engine, Ident, Range, Snapshot};

/// What an index build may hold in memory unless somebody says less: MongoDB's
/// maxIndexBuildMemoryUsageMegabytes.
const BUILD_MEMORY: usize = 200 * 1024 * 1024;

/// Everything a server needs to store and find documents. Shared by all connections.
pub struct Database {
    /// Where everything lies.
    pub(crate) store: Local,
    pub(crate) clock: Arc<dyn Clock>,
    /// Read together with the store's sight: see [`view`](Self::view).
    published: RwLock<Published>,
    /// The number of the next tree.
    next_ident: AtomicU64,
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
    generation: u64,
    current: Arc<Catalog>,
    previous: Arc<Catalog>,
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
        #[cfg(debug_assertions)]
        let engine: Arc<dyn Engine> = Arc::new(storage::contract::Checked::sampling(engine));
        let snapshot = engine.snapshot();
        if !snapshot.contains(CATALOG).map_err(storage_error)? {
            let mut batch = storage::Batch::new();
            batch.create(CATALOG);
            engine.commit(batch).map_err(storage_error)?;
        }
        drop(snapshot);
        let context = Context::new(0, seed, Arc::new(query::context::Uninterrupted));
        let (catalog, next_ident) = read_catalog(&engine, &context)?;
        let keeps_retries = engine.has_journal();
        let found_retries = if keeps_retries { retryable::open(engine.as_ref())? } else { Vec::new() };
        let store = Local::new(engine, None).map_err(storage_error)?;
        if let Some(mut lock) = store.lock(&mut || true).map_err(storage_error)? {
            for collection in catalog.all() {
                collection.data.iter().for_each(|data| lock.declare(data.ident, collection.generation));
            }
        }
        let catalog = Arc::new(catalog);
        let [_, process @ .., _, _] = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
        Ok(Arc::new(Database {
            store,
            clock,
            published: RwLock::new(Published { generation: 0, current: catalog.clone(), previous: catalog }),
            next_ident: AtomicU64::new(next_ident),
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
        }))
    }

    /// The catalog and data as of now, for as long as the view is held.
    pub fn view(&self) -> View {
        loop {
            let sight = self.store.sight();
            // The catalog is replaced while nobody can have a sight. Whoever got his before may find the
            // catalog of the next generation, and is given the one before it.
            if let Some(catalog) = self.catalog_of(sight.generation) {
                return View { snapshot: sight.snapshot, catalog };
            }
        }
    }

    /// The catalog of a generation, if it is the latest or the one before.
    pub(crate) fn catalog_of(&self, generation: u64) -> Option<Arc<Catalog>> {
        let published = self.published.read();
        match published.generation.checked_sub(generation) {
            Some(0) => Some(published.current.clone()),
            Some(1) => Some(published.previous.clone()),
            _ => None,
        }
    }

    /// Puts the catalog of a new generation in the place of the last.
    pub(crate) fn publish(&self, generation: u64, catalog: Arc<Catalog>) {
        let mut published = self.published.write();
        published.previous = std::mem::replace(&mut published.current, catalog);
        published.generation = generation;
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

    /// Bounds what an index build may hold in memory.
    pub fn set_build_memory(&self, bytes: usize) {
        self.build_memory.store(bytes, Relaxed);
    }

    /// A number for a new tree.
    pub(crate) fn new_ident(&self) -> Ident {
        Ident(self.next_ident.fetch_add(1, Relaxed))
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
        self.published.read().current.clone()
    }

    /// The collection or view of this name.
    pub fn collection(&self, namespace: &Namespace) -> Option<Arc<Collection>> {
        self.published.read().current.get(namespace).cloned()
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

/// Reads every collection from the engine, with its counts, and the first free ident.
fn read_catalog(engine: &Arc<dyn Engine>, context: &Context) -> Result<(Catalog, u64)> {
    let snapshot = engine.snapshot();
    let mut catalog = Catalog::default();
    let mut next_ident = CATALOG.0 + 1;
    let mut entries = snapshot.scan(CATALOG, Range::all(), Direction::Forward).map_err(storage_error)?;
    let mut saved = SavedStates::default();
    let mut unfinished = Vec::new();
    while let Some((key, entry)) = entries.next().map_err(storage_error)? {
        let entry = Document::from_valid(entry);
        if key.starts_with(SAVED) && saved.opens(entry)? {
            continue;
        }
        let collection = from_entry(entry, context)?;
        unfinished.extend(crate::collection::unfinished(entry));
        if let Some(data) = &collection.data {
            next_ident = data.idents().map(|ident| ident.0 + 1).fold(next_ident, u64::max);
            read_counts(snapshot.as_ref(), data)?;
        }
        match key.starts_with(SAVED) {
            true => saved.add(collection)?,
            false => catalog.put(Arc::new(collection))?,
        }
    }
    drop(entries);
    drop_unfinished(engine, snapshot.as_ref(), &unfinished)?;
    next_ident = unfinished.iter().map(|ident| ident.0 + 1).fold(next_ident, u64::max);
    saved.finish().into_iter().for_each(|state| catalog.put_saved(Arc::new(state)));
    Ok((catalog, next_ident))
}

fn read_counts(snapshot: &dyn Snapshot, data: &Data) -> Result<()> {
    let records = snapshot.entries(data.ident).map_err(storage_error)?;
    let bytes = snapshot.bytes(data.ident).map_err(storage_error)?;
    data.counts.records.store(records as i64, Relaxed);
    // The engine counts the eight bytes of each record's key as well.
    data.counts.bytes.store(bytes.saturating_sub(8 * records) as i64, Relaxed);
    let mut last = snapshot.scan(data.ident, Range::all(), Direction::Backward).map_err(storage_error)?;
    let last = last.next().map_err(storage_error)?.map(|(key, _)| RecordId::from_key(key));
    data.counts.next_record.store(last.transpose()?.map_or(1, |id| id.0 + 1), Relaxed);
    Ok(())
}

/// Drops the trees of index builds that a crash has ended. Entries go on naming them until they are next
/// written, which does no harm: trees that aren't there are left out.
fn drop_unfinished(engine: &Arc<dyn Engine>, snapshot: &dyn Snapshot, idents: &[Ident]) -> Result<()> {
    let mut batch = storage::Batch::new();
    for ident in idents {
        if snapshot.contains(*ident).map_err(storage_error)? {
            batch.drop_ident(*ident);
        }
    }
    match batch.is_empty() {
        true => Ok(()),
        false => engine.commit(batch).map(drop).map_err(storage_error),
    }
}
