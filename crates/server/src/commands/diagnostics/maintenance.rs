//! Maintenance commands for operators: `compact`, `dbHash`, `fsync`, `connPoolStats`, `lockInfo` and similar commands.

use crate::access::{Action, Requirements, requirements};
use crate::call::{Call, HandlerStatus, Row};
use crate::commands::diagnostics::server_info::host_name;
use crate::process::blocking::in_place;
use crate::protocol::fields::Fields;
use crate::server::Server;
use base::bson::{Builder, FieldName, Value};
use base::{Namespace, Result, bail, err};
use database::time;
use std::sync::Arc;

/// The row of `compact`.
pub(crate) const COMPACT: Row = Row::write("compact", compact, Requirements::Collection(Action::Compact))
    .help("Releases the free space of a collection. Has no effect here.")
    .without_write_concern();

/// Frees nothing: trees release unused pages when they shrink.
fn compact(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let namespace = fields.namespace()?;
    let is_forced = fields.boolean("force")? == Some(true);
    let is_estimate = fields.boolean("dryRun")? == Some(true);
    fields.bounded("freeSpaceTargetMB", 1..=i64::MAX)?;
    fields.finish()?;
    if call.server.is_replica_set() && !is_forced {
        bail!(
            IllegalOperation,
            "will not run compact on an active replica set primary as this will slow down other running operations. \
             use force:true to force"
        );
    }
    let Some(collection) = call.server.database.collection(&namespace) else {
        bail!(NamespaceNotFound, "collection does not exist");
    };
    if collection.is_view() {
        bail!(CommandNotSupportedOnView, "can't compact a view");
    }
    call.reply.append(if is_estimate { c"estimatedBytesFreed" } else { c"bytesFreed" }, 0i32);
    Ok(HandlerStatus::Done)
}

/// The row of `dbHash`.
pub(crate) const DB_HASH: Row = Row::read("dbHash", db_hash, Requirements::Database(Action::DbHash))
    .help("Hashes the documents of a database.");

fn db_hash(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields().after_name();
    // Values of other types are ignored.
    let only = match fields.any("collections")? {
        Some(Value::Array(names)) => Some(names.iter().map(collection_name).collect::<Result<Vec<_>>>()?),
        _ => None,
    };
    fields.flag("skipTempCollections")?;
    fields.ignore_rest();
    let began = time::now();
    let operation = call.operation();
    let context = Arc::new(call.context(&operation));
    let database = &call.server.database;
    let catalog = database.catalog();
    let is_selected = |name: &str| {
        name != "system.profile" && only.as_ref().is_none_or(|only| only.is_empty() || only.contains(&name))
    };
    let mut hashes: Vec<(String, [u8; 16], bool, String)> = Vec::new();
    for collection in catalog.collections(call.request.database) {
        let name = collection.namespace.collection();
        if collection.is_view() || !is_selected(name) {
            continue;
        }
        let hash = database.hash_documents(&operation, &collection.namespace, &context)?;
        hashes.push((name.to_string(), collection.uuid, collection.options.capped.is_some(), hash));
    }
    let port = call.connection.local.port();
    let reply = &mut *call.reply;
    reply.append(c"host", &format!("{}:{port}", host_name())).begin_document(c"collections");
    let mut all = base::hash::Md5Sum::default();
    for (name, _, _, hash) in &hashes {
        reply.append(FieldName::trusted(name), hash.as_str());
        all.update(hash.as_bytes());
    }
    reply.end().begin_array(c"capped");
    hashes.iter().filter(|(_, _, capped, _)| *capped).for_each(|(name, ..)| push(reply, name));
    reply.end().begin_document(c"uuids");
    for (name, uuid, ..) in &hashes {
        reply.append(FieldName::trusted(name), Value::Binary { subtype: 4, bytes: uuid });
    }
    reply
        .end()
        .append(c"md5", &all.hex())
        .append_number(c"timeMillis", time::since(began).as_millis() as i64);
    Ok(HandlerStatus::Done)
}

/// Returns the collection name in an entry of `collections`.
///
/// Errors: BadValue if the entry is not a string.
fn collection_name(entry: Value<'_>) -> Result<&str> {
    entry.as_str().ok_or_else(|| err!(BadValue, "collections entries have to be strings"))
}

fn push(reply: &mut Builder, text: &str) {
    reply.push(text);
}

/// The row of `filemd5`.
pub(crate) const FILE_MD5: Row =
    Row::read("filemd5", file_md5, Requirements::By(requirements::file_md5)).help("Hashes a file of GridFS.");

fn file_md5(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let id = fields.command_value().to_owned();
    let root = fields.string("root")?.unwrap_or("fs");
    fields.refuse_unless_default("partialOk")?;
    fields.finish()?;
    let namespace = Namespace::new(call.request.database, &format!("{root}.chunks"))?;
    let operation = call.operation();
    let context = Arc::new(call.context(&operation));
    let (chunks, hash) = call.server.database.hash_file(&operation, &namespace, id.view(), &context)?;
    call.reply.append(c"numChunks", chunks).append(c"md5", &hash);
    Ok(HandlerStatus::Done)
}

