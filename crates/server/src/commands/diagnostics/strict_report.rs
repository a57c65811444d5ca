//! `strictReport`: the findings of `--strict` since the start.

use crate::access::command::Kind;
use crate::access::{Action, Requirements};
use crate::call::row::Row;
use crate::call::{Call, HandlerStatus};
use base::{Result, bail};

/// The row of `strictReport`.
pub(crate) const STRICT_REPORT: Row = Row::new(
    "strictReport",
    Kind::Admin,
    "Shows collection scans, in-memory sorts, unused and duplicate indexes.",
    report,
    Requirements::Cluster(Action::VellumStrictReport),
)
.admin_only();

fn report(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields().after_name();
    let reset = fields.flag("reset")?.unwrap_or(false);
    fields.finish()?;
    if !call.server.settings.strict {
        bail!(CommandNotSupported, "strictReport needs a server started with --strict");
    }
    let database = &call.server.database;
    database.strict_report().append_to(call.reply);
    if reset {
        database.clear_reads();
    }
    Ok(HandlerStatus::Done)
}
