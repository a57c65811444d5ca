//! Repair: restores consistency of a database in an engine with missing parts.
//!
//! The engine contains the salvaged trees, known by their numbers. Readable catalog entries name their owners. Repair
//! removes documents that are not valid BSON. It rebuilds every index from the remaining documents, with its multikey
//! bits. A second document with a unique key moves to `local.lost_and_found.<uuid>`. A tree of documents without an
//! owner becomes `local.orphan.<n>`. These are mongod's names. Repair needs exclusive use of the engine, which is
//! opened normally afterwards.
//!
//! For each collection, repair checks the documents and rebuilds the indexes.

#[cfg(test)]
mod tests;

use crate::catalog::collection::{Collection, Data};
use crate::catalog::{SavedStates, entry, from_entry};
use crate::index::{DocumentKeys, Index, IndexSpec};
use crate::keys::{CATALOG, IndexEntry, RETRIES, RecordId, SAVED};
use crate::storage_error;
use crate::write::keys_of;
use base::bson::Document;
use base::encoding;
use base::random::Random;
use base::{Namespace, Result};
use query::context::Uninterrupted;
use query::{Collation, Context};
use std::collections::BTreeSet;
use std::sync::Arc;
use storage::store::LOG_TREES;
use storage::{Batch, Direction, Engine, Ident, Key, Range, Value};

/// Maximum number of notes in the result. All notes are logged.
const NOTES_MAX: usize = 1000;

/// Result of a repair.
#[derive(Debug, Default)]
pub struct Repaired {
    /// The collections after the repair.
    pub collections: Vec<RepairedCollection>,
    /// The collections of snapshots of databases.
    pub snapshots: Vec<RepairedCollection>,
    /// Descriptions of lost or moved data.
    pub notes: Vec<String>,
}

/// A collection after the repair.
#[derive(Debug)]
pub struct RepairedCollection {
    /// Name of the collection.
    pub namespace: Namespace,
    /// Its trees.
    pub idents: Vec<Ident>,
    /// The tree of its documents.
    pub data: Ident,
    /// Number of documents kept.
    pub records: u64,
    /// Number of documents that were invalid and removed, or moved.
    pub removed: u64,
}

/// State of a repair.
struct Repair<'a> {
    engine: &'a dyn Engine,
    context: Context,
    /// Trees in the engine.
    idents: BTreeSet<Ident>,
    next_ident: u64,
    random: Random,
    now_millis: i64,
    done: Repaired,
}

/// Repairs the database in an engine. `idents` are the trees of the engine.
///
/// Errors: errors of the engine.
pub fn repair(engine: &dyn Engine, idents: &BTreeSet<Ident>, now_millis: i64, seed: u64) -> Result<Repaired> {
    // Later numbers are those of the oplog's trees and of the retry records.
    let own = |ident: &&Ident| **ident < LOG_TREES;
    let mut repair = Repair {
        engine,
        context: Context::new(0, seed, Arc::new(Uninterrupted)),
        idents: idents.clone(),
        next_ident: idents.iter().filter(own).map(|ident| ident.0 + 1).max().unwrap_or(1).max(CATALOG.0 + 1),
        random: Random::new(seed),
        now_millis,
        done: Repaired::default(),
    };
    let collections = repair.catalog()?;
    let mut known: BTreeSet<Ident> = [CATALOG, RETRIES].into();
    for (key, collection) in collections {
        known.extend(collection.data.iter().flat_map(Data::idents));
        repair.rebuild(&key, collection)?;
    }
    let orphans: Vec<Ident> = idents.difference(&known).copied().collect();
    for ident in orphans {
        repair.adopt(ident)?;
    }
    Ok(repair.done)
}

impl Repair<'_> {
    fn note(&mut self, message: String) {
        log::warn!("repair: {message}");
        if self.done.notes.len() < NOTES_MAX {
            self.done.notes.push(message);
        }
    }

    fn commit(&self, batch: Batch) -> Result<()> {
        match batch.is_empty() {
            true => Ok(()),
            false => self.engine.commit(batch).map(drop).map_err(storage_error),
        }
    }

    /// Creates a tree and returns its number.
    fn create(&mut self, batch: &mut Batch) -> Ident {
        let ident = Ident(self.next_ident);
        self.next_ident += 1;
        self.idents.insert(ident);
        batch.create(ident);
        ident
    }

    /// Returns a new collection over a tree, with its index on `_id`.
    fn new_collection(&mut self, namespace: Namespace, ident: Ident, batch: &mut Batch) -> Collection {
        let index = self.create(batch);
        let index = Index::new(IndexSpec::id(Collation::default()), index, &[], self.now_millis);
        let indexes = vec![Arc::new(index)];
        let data = Data::new(ident, indexes, Arc::default());
        let uuid = self.random.uuid();
        Collection { namespace, uuid, options: Default::default(), data: Some(data), generation: 0 }
    }
}

// The catalog: valid entries stay, and invalid entries are removed and reported as lost.

