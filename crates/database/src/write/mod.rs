//! Statements that change documents.
//!
//! A statement finds its documents on a view and computes their new versions and keys.
//! [`apply`](crate::Database::apply) commits these changes if the documents are unchanged since the
//! view. If not, the statement reads the document again. If the document still matches, the
//! statement computes the change again. A statement holds no lock while it computes.

mod capped;
mod delete;
mod feature_version;
mod find_and_modify;
mod insert;
mod retryable;
mod source;
mod update;

pub use delete::DeleteRequest;
pub use find_and_modify::{Action, FindAndModifyOutcome, FindAndModifyRequest, ReplyBuilder};
pub use insert::{InsertProgress, InsertRequest, Inserted, Insertion};
pub use retryable::delete_answer;
pub use source::WriteProgress;
pub use update::{UpdateOutcome, UpdateRequest};

use crate::catalog::collection::Collection;
use crate::catalog::{Catalog, MultikeyFlags};
use crate::commit::catalog_change::same_collection;
use crate::database::Database;
use crate::index::{DocumentKeys, Index};
use crate::keys::RecordId;
use crate::operation::{Operation, RecordTicket};
use crate::storage_error;
use base::bson::{Document, DocumentCow};
use base::{Error, Result, bail, err};
use query::{Context, Interrupt, Row};
use std::sync::Arc;
use storage::{Value, mark, mutant};

/// Most restarts of a statement because of concurrent changes of its document. The statement then
/// fails with WriteConflict.
const RETRIES_MAX: usize = 10_000;

/// Returns the keys of a document in every index of a collection, in the order of writing.
pub(crate) fn keys_of(
    collection: &Collection,
    document: Document<'_>,
    context: &Context,
) -> Result<Vec<DocumentKeys>> {
    let data = collection.data()?;
    data.written_indexes().map(|index| index.spec.keys_of(document, context)).collect()
}

/// Returns the keys of a document before and after an update, in every index of a collection, in the order of writing.
/// Both lists are empty for an index whose fields the update left alone.
pub(crate) fn changed_keys_of(
    collection: &Collection,
    before: Document<'_>,
    after: Document<'_>,
    context: &Context,
) -> Result<(Vec<DocumentKeys>, Vec<DocumentKeys>)> {
    let data = collection.data()?;
    let keys = |(at, index): (usize, &Arc<Index>)| {
        // An index build may not have the entries yet.
        let is_built = at < data.indexes.len();
        if is_built && index.spec.are_keys_same(before, after) {
            return Ok(Default::default());
        }
        Ok((index.spec.keys_of(before, context)?, index.spec.keys_of(after, context)?))
    };
    data.written_indexes().enumerate().map(keys).collect()
}

impl Database {
    /// Records new multikey paths in the indexes of a collection before the document is written.
    /// Later plans take them into account.
    ///
    /// The multikey flags stay set even if the document is not written. Plans are then only more
    /// careful than necessary.
    ///
    /// Errors: storage errors, interrupted waits.
    fn set_multikey(
        &self,
        operation: &Operation,
        collection: &Arc<Collection>,
        keys: &[DocumentKeys],
    ) -> Result<()> {
        let data = collection.data()?;
        let flags = || {
            let written = data.written_indexes().zip(keys).map(|(index, keys)| (index, &keys.multikey));
            written.filter(|(_, bits)| bits.iter().any(|bits| *bits != 0))
        };
        if flags().next().is_none() {
            return Ok(());
        }
        // The planned copy may have bits that a crash of the store has lost.
        let known = self.known_catalog();
        let is_known = same_version(&known, collection).is_some_and(|known| has_bits(known, flags()));
        // No other operation knows a collection that the transaction has created.
        let is_own =
            || operation.transaction().is_some_and(|transaction| transaction.has_created(collection));
        if !is_known && !is_own() {
            let flags: MultikeyFlags = flags().map(|(index, bits)| (index.ident, bits.clone())).collect();
            let learned = self.change_catalog(operation, |change| {
                // Two statements that read a new catalog at the same time have separate copies of the collection.
                let latest = same_version(change.catalog(), collection).cloned();
                Ok(latest.map(|latest| change.learn(&latest, flags.clone())))
            })?;
            if learned.is_none() {
                // The commit expects the planned version, so the statement restarts.
                return Ok(());
            }
        }
        // Later statements of a transaction use the planned copy.
        flags().for_each(|(index, bits)| index.note_multikey(bits));
        Ok(())
    }
}

