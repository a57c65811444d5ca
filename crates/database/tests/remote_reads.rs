//! Reads over a PostgreSQL server: few round trips for every plan, and the results of the memory
//! engine.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use base::Namespace;
use base::bson::extended_json::parse;
use base::bson::{Builder, DocumentBuf};
use database::index::IndexSpec;
use database::language::{Context, Matcher, Update};
use database::{
    Database, DeleteRequest, FindRequest, InsertRequest, Insertion, Operation, Scope, SystemClock,
    UpdateRequest,
};
use postgres::PostgresStore;
use postgres::testing::Cluster;
use query::context::Uninterrupted;
use std::sync::Arc;
use storage::MemoryEngine;
use storage::store::{Local, Store};

struct Fixture {
    database: Arc<Database>,
    context: Arc<Context>,
    namespace: Namespace,
}

impl Fixture {
    fn new(store: Arc<dyn Store>) -> Fixture {
        let database = Database::open_on(store, Arc::new(SystemClock), 1).unwrap();
        let context = Arc::new(Context::new(0, 1, Arc::new(Uninterrupted)));
        let fixture = Fixture { database, context, namespace: Namespace::parse("test.c").unwrap() };
        fixture.insert(&documents());
        for (name, key, more) in INDEXES {
            let spec = parse(&format!("{{key: {key}, name: '{name}'{more}}}")).unwrap();
            let spec = IndexSpec::parse(spec.view(), &fixture.namespace, &fixture.context).unwrap();
            let (operation, database) = (fixture.operation(), &fixture.database);
            database.create_indexes(&operation, &fixture.namespace, [spec], &fixture.context).unwrap();
        }
        fixture
    }

    fn operation(&self) -> Arc<Operation> {
        Arc::new(self.database.operation(1))
    }

    fn insert(&self, documents: &[DocumentBuf]) {
        let insertion = |document| {
            let request = InsertRequest { document, bypass_validation: false };
            Insertion { request, record: None }
        };
        let insertions: Vec<_> = documents.iter().map(|document| insertion(document.view())).collect();
        let operation = self.operation();
        let done = self.database.insert_many(
            &Scope::new(&operation, &self.namespace, &self.context),
            &insertions,
            &mut Default::default(),
        );
        assert_eq!(done.count, documents.len());
    }

    /// Runs a find given as a document of `filter`, `projection`, `sort`, `skip` and `limit`.
    fn find(&self, operation: &Arc<Operation>, find: &str) -> Vec<String> {
        let find = parse(find).unwrap();
        let part = |name| find.view().get(name).and_then(|value| value.as_document());
        let number = |name| find.view().get(name).and_then(|value| value.as_i64()).unwrap_or(0) as u64;
        let mut request = FindRequest::new(part("filter").unwrap());
        request.sort = part("sort").unwrap_or(request.sort);
        request.projection = part("projection").unwrap_or(request.projection);
        (request.skip, request.limit) = (number("skip"), number("limit"));
        let open = || self.database.find(&Scope::new(operation, &self.namespace, &self.context), &request);
        let mut cursor = self.database.by_latest_catalog(open).unwrap();
        let mut out = Builder::new();
        out.begin_array(c"found");
        cursor.next_batch(u64::MAX, &mut out).unwrap();
        out.end();
        let found = out.finish();
        let list = found.view().get("found").and_then(|found| found.as_array()).unwrap();
        list.iter().map(|document| document.to_string()).collect()
    }
}

const INDEXES: [(&str, &str, &str); 5] = [
    ("a_b", "{a: 1, b: -1}", ""),
    ("u", "{u: 1}", ", unique: true"),
    ("tags", "{tags: 1}", ""),
    ("text", "{s: 'text'}", ""),
    ("s", "{s: 1}", ""),
];

/// Returns three thousand documents, some with arrays, some too long for a page.
fn documents() -> Vec<DocumentBuf> {
    let document = |id: usize| {
        let (a, b, long) = (id * 7 % 50, id * 13 % 61, if id.is_multiple_of(97) { 60_000 } else { 20 });
        let text = format!("word{} all {}", id % 30, "x".repeat(long % 1000));
        let pad = "y".repeat(long);
        // A field that few documents lack.
        let rare = if id == 0 || id % 500 == 499 { "rare: ['none', 'one'], " } else { "" };
        let c = if id > 200 && id % 100 == 50 { String::new() } else { format!("c: {}, ", id % 9) };
        let document = format!(
            "{{_id: {id}, a: {a}, b: {b}, u: {}, {c}{rare}tags: [{}, {}], s: '{text}', pad: '{pad}'}}",
            id * 3,
            id % 40,
            id % 17
        );
        parse(&document).unwrap()
    };
    (0..3000).map(document).collect()
}

