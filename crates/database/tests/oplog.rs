//! Oplog entries of statements, transactions and catalog changes.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use base::bson::extended_json::parse;
use base::bson::{DocumentBuf, Value};
use base::{ErrorCode, Namespace};
use database::language::{Context, Matcher, Update};
use database::{Database, DeleteRequest, InsertRequest, Operation, Scope, SystemClock, UpdateRequest};
use query::change::{Entry, oplog_documents};
use query::context::Uninterrupted;
use std::ops::Bound;
use std::sync::Arc;
use storage::MemoryEngine;
use storage::store::LogOptions;

struct Session {
    database: Arc<Database>,
    context: Arc<Context>,
    namespace: Namespace,
}

impl Session {
    fn new() -> Session {
        let log = Some(LogOptions { bytes: 1 << 20 });
        let engine = Arc::new(MemoryEngine::new());
        Session {
            database: Database::open_with(engine, Arc::new(SystemClock), 7, log).unwrap(),
            context: Arc::new(Context::new(0, 7, Arc::new(Uninterrupted))),
            namespace: Namespace::parse("test.c").unwrap(),
        }
    }

    fn insert(&self, operation: &Arc<Operation>, document: &str) {
        let document = parse(document).unwrap();
        let request = InsertRequest { document: document.view(), bypass_validation: false };
        self.database.insert(&Scope::new(operation, &self.namespace, &self.context), request).unwrap();
    }

    fn update(&self, operation: &Arc<Operation>, filter: &str, update: &str) {
        let (filter, update) = (parse(filter).unwrap(), parse(update).unwrap());
        let request = UpdateRequest {
            matcher: Arc::new(Matcher::parse(filter.view(), &self.context).unwrap()),
            update: Update::parse(Value::Document(update.view()), &[], &self.context).unwrap().into(),
            multi: false,
            upsert: false,
            sort: None,
            hint: None,
            bypass_validation: false,
        };
        self.database.update(&Scope::new(operation, &self.namespace, &self.context), &request).unwrap();
    }

    fn delete_all(&self) {
        let matcher = Arc::new(Matcher::parse(DocumentBuf::empty().view(), &self.context).unwrap());
        let request = DeleteRequest { matcher, single: false, hint: None };
        let operation = Arc::new(self.database.operation(1));
        self.database.delete(&Scope::new(&operation, &self.namespace, &self.context), &request).unwrap();
    }

    /// Returns the oplog's documents, reduced to parts that are equal in each run.
    fn oplog(&self) -> Vec<String> {
        let (mut cursor, end) = self.database.log_cursor(Bound::Unbounded).unwrap();
        let mut reported = Vec::new();
        let mut last = 0;
        while let Some(entry) = cursor.next_entry().unwrap() {
            assert!(last < entry.time && entry.time <= end);
            last = entry.time;
            let entry = Entry::read(entry.time, &entry.parts).unwrap();
            for document in oplog_documents(&entry) {
                let view = document.view();
                let field = |name: &str| view.get(name).map_or(String::new(), |value| value.to_string());
                reported.push(format!("{} {} {} {}", field("op"), field("ns"), field("o"), field("o2")));
            }
        }
        reported
    }
}

#[test]
fn each_change_has_its_entry_in_the_order_of_commits() {
    let s = Session::new();
    let operation = Arc::new(s.database.operation(1));
    s.insert(&operation, "{_id: 1, a: 1}");
    s.update(&operation, "{_id: 1}", "{$inc: {a: 1}}");
    s.update(&operation, "{_id: 1}", "{b: 5}");
    // A write without changes is not logged.
    s.update(&operation, "{_id: 1}", "{$set: {b: 5}}");
    let joined = s.database.operation(2);
    joined.set_transaction(s.database.begin_transaction(None, None).unwrap());
    let joined = Arc::new(joined);
    s.insert(&joined, "{_id: 2}");
    s.update(&joined, "{_id: 1}", "{$set: {c: 1}}");
    assert_eq!(s.oplog().len(), 5);
    s.database.commit_transaction(&joined, joined.transaction().unwrap()).unwrap();
    s.delete_all();
    s.database.drop_database(&Uninterrupted, "test").unwrap();
    let reported = s.oplog();
    let starts = [
        "\"n\" \"\" { msg: \"initiating set\" }",
        "\"c\" \"test.$cmd\" { create: \"c\"",
        "\"i\" \"test.c\" { _id: 1, a: 1 }",
        "\"u\" \"test.c\" { $v: 2, diff: { u: { a: 2 } } } { _id: 1 }",
        "\"u\" \"test.c\" { _id: 1, b: 5 } { _id: 1 }",
        "\"c\" \"admin.$cmd\" { applyOps: [ { op: \"i\"",
        "\"c\" \"admin.$cmd\" { applyOps: [ { op: \"d\"",
        "\"c\" \"test.$cmd\" { drop: \"c\" }",
        "\"c\" \"test.$cmd\" { dropDatabase: 1 }",
    ];
    for (reported, start) in reported.iter().zip(starts) {
        assert!(reported.starts_with(start), "{reported}\n{start}");
    }
    assert_eq!(reported.len(), starts.len(), "{reported:#?}");
}

