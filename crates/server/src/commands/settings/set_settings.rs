//! Commands on settings that all members of a set share: the default concerns (`setDefaultRWConcern`,
//! `getDefaultRWConcern`) and `setUserWriteBlockMode`.

use crate::access::{Action, Requirements};
use crate::call::{Call, HandlerStatus, Row};
use crate::protocol::fields::Fields;
use crate::protocol::read_concern::ReadConcern;
use crate::protocol::write_concern::WriteConcern;
use crate::state::set_settings::BlockReason;
use base::bson::{Document, FieldName, Value};
use base::{Result, bail, err};

/// The row of `getDefaultRWConcern`.
pub(crate) const GET: Row =
    Row::admin("getDefaultRWConcern", show, Requirements::Cluster(Action::GetDefaultRWConcern))
        .help("Returns the default read and write concerns.")
        .admin_only();

fn show(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields().after_name();
    let in_memory = fields.boolean("inMemory")?.unwrap_or(false);
    fields.finish()?;
    refuse_on_standalone(call)?;
    append_defaults(call);
    if in_memory {
        call.reply.append(c"inMemory", true);
    }
    Ok(HandlerStatus::Done)
}

/// The row of `setDefaultRWConcern`.
pub(crate) const SET: Row =
    Row::write("setDefaultRWConcern", change, Requirements::Cluster(Action::SetDefaultRWConcern))
        .help("Changes the default read and write concerns.")
        .admin_only();

fn change(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields().after_name();
    let read = fields.document("defaultReadConcern")?.map(level_of).transpose()?;
    let write = fields.document("defaultWriteConcern")?.map(WriteConcern::parse).transpose()?;
    fields.finish()?;
    refuse_on_standalone(call)?;
    let now = (call.server.database.cluster_time(), call.server.database.now_millis());
    let custom = call.server.set_settings.default_concerns.custom().changed(read, write, now)?;
    // The check refuses unknown names but not numbers, since the number of members may change. This
    // command itself waits for the earlier default.
    let concern = call.write_concern();
    let unknown = custom.write.as_ref().and_then(|write| write.unsatisfiable(|| usize::MAX));
    if let Some(error) = unknown.or_else(|| concern.unsatisfiable(|| usize::MAX)) {
        return Err(error);
    }
    call.server.set_settings.default_concerns.set(&call.server.database, custom)?;
    append_defaults(call);
    call.acknowledge_as(&concern, None)?;
    Ok(HandlerStatus::Done)
}

/// Refuses the command on a standalone.
///
/// Errors: MongoDB's 51300 on a standalone.
fn refuse_on_standalone(call: &Call<'_>) -> Result<()> {
    match call.server.is_replicated() {
        true => Ok(()),
        false => Err(err!(51300, "'{}' is not supported on standalone nodes.", call.command.name)),
    }
}

/// Returns the level of a default read concern, `None` for an empty document.
fn level_of(document: Document<'_>) -> Result<Option<ReadConcern>> {
    for name in ["afterOpTime", "afterClusterTime", "atClusterTime"] {
        if document.find(name).is_some() {
            bail!(BadValue, "'{name}' is not suitable for the default read concern");
        }
    }
    let mut fields = Fields::of_document("readConcern", document);
    let level = fields.any("level")?.map(ReadConcern::parse).transpose()?;
    if fields.any("provenance")?.is_some() {
        bail!(BadValue, "'provenance' must be unset in default read concern");
    }
    fields.finish()?;
    Ok(level)
}

fn append_defaults(call: &mut Call<'_>) {
    let mut shown = call.server.set_settings.default_concerns.custom();
    let sources = [shown.write.is_some(), shown.read.is_some()];
    shown.read.get_or_insert(ReadConcern::Local);
    shown.write.get_or_insert_with(WriteConcern::majority);
    shown.append_to(call.reply);
    for (name, is_custom) in
        ["defaultWriteConcernSource", "defaultReadConcernSource"].into_iter().zip(sources)
    {
        call.reply.append(FieldName::literal(name), if is_custom { "global" } else { "implicit" });
    }
    let now = call.server.database.now_millis();
    call.reply.append(c"localUpdateWallClockTime", Value::DateTime(now));
}

/// Position in the command table.
pub(crate) const SET_BLOCK: Row =
    Row::admin("setUserWriteBlockMode", set_block, Requirements::Cluster(Action::SetUserWriteBlockMode))
        .help("Blocks or allows the writes of users.")
        .admin_only()
        .takes_write_concern();

fn set_block(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields().after_name();
    let blocks = fields.required("global", Fields::boolean)?;
    let reason = fields.string("reason")?.map_or(Ok(BlockReason::Unspecified), BlockReason::parse)?;
    fields.finish()?;
    if !call.server.is_replica_set() {
        bail!(IllegalOperation, "setUserWriteBlockMode cannot be run on standalones");
    }
    call.server.set_settings.user_write_block.change(&call.server.database, blocks, reason)?;
    call.acknowledge(None)
}