impl Repair<'_> {
    /// Returns every readable collection and view with the key of its entry. Missing trees are created empty.
    fn catalog(&mut self) -> Result<Vec<(Key, Collection)>> {
        let mut batch = Batch::new();
        if self.idents.insert(CATALOG) {
            self.note("the catalog is lost, and with it the names of all collections".to_string());
            batch.create(CATALOG);
        }
        self.commit(batch)?;
        let snapshot = self.engine.snapshot();
        let mut entries = snapshot.scan(CATALOG, Range::all(), Direction::Forward).map_err(storage_error)?;
        let (mut collections, mut batch) = (Vec::new(), Batch::new());
        // Key of the present saved state, if its head is readable.
        let mut opened: Option<Key> = None;
        while let Some((key, value)) = entries.next().map_err(storage_error)? {
            let key = Key::from(key);
            if key.starts_with(SAVED) && is_head(&value) {
                opened = Some(key);
                continue;
            }
            let headless = key.starts_with(SAVED)
                && opened.as_ref().is_none_or(|head| !key.starts_with(&[head, &b"\0"[..]].concat()));
            match self.read(&key, &value) {
                Ok(collection) if !headless => collections.push((key, collection)),
                unreadable => {
                    let why = unreadable
                        .err()
                        .map_or("its snapshot is lost".to_string(), |error| error.to_string());
                    let name = String::from_utf8_lossy(&key).replace('\0', "/");
                    self.note(format!("{name}: the catalog's entry is lost: {why}"));
                    batch.delete(CATALOG, key);
                }
            }
        }
        drop(entries);
        for (_, collection) in &collections {
            for ident in collection.data.iter().flat_map(|data| data.idents()) {
                if self.idents.insert(ident) {
                    let namespace = &collection.namespace;
                    batch.create(ident);
                    self.next_ident = self.next_ident.max(ident.0 + 1);
                    if collection.data.as_ref().is_some_and(|data| data.ident == ident) {
                        self.note(format!("{namespace}: all documents are lost"));
                    }
                }
            }
        }
        self.commit(batch)?;
        Ok(collections)
    }

    fn read(&self, key: &Key, value: &[u8]) -> Result<Collection> {
        base::bson::validate(value)?;
        let collection = from_entry(Document::from_valid(value), &self.context)?;
        match key.starts_with(SAVED) || **key == *collection.namespace.as_str().as_bytes() {
            true => Ok(collection),
            false => Err(base::err!(DataCorruptionDetected, "it names {}", collection.namespace)),
        }
    }
}

fn is_head(value: &[u8]) -> bool {
    base::bson::validate(value).is_ok()
        && SavedStates::default().opens(Document::from_valid(value)).is_ok_and(|opens| opens)
}

/// Number of changes, and bytes of index keys, after which a batch is committed.
const BATCH: usize = 2000;
const BATCH_BYTES: usize = 1 << 20;

/// Prefix of collections for documents that had to be moved.
const LOST_AND_FOUND: &str = "local.lost_and_found.";

/// Defect of a document.
enum Fault {
    /// The document is invalid.
    Invalid(String),
    /// Another document has its key in a unique index.
    Duplicate(String),
}

/// Changes that the engine does not have yet.
#[derive(Default)]
struct Pending {
    batch: Batch,
    /// The keys of unique indexes in the batch.
    unique: BTreeSet<(Ident, Key)>,
    /// Bytes of the keys in the batch.
    bytes: usize,
}

