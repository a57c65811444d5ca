//! `explain`: the plan of another command, with or without its execution.
//!
//! The handlers' own parsers read the inner command, so both refuse the same fields. The database
//! then explains the plan. Explain accepts one statement of a write command.

use super::bulk_write::{BulkWrite, Operation};
use super::write_batch::WriteCommand;
use super::{aggregate as aggregation, delete, find, find_and_modify, update};
use crate::access::{Requirements, requirements};
use crate::call::arguments::is_generic;
use crate::call::{Call, HandlerStatus, Row};
use crate::commands::diagnostics::server_info::host_name;
use crate::commands::table;
use crate::protocol::fields::Fields;
use crate::state::query_settings::hash_of;
use base::bson::{Document, DocumentBuf, Value};
use base::{Namespace, Result, bail, err};
use database::Verbosity;
use database::language::query_shape;
use wire::request::{Documents, Request};

/// MongoDB's default verbosity.
pub(crate) const DEFAULT_VERBOSITY: &str = "allPlansExecution";

/// Parameters that change plans, which the reply shows.
const SHOWN: [&str; 7] = [
    "internalDocumentSourceGroupMaxMemoryBytes",
    "internalDocumentSourceSetWindowFieldsMaxMemoryBytes",
    "internalLookupStageIntermediateDocumentMaxSizeBytes",
    "internalQueryFacetBufferSizeBytes",
    "internalQueryFacetMaxOutputDocSizeBytes",
    "internalQueryFrameworkControl",
    "internalQueryMaxBlockingSortMemoryUsageBytes",
];

/// Position in the command table.
pub(crate) const EXPLAIN: Row = Row::read("explain", explain, Requirements::By(requirements::explain))
    .help("Explains the plan of a command.")
    .stable_api()
    .takes_read_concern();

fn explain(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let inner = fields.required("explain", Fields::document)?;
    let verbosity = Verbosity::parse(fields.string("verbosity")?.unwrap_or(DEFAULT_VERBOSITY))?;
    fields.finish()?;
    if let Some(Value::String(other)) = inner.get("$db")
        && other != call.request.database
    {
        bail!(
            InvalidNamespace,
            "Mismatched $db in explain command. Expected {} but got {other}",
            call.request.database
        );
    }
    let request = Request::of(inner, call.request.database);
    let explanation = explain_command(call, &request, verbosity)?;
    finish(call, &explanation, inner)
}

/// Explains an aggregate with `explain: true`.
pub(crate) fn aggregate(
    call: &mut Call<'_>,
    parts: aggregation::Parts<'_>,
    verbosity: Verbosity,
) -> Result<HandlerStatus> {
    let explanation = explain_aggregate(call, &parts, verbosity)?;
    let body = call.request.body;
    finish(call, &explanation, body)
}

fn explain_command(call: &mut Call<'_>, request: &Request<'_>, verbosity: Verbosity) -> Result<DocumentBuf> {
    let mut fields = Fields::of_command(request, is_generic);
    let takes_settings = matches!(request.name, "find" | "aggregate" | "distinct");
    let settings = request.body.get("querySettings").filter(|_| takes_settings);
    call.plan_by_query_settings(request, settings.and_then(|settings| settings.as_document()))?;
    match request.name {
        "find" => explain_find(call, &mut fields, verbosity),
        "aggregate" => {
            aggregation::check_explained(request.body.get("writeConcern").is_some())?;
            let parts = aggregation::Parts::read(&mut fields, request.database)?;
            call.check_uuid(&parts.namespace, parts.uuid)?;
            explain_aggregate(call, &parts, verbosity)
        }
        "count" => explain_count(call, &mut fields, verbosity),
        "distinct" => explain_distinct(call, &mut fields, verbosity),
        "update" => explain_update(call, &mut fields, verbosity),
        "delete" => explain_delete(call, &mut fields, verbosity),
        "bulkWrite" => explain_bulk_write(call, &mut fields, verbosity),
        "findAndModify" | "findandmodify" => explain_find_and_modify(call, &mut fields, verbosity),
        other => match table::find(other) {
            Some(command) => Err(err!(IllegalOperation, "Cannot explain cmd: {}", command.name)),
            None => Err(err!(CommandNotFound, "Explain failed due to unknown command: {other}")),
        },
    }
}

fn explain_find(call: &Call<'_>, fields: &mut Fields<'_>, verbosity: Verbosity) -> Result<DocumentBuf> {
    let parts = find::Parts::read(fields)?;
    call.check_uuid(&parts.namespace, parts.uuid)?;
    let scope = call.scope_to_read_here(&parts.namespace, parts.collation.as_ref(), parts.variables)?;
    call.server.database.explain_find(&scope, &parts.request, verbosity)
}

fn explain_aggregate(
    call: &Call<'_>,
    parts: &aggregation::Parts<'_>,
    verbosity: Verbosity,
) -> Result<DocumentBuf> {
    let scope = call.scope_to_read_here(&parts.namespace, parts.collation.as_ref(), parts.variables)?;
    let request = parts.request(call);
    call.server.database.explain_aggregate(&scope, &request, verbosity)
}

fn explain_count(call: &Call<'_>, fields: &mut Fields<'_>, verbosity: Verbosity) -> Result<DocumentBuf> {
    let parts = find::CountParts::read(fields)?;
    call.check_uuid(&parts.namespace, parts.uuid)?;
    let scope = call.scope_to_read_here(&parts.namespace, parts.collation.as_ref(), None)?;
    let window = (parts.skip, parts.limit);
    call.server.database.explain_count(&scope, parts.query, parts.hint, window, verbosity)
}

