//! `configureFailPoint`: injected failures for tests.

use crate::access::command::Kind;
use crate::access::{Action, Requirements};
use crate::call::row::Row;
use crate::call::{Call, HandlerStatus};
use crate::protocol::fields::Fields;
use base::bson::Document;
use base::{Error, Result, bail};

/// The row of `configureFailPoint`.
pub(crate) const CONFIGURE_FAIL_POINT: Row = Row::new(
    "configureFailPoint",
    Kind::Admin,
    "Configures a fail point.",
    configure,
    Requirements::Cluster(Action::VellumSetFailPoint),
)
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