/// Returns the copy in a catalog of the same version of a collection.
fn same_version<'a>(catalog: &'a Catalog, planned: &Collection) -> Option<&'a Arc<Collection>> {
    let is_same =
        |other: &&Arc<Collection>| other.uuid == planned.uuid && other.generation == planned.generation;
    catalog.get(&planned.namespace).filter(is_same)
}

/// Returns true if the indexes of a collection have these multikey bits of indexes of another copy.
fn has_bits<'a>(
    collection: &Collection,
    mut flags: impl Iterator<Item = (&'a Arc<Index>, &'a Vec<u32>)>,
) -> bool {
    flags.all(|(planned, bits)| {
        let mut indexes = collection.data.iter().flat_map(|data| data.written_indexes());
        let index = indexes.find(|index| index.ident == planned.ident);
        index.is_none_or(|index| index.unknown_multikey(bits).is_none())
    })
}

/// Adds MongoDB's prefix to an error of a plan in the middle of a statement. Errors of the
/// statement itself, including its plan, have no prefix.
fn during<T>(statement: &str, outcome: Result<T>) -> Result<T> {
    outcome.map_err(|error| error.context(&format!("Plan executor error during {statement}")))
}

fn too_many_retries() -> Error {
    err!(WriteConflict, "the document kept changing while the statement tried to write it")
}

/// Refuses statements that transactions do not allow.
///
/// Errors: OperationNotSupportedInTransaction.
fn check_writable_within(operation: &Operation, collection: &Collection) -> Result<()> {
    if operation.transaction().is_some() && collection.options.capped.is_some() {
        bail!(
            OperationNotSupportedInTransaction,
            "Collection '{}' is a capped collection. Writes in transactions are not allowed on capped collections.",
            collection.namespace
        );
    }
    Ok(())
}

/// A document that a statement changes: a plan found it, and the statement may read it again. It is as of its latest
/// read.
struct TargetDocument {
    /// The collection as of the read of the document.
    collection: Arc<Collection>,
    id: RecordId,
    /// The document.
    document: Value,
    /// True if the document has changed since the plan found it. The filter must then be checked
    /// again.
    changed: bool,
    /// Number of times that another statement wrote the document first.
    conflicts: usize,
    /// True if the write depends on this version of the collection. A later version ends the statement.
    must_stay: bool,
}

impl TargetDocument {
    fn new(collection: &Arc<Collection>, record: &Row) -> TargetDocument {
        let document = match &record.document {
            DocumentCow::Shared(bytes) => Value::from(bytes.clone()),
            document => Value::from(document.view().bytes()),
        };
        TargetDocument {
            collection: collection.clone(),
            id: RecordId::of(record),
            document,
            changed: false,
            conflicts: 0,
            must_stay: false,
        }
    }

    /// Enters the queue for the document if many operations write it.
    ///
    /// Errors: interrupted waits.
    fn queue(&mut self, database: &Database, operation: &Operation) -> Result<Option<RecordTicket>> {
        if operation.transaction().is_some() && !mutant!("transactions wait in write queues") {
            // A transaction does not wait in the queue. The operation at its head may wait for the
            // transaction's end.
            return Ok(None);
        }
        let ident = self.collection.data()?.ident;
        let waits = (operation, database.blocking_hook());
        let ticket = database.write_queues.take_if_contended(ident, self.id, self.conflicts, waits)?;
        // The statement before it in the queue has changed the document.
        if ticket.is_some() {
            mark!("a write queues for a contended document");
        }
        self.conflicts += usize::from(ticket.is_some());
        Ok(ticket)
    }

