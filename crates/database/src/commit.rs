//! The one way in which data changes: a transaction, and its commit.
//!
//! A statement's change to one document is a transaction of its own. It holds the commit lock from
//! [`begin`](Database::begin) to [`commit`](Transaction::commit): it checks what it needs to
//! check against the latest state (unique keys, that the document is still the one that matched),
//! collects one engine batch (records, index entries, catalog), and hands that over whole. The
//! lock is released before anyone waits for a journal, so many committers share one sync.
//!
//! Held so briefly, the lock costs less than detecting conflicts would, and clients never see one.
//! Transactions of many statements will add an overlay of their own writes and be checked here.

use crate::catalog::Catalog;
use crate::clean_slate::SavedState;
use crate::collection::{Collection, Counts, Data, entry};
use crate::database::Database;
use crate::duplicate::duplicate_key;
use crate::index::{DocumentKeys, Index, KeyOf};
use crate::keys::{CATALOG, IndexEntry, RETRIES, RecordId};
use crate::storage_error;
use base::random::Random;
use base::{Namespace, Result, err};
use parking_lot::MutexGuard;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use storage::{Batch, Direction, Ident, Key, Position, Range, Snapshot, Value};

/// What only the holder of the commit lock changes.
pub(crate) struct Writer {
    next_ident: u64,
    /// State of the numbers that collections' UUIDs are made of.
    random: Random,
}

/// What a commit tells its caller.
#[derive(Clone, Copy, Debug, Default)]
pub struct Committed {
    /// What to wait for when the write concern asks for the journal.
    pub position: Position,
    /// The time of the commit: seconds in the high half, a counter in the low.
    pub cluster_time: u64,
}

/// A change being put together under the commit lock. Dropping it without committing changes
/// nothing.
pub struct Transaction<'db> {
    // Dropped before the lock is released.
    learnt: Learnt,
    database: &'db Database,
    writer: MutexGuard<'db, Writer>,
    snapshot: Arc<dyn Snapshot>,
    catalog: Arc<Catalog>,
    catalog_changed: bool,
    batch: Batch,
    counts: Vec<(Arc<Counts>, i64, i64)>,
    changed: Vec<Namespace>,
}

/// Multikey bits that indexes learnt in this transaction, which the catalog's entry in its batch has, too:
/// taken back unless that is committed, or else nobody would ever store them.
#[derive(Default)]
struct Learnt(Vec<(Arc<Index>, Vec<u32>)>);

impl Drop for Learnt {
    fn drop(&mut self) {
        self.0.drain(..).for_each(|(index, bits)| index.forget_multikey(&bits));
    }
}

impl Writer {
    pub(crate) fn new(next_ident: u64, seed: u64) -> Writer {
        Writer { next_ident, random: Random::new(seed) }
    }
}

impl Database {
    /// Begins a transaction; others wait until it commits or is dropped. Waits itself while writes are
    /// locked.
    pub fn begin(&self) -> Transaction<'_> {
        let writer = self.writer();
        Transaction {
            database: self,
            writer,
            snapshot: self.engine.snapshot(),
            catalog: self.catalog(),
            catalog_changed: false,
            batch: Batch::with_capacity(4),
            counts: Vec::new(),
            changed: Vec::new(),
            learnt: Learnt::default(),
        }
    }

    /// Whether every commit is to wait for the journal, whatever its write concern says.
    pub fn always_journals(&self) -> bool {
        self.engine.durability() == storage::Durability::Journaled
    }

    /// The position of the latest commit: what a write that changed nothing, or one answered from
    /// the record of its first sending, has to wait for.
    pub fn latest_position(&self) -> Position {
        Position(self.latest_position.load(Relaxed))
    }

    /// Waits until what was committed at `position` would survive a crash. Returns at once on an
    /// engine without a journal.
    pub fn wait_journaled(&self, position: Position) -> Result<()> {
        self.engine.wait_journaled(position).map_err(storage_error)
    }

    /// The time of the latest commit, for `operationTime`; advances with the clock when nothing
    /// is written.
    pub fn cluster_time(&self) -> u64 {
        let now = self.earliest_cluster_time();
        self.cluster_time.fetch_max(now, Relaxed).max(now)
    }

    /// A time that no commit had before, for the holder of the commit lock.
    fn next_cluster_time(&self) -> u64 {
        let now = self.earliest_cluster_time();
        let next = (self.cluster_time.load(Relaxed) + 1).max(now);
        self.cluster_time.fetch_max(next, Relaxed);
        next
    }

    fn earliest_cluster_time(&self) -> u64 {
        (self.now_millis() as u64 / 1000) << 32 | 1
    }
}

