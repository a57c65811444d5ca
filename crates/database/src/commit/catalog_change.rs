//! Changes of the catalog: collections, views, indexes, saved states, and whole trees.
//!
//! A change is short, whatever the collections hold. It runs under the commit lock, on the latest catalog.
//! [`Database::change_catalog`] takes the lock, builds the change, commits it and publishes the new catalog in one
//! step. If an open transaction relies on a changed collection, the change releases the lock, waits for the end of the
//! transaction, and is built again.

use crate::catalog::collection::{Collection, Counts, Data, Options};
use crate::catalog::history::replaced_by;
use crate::catalog::{Catalog, MultikeyFlags, SavedState, check_entry, entry, entry_with};
use crate::changes::logged::LoggedCommand;
use crate::database::Database;
use crate::index::{Index, IndexSpec};
use crate::keys::{CATALOG, RecordId};
use crate::storage_error;
use base::{Namespace, Result, err};
use query::Interrupt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use storage::store::{Change, CommitError, Committed, Exclusive, SideEffect};
use storage::{Batch, Ident, Snapshot, Value};

/// Maximum number of documents of a collection that is emptied in place on every store.
const EMPTIED_IN_PLACE: i64 = 1000;

/// Number of changes of trees that most catalog changes need: for a collection with a few indexes.
const USUAL_OPERATIONS: usize = 8;

/// A change of the catalog under construction. Dropping it changes nothing.
pub(crate) struct CatalogChange<'db> {
    database: &'db Database,
    lock: Box<dyn Exclusive + 'db>,
    snapshot: Arc<dyn Snapshot>,
    catalog: Arc<Catalog>,
    /// Generation of the new catalog.
    generation: u64,
    catalog_changed: bool,
    /// True if a collection is dropped or its name is taken by another.
    drops: bool,
    change: Change,
    changed: Vec<Namespace>,
    /// Log entries of the change.
    pub(crate) commands: Vec<LoggedCommand>,
    /// New multikey bits of indexes, stored with the entry.
    multikey: Vec<(Arc<Index>, Vec<u32>)>,
}

