//! Two databases share one store, in this process or in a PostgreSQL server. Each sees the other's
//! changes at its next statement. Neither relies on private knowledge.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use base::Namespace;
use base::bson::Document;
use base::bson::extended_json::parse;
use database::index::IndexSpec;
use database::language::{Context, Matcher, Update};
use database::validate::Depth;
use database::{
    Database, DeleteRequest, FindRequest, InsertProgress, InsertRequest, Insertion, Operation, RetryKey,
    Scope, SessionId, SystemClock, UpdateRequest,
};
use postgres::PostgresStore;
use postgres::testing::Cluster;
use query::context::Uninterrupted;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use storage::MemoryEngine;
use storage::store::{Local, Store};
use storage::testing::Shared;

struct Front {
    database: Arc<Database>,
    /// Number of requests to the store.
    calls: Arc<dyn Fn() -> u64 + Send + Sync>,
    context: Arc<Context>,
    namespace: Namespace,
}

/// Returns two databases on one store with this delay of its calls.
fn fronts(delay: Duration) -> [Front; 2] {
    let local = Arc::new(Local::new(Arc::new(MemoryEngine::new()), None).unwrap());
    [1, 2].map(|seed| {
        let store = Arc::new(Shared::new(&local, delay));
        Front::new(store.clone(), seed, Arc::new(move || store.calls()))
    })
}

/// Returns two databases on a separate schema of a PostgreSQL server.
fn fronts_on(cluster: &Cluster, schema: &str, log_bytes: Option<u64>) -> [Front; 2] {
    [1, 2].map(|seed| {
        let config = cluster.config().unwrap();
        let limits = postgres::Limits::default();
        let store = Arc::new(PostgresStore::open(config, schema, limits, log_bytes).unwrap());
        Front::new(store.clone(), seed, Arc::new(move || store.round_trips()))
    })
}

impl Front {
    fn new(store: Arc<dyn Store>, seed: u64, calls: Arc<dyn Fn() -> u64 + Send + Sync>) -> Front {
        Front {
            database: Database::open_on(store, Arc::new(SystemClock), seed).unwrap(),
            calls,
            context: Arc::new(Context::new(0, seed, Arc::new(Uninterrupted))),
            namespace: Namespace::parse("test.c").unwrap(),
        }
    }

    fn operation(&self) -> Arc<Operation> {
        Arc::new(self.database.operation(1))
    }

    fn insert(&self, document: &str) -> base::Result<()> {
        let document = parse(document).unwrap();
        let request = InsertRequest { document: document.view(), bypass_validation: false };
        self.database
            .insert(&Scope::new(&self.operation(), &self.namespace, &self.context), request)
            .map(drop)
    }

    fn update(&self, filter: &str, update: &str) -> base::Result<u64> {
        let (filter, update) = (parse(filter).unwrap(), parse(update).unwrap());
        let request = UpdateRequest {
            matcher: Arc::new(Matcher::parse(filter.view(), &self.context)?),
            update: Update::parse(base::bson::Value::Document(update.view()), &[], &self.context)?.into(),
            multi: false,
            upsert: false,
            sort: None,
            hint: None,
            bypass_validation: false,
        };
        let operation = self.operation();
        let update =
            || self.database.update(&Scope::new(&operation, &self.namespace, &self.context), &request);
        self.database.by_latest_catalog(update).map(|outcome| outcome.modified)
    }

    fn delete(&self, filter: &str) -> base::Result<u64> {
        let filter = parse(filter).unwrap();
        let matcher = Arc::new(Matcher::parse(filter.view(), &self.context)?);
        let request = DeleteRequest { matcher, single: true, hint: None };
        let operation = self.operation();
        let delete =
            || self.database.delete(&Scope::new(&operation, &self.namespace, &self.context), &request);
        self.database.by_latest_catalog(delete).map(|(n, _)| n)
    }

    fn index(&self, spec: &str) -> base::Result<()> {
        let spec = IndexSpec::parse(parse(spec).unwrap().view(), &self.namespace, &self.context)?;
        self.database.create_indexes(&self.operation(), &self.namespace, [spec], &self.context).map(drop)
    }

    fn find(&self, filter: &str) -> Vec<String> {
        let filter = parse(filter).unwrap();
        let request = FindRequest::new(filter.view());
        let operation = self.operation();
        let find = || self.database.find(&Scope::new(&operation, &self.namespace, &self.context), &request);
        let cursor = self.database.by_latest_catalog(find);
        let mut out = base::bson::Builder::new();
        out.begin_array(c"found");
        cursor.unwrap().next_batch(u64::MAX, &mut out).unwrap();
        out.end();
        let found = out.finish();
        let list = found.view().get("found").and_then(|found| found.as_array()).unwrap();
        list.iter().map(|document| document.to_string()).collect()
    }

