//! Forks, snapshots and resets: forks change independently under any operation.

// Helpers of tests may panic like tests.
#![allow(clippy::unwrap_used)]

use base::bson::{Builder, DocumentBuf, Value, extended_json};
use base::random::Random;
use base::{ErrorCode, Namespace, Result};
use database::{
    Cursor, Database, DeleteRequest, FindRequest, InsertRequest, ManualClock, Operation, Scope, StateName,
    UpdateRequest, index::IndexSpec,
};
use query::context::Uninterrupted;
use query::matcher::Matcher;
use query::{Context, Update};
use std::collections::BTreeMap;
use std::sync::Arc;
use storage::{DiskEngine, DiskOptions, Engine, MemoryEngine};

struct Session {
    database: Arc<Database>,
    engine: Arc<dyn Engine>,
    operation: Arc<Operation>,
    context: Arc<Context>,
}

fn json(text: &str) -> DocumentBuf {
    extended_json::parse(text).unwrap()
}

fn ns(text: &str) -> Namespace {
    Namespace::parse(text).unwrap()
}

fn state(database: &str, name: &str) -> StateName {
    StateName::new(database, name).unwrap()
}

fn code<T>(result: Result<T>) -> ErrorCode {
    result.err().unwrap().code()
}

impl Session {
    fn new() -> Session {
        Session::on(Arc::new(MemoryEngine::new()))
    }

    fn on(engine: Arc<dyn Engine>) -> Session {
        let clock = Arc::new(ManualClock::new(1_700_000_000_000));
        let operation = Arc::new(Operation::new(1));
        Session {
            database: Database::open(engine.clone(), clock, 7).unwrap(),
            engine,
            context: Arc::new(Context::new(0, 1, operation.clone())),
            operation,
        }
    }

    fn insert(&self, namespace: &str, text: &str) -> Result<()> {
        let document = json(text);
        let insert = InsertRequest { document: document.view(), bypass_validation: false };
        self.database
            .insert(&Scope::new(&Arc::new(Operation::new(0)), &ns(namespace), &self.context), insert)
            .map(drop)
    }

    fn matcher(&self, filter: &str) -> Arc<Matcher> {
        Arc::new(Matcher::parse(json(filter).view(), &self.context).unwrap())
    }

    fn update(&self, namespace: &str, filter: &str, update: &str) -> Result<u64> {
        let update = json(update);
        let request = UpdateRequest {
            matcher: self.matcher(filter),
            update: Update::parse(Value::Document(update.view()), &[], &self.context)?.into(),
            multi: true,
            upsert: false,
            sort: None,
            hint: None,
            bypass_validation: false,
        };
        let outcome =
            self.database.update(&Scope::new(&self.operation, &ns(namespace), &self.context), &request)?;
        Ok(outcome.modified)
    }

    fn delete(&self, namespace: &str, filter: &str) -> u64 {
        let request = DeleteRequest { matcher: self.matcher(filter), single: false, hint: None };
        self.database.delete(&Scope::new(&self.operation, &ns(namespace), &self.context), &request).unwrap().0
    }

    fn index(&self, namespace: &str, spec: &str) {
        let namespace = ns(namespace);
        let spec = IndexSpec::parse(json(spec).view(), &namespace, &self.context).unwrap();
        self.database.create_indexes(&Operation::new(0), &namespace, [spec], &self.context).unwrap();
    }

    fn create(&self, namespace: &str, options: &str) {
        self.database
            .create_collection(&Operation::new(0), &ns(namespace), json(options).view(), &self.context)
            .unwrap();
    }

    fn cursor(&self, namespace: &str) -> Cursor {
        let filter = json("{}");
        let request = FindRequest::new(filter.view());
        self.database.find(&Scope::new(&self.operation, &ns(namespace), &self.context), &request).unwrap()
    }

    fn find(&self, namespace: &str) -> Vec<String> {
        let mut out = Builder::new();
        out.begin_array(c"");
        self.cursor(namespace).next_batch(10_000, &mut out).unwrap();
        out.end();
        let out = out.finish();
        let found = out.view().get("").and_then(|found| found.as_array()).unwrap();
        found.iter().map(|document| extended_json::value_to_relaxed(document)).collect()
    }

