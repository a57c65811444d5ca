//! The database: one engine, the published catalog, the commit lock.

use crate::catalog::Catalog;
use crate::clean_slate::SavedStates;
use crate::clock::Clock;
use crate::collection::{Collection, Data, from_entry};
use crate::commit::Writer;
use crate::cursor::Cursors;
use crate::history::History;
use crate::keys::{CATALOG, RecordId, SAVED};
use crate::operation::Operation;
use crate::strict::Strict;
use crate::watch::Watchers;
use crate::write::{StoredRetry, retryable};
use crate::write_lock::WriteLock;
use base::bson::{Document, ObjectId};
use base::{Namespace, Result};
use parking_lot::{Mutex, RwLock};
use query::Context;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use storage::{Direction, Engine, Range, Snapshot};

/// Everything a server needs to store and find documents. Shared by all connections.
pub struct Database {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Read together with the engine's snapshot: see [`view`](Self::view).
    pub(crate) published: RwLock<Arc<Catalog>>,
    /// The commit lock and what only its holder changes.
    pub(crate) writer: Mutex<Writer>,
    pub(crate) write_lock: WriteLock,
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
    /// The last cluster time given out: seconds in the high half, a counter in the low.
    pub(crate) cluster_time: AtomicU64,
    /// The engine's position after the latest commit.
    pub(crate) latest_position: AtomicU64,
    process: [u8; 5],
    object_ids: AtomicU32,
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
        if !snapshot.contains(CATALOG).map_err(crate::storage_error)? {
            let mut batch = storage::Batch::new();
            batch.create(CATALOG);
            engine.commit(batch).map_err(crate::storage_error)?;
        }
        let context = Context::new(0, seed, Arc::new(query::context::Uninterrupted));
        let (catalog, next_ident) = read_catalog(&engine, &context)?;
        let keeps_retries = engine.has_journal();
        let found_retries = if keeps_retries { retryable::open(engine.as_ref())? } else { Vec::new() };
        let [_, process @ .., _, _] = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
        Ok(Arc::new(Database {
            engine,
            clock,
            published: RwLock::new(Arc::new(catalog)),
            writer: Mutex::new(Writer::new(next_ident, seed)),
            write_lock: WriteLock::default(),
            watchers: Watchers::default(),
            history: History::default(),
            strict: Strict::default(),
            keeps_retries,
            found_retries: Mutex::new(found_retries),
            cursors: Cursors::new(seed),
            counters: Counters::default(),
            cluster_time: AtomicU64::new(0),
            latest_position: AtomicU64::new(0),
            process,
            object_ids: AtomicU32::new(seed as u32),
        }))
    }

    /// The catalog and data as of now, for as long as the view is held.
    pub fn view(&self) -> View {
        // The catalog is only replaced under the write side of this lock, together with the
        // engine's commit, so what is read here belongs together.
        let catalog = self.published.read();
        View { snapshot: self.engine.snapshot(), catalog: catalog.clone() }
    }

    /// What an operation reads: the view it was given, or all there is now.
    pub(crate) fn view_for(&self, operation: &Operation) -> View {
        operation.snapshot().map_or_else(|| self.view(), |(_, view)| view.clone())
    }

    /// The catalog alone.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.published.read().clone()
    }

    /// The collection or view of this name.
    pub fn collection(&self, namespace: &Namespace) -> Option<Arc<Collection>> {
        self.published.read().get(namespace).cloned()
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
        &self.engine
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
    let mut entries =
        snapshot.scan(CATALOG, Range::all(), Direction::Forward).map_err(crate::storage_error)?;
    let mut saved = SavedStates::default();
    while let Some((key, entry)) = entries.next().map_err(crate::storage_error)? {
        let entry = Document::from_valid(entry);
        if key.starts_with(SAVED) && saved.opens(entry)? {
            continue;
        }
        let collection = from_entry(entry, context)?;
        if let Some(data) = &collection.data {
            next_ident = data.idents().map(|ident| ident.0 + 1).fold(next_ident, u64::max);
            read_counts(snapshot.as_ref(), data)?;
        }
        match key.starts_with(SAVED) {
            true => saved.add(collection)?,
            false => catalog.put(Arc::new(collection))?,
        }
    }
    saved.finish().into_iter().for_each(|state| catalog.put_saved(Arc::new(state)));
    Ok((catalog, next_ident))
}

fn read_counts(snapshot: &dyn Snapshot, data: &Data) -> Result<()> {
    let records = snapshot.entries(data.ident).map_err(crate::storage_error)?;
    let bytes = snapshot.bytes(data.ident).map_err(crate::storage_error)?;
    data.counts.records.store(records as i64, Relaxed);
    // The engine counts the eight bytes of each record's key as well.
    data.counts.bytes.store(bytes.saturating_sub(8 * records) as i64, Relaxed);
    let mut last =
        snapshot.scan(data.ident, Range::all(), Direction::Backward).map_err(crate::storage_error)?;
    let last = last.next().map_err(crate::storage_error)?.map(|(key, _)| RecordId::from_key(key));
    data.counts.next_record.store(last.transpose()?.map_or(1, |id| id.0 + 1), Relaxed);
    Ok(())
}
