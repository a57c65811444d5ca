//! Commands that change the replica set and its only member, within the limits of one member.

use super::replication::replica_set;
use crate::access::{Action, Kind, Requirements};
use crate::call::{Call, HandlerStatus, Row};
use crate::commands::diagnostics::server_info::host_name;
use crate::commands::table;
use crate::process::logging::format_time;
use crate::state::set_config::SetConfig;
use base::bson::{Builder, Document, Value};
use base::{Result, bail, check_bounds, err};
use std::time::Duration;

/// Maximum time of a step-down or freeze, in seconds.
const SECONDS_MAX: i64 = 1 << 31;

/// The row of `replSetInitiate`.
pub(crate) const INITIATE: Row =
    Row::admin("replSetInitiate", initiate, Requirements::Cluster(Action::ReplSetConfigure))
        .help("Initiates a replica set.")
        .admin_only();

fn initiate(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let given = fields.command_value().as_document().unwrap_or(Document::EMPTY);
    fields.finish()?;
    let Some(name) = &call.server.settings.replica_set else {
        bail!(NoReplicationEnabled, "This node was not started with replication enabled.");
    };
    if call.server.set().is_some() {
        bail!(AlreadyInitialized, "already initialized");
    }
    log::info!(id = 21356, c = "REPL"; "replSetInitiate admin command received from client");
    let default;
    let initial = match given.is_empty() {
        false => given,
        true => {
            let address = default_address(call);
            call.reply
                .append(c"info2", "no configuration specified. Using a default configuration for the set");
            call.reply.append(c"me", &address);
            let mut config = Builder::new();
            config.append(c"_id", name).begin_array(c"members");
            config.push_document().append(c"_id", 0).append(c"host", &address).end().end();
            default = config.finish();
            default.view()
        }
    };
    let id = call.server.database.new_object_id();
    let (config, host) =
        SetConfig::first(initial, name, id, |host| call.server.topology.is_own(call.connection.local, host))?;
    call.server.initiate(name, config, &host)?;
    call.wait_for_settings();
    Ok(HandlerStatus::Done)
}

/// Returns the default address of the member.
///
/// The host name is used if the server listens on all addresses and the name resolves to one of
/// them. Otherwise the listening address is used.
fn default_address(call: &Call<'_>) -> String {
    if call.server.settings.advertise.is_none() && call.server.settings.bind.is_unspecified() {
        let named = format!("{}:{}", host_name(), call.connection.local.port());
        if call.server.topology.is_own(call.connection.local, &named) {
            return named;
        }
    }
    call.server.topology.own_address(call.connection.local)
}

/// The row of `replSetReconfig`.
pub(crate) const RECONFIG: Row =
    Row::admin("replSetReconfig", reconfig, Requirements::Cluster(Action::ReplSetConfigure))
        .help("Changes the configuration of the replica set.")
        .admin_only();

fn reconfig(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let document = fields.command_value();
    let force = fields.flag("force")?.unwrap_or(false);
    // The only member has each configuration at once.
    fields.natural("maxTimeMS")?;
    fields.finish()?;
    let set = replica_set(call)?;
    let document = document.as_document().ok_or_else(|| err!(BadValue, "no configuration specified"))?;
    if !force && !set.is_primary(&call.server.database) {
        bail!(
            NotWritablePrimary,
            "New config is rejected :: caused by :: replSetReconfig should only be run on a writable PRIMARY. Current \
             state SECONDARY;"
        );
    }
    let old = set.config();
    let (new, named) = SetConfig::read(document, old.set_id())?;
    let skip = force.then(|| 10_000 + (call.server.random() % 100_000) as i32);
    let host = named.hosts.iter().find(|host| call.server.topology.is_own(call.connection.local, host));
    let address = host.cloned().unwrap_or_else(|| call.server.topology.own_address(call.connection.local));
    let config = old.become_other(new, &named, (&set.name, &address), skip)?;
    set.store(&config, &address, &call.server.database)?;
    set.configure(config);
    call.wait_for_settings();
    Ok(HandlerStatus::Done)
}

/// The row of `replSetStepDown`.
pub(crate) const STEP_DOWN: Row =
    Row::admin("replSetStepDown", step_down, Requirements::Cluster(Action::ReplSetStateChange))
        .help("Makes the primary a secondary for a period.")
        .admin_only();

