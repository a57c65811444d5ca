//! The statements that change documents.
//!
//! Each finds its documents on a view, works out what becomes of them and of their keys, and hands that to
//! [`apply`](crate::Database::apply), which commits it if the documents are still the ones that were found.
//! If not, the statement reads the document again, and if it still matches, computes again. Nobody is held
//! up while a statement works.

mod capped;
mod delete;
mod find_and_modify;
mod insert;
mod retryable;
mod update;

pub use delete::DeleteRequest;
pub use find_and_modify::{Action, AnswerOf, FindAndModifyOutcome, FindAndModifyRequest};
pub use insert::{InsertRequest, Inserted, Insertion};
pub use retryable::delete_answer;
pub use update::{UpdateOutcome, UpdateRequest};

use crate::catalog_change::same_collection;
use crate::collection::Collection;
use crate::database::Database;
use crate::exec::Record;
use crate::index::{DocumentKeys, Index};
use crate::keys::RecordId;
use crate::operation::Operation;
use crate::storage_error;
use crate::turns::Turn;
use base::bson::{Document, DocumentCow};
use base::{Error, Result, err};
use query::{Context, Interrupt};
use std::sync::Arc;
use storage::{Value, mutant};

/// How often a statement starts over because its document kept changing under it, before it gives
/// up with WriteConflict.
const RETRIES_MAX: usize = 10_000;

/// The keys of a document in every index of a collection, in the order in which they are written.
pub(crate) fn keys_of(
    collection: &Collection,
    document: Document<'_>,
    context: &Context,
) -> Result<Vec<DocumentKeys>> {
    let data = collection.data()?;
    data.written_indexes().map(|index| index.spec.keys_of(document, context)).collect()
}

impl Database {
    /// Lets the indexes of a collection know of arrays that they haven't met yet, before the document that
    /// has them is written: plans made from then on count with them.
    ///
    /// What was learnt stays, whatever becomes of the document: plans are then merely more careful than they
    /// would have to be.
    ///
    /// Errors: the engine's, and what interrupts waiting.
    fn learn_multikey(
        &self,
        operation: &Operation,
        collection: &Arc<Collection>,
        keys: &[DocumentKeys],
    ) -> Result<()> {
        let news = |index: &Arc<Index>, keys: &DocumentKeys| index.unknown_multikey(&keys.multikey);
        let data = collection.data()?;
        let mut learnt = data.written_indexes().zip(keys).filter(|(_, keys)| !keys.multikey.is_empty());
        if !learnt.any(|(index, keys)| news(index, keys).is_some()) {
            return Ok(());
        }
        let written = data.written_indexes().zip(keys);
        let learnt: Vec<(Arc<Index>, Vec<u32>)> =
            written.filter_map(|(index, keys)| Some((index.clone(), news(index, keys)?))).collect();
        if operation.transaction().is_some_and(|transaction| transaction.has_created(collection)) {
            // Nobody else knows the collection yet.
            learnt.iter().for_each(|(index, bits)| index.note_multikey(bits));
            return Ok(());
        }
        self.change_catalog(operation, |change| {
            // Where the collection has changed, the statement is going to start again.
            let same = change.catalog().get(&collection.namespace);
            if !same.is_some_and(|same| Arc::ptr_eq(same, collection)) {
                return Ok(None);
            }
            change.learn(collection, learnt.clone());
            Ok(Some(()))
        })?;
        Ok(())
    }
}

/// A plan's error in the middle of a statement, as MongoDB introduces it: what is wrong with the
/// statement itself, its plan included, is told without.
fn during<T>(statement: &str, outcome: Result<T>) -> Result<T> {
    outcome.map_err(|error| error.context(&format!("Plan executor error during {statement}")))
}

fn too_many_retries() -> Error {
    err!(WriteConflict, "the document kept changing while the statement tried to write it")
}

/// Refuses what a transaction can't do.
///
/// Errors: OperationNotSupportedInTransaction.
fn check_writable_within(operation: &Operation, collection: &Collection) -> Result<()> {
    if operation.transaction().is_some() && collection.options.capped.is_some() {
        return Err(err!(
            OperationNotSupportedInTransaction,
            "Collection '{}' is a capped collection. Writes in transactions are not allowed on capped collections.",
            collection.namespace
        ));
    }
    Ok(())
}

// A document that a plan found and a statement is about to change.

/// A document as it was read last, and how often it had changed when it was to be written.
struct Found {
    /// The collection as it was when the document was read.
    collection: Arc<Collection>,
    id: RecordId,
    /// The document.
    document: Value,
    /// Whether it is another than the plan found: whether it matches is to be asked again.
    changed: bool,
    losses: usize,
}

impl Found {
    fn new(collection: &Arc<Collection>, record: &Record) -> Found {
        let document = match &record.document {
            DocumentCow::Shared(bytes) => Value::from(bytes.clone()),
            document => Value::from(document.view().bytes()),
        };
        Found { collection: collection.clone(), id: record.id, document, changed: false, losses: 0 }
    }

    /// A turn at the document, where many want to write it.
    ///
    /// Errors: what interrupts waiting.
    fn turn<'db>(&mut self, database: &'db Database, operation: &Operation) -> Result<Option<Turn<'db>>> {
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
    fn is_stale(&self) -> bool {
        self.losses > 0
    }

    /// Whether it is another than the plan found.
    fn is_changed(&self) -> bool {
        self.changed
    }

    /// Notes that it had changed when it was to be written.
    fn lost(&mut self) {
        self.losses += 1;
    }

    /// Reads it again; `false` where it is gone.
    ///
    /// Errors: QueryPlanKilled where the collection is gone.
    fn read_again(&mut self, database: &Database, operation: &Operation) -> Result<bool> {
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
