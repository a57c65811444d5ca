//! `setQuerySettings` and `removeQuerySettings`: what holds for all queries of one shape.

use crate::access::{Action, Requirements};
use crate::call::arguments::is_generic;
use crate::call::{Call, HandlerStatus, Row};
use crate::commands::crud::{aggregate, find};
use crate::protocol::fields::Fields;
use crate::state::query_settings::hash_of;
use base::bson::{Document, Value};
use base::namespace::is_internal_database;
use base::{Result, bail, err};
use database::language::query_shape;
use wire::request::Request;

/// The digits of a shape's hash.
const HASH_DIGITS: usize = 64;

/// The row of `setQuerySettings`.
pub(crate) const SET: Row = Row::admin("setQuerySettings", set, Requirements::Cluster(Action::QuerySettings))
    .help("Sets index hints or a rejection for all queries of a shape.")
    .admin_only();

fn set(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let target = Target::read(fields.command_value())?;
    let settings = fields.required("settings", Fields::document)?;
    fields.finish()?;
    refuse_standalone(call)?;
    if settings.is_empty() {
        bail!(8727502, "settings field in setQuerySettings command cannot be empty");
    }
    target.check()?;
    let representative = target.query.map(|query| query.to_owned());
    let server = call.server;
    let version = server.settings.compatible_with;
    let target = (target.hash, representative);
    let shape = server.set_settings.query_settings.set(&server.database, target, settings, version)?;
    shape.append_to(call.reply);
    call.wait_for_settings();
    Ok(HandlerStatus::Done)
}

/// The row of `removeQuerySettings`.
pub(crate) const REMOVE: Row =
    Row::admin("removeQuerySettings", remove, Requirements::Cluster(Action::QuerySettings))
        .help("Removes the settings of a query shape.")
        .admin_only();

fn remove(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let target = Target::read(fields.command_value())?;
    fields.finish()?;
    refuse_standalone(call)?;
    call.server.set_settings.query_settings.remove(&call.server.database, &target.hash)?;
    call.wait_for_settings();
    Ok(HandlerStatus::Done)
}

/// Errors: IllegalOperation on a standalone.
fn refuse_standalone(call: &Call<'_>) -> Result<()> {
    match call.server.is_replica_set() {
        true => Ok(()),
        false => Err(err!(
            IllegalOperation,
            "{} can only run on replica sets or sharded clusters",
            call.command.name
        )),
    }
}

/// The shape that a command is about.
struct Target<'a> {
    hash: String,
    /// The query that stands for the shape. A hash may stand for it, too.
    query: Option<Document<'a>>,
}

impl<'a> Target<'a> {
    /// Errors: TypeMismatch; those of [`check_hash`]; for a query 7746402 if it has no shape, 40414 without `$db`, and
    /// those of the command itself.
    fn read(value: Value<'a>) -> Result<Target<'a>> {
        match value {
            Value::String(hash) => {
                check_hash(hash)?;
                Ok(Target { hash: hash.to_uppercase(), query: None })
            }
            Value::Document(query) => Ok(Target { hash: hash_of_query(query)?, query: Some(query) }),
            other => Err(err!(
                TypeMismatch,
                "a query shape must be a string or an object, not '{}'",
                other.kind().alias()
            )),
        }
    }

    /// Errors: 8584900, 8584901 and 7746606 for queries that take no settings.
    fn check(&self) -> Result<()> {
        let Some(query) = self.query else { return Ok(()) };
        let database = query.get("$db").and_then(|name| name.as_str()).unwrap_or("");
        let collection = query.first().and_then(|first| first.value().as_str()).unwrap_or("");
        if is_internal_database(database) {
            bail!(8584900, "setQuerySettings command cannot be used on internal databases");
        }
        if collection.starts_with("system.") {
            bail!(8584901, "setQuerySettings command cannot be used on system collections");
        }
        match is_by_id(query) {
            true => {
                Err(err!(7746606, "setQuerySettings command cannot be used on find queries by _id alone"))
            }
            false => Ok(()),
        }
    }
}

/// Errors: BadValue unless all are hexadecimal digits in pairs; InvalidLength unless there are 64.
fn check_hash(hash: &str) -> Result<()> {
    if !hash.len().is_multiple_of(2) || !hash.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        bail!(BadValue, "a query shape hash consists of pairs of hexadecimal digits");
    }
    match hash.len() == HASH_DIGITS {
        true => Ok(()),
        false => Err(err!(InvalidLength, "a query shape hash has {HASH_DIGITS} digits, not {}", hash.len())),
    }
}

fn hash_of_query(query: Document<'_>) -> Result<String> {
    let no_shape = || err!(7746402, "QueryShape can not be computed for command: {query}");
    let name = query.first().ok_or_else(no_shape)?.name();
    if !matches!(name, "find" | "distinct" | "aggregate") {
        return Err(no_shape());
    }
    let mut fields = Fields::of_document(name, query);
    let database = fields.required("$db", Fields::string)?;
    let request = Request::of(query, database);
    let mut fields = Fields::of_command(&request, is_generic);
    match name {
        "find" => _ = find::Parts::read(&mut fields)?,
        "distinct" => _ = find::DistinctParts::read(&mut fields)?,
        _ => _ = aggregate::Parts::read(&mut fields, database)?,
    }
    query_shape::of_command(database, query).map(|shape| hash_of(shape.view())).ok_or_else(no_shape)
}

/// Whether a `find` asks for one `_id` and nothing else, so that it has no plan.
fn is_by_id(query: Document<'_>) -> bool {
    let others = ["hint", "min", "max", "skip", "returnKey", "showRecordId", "tailable"];
    let filter = query.get("filter").and_then(|filter| filter.as_document());
    let mut conditions =
        filter.iter().flat_map(|filter| filter.iter()).filter(|part| part.name() != "$comment");
    let id = match (conditions.next(), conditions.next()) {
        (Some(id), None) if id.name() == "_id" => id.value(),
        _ => return false,
    };
    let is_value = match id {
        Value::Regex { .. } | Value::Array(_) => false,
        Value::Document(operators) => match operators.first() {
            Some(first) if first.name() == "$eq" => operators.iter().nth(1).is_none(),
            Some(first) => !first.name().starts_with('$'),
            None => true,
        },
        _ => true,
    };
    let is_find = query.first().is_some_and(|first| first.name() == "find");
    is_find && is_value && others.iter().all(|name| query.get(name).is_none())
}