fn explain_distinct(call: &Call<'_>, fields: &mut Fields<'_>, verbosity: Verbosity) -> Result<DocumentBuf> {
    let parts = find::DistinctParts::read(fields)?;
    let scope = call.scope_to_read_here(&parts.namespace, parts.collation.as_ref(), None)?;
    call.server.database.explain_distinct(&scope, parts.key, parts.query, parts.hint, verbosity)
}

fn explain_update(call: &Call<'_>, fields: &mut Fields<'_>, verbosity: Verbosity) -> Result<DocumentBuf> {
    let namespace = fields.namespace()?;
    let statement = only(fields.required("updates", Fields::documents)?, "write batches")?;
    let bypass_validation = fields.flag("bypassDocumentValidation")?.unwrap_or(false);
    fields.boolean("bypassEmptyTsReplacement")?;
    fields.flag("ordered")?;
    let variables = fields.document("let")?;
    fields.finish()?;
    let statement = update::Statement::read(statement)?;
    explain_updating(call, &namespace, &statement, (variables, bypass_validation), verbosity)
}

fn explain_updating(
    call: &Call<'_>,
    namespace: &Namespace,
    statement: &update::Statement<'_>,
    (variables, bypass_validation): (Option<Document<'_>>, bool),
    verbosity: Verbosity,
) -> Result<DocumentBuf> {
    let scope = call.scope_to_read_here(namespace, statement.collation.as_ref(), variables)?;
    let scope = statement.scope(&scope);
    let request = statement.parse(&scope.context, bypass_validation)?;
    call.server.database.explain_update(&scope, &request, verbosity)
}

fn explain_delete(call: &Call<'_>, fields: &mut Fields<'_>, verbosity: Verbosity) -> Result<DocumentBuf> {
    let namespace = fields.namespace()?;
    let statement = only(fields.required("deletes", Fields::documents)?, "write batches")?;
    fields.flag("ordered")?;
    let variables = fields.document("let")?;
    fields.finish()?;
    explain_deleting(call, &namespace, &delete::read(statement)?, variables, verbosity)
}

fn explain_deleting(
    call: &Call<'_>,
    namespace: &Namespace,
    statement: &delete::Statement<'_>,
    variables: Option<Document<'_>>,
    verbosity: Verbosity,
) -> Result<DocumentBuf> {
    let scope = call.scope_to_read_here(namespace, statement.collation.as_ref(), variables)?;
    call.server.database.explain_delete(&scope, &statement.parse(&scope)?, verbosity)
}

/// Explains the only operation of a bulkWrite, as the command that does the same.
fn explain_bulk_write(call: &Call<'_>, fields: &mut Fields<'_>, verbosity: Verbosity) -> Result<DocumentBuf> {
    let (command, operations) = BulkWrite::read(call, fields)?;
    let (target, operation) = command.parse(only(operations, "bulkWrite ops")?)?;
    let BulkWrite { variables, bypass_validation, .. } = command;
    match operation {
        Operation::Insert(_) => Err(err!(IllegalOperation, "Cannot explain insert cmd for bulkWrite")),
        Operation::Update(statement) => {
            explain_updating(call, &target.namespace, &statement, (variables, bypass_validation), verbosity)
        }
        Operation::Delete(statement) => {
            explain_deleting(call, &target.namespace, &statement, variables, verbosity)
        }
    }
}

fn explain_find_and_modify(
    call: &Call<'_>,
    fields: &mut Fields<'_>,
    verbosity: Verbosity,
) -> Result<DocumentBuf> {
    let parts = find_and_modify::Parts::read(fields)?;
    let scope = call.scope_to_read_here(&parts.namespace, parts.collation.as_ref(), parts.variables)?;
    let request = parts.parse(&scope)?;
    call.server.database.explain_find_and_modify(&scope, &request, verbosity)
}

/// Returns the only statement of a list. `name` is the list's name in messages.
///
/// Errors: InvalidLength if the list has another number of statements.
fn only<'a>(statements: Documents<'a>, name: &str) -> Result<Document<'a>> {
    let mut statements = statements.iter();
    match (statements.next(), statements.next()) {
        (Some(statement), None) => Ok(statement),
        _ => Err(err!(InvalidLength, "explained {name} must be of size 1")),
    }
}

/// Appends the explanation, the command and the server information.
fn finish(call: &mut Call<'_>, explanation: &DocumentBuf, command: Document<'_>) -> Result<HandlerStatus> {
    call.reply.append_all(explanation.view());
    call.reply.begin_document(c"command");
    for element in command.iter().filter(|element| !is_generic(element.name())) {
        call.reply.append_element(&element);
    }
    call.reply.append(c"$db", call.request.database).end();
    call.reply.begin_document(c"serverInfo").append(c"host", &host_name());
    call.reply.append(c"port", i32::from(call.connection.local.port()));
    let version = call.server.settings.compatible_with.version();
    call.reply.append(c"version", version).append(c"gitVersion", "unknown").end();
    call.reply.begin_document(c"serverParameters");
    for (name, value, _) in call.server.parameters.all() {
        if SHOWN.contains(&name) {
            value.append_to(call.reply, name);
        }
    }
    call.reply.end();
    if let Some(shape) = query_shape::of_command(call.request.database, command) {
        call.reply.append(c"queryShapeHash", hash_of(shape.view()).as_str());
    }
    Ok(HandlerStatus::Done)
}
