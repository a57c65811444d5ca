//! `checkShardingIndex`: checks if a collection has an index that a shard key could use.
//!
//! MongoDB's routers send this command. The check itself needs no shards.

use crate::access::command::Kind;
use crate::access::{Requirements, requirements};
use crate::call::row::Row;
use crate::call::{Call, HandlerStatus};
use base::bson::{Document, Value, equal};
use base::{Namespace, Result, bail, err};
use database::index::Index;

/// Position in the command table.
pub(crate) const CHECK_SHARDING_INDEX: Row = Row::new(
    "checkShardingIndex",
    Kind::Admin,
    "Checks that a collection has an index for a shard key.",
    check_sharding_index,
    Requirements::By(requirements::find_in_named),
);

fn check_sharding_index(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let namespace = match fields.command_value() {
        Value::String(name) => Namespace::parse(name)?,
        _ => bail!(InvalidNamespace, "'checkShardingIndex' must be of type String"),
    };
    let key = fields.document("keyPattern")?.unwrap_or(Document::EMPTY);
    let bounds = (fields.document("min")?, fields.document("max")?);
    fields.finish()?;
    if key.is_empty() {
        bail!(UnknownError, "no key pattern found in checkShardingindex");
    }
    if key.iter().map(|part| part.name()).eq(["_id"]) {
        call.reply.append(c"idskip", true);
        return Ok(HandlerStatus::Done);
    }
    if bounds.0.is_some() != bounds.1.is_some() {
        bail!(UnknownError, "either provide both min and max or leave both empty");
    }
    let collection = call.server.database.collection(&namespace);
    let collection = collection.ok_or_else(|| err!(UnknownError, "ns not found"))?;
    match collection.data()?.indexes.iter().any(|index| suits(index, key)) {
        true => Ok(HandlerStatus::Done),
        false => Err(err!(UnknownError, "couldn't find valid index for shard key")),
    }
}

/// Returns true if an index begins with the fields of a shard key and has one key for each
/// document.
fn suits(index: &Index, key: Document<'_>) -> bool {
    let spec = &index.spec;
    let mut parts = spec.key.view().iter();
    let begins = key.iter().all(|field| {
        parts.next().is_some_and(|part| part.name() == field.name() && equal(part.value(), field.value()))
    });
    let has_all = !spec.sparse && spec.partial.is_none() && spec.wildcard.is_none() && !spec.hidden;
    begins && has_all && spec.collation.is_simple() && !index.is_multikey()
}
