//! The database: a store, and the catalog that belongs to its latest state.

use crate::catalog::Catalog;
use crate::clock::Clock;
use crate::collection::Collection;
use crate::cursor::{Cursor, Cursors};
use crate::exec::{Ahead, RecordStream};
use crate::history::{History, SnapshotWindow, View};
use crate::index::KnownSpecs;
use crate::memory::Shared;
use crate::open_transaction::Transactions;
use crate::operation::{BlockingHook, Operation};
use crate::plan::{self, Read};
use crate::retry_record::{SeenRetries, StoredRetry};
use crate::strict::{Strict, StrictReport};
use crate::turns::Turns;
use crate::watch::{Interest, Wake, Watch, Watchers};
use crate::{catalog_read, storage_error};
use base::bson::ObjectId;
use base::random::Random;
use base::{Error, ErrorCode, Namespace, Result, err};
use parking_lot::{Mutex, RwLock};
use query::{Context, SpillFolder, Stamps};
use std::path::{Path, PathBuf};
use std::sync::atomic::{
    AtomicI64, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use storage::store::{Elsewhere, Sight, Store};
use storage::{Durability, Engine, Position, mutant};

/// What an index build may hold in memory unless somebody says less: MongoDB's
/// maxIndexBuildMemoryUsageMegabytes.
const BUILD_MEMORY: usize = 200 * 1024 * 1024;

/// The name under which the log is read.
const OPLOG: &str = "local.oplog.rs";

/// The collection that shows the sessions' latest committed transactions and retryable writes.
const TRANSACTIONS: &str = "config.transactions";

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
    /// What all operations share: whether they are to end, and whether there is memory for more data.
    pub(crate) operations: Arc<Shared>,
    pub(crate) turns: Turns,
    pub(crate) transactions: Transactions,
    /// What an index build may hold in memory, in bytes.
    build_memory: AtomicUsize,
    /// Where temporary files are.
    spills: OnceLock<SpillFolder>,
    /// The directory of that.
    files: OnceLock<PathBuf>,
    /// What statistics call the server that has this database: its host and port.
    host: OnceLock<String>,
    /// The system's folder for temporary files, which serves where there is no other.
    system_spills: SpillFolder,
    pub(crate) watchers: Arc<Watchers>,
    pub(crate) history: History,
    pub(crate) window: SnapshotWindow,
    /// How long pre-images are kept, in seconds; zero is as long as their entries.
    pub(crate) images_seconds: AtomicI64,
    pub(crate) strict: Strict,
    pub(crate) known_specs: KnownSpecs,
    /// Whether changes are logged.
    pub(crate) logs: bool,
    /// The number of the election that entries of the log are written under.
    pub(crate) term: AtomicU32,
    /// Whether retryable writes are recorded: the engine outlives the process.
    pub(crate) keeps_retries: bool,
    /// The records found at opening, until somebody takes them.
    pub(crate) found_retries: Mutex<Vec<StoredRetry>>,
    pub(crate) seen_retries: SeenRetries,
    /// How often users or roles have been written to.
    pub(crate) access_generation: AtomicU64,
    /// Open cursors.
    pub cursors: Cursors,
    /// What empty timestamps are filled in with.
    pub stamps: Arc<Stamps>,
    /// Counts what the writes did, for serverStatus.
    pub counters: Counters,
    process: [u8; 5],
    object_ids: AtomicU32,
}

/// Where users and roles are kept.
const ACCESS: [&str; 2] = ["admin.system.users", "admin.system.roles"];