    fn count(&self) -> u64 {
        let (operation, all) = (self.operation(), Document::EMPTY);
        let count =
            || self.database.count(&Scope::new(&operation, &self.namespace, &self.context), all, None, 0, 0);
        self.database.by_latest_catalog(count).unwrap()
    }

    fn check(&self) {
        let found = self.database.validate(&self.namespace, Depth::Full, &self.context).unwrap();
        assert!(found.is_valid(), "{found:?}");
    }

    /// Returns the number of calls made by a function.
    fn calls(&self, work: impl FnOnce()) -> u64 {
        let before = (self.calls)();
        work();
        (self.calls)() - before
    }
}

/// A test for any store that two databases can share.
type Case = fn(&[Front; 2]);

const CASES: [(&str, Case); 4] = [
    ("calls", a_statement_makes_few_calls),
    ("sees", what_one_does_the_other_sees),
    ("lost", no_change_of_either_is_lost),
    ("heed", transactions_of_both_heed_each_other),
];

#[test]
fn in_this_process() {
    CASES.iter().for_each(|(_, case)| case(&fronts(Duration::ZERO)));
}

#[test]
fn over_postgresql() {
    let Some(cluster) = Cluster::start().unwrap() else {
        return println!("skipped: PostgreSQL isn't installed (apt-get install postgresql)");
    };
    CASES.iter().for_each(|(name, case)| case(&fronts_on(&cluster, name, None)));
    what_one_does_the_other_sees(&fronts_on(&cluster, "unlogged", Some(0)));
    connections_that_end_are_replaced(&cluster, &fronts_on(&cluster, "ended", None));
    inserts_of_a_retryable_write_have_one_record(&fronts_on(&cluster, "retried", None));
    statistics_of_the_log_need_no_stream(&fronts_on(&cluster, "logged", None));
    a_cursor_left_open_keeps_no_connection(&cluster);
    multikey_bits_lost_in_a_crash_are_stored_again(&cluster, &fronts_on(&cluster, "crashed", None));
}

/// Neither process follows the log, since neither has a change stream.
fn statistics_of_the_log_need_no_stream(fronts: &[Front; 2]) {
    (0..3).for_each(|id| fronts[0].insert(&format!("{{_id: {id}}}")).unwrap());
    let log = Namespace::parse("local.oplog.rs").unwrap();
    // The entries of the log itself, the collection and the documents.
    for front in fronts {
        let statistics = front.database.collection_statistics(&front.operation(), &log).unwrap();
        assert_eq!(statistics.count, 5);
    }
}

fn connections_that_end_are_replaced(cluster: &Cluster, [a, b]: &[Front; 2]) {
    a.insert("{_id: 1, n: 0}").unwrap();
    assert_eq!(b.find("{}").len(), 1);
    let operation = a.operation();
    operation.set_transaction(a.database.begin_transaction(None, None).unwrap());
    let transaction = operation.transaction().unwrap();
    for round in 1..4 {
        cluster.end_connections().unwrap();
        assert_eq!(b.update("{_id: 1}", "{$inc: {n: 1}}").unwrap(), 1);
        assert_eq!(a.find(&format!("{{n: {round}}}")).len(), 1);
        cluster.end_connections().unwrap();
        a.insert(&format!("{{_id: 'a{round}'}}")).unwrap();
        b.index(&format!("{{key: {{k{round}: 1}}, name: 'k{round}'}}")).unwrap();
    }
    // The end of the connection ends the transaction and its intents.
    let document = parse("{_id: 9}").unwrap();
    let request = InsertRequest { document: document.view(), bypass_validation: false };
    let inserted = a.database.insert(&Scope::new(&operation, &a.namespace, &a.context), request);
    assert_eq!(inserted.unwrap_err().code(), base::ErrorCode::HostUnreachable);
    a.database.abort_transaction(transaction);
    a.insert("{_id: 9}").unwrap();
    a.check();
}

