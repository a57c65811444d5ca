//! The operations of oplog entries: commands, and inserts, updates and deletes. The latter are idempotent.

use super::{Options, Results, may_continue, object, uuid};
use crate::call::arguments::Arguments;
use crate::call::{Call, HandlerStatus};
use crate::commands::sets::apply_ops;
use crate::commands::table;
use crate::protocol::write_concern::WriteConcern;
use base::bson::{Builder, Document, DocumentBuf, Element, Value};
use base::{Error, ErrorCode, Namespace, Result, bail, encoding, err};
use database::language::{Matcher, Update};
use database::{DeleteRequest, InsertRequest, RenameRequest, Scope, UpdateRequest, mutant};
use std::cell::Cell;
use std::sync::Arc;
use wire::request::Request;

/// Applies an operation of kind `c`.
///
/// Errors: BadValue for a command that oplogs do not contain; errors of the command. An error that
/// shows that the change already exists is ignored.
pub(super) fn apply_command(call: &mut Call<'_>, operation: Document<'_>, options: Options) -> Result<()> {
    let object = object(operation)?;
    let name = operation.get("ns").and_then(|name| name.as_str()).unwrap_or_default();
    let namespace = Namespace::parse(name).map_err(|_| err!(InvalidNamespace, "invalid ns: {name}"))?;
    if call.server.database.collection(&namespace).is_some_and(|collection| collection.is_view()) {
        bail!(CommandNotSupportedOnView, "applyOps not supported on view:{namespace}");
    }
    let Some(first) = object.first() else {
        bail!(BadValue, "Invalid key '' found in field 'o'");
    };
    use ErrorCode::{IndexAlreadyExists, IndexNotFound, NamespaceExists, NamespaceNotFound};
    let database = namespace.database();
    let (outcome, acceptable): (Result<()>, &[ErrorCode]) = match first.name() {
        "create" => (create(call, database, object, uuid(operation)?), &[NamespaceExists]),
        "createIndexes" => {
            (run(call, database, create_indexes(first, object)), &[IndexAlreadyExists, NamespaceNotFound])
        }
        "collMod" => (run(call, database, coll_mod(object)), &[IndexNotFound, NamespaceNotFound]),
        "drop" => (run(call, database, only(object, &["drop"])), &[NamespaceNotFound]),
        "dropDatabase" => (run(call, database, only(object, &["dropDatabase"])), &[NamespaceNotFound]),
        "dropIndexes" | "deleteIndexes" | "dropIndex" | "deleteIndex" => {
            (run(call, database, drop_indexes(first, object)), &[IndexNotFound, NamespaceNotFound])
        }
        "renameCollection" => (run(call, "admin", rename(object)), &[NamespaceNotFound, NamespaceExists]),
        "convertToCapped" => {
            (run(call, database, only(object, &["convertToCapped", "size"])), &[NamespaceNotFound])
        }
        "applyOps" => (nested(call, object, options), &[]),
        name @ ("startIndexBuild" | "commitIndexBuild" | "abortIndexBuild") => {
            bail!(CommandNotSupported, "The {name} operation is not supported in applyOps mode");
        }
        "commitTransaction" => {
            bail!(50987, "commitTransaction is only used internally by secondaries.");
        }
        "abortTransaction" => {
            bail!(50972, "abortTransaction is only used internally by secondaries.");
        }
        name @ ("dbCheck" | "emptycapped" | "importCollection" | "modifyCollectionShardingIndexCatalog") => {
            bail!(NotImplemented, "applyOps of the command '{name}' is not implemented");
        }
        name => bail!(BadValue, "Invalid key '{name}' found in field 'o'"),
    };
    match outcome {
        Err(error) if acceptable.contains(&error.code()) => Ok(()),
        outcome => outcome,
    }
}

/// Runs a client command in place of the current command.
fn run(call: &mut Call<'_>, database: &str, command: DocumentBuf) -> Result<()> {
    let body = command.view();
    let request = Request::of(body, database);
    let name = request.name;
    let row = table::row(name).ok_or_else(|| err!(CommandNotFound, "no such command: '{name}'"))?;
    let arguments = Arguments {
        session: call.arguments.session,
        max_time: call.arguments.max_time,
        // The outer command waits for the write concern of all its operations.
        write_concern: Some(WriteConcern::one()),
        ..Arguments::default()
    };
    let mut reply = Builder::new();
    let mut inner = Call {
        server: call.server,
        connection: &mut *call.connection,
        progress: &mut *call.progress,
        request: &request,
        command: &row.command,
        arguments: &arguments,
        reply: &mut reply,
        transaction: None,
        operation_id: call.operation_id,
        may_suspend: Cell::new(call.may_suspend.take()),
        inner_wait: Cell::default(),
        exhaust_allowed: false,
        streams: None,
        notes: None,
        reads_stream: false,
        query_settings: None,
        durability_wait: None,
        durable: false,
    };
    match (row.run)(&mut inner)? {
        HandlerStatus::Done => Ok(()),
        HandlerStatus::Wait(_) | HandlerStatus::Close => {
            Err(err!(InternalError, "{} in applyOps didn't end at once", row.command.name))
        }
    }
}