impl Transaction<'_> {
    /// The catalog with this transaction's own changes.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// The data before this transaction.
    pub fn snapshot(&self) -> &dyn Snapshot {
        self.snapshot.as_ref()
    }

    /// The database that it changes.
    pub(crate) fn database(&self) -> &Database {
        self.database
    }

    /// Stores the record of a retryable statement.
    pub(crate) fn put_retry(&mut self, key: Key, value: Value) {
        self.batch.put(RETRIES, key, value);
    }

    /// Removes the record of a retryable statement.
    pub(crate) fn delete_retry(&mut self, key: Key) {
        self.batch.delete(RETRIES, key);
    }

    /// The document of a record as it stands now.
    pub fn record(&self, data: &Data, id: RecordId) -> Result<Option<Value>> {
        self.snapshot.get(data.ident, &id.key()).map_err(storage_error)
    }

    /// Stores a new document; `keys` are its keys in each index of the collection, in order.
    ///
    /// Errors: DuplicateKey.
    pub fn insert_record(
        &mut self,
        collection: &Collection,
        document: Arc<[u8]>,
        keys: &[DocumentKeys],
    ) -> Result<RecordId> {
        let data = collection.data()?;
        for (index, document_keys) in data.indexes.iter().zip(keys) {
            for key in &document_keys.keys {
                self.check_unique(collection, index, key, None)?;
            }
        }
        let id = RecordId(data.counts.next_record.fetch_add(1, Relaxed));
        for (index, document_keys) in data.indexes.iter().zip(keys) {
            for key in &document_keys.keys {
                self.put_entry(index, key, id);
            }
            self.note_multikey(collection, index, document_keys);
        }
        self.count(&collection.namespace, data, 1, document.len() as i64);
        self.batch.put(data.ident, id.key(), Value::from(document));
        Ok(id)
    }

    /// Replaces the document of a record; `before` and `after` are its keys in each index.
    ///
    /// Errors: DuplicateKey.
    pub fn update_record(
        &mut self,
        collection: &Collection,
        id: RecordId,
        old_length: usize,
        document: Arc<[u8]>,
        before: &[DocumentKeys],
        after: &[DocumentKeys],
    ) -> Result<()> {
        let data = collection.data()?;
        for (index, (old, new)) in data.indexes.iter().zip(before.iter().zip(after)) {
            for key in &new.keys {
                if old.keys.binary_search(key).is_err() {
                    self.check_unique(collection, index, key, Some(id))?;
                }
            }
        }
        for (index, (old, new)) in data.indexes.iter().zip(before.iter().zip(after)) {
            for key in old.keys.iter().filter(|key| new.keys.binary_search(key).is_err()) {
                self.delete_entry(index, key, id);
            }
            for key in new.keys.iter().filter(|key| old.keys.binary_search(key).is_err()) {
                self.put_entry(index, key, id);
            }
            self.note_multikey(collection, index, new);
        }
        self.count(&collection.namespace, data, 0, document.len() as i64 - old_length as i64);
        self.batch.put(data.ident, id.key(), Value::from(document));
        Ok(())
    }

    /// Removes a record and its keys.
    pub fn delete_record(
        &mut self,
        collection: &Collection,
        id: RecordId,
        length: usize,
        keys: &[DocumentKeys],
    ) -> Result<()> {
        let data = collection.data()?;
        for (index, document_keys) in data.indexes.iter().zip(keys) {
            for key in &document_keys.keys {
                self.delete_entry(index, key, id);
            }
        }
        self.batch.delete(data.ident, id.key());
        self.count(&collection.namespace, data, -1, -(length as i64));
        Ok(())
    }

    /// Empties a collection and its indexes at once, whatever they hold. Returns how many
    /// documents there were.
    pub fn clear(&mut self, collection: &Collection) -> Result<u64> {
        let data = collection.data()?;
        let (records, bytes) = (data.counts.records.load(Relaxed), data.counts.bytes.load(Relaxed));
        for ident in data.idents() {
            self.batch.clear(ident);
        }
        self.count(&collection.namespace, data, -records, -bytes);
        Ok(records.max(0) as u64)
    }

    /// The oldest records of a collection, in order, for capped collections to make room.
    pub fn oldest(&self, data: &Data) -> Result<Box<dyn storage::Cursor>> {
        self.snapshot.scan(data.ident, Range::all(), Direction::Forward).map_err(storage_error)
    }

    /// Adds the entries of a new index; `keys` are sorted, and unique where they must be.
    pub(crate) fn fill_index(&mut self, index: &Index, entries: &[(KeyOf, RecordId)]) {
        for (key, id) in entries {
            self.put_entry(index, key, *id);
        }
    }

    /// A number for a new tree, and the tree.
    pub(crate) fn create_ident(&mut self) -> Ident {
        let ident = Ident(self.writer.next_ident);
        self.writer.next_ident += 1;
        self.batch.create(ident);
        ident
    }

    /// A number for a copy-on-write twin of a tree, and the twin: as it stands before this transaction and
    /// what it has changed so far.
    pub(crate) fn fork_ident(&mut self, from: Ident) -> Ident {
        let ident = Ident(self.writer.next_ident);
        self.writer.next_ident += 1;
        self.batch.fork(from, ident);
        ident
    }

    /// Removes a tree with all it holds.
    pub(crate) fn drop_ident(&mut self, ident: Ident) {
        self.batch.drop_ident(ident);
    }

    /// A random UUID of version 4.
    pub(crate) fn new_uuid(&mut self) -> [u8; 16] {
        self.writer.random.uuid()
    }

    /// Puts a collection into the catalog, replacing the one of its name.
    pub(crate) fn put_collection(&mut self, collection: Arc<Collection>) -> Result<()> {
        let stored = entry(&collection);
        self.batch.put(CATALOG, collection.namespace.as_str().as_bytes(), Value::from(stored.bytes()));
        self.changed.push(collection.namespace.clone());
        self.catalog_changed = true;
        Arc::make_mut(&mut self.catalog).put(collection)
    }

    /// Takes a collection out of the catalog; its trees are the caller's to drop.
    pub(crate) fn remove_collection(&mut self, namespace: &Namespace) -> Option<Arc<Collection>> {
        self.batch.delete(CATALOG, namespace.as_str().as_bytes());
        self.changed.push(namespace.clone());
        self.catalog_changed = true;
        Arc::make_mut(&mut self.catalog).remove(namespace)
    }

    /// Puts a database's saved state into the catalog; there is none of its name.
    pub(crate) fn put_saved(&mut self, state: Arc<SavedState>) {
        for (key, stored) in state.entries() {
            self.batch.put(CATALOG, key, Value::from(stored.bytes()));
        }
        self.catalog_changed = true;
        Arc::make_mut(&mut self.catalog).put_saved(state);
    }

    /// Takes a saved state out of the catalog, with its trees.
    pub(crate) fn drop_saved(&mut self, state: &SavedState) {
        for (key, _) in state.entries() {
            self.batch.delete(CATALOG, key);
        }
        for data in state.collections.iter().filter_map(|collection| collection.data.as_ref()) {
            data.idents().for_each(|ident| self.batch.drop_ident(ident));
        }
        self.catalog_changed = true;
        Arc::make_mut(&mut self.catalog).remove_saved(&state.name);
    }

    /// Makes the change: takes the next cluster time, hands the engine the batch, publishes the
    /// catalog, and lets the next transaction in.
    pub fn commit(self) -> Result<Committed> {
        let Transaction {
            database,
            writer,
            snapshot,
            catalog,
            catalog_changed,
            batch,
            counts,
            changed,
            mut learnt,
        } = self;
        // The snapshot goes first, so that the engine finds its trees unshared and changes them in
        // place.
        drop(snapshot);
        let cluster_time = database.next_cluster_time();
        let position = if catalog_changed {
            let mut published = database.published.write();
            let position = database.engine.commit(batch).map_err(storage_error)?;
            *published = catalog;
            position
        } else {
            drop(catalog);
            database.engine.commit(batch).map_err(storage_error)?
        };
        learnt.0.clear();
        for (counts, records, bytes) in counts {
            counts.records.fetch_add(records, Relaxed);
            counts.bytes.fetch_add(bytes, Relaxed);
        }
        database.latest_position.fetch_max(position.0, Relaxed);
        let committed = Committed { position, cluster_time };
        drop(writer);
        for namespace in &changed {
            database.watchers.notify(namespace);
        }
        Ok(committed)
    }

    fn check_unique(
        &self,
        collection: &Collection,
        index: &Index,
        key: &KeyOf,
        own: Option<RecordId>,
    ) -> Result<()> {
        if index.spec.prepare_unique {
            return self.check_prepared(collection, index, key, own);
        }
        if !index.unique() {
            return Ok(());
        }
        let Some(found) = self.snapshot.get(index.ident, &key.key_string).map_err(storage_error)? else {
            return Ok(());
        };
        let holder = IndexEntry::from_parts(&key.key_string, &found, true)?.record;
        if Some(holder) == own { Ok(()) } else { Err(duplicate_key(&collection.namespace, index, key)) }
    }

    /// The same for an index that is to become unique: each of its entries has the record in its key.
    fn check_prepared(
        &self,
        collection: &Collection,
        index: &Index,
        key: &KeyOf,
        own: Option<RecordId>,
    ) -> Result<()> {
        let range = Range::prefix(&key.key_string);
        let mut found = self.snapshot.scan(index.ident, range, Direction::Forward).map_err(storage_error)?;
        while let Some((entry, value)) = found.next().map_err(storage_error)? {
            let entry = IndexEntry::from_parts(entry, value, false)?;
            if entry.key_string == key.key_string && Some(entry.record) != own {
                return Err(duplicate_key(&collection.namespace, index, key));
            }
        }
        Ok(())
    }

    fn put_entry(&mut self, index: &Index, key: &KeyOf, record: RecordId) {
        let entry = IndexEntry { key_string: &key.key_string, type_bits: &key.type_bits, record };
        let (key, value) = entry.to_parts(index.unique());
        self.batch.put(index.ident, key, value);
    }

    fn delete_entry(&mut self, index: &Index, key: &KeyOf, record: RecordId) {
        let entry = IndexEntry { key_string: &key.key_string, type_bits: &key.type_bits, record };
        self.batch.delete(index.ident, entry.to_parts(index.unique()).0);
    }

    /// Records that documents have arrays along an index's paths, before any entry is visible.
    fn note_multikey(&mut self, collection: &Collection, index: &Arc<Index>, keys: &DocumentKeys) {
        if keys.multikey.iter().all(|bits| *bits == 0) {
            return;
        }
        let learnt = index.note_multikey(&keys.multikey);
        if learnt.iter().any(|bits| *bits != 0) {
            self.learnt.0.push((index.clone(), learnt));
            let stored = entry(collection);
            self.batch.put(CATALOG, collection.namespace.as_str().as_bytes(), Value::from(stored.bytes()));
        }
    }

    fn count(&mut self, namespace: &Namespace, data: &Data, records: i64, bytes: i64) {
        self.counts.push((data.counts.clone(), records, bytes));
        if self.database.watchers.any() && self.changed.last() != Some(namespace) {
            self.changed.push(namespace.clone());
        }
    }

    /// The collection that a statement planned on, if it is still the same one; its indexes may
    /// have changed meanwhile.
    pub fn same_collection(&self, planned: &Collection) -> Result<Arc<Collection>> {
        match self.catalog.get(&planned.namespace) {
            Some(now) if now.uuid == planned.uuid => Ok(now.clone()),
            _ => Err(err!(QueryPlanKilled, "collection dropped. UUID {}", uuid_text(&planned.uuid))),
        }
    }
}

/// A UUID as MongoDB's messages show it.
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}
