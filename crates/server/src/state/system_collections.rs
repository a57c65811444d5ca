//! Documents of the server's own collections, such as `config.settings`, accessed without a client.
//! Reads work in any state of the replica set. Writes do not wait for the journal: the reply of the command does.

use base::bson::{Builder, Document, DocumentBuf, Value};
use base::{Namespace, Result};
use database::language::{Context, Matcher, Update};
use database::{Database, DeleteRequest, FindRequest, Scope, UpdateRequest};
use std::sync::Arc;

/// Returns the matching documents. A limit of 0 returns all.
///
/// Errors: an invalid filter; the store's errors.
pub(crate) fn find(
    database: &Arc<Database>,
    namespace: &Namespace,
    filter: Document<'_>,
    limit: u64,
) -> Result<Vec<DocumentBuf>> {
    database.by_latest_catalog(|| {
        let request = FindRequest { limit, ..FindRequest::new(filter) };
        let mut cursor = database.find(&scope(database, namespace), &request)?;
        let mut all = Vec::new();
        let mut ended = false;
        while !ended {
            let mut batch = Builder::new();
            batch.begin_array(c"found");
            ended = cursor.next_batch(u64::MAX, &mut batch)?.1;
            batch.end();
            let batch = batch.finish();
            let documents = batch.view().get("found").and_then(|documents| documents.as_array());
            let documents = documents.into_iter().flat_map(|documents| documents.iter());
            all.extend(documents.filter_map(|document| Some(document.as_document()?.to_owned())));
        }
        Ok(all)
    })
}

/// Returns the document with this `_id`.
///
/// Errors: the store's errors.
pub(crate) fn find_by_id(
    database: &Arc<Database>,
    namespace: &Namespace,
    id: &str,
) -> Result<Option<DocumentBuf>> {
    Ok(find(database, namespace, by_id(id).view(), 1)?.pop())
}

/// Replaces or inserts the document with this `_id`.
///
/// Errors: the store's errors.
pub(crate) fn replace(
    database: &Arc<Database>,
    namespace: &Namespace,
    id: &str,
    document: Document<'_>,
) -> Result<()> {
    upsert(database, namespace, by_id(id).view(), document)
}

/// Updates the matching document, or inserts the document that filter and update describe.
///
/// Errors: an invalid filter or update; DuplicateKey; the store's errors.
pub(crate) fn upsert(
    database: &Arc<Database>,
    namespace: &Namespace,
    filter: Document<'_>,
    update: Document<'_>,
) -> Result<()> {
    database.by_latest_catalog(|| {
        let scope = scope(database, namespace);
        let request = UpdateRequest {
            matcher: Arc::new(Matcher::parse_query(filter, &scope.context)?),
            update: Update::parse(Value::Document(update), &[], &scope.context)?.into(),
            multi: false,
            upsert: true,
            sort: None,
            hint: None,
            bypass_validation: true,
        };
        database.update(&scope, &request).map(drop)
    })
}

/// Deletes the document with this `_id`, if it exists.
///
/// Errors: the store's errors.
pub(crate) fn delete(database: &Arc<Database>, namespace: &Namespace, id: &str) -> Result<()> {
    database.by_latest_catalog(|| {
        let scope = scope(database, namespace);
        let matcher = Arc::new(Matcher::parse_query(by_id(id).view(), &scope.context)?);
        database.delete(&scope, &DeleteRequest { matcher, single: true, hint: None }).map(drop)
    })
}

fn scope(database: &Arc<Database>, namespace: &Namespace) -> Scope {
    let operation = Arc::new(database.operation(0));
    // These operations use no random numbers.
    let context = Context::new(database.now_millis(), 0, operation.clone());
    Scope::new(&operation, namespace, &Arc::new(context))
}

fn by_id(id: &str) -> DocumentBuf {
    let mut filter = Builder::new();
    filter.append(c"_id", id);
    filter.finish()
}

/// Location of a setting that has its own document.
#[derive(Clone, Copy)]
pub(crate) struct SettingLocation {
    pub(crate) database: &'static str,
    pub(crate) collection: &'static str,
    /// `_id` of the document.
    pub(crate) id: &'static str,
}

impl SettingLocation {
    /// Returns the stored document.
    ///
    /// Errors: the store's errors.
    pub(crate) fn read(&self, database: &Arc<Database>) -> Result<Option<DocumentBuf>> {
        find_by_id(database, &Namespace::new(self.database, self.collection)?, self.id)
    }

    /// Stores a document. `append` adds the fields after `_id`.
    ///
    /// Errors: the store's errors.
    pub(crate) fn write(&self, database: &Arc<Database>, append: impl FnOnce(&mut Builder)) -> Result<()> {
        let mut document = Builder::new();
        append(document.append(c"_id", self.id));
        let namespace = Namespace::new(self.database, self.collection)?;
        replace(database, &namespace, self.id, document.finish().view())
    }
}