impl Repair<'_> {
    /// Checks a collection and rebuilds its indexes. `key` is the key of its catalog entry.
    fn rebuild(&mut self, key: &Key, collection: Collection) -> Result<()> {
        let Some(data) = &collection.data else { return Ok(()) };
        let mut cleared = Batch::new();
        let blank = |index: &Arc<Index>| Arc::new(index.over(index.ident, false, index.since_millis));
        let indexes = data.indexes.iter().map(blank).collect();
        data.indexes.iter().for_each(|index| cleared.clear(index.ident));
        self.commit(cleared)?;
        let data = Data { indexes, ..data.clone() };
        let collection = Collection { data: Some(data.clone()), ..collection };
        let (mut moved, mut removed, mut records) = (Vec::new(), 0, 0);
        let mut pending = Pending::default();
        // Documents are read from this snapshot, whatever later batches change.
        let snapshot = self.engine.snapshot();
        let mut documents =
            snapshot.scan(data.ident, Range::all(), Direction::Forward).map_err(storage_error)?;
        while let Some((key, value)) = documents.next().map_err(storage_error)? {
            match self.index(&collection, &data, key, &value, &mut pending)? {
                None => records += 1,
                Some(Fault::Invalid(message)) => {
                    removed += 1;
                    pending.batch.delete(data.ident, key);
                    self.note(format!("{}: a record is lost: {message}", collection.namespace));
                }
                Some(Fault::Duplicate(index)) => {
                    removed += 1;
                    pending.batch.delete(data.ident, key);
                    moved.push((index, value.to_value()));
                }
            }
            if pending.batch.len() >= BATCH || pending.bytes >= BATCH_BYTES {
                self.commit(std::mem::take(&mut pending).batch)?;
            }
        }
        pending.batch.put(CATALOG, key.clone(), Value::from(entry(&collection).bytes()));
        self.commit(pending.batch)?;
        let (idents, namespace) = (data.idents().collect(), collection.namespace.clone());
        let found = RepairedCollection { namespace, idents, data: data.ident, records, removed };
        match key.starts_with(SAVED) {
            true => self.done.snapshots.push(found),
            false => self.done.collections.push(found),
        }
        self.keep_aside(&collection, moved)
    }

    /// Adds a document's keys to a batch, or returns its defect.
    fn index(
        &self,
        collection: &Collection,
        data: &Data,
        key: &[u8],
        value: &[u8],
        pending: &mut Pending,
    ) -> Result<Option<Fault>> {
        let Ok(id) = RecordId::from_key(key) else {
            return Ok(Some(Fault::Invalid(format!("its key has {} bytes", key.len()))));
        };
        if let Err(error) = base::bson::validate(value) {
            return Ok(Some(Fault::Invalid(format!("RecordId({}) is not valid BSON: {error}", id.0))));
        }
        let keys = match keys_of(collection, Document::from_valid(value), &self.context) {
            Ok(keys) => keys,
            Err(error) => return Ok(Some(Fault::Invalid(format!("RecordId({}): {error}", id.0)))),
        };
        if let Some(index) = self.duplicate(data, &keys, id, &pending.unique)? {
            return Ok(Some(Fault::Duplicate(index)));
        }
        for (index, keys) in data.indexes.iter().zip(&keys) {
            index.note_multikey(&keys.multikey);
            for key in &keys.keys {
                let entry = IndexEntry { key_string: &key.key_string, type_bits: &key.type_bits, record: id };
                let (key, value) = entry.to_parts(index.unique());
                if index.unique() {
                    pending.unique.insert((index.ident, key.clone()));
                }
                pending.batch.put(index.ident, key, value);
            }
            pending.bytes += keys.bytes();
        }
        Ok(None)
    }

    /// Returns the unique index in which another document has a key of this one.
    fn duplicate(
        &self,
        data: &Data,
        keys: &[DocumentKeys],
        id: RecordId,
        pending: &BTreeSet<(Ident, Key)>,
    ) -> Result<Option<String>> {
        let snapshot = self.engine.snapshot();
        for (index, keys) in data.indexes.iter().zip(keys).filter(|(index, _)| index.unique()) {
            for key in &keys.keys {
                let entry = IndexEntry { key_string: &key.key_string, type_bits: &key.type_bits, record: id };
                let (key, _) = entry.to_parts(true);
                let there = pending.contains(&(index.ident, key.clone()))
                    || snapshot.get(index.ident, &key).map_err(storage_error)?.is_some();
                if there {
                    return Ok(Some(index.spec.name.clone()));
                }
            }
        }
        Ok(None)
    }

    /// Moves the conflicting documents into a collection of their own.
    fn keep_aside(&mut self, collection: &Collection, moved: Vec<(String, Value)>) -> Result<()> {
        let Some((index, _)) = moved.first() else { return Ok(()) };
        if collection.namespace.as_str().starts_with(LOST_AND_FOUND) {
            self.note(format!(
                "{}: {} documents with a duplicate _id are lost",
                collection.namespace,
                moved.len()
            ));
            return Ok(());
        }
        let name = format!("{LOST_AND_FOUND}{}", encoding::uuid(&collection.uuid));
        self.note(format!(
            "{}: {} documents have duplicate keys in index {index} or another unique index: they are in {name}",
            collection.namespace,
            moved.len()
        ));
        let mut batch = Batch::new();
        let ident = self.create(&mut batch);
        for (number, (_, value)) in moved.into_iter().enumerate() {
            batch.put(ident, RecordId(number as u64 + 1).key(), value);
        }
        self.name(&name, ident, batch)
    }

    /// Makes a collection of a tree without an owner if it holds documents. Drops the tree if not.
    fn adopt(&mut self, ident: Ident) -> Result<()> {
        let snapshot = self.engine.snapshot();
        let mut entries = snapshot.scan(ident, Range::all(), Direction::Forward).map_err(storage_error)?;
        let mut holds_documents = false;
        if let Some((key, value)) = entries.next().map_err(storage_error)? {
            holds_documents = RecordId::from_key(key).is_ok() && base::bson::validate(&value).is_ok();
        }
        drop(entries);
        let mut batch = Batch::new();
        if !holds_documents {
            batch.drop_ident(ident);
            return self.commit(batch);
        }
        let name = format!("local.orphan.{}", ident.0);
        self.note(format!("documents of an unknown collection are in {name}"));
        self.name(&name, ident, batch)
    }

    /// Creates a collection over a tree.
    fn name(&mut self, name: &str, ident: Ident, mut batch: Batch) -> Result<()> {
        let collection = self.new_collection(Namespace::parse(name)?, ident, &mut batch);
        self.commit(batch)?;
        self.rebuild(&Key::from(name.as_bytes()), collection)
    }
}
