//! `vellumBackup`: a backup of all data as a cursor of bytes, for `vellum backup`.

use crate::access::command::Kind;
use crate::access::{Requirements, requirements};
use crate::call::row::Row;
use crate::call::{Call, HandlerStatus};
use crate::commands::cursors::cursor_reply;
use crate::protocol::fields::Fields;
use base::Result;
use database::FIRST_BATCH;

/// The row of `vellumBackup`.
pub(crate) const BACKUP: Row = Row::new(
    "vellumBackup",
    Kind::Admin,
    "Returns a cursor over the bytes of a full or incremental backup.",
    backup,
    Requirements::By(requirements::backup),
)
.admin_only();

fn backup(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields().after_name();
    let since = fields.document("since")?;
    let batch_size = cursor_reply::batch_size(fields.document("cursor")?, "vellumBackup")?;
    fields.finish()?;
    let since = match since {
        Some(since) => {
            let mut earlier = Fields::of_document("vellumBackup.since", since);
            let id = earlier.required("id", Fields::integer)?;
            let position = earlier.required("position", Fields::integer)?;
            earlier.finish()?;
            // Both are unsigned numbers, and BSON has no unsigned type.
            Some((id as u64, position as u64))
        }
        None => None,
    };
    let operation = call.operation();
    let cursor = call.server.database.backup_cursor(&operation, since)?;
    cursor_reply::first(call, cursor, batch_size.unwrap_or(FIRST_BATCH), false)?;
    Ok(HandlerStatus::Done)
}
