//! Statements without a server: insert, find, update, delete, indexes, views.

#![allow(clippy::unwrap_used)]

use base::bson::{Builder, DocumentBuf, Value, extended_json};
use base::{ErrorCode, Namespace, Result};
use database::{
    AggregateRequest, BuildProgress, CollectionChange, Database, DeleteRequest, FindRequest, InsertProgress,
    InsertRequest, Insertion, ManualClock, Operation, Scope, UpdateRequest, index::IndexSpec,
};
use query::context::Uninterrupted;
use query::matcher::Matcher;
use query::{Context, Helpers, Update};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use storage::MemoryEngine;

struct Session {
    database: Arc<Database>,
    namespace: Namespace,
    operation: Arc<Operation>,
    context: Arc<Context>,
}

fn json(text: &str) -> DocumentBuf {
    extended_json::parse(text).unwrap()
}

impl Session {
    fn new() -> Session {
        Session::over(Arc::new(MemoryEngine::new()))
    }

    /// Opens the database of an engine.
    fn over(engine: Arc<MemoryEngine>) -> Session {
        let clock = Arc::new(ManualClock::new(1_700_000_000_000));
        let operation = Arc::new(Operation::new(1));
        Session {
            database: Database::open(engine, clock, 7).unwrap(),
            namespace: Namespace::parse("test.c").unwrap(),
            context: Arc::new(Context::new(0, 1, operation.clone())),
            operation,
        }
    }

    fn insert(&self, text: &str) -> Result<()> {
        let document = json(text);
        let insert = InsertRequest { document: document.view(), bypass_validation: false };
        self.database
            .insert(&Scope::new(&Arc::new(Operation::new(0)), &self.namespace, &self.context), insert)
            .map(drop)
    }

    fn matcher(&self, filter: &str) -> Arc<Matcher> {
        Arc::new(Matcher::parse(json(filter).view(), &self.context).unwrap())
    }

    fn update(&self, filter: &str, update: &str, multi: bool, upsert: bool) -> Result<(u64, u64)> {
        let update = json(update);
        let request = UpdateRequest {
            matcher: self.matcher(filter),
            update: Update::parse(Value::Document(update.view()), &[], &self.context)?.into(),
            multi,
            upsert,
            sort: None,
            hint: None,
            bypass_validation: false,
        };
        let outcome =
            self.database.update(&Scope::new(&self.operation, &self.namespace, &self.context), &request)?;
        Ok((outcome.matched, outcome.modified))
    }

    fn delete(&self, filter: &str, single: bool) -> u64 {
        let request = DeleteRequest { matcher: self.matcher(filter), single, hint: None };
        self.database
            .delete(&Scope::new(&self.operation, &self.namespace, &self.context), &request)
            .unwrap()
            .0
    }

    fn index(&self, spec: &str) -> Result<()> {
        let spec = IndexSpec::parse(json(spec).view(), &self.namespace, &self.context)?;
        self.database.create_indexes(&Operation::new(0), &self.namespace, [spec], &self.context).map(drop)
    }

    fn find(&self, filter: &str) -> String {
        let filter = json(filter);
        let request = FindRequest::new(filter.view());
        let cursor =
            self.database.find(&Scope::new(&self.operation, &self.namespace, &self.context), &request);
        show(cursor.unwrap())
    }

    fn check(&self) {
        let found =
            self.database.validate(&self.namespace, database::validate::Depth::Full, &self.context).unwrap();
        assert!(found.errors.is_empty(), "{:?}", found.errors);
        assert_eq!(found.records as i64, self.database.collection(&self.namespace).unwrap().records());
    }
}

fn show(mut cursor: database::Cursor) -> String {
    let mut out = Builder::new();
    out.begin_array(c"");
    cursor.next_batch(1000, &mut out).unwrap();
    out.end();
    let out = out.finish();
    let all: Vec<String> = out
        .view()
        .get("")
        .unwrap()
        .as_array()
        .unwrap()
        .iter()
        .map(|document| extended_json::value_to_relaxed(document))
        .collect();
    all.join(" ")
}