impl Database {
    /// Makes a change of the catalog. `put_together` may run several times. It returns `None` if nothing needs to
    /// change.
    ///
    /// Errors: errors of `put_together` and of the engine, and an interrupted wait; LockBusy for a statement that its
    /// caller suspends.
    pub(crate) fn change_catalog<T>(
        &self,
        interrupt: &dyn Interrupt,
        mut put_together: impl FnMut(&mut CatalogChange<'_>) -> Result<Option<T>>,
    ) -> Result<Option<(T, Committed)>> {
        loop {
            let lock = self.exclusive(interrupt)?;
            let mut change = CatalogChange::new(self, lock)?;
            let Some(outcome) = put_together(&mut change)? else { return Ok(None) };
            match change.commit()? {
                Ok(committed) => {
                    interrupt.note_change();
                    return Ok(Some((outcome, committed)));
                }
                Err(CommitError::IntentConflict(owner)) => self.wait_for(owner, interrupt)?,
                Err(_) => interrupt.check()?,
            }
        }
    }

    /// Makes a change of the catalog that is never empty.
    ///
    /// Errors: as [`change_catalog`](Self::change_catalog).
    pub(crate) fn must_change_catalog(
        &self,
        interrupt: &dyn Interrupt,
        mut put_together: impl FnMut(&mut CatalogChange<'_>) -> Result<()>,
    ) -> Result<Committed> {
        let changed = self.change_catalog(interrupt, |change| put_together(change).map(Some))?;
        Ok(changed.map(|(_, committed)| committed).unwrap_or_default())
    }

    /// Takes the commit lock. Waits while writes are locked or checkpoints lag.
    ///
    /// Errors: as [`wait_for_room`](Self::wait_for_room).
    pub(crate) fn exclusive(&self, interrupt: &dyn Interrupt) -> Result<Box<dyn Exclusive + '_>> {
        loop {
            self.wait_for_room(interrupt)?;
            let lock = self.store.lock(&mut || self.store.frozen() == 0);
            if let Some(lock) = lock.map_err(storage_error)? {
                return Ok(lock);
            }
            interrupt.check()?;
        }
    }

    /// Returns the counts of a new, empty collection.
    pub(crate) fn new_counts(&self, ident: Ident) -> Arc<Counts> {
        let begin = &mut |counts: &Counts| {
            counts.next_record.store(1, Relaxed);
            Ok(())
        };
        // Cannot fail: this call reads nothing.
        self.store.counts(ident, begin).unwrap_or_default()
    }

    /// Returns a collection or view that is not in the catalog yet, with numbers for trees that do not exist yet.
    pub(crate) fn new_collection(&self, namespace: &Namespace, options: Options) -> Collection {
        let data = match options.view {
            Some(_) => None,
            None => {
                let ident = self.store.new_ident();
                let spec = match &options.clustered {
                    Some(name) => Arc::new(IndexSpec::clustered(name, options.collation.clone())),
                    None => IndexSpec::shared_id(&options.collation),
                };
                let mut indexes = Vec::new();
                if !options.no_id_index {
                    indexes.push(Arc::new(Index::new(spec, self.store.new_ident(), &[], self.now_millis())));
                }
                let counts = self.new_counts(ident);
                Some(Data::new(ident, indexes, counts))
            }
        };
        let (namespace, uuid) = (namespace.clone(), self.random.uuid());
        Collection { namespace, uuid, options, data, generation: 0 }
    }
}

impl<'db> CatalogChange<'db> {
    pub(crate) fn new(database: &'db Database, lock: Box<dyn Exclusive + 'db>) -> Result<CatalogChange<'db>> {
        let read_view = lock.read_view();
        Ok(CatalogChange {
            database,
            lock,
            catalog: database.catalog_at(&read_view)?,
            snapshot: read_view.snapshot,
            generation: read_view.generation + 1,
            catalog_changed: false,
            drops: false,
            change: Change {
                batch: Batch::with_capacity(USUAL_OPERATIONS),
                earliest: database.earliest_cluster_time(),
                ..Change::default()
            },
            changed: Vec::new(),
            commands: Vec::new(),
            multikey: Vec::new(),
        })
    }

    /// Commits the change and releases the lock.
    pub(crate) fn commit(self) -> Result<std::result::Result<Committed, CommitError>> {
        let CatalogChange {
            database,
            lock,
            snapshot,
            catalog,
            mut change,
            changed,
            commands,
            multikey,
            drops,
            catalog_changed,
            generation: planned,
        } = self;
        database.log_commands(&mut change, &commands);
        let replaced = replaced_by(&change);
        // Dropped first, so that the engine finds its trees unshared and changes them in place.
        drop(snapshot);
        let mut catalog = Some(catalog).filter(|_| catalog_changed);
        let changes_catalog = catalog.is_some();
        let mut applied = |generation| {
            debug_assert!(!changes_catalog || generation == planned, "{generation} is stored as {planned}");
            if let Some(catalog) = catalog.take() {
                database.publish(generation, catalog);
            }
            multikey.iter().for_each(|(index, bits)| index.note_multikey(bits));
        };
        let written = match lock.commit(change, changes_catalog, &mut applied).map_err(storage_error)? {
            Ok(written) => written,
            Err(refusal) => return Ok(Err(refusal)),
        };
        if drops {
            database.cursors.release_dropped(&database.latest_catalog());
        }
        database.count_replaced(replaced);
        database.notify_watchers(&changed, written.position);
        Ok(Ok(written))
    }

    /// Adds an oplog entry for the change.
    pub(crate) fn log(&mut self, command: impl FnOnce() -> LoggedCommand) {
        if self.database().logs() {
            self.commands.push(command());
        }
    }

    /// Adds the changes of a transaction, for a commit together with the collections that it created.
    pub(crate) fn adopt(&mut self, change: Change) {
        self.change = Change { earliest: self.change.earliest, ..change };
    }

    /// Returns the catalog with the change so far.
    pub(crate) fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Returns the data before this change.
    pub(crate) fn snapshot(&self) -> &Arc<dyn Snapshot> {
        &self.snapshot
    }

