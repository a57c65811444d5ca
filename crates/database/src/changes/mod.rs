//! Changes of a statement: documents before and after, index entries added and removed, and the
//! conditions for the commit.
//!
//! [`Changes`] are built without a lock. Their expectations are the conditions: each collection is
//! still the planned one, each record still has the bytes that were read, and the keys of unique
//! indexes are free. [`Database::apply`](crate::Database) commits the changes, or reports that a
//! condition no longer holds (optimistic concurrency control). A new kind of write is a function of [`Changes`], which
//! adds its expectations first.

pub(crate) mod logged;
pub(crate) mod open_transaction;
pub(crate) mod retry_record;

use crate::catalog::collection::{Collection, Data};
use crate::changes::logged::Logged;
use crate::changes::retry_record::RetryKey;
use crate::index::duplicate_key;
use crate::index::{DocumentKeys, Index, KeyOf};
use crate::keys::{IndexEntry, RETRIES, RecordId};
use base::bson::DocumentBuf;
use base::{Error, Namespace, Result};
use foldhash::fast::RandomState;
use smallvec::SmallVec;
use std::collections::HashSet;
use std::sync::Arc;
use storage::store::{Change, Committed, Expect, SideEffect, WriteIntent};
use storage::{Ident, Key, Op, Value, mutant};

/// A change of documents, under construction.
#[derive(Default)]
pub(crate) struct Changes {
    pub(crate) change: Change,
    /// The expectations that a unique key is free.
    unique: SmallVec<[UniqueKey; 1]>,
    /// The expectations about records of retryable statements.
    retries: Vec<usize>,
    /// The records of retryable statements in a store of several processes.
    pub(crate) records: Vec<(RetryKey, Value)>,
    /// The collections expected to be unchanged, by tree.
    pub(crate) collections: SmallVec<[Arc<Collection>; 1]>,
    /// Unique keys that these changes add, for duplicates within the statement.
    added_keys: HashSet<(Ident, Key), RandomState>,
    /// Log entries of the changes, if changes are logged.
    pub(crate) logged: Option<Vec<Logged>>,
    /// The retryable write or the transaction of the changes.
    pub(crate) retry: Option<RetryKey>,
    /// True if the changes add documents or make them longer.
    pub(crate) grows_data: bool,
    /// Number of changed documents.
    pub(crate) documents: usize,
    /// Namespaces whose watchers must be notified.
    pub(crate) changed: SmallVec<[Namespace; 1]>,
}

/// Result of applying changes.
pub(crate) enum Applied {
    /// The changes are committed.
    Committed(Committed),
    /// A condition no longer holds. The statement must read again.
    Retry,
    /// The document of this number has the key of another document in a unique index.
    Duplicate(usize, Error),
}

/// A key of a unique index that must be free.
struct UniqueKey {
    expectation: usize,
    /// Number of the changed document with the key, from zero.
    document: usize,
    index: Arc<Index>,
}

/// Returns a document as a stored value. Debug builds check that it is valid BSON.
fn stored(document: Arc<[u8]>) -> Value {
    debug_assert!(base::bson::is_well_formed(&document), "a document that is stored is valid BSON");
    Value::from(document)
}

impl Changes {
    /// Returns empty changes; `logs` enables the log entries.
    pub(crate) fn new(logs: bool) -> Changes {
        // Every write calls this. With `..Changes::default()` it would fill a second value of some 500 bytes and move
        // it.
        Changes {
            change: Change::default(),
            unique: SmallVec::new(),
            retries: Vec::new(),
            records: Vec::new(),
            collections: SmallVec::new(),
            added_keys: HashSet::default(),
            logged: logs.then(Vec::new),
            retry: None,
            grows_data: false,
            documents: 0,
            changed: SmallVec::new(),
        }
    }

    /// Reserves space for this number of new documents of a collection.
    pub(crate) fn reserve(&mut self, documents: usize, data: &Data) {
        let indexes = || data.written_indexes();
        let unique = documents * indexes().filter(|index| index.unique()).count();
        self.change.batch.reserve(documents * (1 + indexes().count()));
        self.change.expect.reserve(unique + 1);
        self.unique.reserve(unique);
        self.added_keys.reserve(unique);
    }