/// A crash loses an insert and the multikey bits that it has added. The client sends the insert again.
fn multikey_bits_lost_in_a_crash_are_stored_again(cluster: &Cluster, [a, b]: &[Front; 2]) {
    let insert = || a.insert("{_id: 2, n: [0, 10]}").unwrap();
    a.insert("{_id: 1, n: 100}").unwrap();
    a.index("{key: {n: 1}, name: 'n_1'}").unwrap();
    cluster.run(&["create table crashed.before as select * from crashed.kv"]).unwrap();
    insert();
    let restore = ["delete from crashed.kv", "insert into crashed.kv select * from crashed.before"];
    cluster.run(&[restore[0], restore[1], "delete from crashed.life"]).unwrap();
    cluster.end_connections().unwrap();
    insert();
    for front in [a, b] {
        assert_eq!(front.find("{n: {$gt: 1, $lt: 5}}"), ["{ _id: 2, n: [ 0, 10 ] }"]);
    }
}

/// Work of other processes at the next long step of an operation, repeated until it returns true.
static OTHERS: Mutex<Option<Box<dyn Fn() -> bool + Send>>> = Mutex::new(None);

/// Runs long work after the work of other processes.
fn after_others(work: &mut dyn FnMut()) {
    let mut others = OTHERS.lock().unwrap();
    if others.as_ref().is_some_and(|others| others()) {
        *others = None;
    }
    drop(others);
    work();
}

