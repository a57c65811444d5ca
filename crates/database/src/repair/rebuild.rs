//! Collections: documents looked through, indexes built anew.

use super::{Repair, RepairedCollection};
use crate::catalog_entry::entry;
use crate::collection::{Collection, Data};
use crate::commit::uuid_text;
use crate::index::{DocumentKeys, Index};
use crate::keys::{CATALOG, IndexEntry, RecordId};
use crate::storage_error;
use crate::write::keys_of;
use base::bson::Document;
use base::{Namespace, Result};
use std::collections::BTreeSet;
use std::sync::Arc;
use storage::{Batch, Direction, Ident, Key, Range, Value};

/// A batch of documents' keys is committed when it has so many changes.
const BATCH: usize = 2000;

/// What the names of collections for documents that cannot stay where they were begin with.
const LOST_AND_FOUND: &str = "local.lost_and_found.";

/// What stands against a document.
enum Fault {
    /// It is none.
    Invalid(String),
    /// Another has its key in a unique index.
    Duplicate(String),
}

/// Keys put by the batch under way, which the engine doesn't have yet.
type Fresh = BTreeSet<(Ident, Key)>;

impl Repair<'_> {
    /// Looks through a collection and builds its indexes anew; `key` is that of its catalog entry.
    pub(super) fn rebuild(&mut self, key: &Key, collection: Collection) -> Result<()> {
        let Some(data) = &collection.data else { return Ok(()) };
        let mut batch = Batch::new();
        let blank = |index: &Arc<Index>| Arc::new(index.over(index.ident, false, index.since_millis));
        let indexes = data.indexes.iter().map(blank).collect();
        data.indexes.iter().for_each(|index| batch.clear(index.ident));
        self.commit(std::mem::take(&mut batch))?;
        let data = Data { indexes, ..data.clone() };
        let collection = Collection { data: Some(data.clone()), ..collection };
        let (mut moved, mut removed, mut records) = (Vec::new(), 0, 0);
        let mut fresh = Fresh::new();
        // The documents are read as they are now, whatever becomes of them meanwhile.
        let snapshot = self.engine.snapshot();
        let mut documents =
            snapshot.scan(data.ident, Range::all(), Direction::Forward).map_err(storage_error)?;
        while let Some((key, value)) = documents.next().map_err(storage_error)? {
            match self.index(&collection, &data, key, &value, &mut batch, &mut fresh)? {
                None => records += 1,
                Some(Fault::Invalid(what)) => {
                    removed += 1;
                    batch.delete(data.ident, key);
                    self.note(format!("{}: a record is lost: {what}", collection.namespace));
                }
                Some(Fault::Duplicate(index)) => {
                    removed += 1;
                    batch.delete(data.ident, key);
                    moved.push((index, value.to_value()));
                }
            }
            if batch.len() >= BATCH {
                self.commit(std::mem::take(&mut batch))?;
                fresh.clear();
            }
        }
        batch.put(CATALOG, key.clone(), Value::from(entry(&collection).bytes()));
        self.commit(batch)?;
        if !key.starts_with(crate::keys::SAVED) {
            let idents = data.idents().collect();
            let namespace = collection.namespace.clone();
            let found = RepairedCollection { namespace, idents, data: data.ident, records, removed };
            self.done.collections.push(found);
        }
        self.keep_aside(&collection, moved)
    }

    /// Puts a document's keys into a batch, or says what stands against the document.
    fn index(
        &self,
        collection: &Collection,
        data: &Data,
        key: &[u8],
        value: &[u8],
        batch: &mut Batch,
        fresh: &mut Fresh,
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
        if let Some(index) = self.duplicate(data, &keys, id, fresh)? {
            return Ok(Some(Fault::Duplicate(index)));
        }
        for (index, keys) in data.indexes.iter().zip(&keys) {
            index.note_multikey(&keys.multikey);
            for key in &keys.keys {
                let entry = IndexEntry { key_string: &key.key_string, type_bits: &key.type_bits, record: id };
                let (key, value) = entry.to_parts(index.unique());
                if index.unique() {
                    fresh.insert((index.ident, key.clone()));
                }
                batch.put(index.ident, key, value);
            }
        }
        Ok(None)
    }

    /// The unique index in which another document has a key of this one.
    fn duplicate(
        &self,
        data: &Data,
        keys: &[DocumentKeys],
        id: RecordId,
        fresh: &Fresh,
    ) -> Result<Option<String>> {
        let snapshot = self.engine.snapshot();
        for (index, keys) in data.indexes.iter().zip(keys).filter(|(index, _)| index.unique()) {
            for key in &keys.keys {
                let entry = IndexEntry { key_string: &key.key_string, type_bits: &key.type_bits, record: id };
                let (key, _) = entry.to_parts(true);
                let there = fresh.contains(&(index.ident, key.clone()))
                    || snapshot.get(index.ident, &key).map_err(storage_error)?.is_some();
                if there {
                    return Ok(Some(index.spec.name.clone()));
                }
            }
        }
        Ok(None)
    }

    /// Puts the documents that were in the way of others into a collection of their own.
    fn keep_aside(&mut self, collection: &Collection, moved: Vec<(String, Value)>) -> Result<()> {
        let Some((index, _)) = moved.first() else { return Ok(()) };
        if collection.namespace.as_str().starts_with(LOST_AND_FOUND) {
            self.note(format!(
                "{}: {} documents of the same _id are lost",
                collection.namespace,
                moved.len()
            ));
            return Ok(());
        }
        let name = format!("{LOST_AND_FOUND}{}", uuid_text(&collection.uuid));
        self.note(format!(
            "{}: {} documents have keys of others, in index {index} or another unique one: they are in {name}",
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

    /// Gives a tree that nobody names a collection, if it holds documents, and else lets it go.
    pub(super) fn adopt(&mut self, ident: Ident) -> Result<()> {
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

    /// Makes a collection over a tree.
    fn name(&mut self, name: &str, ident: Ident, mut batch: Batch) -> Result<()> {
        let collection = self.new_collection(Namespace::parse(name)?, ident, &mut batch);
        self.commit(batch)?;
        self.rebuild(&Key::from(name.as_bytes()), collection)
    }
}
