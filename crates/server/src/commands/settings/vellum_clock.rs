//! `vellumClock`: a clock that tests can set, freeze and advance.
//!
//! The clock drives TTL, `$$NOW`, `$currentDate`, ObjectIds of the server, cluster times and
//! session timeouts. The command requires test commands, because it can expire every document.

use crate::access::command::Kind;
use crate::access::{Action, Requirements};
use crate::call::row::Row;
use crate::call::{Call, HandlerStatus};
use base::bson::Value;
use base::{Result, bail, err};
use database::SettableClock;

/// The row of `vellumClock`.
pub(crate) const VELLUM_CLOCK: Row = Row::new(
    "vellumClock",
    Kind::Admin,
    "Shows, sets, freezes and advances the clock.",
    clock,
    Requirements::Cluster(Action::VellumSetClock),
)
.admin_only();

fn clock(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let no_such_command = || err!(CommandNotFound, "no such command: '{}'", call.request.name);
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