    /// Returns true if the document may have changed since the read.
    fn is_stale(&self) -> bool {
        self.conflicts > 0
    }

    /// Returns true if the document has changed since the plan found it.
    fn is_changed(&self) -> bool {
        self.changed
    }

    /// Notes that the document had changed before the write.
    fn note_conflict(&mut self) {
        self.conflicts += 1;
    }

    /// Reads the document again. Returns `false` if it is gone.
    ///
    /// Errors: QueryPlanKilled if the collection is gone, or has changed and must not.
    fn read_again(&mut self, database: &Database, operation: &Operation) -> Result<bool> {
        let read = loop {
            let view = database.view_for(operation);
            let collection = same_collection(&view.catalog, &self.collection)?;
            if self.must_stay && collection.generation != self.collection.generation {
                bail!(QueryPlanKilled, "collection {} has changed", collection.namespace);
            }
            self.collection = collection;
            let ident = self.collection.data()?.ident;
            match view.snapshot.get(ident, &self.id.key()) {
                Err(storage::Error::CatalogChanged) => operation.check()?,
                read => break read.map_err(storage_error)?,
            }
        };
        let Some(document) = read else {
            mark!("a document is gone before its write");
            return Ok(false);
        };
        let has_changed = document != self.document;
        if has_changed {
            mark!("a document has changed before its write");
        }
        self.changed |= has_changed && !mutant!("changed documents are not matched again");
        self.document = document;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scope;
    use crate::catalog::read::read;
    use crate::tests::Fixture;
    use base::bson::extended_json::parse;

    /// Returns a database with an index and one document, and a function that reads the catalog again.
    fn indexed() -> (Fixture, impl Fn(&Database, &Catalog) -> Catalog) {
        let fixture = Fixture::new();
        fixture.insert("{_id: 1, a: 100}");
        fixture.index("{key: {a: 1}, name: 'a_1'}");
        let read_again = |database: &Database, known: &Catalog| {
            let snapshot = database.engine().snapshot();
            read(database.store.as_ref(), snapshot.as_ref(), known).unwrap().catalog
        };
        (fixture, read_again)
    }

    fn index_of(fixture: &Fixture, catalog: &Catalog) -> Arc<Index> {
        let data = catalog.get(&fixture.scope.namespace).unwrap().data().unwrap();
        data.index("a_1").unwrap().clone()
    }

    #[test]
    fn multikey_bits_are_stored_from_any_copy_of_the_collection() {
        let (fixture, read_again) = indexed();
        let Scope { operation, namespace, context, .. } = &fixture.scope;
        // A second thread has read the same catalog.
        let copy = read_again(&fixture.database, &Catalog::default());
        let planned = copy.get(namespace).unwrap();
        let document = parse("{_id: 2, a: [0, 10]}").unwrap();
        let keys = keys_of(planned, document.view(), context).unwrap();
        fixture.database.set_multikey(operation, planned, &keys).unwrap();
        let stored = read_again(&fixture.database, &Catalog::default());
        for catalog in [&stored, &fixture.database.catalog(), &copy] {
            assert!(index_of(&fixture, catalog).is_multikey());
        }
    }

    #[test]
    fn multikey_bits_that_the_store_has_lost_are_not_known() {
        let (fixture, read_again) = indexed();
        let known = fixture.database.catalog();
        let is_known =
            |catalog: &Catalog| Arc::ptr_eq(&index_of(&fixture, catalog), &index_of(&fixture, &known));
        assert!(is_known(&read_again(&fixture.database, &known)));
        index_of(&fixture, &known).note_multikey(&[1]);
        let again = read_again(&fixture.database, &known);
        assert!(!is_known(&again) && !index_of(&fixture, &again).is_multikey());
    }
}
