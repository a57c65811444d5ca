//! `aggregate`: a pipeline over a collection or over no collection, and the input of the stages that the server feeds.

use super::explain;
use crate::access::{Requirements, requirements};
use crate::auth;
use crate::call::{Call, HandlerStatus, Row, arguments};
use crate::commands::cursors;
use crate::commands::sessions::listed_users;
use crate::observe::usage::{CLASSES, CollectionUsage, Latency};
use crate::protocol::fields::Fields;
use crate::protocol::read_concern::ReadConcern;
use crate::server::Server;
use crate::state::connection::ConnectionState;
use base::bson::{Array, Builder, Document, DocumentBuf, FieldName, Value};
use base::{Error, ErrorCode, Namespace, Result, bail, err};
use database::language::{CollStats, Collation, External, StageDefinition, stages_of};
use database::{AggregateRequest, Cursor, FIRST_BATCH, ServerSource, Sources, Verbosity};
use std::sync::Arc;

/// Position in the command table.
pub(crate) const AGGREGATE: Row =
    Row::read("aggregate", aggregate, Requirements::By(requirements::aggregate))
        .help("Runs an aggregation pipeline.")
        .stable_api()
        .takes_read_concern()
        .takes_write_concern()
        .in_transactions()
        .restarts();

/// Parsed fields of the command. `explain` uses them too.
pub(crate) struct Parts<'a> {
    pub(crate) namespace: Namespace,
    pub(crate) collation: Option<Collation>,
    pub(crate) pipeline: Array<'a>,
    pub(crate) hint: Option<database::Hint>,
    pub(crate) allow_disk_use: Option<bool>,
    bypass_validation: bool,
    pub(crate) variables: Option<Document<'a>>,
    pub(crate) uuid: Option<[u8; 16]>,
    pub(crate) settings: Option<Document<'a>>,
    explain: bool,
    batch_size: Option<u64>,
    has_cursor: bool,
}

fn aggregate(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let parts = Parts::read(&mut call.fields(), call.request.database)?;
    let batch_size = parts.batch_size.unwrap_or(FIRST_BATCH);
    if let Some(cursor) = call.resume() {
        return reply(call, cursor, batch_size);
    }
    if parts.explain {
        call.plan_by_query_settings(call.request, parts.settings)?;
        check_explained(call.arguments.write_concern.is_some())?;
        return explain::aggregate(call, parts, Verbosity::QueryPlanner);
    }
    let is_stage = |stage: Value<'_>| matches!(stage, Value::Document(_));
    if !parts.pipeline.iter().all(is_stage) {
        bail!(TypeMismatch, "Each element of the 'pipeline' array must be an object");
    }
    if !parts.has_cursor {
        bail!(
            FailedToParse,
            "The 'cursor' option is required, except for aggregate with the explain argument"
        );
    }
    if call.arguments.api.is_strict() {
        check_stable_api(parts.pipeline)?;
    }
    call.check_uuid(&parts.namespace, parts.uuid)?;
    let stages: Vec<_> = stages_of(parts.pipeline).map(|(stage, _)| stage).collect();
    check_rules(&stages, call.arguments.read_concern.level, call.arguments.transaction.is_some())?;
    if call.arguments.transaction.is_some() {
        check_inner_in_transaction(parts.pipeline)?;
    }
    call.apply_query_settings(parts.settings)?;
    // A change stream does not take the collation of its collection.
    let is_stream = stages.first().is_some_and(|first| first.opens_stream());
    let default = is_stream.then_some(&Collation::SIMPLE);
    let (collation, variables) = (parts.collation.as_ref().or(default), parts.variables);
    let scope = match parts.is_for_primary(&stages) {
        true => call.scope_to_read_here(&parts.namespace, collation, variables)?,
        false => call.scope_to_read(&parts.namespace, collation, variables)?,
    };
    let request = parts.request(call);
    let cursor = call.server.database.aggregate(&scope, &request)?;
    if let Some(writer) = stages.last().filter(|_| cursor.writes)
        && call.arguments.read_concern.level == Some(ReadConcern::Linearizable)
    {
        let name = writer.name;
        bail!(InvalidOptions, "{name} cannot be used with a 'linearizable' read concern level");
    }
    if call.arguments.read_concern.level == Some(ReadConcern::Linearizable) {
        arguments::check_linearizable(call.server.is_replica_set())?;
    }
    reply(call, cursor, batch_size)
}