    /// Asserts that a document has a set of keys for each index that the change writes. Each set is sorted.
    fn assert_keys(data: &Data, keys: &[DocumentKeys]) {
        debug_assert_eq!(keys.len(), data.written_indexes().count(), "the keys belong to other indexes");
        debug_assert!(keys.iter().all(|keys| keys.keys.is_sorted_by(|a, b| a < b)), "keys are out of order");
    }

    /// Returns true if the changes expect that a unique key is free.
    pub(crate) fn adds_unique_keys(&self) -> bool {
        !self.unique.is_empty()
    }

    /// Records the statement of the latest change.
    ///
    /// Errors: IllegalOperation for a collection without entries in the log.
    pub(crate) fn set_statement(&mut self, retry: RetryKey) -> Result<()> {
        self.retry = Some(retry);
        match self.logged.as_mut().and_then(|logged| logged.last_mut()) {
            Some(last) => last.set_statement(retry.statement),
            None => Ok(()),
        }
    }

    /// Returns true if the changes write nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.change.batch.is_empty()
    }

    /// Adds an insert; `keys` are the document's keys in each index of the collection, in order.
    ///
    /// Errors: DuplicateKey, if these changes already contain the key.
    pub(crate) fn insert(
        &mut self,
        collection: &Arc<Collection>,
        id: RecordId,
        document: Arc<[u8]>,
        keys: &[DocumentKeys],
    ) -> Result<()> {
        let data = self.expect_generation(collection)?;
        Changes::assert_keys(data, keys);
        let built = data.indexes.len();
        for (at, (index, document_keys)) in data.written_indexes().zip(keys).enumerate() {
            for key in &document_keys.keys {
                self.expect_unique(collection, data, index, key)?;
                self.put_entry(index, key, id, at < built);
            }
        }
        self.count(collection, data, 1, document.len() as i64);
        self.grows_data = true;
        let document = stored(document);
        if let Some(logged) = &mut self.logged {
            logged.push(Logged::insert(collection, document.clone()));
        }
        // The record id is new.
        self.change.batch.put_new(data.ident, id.key(), document);
        Ok(())
    }

    /// Adds an update of a record that had these bytes. `old_keys` and `new_keys` are its keys in
    /// each index, in order. `diff` replaces the whole document in the log.
    ///
    /// Errors: DuplicateKey, as for [`insert`](Self::insert).
    pub(crate) fn update(
        &mut self,
        collection: &Arc<Collection>,
        id: RecordId,
        before: &Value,
        document: Arc<[u8]>,
        (old_keys, new_keys): (&[DocumentKeys], &[DocumentKeys]),
        diff: Option<DocumentBuf>,
    ) -> Result<()> {
        let data = self.expect_generation(collection)?;
        Changes::assert_keys(data, old_keys);
        Changes::assert_keys(data, new_keys);
        self.expect_value(data.ident, id, before);
        let built = data.indexes.len();
        for (at, (index, (old, new))) in data.written_indexes().zip(old_keys.iter().zip(new_keys)).enumerate()
        {
            self.expect_entries(data, index, old, id);
            for key in old.keys.iter().filter(|key| new.keys.binary_search(key).is_err()) {
                self.delete_entry(index, key, id);
            }
            for key in &new.keys {
                let is_new = old.keys.binary_search(key).is_err();
                // An equal value of another type: the record already has the key.
                let is_own = old.has_key_string(&key.key_string);
                if is_new && !is_own {
                    self.expect_unique(collection, data, index, key)?;
                }
                // An index build may not have the old entries yet, and will not load them any more.
                if is_new || at >= built {
                    self.put_entry(index, key, id, is_new && !is_own && at < built);
                }
            }
        }
        self.mark(data, id);
        self.count(collection, data, 0, document.len() as i64 - before.len() as i64);
        self.grows_data |= document.len() > before.len();
        let document = stored(document);
        if let Some(logged) = &mut self.logged {
            logged.push(Logged::update(collection, before, document.clone(), diff));
        }
        self.change.batch.put(data.ident, id.key(), document);
        Ok(())
    }

    /// Adds a delete of a record that had these bytes, and of its keys.
    pub(crate) fn delete(
        &mut self,
        collection: &Arc<Collection>,
        id: RecordId,
        before: &Value,
        keys: &[DocumentKeys],
    ) -> Result<()> {
        let data = self.expect_generation(collection)?;
        Changes::assert_keys(data, keys);
        self.expect_value(data.ident, id, before);
        for (index, document_keys) in data.written_indexes().zip(keys) {
            self.expect_entries(data, index, document_keys, id);
            for key in &document_keys.keys {
                self.delete_entry(index, key, id);
            }
        }
        self.mark(data, id);
        self.count(collection, data, -1, -(before.len() as i64));
        if let Some(logged) = &mut self.logged {
            logged.push(Logged::delete(collection, before));
        }
        self.change.batch.delete(data.ident, id.key());
        Ok(())
    }

    /// Adds the record of a retryable statement.
    pub(crate) fn put_retry(&mut self, retry: RetryKey, value: Value) {
        self.change.batch.put(RETRIES, retry.to_key(), value.clone());
        self.records.push((retry, value));
    }

    /// Adds the record of a retryable statement, to which a store of one process appends the
    /// commit's time.
    pub(crate) fn stamp_retry(&mut self, key: Key, value: Value) {
        debug_assert!(self.change.stamped.iter().all(|(_, other, _)| *other != key), "two answers");
        self.change.stamped.push((RETRIES, key, value));
    }

    /// Adds the expectation that the record of a retryable statement is unchanged since it was
    /// read.
    pub(crate) fn expect_retry(&mut self, key: Key, value: Option<Value>) {
        self.retries.push(self.change.expect.len());
        self.change.expect.push(Expect::Value { ident: RETRIES, key, value });
    }

    /// Returns true if an expectation is that no other process has run the same retryable
    /// statement.
    pub(crate) fn is_retry(&self, expectation: usize) -> bool {
        self.retries.contains(&expectation)
    }

    /// Removes the record of a retryable statement if it is unchanged since it was read.
    pub(crate) fn delete_retry(&mut self, key: Key, seen: Value) {
        self.change.expect.push(Expect::Value { ident: RETRIES, key: key.clone(), value: Some(seen) });
        self.change.batch.delete(RETRIES, key);
    }

    /// Returns the result of a failed expectation: a duplicate key, or a retry of the statement because the document or
    /// the collection has changed.
    pub(crate) fn outcome_of(&self, expectation: usize) -> Applied {
        debug_assert!(expectation < self.change.expect.len(), "no expectation {expectation}");
        match self.unique.iter().find(|unique| unique.expectation == expectation) {
            Some(unique) => {
                let key = self.key_of(unique);
                let has_index = |collection: &&Arc<Collection>| {
                    let mut indexes = collection.data.iter().flat_map(|data| data.written_indexes());
                    indexes.any(|index| Arc::ptr_eq(index, &unique.index))
                };
                match self.collections.iter().find(has_index) {
                    Some(collection) => {
                        let error = duplicate_key(&collection.namespace, &unique.index, &key);
                        Applied::Duplicate(unique.document, error)
                    }
                    None => Applied::Retry,
                }
            }
            None => Applied::Retry,
        }
    }

    /// Makes an index build start again if the expectation is about one of its keys. Returns true if it was.
    /// Two documents with the same key concern the build, not the write.
    pub(crate) fn restarts_build(&self, expectation: usize) -> bool {
        let unique = self.unique.iter().find(|unique| unique.expectation == expectation);
        let Some(unique) = unique else { return false };
        let building = self.collections.iter().filter_map(|collection| collection.data.as_ref());
        let mut building = building.flat_map(|data| &data.building);
        let Some(build) = building.find(|build| Arc::ptr_eq(&build.index, &unique.index)) else {
            return false;
        };
        let key = self.key_of(unique);
        *build.build.duplicate.lock() = Some((key.key_string, key.type_bits));
        true
    }

    /// Returns the tree and key string of an expectation about a unique key.
    fn key_at(&self, expectation: usize) -> Option<(Ident, Key)> {
        match self.change.expect.get(expectation)? {
            Expect::Value { ident, key, .. } => Some((*ident, key.clone())),
            Expect::NoneUnder { ident, prefix } => Some((*ident, prefix.clone())),
            Expect::NoneOr { ident, key, .. } => Some((*ident, key.clone())),
            Expect::Generation { .. } => None,
        }
    }

    /// Returns the key that must be free, with its type bits.
    fn key_of(&self, unique: &UniqueKey) -> KeyOf {
        debug_assert!(self.key_at(unique.expectation).is_some(), "the expectation is not about a key");
        let Some((ident, key_string)) = self.key_at(unique.expectation) else {
            return KeyOf { key_string: Vec::new(), type_bits: Vec::new() };
        };
        let is_unique = unique.index.unique();
        let entry = self.change.batch.ops().iter().find_map(|op| match op {
            Op::Put { ident: tree, key, value } if *tree == ident && key.starts_with(&key_string) => {
                let entry = IndexEntry::from_parts(key, value, is_unique).ok()?;
                (entry.key_string == &*key_string).then(|| entry.type_bits.to_vec())
            }
            _ => None,
        });
        KeyOf { key_string: key_string.to_vec(), type_bits: entry.unwrap_or_default() }
    }

    /// Returns the write intents of a transaction with these changes: keys of records and of unique indexes.
    pub(crate) fn write_intents(&self) -> Vec<WriteIntent> {
        let mut exclusive: HashSet<Ident> = HashSet::new();
        for data in self.collections.iter().filter_map(|collection| collection.data.as_ref()) {
            exclusive.insert(data.ident);
            let unique = data.written_indexes().filter(|index| index.unique());
            exclusive.extend(unique.map(|index| index.ident));
        }
        let touched = self.change.batch.ops().iter().filter_map(|op| match op {
            Op::Put { ident, key, .. } | Op::Delete { ident, key } if exclusive.contains(ident) => {
                Some(WriteIntent::Key(*ident, key.clone()))
            }
            _ => None,
        });
        let prepared = self.change.expect.iter().filter_map(|expect| match expect {
            Expect::NoneUnder { ident, prefix } => Some(WriteIntent::Under(*ident, prefix.clone())),
            _ => None,
        });
        touched.chain(prepared).collect()
    }

    fn expect_generation<'a>(&mut self, collection: &'a Arc<Collection>) -> Result<&'a Data> {
        let data = collection.data()?;
        if !self.collections.iter().any(|known| Arc::ptr_eq(known, collection)) {
            let (ident, generation) = (data.ident, collection.generation);
            self.change.expect.push(Expect::Generation { ident, generation });
            self.collections.push(collection.clone());
        }
        self.documents += 1;
        if self.documents == 2 {
            let first = self.unique.iter().filter_map(|unique| self.key_at(unique.expectation));
            let first: SmallVec<[(Ident, Key); 1]> = first.collect();
            self.added_keys.extend(first);
        }
        Ok(data)
    }

    fn expect_value(&mut self, ident: Ident, id: RecordId, before: &Value) {
        self.change.expect.push(Expect::Value { ident, key: id.key(), value: Some(before.clone()) });
    }

    /// Adds the expectation that a key is free, if the index refuses duplicates.
    fn expect_unique(
        &mut self,
        collection: &Collection,
        data: &Data,
        index: &Arc<Index>,
        key: &KeyOf,
    ) -> Result<()> {
        // Entries of a unique index have no record id after their key.
        let prepared = index.spec.prepare_unique && !index.unique();
        if !prepared && !index.unique() || mutant!("unique keys are not checked") {
            return Ok(());
        }
        let build = data.building.iter().find(|build| Arc::ptr_eq(&build.index, index));
        // A prepared index checks only entries added after its build.
        if build.is_some_and(|build| prepared || build.build.has_failed()) {
            return Ok(());
        }
        let at = (index.ident, Key::from(key.key_string.as_slice()));
        if self.added_keys.contains(&at) {
            return Err(duplicate_key(&collection.namespace, index, key));
        }
        self.record_unique(index);
        self.change.expect.push(match prepared {
            true => Expect::NoneUnder { ident: at.0, prefix: at.1.clone() },
            false => Expect::Value { ident: at.0, key: at.1.clone(), value: None },
        });
        // A single document has each key once and cannot conflict with itself.
        if self.documents > 1 {
            self.added_keys.insert(at);
        }
        Ok(())
    }

    /// Adds the expectation that a record's keys in a unique index build lead to the record, if the
    /// entries exist. The build may have found another record with the same key.
    fn expect_entries(&mut self, data: &Data, index: &Arc<Index>, keys: &DocumentKeys, record: RecordId) {
        let mut building = data.building.iter();
        let build = building.find(|build| Arc::ptr_eq(&build.index, index));
        if mutant!("entries in an index being built are not checked") {
            return;
        }
        if !index.unique() || build.is_none_or(|build| build.build.has_failed()) {
            return;
        }
        for key in &keys.keys {
            let entry = IndexEntry { key_string: &key.key_string, type_bits: &key.type_bits, record };
            let (key, value) = entry.to_parts(true);
            self.record_unique(index);
            self.change.expect.push(Expect::NoneOr { ident: index.ident, key, value });
        }
    }

    /// Records the key of the next expectation.
    fn record_unique(&mut self, index: &Arc<Index>) {
        debug_assert!(self.documents > 0, "a key of no document");
        let last = self.unique.last().map(|unique| unique.expectation);
        debug_assert!(last.is_none_or(|last| last < self.change.expect.len()), "two keys of one expectation");
        self.unique.push(UniqueKey {
            expectation: self.change.expect.len(),
            document: self.documents - 1,
            index: index.clone(),
        });
    }

    /// Adds an index entry. In an index that is not unique, `is_first` means that the entry is
    /// known to be new. In a unique index, this is only expected.
    fn put_entry(&mut self, index: &Index, key: &KeyOf, record: RecordId, is_first: bool) {
        let entry = IndexEntry { key_string: &key.key_string, type_bits: &key.type_bits, record };
        let (key, value) = entry.to_parts(index.unique());
        match is_first && !index.unique() {
            true => self.change.batch.put_new(index.ident, key, value),
            false => self.change.batch.put(index.ident, key, value),
        }
    }

    fn delete_entry(&mut self, index: &Index, key: &KeyOf, record: RecordId) {
        if mutant!("old index entries are not removed") {
            return;
        }
        let entry = IndexEntry { key_string: &key.key_string, type_bits: &key.type_bits, record };
        self.change.batch.delete(index.ident, entry.to_parts(index.unique()).0);
    }

    /// Marks a record for index builds: their snapshots have an outdated version.
    fn mark(&mut self, data: &Data, id: RecordId) {
        debug_assert!(self.documents > 0 && !self.collections.is_empty(), "the change expects no collection");
        for build in &data.building {
            self.change.side_effects.push(SideEffect::Mark(build.build.clone(), id.0));
        }
    }

    fn count(&mut self, collection: &Collection, data: &Data, records: i64, bytes: i64) {
        match self.change.side_effects.last_mut() {
            Some(SideEffect::Count { counts, records: all_records, bytes: all_bytes })
                if Arc::ptr_eq(counts, &data.counts) =>
            {
                *all_records += records;
                *all_bytes += bytes;
            }
            _ => self.change.side_effects.push(SideEffect::Count {
                counts: data.counts.clone(),
                records,
                bytes,
            }),
        }
        if self.changed.last() != Some(&collection.namespace) {
            self.changed.push(collection.namespace.clone());
        }
    }
}
