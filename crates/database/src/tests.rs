//! A collection for unit tests.

use crate::index::IndexSpec;
use crate::{Database, InsertRequest, ManualClock, Operation, Scope};
use base::Namespace;
use base::bson::extended_json::parse;
use query::Context;
use std::sync::Arc;
use storage::MemoryEngine;

/// A database in memory, and a statement on one collection.
#[derive(Clone)]
pub(crate) struct Fixture {
    pub(crate) database: Arc<Database>,
    pub(crate) scope: Scope,
}

impl Fixture {
    /// Creates a database. Its statement is on `d.c`.
    pub(crate) fn new() -> Fixture {
        let clock = Arc::new(ManualClock::new(1_700_000_000_000));
        let database = Database::open(Arc::new(MemoryEngine::new()), clock, 7).unwrap();
        let operation = Arc::new(Operation::new(1));
        let context = Arc::new(Context::new(0, 1, operation.clone()));
        let scope = Scope::new(&operation, &Namespace::parse("d.c").unwrap(), &context);
        Fixture { database, scope }
    }

    /// Returns a statement on another collection.
    pub(crate) fn named(&self, namespace: &str) -> Fixture {
        let namespace = Namespace::parse(namespace).unwrap();
        let scope = Scope::new(&self.scope.operation, &namespace, &self.scope.context);
        Fixture { database: self.database.clone(), scope }
    }

    pub(crate) fn insert(&self, document: &str) {
        let document = parse(document).unwrap();
        let insert = InsertRequest { document: document.view(), bypass_validation: false };
        self.database.insert(&self.scope, insert).unwrap();
    }

    pub(crate) fn index(&self, spec: &str) {
        let Scope { operation, namespace, context, .. } = &self.scope;
        let spec = IndexSpec::parse(parse(spec).unwrap().view(), namespace, context).unwrap();
        self.database.create_indexes(operation, namespace, [spec], context).unwrap();
    }

    /// Returns the number of documents; `None` if the collection does not exist.
    pub(crate) fn records(&self) -> Option<i64> {
        self.database.collection(&self.scope.namespace).map(|collection| collection.records())
    }
}