    /// Returns true if an open transaction has changed data of the collection.
    pub(crate) fn is_relied_on(&self, collection: &Collection) -> bool {
        collection
            .data
            .as_ref()
            .is_some_and(|data| self.lock.transaction_relying_on(data.ident, None).is_some())
    }

    /// Returns the engine's batch for further changes.
    pub(crate) fn batch(&mut self) -> &mut Batch {
        &mut self.change.batch
    }

    /// Returns the greatest record id of any document of the collection. Writers with a greater id have not committed,
    /// and their commit fails once the collection has changed.
    pub(crate) fn greatest_record(&self, data: &Data) -> RecordId {
        RecordId(self.database.store.greatest_record(&data.counts))
    }

    /// Empties a collection and its indexes in one step, whatever they hold. Returns the former number of documents.
    pub(crate) fn clear(&mut self, collection: &Collection) -> Result<u64> {
        let data = collection.data()?;
        self.database.refresh_counts(collection)?;
        let (records, bytes) = (data.counts.records.load(Relaxed), data.counts.bytes.load(Relaxed));
        // An index builder loads into the tree that it created, so the trees must stay.
        if records > EMPTIED_IN_PLACE
            && data.building.is_empty()
            && !self.database.store.clears_in_constant_time()
        {
            self.renew_trees(collection)?;
            return Ok(records as u64);
        }
        for ident in data.idents() {
            self.change.batch.clear(ident);
        }
        for build in &data.building {
            self.change.side_effects.push(SideEffect::MarkAll(build.build.clone()));
        }
        let counts = data.counts.clone();
        self.change.side_effects.push(SideEffect::Count { counts, records: -records, bytes: -bytes });
        self.changed.push(collection.namespace.clone());
        Ok(records.max(0) as u64)
    }

    /// Replaces the trees of a collection by empty ones, and drops the old trees.
    fn renew_trees(&mut self, collection: &Collection) -> Result<()> {
        let data = collection.data()?;
        data.idents().for_each(|ident| self.change.batch.drop_ident(ident));
        self.change.side_effects.push(SideEffect::Generation(data.ident, None));
        let ident = self.create_ident();
        let mut fresh = |index: &Arc<Index>| {
            let ident = self.create_ident();
            Arc::new(index.over(ident, true, index.since_millis))
        };
        let indexes = data.indexes.iter().map(&mut fresh).collect();
        let counts = self.database.new_counts(ident);
        let renewed = Data { ident, indexes, counts, cached_plans: Arc::default(), ..data.clone() };
        self.put_collection(Collection { data: Some(renewed), ..collection.clone() }).map(drop)
    }

    /// Creates a tree and returns its number.
    pub(crate) fn create_ident(&mut self) -> Ident {
        let ident = self.database.store.new_ident();
        self.change.batch.create(ident);
        ident
    }

    /// Creates a copy-on-write fork of a tree, including the changes so far, and returns its
    /// number.
    pub(crate) fn fork_ident(&mut self, from: Ident) -> Ident {
        let ident = self.database.store.new_ident();
        self.change.batch.fork(from, ident);
        ident
    }

    /// Removes a tree with its contents.
    pub(crate) fn drop_ident(&mut self, ident: Ident) {
        self.change.batch.drop_ident(ident);
    }