/// The latest catalog, and the one before for whoever got his sight just before the change.
struct Published {
    current: (u64, Arc<Catalog>),
    previous: (u64, Arc<Catalog>),
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

impl Database {
    /// A database on a store, with the catalog of a generation and the records of retryable writes found there.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        seed: u64,
        published: (u64, Arc<Catalog>),
        found_retries: Vec<StoredRetry>,
    ) -> Database {
        let [_, process @ .., _, _] = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
        Database {
            logs: store.log_bytes().is_some(),
            term: AtomicU32::new(1),
            keeps_retries: store.engine().has_journal(),
            operations: Arc::new(Shared::of_engine(store.engine().clone())),
            store,
            clock,
            published: RwLock::new(Published { previous: published.clone(), current: published }),
            random: Random::new(seed),
            blocking: OnceLock::new(),
            turns: Turns::default(),
            transactions: Transactions::default(),
            build_memory: AtomicUsize::new(BUILD_MEMORY),
            spills: OnceLock::new(),
            files: OnceLock::new(),
            host: OnceLock::new(),
            system_spills: SpillFolder::default(),
            watchers: Arc::default(),
            history: History::default(),
            window: SnapshotWindow::default(),
            images_seconds: AtomicI64::new(0),
            strict: Strict::default(),
            known_specs: KnownSpecs::default(),
            found_retries: Mutex::new(found_retries),
            seen_retries: SeenRetries::default(),
            access_generation: AtomicU64::new(1),
            cursors: Cursors::new(seed),
            stamps: Arc::default(),
            counters: Counters::default(),
            process,
            object_ids: AtomicU32::new(seed as u32),
        }
    }

    /// The catalog and data as of now, for as long as the view is held.
    ///
    /// Where others share the store and have changed the catalog, the view's first read fails with StaleConfig,
    /// and whoever reads begins again: see [`by_latest_catalog`](Self::by_latest_catalog).
    pub fn view(&self) -> View {
        loop {
            let replaced_at = self.replaced();
            let sight = self.store.sight();
            let catalog = match self.catalog_at(&sight) {
                Err(error) if is_stale(&error) => continue,
                Err(error) => {
                    // Whoever writes next meets the same error and can tell it.
                    log::error!("the catalog can't be read: {error}");
                    self.latest_catalog()
                }
                Ok(catalog) => catalog,
            };
            return View { snapshot: sight.snapshot, catalog, replaced_at };
        }
    }

    /// The same with a catalog that is surely the view's: one question more to a store that is far away.
    pub(crate) fn confirmed_view(&self) -> View {
        loop {
            let view = self.view();
            // What else is wrong the next read tells.
            if view.snapshot.confirm() != Err(storage::Error::CatalogChanged) {
                return view;
            }
        }
    }

    /// Runs a statement, and again for as long as the catalog that it was planned by is found to be an old one:
    /// nothing of it has been carried out then. Who works out anything by the catalog before, as a collation by
    /// the collection's, does so each time.
    ///
    /// Errors: the statement's, but for StaleConfig.
    pub fn by_latest_catalog<T>(&self, mut statement: impl FnMut() -> Result<T>) -> Result<T> {
        loop {
            match statement() {
                Err(error) if is_stale(&error) => {}
                outcome => return outcome,
            }
        }
    }

    /// What came of something that was found out on a view: its catalog may be an old one that says that there
    /// is nothing to read, or has an error that is none any more.
    ///
    /// Errors: StaleConfig where it is, upon which the caller begins again with another view.
    pub(crate) fn confirmed<T>(&self, view: &View, outcome: Result<T>) -> Result<T> {
        view.snapshot.confirm().map_err(storage_error)?;
        outcome
    }

    /// The catalog that belongs to a sight, read from the store where somebody else has changed it.
    ///
    /// Errors: DataCorruptionDetected, and the engine's.
    pub(crate) fn catalog_at(&self, sight: &Sight) -> Result<Arc<Catalog>> {
        if let Some(catalog) = self.catalog_of(sight.generation) {
            return Ok(catalog);
        }
        let known = self.latest_catalog();
        let read = catalog_read::read(self.store.as_ref(), sight.snapshot.as_ref(), &known)?;
        let catalog = Arc::new(read.catalog);
        self.publish(sight.generation, catalog.clone());
        self.cursors.let_go_of_dropped(&self.latest_catalog());
        Ok(catalog)
    }

    /// Keeps a cursor for later batches and gives it an id.
    pub fn keep_cursor(&self, cursor: Cursor) -> i64 {
        let is_of_collection = cursor.uuid.is_some();
        let id = self.cursors.add(cursor);
        if is_of_collection {
            // Its collection may have been dropped while it was read for the first time.
            self.cursors.let_go_if_dropped(id, &self.known_catalog());
        }
        id
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
        Operation::of_database(id, self.blocking_hook(), self.operations.clone())
    }

