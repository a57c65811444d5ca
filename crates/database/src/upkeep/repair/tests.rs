//! Repair of engines with missing parts, followed by validation.

use crate::scope::Scope;

use super::{Repaired, repair};
use crate::Operation;
use crate::keys::{CATALOG, RETRIES, RecordId};
use crate::upkeep::validate::Depth;
use crate::{Database, InsertRequest, ManualClock, StateName, index::IndexSpec};
use base::Namespace;
use base::bson::{DocumentBuf, extended_json};
use query::Context;
use query::context::Uninterrupted;
use std::collections::BTreeSet;
use std::sync::Arc;
use storage::store::{LOG, LOG_TREES};
use storage::{Batch, Engine, Ident, MemoryEngine};

fn json(text: &str) -> DocumentBuf {
    extended_json::parse(text).unwrap()
}

fn context() -> Arc<Context> {
    Arc::new(Context::new(0, 1, Arc::new(Uninterrupted)))
}

fn open(engine: &Arc<MemoryEngine>) -> Arc<Database> {
    Database::open(engine.clone(), Arc::new(ManualClock::new(1_700_000_000_000)), 7).unwrap()
}

fn namespace(name: &str) -> Namespace {
    Namespace::parse(name).unwrap()
}

/// Creates two collections of three documents, each with an index on an array and a unique index.
fn filled() -> Arc<MemoryEngine> {
    let engine = Arc::new(MemoryEngine::new());
    let database = open(&engine);
    for name in ["a.first", "b.second"] {
        for index in
            [r#"{"key": {"a": 1}, "name": "a_1"}"#, r#"{"key": {"u": 1}, "name": "u_1", "unique": true}"#]
        {
            let spec = IndexSpec::parse(json(index).view(), &namespace(name), &context()).unwrap();
            database.create_indexes(&Operation::new(0), &namespace(name), [spec], &context()).unwrap();
        }
        for number in 1..=3 {
            let document = json(&format!(r#"{{"_id": {number}, "a": [{number}, 10], "u": {number}}}"#));
            let insert = InsertRequest { document: document.view(), bypass_validation: false };
            database
                .insert(&Scope::new(&Arc::new(Operation::new(0)), &namespace(name), &context()), insert)
                .unwrap();
        }
    }
    engine
}

/// Returns the trees of a collection: documents, then indexes.
fn trees(engine: &Arc<MemoryEngine>, name: &str) -> Vec<Ident> {
    open(engine).collection(&namespace(name)).unwrap().data().unwrap().idents().collect()
}

fn change(engine: &Arc<MemoryEngine>, change: impl FnOnce(&mut Batch)) {
    let mut batch = Batch::new();
    change(&mut batch);
    engine.commit(batch).unwrap();
}

/// Repairs, validates each collection, and returns its number of documents.
fn repaired(engine: &Arc<MemoryEngine>) -> (Vec<(String, u64)>, Repaired) {
    let snapshot = engine.snapshot();
    let idents: BTreeSet<Ident> = (0..50)
        .map(Ident)
        .chain([LOG_TREES, LOG, RETRIES])
        .filter(|ident| snapshot.contains(*ident).unwrap())
        .collect();
    drop(snapshot);
    let done = repair(&**engine, &idents, 1, 2).unwrap();
    let database = open(engine);
    let catalog = database.catalog();
    let counts = catalog.all().map(|collection| {
        let found = database.validate(&collection.namespace, Depth::Full, &context()).unwrap();
        assert!(found.is_valid() && found.warnings.is_empty(), "{found:?}");
        (collection.namespace.to_string(), found.records)
    });
    (counts.collect(), done)
}

fn counts(counts: &[(&str, u64)]) -> Vec<(String, u64)> {
    counts.iter().map(|(name, count)| (name.to_string(), *count)).collect()
}

#[test]
fn a_sound_database_stays_as_it_is() {
    let (found, done) = repaired(&filled());
    assert_eq!(found, counts(&[("a.first", 3), ("b.second", 3)]));
    assert!(done.notes.is_empty(), "{done:?}");
}

#[test]
fn indexes_are_built_anew() {
    let engine = filled();
    let trees = trees(&engine, "a.first");
    change(&engine, |batch| {
        batch.drop_ident(trees[1]);
        batch.clear(trees[2]);
        batch.put(trees[3], b"nonsense", b"");
    });
    let (found, done) = repaired(&engine);
    assert_eq!(found, counts(&[("a.first", 3), ("b.second", 3)]));
    assert!(done.notes.is_empty(), "{done:?}");
}

#[test]
fn indexes_of_text_and_places_are_built_anew() {
    let (name, engine) = (namespace("a.places"), Arc::new(MemoryEngine::new()));
    let database = open(&engine);
    for index in [
        r#"{"key": {"p": 1, "t": "text"}, "name": "t", "default_language": "french"}"#,
        r#"{"key": {"geo": "2dsphere"}, "name": "geo", "partialFilterExpression": {"p": {"$lt": 3}}}"#,
        r#"{"key": {"loc": "2d"}, "name": "loc", "bits": 7, "min": 0, "max": 50}"#,
    ] {
        let spec = IndexSpec::parse(json(index).view(), &name, &context()).unwrap();
        database.create_indexes(&Operation::new(0), &name, [spec], &context()).unwrap();
    }
    for number in 1..=3 {
        let document = json(&format!(
            r#"{{"_id": {number}, "p": {number}, "t": "des mots {number}", "geo": [{number}, 1],
                "loc": [[{number}, 2], [7, {number}]]}}"#
        ));
        let insert = InsertRequest { document: document.view(), bypass_validation: false };
        database.insert(&Scope::new(&Arc::new(Operation::new(0)), &name, &context()), insert).unwrap();
    }
    let keys = |engine: &Arc<MemoryEngine>| {
        let found = open(engine).validate(&name, Depth::Full, &context()).unwrap();
        assert!(found.is_valid(), "{found:?}");
        found.indexes.iter().map(|index| (index.name.clone(), index.keys)).collect::<Vec<_>>()
    };
    let before = keys(&engine);
    let trees = trees(&engine, "a.places");
    change(&engine, |batch| {
        batch.clear(trees[2]);
        batch.clear(trees[3]);
        batch.put(trees[4], b"nonsense", b"");
    });
    let found = open(&engine).validate(&name, Depth::Full, &context()).unwrap();
    let wrong: Vec<&str> =
        found.indexes.iter().filter(|index| !index.errors.is_empty()).map(|index| &*index.name).collect();
    assert_eq!(wrong, ["t", "geo", "loc"]);
    let (found, done) = repaired(&engine);
    assert_eq!(found, counts(&[("a.places", 3)]));
    assert!(done.notes.is_empty(), "{done:?}");
    assert_eq!(keys(&engine), before);
}

#[test]
fn invalid_documents_are_lost_and_reported() {
    let engine = filled();
    let tree = trees(&engine, "a.first")[0];
    change(&engine, |batch| {
        batch.put(tree, RecordId(2).key(), b"no document");
        batch.put(tree, b"short", b"");
    });
    let (found, done) = repaired(&engine);
    assert_eq!(found, counts(&[("a.first", 2), ("b.second", 3)]));
    assert_eq!(done.collections[0].removed, 2);
    assert!(
        done.notes.iter().any(|note| note.contains("a.first") && note.contains("RecordId(2)")),
        "{done:?}"
    );
}

#[test]
fn conflicting_documents_are_set_aside() {
    let engine = filled();
    let tree = trees(&engine, "a.first")[0];
    change(&engine, |batch| {
        for (number, id) in [(7, 1), (8, 9), (9, 9)] {
            batch.put(tree, RecordId(number).key(), json(&format!(r#"{{"_id": {id}, "u": 1}}"#)).bytes());
        }
    });
    let (found, done) = repaired(&engine);
    assert_eq!((found[0].1, found[1].1, found[2].1), (3, 3, 2), "{found:?}");
    assert!(found[2].0.starts_with("local.lost_and_found."));
    assert_eq!(done.notes.len(), 2, "{done:?}");
}

#[test]
fn documents_of_an_unreadable_entry_become_orphans() {
    let engine = filled();
    let tree = trees(&engine, "b.second")[0].0;
    change(&engine, |batch| batch.put(CATALOG, b"b.second", b"\x05\0\0\0\0"));
    let (found, done) = repaired(&engine);
    assert_eq!(found, counts(&[("a.first", 3), (&format!("local.orphan.{tree}"), 3)]));
    assert!(done.notes[0].contains("b.second"), "{done:?}");
}

#[test]
fn without_a_catalog_all_documents_become_orphans() {
    let engine = filled();
    change(&engine, |batch| batch.drop_ident(CATALOG));
    let (found, _) = repaired(&engine);
    assert_eq!(found.iter().map(|(_, count)| count).collect::<Vec<_>>(), [&3, &3]);
}

#[test]
fn new_trees_are_numbered_below_those_of_the_oplog() {
    let engine = filled();
    let tree = trees(&engine, "b.second")[0].0;
    change(&engine, |batch| {
        batch.put(CATALOG, b"b.second", b"\x05\0\0\0\0");
        [LOG_TREES, LOG, RETRIES].into_iter().for_each(|ident| batch.create(ident));
    });
    let orphan = format!("local.orphan.{tree}");
    assert_eq!(repaired(&engine).0, counts(&[("a.first", 3), (&orphan, 3)]));
    assert!(trees(&engine, &orphan).iter().all(|ident| *ident < LOG_TREES));
}

#[test]
fn a_lost_tree_leaves_an_empty_collection() {
    let engine = filled();
    let tree = trees(&engine, "b.second")[0];
    change(&engine, |batch| batch.drop_ident(tree));
    let (found, done) = repaired(&engine);
    assert_eq!(found, counts(&[("a.first", 3), ("b.second", 0)]));
    assert!(done.notes[0].contains("all documents are lost"), "{done:?}");
}

#[test]
fn saved_states_survive() {
    let engine = filled();
    let database = open(&engine);
    database.snapshot_database(&Uninterrupted, &StateName::new("a", "kept").unwrap(), false).unwrap();
    drop(database);
    let (found, done) = repaired(&engine);
    assert_eq!(found, counts(&[("a.first", 3), ("b.second", 3)]));
    assert!(done.notes.is_empty(), "{done:?}");
    let database = open(&engine);
    database.restore_database(&Uninterrupted, &StateName::new("a", "kept").unwrap()).unwrap();
    let restored = database.validate(&namespace("a.first"), Depth::Full, &context()).unwrap();
    assert!(restored.is_valid() && restored.records == 3, "{restored:?}");
}

#[test]
fn long_keys_are_committed_in_small_batches() {
    let engine = filled();
    let before = repaired(&engine).1;
    let position = || engine.commit(Batch::new()).unwrap().0;
    let commits = |repair: &dyn Fn()| {
        let before = position();
        repair();
        position() - before
    };
    let few = commits(&|| drop(repaired(&engine)));
    let database = open(&engine);
    for number in 4..=6 {
        let long = "x".repeat(super::BATCH_BYTES);
        let document = json(&format!(r#"{{"_id": {number}, "a": "{long}", "u": {number}}}"#));
        let insert = InsertRequest { document: document.view(), bypass_validation: false };
        let operation = Arc::new(Operation::new(0));
        database.insert(&Scope::new(&operation, &namespace("a.first"), &context()), insert).unwrap();
    }
    drop(database);
    assert_eq!(commits(&|| drop(repaired(&engine))), few + 3);
    assert!(before.notes.is_empty());
}
