//! validate: whether indexes and documents agree, entry by entry.

use crate::collection::Data;
use crate::database::Database;
use crate::index::Index;
use crate::keys::{IndexEntry, RecordId};
use crate::storage_error;
use crate::write::keys_of;
use base::bson::Document;
use base::{Namespace, Result};
use query::Context;
use std::sync::atomic::Ordering::Relaxed;
use storage::{Direction, Range, Snapshot};

/// What validate found.
#[derive(Debug, Default)]
pub struct Validation {
    /// Documents.
    pub records: u64,
    /// Documents whose bytes are not valid BSON.
    pub invalid: u64,
    /// Entries of each index.
    pub keys_per_index: Vec<(String, u64)>,
    /// Everything that is wrong, in words.
    pub errors: Vec<String>,
}

impl Database {
    /// Reads every document and every index entry of a collection and compares them: each key of
    /// each document is in each index and points back, nothing else is there, counts are right.
    ///
    /// Errors: NamespaceNotFound, CommandNotSupportedOnView, what interrupts the operation.
    pub fn validate(&self, namespace: &Namespace, context: &Context) -> Result<Validation> {
        let view = self.view();
        let collection = view.catalog.require(namespace)?.clone();
        let data = collection.data()?;
        let mut found = Validation::default();
        let mut expected = vec![0u64; data.indexes.len()];
        let mut records =
            view.snapshot.scan(data.ident, Range::all(), Direction::Forward).map_err(storage_error)?;
        while let Some((key, value)) = records.next().map_err(storage_error)? {
            context.interrupt.check()?;
            found.records += 1;
            if base::bson::validate(value).is_err() {
                found.invalid += 1;
                found.errors.push(format!("record {:?} is not valid BSON", RecordId::from_key(key)?));
                continue;
            }
            let id = RecordId::from_key(key)?;
            let keys = keys_of(&collection, Document::from_valid(value), context)?;
            for ((index, keys), expected) in data.indexes.iter().zip(&keys).zip(&mut expected) {
                *expected += keys.keys.len() as u64;
                found.check_keys(view.snapshot.as_ref(), index, keys, id)?;
            }
        }
        for (index, expected) in data.indexes.iter().zip(expected) {
            let entries = view.snapshot.entries(index.ident).map_err(storage_error)?;
            if entries != expected {
                let name = &index.spec.name;
                found
                    .errors
                    .push(format!("index {name} has {entries} entries, its documents have {expected}"));
            }
            found.keys_per_index.push((index.spec.name.clone(), entries));
        }
        found.check_count(data);
        Ok(found)
    }
}

impl Validation {
    fn check_keys(
        &mut self,
        snapshot: &dyn Snapshot,
        index: &Index,
        keys: &crate::index::DocumentKeys,
        id: RecordId,
    ) -> Result<()> {
        for key in &keys.keys {
            let entry = IndexEntry { key_string: &key.key_string, type_bits: &key.type_bits, record: id };
            let (stored_key, value) = entry.to_parts(index.unique());
            if snapshot.get(index.ident, &stored_key).map_err(storage_error)?.as_ref() != Some(&value) {
                self.errors.push(format!("index {} lacks a key of record {}", index.spec.name, id.0));
            }
        }
        Ok(())
    }

    fn check_count(&mut self, data: &Data) {
        let counted = data.counts.records.load(Relaxed);
        if counted != self.records as i64 {
            // Commits go on while validate reads, so this is only a warning in MongoDB too.
            log::info!("validate: {} documents read, {counted} counted by now", self.records);
        }
    }
}
