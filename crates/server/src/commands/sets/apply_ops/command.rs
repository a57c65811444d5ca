//! Commands in oplog entries, run as the matching client commands.

use super::{Options, Results, checks, object, uuid};
use crate::call::arguments::Arguments;
use crate::call::{Call, HandlerStatus};
use crate::commands::table;
use crate::protocol::write_concern::WriteConcern;
use base::bson::{Builder, Document, DocumentBuf, Element, Value};
use base::{Error, ErrorCode, Namespace, Result, bail, err};
use database::RenameRequest;
use std::cell::Cell;
use wire::request::Request;

/// Applies an operation of kind `c`.
///
/// Errors: BadValue for a command that oplogs do not contain; errors of the command. An error that
/// shows that the change already exists is ignored.
pub(super) fn apply(call: &mut Call<'_>, operation: Document<'_>, options: Options) -> Result<()> {
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
        may_suspend: Cell::new(false),
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
fn create(call: &mut Call<'_>, database: &str, object: Document<'_>, uuid: Option<[u8; 16]>) -> Result<()> {
    let Some(uuid) = uuid else { return run(call, database, object.to_owned()) };
    let name = object.first().and_then(|first| first.value().as_str()).unwrap_or_default();
    let namespace = Namespace::new(database, name)?;
    let server = call.server;
    let (catalog, operation) = (server.database.catalog(), call.operation());
    if catalog.get(&namespace).is_some_and(|known| known.uuid == uuid) {
        return Ok(());
    }
    if catalog.get(&namespace).is_some() {
        let aside = Namespace::new(database, &format!("tmp{:08x}.create", server.random() as u32))?;
        let request = RenameRequest::new(namespace.clone(), aside, false);
        server.database.rename_collection(operation.as_ref(), &request)?;
    }
    if let Some(known) = catalog.all().find(|known| known.uuid == uuid) {
        let request = RenameRequest::new(known.namespace.clone(), namespace, false);
        return server.database.rename_collection(operation.as_ref(), &request).map(drop);
    }
    let mut options = Builder::new();
    object.iter().skip(1).for_each(|option| _ = options.append_element(&option));
    let ((operation, context), options) = (call.surroundings(), options.finish());
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
    let operations = checks::operations(object)?;
    let always_upsert = object.get("alwaysUpsert").map_or(options.always_upsert, |upsert| upsert.is_truthy());
    let options = Options { always_upsert, ..options };
    let outcome: Result<Results> = super::apply(call, operations, options);
    // The error of a nested applyOps has no nested results.
    outcome.map(drop).map_err(|error| Error::new(error.code(), error.message()))
}
