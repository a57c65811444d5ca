//! The profiler's collection of a database.
//!
//! `system.profile` is a capped collection, created when profiling begins. Each member has its own:
//! the oplog does not contain it.

use crate::changes::logged::PROFILE;
use crate::database::Database;
use crate::operation::Operation;
use crate::scope::Scope;
use crate::write::InsertRequest;
use base::bson::{Builder, Document};
use base::{Namespace, Result, err};
use query::Context;
use std::sync::Arc;
use storage::Room;

/// Size of a new profiler collection, in bytes.
const BYTES: i64 = 1024 * 1024;

impl Database {
    /// Creates the profiler's collection of a database if it does not exist.
    ///
    /// Errors: InvalidNamespace; NamespaceExists for a collection that is not capped; interrupted waits; storage
    /// errors.
    pub fn create_profile(&self, operation: &Operation, database: &str, context: &Context) -> Result<()> {
        let namespace = Namespace::new(database, PROFILE)?;
        if let Some(collection) = self.known_catalog().get(&namespace) {
            // A collection without a limit would grow as long as the server runs.
            return match collection.options.capped {
                Some(_) => Ok(()),
                None => Err(err!(NamespaceExists, "{namespace} exists but isn't capped")),
            };
        }
        let mut options = Builder::new();
        options.append(c"capped", true).append(c"size", BYTES);
        self.create_collection_as(operation, &namespace, options.finish().view(), None, context).map(drop)
    }

    /// Adds an entry. Adds nothing if the capped collection does not exist, or while writes are locked:
    /// profiled operations must not wait.
    ///
    /// Errors: errors of the insert.
    pub fn profile(&self, database: &str, entry: Document<'_>, context: Context) -> Result<()> {
        let namespace = Namespace::new(database, PROFILE)?;
        let catalog = self.known_catalog();
        let is_there = catalog.get(&namespace).is_some_and(|collection| collection.options.capped.is_some());
        if !is_there || !matches!(self.store.room(), Ok(Room::Free)) {
            return Ok(());
        }
        let request = InsertRequest { document: entry, bypass_validation: true };
        let scope = Scope::new(&Arc::new(Operation::new(0)), &namespace, &Arc::new(context));
        self.insert(&scope, request).map(drop)
    }
}
