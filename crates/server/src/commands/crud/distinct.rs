//! `distinct`: the distinct values of a field.

use crate::access::command::Kind;
use crate::access::{Action, Requirements};
use crate::call::row::Row;
use crate::call::{Call, HandlerStatus};
use crate::protocol::fields::Fields;
use base::bson::{Document, Value};
use base::{Namespace, Result, bail};
use database::Hint;
use database::language::Collation;

/// Position in the command table.
pub(crate) const DISTINCT: Row = Row::new(
    "distinct",
    Kind::Read,
    "Lists the distinct values of a field.",
    distinct,
    Requirements::Collection(Action::Find),
)
.takes_read_concern()
.in_transactions();

/// Parsed fields of the command. `explain` uses them too.
pub(crate) struct Parts<'a> {
    pub(crate) namespace: Namespace,
    pub(crate) collation: Option<Collation>,
    pub(crate) key: &'a str,
    pub(crate) query: Document<'a>,
    pub(crate) hint: Option<Hint>,
    pub(crate) settings: Option<Document<'a>>,
}

fn distinct(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let parts = Parts::read(&mut call.fields())?;
    call.apply_query_settings(parts.settings)?;
    let scope = call.scope_to_read(&parts.namespace, parts.collation.as_ref(), None)?;
    let values = call.server.database.distinct(&scope, parts.key, parts.query, parts.hint)?;
    call.reply.append_all(values.view());
    if let Some((time, _)) = scope.operation.snapshot() {
        call.reply.append(c"atClusterTime", Value::Timestamp(*time));
    }
    Ok(HandlerStatus::Done)
}

impl<'a> Parts<'a> {
    /// Parses the fields of the command.
    ///
    /// Errors: invalid, missing or unknown fields.
    pub(crate) fn read(fields: &mut Fields<'a>) -> Result<Parts<'a>> {
        let parts = Parts {
            namespace: fields.namespace()?,
            key: fields.required("key", Fields::string)?,
            query: fields.document("query")?.unwrap_or(Document::EMPTY),
            hint: fields.hint()?,
            settings: fields.document("querySettings")?,
            collation: fields.collation()?,
        };
        fields.finish()?;
        if parts.key.contains('\0') {
            bail!(31032, "Distinct key contains embedded null byte");
        }
        Ok(parts)
    }
}