/// Returns finds with their maximum number of round trips: a page of 102 entries, then eight times
/// as many, and one for each document that is too long for a page.
fn finds() -> Vec<(String, u64)> {
    let list = |numbers: &mut dyn Iterator<Item = usize>| {
        numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(", ")
    };
    let many = list(&mut (0..1500).map(|number| number * 2));
    let unique = list(&mut (0..300).map(|number| number * 9));
    let branches = list_of(20, &|number| format!("{{a: {number}, b: {}}}", number * 3 % 61));
    let find = |find: String, trips: u64| (find, trips);
    vec![
        find(format!("{{filter: {{_id: {{$in: [{many}]}}}}}}"), 8),
        find(format!("{{filter: {{_id: {{$in: [{many}]}}}}, sort: {{_id: -1}}}}"), 8),
        find(format!("{{filter: {{u: {{$in: [{unique}]}}}}}}"), 4),
        find(format!("{{filter: {{u: {{$in: [{unique}]}}}}, sort: {{u: -1}}, skip: 50, limit: 20}}"), 2),
        find("{filter: {a: {$in: [3, 17, 21, 48, 99]}}}".to_string(), 6),
        find("{filter: {a: {$in: [3, 17, 21]}, b: {$in: [1, 5, 9, 60]}}}".to_string(), 1),
        find("{filter: {a: {$in: [3, 17, 21]}, b: {$gt: 50}}, sort: {a: -1, b: 1}}".to_string(), 2),
        find("{filter: {a: {$in: [3, 17, 21, 30]}}, sort: {b: -1}}".to_string(), 6),
        find("{filter: {a: {$in: [3, 17, 21, 30]}}, sort: {b: 1}, limit: 5}".to_string(), 2),
        find(format!("{{filter: {{$or: [{branches}]}}}}"), 4),
        find("{filter: {$or: [{a: 5}, {u: {$lt: 60}}, {tags: 39}]}}".to_string(), 4),
        find("{filter: {tags: {$in: [1, 5, 39]}}}".to_string(), 6),
        find("{filter: {a: 7, b: {$mod: [2, 0]}}}".to_string(), 4),
        find("{filter: {s: /^word1.*x{3}/}}".to_string(), 20),
        find("{filter: {$text: {$search: 'word7 word9'}}}".to_string(), 5),
        find("{filter: {a: {$gte: 10, $lt: 12}, b: 7}}".to_string(), 5),
        find("{filter: {a: 11}, limit: 1}".to_string(), 1),
        find("{filter: {a: {$gte: 0}}, sort: {a: 1, b: -1}}".to_string(), 8),
        find("{filter: {b: {$gt: 30}}, projection: {_id: 0, b: 1, u: 1}}".to_string(), 4),
        find("{filter: {c: {$in: [null, 3]}}, projection: {_id: 1, tags: 1}}".to_string(), 6),
        find("{filter: {c: {$lt: 5}}, projection: {_id: 0, c: 1}, sort: {b: -1, u: 1}}".to_string(), 6),
        find(
            "{filter: {$expr: {$gt: ['$b', '$a']}}, projection: {c: 1}, sort: {$natural: -1}}".to_string(),
            6,
        ),
        find("{filter: {b: 7}, projection: {pad: 1}}".to_string(), 40),
        find(format!("{{filter: {{pad: '{}'}}}}", "y".repeat(20)), 12),
        find(format!("{{filter: {{pad: '{}'}}}}", "y".repeat(60_000)), 12),
        find("{filter: {$comment: 'scan', rare: 'one'}, projection: {a: 1}}".to_string(), 5),
        find("{filter: {a: {$gt: 1}, rare: {$in: ['one']}}, sort: {$natural: -1}}".to_string(), 5),
    ]
}

fn list_of(count: usize, item: &dyn Fn(usize) -> String) -> String {
    (0..count).map(item).collect::<Vec<_>>().join(", ")
}

#[test]
fn finds_take_few_round_trips() {
    let Some(cluster) = Cluster::start().unwrap() else {
        return println!("skipped: PostgreSQL isn't installed (apt-get install postgresql)");
    };
    let store = PostgresStore::open(cluster.config().unwrap(), "far", postgres::Limits::default(), None);
    let store = Arc::new(store.unwrap());
    let trips = || store.round_trips();
    let far = Fixture::new(store.clone());
    let near = Fixture::new(Arc::new(Local::new(Arc::new(MemoryEngine::new()), None).unwrap()));
    let mut failed = Vec::new();
    for (find, most) in finds() {
        let (there, here) = (far.operation(), near.operation());
        let before = trips();
        let found = far.find(&there, &find);
        let taken = trips() - before;
        let short = find.get(..90).unwrap_or(&find);
        let expected = near.find(&here, &find);
        assert!(found == expected && !found.is_empty(), "{short}: {} of {}", found.len(), expected.len());
        let counts = |operation: &Operation| {
            use std::sync::atomic::Ordering::Relaxed;
            (operation.keys_examined.load(Relaxed), operation.docs_examined.load(Relaxed))
        };
        // Keys between ranges are omitted.
        assert!(counts(&there).0 <= counts(&here).0, "{short}");
        assert_eq!(counts(&there).1, counts(&here).1, "{short}");
        println!("{taken:3} of {most:3} for {:5}: {short}", found.len());
        if taken > most {
            failed.push(format!("{taken} round trips for {short}"));
        }
    }
    in_a_transaction(&far, &near, &trips);
    updates(&far, &near, &trips);
    deletes(&far, &near, &trips);
    assert!(failed.is_empty(), "{failed:#?}");
}