#[test]
fn statistics_count_the_log_and_are_interruptible() {
    let s = Session::new();
    s.insert(&Arc::new(s.database.operation(1)), "{_id: 1}");
    let count = |operation: &Operation, name: &str| {
        let statistics = s.database.collection_statistics(operation, &Namespace::parse(name).unwrap());
        statistics.map(|statistics| statistics.count).map_err(|error| error.code())
    };
    let operation = s.database.operation(1);
    assert_eq!(count(&operation, "local.oplog.rs"), Ok(s.oplog().len() as i64));
    assert_eq!(count(&operation, "test.c"), Ok(1));
    operation.kill();
    for name in ["local.oplog.rs", "test.c"] {
        assert_eq!(count(&operation, name), Err(ErrorCode::Interrupted), "{name}");
    }
}

#[test]
fn a_standalone_logs_nothing() {
    let s = Session {
        database: Database::open(Arc::new(MemoryEngine::new()), Arc::new(SystemClock), 7).unwrap(),
        ..Session::new()
    };
    s.insert(&Arc::new(s.database.operation(1)), "{_id: 1}");
    assert_eq!(s.database.log_bytes(), None);
    assert!(s.oplog().is_empty());
}

#[test]
fn the_journal_writes_a_logged_document_once() {
    use storage::testing::FaultyFiles;
    use storage::{DiskEngine, DiskOptions, Engine};
    let bytes_of_an_insert = |log: Option<LogOptions>| {
        let engine = DiskEngine::open_on(Arc::new(FaultyFiles::new()), &DiskOptions::new("/data")).unwrap();
        let engine: Arc<dyn Engine> = Arc::new(engine);
        let s = Session {
            database: Database::open_with(engine.clone(), Arc::new(SystemClock), 7, log).unwrap(),
            ..Session::new()
        };
        let text = "x".repeat(460);
        s.insert(&Arc::new(s.database.operation(1)), "{_id: 0}");
        let before = engine.statistics().journal_bytes;
        (1..=100).for_each(|id| {
            s.insert(&Arc::new(s.database.operation(1)), &format!("{{_id: {id}, text: '{text}'}}"))
        });
        (engine.statistics().journal_bytes - before) / 100
    };
    let (without, with) = (bytes_of_an_insert(None), bytes_of_an_insert(Some(LogOptions { bytes: 1 << 26 })));
    println!("{without} bytes of journal for an insert without the oplog, {with} with it");
    assert!(with < without + without / 5, "{with} bytes instead of {without}");
}

#[test]
fn a_read_at_a_cluster_time_compares_as_the_collection_did_then() {
    let s = Session::new();
    let operation = Arc::new(Operation::new(0));
    let create = |options: &str| {
        let options = parse(options).unwrap();
        s.database.create_collection(&operation, &s.namespace, options.view(), &s.context).unwrap();
        s.insert(&operation, "{_id: 1, v: 'Hello'}");
    };
    create("{collation: {locale: 'en', strength: 2}}");
    let (then, view) = s.database.snapshot_at(None).unwrap();
    s.database.drop_collection(operation.as_ref(), &s.namespace).unwrap();
    create("{}");
    let found = |operation: Operation| {
        let context = Context::new(0, 7, Arc::new(Uninterrupted));
        let scope = s.database.scope_to_read(Arc::new(operation), &s.namespace, None, None, context).unwrap();
        let filter = parse("{v: 'hello'}").unwrap();
        s.database.count(&scope, filter.view(), None, 0, 0).unwrap()
    };
    let past = Operation::new(0);
    past.set_snapshot(then, view);
    assert_eq!((found(past), found(Operation::new(0))), (1, 0));
}
