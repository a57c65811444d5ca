//! Stores damaged without the database's knowledge: validate must find each damage.

use crate::scope::Scope;

use super::{Depth, Validation};
use crate::{
    CollectionChange, Database, InsertRequest, ManualClock, Operation, ValidatorChange, index::IndexSpec,
};
use base::Namespace;
use base::bson::{DocumentBuf, extended_json};
use query::Context;
use query::context::Uninterrupted;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use storage::testing::{FaultyFiles, Loss};
use storage::{
    Batch, Compression, Direction, DiskEngine, DiskOptions, Engine, Ident, Key, MemoryEngine, Range, Value,
};

struct Store {
    database: Arc<Database>,
    namespace: Namespace,
    context: Arc<Context>,
}

fn json(text: &str) -> DocumentBuf {
    extended_json::parse(text).unwrap()
}

fn open(engine: Arc<dyn Engine>) -> Store {
    let clock = Arc::new(ManualClock::new(1_700_000_000_000));
    Store {
        database: Database::open(engine, clock, 7).unwrap(),
        namespace: Namespace::parse("test.c").unwrap(),
        context: Arc::new(Context::new(0, 1, Arc::new(Uninterrupted))),
    }
}

/// Creates three documents, an index on an array and a unique index.
fn filled(engine: Arc<dyn Engine>) -> Store {
    let store = open(engine);
    for index in
        [r#"{"key": {"a": 1}, "name": "a_1"}"#, r#"{"key": {"u": -1}, "name": "u_-1", "unique": true}"#]
    {
        let spec = IndexSpec::parse(json(index).view(), &store.namespace, &store.context).unwrap();
        store.database.create_indexes(&Operation::new(0), &store.namespace, [spec], &store.context).unwrap();
    }
    for number in 1..=3 {
        let text = format!(r#"{{"_id": {number}, "a": [{number}, 10], "u": "{}"}}"#, "x".repeat(60 + number));
        let document = json(&text);
        let insert = InsertRequest { document: document.view(), bypass_validation: false };
        store
            .database
            .insert(&Scope::new(&Arc::new(Operation::new(0)), &store.namespace, &store.context), insert)
            .unwrap();
    }
    store
}

fn memory() -> Store {
    filled(Arc::new(MemoryEngine::new()))
}

impl Store {
    fn validate(&self) -> Validation {
        self.database.validate(&self.namespace, Depth::Full, &self.context).unwrap()
    }

    /// Returns the tree of the documents or of an index.
    fn ident(&self, index: Option<usize>) -> Ident {
        let collection = self.database.collection(&self.namespace).unwrap();
        let data = collection.data().unwrap();
        index.map_or(data.ident, |index| data.indexes[index].ident)
    }

    fn entries(&self, ident: Ident) -> Vec<(Key, Value)> {
        let snapshot = self.database.engine().snapshot();
        let mut cursor = snapshot.scan(ident, Range::all(), Direction::Forward).unwrap();
        let mut entries = Vec::new();
        while let Some((key, value)) = cursor.next().unwrap() {
            entries.push((Key::from(key), value.to_value()));
        }
        entries
    }

    fn change(&self, change: impl FnOnce(&mut Batch)) {
        let mut batch = Batch::new();
        change(&mut batch);
        self.database.engine().commit(batch).unwrap();
    }
}

/// Returns all errors as one text: of the collection, then of each index.
fn wrong(found: &Validation) -> String {
    let indexes = found.indexes.iter().flat_map(|index| &index.errors);
    found.errors.iter().chain(indexes).cloned().collect::<Vec<_>>().join("\n")
}

#[test]
fn a_sound_collection_is_valid() {
    let found = memory().validate();
    assert!(found.is_valid(), "{found:?}");
    let keys: Vec<u64> = found.indexes.iter().map(|index| index.keys).collect();
    assert_eq!((found.records, keys), (3, vec![3, 6, 3]));
    assert!(found.warnings.is_empty() && found.extra.is_empty() && found.missing.is_empty());
}

#[test]
fn a_missing_entry_is_named() {
    for index in 0..3 {
        let store = memory();
        let ident = store.ident(Some(index));
        let (key, _) = store.entries(ident)[0].clone();
        store.change(|batch| batch.delete(ident, key));
        let found = store.validate();
        let name = &found.indexes[index].name;
        assert!(!found.is_valid() && found.missing.len() == 1 && found.extra.is_empty());
        assert!(wrong(&found).contains(&format!("'{name}' has inconsistencies")), "{found:?}");
        let missing = found.missing[0].view();
        assert_eq!(missing.get("indexName").unwrap().as_str(), Some(&**name));
        assert!(missing.get("idKey").is_some() && missing.get("indexKey").is_some());
        assert!(found.warnings.contains(&"Detected 1 missing index entries.".to_string()));
        assert!(found.indexes.iter().enumerate().all(|(at, other)| (at == index) != other.errors.is_empty()));
    }
}

#[test]
fn an_extra_entry_is_named() {
    let store = memory();
    let ident = store.ident(Some(1));
    let (key, value) = store.entries(ident)[0].clone();
    // The same value, for a missing record and for a record with another value.
    for record in [77u64, 3] {
        let mut stray = key[..key.len() - 8].to_vec();
        stray.extend_from_slice(&record.to_be_bytes());
        store.change(|batch| batch.put(ident, stray, value.clone()));
    }
    let found = store.validate();
    assert!(!found.is_valid() && found.missing.is_empty(), "{found:?}");
    let records: Vec<_> =
        found.extra.iter().map(|extra| extra.view().get("recordId").unwrap().as_i64()).collect();
    assert_eq!(records, [Some(3), Some(77)]);
    assert!(found.extra[0].view().get("idKey").is_some() && found.extra[1].view().get("idKey").is_none());
}

#[test]
fn a_unique_entry_that_points_elsewhere_is_missing_and_extra() {
    let store = memory();
    let ident = store.ident(Some(2));
    let (key, _) = store.entries(ident)[0].clone();
    store.change(|batch| batch.put(ident, key, 2u64.to_be_bytes()));
    let found = store.validate();
    assert_eq!((found.missing.len(), found.extra.len()), (1, 1), "{found:?}");
}

#[test]
fn a_lost_record_leaves_its_entries_and_a_wrong_count() {
    let store = memory();
    let ident = store.ident(None);
    store.change(|batch| batch.delete(ident, 2u64.to_be_bytes()));
    let found = store.validate();
    assert_eq!((found.records, found.extra.len()), (2, 4));
    assert!(wrong(&found).contains("fast count (3) does not match number of records (2)"), "{found:?}");
}

#[test]
fn a_record_that_is_no_document_is_listed() {
    let store = memory();
    let ident = store.ident(None);
    store.change(|batch| batch.put(ident, 2u64.to_be_bytes(), b"no document"));
    let found = store.validate();
    assert_eq!((found.invalid, &*found.corrupt_records), (1, &[2][..]), "{found:?}");
    assert!(wrong(&found).contains("invalid documents"));
}

#[test]
fn a_forgotten_multikey_flag_is_found() {
    let store = memory();
    let text = String::from_utf8_lossy(&store.entries(crate::keys::CATALOG)[0].1).into_owned();
    assert!(text.contains("multikey"));
    // As if an earlier process had missed the arrays.
    let collection = store.database.collection(&store.namespace).unwrap();
    let mut forgetful = crate::catalog::collection::Collection::clone(&collection);
    for index in &mut forgetful.data.as_mut().unwrap().indexes {
        *index = Arc::new(index.over(index.ident, false, index.since_millis));
    }
    let entry = crate::catalog::entry(&forgetful);
    let key = store.namespace.as_str().as_bytes().to_vec();
    store.change(|batch| batch.put(crate::keys::CATALOG, key, entry.bytes()));
    assert!(wrong(&store.validate()).contains("differs from the entry in use"));
    let again = open(store.database.engine().clone());
    let found = again.validate();
    assert!(wrong(&found).contains("Index a_1 multikey paths do not cover"), "{found:?}");
}

#[test]
fn a_wrong_count_is_found() {
    let store = memory();
    let collection = store.database.collection(&store.namespace).unwrap();
    collection.data().unwrap().counts.records.store(5, Relaxed);
    assert!(wrong(&store.validate()).contains("fast count (5)"));
}

#[test]
fn documents_that_the_validator_refuses_are_counted_and_valid() {
    let store = memory();
    let filter = json(r#"{"a": 2}"#);
    let validator = ValidatorChange { filter: Some(filter.view()), ..ValidatorChange::default() };
    let request = CollectionChange { validator, ..CollectionChange::default() };
    let scope = Scope::new(&Arc::new(Operation::new(0)), &store.namespace, &store.context);
    store.database.change_collection(&Uninterrupted, &scope, &request).unwrap();
    let found = store.validate();
    assert!(found.is_valid() && found.warnings.len() == 1, "{found:?}");
    assert_eq!(found.non_compliant, 2);
}

/// Creates a collection on disk, checkpointed into the base.
fn on_disk() -> FaultyFiles {
    let files = FaultyFiles::new();
    let engine = disk(&files);
    let store = filled(engine.clone());
    // In its own page: a database whose last record is unreadable cannot be opened.
    let last = json(&format!(r#"{{"_id": 9, "a": 9, "u": "9", "pad": "{}"}}"#, "y".repeat(20_000)));
    let insert = InsertRequest { document: last.view(), bypass_validation: false };
    store
        .database
        .insert(&Scope::new(&Arc::new(Operation::new(0)), &store.namespace, &store.context), insert)
        .unwrap();
    engine.close().unwrap();
    files.restart(Loss::Nothing)
}

fn disk(files: &FaultyFiles) -> Arc<DiskEngine> {
    // Without compression, so that a value is found in the files by its bytes.
    let options = DiskOptions { compression: Compression::None, ..DiskOptions::new("/data") };
    Arc::new(DiskEngine::open_on(Arc::new(files.clone()), &options).unwrap())
}

/// Changes a byte of the base at a distance behind the last occurrence of given bytes.
fn flip(files: &FaultyFiles, find: &[u8], behind: usize) {
    files.tamper(Path::new("/data/base.vellum"), |bytes| {
        let at = bytes.windows(find.len()).rposition(|window| window == find).unwrap();
        bytes[at + behind] ^= 1;
    });
}

#[test]
fn a_changed_byte_in_a_record_is_named() {
    let sound = on_disk();
    assert!(open(disk(&sound)).validate().is_valid());
    let files = on_disk();
    // The document's text with its length. The index has the text without.
    let text = [&63i32.to_le_bytes()[..], "x".repeat(62).as_bytes()].concat();
    flip(&files, &text, 10);
    let found = open(disk(&files)).validate();
    // A damaged page is unreadable as a whole.
    assert_eq!((found.records, found.invalid, &*found.corrupt_records), (1, 3, &[1, 2, 3][..]), "{found:?}");
    assert!(wrong(&found).contains("wrong checksum"));
}

#[test]
fn a_changed_byte_in_an_index_is_named() {
    let files = on_disk();
    // Descending, so the bytes are inverted.
    let text = vec![!b'x'; 20];
    flip(&files, &text, 10);
    let found = open(disk(&files)).validate();
    assert!(!found.is_valid() && found.invalid == 0, "{found:?}");
    assert!(!found.indexes[2].errors.is_empty(), "{found:?}");
}

/// A commit that fails for lack of space must not leave the multikey bit only in memory: no later commit would store
/// it.
#[test]
fn a_multikey_flag_of_a_failed_commit_is_learnt_again() {
    let files = on_disk();
    let store = open(disk(&files));
    let spec = json(r#"{"key": {"b": 1}, "name": "b_1"}"#);
    let spec = IndexSpec::parse(spec.view(), &store.namespace, &store.context).unwrap();
    store.database.create_indexes(&Operation::new(0), &store.namespace, [spec], &store.context).unwrap();
    let insert = |text: &str| {
        let document = json(text);
        let insert = InsertRequest { document: document.view(), bypass_validation: false };
        store
            .database
            .insert(&Scope::new(&Arc::new(Operation::new(0)), &store.namespace, &store.context), insert)
            .map(drop)
    };
    files.set_free_bytes(Some(0));
    assert!(insert(r#"{"_id": 10, "b": [1, 2], "u": 10}"#).is_err());
    files.set_free_bytes(None);
    insert(r#"{"_id": 11, "b": [1, 2], "u": 11}"#).unwrap();
    let found = store.validate();
    assert!(found.is_valid(), "{found:?}");
}

#[test]
fn the_metadata_alone_can_be_checked() {
    let store = memory();
    store.change(|batch| batch.drop_ident(store.ident(Some(1))));
    let found = store.database.validate(&store.namespace, Depth::Metadata, &store.context).unwrap();
    assert!(wrong(&found).contains("is missing"), "{found:?}");
    assert_eq!(found.records, 0);
}
