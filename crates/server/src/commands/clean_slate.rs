//! Commands that copy, compare, reset and back up databases.
//!
//! `forkDatabase`, `snapshotDatabase`, `restoreDatabase`, `dropSnapshot`, `listSnapshots`, `resetDatabase`: a prepared
//! or empty database for each test. The cost does not grow with the number of documents. `diffDatabase` returns the
//! changes since a snapshot or a fork, in the format of change stream events. `vellumBackup` returns a backup of all
//! data as a cursor of bytes, for `vellum backup`.
//!
//! MongoDB has none of these commands. Their errors use MongoDB's codes, so drivers raise familiar exceptions.

use crate::access::{Action, Requirements, requirements};
use crate::call::{Call, HandlerStatus, Row};
use crate::commands::cursors;
use crate::protocol::fields::Fields;
use base::bson::Value;
use base::{Result, bail};
use database::{FIRST_BATCH, Since, StateName};
use std::sync::Arc;

/// The row of `forkDatabase`.
pub(crate) const FORK_DATABASE: Row =
    Row::write("forkDatabase", fork, Requirements::By(requirements::fork_database))
        .without_collection()
        .help("Forks a database under another name (copy-on-write).")
        .admin_only()
        .restarts();

fn fork(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let from = own_database(&mut fields, "forkDatabase")?;
    let to = fields.required("to", Fields::string)?;
    let replace = fields.flag("replace")?.unwrap_or(false);
    fields.finish()?;
    let committed = call.server.database.fork_database(call.operation().as_ref(), from, to, replace)?;
    call.acknowledge(Some(committed))
}

/// The row of `snapshotDatabase`.
pub(crate) const SNAPSHOT_DATABASE: Row =
    Row::write("snapshotDatabase", snapshot, Requirements::NamedDatabase(Action::VellumSnapshotDatabase))
        .without_collection()
        .help("Creates a named snapshot of a database.")
        .admin_only()
        .restarts();

fn snapshot(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let name = state_name(&mut fields, "snapshotDatabase")?;
    let replace = fields.flag("replace")?.unwrap_or(false);
    fields.finish()?;
    let committed = call.server.database.snapshot_database(call.operation().as_ref(), &name, replace)?;
    call.acknowledge(Some(committed))
}

/// The row of `restoreDatabase`.
pub(crate) const RESTORE_DATABASE: Row =
    Row::write("restoreDatabase", restore, Requirements::NamedDatabase(Action::VellumRestoreDatabase))
        .without_collection()
        .help("Restores a database to a snapshot. The snapshot stays.")
        .admin_only()
        .restarts();

fn restore(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let name = state_name(&mut fields, "restoreDatabase")?;
    fields.finish()?;
    let committed = call.server.database.restore_database(call.operation().as_ref(), &name)?;
    call.acknowledge(Some(committed))
}

/// The row of `dropSnapshot`.
pub(crate) const DROP_SNAPSHOT: Row =
    Row::write("dropSnapshot", drop_snapshot, Requirements::NamedDatabase(Action::VellumSnapshotDatabase))
        .without_collection()
        .help("Drops a snapshot of a database.")
        .admin_only()
        .restarts();

fn drop_snapshot(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let name = state_name(&mut fields, "dropSnapshot")?;
    fields.finish()?;
    let committed = call.server.database.drop_snapshot(call.operation().as_ref(), &name)?;
    call.acknowledge(Some(committed))
}

/// The row of `listSnapshots`.
pub(crate) const LIST_SNAPSHOTS: Row =
    Row::read("listSnapshots", list, Requirements::By(requirements::list_snapshots))
        .help("Lists the snapshots of all databases or of one database.")
        .admin_only();

