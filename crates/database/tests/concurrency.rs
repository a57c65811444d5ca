//! Many concurrent clients: nothing is lost or counted twice, and indexes agree with documents.

#![allow(clippy::unwrap_used)]

use base::bson::{Builder, Value, extended_json};
use base::{ErrorCode, Namespace};
use database::{
    Database, DeleteRequest, FindRequest, InsertRequest, Operation, Scope, SystemClock, UpdateRequest,
    index::IndexSpec,
};
use query::context::Uninterrupted;
use query::matcher::Matcher;
use query::{Context, Update};
use std::sync::Arc;
use std::thread;
use storage::MemoryEngine;

const THREADS: i32 = 8;
const ROUNDS: i32 = 200;

#[derive(Clone)]
struct Client {
    database: Arc<Database>,
    namespace: Namespace,
    operation: Arc<Operation>,
    context: Arc<Context>,
}

impl Client {
    fn new() -> Client {
        let operation = Arc::new(Operation::new(1));
        Client {
            database: Database::open(Arc::new(MemoryEngine::new()), Arc::new(SystemClock), 3).unwrap(),
            namespace: Namespace::parse("test.c").unwrap(),
            context: Arc::new(Context::new(0, 1, operation.clone())),
            operation,
        }
    }

    fn index(&self, spec: &str) -> Result<(), base::Error> {
        let spec = extended_json::parse(spec).unwrap();
        let spec = IndexSpec::parse(spec.view(), &self.namespace, &self.context).unwrap();
        self.database.create_indexes(&Operation::new(0), &self.namespace, [spec], &self.context).map(drop)
    }

    fn insert(&self, document: &str) -> Result<(), base::Error> {
        let document = extended_json::parse(document).unwrap();
        let insert = InsertRequest { document: document.view(), bypass_validation: false };
        self.database
            .insert(&Scope::new(&Arc::new(Operation::new(0)), &self.namespace, &self.context), insert)
            .map(drop)
    }

    fn matcher(&self, filter: &str) -> Arc<Matcher> {
        Arc::new(Matcher::parse(extended_json::parse(filter).unwrap().view(), &self.context).unwrap())
    }

    fn update(&self, filter: &str, update: &str, upsert: bool) -> u64 {
        let update = extended_json::parse(update).unwrap();
        let request = UpdateRequest {
            matcher: self.matcher(filter),
            update: Update::parse(Value::Document(update.view()), &[], &self.context).unwrap().into(),
            multi: false,
            upsert,
            sort: None,
            hint: None,
            bypass_validation: false,
        };
        let outcome = self
            .database
            .update(&Scope::new(&self.operation, &self.namespace, &self.context), &request)
            .unwrap();
        outcome.matched + u64::from(outcome.upserted.is_some())
    }

    fn delete_one(&self, filter: &str) -> u64 {
        let request = DeleteRequest { matcher: self.matcher(filter), single: true, hint: None };
        self.database
            .delete(&Scope::new(&self.operation, &self.namespace, &self.context), &request)
            .unwrap()
            .0
    }

    fn find(&self, filter: &str) -> Vec<String> {
        let filter = extended_json::parse(filter).unwrap();
        let request = FindRequest::new(filter.view());
        let mut cursor = self
            .database
            .find(&Scope::new(&self.operation, &self.namespace, &self.context), &request)
            .unwrap();
        let mut out = Builder::new();
        out.begin_array(c"d");
        cursor.next_batch(u64::MAX, &mut out).unwrap();
        out.end();
        let out = out.finish();
        let all = out.view().get("d").unwrap().as_array().unwrap();
        all.iter().map(extended_json::value_to_relaxed).collect()
    }

    fn check(&self) {
        let found =
            self.database.validate(&self.namespace, database::validate::Depth::Full, &self.context).unwrap();
        assert!(found.errors.is_empty(), "{:?}", found.errors);
        assert_eq!(found.records as i64, self.database.collection(&self.namespace).unwrap().records());
    }

