//! `killCursors`: closes cursors of a client.

use crate::access::command::Kind;
use crate::access::{Requirements, requirements};
use crate::call::row::Row;
use crate::call::{Call, HandlerStatus};
use crate::protocol::fields::Fields;
use base::bson::{FieldName, Value};
use base::{Error, Namespace, Result, bail};

/// Position in the command table.
pub(crate) const KILL_CURSORS: Row = Row::new(
    "killCursors",
    Kind::Admin,
    "Kills cursors.",
    kill_cursors,
    Requirements::By(requirements::kill_cursors),
)
.stable_api()
.in_transactions();

fn kill_cursors(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    match fields.command_value() {
        // As in MongoDB, the cursors may be of other collections.
        Value::String(name) => Namespace::new(call.request.database, name).map(drop)?,
        other => {
            let found = other.kind().alias();
            bail!(InvalidNamespace, "collection name has invalid type {found}");
        }
    }
    let cursors = fields.required("cursors", Fields::array)?;
    fields.finish()?;
    let mut ids = Vec::new();
    for (position, value) in cursors.iter().enumerate() {
        match value {
            Value::Int64(id) => ids.push(id),
            other => {
                return Err(Error::wrong_type(
                    format_args!("killCursors.cursors.{position}"),
                    other.kind(),
                    "long",
                ));
            }
        }
    }
    let registry = &call.server.database.cursors;
    let (killed, missing): (Vec<i64>, Vec<i64>) = ids.into_iter().partition(|id| registry.kill(*id));
    for (name, ids) in [
        ("cursorsKilled", &killed),
        ("cursorsNotFound", &missing),
        ("cursorsAlive", &vec![]),
        ("cursorsUnknown", &vec![]),
    ] {
        call.reply.begin_array(FieldName::literal(name));
        for id in ids {
            call.reply.push(*id);
        }
        call.reply.end();
    }
    Ok(HandlerStatus::Done)
}