/// Records prefetched with an index's entries include a transaction's changes.
fn in_a_transaction(far: &Fixture, near: &Fixture, trips: &dyn Fn() -> u64) {
    let [there, here] = [far, near].map(|fixture| {
        let operation = fixture.operation();
        operation.set_transaction(fixture.database.begin_transaction(None, None).unwrap());
        let update = |filter: &str, update: &str| {
            let (filter, update) = (parse(filter).unwrap(), parse(update).unwrap());
            let update = base::bson::Value::Document(update.view());
            let request = UpdateRequest {
                matcher: Arc::new(Matcher::parse(filter.view(), &fixture.context).unwrap()),
                update: Update::parse(update, &[], &fixture.context).unwrap().into(),
                multi: true,
                upsert: false,
                sort: None,
                hint: None,
                bypass_validation: false,
            };
            let updated = fixture
                .database
                .update(&Scope::new(&operation, &fixture.namespace, &fixture.context), &request);
            assert!(updated.unwrap().modified > 0);
        };
        update("{_id: {$in: [3, 53, 103, 7]}}", "{$set: {pad: 'changed'}}");
        update("{_id: {$in: [4, 54]}}", "{$set: {a: 21, pad: 'moved'}}");
        operation
    });
    for find in [
        "{filter: {a: 21}}",
        "{filter: {_id: 53}}",
        "{filter: {a: {$in: [21, 28, 49]}}}",
        "{filter: {a: {$in: [21, 28, 49]}}, sort: {b: 1}}",
        "{filter: {$or: [{a: 21}, {u: {$in: [9, 12, 159]}}]}}",
        "{filter: {$text: {$search: 'word3'}}}",
        "{filter: {b: {$lt: 9}}, projection: {a: 1}}",
        "{filter: {c: {$ne: 2}}, projection: {c: 1, a: 1}}",
        "{filter: {rare: 'one'}}",
    ] {
        let before = trips();
        let found = far.find(&there, find);
        let taken = trips() - before;
        assert!(found == near.find(&here, find) && !found.is_empty(), "{find}");
        println!("{taken:3} for {:5}: {find}", found.len());
        assert!(taken <= 6, "{taken} round trips for {find}");
    }
    for (fixture, operation) in [(far, &there), (near, &here)] {
        fixture.database.abort_transaction(operation.transaction().unwrap());
    }
}

/// An update of many documents commits groups of documents.
fn updates(far: &Fixture, near: &Fixture, trips: &dyn Fn() -> u64) {
    let (filter, update) = (parse("{_id: {$lt: 100}}").unwrap(), parse("{$inc: {counted: 1}}").unwrap());
    let before = trips();
    for fixture in [far, near] {
        let operation = fixture.operation();
        let request = UpdateRequest {
            matcher: Arc::new(Matcher::parse(filter.view(), &fixture.context).unwrap()),
            update: Update::parse(base::bson::Value::Document(update.view()), &[], &fixture.context)
                .unwrap()
                .into(),
            multi: true,
            upsert: false,
            sort: None,
            hint: None,
            bypass_validation: false,
        };
        let scope = Scope::new(&operation, &fixture.namespace, &fixture.context);
        let outcome = fixture.database.update(&scope, &request).unwrap();
        assert_eq!((outcome.matched, outcome.modified), (100, 100));
    }
    let taken = trips() - before;
    println!("{taken:3} for an update of 100 documents");
    assert!(taken <= 8, "{taken} round trips for an update of 100 documents");
    let all = "{filter: {}}";
    assert_eq!(far.find(&far.operation(), all), near.find(&near.operation(), all));
}

/// A delete of many documents commits groups of documents.
fn deletes(far: &Fixture, near: &Fixture, trips: &dyn Fn() -> u64) {
    let filter = parse("{_id: {$lt: 100}}").unwrap();
    let before = trips();
    for fixture in [far, near] {
        let operation = fixture.operation();
        let matcher = Arc::new(Matcher::parse(filter.view(), &fixture.context).unwrap());
        let request = DeleteRequest { matcher, single: false, hint: None };
        let scope = Scope::new(&operation, &fixture.namespace, &fixture.context);
        assert_eq!(fixture.database.delete(&scope, &request).unwrap().0, 100);
    }
    let taken = trips() - before;
    println!("{taken:3} for a delete of 100 documents");
    assert!(taken <= 8, "{taken} round trips for a delete of 100 documents");
    let all = "{filter: {}}";
    assert_eq!(far.find(&far.operation(), all), near.find(&near.operation(), all));
}