/// Creates a collection with the UUID of the entry.
///
/// A collection with this UUID and another name is renamed. A collection with this name and another
/// UUID is renamed to a temporary name.
///
/// Errors: 40655 if another database has the collection with this UUID.
fn create(call: &mut Call<'_>, database: &str, object: Document<'_>, uuid: Option<[u8; 16]>) -> Result<()> {
    let Some(uuid) = uuid else { return run(call, database, object.to_owned()) };
    let name = object.first().and_then(|first| first.value().as_str()).unwrap_or_default();
    let namespace = Namespace::new(database, name)?;
    let server = call.server;
    let (catalog, operation) = (server.database.catalog(), call.operation());
    let known = catalog.all().find(|known| known.uuid == uuid);
    if let Some(known) = known {
        if known.namespace == namespace {
            return Ok(());
        }
        if known.namespace.database() != database {
            bail!(40655, "Invalid name {namespace} for UUID {}", encoding::uuid(&uuid));
        }
    }
    if catalog.get(&namespace).is_some() {
        let aside = Namespace::new(database, &format!("tmp{:08x}.create", server.random() as u32))?;
        let request = RenameRequest::new(namespace.clone(), aside, false);
        server.database.rename_collection(operation.as_ref(), &request)?;
    }
    if let Some(known) = known {
        let request = RenameRequest::new(known.namespace.clone(), namespace, false);
        return server.database.rename_collection(operation.as_ref(), &request).map(drop);
    }
    let mut options = Builder::new();
    object.iter().skip(1).for_each(|option| _ = options.append_element(&option));
    let operation = call.operation();
    let (context, options) = (call.context(&operation), options.finish());
    server
        .database
        .create_collection_as(&operation, &namespace, options.view(), Some(uuid), &context)
        .map(drop)
}

/// Returns the named fields of a command, without the fields that oplogs add.
fn only(object: Document<'_>, names: &[&str]) -> DocumentBuf {
    let mut command = Builder::new();
    for field in object.iter().filter(|field| names.contains(&field.name())) {
        command.append_element(&field);
    }
    command.finish()
}

/// Converts the oplog form, which has the index's fields beside the collection, to `createIndexes`.
fn create_indexes(first: Element<'_>, object: Document<'_>) -> DocumentBuf {
    let mut command = Builder::new();
    command.append(c"createIndexes", first.value()).begin_array(c"indexes").push_document();
    for field in object.iter().skip(1).filter(|field| field.name() != "ns") {
        command.append_element(&field);
    }
    command.end().end();
    command.finish()
}

/// Converts the oplog form, which has index changes in fields of its own. An oplog reports a
/// removed property as false.
fn coll_mod(object: Document<'_>) -> DocumentBuf {
    let mut command = Builder::new();
    for field in object {
        command.append_element(&field);
    }
    command.finish()
}

fn drop_indexes(first: Element<'_>, object: Document<'_>) -> DocumentBuf {
    let mut command = Builder::new();
    command.append(c"dropIndexes", first.value());
    command.append(c"index", object.get("index").unwrap_or(Value::String("*")));
    command.finish()
}

/// Converts the oplog form, which names the dropped collection by its UUID.
fn rename(object: Document<'_>) -> DocumentBuf {
    let mut command = only(object, &["renameCollection", "to"]);
    let drops = match object.get("dropTarget") {
        Some(Value::Binary { .. }) => true,
        Some(value) => value.is_truthy(),
        None => false,
    };
    if drops {
        let mut with = Builder::new();
        with.append_all(command.view()).append(c"dropTarget", true);
        command = with.finish();
    }
    command
}

fn nested(call: &mut Call<'_>, object: Document<'_>, options: Options) -> Result<()> {
    let operations = apply_ops::operations(object)?;
    let always_upsert = object.get("alwaysUpsert").map_or(options.always_upsert, |upsert| upsert.is_truthy());
    let options = Options { always_upsert, ..options };
    let outcome: Result<Results> = super::apply(call, operations, options);
    // The error of a nested applyOps has no nested results.
    outcome.map(drop).map_err(|error| Error::new(error.code(), error.message()))
}

/// Applies an operation of this kind. Returns false after a failure that lets the command continue.
///
/// Errors: NamespaceNotFound; NoSuchKey for an operation without `_id`; BadValue for an unknown
/// kind; errors of the update; interruption.
pub(super) fn apply_document(
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
        return Err(Error::unknown_value("OplogEntryBase.op", kind));
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
                let update = Update::from_oplog(document, &self.scope.context)?;
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
        let always = self.options.always_upsert && !mutant!("applied updates insert no missing documents");
        let upsert = always || entry.get("b").is_some_and(|upsert| upsert.is_truthy());
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
