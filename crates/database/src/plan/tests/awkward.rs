//! Cases that random tests seldom meet: null, missing and empty arrays on paths with arrays and
//! array positions. Tests each document alone and all documents together, because an index's
//! multikey paths decide its bounds. Compares every index with the collection scan.

use crate::scope::Scope;

use crate::database::Database;
use crate::index::IndexSpec;
use crate::{Hint, InsertRequest, ManualClock, Operation, Read};
use base::bson::extended_json::parse;
use base::{Namespace, Result};
use query::Context;
use query::matcher::Matcher;
use std::sync::Arc;
use storage::MemoryEngine;

const DOCUMENTS: &[&str] = &[
    "{}",
    "{a: null}",
    "{a: 1}",
    "{a: []}",
    "{a: {}}",
    "{a: [null]}",
    "{a: [1, null]}",
    "{a: [[]]}",
    "{a: [[1]]}",
    "{a: {b: null}}",
    "{a: {b: 1}}",
    "{a: {b: []}}",
    "{a: {b: [null]}}",
    "{a: {b: [1, null]}}",
    "{a: {b: [{}]}}",
    "{a: [{}]}",
    "{a: [{b: 1}]}",
    "{a: [{b: null}]}",
    "{a: [{b: 1}, {}]}",
    "{a: [{b: 1}, 2]}",
    "{a: [{b: 1}, {b: null}]}",
    "{a: [{b: []}]}",
    "{a: [{b: [1]}, {b: []}]}",
    "{a: [[{b: 1}]]}",
    "{a: [1, {b: 1}]}",
    "{a: {'0': 1}}",
    "{a: {'0': {b: 1}}}",
    "{a: [{'0': 1}]}",
    "{a: [{'0': {b: 1}}, {b: 2}]}",
    "{a: {b: {'0': 1}}}",
    "{a: {$minKey: 1}}",
    "{a: {$maxKey: 1}}",
    "{a: [{$minKey: 1}]}",
    "{a: [{$maxKey: 1}]}",
    "{a: {b: {$minKey: 1}}}",
    "{a: [{b: {$maxKey: 1}}, {b: [{$minKey: 1}]}]}",
];

const PATHS: &[&str] = &["a", "a.b", "a.0", "a.0.b", "a.b.0"];

const CONDITIONS: &[&str] = &[
    "null",
    "{$ne: null}",
    "{$exists: true}",
    "{$exists: false}",
    "{$in: [null, 1]}",
    "{$nin: [null, 1]}",
    "{$nin: [1]}",
    "{$gte: null}",
    "{$not: {$lte: null}}",
    "{$ne: 1}",
    "{$not: {$gt: 0}}",
    "{$type: 'null'}",
    "{$eq: []}",
    "{$ne: []}",
    "{$elemMatch: {$ne: null}}",
    "{$not: {$elemMatch: {$gt: 0}}}",
    "{$elemMatch: {b: null}}",
    "{$elemMatch: {b: {$ne: null}}}",
    "{$eq: {$minKey: 1}}",
    "{$eq: {$maxKey: 1}}",
    "{$gt: {$minKey: 1}}",
    "{$gte: {$minKey: 1}}",
    "{$lt: {$minKey: 1}}",
    "{$lte: {$minKey: 1}}",
    "{$gt: {$maxKey: 1}}",
    "{$gte: {$maxKey: 1}}",
    "{$lt: {$maxKey: 1}}",
    "{$lte: {$maxKey: 1}}",
    "{$not: {$gt: {$minKey: 1}}}",
    "{$ne: {$minKey: 1}}",
    "{$in: [{$minKey: 1}, {$maxKey: 1}]}",
    "{$gt: {$minKey: 1}, $lt: {$maxKey: 1}}",
    "{$elemMatch: {$gt: {$minKey: 1}}}",
    "{$elemMatch: {$lt: {$minKey: 1}}}",
];

const INDEXES: &[&str] = &[
    "{key: {a: 1}, name: 'a'}",
    "{key: {'a.b': 1}, name: 'ab'}",
    "{key: {'a.0': 1}, name: 'a0'}",
    "{key: {'a.0.b': 1}, name: 'a0b'}",
    "{key: {'a.b.0': 1}, name: 'ab0'}",
    "{key: {'a.b': -1, a: 1}, name: 'two'}",
    "{key: {'$**': 1}, name: 'all'}",
];

/// Returns a database with these documents, and their description.
fn database(documents: &[&str], context: &Arc<Context>) -> Arc<Database> {
    let namespace = Namespace::parse("test.c").unwrap();
    let database = Database::open(Arc::new(MemoryEngine::new()), Arc::new(ManualClock::new(0)), 7).unwrap();
    for index in INDEXES {
        let spec = IndexSpec::parse(parse(index).unwrap().view(), &namespace, context).unwrap();
        database.create_indexes(&Operation::new(0), &namespace, [spec], context).unwrap();
    }
    for (id, document) in documents.iter().enumerate() {
        let text = document.replacen('{', &format!("{{_id: {id}, "), 1).replace(", }", "}");
        let document = parse(&text).unwrap();
        let insert = InsertRequest { document: document.view(), bypass_validation: false };
        // An index with two parts does not have documents with parallel arrays.
        _ = database.insert(&Scope::new(&Arc::new(Operation::new(0)), &namespace, context), insert);
    }
    database
}

fn found(database: &Database, read: Read, context: &Arc<Context>) -> Result<Vec<u64>> {
    let view = database.view();
    let collection = view.catalog.get(&Namespace::parse("test.c").unwrap()).unwrap();
    let mut stream = database.read(&Arc::new(Operation::new(1)), &view, collection, read, context)?;
    let mut ids = Vec::new();
    while let Some(record) = stream.next()? {
        ids.push(record.record_id);
    }
    ids.sort_unstable();
    Ok(ids)
}

/// Checks that every filter finds the same documents by every index and by the collection scan.
fn check(documents: &[&str]) {
    let context = Arc::new(Context::for_tests());
    let database = database(documents, &context);
    for path in PATHS {
        for condition in CONDITIONS {
            let filter = parse(&format!("{{'{path}': {condition}}}")).unwrap();
            let read = Read::new(Arc::new(Matcher::parse(filter.view(), &context).unwrap()));
            let hinted = |hint| found(&database, Read { hint: Some(hint), ..read.clone() }, &context);
            let expected = hinted(Hint::Natural { forward: true }).unwrap();
            let about = |message: &str| format!("{filter} by {message} among {documents:?}");
            assert_eq!(found(&database, read.clone(), &context).unwrap(), expected, "{}", about("choice"));
            for index in INDEXES {
                let name = index.split('\'').rev().nth(1).unwrap();
                match hinted(Hint::Name(name.to_string())) {
                    Ok(ids) => assert_eq!(ids, expected, "{}", about(name)),
                    Err(error) => assert_eq!((name, error.code().number()), ("all", 291), "{error:?}"),
                }
            }
        }
    }
}

#[test]
fn indexes_agree_on_each_document_alone() {
    DOCUMENTS.iter().for_each(|document| check(&[document]));
}

#[test]
fn indexes_agree_on_all_documents_together() {
    check(DOCUMENTS);
}