    /// Checks that documents, indexes and counts of every collection agree.
    fn check(&self, database: &str) {
        for collection in self.database.catalog().collections(database) {
            if collection.is_view() {
                continue;
            }
            let found = self
                .database
                .validate(&collection.namespace, database::validate::Depth::Full, &self.context)
                .unwrap();
            assert!(found.is_valid(), "{}: {:?}", collection.namespace, found.errors);
            assert_eq!(found.records as i64, collection.records());
        }
    }

    /// Returns a database with an example of each feature.
    fn template(&self) {
        self.create("t.people", "{validator: {age: {$gte: 0}}}");
        self.index("t.people", "{key: {name: 1}, name: 'name', unique: true}");
        self.index("t.people", "{key: {tags: 1}, name: 'tags'}");
        self.create("t.grown", "{viewOn: 'people', pipeline: [{$match: {age: {$gte: 18}}}]}");
        self.create("t.log", "{capped: true, size: 4096, max: 3}");
        self.insert("t.people", "{_id: 1, name: 'a', age: 30, tags: ['x', 'y']}").unwrap();
        self.insert("t.people", "{_id: 2, name: 'b', age: 3}").unwrap();
        self.insert("t.log", "{_id: 1}").unwrap();
    }
}

#[test]
fn a_fork_has_all_that_its_origin_has() {
    let s = Session::new();
    s.template();
    s.database.fork_database(&Uninterrupted, "t", "f", false).unwrap();
    assert_eq!(s.find("f.people"), s.find("t.people"));
    assert_eq!(s.find("f.grown"), [r#"{"_id":1,"name":"a","age":30,"tags":["x","y"]}"#]);
    assert_eq!(code(s.insert("f.people", "{_id: 3, name: 'b', age: 1}")), ErrorCode::DuplicateKey);
    assert_eq!(
        code(s.insert("f.people", "{_id: 3, name: 'c', age: -1}")),
        ErrorCode::DocumentValidationFailure
    );
    for id in 2..=5 {
        s.insert("f.log", &format!("{{_id: {id}}}")).unwrap();
    }
    assert_eq!((s.find("f.log").len(), s.find("t.log").len()), (3, 1));
    let (origin, fork) = (s.database.collection(&ns("t.people")), s.database.collection(&ns("f.people")));
    let (origin, fork) = (origin.unwrap(), fork.unwrap());
    assert_ne!(origin.uuid, fork.uuid);
    assert_eq!((origin.records(), origin.bytes()), (fork.records(), fork.bytes()));
    let multikey = |c: &database::catalog::collection::Collection, name: &str| {
        c.data.as_ref().unwrap().index(name).unwrap().is_multikey()
    };
    assert!(multikey(&fork, "tags") && !multikey(&fork, "name"));
    s.check("t");
    s.check("f");
}

#[test]
fn writes_on_either_side_stay_there() {
    let s = Session::new();
    s.template();
    s.database.fork_database(&Uninterrupted, "t", "f", false).unwrap();
    s.database.fork_database(&Uninterrupted, "f", "g", false).unwrap();
    let before = s.find("t.people");
    s.update("f.people", "{}", "{$inc: {age: 1}, $push: {tags: 'z'}}").unwrap();
    s.insert("f.people", "{_id: 9, name: 'f', age: 9}").unwrap();
    assert_eq!(s.find("t.people"), before);
    assert_eq!(s.find("g.people"), before);
    s.delete("t.people", "{}");
    s.index("t.people", "{key: {age: 1}, name: 'age'}");
    assert_eq!((s.find("t.people").len(), s.find("f.people").len(), s.find("g.people").len()), (0, 3, 2));
    s.database.drop_database(&Uninterrupted, "t").unwrap();
    assert_eq!((s.find("f.people").len(), s.find("g.people").len()), (3, 2));
    s.check("f");
    s.check("g");
}

#[test]
fn forks_are_refused_by_mongodbs_codes() {
    let s = Session::new();
    s.template();
    let fork = |from: &str, to: &str, replace| s.database.fork_database(&Uninterrupted, from, to, replace);
    assert_eq!(code(fork("none", "f", false)), ErrorCode::NamespaceNotFound);
    assert_eq!(code(fork("t", "t", true)), ErrorCode::IllegalOperation);
    assert_eq!(code(fork("t", "admin", true)), ErrorCode::IllegalOperation);
    assert_eq!(code(fork("t", "a b", false)), ErrorCode::InvalidNamespace);
    assert_eq!(code(fork("t", "T", false)), ErrorCode::DatabaseDifferCase);
    s.insert("f.other", "{_id: 1}").unwrap();
    assert_eq!(code(fork("t", "f", false)), ErrorCode::NamespaceExists);
    fork("t", "f", true).unwrap();
    assert!(s.database.collection(&ns("f.other")).is_none());
    assert_eq!(s.find("f.people").len(), 2);
}

#[test]
fn cursors_on_a_replaced_database_end_and_others_do_not() {
    let s = Session::new();
    s.template();
    s.database.fork_database(&Uninterrupted, "t", "f", false).unwrap();
    let (on_fork, on_origin) = (s.cursor("f.people"), s.cursor("t.people"));
    s.database.check_cursor(&on_fork).unwrap();
    s.database.fork_database(&Uninterrupted, "t", "f", true).unwrap();
    assert_eq!(code(s.database.check_cursor(&on_fork)), ErrorCode::QueryPlanKilled);
    s.database.check_cursor(&on_origin).unwrap();
    s.database.snapshot_database(&Uninterrupted, &state("t", "s"), false).unwrap();
    s.database.check_cursor(&on_origin).unwrap();
    s.database.restore_database(&Uninterrupted, &state("t", "s")).unwrap();
    assert_eq!(code(s.database.check_cursor(&on_origin)), ErrorCode::QueryPlanKilled);
}

/// A cursor's contents, mainly its view, are freed with its collection, not with its next getMore.
#[test]
fn open_cursors_of_dropped_collections_free_memory() {
    let s = Session::new();
    s.template();
    s.insert("t.other", "{_id: 1}").unwrap();
    s.insert("t.other", "{_id: 2}").unwrap();
    // Kept open after one document. A weak reference shows whether its view is still held.
    let open = |namespace: &str| {
        let operation = Arc::new(s.database.operation(9));
        let filter = json("{}");
        let context = Arc::new(Context::new(0, 1, operation.clone()));
        let found = s
            .database
            .find(&Scope::new(&operation, &ns(namespace), &context), &FindRequest::new(filter.view()));
        let mut cursor = found.unwrap();
        let mut out = Builder::new();
        out.begin_array(c"");
        assert_eq!(cursor.next_batch(1, &mut out).unwrap(), (1, false));
        (s.database.register_cursor(cursor), Arc::downgrade(&operation))
    };
    let ended = |id: i64, namespace: &str| {
        let cursor = s.database.cursors.take(id, &ns(namespace)).unwrap();
        let code = code(s.database.check_cursor(&cursor));
        s.database.cursors.close(id);
        code == ErrorCode::QueryPlanKilled
    };
    let (stays, its) = open("t.other");
    let drops: [&dyn Fn(); 4] = [
        &|| _ = s.database.drop_collection(&Uninterrupted, &ns("t.people")).unwrap(),
        &|| _ = s.database.drop_database(&Uninterrupted, "f").unwrap(),
        &|| _ = s.database.fork_database(&Uninterrupted, "t", "f", true).unwrap(),
        &|| _ = s.database.restore_database(&Uninterrupted, &state("f", "s")).unwrap(),
    ];
    s.database.snapshot_database(&Uninterrupted, &state("t", "all"), false).unwrap();
    for (number, drop) in drops.into_iter().enumerate() {
        let namespace = if number == 0 { "t.people" } else { "f.people" };
        s.database.fork_database(&Uninterrupted, "t", "f", true).unwrap();
        s.database.snapshot_database(&Uninterrupted, &state("f", "s"), true).unwrap();
        let (idle, of_idle) = open(namespace);
        let (read, of_read) = open(namespace);
        let being_read = s.database.cursors.take(read, &ns(namespace)).unwrap();
        assert!(of_idle.upgrade().is_some());
        drop();
        assert!(of_idle.upgrade().is_none(), "{number}: the drop leaves its view open");
        assert!(of_read.upgrade().is_some());
        s.database.cursors.put_back(read, being_read, std::time::Instant::now());
        assert!(of_read.upgrade().is_none(), "{number}: its view stays open when it is put back");
        assert_eq!(s.database.cursors.count().0, 3, "they are there for the error that is due");
        assert!(ended(idle, namespace) && ended(read, namespace));
        if number == 0 {
            s.database.restore_database(&Uninterrupted, &state("t", "all")).unwrap();
        }
    }
    // A cursor whose collection is dropped during a slow first batch.
    let operation = Arc::new(s.database.operation(9));
    let filter = json("{}");
    let context = Arc::new(Context::new(0, 1, operation.clone()));
    let late = s
        .database
        .find(&Scope::new(&operation, &ns("f.people"), &context), &FindRequest::new(filter.view()))
        .unwrap();
    let its_own = Arc::downgrade(&operation);
    drop((operation, context));
    s.database.drop_database(&Uninterrupted, "f").unwrap();
    let late = s.database.register_cursor(late);
    assert!(its_own.upgrade().is_none() && ended(late, "f.people"));
    // `restore` has replaced the database of the other cursor.
    assert!(its.upgrade().is_none() && ended(stays, "t.other"));
}

#[test]
fn a_reader_keeps_the_view_it_began_with() {
    let s = Session::new();
    s.template();
    s.database.snapshot_database(&Uninterrupted, &state("t", "s"), false).unwrap();
    let mut cursor = s.cursor("t.people");
    s.database.restore_database(&Uninterrupted, &state("t", "s")).unwrap();
    s.delete("t.people", "{}");
    let mut out = Builder::new();
    out.begin_array(c"");
    let (count, _) = cursor.next_batch(10, &mut out).unwrap();
    assert_eq!(count, 2);
}

#[test]
fn a_snapshot_is_restored_again_and_again() {
    let s = Session::new();
    s.template();
    let name = state("t", "ready");
    let before = s.find("t.people");
    s.database.snapshot_database(&Uninterrupted, &name, false).unwrap();
    assert_eq!(code(s.database.snapshot_database(&Uninterrupted, &name, false)), ErrorCode::NamespaceExists);
    for _ in 0..3 {
        s.update("t.people", "{}", "{$set: {name: 'x', age: 1}}").unwrap_err();
        s.insert("t.people", "{_id: 5, name: 'n', age: 1}").unwrap();
        s.insert("t.more", "{_id: 1}").unwrap();
        s.database.drop_collection(&Uninterrupted, &ns("t.log")).unwrap();
        s.database.restore_database(&Uninterrupted, &name).unwrap();
        assert_eq!(s.find("t.people"), before);
        assert_eq!((s.find("t.log").len(), s.find("t.more").len()), (1, 0));
        s.check("t");
    }
    s.database.drop_database(&Uninterrupted, "t").unwrap();
    s.database.restore_database(&Uninterrupted, &name).unwrap();
    assert_eq!(s.find("t.people"), before);
    s.delete("t.people", "{_id: 1}");
    s.database.snapshot_database(&Uninterrupted, &name, true).unwrap();
    s.database.restore_database(&Uninterrupted, &name).unwrap();
    assert_eq!(s.find("t.people").len(), 1);
    s.database.drop_snapshot(&Uninterrupted, &name).unwrap();
    assert_eq!(code(s.database.restore_database(&Uninterrupted, &name)), ErrorCode::NamespaceNotFound);
    assert_eq!(code(s.database.drop_snapshot(&Uninterrupted, &name)), ErrorCode::NamespaceNotFound);
    assert_eq!(
        code(s.database.snapshot_database(&Uninterrupted, &state("none", "s"), false)),
        ErrorCode::NamespaceNotFound
    );
    assert!(StateName::new("t", "").is_err() && StateName::new("t", "a\0b").is_err());
}

#[test]
fn a_snapshot_is_nowhere_to_be_seen_and_outlives_the_process() {
    let s = Session::new();
    s.template();
    s.database.snapshot_database(&Uninterrupted, &state("t", "one"), false).unwrap();
    s.database.snapshot_database(&Uninterrupted, &state("t", "two"), false).unwrap();
    s.database.drop_database(&Uninterrupted, "t").unwrap();
    assert_eq!(s.database.catalog().databases().count(), 0);
    let again = Session::on(s.engine.clone());
    let catalog = again.database.catalog();
    assert_eq!(catalog.databases().count(), 0);
    let saved: Vec<_> = catalog.all_saved().collect();
    assert_eq!(saved.iter().map(|state| &*state.name.name).collect::<Vec<_>>(), ["one", "two"]);
    assert_eq!((saved[0].records(), saved[0].collections.len()), (3, 3));
    assert_eq!(saved[0].taken_millis, 1_700_000_000_000);
    again.database.restore_database(&Uninterrupted, &state("t", "one")).unwrap();
    again.insert("t.people", "{_id: 7, name: 'n', age: 1}").unwrap();
    assert_eq!(again.find("t.people").len(), 3);
    again.check("t");
    again.database.restore_database(&Uninterrupted, &state("t", "two")).unwrap();
    assert_eq!(again.find("t.people").len(), 2);
    again.check("t");
}

#[test]
fn a_reset_empties_and_keeps_everything_else() {
    let s = Session::new();
    s.template();
    let uuid = s.database.collection(&ns("t.people")).unwrap().uuid;
    let (deleted, committed) = s.database.reset_database(&Uninterrupted, "t").unwrap();
    assert!(deleted == 3 && committed.is_some());
    let people = s.database.collection(&ns("t.people")).unwrap();
    assert_eq!((people.uuid, people.records(), people.bytes()), (uuid, 0, 0));
    let data = people.data.as_ref().unwrap();
    assert_eq!(data.indexes.len(), 3);
    assert!(!data.indexes.iter().any(|index| index.is_multikey()));
    s.check("t");
    assert_eq!(
        code(s.insert("t.people", "{_id: 3, name: 'c', age: -1}")),
        ErrorCode::DocumentValidationFailure
    );
    s.insert("t.people", "{_id: 1, name: 'a', age: 30, tags: ['x']}").unwrap();
    assert_eq!(code(s.insert("t.people", "{_id: 2, name: 'a', age: 30}")), ErrorCode::DuplicateKey);
    assert_eq!(s.find("t.grown").len(), 1);
    s.check("t");
    assert_eq!(s.database.reset_database(&Uninterrupted, "none").unwrap().0, 0);
    assert_eq!(code(s.database.reset_database(&Uninterrupted, "config")), ErrorCode::IllegalOperation);
}

#[test]
fn memory_is_freed_when_forks_are_dropped() {
    let s = Session::new();
    s.template();
    let before = s.engine.statistics().bytes;
    for _ in 0..10 {
        s.database.fork_database(&Uninterrupted, "t", "f", true).unwrap();
        s.database.snapshot_database(&Uninterrupted, &state("f", "s"), true).unwrap();
        s.insert("f.people", "{_id: 7, name: 'n', age: 1}").unwrap();
    }
    s.database.drop_snapshot(&Uninterrupted, &state("f", "s")).unwrap();
    s.database.drop_database(&Uninterrupted, "f").unwrap();
    assert_eq!(s.engine.statistics().bytes, before);
}

#[test]
fn readers_see_whole_states_while_a_database_is_restored() {
    let s = Session::new();
    s.insert("t.c", "{_id: 0, n: 0}").unwrap();
    for id in 1..50 {
        s.insert("t.c", &format!("{{_id: {id}, n: 0}}")).unwrap();
    }
    s.database.snapshot_database(&Uninterrupted, &state("t", "s"), false).unwrap();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            for _ in 0..200 {
                // Fifty documents before a reset and none after it, never a part.
                let found = s.find("t.c").len();
                assert!(found == 50 || found == 0, "{found}");
            }
        });
        for round in 0..100 {
            match round % 3 {
                0 => drop(s.database.reset_database(&Uninterrupted, "t").unwrap()),
                _ => drop(s.database.restore_database(&Uninterrupted, &state("t", "s")).unwrap()),
            }
        }
        reader.join().unwrap();
    });
}