    fn at_once(&self, work: impl Fn(&Client, i32) + Sync) {
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let work = &work;
                scope.spawn(move || work(self, thread));
            }
        });
    }
}

#[test]
fn every_increment_counts_once() {
    let client = Client::new();
    client.index("{key: {n: 1}, name: 'n'}").unwrap();
    client.insert("{_id: 1, n: 0}").unwrap();
    client.at_once(|client, _| {
        for _ in 0..ROUNDS {
            assert_eq!(client.update("{_id: 1}", "{$inc: {n: 1}}", false), 1);
        }
    });
    assert_eq!(client.find("{}"), [format!(r#"{{"_id":1,"n":{}}}"#, THREADS * ROUNDS)]);
    client.check();
}

#[test]
fn of_many_equal_keys_one_wins() {
    let client = Client::new();
    client.index("{key: {k: 1}, name: 'k', unique: true}").unwrap();
    client.at_once(|client, thread| {
        for k in 0..ROUNDS {
            match client.insert(&format!("{{_id: '{thread}-{k}', k: {k}}}")) {
                Ok(()) => {}
                Err(error) => assert_eq!(error.code(), ErrorCode::DuplicateKey),
            }
        }
    });
    assert_eq!(client.find("{}").len() as i32, ROUNDS);
    client.check();
}

#[test]
fn upserts_of_one_key_make_one_document() {
    let client = Client::new();
    client.at_once(|client, _| {
        for k in 0..ROUNDS {
            assert_eq!(client.update(&format!("{{_id: {k}}}"), "{$inc: {n: 1}}", true), 1);
        }
    });
    assert_eq!(client.find(&format!("{{n: {THREADS}}}")).len() as i32, ROUNDS);
    client.check();
}

#[test]
fn a_document_is_deleted_once() {
    let client = Client::new();
    for id in 0..ROUNDS {
        client.insert(&format!("{{_id: {id}, q: 1}}")).unwrap();
    }
    let deleted = std::sync::atomic::AtomicU64::new(0);
    client.at_once(|client, _| {
        while client.delete_one("{q: 1}") == 1 {
            deleted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    });
    assert_eq!(deleted.into_inner() as i32, ROUNDS);
    client.check();
}

#[test]
fn a_reader_sees_one_moment() {
    let client = Client::new();
    // The twenty documents change all the time but always exist, so every read finds all of them.
    for id in 0..20 {
        client.insert(&format!("{{_id: {id}, n: 0}}")).unwrap();
    }
    client.at_once(|client, thread| {
        for round in 0..ROUNDS / 4 {
            if thread % 2 == 0 {
                client.update(&format!("{{_id: {}}}", round % 20), "{$inc: {n: 1}}", false);
                client.delete_one("{_id: 100}");
            } else {
                let _ = client.insert("{_id: 100, n: 0}");
                let count = client.find("{_id: {$lt: 100}}").len();
                assert_eq!(count, 20);
            }
        }
    });
    client.check();
}

#[test]
fn indexes_made_and_dropped_under_writes_stay_right() {
    let client = Client::new();
    client.at_once(|client, thread| {
        for round in 0..ROUNDS / 4 {
            match thread {
                // Dropping an index ends its build.
                0 => match client.index("{key: {a: 1, b: 1}, name: 'ab'}") {
                    Ok(()) => (),
                    Err(error) => assert_eq!(error.code(), base::ErrorCode::IndexBuildAborted, "{error}"),
                },
                1 => drop(client.database.drop_indexes(&Uninterrupted, &client.namespace, None)),
                _ => {
                    client
                        .insert(&format!("{{_id: '{thread}-{round}', a: {round}, b: [1, {thread}]}}"))
                        .unwrap();
                    client.update(&format!("{{_id: '{thread}-{round}'}}"), "{$set: {a: -1}}", false);
                }
            }
        }
    });
    client.check();
}