/// Waits until a session of the server is in a state.
fn wait_for_session(cluster: &Cluster, state: &str) {
    let count = format!("select count(*) from pg_stat_activity where {state}");
    while cluster.run(&[&count]).unwrap() == Some(0) {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The lease of a builder lapses, as during a pause of its machine. Another process then reads the catalog, or starts.
#[test]
fn an_index_build_whose_lease_has_lapsed_starts_again() {
    let Some(cluster) = Cluster::start().unwrap() else {
        return println!("skipped: PostgreSQL isn't installed (apt-get install postgresql)");
    };
    let cluster = Arc::new(cluster);
    for (schema, starts) in [("lapsed", false), ("lapsed_at_start", true)] {
        let [a, b] = fronts_on(&cluster, schema, None).map(Arc::new);
        a.insert("{_id: 1, k: 1}").unwrap();
        assert_eq!(b.find("{}").len(), 1);
        let (server, other) = (cluster.clone(), b.clone());
        *OTHERS.lock().unwrap() = Some(Box::new(move || lapse(&server, schema, &other, starts)));
        let spec = parse("{key: {k: 1}, name: 'k_1'}").unwrap();
        let spec = IndexSpec::parse(spec.view(), &a.namespace, &a.context).unwrap();
        let operation = Operation::with_blocking(1, after_others);
        a.database.create_indexes(&operation, &a.namespace, [spec], &a.context).unwrap();
        assert!(OTHERS.lock().unwrap().is_none(), "the build went on alone");
        for front in [&a, &b] {
            assert_eq!(front.find("{k: {$gte: 2}}").len(), 2);
            front.check();
        }
    }
}

/// Lets the lease of the only builder lapse, and writes through a process that knows of the lapse: at once, and after
/// the builder has renewed its lease and read the documents. Returns false if no build is registered.
fn lapse(cluster: &Arc<Cluster>, schema: &str, other: &Arc<Front>, starts: bool) -> bool {
    let number = cluster.run(&[&format!("select front from {schema}.builds")]).unwrap();
    let Some(number) = number else { return false };
    let change_lease = |by: &str| {
        let sql = format!("update {schema}.fronts set until = until {by} where front = {number}");
        cluster.run(&[&sql]).unwrap();
    };
    change_lease("- interval '1 h'");
    let writer = match starts {
        true => fronts_on(cluster, schema, None).map(Arc::new)[0].clone(),
        false => other.clone(),
    };
    writer.insert("{_id: 2, k: 2}").unwrap();
    change_lease("+ interval '1 h'");
    // The builder needs the fence after it has read the documents.
    let fence =
        format!("('x' || left(encode(sha256('vellum fence \"{schema}\"'), 'hex'), 16))::bit(64)::int8");
    let hold = format!("select pg_advisory_xact_lock_shared({fence})::text, pg_sleep(60)::text");
    let holder = cluster.clone();
    std::thread::spawn(move || holder.run(&[&hold]));
    wait_for_session(cluster, "wait_event = 'PgSleep'");
    let cluster = cluster.clone();
    std::thread::spawn(move || {
        wait_for_session(&cluster, "wait_event = 'advisory' and query like '%idle_in_transaction_session%'");
        writer.insert("{_id: 3, k: 3}").unwrap();
        let end =
            "select count(pg_terminate_backend(pid)) from pg_stat_activity where wait_event = 'PgSleep'";
        cluster.run(&[end]).unwrap();
    });
    true
}

/// A process with a single read connection: a second reader takes it from an idle cursor.
fn a_cursor_left_open_keeps_no_connection(cluster: &Cluster) {
    let limits = postgres::Limits { reads: 1, ..postgres::Limits::default() };
    let store = PostgresStore::open(cluster.config().unwrap(), "cursor", limits, None).unwrap();
    let front = Front::new(Arc::new(store), 1, Arc::new(|| 0));
    front.index("{key: {n: 1}, name: 'n_1'}").unwrap();
    (0..1000).for_each(|id| front.insert(&format!("{{_id: {id}, n: {id}}}")).unwrap());
    let filter = parse("{n: {$gte: 0}}").unwrap();
    let request = FindRequest::new(filter.view());
    let open =
        || front.database.find(&Scope::new(&front.operation(), &front.namespace, &front.context), &request);
    let mut cursors = [open().unwrap(), open().unwrap()];
    let batch = |cursor: &mut database::Cursor, most: u64| {
        let mut out = base::bson::Builder::new();
        out.begin_array(c"found");
        let read = cursor.next_batch(most, &mut out);
        out.end();
        let found = out.finish();
        let count = found.view().get("found").and_then(|v| v.as_array()).unwrap().iter().count();
        read.map(|_| count)
    };
    assert_eq!(cursors.each_mut().map(|cursor| batch(cursor, 10).unwrap()), [10, 10]);
    assert_eq!(front.delete("{n: 999}").unwrap(), 1);
    // Documents deleted since are missing. No document is repeated, and no other document is
    // missing.
    assert_eq!(batch(&mut cursors[0], u64::MAX).unwrap(), 989);
    let dropped = Some(&["n_1".to_string()][..]);
    front.database.drop_indexes(&Uninterrupted, &front.namespace, dropped).unwrap();
    assert_eq!(front.find("{n: 5}").len(), 1);
    let rest = batch(&mut cursors[1], u64::MAX);
    assert_eq!(rest.unwrap_err().code(), base::ErrorCode::QueryPlanKilled);
}

fn what_one_does_the_other_sees([a, b]: &[Front; 2]) {
    a.insert("{_id: 1, n: 1}").unwrap();
    assert_eq!(b.find("{}"), ["{ _id: 1, n: 1 }"]);
    b.insert("{_id: 2, n: [1, 2]}").unwrap();
    b.index("{key: {n: 1}, name: 'n_1'}").unwrap();
    assert_eq!(a.find("{n: 1}").len(), 2);
    // An array on an index's path, unknown to the other process.
    a.insert("{_id: 3, n: [7, 8]}").unwrap();
    assert_eq!(b.find("{n: 8}"), ["{ _id: 3, n: [ 7, 8 ] }"]);
    assert_eq!(b.insert("{_id: 3}").unwrap_err().code(), base::ErrorCode::DuplicateKey);
    b.index("{key: {u: 1}, name: 'u_1', unique: true, sparse: true}").unwrap();
    a.update("{_id: 1}", "{$set: {u: 5}}").unwrap();
    assert_eq!(b.update("{_id: 2}", "{$set: {u: 5}}").unwrap_err().code(), base::ErrorCode::DuplicateKey);
    assert_eq!((a.count(), b.count()), (3, 3));
    a.check();
    b.check();
    a.database.drop_collection(&Uninterrupted, &a.namespace).unwrap();
    assert!(b.find("{}").is_empty() && b.database.collection(&b.namespace).is_none());
    b.insert("{_id: 1}").unwrap();
    assert_eq!(a.find("{}").len(), 1);
}

fn a_statement_makes_few_calls([a, b]: &[Front; 2]) {
    a.insert("{_id: 1, n: 0}").unwrap();
    b.find("{_id: 1}");
    assert_eq!(b.calls(|| assert_eq!(b.find("{_id: 1}").len(), 1)), 1);
    assert_eq!(b.calls(|| b.insert("{_id: 2}").unwrap()), 1);
    assert_eq!(b.calls(|| assert_eq!(b.update("{_id: 1}", "{$inc: {n: 1}}").unwrap(), 1)), 2);
    let documents: Vec<_> = (10..1010).map(|id| parse(&format!("{{_id: {id}}}")).unwrap()).collect();
    let insertions: Vec<Insertion<'_>> = documents
        .iter()
        .map(|document| Insertion {
            request: InsertRequest { document: document.view(), bypass_validation: false },
            record: None,
        })
        .collect();
    let calls = b.calls(|| {
        let inserted = b.database.insert_many(
            &Scope::new(&b.operation(), &b.namespace, &b.context),
            &insertions,
            &mut Default::default(),
        );
        assert_eq!((inserted.count, inserted.error.is_none()), (1000, true));
    });
    assert!(calls <= 5, "{calls} calls");
}

#[test]
fn an_old_catalog_is_found_out_by_the_first_read() {
    let [a, b] = fronts(Duration::ZERO);
    a.insert("{_id: 1, n: 5}").unwrap();
    // It does not know the collection, and asks the store before it returns nothing.
    assert_eq!(b.calls(|| assert_eq!(b.find("{_id: 1}").len(), 1)), 3);
    a.index("{key: {n: 1}, name: 'n_1'}").unwrap();
    // The first read is refused. The catalog and then the document are read.
    let filter = parse("{_id: 1}").unwrap();
    let operation = b.operation();
    let request = FindRequest::new(filter.view());
    let found = b.database.find(&Scope::new(&operation, &b.namespace, &b.context), &request);
    assert_eq!(found.err().unwrap().code(), base::ErrorCode::StaleConfig);
    assert_eq!(b.calls(|| assert_eq!(b.find("{_id: 1}").len(), 1)), 2);
    assert_eq!(b.calls(|| assert_eq!(b.find("{_id: 1}").len(), 1)), 1);
    // A page of an index, which is also the first read.
    assert_eq!(b.calls(|| assert_eq!(b.find("{n: 5}").len(), 1)), 2);
    // An error under the old catalog is not an error under the latest one.
    a.database.drop_collection(&Uninterrupted, &a.namespace).unwrap();
    let view = parse("{viewOn: 'other', pipeline: []}").unwrap();
    a.database.create_collection(&a.operation(), &a.namespace, view.view(), &a.context).unwrap();
    let refused = b.insert("{_id: 2}").unwrap_err();
    assert_eq!(refused.code(), base::ErrorCode::CommandNotSupportedOnView);
    a.database.drop_collection(&Uninterrupted, &a.namespace).unwrap();
    b.insert("{_id: 2}").unwrap();
    assert_eq!(a.find("{}"), ["{ _id: 2 }"]);
}

fn no_change_of_either_is_lost(fronts: &[Front; 2]) {
    fronts[0].insert("{_id: 0, n: 0}").unwrap();
    let deleted = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for (number, front) in fronts.iter().enumerate() {
            for worker in 0..2 {
                let deleted = &deleted;
                scope.spawn(move || {
                    for round in 0..100 {
                        front.update("{_id: 0}", "{$inc: {n: 1}}").unwrap();
                        let id = 1 + round * 4 + number * 2 + worker;
                        front.insert(&format!("{{_id: {id}, n: {id}, t: [1, {id}]}}")).unwrap();
                        if round % 5 == 0 {
                            deleted.fetch_add(
                                front.delete(&format!("{{n: {id}, _id: {id}}}")).unwrap(),
                                Ordering::Relaxed,
                            );
                        }
                    }
                });
            }
        }
        scope.spawn(|| {
            for round in 0..10 {
                let front = &fronts[round % 2];
                // Each pair of `t` and `n` belongs to one document.
                front
                    .index(&format!(
                        "{{key: {{t: 1, n: {}}}, name: 'i{round}', unique: true}}",
                        1 - 2 * (round % 2 == 0) as i32
                    ))
                    .unwrap();
                front
                    .database
                    .drop_indexes(&Uninterrupted, &front.namespace, Some(&[format!("i{round}")]))
                    .ok();
            }
            fronts[1].index("{key: {t: 1}, name: 't_1'}").unwrap();
        });
    });
    let [a, b] = fronts;
    assert_eq!(a.find("{_id: 0}"), ["{ _id: 0, n: 400 }"]);
    let expected = 401 - deleted.load(Ordering::Relaxed);
    for front in [a, b] {
        assert_eq!(front.find("{}").len() as u64, expected);
        assert_eq!(front.count(), expected);
        front.check();
    }
    assert_eq!(a.find("{t: 1}").len() as u64, expected - 1);
}

