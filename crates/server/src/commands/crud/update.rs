//! `update`: changes documents, or inserts a document if none matches.

use super::retry::Retryable;
use super::write_batch::{WriteBatch, WriteCommand, is_suspended};
use crate::access::{Requirements, requirements};
use crate::call::{Call, HandlerStatus, Row};
use crate::protocol::fields::Fields;
use base::bson::{Document, Value, ValueBuf};
use base::{ErrorCode, Namespace, Result, bail};
use database::language::{Collation, Context, Matcher, SortPattern, Update, mentions_expr};
use database::{Hint, Scope, UpdateOutcome, UpdateRequest, WriteProgress};
use std::borrow::Cow;
use std::sync::Arc;

/// Position in the command table.
pub(crate) const UPDATE: Row = Row::write("update", update, Requirements::By(requirements::update))
    .help("Updates documents.")
    .stable_api()
    .retryable_write()
    .restarts();

/// An unparsed element of `updates`.
pub(crate) struct Statement<'a> {
    /// Filter of the documents to change.
    pub(crate) filter: Document<'a>,
    /// The whole statement, as sent.
    pub(super) document: Document<'a>,
    /// Update operators, replacement or pipeline.
    pub(crate) update: Value<'a>,
    /// True to change all matching documents.
    pub(crate) multi: bool,
    /// True to insert a document if none matches.
    pub(crate) upsert: bool,
    pub(super) hint: Option<Hint>,
    pub(super) sort: Option<Document<'a>>,
    pub(super) array_filters: Vec<Document<'a>>,
    pub(super) constants: Option<Document<'a>>,
    pub(crate) collation: Option<Collation>,
}

/// Parsed fields of the command.
struct UpdateCommand<'a> {
    namespace: Namespace,
    /// Number of statements.
    count: usize,
    ordered: bool,
    bypass_validation: bool,
    keeps_timestamps: bool,
    variables: Option<Document<'a>>,
    uuid: Option<[u8; 16]>,
}

/// A running update command.
struct Updating {
    scope: Scope,
    batch: WriteBatch,
    matched: i32,
    modified: i32,
    upserted: Vec<(usize, ValueBuf)>,
    /// Progress of the running statement.
    progress: WriteProgress,
}

fn update(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let namespace = fields.writable_namespace()?;
    let statements = fields.required("updates", Fields::sequence)?;
    let command = UpdateCommand {
        namespace,
        count: statements.len(),
        ordered: fields.flag("ordered")?.unwrap_or(true),
        bypass_validation: fields.flag("bypassDocumentValidation")?.unwrap_or(false),
        keeps_timestamps: fields.boolean("bypassEmptyTsReplacement")?.unwrap_or(false),
        variables: fields.document("let")?,
        uuid: fields.uuid("collectionUUID")?,
    };
    fields.refuse_unless_default("isTimeseriesNamespace")?;
    fields.refuse_unless_default("encryptionInformation")?;
    fields.finish()?;
    command.run_list(call, statements)
}

impl UpdateCommand<'_> {
    fn scope(&self, call: &Call<'_>) -> Result<Scope> {
        let scope = call.scope_to_write(&self.namespace, None, self.variables)?;
        let scope = scope.keep_empty_timestamps(self.keeps_timestamps);
        scope.operation.keep_progress();
        Ok(scope)
    }
}

impl<'d> WriteCommand<'d> for UpdateCommand<'_> {
    type Statement = Statement<'d>;
    type State = Updating;

    fn parse(&self, document: Document<'d>) -> Result<Statement<'d>> {
        Statement::read(document)
    }

    fn begin(&self, call: &Call<'_>) -> Result<Updating> {
        call.check_uuid(&self.namespace, self.uuid)?;
        let scope = self.scope(call)?;
        let batch = WriteBatch::begin(call, self.count, self.ordered)?;
        let progress = WriteProgress::default();
        Ok(Updating { scope, batch, matched: 0, modified: 0, upserted: Vec::new(), progress })
    }

    fn run(
        &self,
        call: &mut Call<'_>,
        state: &mut Updating,
        position: usize,
        statement: &Statement<'_>,
    ) -> Result<bool> {
        let Updating { scope, batch, progress, .. } = state;
        let message = "Cannot use (or request) retryable writes with multi=true";
        if let Err(error) = Retryable::check_single(batch.retryable.as_ref(), statement.multi, message) {
            return batch.failed(position, error);
        }
        let run = |key| loop {
            let own = statement.scope(scope);
            let outcome = statement
                .parse(&own.context, self.bypass_validation)
                .and_then(|request| call.server.database.update_retryable(&own, &request, key, progress));
            match outcome {
                // The latest catalog may have another collation for the collection.
                Err(error) if error.code() == ErrorCode::StaleConfig => *scope = self.scope(call)?,
                outcome => break outcome,
            }
        };
        let committed = |outcome: &UpdateOutcome| outcome.committed;
        let retryable = batch.retryable.as_mut();
        let outcome = Retryable::run(retryable, call, position, UpdateOutcome::from_answer, committed, run);
        if is_suspended(&outcome) {
            return outcome.map(|_| false);
        }
        call.leave_queue();
        call.server.counters.updated.add(1);
        statement.count(call, "update");
        match outcome {
            Ok(outcome) => {
                batch.record(position, || outcome.to_answer());
                batch.committed(outcome.committed);
                call.note(statement.document, &scope.operation, |counts| {
                    counts.append_number(c"nMatched", outcome.matched as i64);
                    counts.append_number(c"nModified", outcome.modified as i64);
                    if outcome.upserted.is_some() {
                        counts.append_number(c"nUpserted", 1);
                    }
                });
                state.matched += outcome.matched as i32;
                state.modified += outcome.modified as i32;
                state.upserted.extend(outcome.upserted.map(|id| (position, id)));
                Ok(true)
            }
            Err(error) if is_unknown_stage(&error, statement) => Err(error),
            Err(error) => batch.failed(position, error),
        }
    }

    fn finish(&self, call: &mut Call<'_>, state: &mut Updating) -> Result<HandlerStatus> {
        let Updating { batch, matched, modified, upserted, .. } = state;
        if call.is_unacknowledged() {
            call.reply.append(c"n", 0).append(c"nModified", 0);
            return batch.finish(call);
        }
        call.reply.append(c"n", *matched + upserted.len() as i32);
        if !upserted.is_empty() {
            call.reply.begin_array(c"upserted");
            for (position, id) in upserted {
                call.reply.push_document().append(c"index", *position as i32).append(c"_id", &*id).end();
            }
            call.reply.end();
        }
        call.reply.append(c"nModified", *modified);
        batch.finish(call)
    }
}