    /// Returns the database of this catalog.
    pub(crate) fn database(&self) -> &'db Database {
        self.database
    }

    /// Returns a random UUID of version 4.
    pub(crate) fn new_uuid(&mut self) -> [u8; 16] {
        self.database.random.uuid()
    }

    /// Adds or replaces a collection with a changed name or with changed options, which the next start must be able to
    /// read.
    ///
    /// Errors: InvalidOptions and others, if `create` refuses these options under this name.
    pub(crate) fn put_changed(&mut self, collection: Collection) -> Result<Arc<Collection>> {
        check_entry(&entry(&collection))?;
        self.put_collection(collection)
    }

    /// Adds or replaces a collection in the catalog.
    pub(crate) fn put_collection(&mut self, mut collection: Collection) -> Result<Arc<Collection>> {
        debug_assert!(collection.generation <= self.generation, "the collection is of a later catalog");
        debug_assert!(
            has_distinct_trees(&collection),
            "two indexes of {} have one tree",
            collection.namespace
        );
        collection.generation = self.generation;
        let stored = entry(&collection);
        debug_assert!(check_entry(&stored).is_ok(), "the next start could not read {}", stored.view());
        self.change.batch.put(CATALOG, collection.namespace.as_str().as_bytes(), Value::from(stored.bytes()));
        if let Some(data) = &collection.data {
            self.change.side_effects.push(SideEffect::Generation(data.ident, Some(collection.generation)));
        }
        self.changed.push(collection.namespace.clone());
        self.catalog_changed = true;
        let collection = Arc::new(collection);
        let before = Arc::make_mut(&mut self.catalog).put(collection.clone())?;
        self.drops |= before.is_some_and(|before| before.uuid != collection.uuid);
        Ok(collection)
    }

    /// Stores the entry of a collection that changes only in its multikey bits.
    pub(crate) fn learn(&mut self, collection: &Collection, mut flags: MultikeyFlags) {
        let stored = entry_with(collection, &flags);
        let indexes = collection.data.iter().flat_map(|data| data.written_indexes());
        self.multikey =
            indexes.filter_map(|index| Some((index.clone(), flags.remove(&index.ident)?))).collect();
        // Other users of the store read the entry again.
        self.catalog_changed = true;
        self.change.batch.put(CATALOG, collection.namespace.as_str().as_bytes(), Value::from(stored.bytes()));
    }

    /// Removes a collection from the catalog. The caller drops its trees.
    pub(crate) fn remove_collection(&mut self, namespace: &Namespace) -> Option<Arc<Collection>> {
        self.change.batch.delete(CATALOG, namespace.as_str().as_bytes());
        self.changed.push(namespace.clone());
        self.catalog_changed = true;
        self.drops = true;
        let removed = Arc::make_mut(&mut self.catalog).remove(namespace);
        if let Some(data) = removed.as_ref().and_then(|removed| removed.data.as_ref()) {
            self.change.side_effects.push(SideEffect::Generation(data.ident, None));
        }
        removed
    }

    /// Adds a saved state to the catalog. The name must be free.
    pub(crate) fn put_saved(&mut self, state: Arc<SavedState>) {
        debug_assert!(self.catalog.saved(&state.name).is_none(), "a saved state is lost: {:?}", state.name);
        for (key, stored) in state.entries() {
            self.change.batch.put(CATALOG, key, Value::from(stored.bytes()));
        }
        self.catalog_changed = true;
        Arc::make_mut(&mut self.catalog).put_saved(state);
    }

    /// Removes a saved state and its trees from the catalog.
    pub(crate) fn drop_saved(&mut self, state: &SavedState) {
        debug_assert!(self.catalog.saved(&state.name).is_some(), "no saved state {:?}", state.name);
        for (key, _) in state.entries() {
            self.change.batch.delete(CATALOG, key);
        }
        for data in state.collections.iter().filter_map(|collection| collection.data.as_ref()) {
            data.idents().for_each(|ident| self.change.batch.drop_ident(ident));
            self.change.side_effects.push(SideEffect::Generation(data.ident, None));
        }
        self.catalog_changed = true;
        Arc::make_mut(&mut self.catalog).remove_saved(&state.name);
    }
}

/// Returns true if documents and indexes of a collection have a tree each.
fn has_distinct_trees(collection: &Collection) -> bool {
    let mut trees: Vec<Ident> = collection.data.iter().flat_map(|data| data.idents()).collect();
    trees.sort_unstable();
    trees.is_sorted_by(|a, b| a < b)
}

/// Returns the present version of a collection that a statement was planned on, if it is still the original collection.
/// Its indexes may have changed.
///
/// Errors: QueryPlanKilled.
pub(crate) fn same_collection(catalog: &Catalog, planned: &Collection) -> Result<Arc<Collection>> {
    match catalog.get(&planned.namespace) {
        Some(now) if now.uuid == planned.uuid => Ok(now.clone()),
        _ => Err(err!(QueryPlanKilled, "collection dropped. UUID {}", base::encoding::uuid(&planned.uuid))),
    }
}
