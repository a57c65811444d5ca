//! `count`: the number of matching documents.

use crate::access::command::Kind;
use crate::access::{Action, Requirements};
use crate::call::row::Row;
use crate::call::{Call, HandlerStatus};
use crate::protocol::fields::Fields;
use base::bson::Document;
use base::{Namespace, Result};
use database::Hint;
use database::language::Collation;

/// Position in the command table.
pub(crate) const COUNT: Row = Row::new(
    "count",
    Kind::Read,
    "Counts the documents that match.",
    count,
    Requirements::Collection(Action::Find),
)
.stable_api()
.takes_read_concern();

/// Parsed fields of the command. `explain` uses them too.
pub(crate) struct Parts<'a> {
    pub(crate) namespace: Namespace,
    pub(crate) collation: Option<Collation>,
    pub(crate) query: Document<'a>,
    pub(crate) limit: u64,
    pub(crate) skip: u64,
    pub(crate) hint: Option<Hint>,
    pub(crate) uuid: Option<[u8; 16]>,
}

fn count(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let parts = Parts::read(&mut call.fields())?;
    call.check_uuid(&parts.namespace, parts.uuid)?;
    let scope = call.scope_to_read(&parts.namespace, parts.collation.as_ref(), None)?;
    let n = call.server.database.count(&scope, parts.query, parts.hint, parts.skip, parts.limit)?;
    match i32::try_from(n) {
        Ok(small) => call.reply.append(c"n", small),
        Err(_) => call.reply.append(c"n", n as i64),
    };
    Ok(HandlerStatus::Done)
}

impl<'a> Parts<'a> {
    /// Parses the fields of the command.
    ///
    /// Errors: invalid, missing or unknown fields.
    pub(crate) fn read(fields: &mut Fields<'a>) -> Result<Parts<'a>> {
        let parts = Parts {
            namespace: fields.namespace()?,
            query: fields.document("query")?.unwrap_or(Document::EMPTY),
            // A negative limit equals its absolute value.
            limit: fields.integer("limit")?.unwrap_or(0).unsigned_abs(),
            skip: fields.natural("skip")?.unwrap_or(0),
            hint: fields.hint()?,
            collation: fields.collation()?,
            uuid: fields.uuid("collectionUUID")?,
        };
        // Old clients send a projection here. MongoDB accepts and ignores it.
        fields.any("fields")?;
        fields.finish()?;
        Ok(parts)
    }
}
