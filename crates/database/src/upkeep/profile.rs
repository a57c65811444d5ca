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
use base::{Namespace, Result};
use query::Context;
use std::sync::Arc;
use storage::Room;

/// Size of a new profiler collection, in bytes.
const BYTES: i64 = 1024 * 1024;

impl Database {
    /// Creates the profiler's collection of a database if it does not exist.
    ///
    /// Errors: InvalidNamespace; interrupted waits; storage errors.
    pub fn create_profile(&self, operation: &Operation, database: &str, context: &Context) -> Result<()> {
        let namespace = Namespace::new(database, PROFILE)?;
        if self.known_catalog().get(&namespace).is_some() {
            return Ok(());
        }
        let mut options = Builder::new();
        options.append(c"capped", true).append(c"size", BYTES);
        self.create_collection_as(operation, &namespace, options.finish().view(), None, context).map(drop)
    }

    /// Adds an entry. Adds nothing if the collection does not exist, or while writes are locked:
    /// profiled operations must not wait.
    ///
    /// Errors: errors of the insert.
    pub fn profile(&self, database: &str, entry: Document<'_>, context: Context) -> Result<()> {
        let namespace = Namespace::new(database, PROFILE)?;
        let is_there = self.known_catalog().get(&namespace).is_some();
        if !is_there || !matches!(self.store.room(), Ok(Room::Free)) {
            return Ok(());
        }
        let request = InsertRequest { document: entry, bypass_validation: true };
        let scope = Scope::new(&Arc::new(Operation::new(0)), &namespace, &Arc::new(context));
        self.insert(&scope, request).map(drop)
    }
}
