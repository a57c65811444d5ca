//! Commands for tests. `configureFailPoint` injects failures. `vellumClock` is a clock that tests can set, freeze and
//! advance.
//!
//! The clock drives TTL, `$$NOW`, `$currentDate`, ObjectIds of the server, cluster times and session timeouts. The
//! command requires test commands, because it can expire every document.

use crate::access::{Action, Requirements};
use crate::call::{Call, HandlerStatus, Row};
use crate::protocol::fields::Fields;
use base::bson::{Document, Value};
use base::{Error, Result, bail, err};
use database::SettableClock;

/// The row of `configureFailPoint`.
pub(crate) const CONFIGURE_FAIL_POINT: Row =
    Row::admin("configureFailPoint", configure, Requirements::Cluster(Action::VellumSetFailPoint))
        .help("Configures a fail point.")
        .admin_only()
        .takes_write_concern();

fn configure(call: &mut Call<'_>) -> Result<HandlerStatus> {
    // MongoDB without test commands does not know this command either.
    if !call.server.fail_points.allowed() {
        bail!(CommandNotFound, "no such command: '{}'", call.request.name);
    }
    let mut fields = call.fields();
    let name = fields.command_value();
    let name = name.as_str().ok_or_else(|| Error::wrong_type("configureFailPoint", name.kind(), "string"))?;
    let mode = fields.required("mode", Fields::any)?;
    let data = fields.document("data")?.unwrap_or(Document::EMPTY);
    fields.finish()?;
    let count = call.server.fail_points.configure(name, mode, data)?;
    call.reply.append(c"count", count);
    Ok(HandlerStatus::Done)
}

/// The row of `vellumClock`.
pub(crate) const VELLUM_CLOCK: Row =
    Row::admin("vellumClock", clock, Requirements::Cluster(Action::VellumSetClock))
        .help("Shows, sets, freezes and advances the clock.")
        .admin_only();

fn clock(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let no_such_command = || {
        err!(
            CommandNotFound,
            "no such command: '{}'; it needs test commands (--test-commands)",
            call.request.name
        )
    };
    if !call.server.fail_points.allowed() {
        return Err(no_such_command());
    }
    let database = call.server.database.clone();
    let clock = database.clock().settable().ok_or_else(no_such_command)?;
    let mut fields = call.fields().after_name();
    let set = match fields.any("set")? {
        None => None,
        Some(Value::DateTime(millis)) if (0..=SettableClock::MAX_MILLIS).contains(&millis) => Some(millis),
        Some(Value::DateTime(_)) => {
            bail!(BadValue, "vellumClock.set must be between 1970 and 2106");
        }
        Some(other) => return Err(fields.wrong_type("set", other.kind(), "date")),
    };
    let advance_millis = fields.integer("advance")?;
    let freeze = fields.flag("freeze")?;
    let follow = fields.flag("follow")?.unwrap_or(false);
    let sweep = fields.flag("sweepTTL")?.unwrap_or(false);
    fields.finish()?;
    if follow {
        clock.follow();
    }
    // The freeze comes first, so that the clock stays exactly at the new time.
    if let Some(freeze) = freeze {
        clock.freeze(freeze);
    }
    if let Some(millis) = set {
        clock.set(millis);
    }
    if let Some(millis) = advance_millis {
        clock.advance(millis);
    }
    if sweep {
        call.reply.append(c"ttlDeleted", database.sweep_ttl() as i64);
    }
    call.reply.append(c"now", Value::DateTime(database.now_millis())).append(c"frozen", clock.is_frozen());
    Ok(HandlerStatus::Done)
}