fn step_down(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let seconds = match fields.command_value().as_number().map(|number| number.to_i64_clamped()) {
        None | Some(0) => 60,
        Some(seconds @ 1..=SECONDS_MAX) => seconds,
        Some(_) => bail!(BadValue, "stepdown period must be a positive integer"),
    };
    let force = fields.flag("force")?.unwrap_or(false);
    let catch_up = match fields.integer("secondaryCatchUpPeriodSecs")? {
        None if force => 0,
        None => 10,
        Some(seconds @ 0..) => seconds,
        Some(_) => {
            bail!(BadValue, "secondaryCatchUpPeriodSecs period must be a positive or absent");
        }
    };
    fields.finish()?;
    let set = replica_set(call)?;
    if catch_up > seconds {
        bail!(BadValue, "secondaryCatchUpPeriodSecs must be less than stepDownForSecs");
    }
    if !set.is_primary(&call.server.database) {
        bail!(NotWritablePrimary, "not primary so can't step down");
    }
    // No secondary exists that could catch up, so the command waits for the full time.
    if let Some(wait) = call.wait(Duration::from_secs(catch_up as u64), |_| false) {
        return Ok(wait);
    }
    if !force {
        bail!(
            ExceededTimeLimit,
            "No electable secondaries caught up as of {}. Please use the replSetStepDown command with the argument \
             {{force: true}} to force node to step down.",
            format_time(call.server.database.now_millis())
        );
    }
    set.step_down(Duration::from_secs(seconds as u64))?;
    let writes = |name: &str| table::find(name).is_some_and(|command| command.kind == Kind::Write);
    call.server.activities.kill_at_step_down(|current| writes(current.command) && !current.is_local());
    call.server.sessions.abort_transactions(&call.server.database);
    Ok(HandlerStatus::Done)
}

/// The row of `replSetFreeze`.
pub(crate) const FREEZE: Row =
    Row::admin("replSetFreeze", freeze, Requirements::Cluster(Action::ReplSetStateChange))
        .help("Prevents a secondary from becoming the primary.")
        .admin_only();

fn freeze(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let value = fields.command_value();
    fields.finish()?;
    let set = replica_set(call)?;
    let seconds = match value {
        Value::Boolean(_) => None,
        value => value.as_number().map(|number| number.to_i64_clamped()),
    };
    let seconds = match seconds.unwrap_or(-1) {
        seconds @ 0..=SECONDS_MAX => seconds as u64,
        _ => bail!(BadValue, "replSetFreeze takes a number of seconds that isn't negative"),
    };
    set.freeze(&call.server.database, Duration::from_secs(seconds))?;
    match seconds {
        0 => _ = call.reply.append(c"info", "unfreezing"),
        1 => _ = call.reply.append(c"warning", "you really want to freeze for only 1 second?"),
        _ => {}
    }
    Ok(HandlerStatus::Done)
}

/// Minimum oplog size in megabytes, as for `--oplog-size`.
const OPLOG_MEGABYTES_MIN: f64 = 16.0;

/// MongoDB's maximum oplog size: a petabyte.
const OPLOG_MEGABYTES_MAX: f64 = 1_073_741_824.0;

/// The row of `replSetAbortPrimaryCatchUp`.
pub(crate) const ABORT_CATCH_UP: Row = Row::admin(
    "replSetAbortPrimaryCatchUp",
    abort_catch_up,
    Requirements::Cluster(Action::ReplSetStateChange),
)
.help("Ends the catch-up of a new primary. A set of one member has none.")
.admin_only();

fn abort_catch_up(call: &mut Call<'_>) -> Result<HandlerStatus> {
    call.fields().after_name().finish()?;
    replica_set(call)?;
    Err(err!(IllegalOperation, "The node is not in catch-up mode."))
}

/// The row of `replSetMaintenance`.
pub(crate) const MAINTENANCE: Row =
    Row::admin("replSetMaintenance", maintenance, Requirements::Cluster(Action::ReplSetStateChange))
        .help("Puts a secondary into maintenance mode.")
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
pub(crate) const SYNC_FROM: Row =
    Row::admin("replSetSyncFrom", sync_from, Requirements::Cluster(Action::ReplSetStateChange))
        .help("Sets the sync source of a secondary.")
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
pub(crate) const RESIZE_OPLOG: Row =
    Row::admin("replSetResizeOplog", resize_oplog, Requirements::Cluster(Action::ReplSetResizeOplog))
        .help("Changes the size of the oplog.")
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
    check_bounds("size", megabytes, OPLOG_MEGABYTES_MIN..=OPLOG_MEGABYTES_MAX)?;
    call.server.database.set_log_limit((megabytes * 1024.0 * 1024.0) as u64)?;
    log::info!("the oplog keeps {megabytes} MB until the next start");
    Ok(HandlerStatus::Done)
}
