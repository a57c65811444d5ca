//! The collection that a database's profiler writes to.
//!
//! `system.profile` is capped, made when profiling begins, and each member's own: the oplog tells nothing of it.

use crate::database::Database;
use crate::logged::PROFILE;
use crate::operation::Operation;
use crate::scope::Scope;
use crate::write::InsertRequest;
use base::bson::{Builder, Document};
use base::{Namespace, Result};
use query::Context;
use std::sync::Arc;

/// The size of the collection, unless it is there already.
const BYTES: i64 = 1024 * 1024;

impl Database {
    /// Makes the collection that a database's profiler writes to, unless it is there.
    ///
    /// Errors: InvalidNamespace; what interrupts waiting; the engine's.
    pub fn create_profile(&self, operation: &Operation, database: &str, context: &Context) -> Result<()> {
        let namespace = Namespace::new(database, PROFILE)?;
        if self.known_catalog().get(&namespace).is_some() {
            return Ok(());
        }
        let mut options = Builder::new();
        options.append(c"capped", true).append(c"size", BYTES);
        self.create_collection_as(operation, &namespace, options.finish().view(), None, context).map(drop)
    }

    /// Adds an entry. Nothing is added where the collection is gone, or where writes are locked: what is profiled
    /// waits for nothing.
    ///
    /// Errors: those of inserting.
    pub fn profile(&self, database: &str, entry: Document<'_>, context: Context) -> Result<()> {
        let namespace = Namespace::new(database, PROFILE)?;
        let is_there = self.known_catalog().get(&namespace).is_some();
        if !is_there || self.store.must_wait().unwrap_or(true) {
            return Ok(());
        }
        let request = InsertRequest { document: entry, bypass_validation: true };
        let scope = Scope::new(&Arc::new(Operation::new(0)), &namespace, &Arc::new(context));
        self.insert(&scope, request).map(drop)
    }
}