    /// Says how threads wait; once, by whoever owns them.
    pub fn wait_through(&self, hook: BlockingHook) {
        let _ = self.blocking.set(hook);
    }

    /// How threads wait.
    pub(crate) fn blocking_hook(&self) -> BlockingHook {
        self.blocking.get().copied().unwrap_or(|work| work())
    }

    /// Ends every operation at its next check, those that are yet to begin included.
    pub fn stop_operations(&self) {
        self.operations.stopping.store(true, Relaxed);
    }

    /// Refuses what makes the data grow, or takes it again: a process that has no memory left for it says so.
    pub fn refuse_growth(&self, refused: bool) {
        self.operations.full.store(refused, Relaxed);
    }

    /// Sets how much memory operations, open cursors and waiting messages may take together, in bytes.
    pub fn set_memory_room(&self, bytes: u64) {
        self.operations.ledger.set_room(bytes);
    }

    /// How much memory they take, in bytes, as far as it has been entered.
    pub fn memory_held(&self) -> u64 {
        self.operations.ledger.held()
    }

    /// Enters that messages which are being sent or received take so many bytes more, or less.
    pub fn count_messages(&self, bytes: i64) {
        self.operations.ledger.add(bytes);
    }

    /// How many keys and documents have been examined since the start, and how many sorts no index has done.
    pub fn examined(&self) -> (u64, u64, u64) {
        let Shared { keys_examined, docs_examined, sorts, .. } = &*self.operations;
        (keys_examined.load(Relaxed), docs_examined.load(Relaxed), sorts.load(Relaxed))
    }

    /// Whether what makes the data grow is refused.
    pub fn refuses_growth(&self) -> bool {
        self.operations.full.load(Relaxed)
    }

    /// Makes this the directory of temporary files, instead of the system's; said once, before they are needed.
    /// It is made if it isn't there, and what a killed process has left in it is removed.
    ///
    /// Errors: the directory can't be made or read.
    pub fn spill_into(&self, directory: &Path) -> std::io::Result<()> {
        let _ = self.spills.set(SpillFolder::open(directory)?);
        let _ = self.files.set(directory.to_path_buf());
        Ok(())
    }

    /// A directory of the file system that this database has its files on, be they temporary ones.
    pub fn directory(&self) -> PathBuf {
        self.files.get().cloned().unwrap_or_else(std::env::temp_dir)
    }

    /// Says what statistics call the server, its host and port; once, by whoever serves.
    pub fn set_host(&self, host: String) {
        let _ = self.host.set(host);
    }

    /// What statistics call the server.
    pub(crate) fn host(&self) -> &str {
        self.host.get().map_or("", |host| host)
    }

