//! Inserts, updates and deletes of an oplog. Each operation is idempotent.

use super::{Options, may_continue, object, uuid};
use crate::call::Call;
use base::bson::{Builder, Document, DocumentBuf, Element};
use base::encoding;
use base::{Error, ErrorCode, Namespace, Result, bail, err};
use database::Scope;
use database::language::{Matcher, Update};
use database::{DeleteRequest, InsertRequest, UpdateRequest};
use std::sync::Arc;

/// Applies an operation of this kind. Returns false after a failure that lets the command continue.
///
/// Errors: NamespaceNotFound; NoSuchKey for an operation without `_id`; BadValue for an unknown
/// kind; errors of the update; interruption.
pub(super) fn apply(
    call: &mut Call<'_>,
    kind: &str,
    operation: Document<'_>,
    options: Options,
) -> Result<bool> {
    let name = operation.get("ns").and_then(|name| name.as_str()).unwrap_or_default();
    let namespace = Namespace::parse(name).map_err(|_| err!(InvalidNamespace, "invalid ns: {name}"))?;
    let database = call.server.database.clone();
    if database.is_oplog(&namespace) {
        bail!(IllegalOperation, "local.oplog.rs is the oplog, which is read-only");
    }
    if !matches!(kind, "i" | "u" | "d") {
        bail!(BadValue, "Enumeration value '{kind}' for field 'OplogEntryBase.op' is not a valid value.");
    }
    let object = object(operation)?;
    let collection = database.collection(&namespace);
    if let Some(uuid) = uuid(operation)?
        && collection.as_ref().is_none_or(|collection| collection.uuid != uuid)
    {
        let uuid = encoding::uuid(&uuid);
        return failed(err!(
            3318200,
            "Namespace '{namespace}' and UUID '{uuid}' point to different collections"
        ));
    }
    match collection {
        None if kind == "d" => return Ok(true),
        None => {
            bail!(
                NamespaceNotFound,
                "cannot apply insert or update operation on a non-existent namespace {namespace}: {operation}"
            );
        }
        Some(collection) if collection.is_view() => {
            bail!(CommandNotSupportedOnView, "applyOps not supported on view: {namespace}");
        }
        Some(_) => {}
    }
    let scope = call.scope_to_write(&namespace, None, None)?.keep_empty_timestamps(true);
    // `_id` is compared without the collection's collation: the entry has the exact value.
    let target = Target { call, scope, options };
    match kind {
        "i" => target.insert(object, operation),
        "u" => target.update(object, operation),
        _ => target.delete(object, operation),
    }
}

/// Target of an operation: the call, the collection's scope and the options.
struct Target<'p, 'c> {
    call: &'p Call<'c>,
    scope: Scope,
    options: Options,
}

impl Target<'_, '_> {
    fn insert(&self, document: Document<'_>, entry: Document<'_>) -> Result<bool> {
        let id = id_of(document, "insert", entry)?;
        let request = InsertRequest { document, bypass_validation: self.options.bypass_validation };
        let server = self.call.server;
        server.counters.inserted.add(1);
        match server.database.insert(&self.scope, request) {
            Ok(_) => Ok(true),
            Err(error) if error.code() == ErrorCode::DuplicateKey => {
                let update = Update::parse(document.into(), &[], &self.scope.context)?;
                self.run_update(id, update, true).map(|_| true)
            }
            Err(error) => failed(error),
        }
    }

    fn update(&self, object: Document<'_>, entry: Document<'_>) -> Result<bool> {
        let key = entry.get("o2").and_then(|key| key.as_document()).unwrap_or(Document::EMPTY);
        let id = id_of(key, "update", entry)?;
        let update = Update::from_oplog(object, &self.scope.context)?;
        let message =
            if update.is_replacement() { "Update of non-mod failed" } else { "Failed to apply update" };
        let upsert = self.options.always_upsert || entry.get("b").is_some_and(|upsert| upsert.is_truthy());
        self.call.server.counters.updated.add(1);
        match self.run_update(id, update, upsert)? {
            true => Ok(true),
            false => failed(err!(UpdateOperationFailed, "{message}: {entry}")),
        }
    }

    /// Updates the document with this `_id`. Returns true if the document existed or was inserted.
    fn run_update(&self, id: Element<'_>, update: Update, upsert: bool) -> Result<bool> {
        let request = UpdateRequest {
            matcher: Arc::new(Matcher::parse(with_id(id).view(), &self.scope.context)?),
            update: update.into(),
            multi: false,
            upsert,
            sort: None,
            hint: None,
            bypass_validation: self.options.bypass_validation,
        };
        let database = &self.call.server.database;
        let outcome = database.update(&self.scope, &request)?;
        Ok(outcome.matched > 0 || outcome.upserted.is_some())
    }

    fn delete(&self, key: Document<'_>, entry: Document<'_>) -> Result<bool> {
        let id = id_of(key, "delete", entry)?;
        let matcher = Arc::new(Matcher::parse(with_id(id).view(), &self.scope.context)?);
        let request = DeleteRequest { matcher, single: true, hint: None };
        self.call.server.counters.deleted.add(1);
        self.call.server.database.delete(&self.scope, &request)?;
        Ok(true)
    }
}

/// Returns the `_id` of an entry.
///
/// Errors: NoSuchKey.
fn id_of<'a>(key: Document<'a>, action: &str, entry: Document<'_>) -> Result<Element<'a>> {
    key.find("_id").ok_or_else(|| err!(NoSuchKey, "Failed to apply {action} due to missing _id: {entry}"))
}

fn with_id(id: Element<'_>) -> DocumentBuf {
    let mut filter = Builder::new();
    filter.begin_document(c"_id").append(c"$eq", id.value()).end();
    filter.finish()
}

/// Logs a failed operation. Returns the error if it ends the command.
fn failed(error: Error) -> Result<bool> {
    log::info!("applyOps: an operation failed to apply: {error}");
    if may_continue(&error) { Ok(false) } else { Err(error) }
}