#[test]
fn documents_are_returned_in_insertion_order() {
    let s = Session::new();
    s.insert("{_id: 2, a: 1}").unwrap();
    s.insert("{_id: 1, a: 2}").unwrap();
    s.insert("{a: 3, _id: 0}").unwrap();
    assert_eq!(s.find("{}"), r#"{"_id":2,"a":1} {"_id":1,"a":2} {"_id":0,"a":3}"#);
    assert_eq!(s.find("{a: {$gt: 1}}"), r#"{"_id":1,"a":2} {"_id":0,"a":3}"#);
    s.check();
}

#[test]
fn a_unique_index_refuses_and_names_the_key() {
    let s = Session::new();
    s.index("{key: {a: 1}, name: 'a_1', unique: true}").unwrap();
    s.insert("{_id: 1, a: [1, 2]}").unwrap();
    let error = s.insert("{_id: 2, a: [2, 3]}").unwrap_err();
    assert_eq!(error.code(), ErrorCode::DuplicateKey);
    assert_eq!(error.message(), "E11000 duplicate key error collection: test.c index: a_1 dup key: { a: 2 }");
    assert_eq!(
        extended_json::to_relaxed(error.info().unwrap()),
        r#"{"keyPattern":{"a":1},"keyValue":{"a":2}}"#
    );
    assert_eq!(s.insert("{_id: 1}").unwrap_err().code(), ErrorCode::DuplicateKey);
    s.check();
}

#[test]
fn updates_keep_indexes_in_step() {
    let s = Session::new();
    s.index("{key: {a: 1, b: -1}, name: 'ab'}").unwrap();
    for i in 0..50 {
        s.insert(&format!("{{_id: {i}, a: {}, b: [1, {i}]}}", i % 5)).unwrap();
    }
    assert_eq!(s.update("{a: 3}", "{$inc: {a: 10}, $push: {b: 7}}", true, false).unwrap(), (10, 10));
    assert_eq!(s.update("{_id: 1}", "{$set: {a: 1}}", false, false).unwrap(), (1, 0));
    s.check();
    assert_eq!(s.delete("{a: 13}", false), 10);
    assert_eq!(s.delete("{}", true), 1);
    s.check();
    assert_eq!(s.delete("{}", false), 39);
    s.check();
    assert_eq!(s.find("{}"), "");
}

#[test]
fn an_index_is_built_over_existing_documents() {
    let s = Session::new();
    for i in 0..20 {
        s.insert(&format!("{{_id: {i}, a: {}}}", i / 2)).unwrap();
    }
    assert_eq!(
        s.index("{key: {a: 1}, name: 'u', unique: true}").unwrap_err().code(),
        ErrorCode::DuplicateKey
    );
    s.index("{key: {a: -1}, name: 'n'}").unwrap();
    s.check();
    assert_eq!(s.database.drop_indexes(&Uninterrupted, &s.namespace, None).unwrap().0, 2);
    s.check();
}

#[test]
fn a_database_opened_again_has_its_catalog() {
    let s = Session::new();
    s.index("{key: {a: 1}, name: 'a_1', sparse: true}").unwrap();
    s.insert("{_id: 1, a: [1, 2]}").unwrap();
    let clock = Arc::new(ManualClock::new(0));
    let again = Database::open(s.database.engine().clone(), clock, 8).unwrap();
    let again = Session { database: again, ..s };
    again.insert("{_id: 2, a: 1}").unwrap();
    assert_eq!(again.find("{}"), r#"{"_id":1,"a":[1,2]} {"_id":2,"a":1}"#);
    again.check();
    let collection = again.database.collection(&again.namespace).unwrap();
    assert!(collection.data().unwrap().index("a_1").unwrap().is_multikey());
}

#[test]
fn changes_after_a_restart_are_visible_if_the_latest_change_was_of_a_view() {
    let engine = Arc::new(MemoryEngine::new());
    let s = Session::over(engine.clone());
    let (view, options) = (Namespace::parse("test.v").unwrap(), json("{viewOn: 'c', pipeline: []}"));
    s.database.create_collection(&Operation::new(0), &view, options.view(), &s.context).unwrap();
    drop(s);
    let s = Session::over(engine);
    (1..=2).for_each(|id| s.insert(&format!("{{_id: {id}}}")).unwrap());
    let view = s.database.view();
    assert_eq!(view.catalog.require(&s.namespace).unwrap().records(), 2);
}

#[test]
fn a_view_reads_its_collection() {
    let s = Session::new();
    s.insert("{_id: 1, a: 1}").unwrap();
    s.insert("{_id: 2, a: 2}").unwrap();
    let view = Namespace::parse("test.v").unwrap();
    let options = json("{viewOn: 'c', pipeline: [{$skip: 1}]}");
    s.database.create_collection(&Operation::new(0), &view, options.view(), &s.context).unwrap();
    let empty = json("{pipeline: []}");
    let request = AggregateRequest::new(empty.view().get("pipeline").unwrap().as_array().unwrap());
    let cursor = s.database.aggregate(&Scope::new(&s.operation, &view, &s.context), &request).unwrap();
    assert_eq!(show(cursor), r#"{"_id":2,"a":2}"#);
}

#[test]
fn an_unordered_insert_skips_exactly_the_duplicates() {
    let s = Session::new();
    let mut documents: Vec<DocumentBuf> = Vec::new();
    // Runs of duplicates and of new documents, of all lengths.
    for run in 0..30 {
        documents.extend((0..run).map(|at| json(&format!("{{_id: {}}}", 1000 * run + at))));
        documents.extend((0..run % 7).map(|at| json(&format!("{{_id: {}}}", 1000 * run + at))));
    }
    let insertions: Vec<Insertion<'_>> = documents
        .iter()
        .map(|document| InsertRequest { document: document.view(), bypass_validation: false })
        .map(|request| Insertion { request, record: None })
        .collect();
    let scope = Scope::new(&s.operation, &s.namespace, &s.context);
    let (mut progress, mut position, mut refused) = (InsertProgress::default(), 0, Vec::new());
    while position < insertions.len() {
        let inserted = s.database.insert_many(&scope, &insertions[position..], &mut progress);
        position += inserted.count;
        if let Some(error) = inserted.error {
            assert_eq!(error.code(), ErrorCode::DuplicateKey);
            refused.push(position);
            position += 1;
        }
    }
    let mut seen = std::collections::HashSet::new();
    let is_duplicate = |at: &usize| !seen.insert(documents[*at].bytes().to_vec());
    assert_eq!(refused, (0..documents.len()).filter(is_duplicate).collect::<Vec<_>>());
    s.check();
}

/// Threads that are always idle.
#[derive(Default)]
struct Threads {
    started: AtomicUsize,
    /// The operation to kill when the first thread starts.
    kills: Option<Arc<Operation>>,
}

impl Helpers for Threads {
    fn has_idle(&self) -> bool {
        true
    }

    fn is_busy(&self) -> bool {
        false
    }

    fn run(&self, work: Box<dyn FnOnce() + Send>) -> bool {
        self.started.fetch_add(1, Relaxed);
        self.kills.iter().for_each(|operation| operation.kill());
        std::thread::spawn(work);
        true
    }
}

#[test]
fn groups_and_sorts_over_a_scan_take_the_help_of_other_threads() {
    let session = Session::new();
    let documents: Vec<DocumentBuf> =
        (0..30_000).map(|i| json(&format!("{{_id: {i}, a: {}, b: {}}}", i % 7, i as f64 / 3.0))).collect();
    let scope = Scope::new(&session.operation, &session.namespace, &session.context);
    for documents in documents.chunks(10_000) {
        let inserts = documents
            .iter()
            .map(|document| InsertRequest { document: document.view(), bypass_validation: false });
        for insert in inserts {
            session.database.insert(&scope, insert).unwrap();
        }
    }
    session.delete("{_id: {$gte: 10000, $lt: 14000}}", false);
    let run = |operation: &Arc<Operation>, helpers: Option<Arc<dyn Helpers>>, stages: &str| {
        let mut context = Context::new(0, 1, operation.clone());
        context.helpers = helpers;
        let stages = json(&format!("{{v: [{stages}]}}"));
        let request =
            AggregateRequest::new(stages.view().get("v").and_then(|value| value.as_array()).unwrap());
        let scope = Scope::new(operation, &session.namespace, &Arc::new(context));
        let mut cursor = session.database.aggregate(&scope, &request)?;
        let mut batch = Builder::new();
        batch.begin_array(c"batch");
        cursor.next_batch(100_000, &mut batch)?;
        batch.end();
        Ok(batch.finish())
    };
    let examined = |operation: &Operation| operation.docs_examined.load(Relaxed);
    let group = "{$group: {_id: '$a', n: {$sum: 1}, b: {$sum: '$b'}, first: {$first: '$_id'}, last: {$last: '$_id'}}}";
    let sort = "{$sort: {a: -1}}";
    for stage in [group, sort, &format!("{sort}, {{$limit: 5}}"), &format!("{{$set: {{c: 1}}}}, {sort}")] {
        for filter in ["{}", "{_id: {$type: 'int'}}", "{a: {$ne: 3}}", "{b: 99}"] {
            let stages = format!("{{$match: {filter}}}, {stage}");
            let threads = Arc::new(Threads::default());
            let [alone, helped] = [1, 2].map(|id| Arc::new(session.database.operation(id)));
            let expected: Result<DocumentBuf> = run(&alone, None, &stages);
            assert_eq!(run(&helped, Some(threads.clone()), &stages).unwrap(), expected.unwrap(), "{stages}");
            assert_eq!(examined(&helped), examined(&alone), "{stages}");
            // An index scan has no parts, and groups of a single row are not split.
            let has_parts = !filter.contains("_id") && (stage != group || filter != "{b: 99}");
            assert_eq!(threads.started.load(Relaxed) > 0, has_parts, "{stages}");
        }
        let killed = Arc::new(session.database.operation(3));
        let threads = Arc::new(Threads { kills: Some(killed.clone()), ..Threads::default() });
        let error = run(&killed, Some(threads.clone()), stage).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Interrupted);
        assert!(threads.started.load(Relaxed) > 0);
    }
}

#[test]
fn a_capped_collection_far_beyond_its_limits_loses_its_oldest_documents_in_several_commits() {
    let s = Session::new();
    let scope = Scope::new(&s.operation, &s.namespace, &s.context);
    (0..1000).for_each(|id| s.insert(&format!("{{_id: {id}}}")).unwrap());
    let is_split = |commits: u64| assert!((3..20).contains(&commits), "{commits} commits");
    let before = s.database.latest_position().0;
    s.database.convert_to_capped(&scope, 1 << 20, &mut None).unwrap();
    s.database.convert_to_capped(&scope, 300 * 14, &mut None).unwrap();
    is_split(s.database.latest_position().0 - before - 2);
    assert_eq!(s.database.collection(&s.namespace).unwrap().records(), 300);
    let limits = CollectionChange { capped_size: Some(1 << 20), ..CollectionChange::default() };
    s.database.modify_collection(&scope, &limits, &mut BuildProgress::default()).unwrap();
    (1000..2000).for_each(|id| s.insert(&format!("{{_id: {id}}}")).unwrap());
    let limits = CollectionChange { capped_max: Some(3), ..CollectionChange::default() };
    s.database.modify_collection(&scope, &limits, &mut BuildProgress::default()).unwrap();
    let before = s.database.latest_position().0;
    s.insert("{_id: 2000}").unwrap();
    is_split(s.database.latest_position().0 - before);
    assert_eq!(s.find("{}"), r#"{"_id":1998} {"_id":1999} {"_id":2000}"#);
    s.insert("{_id: 2001}").unwrap();
    assert_eq!(s.find("{}"), r#"{"_id":1999} {"_id":2000} {"_id":2001}"#);
    s.check();
}
