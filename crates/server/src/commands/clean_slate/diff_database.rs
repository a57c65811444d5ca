//! `diffDatabase`: the changes since a snapshot or a fork.
//!
//! MongoDB has no equivalent. The changes have the format of change stream events.

use super::snapshots;
use crate::access::command::Kind;
use crate::access::{Requirements, requirements};
use crate::call::row::Row;
use crate::call::{Call, HandlerStatus};
use crate::commands::cursors::cursor_reply;
use base::{Result, bail};
use database::{FIRST_BATCH, Since, StateName};

/// Position in the command table.
pub(crate) const DIFF_DATABASE: Row = Row::new(
    "diffDatabase",
    Kind::Read,
    "Lists the changes of a database since a snapshot or since its fork.",
    diff,
    Requirements::By(requirements::diff_database),
)
.admin_only();

fn diff(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let name = snapshots::own_database(&mut fields, "diffDatabase")?;
    let snapshot = fields.string("since")?;
    let origin = fields.string("origin")?;
    let batch_size = cursor_reply::batch_size(fields.document("cursor")?, "diffDatabase")?;
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
    let (operation, context) = call.surroundings();
    let cursor = call.server.database.diff_database(&operation, name, &since, &context)?;
    cursor_reply::first(call, cursor, batch_size.unwrap_or(FIRST_BATCH), false)?;
    Ok(HandlerStatus::Done)
}
