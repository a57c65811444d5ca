//! The database: a store, and the catalog of its latest state.
//!
//! This module has the shared state, views, plans of reads, and the limits of memory and history. Commands are in the
//! modules `read`, `write`, `ddl` and others, as further functions of [`Database`]. A new setting of the whole server
//! is a field of [`Database`] with its setter here.

use crate::catalog::collection::Collection;
use crate::catalog::history::{History, SnapshotWindow, View};
use crate::catalog::{self, Catalog};
use crate::changes::open_transaction::Transactions;
use crate::changes::retry_record::SeenRetries;
use crate::clock::Clock;
use crate::cursor::{Cursor, Cursors};
use crate::exec::{PeekedStream, RecordStream};
use crate::index::KnownSpecs;
use crate::memory::Shared;
use crate::operation::{BlockingHook, Operation};
use crate::plan::strict::{Strict, StrictReport};
use crate::plan::{self, Read};
use crate::storage_error;
use crate::watch::{Interest, Watch, Watchers};
use crate::write_queues::WriteQueues;
use base::bson::{ObjectId, Value};
use base::random::Random;
use base::{Error, ErrorCode, Namespace, Result, err};
use parking_lot::{Mutex, RwLock};
use query::{Context, SpillFolder, Timestamps};
use std::path::{Path, PathBuf};
use std::sync::atomic::{
    AtomicI64, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use storage::store::{ReadView, StandbyRead, Store};
use storage::{Durability, Engine, Position, mutant};

/// Default memory of an index build: MongoDB's maxIndexBuildMemoryUsageMegabytes.
const BUILD_MEMORY: usize = 200 * 1024 * 1024;

/// Namespace of the log.
const OPLOG: &str = "local.oplog.rs";

/// Namespace of the sessions' latest committed transactions and retryable writes.
const TRANSACTIONS: &str = "config.transactions";

/// A database with everything that the server needs to store and find documents. Shared by all
/// connections.
pub struct Database {
    /// The store of all data.
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Catalogs, read together with the store's view: see [`view`](Self::view).
    published: RwLock<Published>,
    /// Random numbers for the UUIDs of collections.
    pub(crate) random: Random,
    /// Hook for blocking waits.
    pub(crate) blocking: OnceLock<BlockingHook>,
    /// State shared by all operations: shutdown and memory limits.
    pub(crate) operations: Arc<Shared>,
    pub(crate) write_queues: WriteQueues,
    pub(crate) transactions: Transactions,
    /// Removals of temporary data that would have had to wait.
    removals: Mutex<Vec<Removal>>,
    /// Memory limit of an index build, in bytes.
    build_memory: AtomicUsize,
    /// Directory of temporary files.
    spills: OnceLock<SpillFolder>,
    /// Path of this directory.
    files: OnceLock<PathBuf>,
    /// Host and port of the server, for statistics.
    host: OnceLock<String>,
    /// The system's directory for temporary files, used by default.
    system_spills: SpillFolder,
    pub(crate) watchers: Arc<Watchers>,
    pub(crate) history: History,
    pub(crate) window: SnapshotWindow,
    /// Retention of pre-images in seconds; zero means the retention of their oplog entries.
    pub(crate) pre_image_seconds: AtomicI64,
    pub(crate) strict: Strict,
    pub(crate) known_specs: KnownSpecs,
    /// True if changes are logged.
    pub(crate) logs: bool,
    /// Election term of log entries.
    pub(crate) term: AtomicU32,
    /// True if retryable writes are recorded: the engine outlives the process.
    pub(crate) records_retries: bool,
    pub(crate) seen_retries: SeenRetries,
    /// Number of writes to users and roles.
    pub(crate) access_generation: AtomicU64,
    /// Open cursors.
    pub cursors: Cursors,
    /// Values for empty timestamps.
    pub timestamps: Arc<Timestamps>,
    /// Counts of writes for serverStatus.
    pub counters: Counters,
    process: [u8; 5],
    object_ids: AtomicU32,
}

/// Removes temporary data of an operation that has ended. Fails with LockBusy if it must wait.
pub(crate) type Removal = Box<dyn Fn(&Database) -> Result<()> + Send + Sync>;

/// Collections of users and roles.
const ACCESS: [&str; 2] = ["admin.system.users", "admin.system.roles"];

/// The latest catalog and its predecessor. A reader that took its view just before a change needs
/// the predecessor.
struct Published {
    current: (u64, Arc<Catalog>),
    previous: (u64, Arc<Catalog>),
}

/// Counts since the start, for serverStatus' `metrics`.
#[derive(Default)]
#[allow(missing_docs)]
pub struct Counters {
    pub documents_inserted: AtomicU64,
    pub documents_updated: AtomicU64,
    pub documents_deleted: AtomicU64,
    pub documents_returned: AtomicU64,
    pub ttl_passes: AtomicU64,
    pub ttl_deleted: AtomicU64,
    /// Change streams opened with `showExpandedEvents`.
    pub expanded_streams: AtomicU64,
    /// Events that `$changeStreamSplitLargeEvent` split.
    pub events_split: AtomicU64,
    /// Events that exceeded the size of a document.
    pub events_too_large: AtomicU64,
}

impl Database {
    /// Returns a database on a store, with the catalog of a generation.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        seed: u64,
        published: (u64, Arc<Catalog>),
    ) -> Database {
        let present = clock.clone();
        let [_, process @ .., _, _] = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
        Database {
            logs: store.log_bytes().is_some(),
            term: AtomicU32::new(1),
            records_retries: store.engine().has_journal(),
            operations: Arc::new(Shared::of_engine(store.engine().clone())),
            store,
            clock,
            published: RwLock::new(Published { previous: published.clone(), current: published }),
            random: Random::new(seed),
            blocking: OnceLock::new(),
            write_queues: WriteQueues::default(),
            transactions: Transactions::default(),
            removals: Mutex::default(),
            build_memory: AtomicUsize::new(BUILD_MEMORY),
            spills: OnceLock::new(),
            files: OnceLock::new(),
            host: OnceLock::new(),
            system_spills: SpillFolder::default(),
            watchers: Arc::default(),
            history: History::default(),
            window: SnapshotWindow::default(),
            pre_image_seconds: AtomicI64::new(0),
            strict: Strict::default(),
            known_specs: KnownSpecs::default(),
            seen_retries: SeenRetries::default(),
            access_generation: AtomicU64::new(1),
            cursors: Cursors::new(seed),
            timestamps: Arc::new(Timestamps::with_clock(move || present.now_millis())),
            counters: Counters::default(),
            process,
            object_ids: AtomicU32::new(seed as u32),
        }
    }

    /// Returns a view of the present catalog and data.
    ///
    /// If another process has changed the catalog of a shared store, the view's first read fails
    /// with StaleConfig. The reader must then begin again: see
    /// [`by_latest_catalog`](Self::by_latest_catalog).
    pub fn view(&self) -> View {
        loop {
            let replaced_at = self.replaced();
            let read_view = self.store.read_view();
            let catalog = match self.catalog_at(&read_view) {
                Err(error) if is_stale(&error) => continue,
                Err(error) => {
                    // The next write meets the same error and can return it.
                    log::error!("the catalog can't be read: {error}");
                    self.latest_catalog()
                }
                Ok(catalog) => catalog,
            };
            return View { snapshot: read_view.snapshot, catalog, replaced_at };
        }
    }

    /// Returns a view whose catalog is confirmed to be the view's. Costs one more request to a
    /// remote store.
    pub(crate) fn confirmed_view(&self) -> View {
        loop {
            let view = self.view();
            // The next read returns other errors.
            if view.confirm() != Err(storage::Error::CatalogChanged) {
                return view;
            }
        }
    }

    /// Runs a statement, and runs it again while its plan used an old catalog. Such a statement has
    /// changed nothing. The statement must derive all values from the catalog in each run, such as
    /// a collation.
    ///
    /// Errors: the statement's errors, except StaleConfig.
    pub fn by_latest_catalog<T>(&self, mut statement: impl FnMut() -> Result<T>) -> Result<T> {
        loop {
            match statement() {
                Err(error) if is_stale(&error) => {}
                outcome => return outcome,
            }
        }
    }

    /// Returns an outcome if its view has the latest catalog. With an old catalog, a missing
    /// collection or an error may be wrong.
    ///
    /// Errors: StaleConfig for an old catalog. The caller then begins again with another view.
    pub(crate) fn confirmed<T>(&self, view: &View, outcome: Result<T>) -> Result<T> {
        view.confirm().map_err(storage_error)?;
        outcome
    }

    /// Returns the catalog of a store's view. Reads it from the store if another process has
    /// changed it.
    ///
    /// Errors: DataCorruptionDetected, storage errors.
    pub(crate) fn catalog_at(&self, read_view: &ReadView) -> Result<Arc<Catalog>> {
        if let Some(catalog) = self.catalog_of(read_view.generation) {
            return Ok(catalog);
        }
        let known = self.latest_catalog();
        let read = catalog::read::read(self.store.as_ref(), read_view.snapshot.as_ref(), &known)?;
        let catalog = Arc::new(read.catalog);
        self.publish(read_view.generation, catalog.clone());
        self.cursors.release_dropped(&self.latest_catalog());
        // Another thread may have published its own copies of the collections.
        Ok(self.catalog_of(read_view.generation).unwrap_or(catalog))
    }

    /// Stores a cursor for later batches and returns its id.
    pub fn register_cursor(&self, cursor: Cursor) -> i64 {
        let is_of_collection = cursor.uuid.is_some();
        let id = self.cursors.add(cursor);
        if is_of_collection {
            // Its collection may have been dropped during the first read.
            self.cursors.release_if_dropped(id, &self.known_catalog());
        }
        id
    }

    /// Ends a cursor, even in use or while its getMore waits. Returns true if it existed.
    pub fn kill_cursor(&self, id: i64) -> bool {
        let interest = self.cursors.kill(id);
        if let Some(interest) = &interest {
            self.watchers.wake_interest(interest);
        }
        interest.is_some()
    }

    /// Returns the catalog of a generation, if it is the latest known generation or its
    /// predecessor. A reader that takes its view just before a change, and looks up the catalog
    /// after it, needs the predecessor.
    pub(crate) fn catalog_of(&self, generation: u64) -> Option<Arc<Catalog>> {
        let published = self.published.read();
        let known = [&published.current, &published.previous];
        known.into_iter().find(|known| known.0 == generation).map(|known| known.1.clone())
    }

    /// Replaces the latest catalog by the catalog of a new generation.
    pub(crate) fn publish(&self, generation: u64, catalog: Arc<Catalog>) {
        let mut published = self.published.write();
        if generation > published.current.0 {
            published.previous = std::mem::replace(&mut published.current, (generation, catalog));
        }
        debug_assert!(published.previous.0 <= published.current.0, "the previous catalog is newer");
    }

    /// Returns the latest catalog known to this process.
    pub(crate) fn latest_catalog(&self) -> Arc<Catalog> {
        self.published.read().current.1.clone()
    }

    /// Adds a removal for the next [`clean_up`](Self::clean_up).
    pub(crate) fn remove_later(&self, removal: Removal) {
        self.removals.lock().push(removal);
    }

    /// Removes temporary data of operations that have ended. What must wait stays for the next call.
    pub fn clean_up(&self) {
        let removals = std::mem::take(&mut *self.removals.lock());
        for removal in removals {
            match removal(self) {
                Ok(()) => {}
                Err(error) if error.code() == ErrorCode::LockBusy => self.remove_later(removal),
                Err(error) => log::warn!("temporary data was left behind: {error}"),
            }
        }
    }

    /// Returns an operation on this database. It ends at
    /// [`stop_operations`](Self::stop_operations). Waits and long work use the hook of
    /// [`set_blocking_hook`](Self::set_blocking_hook).
    #[inline]
    pub fn operation(&self, id: u64) -> Operation {
        Operation::of_database(id, self.blocking_hook(), self.operations.clone())
    }

    /// Sets the hook for blocking waits. The owner of the threads calls it once.
    pub fn set_blocking_hook(&self, hook: BlockingHook) {
        let _ = self.blocking.set(hook);
    }

    /// Returns the hook for blocking waits.
    pub(crate) fn blocking_hook(&self) -> BlockingHook {
        self.blocking.get().copied().unwrap_or(|work| work())
    }

    /// Ends every operation at its next check, including operations that have not begun.
    pub fn stop_operations(&self) {
        self.operations.stopping.store(true, Relaxed);
    }

    /// Refuses or allows writes that make the data grow. Used by a process without free memory.
    pub fn refuse_growth(&self, refused: bool) {
        self.operations.refuses_growth.store(refused, Relaxed);
    }

    /// Sets the memory limit of operations, open cursors and waiting messages together, in bytes.
    pub fn set_memory_limit(&self, bytes: u64) {
        self.operations.tracker.set_limit(bytes);
    }

    /// Returns the recorded memory of operations, open cursors and waiting messages, in bytes.
    pub fn memory_used(&self) -> u64 {
        self.operations.tracker.used()
    }

    /// Adds the memory of messages being sent or received, in bytes; negative values subtract.
    pub fn count_messages(&self, bytes: i64) {
        self.operations.tracker.add(bytes);
    }

    /// Returns the numbers of examined keys, examined documents and sorts without an index since
    /// the start.
    pub fn examined(&self) -> (u64, u64, u64) {
        let Shared { keys_examined, docs_examined, sorts, .. } = &*self.operations;
        (keys_examined.load(Relaxed), docs_examined.load(Relaxed), sorts.load(Relaxed))
    }

    /// Returns the number of write conflicts since the start: of transactions, and of writes that began again.
    pub fn write_conflicts(&self) -> u64 {
        self.operations.write_conflicts.load(Relaxed)
    }

    /// Returns true if writes that make the data grow are refused.
    pub fn refuses_growth(&self) -> bool {
        self.operations.refuses_growth.load(Relaxed)
    }

    /// Sets the directory of temporary files. Must be called once, before the first use. Creates
    /// the directory and removes the files of a killed process.
    ///
    /// Errors: the directory cannot be created or read.
    pub fn spill_into(&self, directory: &Path) -> std::io::Result<()> {
        let _ = self.spills.set(SpillFolder::open(directory)?);
        let _ = self.files.set(directory.to_path_buf());
        Ok(())
    }

    /// Returns a directory in the file system of the database's files, which may be temporary
    /// files.
    pub fn directory(&self) -> PathBuf {
        self.files.get().cloned().unwrap_or_else(std::env::temp_dir)
    }

    /// Sets the host and port of the server for statistics. Called once.
    pub fn set_host(&self, host: String) {
        let _ = self.host.set(host);
    }

    /// Returns the host and port of the server for statistics.
    pub fn host(&self) -> &str {
        self.host.get().map_or("", |host| host)
    }

    /// Returns the folder of temporary files for statement contexts.
    pub fn spill_folder(&self) -> SpillFolder {
        self.spills.get().unwrap_or(&self.system_spills).clone()
    }

    /// Returns the memory limit of an index build, in bytes.
    pub(crate) fn build_memory(&self) -> usize {
        self.build_memory.load(Relaxed)
    }

    /// Sets the memory limit of an index build, in bytes. The maximum is 200 MB, MongoDB's
    /// maxIndexBuildMemoryUsageMegabytes.
    pub fn set_build_memory(&self, bytes: u64) {
        let bytes = usize::try_from(bytes).unwrap_or(BUILD_MEMORY);
        self.build_memory.store(bytes.min(BUILD_MEMORY), Relaxed);
    }

    /// Lowers the memory limit of an index build, in bytes.
    pub fn lower_build_memory(&self, bytes: u64) {
        self.set_build_memory(bytes.min(self.build_memory() as u64));
    }

    /// Returns the view of an operation: of its transaction, the view given to it, or a new view.
    pub(crate) fn view_for(&self, operation: &Operation) -> View {
        match (operation.transaction(), operation.snapshot()) {
            (Some(transaction), _)
                if mutant!("each statement reads a new view") && !transaction.has_written() =>
            {
                self.view()
            }
            (Some(transaction), _) => transaction.view(),
            (None, Some((_, view))) => view.clone(),
            (None, None) => operation.standby_view().cloned().unwrap_or_else(|| self.view()),
        }
    }

    /// Sets the view of an operation to a view of a secondary. Returns false if no secondary
    /// qualifies.
    ///
    /// Errors: storage errors, errors of reading the catalog there.
    pub fn read_standby(&self, operation: &Operation, requested: StandbyRead) -> Result<bool> {
        let Some(read_view) = self.store.standby_read_view(requested).map_err(storage_error)? else {
            return Ok(false);
        };
        let catalog = self.catalog_at(&read_view)?;
        operation.set_standby(View { snapshot: read_view.snapshot, catalog, replaced_at: self.replaced() });
        Ok(true)
    }

    /// Returns the catalog known to this process, without a request to a remote store, for uses
    /// with a later check.
    pub(crate) fn known_catalog(&self) -> Arc<Catalog> {
        match self.store.known_generation() {
            None => self.catalog(),
            Some(generation) => self.catalog_of(generation).unwrap_or_else(|| self.view().catalog),
        }
    }

    /// Returns the latest catalog.
    pub fn catalog(&self) -> Arc<Catalog> {
        let generation = self.store.generation();
        self.catalog_of(generation).unwrap_or_else(|| self.confirmed_view().catalog)
    }

    /// Returns the collection or view with this name.
    pub fn collection(&self, namespace: &Namespace) -> Option<Arc<Collection>> {
        self.catalog().get(namespace).cloned()
    }

    /// Refreshes a collection's counts if other processes may have changed them.
    ///
    /// Errors: storage errors.
    pub(crate) fn refresh_counts(&self, collection: &Collection) -> Result<()> {
        match &collection.data {
            Some(data) => self.store.refresh_counts(data.ident, &data.counts).map_err(storage_error),
            None => Ok(()),
        }
    }

    /// Returns the time in milliseconds since 1970 by the injected clock.
    pub fn now_millis(&self) -> i64 {
        self.clock.now_millis()
    }

    /// Returns the injected clock.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Returns the engine.
    pub fn engine(&self) -> &Arc<dyn Engine> {
        self.store.engine()
    }

    /// Returns a new ObjectId.
    pub fn new_object_id(&self) -> ObjectId {
        self.new_object_id_at(self.now_millis())
    }

    /// Returns a new ObjectId with a time in milliseconds, such as that of the statement, which saves a clock read.
    pub(crate) fn new_object_id_at(&self, millis: i64) -> ObjectId {
        let seconds = (millis / 1000) as u32;
        ObjectId::from_parts(seconds, self.process, self.object_ids.fetch_add(1, Relaxed))
    }

    /// Returns the view of a snapshot read and its cluster time: now, or at the earlier time `at`.
    ///
    /// Errors: InvalidOptions for a time in the future, SnapshotTooOld for a time without a stored
    /// view.
    pub fn snapshot_at(&self, at: Option<u64>) -> Result<(u64, View)> {
        let now = self.view_with_time()?;
        match at {
            None => {
                self.history.add(now.0, &now.1);
                Ok(now)
            }
            Some(at) if at > now.0 => Err(time_ahead("atClusterTime", at, now.0)),
            Some(at) if at == now.0 => Ok(now),
            Some(at) => Ok((at, self.history.at(at)?)),
        }
    }

    /// Returns the latest view, and the time of its latest commit. Later snapshot reads at this
    /// time use this view.
    ///
    /// Errors: errors of reading the catalog.
    pub(crate) fn view_with_time(&self) -> Result<(u64, View)> {
        loop {
            let replaced_at = self.replaced();
            let (read_view, time) = self.store.read_view_with_time(self.earliest_cluster_time());
            match self.catalog_at(&read_view) {
                Err(error) if is_stale(&error) => {}
                catalog => {
                    if let Some(remote) = read_view.snapshot.remote() {
                        remote.pin();
                    }
                    return Ok((time, View { snapshot: read_view.snapshot, catalog: catalog?, replaced_at }));
                }
            }
        }
    }

    /// Releases views that are too old for snapshot reads.
    pub fn expire_old_views(&self) {
        self.history.expire_old();
    }

    /// Plans a read and starts it on a view.
    ///
    /// Errors: BadValue for a hint without a matching index; 51173 to 51175 for `min` and `max`
    /// that do not match the hint; evaluation errors of the filter; StaleConfig if the view's
    /// catalog is not the latest, so that the plan may be invalid.
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
        plan.count_uses(collection);
        plan.cache_trial(collection, self.now_millis());
        operation.record_plan(plan.uses());
        if self.strict.is_on() {
            self.strict.note(collection, &plan);
        }
        if collection.is_large() && plan.reads_all() {
            operation.mark_long();
        }
        let stream = plan.open(&plan.tree)?;
        match self.store.known_generation() {
            None => Ok(stream),
            // The first record confirms the plan.
            Some(_) => operation.run(|| PeekedStream::begin(stream)),
        }
    }

    /// Watches for commits that touch a namespace.
    pub fn watch(&self, interest: Interest) -> Watch {
        let watch = self.watchers.watch(interest);
        // A commit before the registration has notified nobody, and its sync will not either.
        let latest = self.store.latest_position();
        if self.waits_for_sync() && self.engine().durable() < latest {
            self.watchers.await_sync(&watch, latest);
            self.watchers.synced(self.engine().durable());
        }
        watch
    }

    /// Returns true if streams read a commit only after its sync.
    fn waits_for_sync(&self) -> bool {
        let engine = self.engine();
        self.logs && engine.has_journal() && engine.durability() != Durability::None
    }

    /// Returns the generation of users and roles. Every commit to their collections increments it
    /// before it is acknowledged. Caches of users and roles are invalid if it has changed.
    pub fn access_generation(&self) -> u64 {
        self.access_generation.load(Acquire)
    }

    /// Notifies the watchers of these namespaces about a commit.
    ///
    /// All watchers are notified whenever the log has grown by a fraction of its limit. Streams without matching events
    /// then advance in the log, so that the log is not trimmed beyond their position.
    pub(crate) fn notify_watchers(&self, namespaces: &[Namespace], position: Position) {
        if namespaces.iter().any(|namespace| ACCESS.contains(&namespace.as_str())) {
            self.access_generation.fetch_add(1, AcqRel);
        }
        if self.watchers.any() {
            if self.watchers.is_behind(self.store.log_steps()) {
                self.watchers.notify_all_watchers();
            }
            self.watchers.notify(namespaces, self.waits_for_sync().then_some(position));
        }
    }

    /// Starts collecting for [`strict_report`](Self::strict_report).
    pub fn enable_strict_mode(&self) {
        self.strict.switch_on();
    }

    /// Returns the findings since the start or the last [`clear_reads`](Self::clear_reads), and
    /// the present unused and duplicate indexes.
    pub fn strict_report(&self) -> StrictReport {
        self.strict.report(&self.catalog())
    }

    /// Discards the recorded reads. Used indexes stay marked as used.
    pub fn clear_reads(&self) {
        self.strict.forget();
    }

    /// Returns the earliest possible time of a commit now: seconds in the high half.
    pub(crate) fn earliest_cluster_time(&self) -> u64 {
        (self.now_millis() as u64 / 1000) << 32 | 1
    }

    /// Returns true if a namespace is the namespace of the log, and the log exists.
    pub fn is_oplog(&self, namespace: &Namespace) -> bool {
        self.logs && namespace.as_str() == OPLOG
    }

    /// Returns true if a namespace is the namespace of the sessions' records, and records are kept.
    pub fn is_transactions(&self, namespace: &Namespace) -> bool {
        self.records_retries && namespace.as_str() == TRANSACTIONS
    }

    /// Returns true if a namespace is read from the store's own data instead of a collection.
    pub(crate) fn is_virtual(&self, namespace: &Namespace) -> bool {
        self.is_oplog(namespace) || self.is_transactions(namespace)
    }

    /// Returns true if changes are logged.
    pub(crate) fn logs(&self) -> bool {
        self.logs
    }

    /// Returns the approximate number of bytes that commits have replaced since the start.
    pub(crate) fn replaced(&self) -> u64 {
        self.operations.replaced.load(Relaxed)
    }

    /// Limits the replaced data kept for old snapshots, in bytes.
    pub fn set_history_bytes(&self, bytes: u64) {
        self.window.bytes_max.store(bytes, Relaxed);
        self.limit_history();
    }

    /// Sets the retention of views for snapshot reads at an earlier time.
    pub fn set_history_age(&self, age: Duration) {
        self.history.set_age_max(age);
        self.history.expire_old();
    }

    /// Records the bytes that a commit has replaced.
    pub(crate) fn count_replaced(&self, bytes: u64) {
        // A remote store keeps old versions itself.
        if bytes == 0 || self.store.known_generation().is_some() {
            return;
        }
        let now = self.operations.replaced.fetch_add(bytes, Relaxed) + bytes;
        if now >= self.window.next_check.load(Relaxed) {
            self.limit_history();
        }
    }

    /// Counts the changes that checkpoints have written and that old snapshots hold. Releases the oldest snapshots
    /// beyond the limit. Called once a second.
    pub fn limit_written_changes(&self) {
        let total = self.engine().statistics().written_bytes;
        // Later snapshots belong to the next interval.
        let end = || self.operations.replaced.fetch_add(1, Relaxed);
        if self.window.written.lock().record(total, end) {
            self.limit_history();
        }
    }

    /// Releases the snapshots taken before `least` bytes had been replaced. Returns `replaced_at` of all others.
    fn release_before(&self, least: u64) -> Vec<u64> {
        let mut remaining = Vec::new();
        self.history.release_before(least, &mut remaining);
        self.cursors.release_before(least, &mut remaining);
        self.transactions.end_before(least, &mut remaining);
        remaining
    }

    /// Releases the oldest snapshots until the history is within its limit.
    fn limit_history(&self) {
        if mutant!("old snapshots are never released") {
            return;
        }
        let Some(mut written) = self.window.written.try_lock() else { return };
        let (now, bytes_max) = (self.replaced(), self.window.bytes_max.load(Relaxed));
        let mut least = now.saturating_sub(bytes_max);
        let mut remaining = self.release_before(least);
        let by_written = written.least(remaining.clone(), bytes_max);
        if by_written > least {
            least = by_written;
            remaining = self.release_before(least);
        }
        let oldest = remaining.into_iter().min().unwrap_or(now).min(now);
        debug_assert!(oldest >= least, "a snapshot from before {least} replaced bytes stays: {oldest}");
        self.window.next_check.store(oldest.saturating_add(bytes_max).saturating_add(1), Relaxed);
    }
}

/// Returns true if an error comes from a plan with an old catalog.
pub(crate) fn is_stale(error: &Error) -> bool {
    error.code() == ErrorCode::StaleConfig
}

/// Returns the error of a read at or after a cluster time that is later than the present one.
pub fn time_ahead(field: &str, requested: u64, now: u64) -> Error {
    err!(
        InvalidOptions,
        "readConcern {field} value must not be greater than the current clusterTime. Requested clusterTime: {{ ts: {} }}; \
         current clusterTime: {{ ts: {} }}",
        Value::Timestamp(requested),
        Value::Timestamp(now)
    )
}
