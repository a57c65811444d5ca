//! `vellumSlowQueries`: slow operations by query shape, with their plans and suggested indexes.

use crate::access::command::Kind;
use crate::access::{Action, Requirements};
use crate::call::row::Row;
use crate::call::{Call, HandlerStatus};
use base::Result;

/// The row of `vellumSlowQueries`.
pub(crate) const SLOW_QUERIES: Row = Row::new(
    "vellumSlowQueries",
    Kind::Admin,
    "Shows slow operations by query shape, with suggested indexes.",
    slow_queries,
    Requirements::Cluster(Action::Inprog),
)
.admin_only();

fn slow_queries(call: &mut Call<'_>) -> Result<HandlerStatus> {
    call.fields().after_name().finish()?;
    let profiler = &call.server.profiler;
    call.reply.append(c"slowms", profiler.slow.threshold());
    profiler.shapes.append_to(call.reply, &call.server.database);
    Ok(HandlerStatus::Done)
}