/// The row of `getDiagnosticData`.
pub(crate) const GET_DIAGNOSTIC_DATA: Row =
    Row::admin("getDiagnosticData", get_diagnostic_data, Requirements::By(requirements::diagnostic_data))
        .help("Returns collected diagnostic data, which is always empty.")
        .admin_only();

/// Returns MongoDB's reply for a server without diagnostic data collection.
fn get_diagnostic_data(call: &mut Call<'_>) -> Result<HandlerStatus> {
    no_fields(call)?;
    call.reply.begin_document(c"data").end();
    Ok(HandlerStatus::Done)
}

/// The row of `connPoolStats`.
pub(crate) const CONN_POOL_STATS: Row =
    Row::admin("connPoolStats", conn_pool_stats, Requirements::Cluster(Action::ConnPoolStats))
        .help("Describes connections to other servers, which is always empty.");

fn conn_pool_stats(call: &mut Call<'_>) -> Result<HandlerStatus> {
    no_fields(call)?;
    let reply = &mut *call.reply;
    for count in ["numClientConnections", "numAScopedConnections"] {
        reply.append(FieldName::literal(count), 0i32);
    }
    for count in ["totalInUse", "totalAvailable", "totalLeased", "totalCreated", "totalRefreshing"] {
        reply.append(FieldName::literal(count), 0i32);
    }
    for part in ["pools", "hosts", "replicaSets"] {
        reply.begin_document(FieldName::literal(part)).end();
    }
    Ok(HandlerStatus::Done)
}

/// The row of `lockInfo`.
pub(crate) const LOCK_INFO: Row =
    Row::admin("lockInfo", lock_info, Requirements::Cluster(Action::ServerStatus))
        .help("Lists locks, which is always empty.")
        .admin_only();

fn lock_info(call: &mut Call<'_>) -> Result<HandlerStatus> {
    no_fields(call)?;
    call.reply.begin_array(c"lockInfo").end();
    Ok(HandlerStatus::Done)
}

/// The row of `refreshLogicalSessionCacheNow`.
pub(crate) const REFRESH_SESSION_CACHE: Row =
    Row::admin("refreshLogicalSessionCacheNow", refresh_session_cache, Requirements::Nothing)
        .help("Refreshes the cache of sessions. Has no effect here.");

fn refresh_session_cache(call: &mut Call<'_>) -> Result<HandlerStatus> {
    no_fields(call)?;
    Ok(HandlerStatus::Done)
}

fn no_fields(call: &Call<'_>) -> Result<()> {
    let mut fields: Fields<'_> = call.fields();
    fields.command_value();
    fields.finish()
}

/// The row of `fsync`.
pub(crate) const FSYNC: Row = Row::admin("fsync", fsync, Requirements::Cluster(Action::Fsync))
    .help("Syncs all data to disk, and optionally locks writes.")
    .admin_only();

fn fsync(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields().after_name();
    let lock = fields.flag("lock")?.unwrap_or(false);
    fields.flag("async")?;
    fields.flag("forBackup")?;
    // The lock is available after the running commits, each of a few microseconds.
    if let Some(timeout) = fields.any("fsyncLockAcquisitionTimeoutMillis")?
        && !matches!(timeout, Value::Int32(_) | Value::Null)
    {
        return Err(fields.wrong_type("fsyncLockAcquisitionTimeoutMillis", timeout.kind(), "int"));
    }
    fields.finish()?;
    let database = &call.server.database;
    if !lock {
        in_place(|| database.checkpoint())?;
        call.reply.append(c"numFiles", 1);
        return Ok(HandlerStatus::Done);
    }
    if call.server.settings.shared {
        bail!(
            CommandNotSupported,
            "fsync with lock is not supported on PostgreSQL, whose backups need no lock"
        );
    }
    let count = in_place(|| database.lock_writes()).inspect_err(|_| end_lock(call.server))?;
    log::info!("writes are locked, {count} times; fsyncUnlock unlocks them");
    call.reply.append(c"info", "now locked against writes, use db.fsyncUnlock() to unlock");
    call.reply.append(c"lockCount", count as i64);
    call.reply.append(c"seeAlso", "http://dochub.mongodb.org/core/fsynccommand");
    Ok(HandlerStatus::Done)
}

/// The row of `fsyncUnlock`.
pub(crate) const FSYNC_UNLOCK: Row =
    Row::admin("fsyncUnlock", fsync_unlock, Requirements::Cluster(Action::Unlock))
        .help("Unlocks writes after fsync.")
        .admin_only();

fn fsync_unlock(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let fields = call.fields().after_name();
    fields.ignore_rest();
    let left = call.server.database.unlock_writes();
    let left = left.ok_or_else(|| err!(IllegalOperation, "fsyncUnlock called when not locked"))?;
    if left == 0 {
        log::info!("writes are unlocked");
    }
    end_lock(call.server);
    call.reply.append(c"info", "fsyncUnlock completed").append(c"lockCount", left as i64);
    Ok(HandlerStatus::Done)
}

/// Wakes the writes that wait for the last lock, if it is released.
fn end_lock(server: &Server) {
    if server.database.write_locks() == 0 {
        server.unlocked.advance();
        server.database.clean_up();
    }
}