fn transactions_of_both_heed_each_other([a, b]: &[Front; 2]) {
    a.insert("{_id: 1, n: 0}").unwrap();
    let joined = |front: &Front| {
        let operation = front.database.operation(1);
        operation.set_transaction(front.database.begin_transaction(None, None).unwrap());
        Arc::new(operation)
    };
    let (in_a, in_b) = (joined(a), joined(b));
    let document = |text: &str| parse(text).unwrap();
    let insert = |front: &Front, operation: &Arc<Operation>, text: &str| {
        let document = document(text);
        let request =
            InsertRequest { document: Document::from_valid(document.bytes()), bypass_validation: false };
        front.database.insert(&Scope::new(operation, &front.namespace, &front.context), request).map(drop)
    };
    insert(a, &in_a, "{_id: 2}").unwrap();
    assert_eq!(b.find("{}").len(), 1);
    // Other commits change the count of the collection.
    (10..30).for_each(|id| b.insert(&format!("{{_id: {id}}}")).unwrap());
    assert_eq!(insert(b, &in_b, "{_id: 2}").unwrap_err().code(), base::ErrorCode::WriteConflict);
    b.database.abort_transaction(in_b.transaction().unwrap());
    std::thread::scope(|scope| {
        // The insert waits for the transaction's end and then finds a duplicate key.
        let waiting = scope.spawn(|| b.insert("{_id: 2}"));
        std::thread::sleep(Duration::from_millis(30));
        assert!(!waiting.is_finished());
        a.database.commit_transaction(&in_a, in_a.transaction().unwrap()).unwrap();
        assert_eq!(waiting.join().unwrap().unwrap_err().code(), base::ErrorCode::DuplicateKey);
    });
    assert_eq!(b.find("{}").len(), 22);
    assert_eq!((a.count(), b.count()), (22, 22));
    a.check();
}

