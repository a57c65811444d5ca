//! `setUserWriteBlockMode`.

use crate::access::command::Kind;
use crate::access::{Action, Requirements};
use crate::call::row::Row;
use crate::call::{Call, HandlerStatus};
use crate::protocol::fields::Fields;
use crate::state::user_write_block::Reason;
use base::{Result, bail};

/// Position in the command table.
pub(crate) const SET: Row = Row::new(
    "setUserWriteBlockMode",
    Kind::Admin,
    "Blocks or allows the writes of users.",
    set,
    Requirements::Cluster(Action::SetUserWriteBlockMode),
)
.admin_only()
.takes_write_concern();

fn set(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields().after_name();
    let blocks = fields.required("global", Fields::boolean)?;
    let reason = fields.string("reason")?.map_or(Ok(Reason::Unspecified), Reason::parse)?;
    fields.finish()?;
    if !call.server.is_replica_set() {
        bail!(IllegalOperation, "setUserWriteBlockMode cannot be run on standalones");
    }
    call.server.set_settings.user_write_block.change(&call.server.database, blocks, reason)?;
    call.acknowledge(None)
}
