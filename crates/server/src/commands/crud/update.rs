//! `update`: changes documents, or inserts a document if none matches.

use super::retry::Retryable;
use super::write_batch::{WriteBatch, is_suspended, run_in_order};
use crate::access::{Kind, Requirements, requirements};
use crate::call::row::Row;
use crate::call::{Call, HandlerStatus};
use crate::protocol::fields::Fields;
use base::bson::{Document, Value, ValueBuf};
use base::{ErrorCode, Result, bail};
use database::language::{Collation, Context, Matcher, SortPattern, Update, mentions_expr};
use database::{Hint, Scope, UpdateOutcome, UpdateRequest, WriteProgress};
use std::borrow::Cow;
use std::sync::Arc;

/// Position in the command table.
pub(crate) const UPDATE: Row =
    Row::new("update", Kind::Write, "Updates documents.", update, Requirements::By(requirements::update))
        .stable_api()
        .retryable_write()
        .restarts();

/// An unparsed element of `updates`.
pub(crate) struct Statement<'a> {
    /// Filter of the documents to change.
    pub(crate) filter: Document<'a>,
    /// The whole statement, as sent.
    document: Document<'a>,
    /// Update operators, replacement or pipeline.
    pub(crate) update: Value<'a>,
    /// True to change all matching documents.
    pub(crate) multi: bool,
    /// True to insert a document if none matches.
    pub(crate) upsert: bool,
    hint: Option<Hint>,
    sort: Option<Document<'a>>,
    array_filters: Vec<Document<'a>>,
    constants: Option<Document<'a>>,
    pub(crate) collation: Option<Collation>,
}

fn update(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let namespace = fields.writable_namespace()?;
    let statements = fields.required("updates", Fields::documents)?;
    let ordered = fields.flag("ordered")?.unwrap_or(true);
    let bypass_validation = fields.flag("bypassDocumentValidation")?.unwrap_or(false);
    let keeps_timestamps = fields.boolean("bypassEmptyTsReplacement")?.unwrap_or(false);
    let variables = fields.document("let")?;
    let uuid = fields.uuid("collectionUUID")?;
    fields.refuse_unless_default("isTimeseriesNamespace")?;
    fields.refuse_unless_default("encryptionInformation")?;
    fields.finish()?;

    let scope_of = |call: &Call<'_>| -> Result<Scope> {
        let scope = call.scope_to_write(&namespace, None, variables)?.keep_empty_timestamps(keeps_timestamps);
        scope.operation.keep_progress();
        Ok(scope)
    };
    let begin = |call: &Call<'_>| {
        call.check_uuid(&namespace, uuid)?;
        let scope = scope_of(call)?;
        let batch = WriteBatch::begin(call, statements.len(), ordered)?;
        Ok(Updating { scope, batch, done: Updated::default(), progress: WriteProgress::default() })
    };
    let run = |call: &mut Call<'_>, updating: &mut Updating, position: usize, statement: &Statement<'_>| {
        updating.run(call, position, statement, bypass_validation, &scope_of)
    };
    run_in_order(call, statements, Statement::read, begin, run, Updating::finish)
}

/// A running update command. It continues after a wait.
struct Updating {
    scope: Scope,
    batch: WriteBatch,
    done: Updated,
    /// Progress of the running statement.
    progress: WriteProgress,
}

/// Counts of the reply.
#[derive(Default)]
struct Updated {
    matched: i32,
    modified: i32,
    upserted: Vec<(usize, ValueBuf)>,
}

impl Updating {
    /// Appends the counts to the reply.
    fn finish(call: &mut Call<'_>, updating: &mut Updating) -> Result<HandlerStatus> {
        let Updating { batch, done: Updated { matched, modified, upserted }, .. } = updating;
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

    /// Runs a statement. Returns false if the command must stop.
    ///
    /// Errors: as [`WriteBatch::failed`].
    fn run(
        &mut self,
        call: &mut Call<'_>,
        position: usize,
        statement: &Statement<'_>,
        bypass_validation: bool,
        scope_of: &dyn Fn(&Call<'_>) -> Result<Scope>,
    ) -> Result<bool> {
        let Updating { scope, batch, done, progress } = self;
        Retryable::check_single(batch.retryable.as_ref(), statement.multi)?;
        let run = |key| loop {
            let own = statement.scope(scope);
            let outcome = statement
                .parse(&own.context, bypass_validation)
                .and_then(|request| call.server.database.update_retryable(&own, &request, key, progress));
            match outcome {
                // The latest catalog may have another collation for the collection.
                Err(error) if error.code() == ErrorCode::StaleConfig => *scope = scope_of(call)?,
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
        match outcome {
            Ok(outcome) => {
                batch.record(position, || outcome.to_answer());
                batch.committed(outcome.committed);
                call.note(statement.document, &scope.operation, |counts| {
                    counts.append_number(c"nMatched", outcome.matched as i64);
                    counts.append_number(c"nModified", outcome.modified as i64);
                    if outcome.upserted.is_some() {
                        counts.append_number(c"nUpserted", 1).append(c"upsert", true);
                    }
                });
                done.matched += outcome.matched as i32;
                done.modified += outcome.modified as i32;
                done.upserted.extend(outcome.upserted.map(|id| (position, id)));
                Ok(true)
            }
            Err(error) if is_unknown_stage(&error, statement) => Err(error),
            Err(error) => batch.failed(position, error),
        }
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

    /// Creates a statement for another command with equal fields.
    pub(crate) fn new(
        filter: Document<'a>,
        update: Value<'a>,
        (multi, upsert): (bool, bool),
        hint: Option<Hint>,
        array_filters: Vec<Document<'a>>,
    ) -> Statement<'a> {
        Statement {
            filter,
            document: Document::EMPTY,
            update,
            multi,
            upsert,
            hint,
            sort: None,
            array_filters,
            constants: None,
            collation: None,
        }
    }

    /// Adds a sort, constants and a collation, which updates of bulkWrite may have.
    pub(crate) fn with(
        self,
        sort: Option<Document<'a>>,
        constants: Option<Document<'a>>,
        collation: Option<Collation>,
    ) -> Statement<'a> {
        Statement { sort, constants, collation, ..self }
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
