//! A document that a plan found and a statement is about to change.

use crate::catalog_change::same_collection;
use crate::collection::Collection;
use crate::database::Database;
use crate::exec::Record;
use crate::keys::RecordId;
use crate::operation::Operation;
use crate::storage_error;
use crate::turns::Turn;
use base::Result;
use base::bson::DocumentCow;
use query::Interrupt;
use std::sync::Arc;
use storage::{Value, mutant};

/// A document as it was read last, and how often it had changed when it was to be written.
pub(super) struct Found {
    /// The collection as it was when the document was read.
    pub(super) collection: Arc<Collection>,
    id: RecordId,
    /// The document.
    pub(super) document: Value,
    /// Whether it is another than the plan found: whether it matches is to be asked again.
    changed: bool,
    losses: usize,
}

impl Found {
    pub(super) fn new(collection: &Arc<Collection>, record: &Record) -> Found {
        let document = match &record.document {
            DocumentCow::Shared(bytes) => Value::from(bytes.clone()),
            document => Value::from(document.view().bytes()),
        };
        Found { collection: collection.clone(), id: record.id, document, changed: false, losses: 0 }
    }

    /// A turn at the document, where many want to write it.
    ///
    /// Errors: what interrupts waiting.
    pub(super) fn turn<'db>(
        &mut self,
        database: &'db Database,
        operation: &Operation,
    ) -> Result<Option<Turn<'db>>> {
        if operation.transaction().is_some() && !mutant!("transactions wait for turns") {
            // It doesn't wait for others, who may be waiting for its end at the head of the queue.
            return Ok(None);
        }
        let ident = self.collection.data()?.ident;
        let waits: (&dyn Interrupt, _) = (operation, database.blocking_hook());
        let turn = database.turns.take_if_contended(ident, self.id, self.losses, waits)?;
        // Whoever had the turn before has changed it.
        self.losses += usize::from(turn.is_some());
        Ok(turn)
    }

    /// Whether it may no longer be the one that was read.
    pub(super) fn is_stale(&self) -> bool {
        self.losses > 0
    }

    /// Whether it is another than the plan found.
    pub(super) fn is_changed(&self) -> bool {
        self.changed
    }

    /// Notes that it had changed when it was to be written.
    pub(super) fn lost(&mut self) {
        self.losses += 1;
    }

    /// Reads it again; `false` where it is gone.
    ///
    /// Errors: QueryPlanKilled where the collection is gone.
    pub(super) fn read_again(&mut self, database: &Database, operation: &Operation) -> Result<bool> {
        let found = loop {
            let view = database.view_for(operation);
            self.collection = same_collection(&view.catalog, &self.collection)?;
            let ident = self.collection.data()?.ident;
            match view.snapshot.get(ident, &self.id.key()) {
                Err(storage::Error::CatalogChanged) => operation.check()?,
                found => break found.map_err(storage_error)?,
            }
        };
        let Some(document) = found else { return Ok(false) };
        self.changed |= document != self.document && !mutant!("changed documents are not matched again");
        self.document = document;
        Ok(true)
    }
}