/// Replies with the first batch. The first read of a document runs all of $out or $merge. An empty first batch leaves
/// that work to getMore, which then waits for the same write concern, as in MongoDB.
fn reply(call: &mut Call<'_>, mut cursor: Cursor, batch_size: u64) -> Result<HandlerStatus> {
    let writes = cursor.writes;
    if writes {
        cursor.write_concern = Some(Arc::new(call.write_concern()));
    }
    cursors::first(call, cursor, batch_size, false)?;
    if writes {
        call.acknowledge(None)?;
    }
    Ok(HandlerStatus::Done)
}

/// Refuses to explain an aggregate that has a write concern.
///
/// Errors: FailedToParse, with MongoDB's text.
pub(crate) fn check_explained(has_write_concern: bool) -> Result<()> {
    match has_write_concern {
        true => Err(err!(FailedToParse, "Aggregation explain does not support the'writeConcern' option")),
        false => Ok(()),
    }
}

/// Checks the read concern and the transaction rules of the stages.
///
/// Errors: InvalidOptions for a read concern level that a stage does not support,
/// OperationNotSupportedInTransaction.
fn check_rules(stages: &[&StageDefinition], level: Option<ReadConcern>, in_transaction: bool) -> Result<()> {
    for stage in stages {
        let name = stage.name;
        if let (Some(only), Some(level)) = (stage.read_concern, level.map(ReadConcern::name))
            && only != level
        {
            bail!(
                InvalidOptions,
                "Aggregation stage {name} cannot run with a readConcern other than '{only}'. Current readConcern: \
                 {level}"
            );
        }
        if in_transaction && !stage.in_transactions {
            bail!(
                OperationNotSupportedInTransaction,
                "Operation not permitted in transaction :: caused by :: Aggregation stage {name} cannot run within a \
                 multi-document transaction"
            );
        }
    }
    Ok(())
}

/// Checks that a transaction can run the pipelines of stages. The parser refuses pipelines that write or open streams.
///
/// Errors: OperationNotSupportedInTransaction.
fn check_inner_in_transaction(pipeline: Array<'_>) -> Result<()> {
    for inner in stages_of(pipeline).flat_map(|(stage, spec)| stage.inputs(spec.value()).pipelines) {
        for (stage, _) in stages_of(inner) {
            if !stage.in_transactions && !stage.writes() && !stage.opens_stream() {
                bail!(
                    OperationNotSupportedInTransaction,
                    "Stage not supported inside of a multi-document transaction: {}",
                    stage.name
                );
            }
        }
        check_inner_in_transaction(inner)?;
    }
    Ok(())
}

/// Checks that the stable API contains all stages.
///
/// Errors: APIStrictError.
pub(crate) fn check_stable_api(pipeline: Array<'_>) -> Result<()> {
    match stages_of(pipeline).find(|(stage, spec)| !stage.is_stable(spec.value())) {
        Some((stage, _)) => Err(err!(
            APIStrictError,
            "stage {} is not allowed with 'apiStrict: true' in API Version 1",
            stage.name
        )),
        None => Ok(()),
    }
}

