//! Statements, transactions and index builds under thread schedules chosen by a seed.
//!
//! `cargo test -p database --features shuttle,mutants schedules` runs these tests.

#![cfg(all(feature = "shuttle", feature = "mutants"))]
#![allow(clippy::unwrap_used)]

mod schedules {
    use base::bson::{Builder, DocumentBuf, Value, extended_json};
    use base::{ErrorCode, Namespace, Result};
    use database::index::IndexSpec;
    use database::validate::Depth;
    use database::{Database, FindRequest, InsertRequest, ManualClock, Operation, Scope, UpdateRequest};
    use parking_lot::RwLock;
    use query::context::Uninterrupted;
    use query::matcher::Matcher;
    use query::{Context, Update};
    use shuttle::thread;
    use std::sync::Arc;
    use storage::MemoryEngine;
    use storage::mutants::switch_on;
    use storage::testing::{explore, fails};

    /// Seeds of each scenario; each stands for ten schedules.
    const SEEDS: u64 = 100;

    /// Locked for writing by tests that switch faults on.
    static ALONE: RwLock<()> = RwLock::new(());

    #[derive(Clone)]
    struct Client {
        database: Arc<Database>,
        namespace: Namespace,
    }

    fn json(text: &str) -> DocumentBuf {
        extended_json::parse(text).unwrap()
    }

    fn context(operation: &Arc<Operation>) -> Arc<Context> {
        Arc::new(Context::new(0, 1, operation.clone()))
    }

    impl Client {
        fn new() -> Client {
            let clock = Arc::new(ManualClock::new(1_700_000_000_000));
            let database = Database::open(Arc::new(MemoryEngine::new()), clock, 7).unwrap();
            let client = Client { database, namespace: Namespace::parse("test.c").unwrap() };
            client.insert("{_id: 1, n: 0, u: 1}").unwrap();
            client
        }

        fn insert(&self, document: &str) -> Result<()> {
            let (document, operation) = (json(document), Arc::new(Operation::new(1)));
            let insert = InsertRequest { document: document.view(), bypass_validation: false };
            self.database
                .insert(&Scope::new(&operation, &self.namespace, &context(&operation)), insert)
                .map(drop)
        }

        fn update(&self, operation: Operation, filter: &str, update: &str) -> Result<u64> {
            let operation = Arc::new(operation);
            let context = context(&operation);
            let request = UpdateRequest {
                matcher: Arc::new(Matcher::parse(json(filter).view(), &context)?),
                update: Update::parse(Value::Document(json(update).view()), &[], &context)?.into(),
                multi: false,
                upsert: false,
                sort: None,
                hint: None,
                bypass_validation: false,
            };
            let outcome =
                self.database.update(&Scope::new(&operation, &self.namespace, &context), &request)?;
            Ok(outcome.matched)
        }

        fn increment(&self) {
            assert_eq!(self.update(Operation::new(1), "{_id: 1}", "{$inc: {n: 1}}").unwrap(), 1);
        }

        /// Increments twice within a transaction. Returns the committed increments.
        fn increment_within(&self) -> i64 {
            let transaction = self.database.begin_transaction(None, None).unwrap();
            for _ in 0..2 {
                let operation = Operation::new(1);
                operation.set_transaction(transaction.clone());
                match self.update(operation, "{_id: 1}", "{$inc: {n: 1}}") {
                    Ok(matched) => assert_eq!(matched, 1),
                    Err(error) => {
                        assert_eq!(error.code(), ErrorCode::WriteConflict);
                        self.database.abort_transaction(&transaction);
                        return 0;
                    }
                }
            }
            self.database.commit_transaction(&Operation::new(1), &transaction).unwrap();
            2
        }

        fn index(&self, spec: &str) -> Result<()> {
            let operation = Arc::new(Operation::new(1));
            let context = context(&operation);
            let spec = IndexSpec::parse(json(spec).view(), &self.namespace, &context)?;
            self.database.create_indexes(&operation, &self.namespace, [spec], &context).map(drop)
        }

        fn n(&self) -> i64 {
            let operation = Arc::new(Operation::new(1));
            let filter = json("{_id: 1}");
            let request = FindRequest::new(filter.view());
            let found =
                self.database.find(&Scope::new(&operation, &self.namespace, &context(&operation)), &request);
            let mut out = Builder::new();
            out.begin_array(c"b");
            found.unwrap().next_batch(1, &mut out).unwrap();
            out.end();
            let out = out.finish();
            let first =
                out.view().get("b").and_then(|batch| batch.as_array()?.get(0)?.as_document()?.get("n"));
            first.and_then(|n| n.as_i64()).unwrap()
        }