/// Returns true if a pipeline has an unknown stage. MongoDB then fails the whole command.
fn is_unknown_stage(error: &base::Error, statement: &Statement<'_>) -> bool {
    matches!(statement.update, Value::Array(_)) && error.code().number() == 40324
}

impl<'a> Statement<'a> {
    /// Parses an element of `updates`.
    pub(crate) fn read(document: Document<'a>) -> Result<Statement<'a>> {
        let mut fields = Fields::of_document("update.updates", document);
        let filter = fields.required("q", Fields::document)?;
        let update = fields.required("u", Fields::any)?;
        if !matches!(update, Value::Document(_) | Value::Array(_)) {
            bail!(FailedToParse, "Update argument must be either an object or an array");
        }
        let statement = Statement {
            filter,
            document,
            update,
            multi: fields.flag("multi")?.unwrap_or(false),
            upsert: fields.flag("upsert")?.unwrap_or(false),
            hint: fields.hint()?,
            sort: fields.document("sort")?,
            array_filters: fields.array_filters()?,
            constants: fields.document("c")?,
            collation: fields.collation()?,
        };
        fields.refuse_unless_default("upsertSupplied")?;
        fields.refuse_unless_default("sampleId")?;
        fields.finish()?;
        if statement.multi && statement.sort.is_some_and(|sort| !sort.is_empty()) {
            bail!(FailedToParse, "Cannot specify sort with multi=true");
        }
        Ok(statement)
    }

    /// Creates a statement with default options, for other commands that update.
    pub(super) fn new(filter: Document<'a>, update: Value<'a>) -> Statement<'a> {
        Statement {
            filter,
            document: Document::EMPTY,
            update,
            multi: false,
            upsert: false,
            hint: None,
            sort: None,
            array_filters: Vec::new(),
            constants: None,
            collation: None,
        }
    }

    /// Counts a statement of a command for serverStatus.
    pub(super) fn count(&self, call: &Call<'_>, command: &str) {
        let is_pipeline = matches!(self.update, Value::Array(_));
        call.server.counters.count_update(command, is_pipeline, !self.array_filters.is_empty());
    }

    /// Returns the scope that parses and runs the statement. Constants become variables.
    pub(crate) fn scope<'s>(&self, scope: &'s Scope) -> Cow<'s, Scope> {
        let scope = scope.collated(self.collation.as_ref());
        let Some(constants) = self.constants else { return scope };
        let constants = constants
            .into_iter()
            .map(|constant| (constant.name().to_string(), Some(constant.value().to_owned())));
        Cow::Owned(scope.with_variables(constants))
    }

    /// Parses filter and update.
    pub(crate) fn parse(&self, context: &Context, bypass_validation: bool) -> Result<UpdateRequest> {
        let is_pipeline = matches!(self.update, Value::Array(_));
        if self.constants.is_some() && !is_pipeline {
            bail!(51198, "Constant values may only be specified for pipeline updates");
        }
        let matcher = Arc::new(Matcher::parse_query(self.filter, context)?);
        if self.upsert && mentions_expr(self.filter) {
            bail!(QueryFeatureNotAllowed, "$expr is not allowed in the query predicate for an upsert");
        }
        let update = Update::parse(self.update, &self.array_filters, context)?;
        if self.multi && update.is_replacement() {
            bail!(FailedToParse, "multi update is not supported for replacement-style update");
        }
        let sort = self.sort.filter(|sort| !sort.is_empty()).map(SortPattern::parse).transpose()?;
        let sort = sort.map(|sort| sort.collated(&context.collation));
        Ok(UpdateRequest {
            matcher,
            update: update.into(),
            multi: self.multi,
            upsert: self.upsert,
            sort,
            hint: self.hint.clone(),
            bypass_validation,
        })
    }
}