type Model = BTreeMap<u64, u64>;

const NAMES: [&str; 4] = ["d0", "d1", "d2", "d3"];

/// Runs random operations on four databases that are forked into one another, and on their models.
fn run_twins(s: &Session, seed: u64, steps: usize) -> Vec<Model> {
    for name in NAMES {
        s.index(&format!("{name}.c"), "{key: {v: 1}, name: 'v'}");
    }
    let mut models: Vec<Model> = vec![Model::new(); NAMES.len()];
    let mut saved: Vec<Option<Model>> = vec![None; NAMES.len()];
    let random = Random::new(seed);
    for _ in 0..steps {
        let at = random.below(NAMES.len() as u64) as usize;
        step(s, &random, &NAMES, at, &mut models, &mut saved);
    }
    models
}

fn compare(s: &Session, seed: u64, models: &[Model]) {
    for (name, model) in NAMES.iter().zip(models) {
        assert_eq!(contents(s, name), *model, "seed {seed}, {name}");
        s.check(name);
    }
}

#[test]
fn twins_behave_as_databases_of_their_own() {
    for seed in 1..=8 {
        let s = Session::new();
        let models = run_twins(&s, seed, 400);
        compare(&s, seed, &models);
    }
}

#[test]
fn twins_on_disk_are_the_same_after_opening_again() {
    let directory = std::env::temp_dir().join(format!("vellum-forks-{}", std::process::id()));
    for seed in 1..=2 {
        let open = || Arc::new(DiskEngine::open(&DiskOptions::new(&directory)).unwrap());
        let engine = open();
        let s = Session::on(engine.clone());
        let models = run_twins(&s, seed, 200);
        compare(&s, seed, &models);
        s.database.snapshot_database(&Uninterrupted, &state("d0", "last"), false).unwrap();
        s.database.drop_database(&Uninterrupted, "d0").unwrap();
        drop(s);
        engine.close().unwrap();
        drop(engine);
        let again = Session::on(open());
        again.database.restore_database(&Uninterrupted, &state("d0", "last")).unwrap();
        compare(&again, seed, &models);
        drop(again);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}

/// Runs one random operation on the databases and on their models.
fn step(
    s: &Session,
    random: &Random,
    names: &[&str],
    at: usize,
    models: &mut [Model],
    saved: &mut [Option<Model>],
) {
    let (name, id, value) = (names[at], random.below(40), random.below(6));
    let collection = format!("{name}.c");
    match random.below(20) {
        0..=8 => {
            let inserted = s.insert(&collection, &format!("{{_id: {id}, v: [{value}, {id}]}}")).is_ok();
            assert_eq!(inserted, !models[at].contains_key(&id));
            models[at].entry(id).or_insert(value);
        }
        9..=12 => {
            s.update(&collection, &format!("{{_id: {id}}}"), &format!("{{$set: {{v: [{value}, {id}]}}}}"))
                .unwrap();
            models[at].entry(id).and_modify(|found| *found = value);
        }
        13..=15 => {
            let deleted = s.delete(&collection, &format!("{{_id: {{$lt: {id}}}, 'v.0': {value}}}"));
            let before = models[at].len();
            models[at].retain(|key, found| *key >= id || *found != value);
            assert_eq!(deleted as usize, before - models[at].len());
        }
        16 => {
            s.database.reset_database(&Uninterrupted, name).unwrap();
            models[at].clear();
        }
        17 => {
            let to = random.below(names.len() as u64) as usize;
            if to != at {
                s.database.fork_database(&Uninterrupted, name, names[to], true).unwrap();
                models[to] = models[at].clone();
            }
        }
        18 => {
            s.database.snapshot_database(&Uninterrupted, &state(name, "s"), true).unwrap();
            saved[at] = Some(models[at].clone());
        }
        _ => match &saved[at] {
            Some(model) => {
                s.database.restore_database(&Uninterrupted, &state(name, "s")).unwrap();
                models[at] = model.clone();
            }
            None => assert!(s.database.restore_database(&Uninterrupted, &state(name, "s")).is_err()),
        },
    }
}

fn contents(s: &Session, name: &str) -> Model {
    let entry = |text: &String| {
        let document = json(text);
        let number = |value: Value<'_>| value.as_i64().unwrap() as u64;
        let first = document.view().get("v").unwrap().as_array().unwrap().iter().next();
        (number(document.view().get("_id").unwrap()), number(first.unwrap()))
    };
    s.find(&format!("{name}.c")).iter().map(entry).collect()
}