        fn check(&self) {
            let context = Context::new(0, 1, Arc::new(Uninterrupted));
            let found = self.database.validate(&self.namespace, Depth::Full, &context).unwrap();
            assert!(found.is_valid() && found.warnings.is_empty(), "{found:?}");
        }

        /// Runs a function on a thread of the scheduler.
        fn spawn<T: Send + 'static>(
            &self,
            run: impl FnOnce(&Client) -> T + Send + 'static,
        ) -> thread::JoinHandle<T> {
            let client = self.clone();
            thread::spawn(move || run(&client))
        }
    }

    /// Every incrementing client makes progress, and every increment counts.
    fn increments() {
        let client = Client::new();
        let threads: Vec<_> =
            (0..3).map(|_| client.spawn(|client| (0..2).for_each(|_| client.increment()))).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(client.n(), 6);
        client.check();
    }

    /// Single statements wait for transactions, also in queues. Transactions never wait for them.
    fn transactions() {
        let client = Client::new();
        let singles: Vec<_> = (0..3).map(|_| client.spawn(Client::increment)).collect();
        let within: Vec<_> = (0..2).map(|_| client.spawn(Client::increment_within)).collect();
        singles.into_iter().for_each(|thread| thread.join().unwrap());
        let committed: i64 = within.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert_eq!(client.n(), 3 + committed);
        client.check();
    }

    /// One of two documents with the same key is stored: one inserted alone, one in a transaction.
    fn unique_keys() {
        let client = Client::new();
        client.index("{key: {u: 1}, name: 'u', unique: true}").unwrap();
        let alone = client.spawn(|client| client.insert("{_id: 2, u: 2}").is_ok());
        let within = client.spawn(|client| {
            let transaction = client.database.begin_transaction(None, None).unwrap();
            let operation = Arc::new(Operation::new(1));
            operation.set_transaction(transaction.clone());
            let document = json("{_id: 3, u: 2}");
            let insert = InsertRequest { document: document.view(), bypass_validation: false };
            let inserted = client
                .database
                .insert(&Scope::new(&operation, &client.namespace, &context(&operation)), insert)
                .is_ok();
            match inserted {
                true => client.database.commit_transaction(&operation, &transaction).is_ok(),
                false => {
                    client.database.abort_transaction(&transaction);
                    false
                }
            }
        });
        let stored = u64::from(alone.join().unwrap()) + u64::from(within.join().unwrap());
        assert_eq!(stored, 1);
        client.check();
    }

    /// An index built during inserts and updates has the entries of the final documents. A unique
    /// index build fails only for two documents with the same key.
    fn builds() {
        let client = Client::new();
        client.insert("{_id: 2, n: 0, u: 2}").unwrap();
        let build = client.spawn(|client| client.index("{key: {u: 1}, name: 'u', unique: true}"));
        let writer = client.spawn(|client| {
            client.insert("{_id: 3, n: 0, u: 3}").unwrap();
            client.update(Operation::new(1), "{_id: 3}", "{$set: {u: 4}}").unwrap();
        });
        let other = client.spawn(|client| {
            client.increment();
            client.update(Operation::new(1), "{_id: 2}", "{$set: {u: 5}}").unwrap();
        });
        build.join().unwrap().unwrap();
        writer.join().unwrap();
        other.join().unwrap();
        client.check();
    }

    #[test]
    fn every_increment_counts() {
        let _together = ALONE.read();
        explore(SEEDS, increments);
    }

    #[test]
    fn transactions_and_single_statements_get_on() {
        let _together = ALONE.read();
        explore(SEEDS, transactions);
    }

    #[test]
    fn of_two_equal_keys_one_is_stored() {
        let _together = ALONE.read();
        explore(SEEDS, unique_keys);
    }

    #[test]
    fn indexes_are_built_beside_writes() {
        let _together = ALONE.read();
        explore(SEEDS, builds);
    }

    #[test]
    fn faults_are_seen_under_some_schedule() {
        let _alone = ALONE.write();
        let faults: [(&'static str, fn()); 8] = [
            ("documents are not checked", increments),
            ("the end of a turn wakes no waiter", increments),
            ("transactions wait in write queues", transactions),
            ("write intents are released before the commit", transactions),
            ("unique keys are not checked", unique_keys),
            ("write intents are ignored", unique_keys),
            ("changed records are not marked", builds),
            ("writes during a build are loaded", builds),
        ];
        for (name, scenario) in faults {
            switch_on(Some(name));
            let seen = fails(20 * SEEDS, scenario);
            switch_on(None);
            assert!(seen, "{name}");
        }
    }
}
