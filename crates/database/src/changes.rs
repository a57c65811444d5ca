//! What a statement changes: documents with their images before and after, the index entries that come and
//! go, and what all of that rests on.
//!
//! [`Changes`] are put together without any lock. They say what they expect: that each collection is the one
//! that was planned on, that each record still has the bytes that were read, that the keys of unique indexes
//! are free. [`Database::apply`](crate::Database) commits them, or tells that something has changed since.

use crate::collection::{Collection, Data};
use crate::duplicate::duplicate_key;
use crate::index::{DocumentKeys, Index, KeyOf};
use crate::keys::{IndexEntry, RETRIES, RecordId};
use crate::logged::Logged;
use crate::retry_record::RetryKey;
use base::bson::DocumentBuf;
use base::{Error, Namespace, Result};
use foldhash::fast::RandomState;
use smallvec::SmallVec;
use std::collections::HashSet;
use std::sync::Arc;
use storage::store::{Beside, Change, Claim, Expect, Written};
use storage::{Ident, Key, Op, Position, Value, mutant};

/// A change to documents, being put together.
#[derive(Default)]
pub(crate) struct Changes {
    pub(crate) change: Change,
    /// Which expectations are keys that must be free.
    unique: SmallVec<[UniqueKey; 1]>,
    /// Which expectations are about records of retryable statements.
    retries: Vec<usize>,
    /// The collections expected to be the same, by tree.
    pub(crate) collections: SmallVec<[Arc<Collection>; 1]>,
    /// The unique keys that these changes themselves take.
    taken: HashSet<(Ident, Key), RandomState>,
    /// What is logged of them, where changes are logged.
    pub(crate) logged: Option<Vec<Logged>>,
    /// The retryable write or the transaction that they belong to.
    pub(crate) retry: Option<RetryKey>,
    /// Whether they make documents more or longer.
    pub(crate) stores: bool,
    /// How many documents are changed.
    pub(crate) documents: usize,
    /// Namespaces to tell of.
    pub(crate) changed: SmallVec<[Namespace; 1]>,
}

/// What a commit tells its caller.
#[derive(Clone, Copy, Debug, Default)]
pub struct Committed {
    /// What to wait for when the write concern asks for the journal.
    pub position: Position,
    /// The time of the commit: seconds in the high half, a counter in the low.
    pub cluster_time: u64,
}

impl From<Written> for Committed {
    fn from(written: Written) -> Committed {
        Committed { position: written.position, cluster_time: written.time }
    }
}

/// What became of changes.
pub(crate) enum Applied {
    /// They are committed.
    Done(Committed),
    /// Something that they rest on has changed: the statement is to read again.
    Again,
    /// The document of this number has a key that isn't free.
    Duplicate(usize, Error),
}

/// A key of a unique index that must be free.
struct UniqueKey {
    expectation: usize,
    /// Which of the changed documents has it, counted from zero.
    document: usize,
    index: Arc<Index>,
}

/// A document as the store takes it. Debug builds check that it is valid BSON.
fn stored(document: Arc<[u8]>) -> Value {
    debug_assert!(base::bson::is_well_formed(&document), "a document that is stored is valid BSON");
    Value::from(document)
}

impl Changes {
    /// Changes whose log is kept where `logs` says so.
    pub(crate) fn new(logs: bool) -> Changes {
        Changes { logged: logs.then(Vec::new), ..Changes::default() }
    }

    /// Makes room for so many new documents of a collection.
    pub(crate) fn reserve(&mut self, documents: usize, data: &Data) {
        let indexes = || data.written_indexes();
        let unique = documents * indexes().filter(|index| index.unique()).count();
        self.change.batch.reserve(documents * (1 + indexes().count()));
        self.change.expect.reserve(unique + 1);
        self.unique.reserve(unique);
        self.taken.reserve(unique);
    }

    /// Notes which statement the change put together last belongs to.
    pub(crate) fn of_statement(&mut self, retry: RetryKey) {
        self.retry = Some(retry);
        if let Some(last) = self.logged.as_mut().and_then(|logged| logged.last_mut()) {
            last.of_statement(retry.statement);
        }
    }

    /// Whether there is nothing to store.
    pub(crate) fn is_empty(&self) -> bool {
        self.change.batch.is_empty()
    }

    /// Stores a new document; `keys` are its keys in each index of the collection, in order.
    ///
    /// Errors: DuplicateKey, where these changes have taken the key themselves.
    pub(crate) fn insert(
        &mut self,
        collection: &Arc<Collection>,
        id: RecordId,
        document: Arc<[u8]>,
        keys: &[DocumentKeys],
    ) -> Result<()> {
        let data = self.expect_same(collection)?;
        let built = data.indexes.len();
        for (at, (index, document_keys)) in data.written_indexes().zip(keys).enumerate() {
            for key in &document_keys.keys {
                self.expect_free(collection, data, index, key)?;
                self.put_entry(index, key, id, at < built);
            }
        }
        self.count(collection, data, 1, document.len() as i64);
        self.stores = true;
        let document = stored(document);
        if let Some(logged) = &mut self.logged {
            logged.push(Logged::insert(collection, document.clone()));
        }
        // No record had its id before.
        self.change.batch.put_new(data.ident, id.key(), document);
        Ok(())
    }