fn list(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields().after_name();
    let database = fields.string("db")?;
    fields.finish()?;
    let catalog = call.server.database.catalog();
    call.reply.begin_array(c"snapshots");
    for state in catalog.all_saved() {
        if database.is_some_and(|requested| requested != &*state.name.database) {
            continue;
        }
        call.reply.push_document().append(c"db", &*state.name.database).append(c"name", &*state.name.name);
        call.reply.append(c"taken", Value::DateTime(state.taken_millis));
        call.reply.append(c"collections", state.collections.len() as i32);
        call.reply.append(c"documents", state.records()).append(c"dataSize", state.bytes()).end();
    }
    call.reply.end();
    Ok(HandlerStatus::Done)
}

/// The row of `resetDatabase`.
pub(crate) const RESET_DATABASE: Row =
    Row::write("resetDatabase", reset, Requirements::NamedDatabase(Action::VellumResetDatabase))
        .help("Empties every collection of a database; collections and indexes stay.")
        .admin_only()
        .restarts();

fn reset(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let name = own_database(&mut fields, "resetDatabase")?;
    fields.finish()?;
    let (deleted, committed) = call.server.database.reset_database(call.operation().as_ref(), name)?;
    call.reply.append(c"n", deleted as i64);
    call.acknowledge(committed)
}

/// Takes the database name in the command's own field.
///
/// Errors: TypeMismatch if it is not a string.
pub(super) fn own_database<'a>(fields: &mut Fields<'a>, command: &str) -> Result<&'a str> {
    match fields.command_value() {
        Value::String(name) => Ok(name),
        other => Err(fields.wrong_type(command, other.kind(), "string")),
    }
}

fn state_name(fields: &mut Fields<'_>, command: &str) -> Result<StateName> {
    let database = own_database(fields, command)?;
    StateName::new(database, fields.required("name", Fields::string)?)
}

/// Position in the command table.
pub(crate) const DIFF_DATABASE: Row =
    Row::read("diffDatabase", diff, Requirements::By(requirements::diff_database))
        .without_collection()
        .help("Lists the changes of a database since a snapshot or since its fork.")
        .admin_only();

fn diff(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let name = own_database(&mut fields, "diffDatabase")?;
    let snapshot = fields.string("since")?;
    let origin = fields.string("origin")?;
    let batch_size = cursors::batch_size(fields.document("cursor")?, "diffDatabase")?;
    fields.finish()?;
    let state;
    let since = match (snapshot, origin) {
        (Some(snapshot), None) => {
            state = StateName::new(name, snapshot)?;
            Since::Snapshot(&state)
        }
        (None, Some(origin)) => Since::Database(origin),
        (None, None) => {
            bail!(
                IDLFailedToParse,
                "BSON field 'diffDatabase.since' is missing but a required field, unless 'origin' names a database"
            );
        }
        (Some(_), Some(_)) => {
            bail!(InvalidOptions, "diffDatabase takes 'since' or 'origin', and not both");
        }
    };
    let operation = call.operation();
    let context = Arc::new(call.context(&operation));
    let cursor = call.server.database.diff_database(&operation, name, &since, &context)?;
    cursors::first(call, cursor, batch_size.unwrap_or(FIRST_BATCH), false)?;
    Ok(HandlerStatus::Done)
}

/// The row of `vellumBackup`.
pub(crate) const BACKUP: Row = Row::admin("vellumBackup", backup, Requirements::By(requirements::backup))
    .help("Returns a cursor over the bytes of a full or incremental backup.")
    .admin_only();

fn backup(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields().after_name();
    let since = fields.document("since")?;
    let batch_size = cursors::batch_size(fields.document("cursor")?, "vellumBackup")?;
    fields.finish()?;
    let since = match since {
        Some(since) => {
            let mut earlier = Fields::of_document("vellumBackup.since", since);
            let id = earlier.required("id", Fields::integer)?;
            let position = earlier.required("position", Fields::integer)?;
            earlier.finish()?;
            // Both are unsigned numbers, and BSON has no unsigned type.
            Some((id as u64, position as u64))
        }
        None => None,
    };
    let operation = call.operation();
    let cursor = call.server.database.backup_cursor(&operation, since)?;
    cursors::first(call, cursor, batch_size.unwrap_or(FIRST_BATCH), false)?;
    Ok(HandlerStatus::Done)
}