/// One process runs a retryable insert of many documents. The other finds its statements, and cannot run it too.
fn inserts_of_a_retryable_write_have_one_record([a, b]: &[Front; 2]) {
    let session = SessionId::without_user([9; 16]);
    let insert = |front: &Front, number: i64, first_id: i32, from: usize, progress: &mut InsertProgress| {
        let documents: Vec<_> =
            (0..6).map(|at| parse(&format!("{{_id: {}}}", first_id + at)).unwrap()).collect();
        let insertions: Vec<Insertion<'_>> = (0..)
            .zip(&documents)
            .map(|(statement, document)| Insertion {
                request: InsertRequest { document: document.view(), bypass_validation: false },
                record: Some((RetryKey { session, number, statement }, Document::EMPTY)),
            })
            .collect();
        let scope = Scope::new(&front.operation(), &front.namespace, &front.context);
        let inserted = front.database.insert_many(&scope, &insertions[from..], progress);
        (inserted.count, inserted.error.map(|error| error.code()))
    };
    let stored = |front: &Front, number| -> Vec<i32> {
        let found = front.database.stored_retries(session, (0, 5)).unwrap();
        found.iter().filter(|found| found.key.number == number).map(|found| found.key.statement).collect()
    };
    let progress = |number| InsertProgress::of_write(Some(RetryKey { session, number, statement: 0 }));
    a.insert("{_id: 3}").unwrap();
    // An unordered insert goes on after a duplicate.
    let mut unordered = progress(1);
    assert!(stored(a, 1).is_empty());
    assert_eq!(insert(a, 1, 0, 0, &mut unordered), (3, Some(base::ErrorCode::DuplicateKey)));
    assert_eq!(insert(a, 1, 0, 4, &mut unordered), (2, None));
    assert_eq!(stored(b, 1), [0, 1, 2, 4, 5]);
    assert_eq!(stored(a, 1), [0, 1, 2, 4, 5]);
    // The first statement of a write can fail.
    assert!(stored(a, 2).is_empty());
    let mut unordered = progress(2);
    assert_eq!(insert(a, 2, 5, 0, &mut unordered), (0, Some(base::ErrorCode::DuplicateKey)));
    assert_eq!(insert(a, 2, 5, 1, &mut unordered), (5, None));
    assert_eq!(stored(b, 2), [1, 2, 3, 4, 5]);
    // Both processes begin the same write, and one is slow.
    assert!(stored(a, 3).is_empty() && stored(b, 3).is_empty());
    assert_eq!(insert(a, 3, 100, 2, &mut progress(3)), (4, None));
    let refused = Some(base::ErrorCode::ConflictingOperationInProgress);
    assert_eq!(insert(b, 3, 200, 0, &mut progress(3)), (0, refused));
    assert_eq!(insert(b, 3, 200, 4, &mut progress(3)), (0, refused));
    assert_eq!(stored(b, 3), [2, 3, 4, 5]);
    assert_eq!(a.find("{_id: {$gte: 100}}").len(), 4);
}