impl<'a> Parts<'a> {
    /// Parses the fields of the command.
    ///
    /// Errors: invalid, missing or unknown fields.
    pub(crate) fn read(fields: &mut Fields<'a>, database: &str) -> Result<Parts<'a>> {
        let namespace = match fields.command_value() {
            Value::String(name) => Namespace::new(database, name)?,
            value if value.as_number().is_some_and(|number| number.to_f64() == 1.0) => {
                Namespace::new(database, "$cmd.aggregate")?
            }
            // MongoDB uses another code for a number than for a missing name.
            other => {
                let number = other.as_number().is_some();
                let code = if number { ErrorCode::BadValue } else { ErrorCode::InvalidNamespace };
                let message =
                    "Invalid command format: the 'aggregate' field must specify a collection name or 1";
                return Err(Error::new(code, message));
            }
        };
        let pipeline = fields.required("pipeline", |fields, name| fields.not_null(name, Fields::array))?;
        let cursor = match fields.any("cursor")? {
            None => None,
            Some(value) => Some(
                value
                    .as_document()
                    .ok_or_else(|| err!(TypeMismatch, "cursor field must be missing or an object"))?,
            ),
        };
        let parts = Parts {
            namespace,
            pipeline,
            hint: fields.hint()?,
            allow_disk_use: fields.boolean("allowDiskUse")?,
            bypass_validation: fields.flag("bypassDocumentValidation")?.unwrap_or(false),
            collation: fields.collation()?,
            variables: fields.document("let")?,
            uuid: fields.uuid("collectionUUID")?,
            settings: fields.document("querySettings")?,
            explain: fields.strict_boolean("explain")?.unwrap_or(false),
            batch_size: cursors::batch_size(cursor, "aggregate")?,
            has_cursor: cursor.is_some(),
        };
        for internal in ["fromMongos", "fromRouter", "needsMerge", "exchange", "encryptionInformation"] {
            fields.refuse_unless_default(internal)?;
        }
        fields.finish()?;
        if parts.explain && (parts.batch_size.is_some()) {
            bail!(FailedToParse, "The 'cursor' option cannot be used with the 'explain' option");
        }
        Ok(parts)
    }

    /// Returns true if the pipeline writes, opens a change stream, or reads no collection.
    fn is_for_primary(&self, stages: &[&StageDefinition]) -> bool {
        self.namespace.collection() == "$cmd.aggregate"
            || stages.iter().any(|stage| stage.writes() || stage.opens_stream())
    }

    /// Returns the request to the database.
    pub(crate) fn request(&self, call: &Call<'_>) -> AggregateRequest<'a> {
        AggregateRequest {
            pipeline: self.pipeline,
            hint: self.hint.clone(),
            allow_disk_use: self.allow_disk_use,
            bypass_validation: self.bypass_validation,
            sources: Some(for_server(call.server, call.connection, self.pipeline)),
        }
    }
}

/// Returns the current state for `$currentOp`, `$listLocalSessions` or the latencies of
/// `$collStats`, if the first stage of the pipeline needs it.
pub(crate) fn for_server(server: &Server, state: &ConnectionState, pipeline: Array<'_>) -> Sources {
    let first = External::first_of(pipeline);
    let operations = match &first {
        Some(External::CurrentOp(options)) => {
            crate::commands::diagnostics::current_op::documents(server, state, options.view())
        }
        _ => Vec::new(),
    };
    let latencies_asked = matches!(&first, Some(External::CollStats(CollStats { latencies: Some(_), .. })));
    let settings = match first {
        Some(External::QuerySettings { shows_shape }) => {
            server.set_settings.query_settings.documents(shows_shape)
        }
        _ => Vec::new(),
    };
    let usage = latencies_asked.then(|| server.activities.usage());
    let sessions = server.sessions.clone();
    let own = auth::session_digest(&server.auth, state);
    Arc::new(move |source| match source {
        ServerSource::CurrentOp => Ok(operations.clone()),
        ServerSource::QuerySettings => Ok(settings.clone()),
        ServerSource::ListLocalSessions(options) => {
            Ok(sessions.documents(listed_users(options, own)?.as_deref()))
        }
        ServerSource::Latencies { namespace, histograms } => {
            Ok(vec![latencies(usage.as_ref().and_then(|usage| usage.of(namespace)), histograms)])
        }
    })
}

/// Returns the number of operations on a collection and their time in microseconds, optionally as a
/// histogram.
fn latencies(collection_usage: Option<&CollectionUsage>, with_histograms: bool) -> DocumentBuf {
    let collection_usage = collection_usage.cloned().unwrap_or_default();
    let transactions = ("transactions", Latency::default());
    let mut out = Builder::new();
    for (name, latency) in CLASSES.into_iter().zip(collection_usage.classes).chain([transactions]) {
        out.begin_document(FieldName::literal(name));
        if with_histograms {
            out.begin_array(c"histogram");
            for (micros, count) in latency.histogram.counts() {
                out.push_document().append(c"micros", micros).append(c"count", count).end();
            }
            out.end();
        }
        out.append(c"latency", latency.sum.micros).append(c"ops", latency.sum.count).end();
    }
    out.finish()
}
