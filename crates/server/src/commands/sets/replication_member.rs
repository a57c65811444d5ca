//! Commands about a single member of a set, answered for a set of one.

use super::replication::replica_set;
use crate::access::command::Kind;
use crate::access::{Action, Requirements};
use crate::call::row::Row;
use crate::call::{Call, HandlerStatus};
use base::{Result, bail, err};

/// Minimum oplog size in megabytes, as for `--oplog-size`.
const OPLOG_MEGABYTES_MIN: f64 = 16.0;

/// MongoDB's maximum oplog size: a petabyte.
const OPLOG_MEGABYTES_MAX: f64 = 1_073_741_824.0;

/// The row of `replSetAbortPrimaryCatchUp`.
pub(crate) const ABORT_CATCH_UP: Row = Row::new(
    "replSetAbortPrimaryCatchUp",
    Kind::Admin,
    "Ends the catch-up of a new primary. A set of one member has none.",
    abort_catch_up,
    Requirements::Cluster(Action::ReplSetStateChange),
)
.admin_only();

fn abort_catch_up(call: &mut Call<'_>) -> Result<HandlerStatus> {
    call.fields().after_name().finish()?;
    replica_set(call)?;
    Err(err!(IllegalOperation, "The node is not in catch-up mode."))
}

/// The row of `replSetMaintenance`.
pub(crate) const MAINTENANCE: Row = Row::new(
    "replSetMaintenance",
    Kind::Admin,
    "Puts a secondary into maintenance mode.",
    maintenance,
    Requirements::Cluster(Action::ReplSetStateChange),
)
.admin_only();

fn maintenance(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let begins = fields.command_value().is_truthy();
    fields.finish()?;
    let set = replica_set(call)?;
    match (set.is_primary(&call.server.database), begins) {
        (true, _) => Err(err!(NotSecondary, "primaries can't modify maintenance mode")),
        (false, false) => Err(err!(OperationFailed, "already out of maintenance mode")),
        (false, true) => {
            Err(err!(NotImplemented, "the command 'replSetMaintenance' is not implemented for a secondary"))
        }
    }
}

/// The row of `replSetSyncFrom`.
pub(crate) const SYNC_FROM: Row = Row::new(
    "replSetSyncFrom",
    Kind::Admin,
    "Sets the sync source of a secondary.",
    sync_from,
    Requirements::Cluster(Action::ReplSetStateChange),
)
.admin_only();

fn sync_from(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let target = fields.command_value().as_str().unwrap_or_default();
    fields.finish()?;
    let set = replica_set(call)?;
    if target.is_empty() {
        bail!(FailedToParse, "Empty host component parsing HostAndPort from \"{target}\"");
    }
    if set.is_primary(&call.server.database) {
        bail!(NotSecondary, "primaries don't sync");
    }
    match target == call.server.topology.own_address(call.connection.local) {
        true => Err(err!(InvalidOptions, "I cannot sync from myself")),
        false => Err(err!(NodeNotFound, "Could not find member \"{target}\" in replica set")),
    }
}

/// The row of `replSetResizeOplog`.
pub(crate) const RESIZE_OPLOG: Row = Row::new(
    "replSetResizeOplog",
    Kind::Admin,
    "Changes the size of the oplog.",
    resize_oplog,
    Requirements::Cluster(Action::ReplSetResizeOplog),
)
.admin_only();

fn resize_oplog(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields().after_name();
    let megabytes = fields.number("size")?;
    let hours = fields.number("minRetentionHours")?;
    fields.finish()?;
    replica_set(call)?;
    if hours.is_some_and(|hours| hours != 0.0) {
        bail!(NotImplemented, "BSON field 'replSetResizeOplog.minRetentionHours' is not implemented");
    }
    let Some(megabytes) = megabytes else { return Ok(HandlerStatus::Done) };
    if megabytes.is_nan() || megabytes < OPLOG_MEGABYTES_MIN {
        bail!(51024, "BSON field 'size' value must be >= {OPLOG_MEGABYTES_MIN}, actual value '{megabytes}'");
    }
    if megabytes > OPLOG_MEGABYTES_MAX {
        bail!(51024, "BSON field 'size' value must be <= {OPLOG_MEGABYTES_MAX}, actual value '{megabytes}'");
    }
    call.server.database.set_log_limit((megabytes * 1024.0 * 1024.0) as u64)?;
    log::info!("the oplog keeps {megabytes} MB until the next start");
    Ok(HandlerStatus::Done)
}