    /// Replaces the document of a record, which had these bytes; `old_keys` and `new_keys` are its keys in
    /// each index, in order, and `diff` what the log has of the change instead of the whole document.
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
        let data = self.expect_same(collection)?;
        self.expect_value(data.ident, id, before);
        let built = data.indexes.len();
        for (at, (index, (old, new))) in data.written_indexes().zip(old_keys.iter().zip(new_keys)).enumerate()
        {
            self.expect_own(data, index, old, id);
            for key in old.keys.iter().filter(|key| new.keys.binary_search(key).is_err()) {
                self.delete_entry(index, key, id);
            }
            for key in &new.keys {
                let is_new = old.keys.binary_search(key).is_err();
                // The same value as another type: the key is the record's own already.
                let is_own = old.keys.iter().any(|old| old.key_string == key.key_string);
                if is_new && !is_own {
                    self.expect_free(collection, data, index, key)?;
                }
                // An index being built may not have the entries of before yet, and won't get them any more.
                if is_new || at >= built {
                    self.put_entry(index, key, id, is_new && !is_own && at < built);
                }
            }
        }
        self.mark(data, id);
        self.count(collection, data, 0, document.len() as i64 - before.len() as i64);
        self.stores |= document.len() > before.len();
        let document = stored(document);
        if let Some(logged) = &mut self.logged {
            logged.push(Logged::update(collection, before, document.clone(), diff));
        }
        self.change.batch.put(data.ident, id.key(), document);
        Ok(())
    }

    /// Removes a record, which had these bytes, and its keys.
    pub(crate) fn delete(
        &mut self,
        collection: &Arc<Collection>,
        id: RecordId,
        before: &Value,
        keys: &[DocumentKeys],
    ) -> Result<()> {
        let data = self.expect_same(collection)?;
        self.expect_value(data.ident, id, before);
        for (index, document_keys) in data.written_indexes().zip(keys) {
            self.expect_own(data, index, document_keys, id);
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

    /// Stores the record of a retryable statement.
    pub(crate) fn put_retry(&mut self, key: Key, value: Value) {
        self.change.batch.put(RETRIES, key, value);
    }

    /// The same on a store of one process, which adds the commit's time.
    pub(crate) fn stamp_retry(&mut self, key: Key, value: Value) {
        self.change.stamped.push((RETRIES, key, value));
    }

    /// Expects the record of a retryable statement to be as it was seen.
    pub(crate) fn expect_retry(&mut self, key: Key, value: Option<Value>) {
        self.retries.push(self.change.expect.len());
        self.change.expect.push(Expect::Value { ident: RETRIES, key, value });
    }

    /// Whether an expectation is that nobody has carried out the same retryable statement.
    pub(crate) fn is_retry(&self, expectation: usize) -> bool {
        self.retries.contains(&expectation)
    }

    /// Removes the record of a retryable statement, if it is still as it was seen.
    pub(crate) fn delete_retry(&mut self, key: Key, seen: Value) {
        self.change.expect.push(Expect::Value { ident: RETRIES, key: key.clone(), value: Some(seen) });
        self.change.batch.delete(RETRIES, key);
    }

    /// What becomes of the changes where an expectation doesn't hold: a key isn't free, or else the document
    /// or the collection has changed, so that the statement starts again.
    pub(crate) fn outcome_of(&self, expectation: usize) -> Applied {
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
                    None => Applied::Again,
                }
            }
            None => Applied::Again,
        }
    }

    /// Where an expectation is about a key of an index being built, lets the build fail: two documents with
    /// one key end the build, and not the write. Whether it was.
    pub(crate) fn fails_build(&self, expectation: usize) -> bool {
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

    /// The tree and key string of an expectation about a unique key.
    fn key_at(&self, expectation: usize) -> Option<(Ident, Key)> {
        match self.change.expect.get(expectation)? {
            Expect::Value { ident, key, .. } => Some((*ident, key.clone())),
            Expect::NoneUnder { ident, prefix } => Some((*ident, prefix.clone())),
            Expect::NoneOr { ident, key, .. } => Some((*ident, key.clone())),
            Expect::Generation { .. } => None,
        }
    }

    /// The key that must be free, with the types that its entry notes.
    fn key_of(&self, unique: &UniqueKey) -> KeyOf {
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

    /// What a transaction claims to make these changes: keys of records and of unique indexes.
    pub(crate) fn claims(&self) -> Vec<Claim> {
        let mut exclusive: HashSet<Ident> = HashSet::new();
        for data in self.collections.iter().filter_map(|collection| collection.data.as_ref()) {
            exclusive.insert(data.ident);
            let unique = data.written_indexes().filter(|index| index.unique());
            exclusive.extend(unique.map(|index| index.ident));
        }
        let touched = self.change.batch.ops().iter().filter_map(|op| match op {
            Op::Put { ident, key, .. } | Op::Delete { ident, key } if exclusive.contains(ident) => {
                Some(Claim::Key(*ident, key.clone()))
            }
            _ => None,
        });
        let prepared = self.change.expect.iter().filter_map(|expect| match expect {
            Expect::NoneUnder { ident, prefix } => Some(Claim::Under(*ident, prefix.clone())),
            _ => None,
        });
        touched.chain(prepared).collect()
    }

    fn expect_same<'a>(&mut self, collection: &'a Arc<Collection>) -> Result<&'a Data> {
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
            self.taken.extend(first);
        }
        Ok(data)
    }

    fn expect_value(&mut self, ident: Ident, id: RecordId, before: &Value) {
        self.change.expect.push(Expect::Value { ident, key: id.key(), value: Some(before.clone()) });
    }

    /// Expects a key to be free, in an index where two documents may not have the same.
    fn expect_free(
        &mut self,
        collection: &Collection,
        data: &Data,
        index: &Arc<Index>,
        key: &KeyOf,
    ) -> Result<()> {
        // Entries of an index that is unique already have no record id behind their key.
        let prepared = index.spec.prepare_unique && !index.unique();
        if !prepared && !index.unique() || mutant!("unique keys are not checked") {
            return Ok(());
        }
        let build = data.building.iter().find(|build| Arc::ptr_eq(&build.index, index));
        // A prepared index is there for what is added once it is built.
        if build.is_some_and(|build| prepared || build.build.has_failed()) {
            return Ok(());
        }
        let at = (index.ident, Key::from(key.key_string.as_slice()));
        if self.taken.contains(&at) {
            return Err(duplicate_key(&collection.namespace, index, key));
        }
        self.note_unique(index);
        self.change.expect.push(match prepared {
            true => Expect::NoneUnder { ident: at.0, prefix: at.1.clone() },
            false => Expect::Value { ident: at.0, key: at.1.clone(), value: None },
        });
        // A single document can't be in its own way: it has each key once.
        if self.documents > 1 {
            self.taken.insert(at);
        }
        Ok(())
    }

    /// Expects of a unique index being built that a record's keys lead to the record, as far as they are there
    /// yet: the builder may have come upon another record with the same key before.
    fn expect_own(&mut self, data: &Data, index: &Arc<Index>, keys: &DocumentKeys, record: RecordId) {
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
            let (place, value) = entry.to_parts(true);
            self.note_unique(index);
            self.change.expect.push(Expect::NoneOr { ident: index.ident, key: place, value });
        }
    }

    /// Notes which key the next expectation is about.
    fn note_unique(&mut self, index: &Arc<Index>) {
        self.unique.push(UniqueKey {
            expectation: self.change.expect.len(),
            document: self.documents - 1,
            index: index.clone(),
        });
    }

    /// Puts an entry into an index. One that names its record is known not to be there where the record doesn't have its key
    /// yet, by `is_first`; of a unique index's keys that is only expected.
    fn put_entry(&mut self, index: &Index, key: &KeyOf, record: RecordId, is_first: bool) {
        let entry = IndexEntry { key_string: &key.key_string, type_bits: &key.type_bits, record };
        let (key, value) = entry.to_parts(index.unique());
        match is_first && !index.unique() {
            true => self.change.batch.put_new(index.ident, key, value),
            false => self.change.batch.put(index.ident, key, value),
        }
    }

    fn delete_entry(&mut self, index: &Index, key: &KeyOf, record: RecordId) {
        if mutant!("index entries are left behind") {
            return;
        }
        let entry = IndexEntry { key_string: &key.key_string, type_bits: &key.type_bits, record };
        self.change.batch.delete(index.ident, entry.to_parts(index.unique()).0);
    }

    /// Tells the builders of indexes that a record is no longer what their snapshots have.
    fn mark(&mut self, data: &Data, id: RecordId) {
        for build in &data.building {
            self.change.beside.push(Beside::Mark(build.build.clone(), id.0));
        }
    }

    fn count(&mut self, collection: &Collection, data: &Data, records: i64, bytes: i64) {
        match self.change.beside.last_mut() {
            Some(Beside::Count { counts, records: all_records, bytes: all_bytes })
                if Arc::ptr_eq(counts, &data.counts) =>
            {
                *all_records += records;
                *all_bytes += bytes;
            }
            _ => self.change.beside.push(Beside::Count { counts: data.counts.clone(), records, bytes }),
        }
        if self.changed.last() != Some(&collection.namespace) {
            self.changed.push(collection.namespace.clone());
        }
    }
}