    /// Where temporary files are, for the contexts of statements.
    pub fn spill_folder(&self) -> SpillFolder {
        self.spills.get().unwrap_or(&self.system_spills).clone()
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

    /// The same, where that makes it less.
    pub fn bound_build_memory(&self, bytes: u64) {
        self.set_build_memory(bytes.min(self.build_memory() as u64));
    }

    /// What an operation reads: what its transaction does, the view it was given, or all there is now.
    pub(crate) fn view_for(&self, operation: &Operation) -> View {
        match (operation.transaction(), operation.snapshot()) {
            (Some(transaction), _) if mutant!("each statement reads anew") && !transaction.has_written() => {
                self.view()
            }
            (Some(transaction), _) => transaction.view(),
            (None, Some((_, view))) => view.clone(),
            (None, None) => operation.elsewhere().cloned().unwrap_or_else(|| self.view()),
        }
    }

    /// Makes an operation read on a member that doesn't take the writes; whether there is one that is as was asked.
    ///
    /// Errors: the store's, and those of reading the catalog there.
    pub fn read_elsewhere(&self, operation: &Operation, asked: Elsewhere) -> Result<bool> {
        let Some(sight) = self.store.sight_elsewhere(asked).map_err(storage_error)? else { return Ok(false) };
        let catalog = self.catalog_at(&sight)?;
        operation.read_elsewhere(View { snapshot: sight.snapshot, catalog, replaced_at: self.replaced() });
        Ok(true)
    }

    /// The catalog as far as it is known here, without asking a store that is far away: for what is checked
    /// later.
    pub(crate) fn known_catalog(&self) -> Arc<Catalog> {
        match self.store.known_generation() {
            None => self.catalog(),
            Some(generation) => self.catalog_of(generation).unwrap_or_else(|| self.view().catalog),
        }
    }

    /// The catalog alone.
    pub fn catalog(&self) -> Arc<Catalog> {
        let generation = self.store.generation();
        self.catalog_of(generation).unwrap_or_else(|| self.confirmed_view().catalog)
    }

    /// The collection or view of this name.
    pub fn collection(&self, namespace: &Namespace) -> Option<Arc<Collection>> {
        self.catalog().get(namespace).cloned()
    }

    /// Brings a collection's counts up to date where others who share the store may have changed them.
    ///
    /// Errors: the store's.
    pub(crate) fn refresh_counts(&self, collection: &Collection) -> Result<()> {
        match &collection.data {
            Some(data) => self.store.refresh_counts(data.ident, &data.counts).map_err(storage_error),
            None => Ok(()),
        }
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

    /// The view of a snapshot read and its cluster time: now, or as of the earlier time `at`.
    ///
    /// Errors: InvalidOptions for a time that hasn't come, SnapshotTooOld for one that no view is
    /// kept of.
    pub fn snapshot_at(&self, at: Option<u64>) -> Result<(u64, View)> {
        let now = self.view_with_time()?;
        match at {
            None => {
                self.history.keep(now.0, &now.1);
                Ok(now)
            }
            Some(at) if at > now.0 => {
                Err(err!(InvalidOptions, "readConcern atClusterTime must not be greater than clusterTime"))
            }
            Some(at) if at == now.0 => Ok(now),
            Some(at) => Ok((at, self.history.at(at)?)),
        }
    }

    /// The latest view, and the time of the commit that it begins with: whoever names that later wants this view.
    ///
    /// Errors: those of reading the catalog.
    pub(crate) fn view_with_time(&self) -> Result<(u64, View)> {
        loop {
            let replaced_at = self.replaced();
            let (sight, time) = self.store.sight_with_time(self.earliest_cluster_time());
            match self.catalog_at(&sight) {
                Err(error) if is_stale(&error) => {}
                catalog => {
                    sight.snapshot.keep_state();
                    return Ok((time, View { snapshot: sight.snapshot, catalog: catalog?, replaced_at }));
                }
            }
        }
    }

    /// Lets go of views that snapshot reads may no longer name.
    pub fn forget_old_views(&self) {
        self.history.forget_old();
    }

    /// Plans a read and starts it on a view.
    ///
    /// Errors: BadValue for a hint that names no index; 51173 to 51176 for `min` and `max` that
    /// don't go with the hint; those of evaluating the filter; StaleConfig where the view's catalog isn't the
    /// latest, so that the plan may be none.
    pub fn read(
        &self,
        operation: &Arc<Operation>,
        view: &View,
        collection: &Arc<Collection>,
        read: Read,
        context: &Arc<Context>,
    ) -> Result<Box<dyn RecordStream>> {
        if let Some(found) = plan::by_id(operation, view, collection, &read, context)? {
            return Ok(found);
        }
        let plan = plan::plan(operation, view, collection, read, context)?;
        plan.note_uses();
        plan.keep(collection, self.now_millis());
        operation.note_plan(plan.uses().into_iter());
        if self.strict.is_on() {
            self.strict.note(collection, &plan);
        }
        if collection.is_large() && plan.reads_all() {
            operation.expect_long();
        }
        let stream = plan.open(&plan.tree)?;
        match self.store.known_generation() {
            None => Ok(stream),
            // The first record tells whether the plan is good.
            Some(_) => operation.run(|| Ahead::begin(stream)),
        }
    }

    /// Calls `wake` after every commit that touches what is watched, and once more when that would survive a
    /// crash, until the watch is dropped.
    pub fn watch(&self, interest: Interest, wake: Wake) -> Watch {
        self.watchers.watch(interest, wake)
    }

    /// Raised by every commit that touches the collections of users and roles, before it is acknowledged: whoever has
    /// read them remembers what this was, and reads again once it is something else.
    pub fn access_generation(&self) -> u64 {
        self.access_generation.load(Acquire)
    }

    /// Tells those who watch these namespaces of a commit.
    ///
    /// Now and then everybody is told: a stream reads on in the log then, though there is nothing for it to show,
    /// so that the log isn't trimmed beyond where it has come.
    pub(crate) fn tell(&self, namespaces: &[Namespace], position: Position) {
        if namespaces.iter().any(|namespace| ACCESS.contains(&namespace.as_str())) {
            self.access_generation.fetch_add(1, AcqRel);
        }
        if self.watchers.any() {
            if self.watchers.is_behind(self.store.log_steps()) {
                self.watchers.notify_everybody();
            }
            let engine = self.engine();
            let waits = self.logs && engine.has_journal() && engine.durability() != Durability::None;
            self.watchers.notify(namespaces, waits.then_some(position));
        }
    }

    /// Starts collecting for [`strict_report`](Self::strict_report).
    pub fn be_strict(&self) {
        self.strict.switch_on();
    }

    /// What was seen since the start or the last [`forget_reads`](Self::forget_reads), and the indexes
    /// there are now that are unused or duplicates.
    pub fn strict_report(&self) -> StrictReport {
        self.strict.report(&self.catalog())
    }

    /// Forgets the reads noted so far; indexes once used stay so.
    pub fn forget_reads(&self) {
        self.strict.forget();
    }

    /// The earliest time that a commit of now may have: seconds in the high half.
    pub(crate) fn earliest_cluster_time(&self) -> u64 {
        (self.now_millis() as u64 / 1000) << 32 | 1
    }

    /// Whether a namespace is that of the log, and there is one.
    pub fn is_oplog(&self, namespace: &Namespace) -> bool {
        self.logs && namespace.as_str() == OPLOG
    }

    /// Whether a namespace is that of the sessions' records, and records are kept.
    pub fn is_transactions(&self, namespace: &Namespace) -> bool {
        self.keeps_retries && namespace.as_str() == TRANSACTIONS
    }

    /// Whether a namespace is read from what the store keeps for itself, and not from a collection.
    pub(crate) fn is_virtual(&self, namespace: &Namespace) -> bool {
        self.is_oplog(namespace) || self.is_transactions(namespace)
    }

    /// Whether changes are logged.
    pub(crate) fn logs(&self) -> bool {
        self.logs
    }

    /// Bytes that commits have replaced since the start, about.
    pub(crate) fn replaced(&self) -> u64 {
        self.operations.replaced.load(Relaxed)
    }

    /// Bounds how much of what commits replace is kept for old snapshots, in bytes.
    pub fn set_history_bytes(&self, bytes: u64) {
        self.window.bytes_max.store(bytes, Relaxed);
        self.bound_history();
    }

    /// Sets how long a view is kept for snapshot reads that name its time.
    pub fn set_history_age(&self, age: Duration) {
        self.history.set_age_max(age);
        self.history.forget_old();
    }

    /// Notes what a commit has replaced.
    pub(crate) fn note_replaced(&self, bytes: u64) {
        // A store that is far away keeps old versions there.
        if bytes == 0 || self.store.known_generation().is_some() {
            return;
        }
        let now = self.operations.replaced.fetch_add(bytes, Relaxed) + bytes;
        if now >= self.window.look_at.load(Relaxed) {
            self.bound_history();
        }
    }

    fn bound_history(&self) {
        let Some(_looking) = self.window.looking.try_lock() else { return };
        let (now, bytes_max) = (self.replaced(), self.window.bytes_max.load(Relaxed));
        let least = now.saturating_sub(bytes_max);
        let oldest = self.history.let_go_before(least).min(self.cursors.let_go_before(least));
        let oldest = oldest.min(self.transactions.end_before(least)).min(now);
        self.window.look_at.store(oldest.saturating_add(bytes_max).saturating_add(1), Relaxed);
    }
}

/// Whether something failed because it was planned by an old catalog.
pub(crate) fn is_stale(error: &Error) -> bool {
    error.code() == ErrorCode::StaleConfig
}
