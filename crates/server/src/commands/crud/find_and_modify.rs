//! `findAndModify`: changes or removes one document and returns it.

use super::retry::Retryable;
use super::update::Statement;
use super::write_batch::is_suspended;
use crate::access::{Requirements, requirements};
use crate::call::{Call, HandlerStatus, Row};
use crate::protocol::fields::Fields;
use base::bson::{Builder, Document, DocumentBuf, Value};
use base::{Namespace, Result, bail, err};
use database::language::{Arena, Collation, Context, Matcher, Projection, SortPattern};
use database::{
    Action, Committed, FindAndModifyOutcome, FindAndModifyRequest, ReplyBuilder, RetryKey, Scope,
};
use std::sync::Arc;

/// Position in the command table.
pub(crate) const FIND_AND_MODIFY: Row =
    Row::write("findAndModify", run, Requirements::By(requirements::find_and_modify))
        .help("Changes or removes one document and returns it.")
        .stable_api()
        .retryable_write()
        .restarts();

/// Parsed fields of the command. `explain` uses them too.
pub(crate) struct Parts<'a> {
    pub(crate) namespace: Namespace,
    pub(crate) query: Document<'a>,
    pub(crate) sort: Document<'a>,
    pub(crate) remove: bool,
    pub(crate) return_new: bool,
    pub(crate) projection: Document<'a>,
    statement: Option<Statement<'a>>,
    hint: Option<database::Hint>,
    pub(crate) collation: Option<Collation>,
    pub(crate) variables: Option<Document<'a>>,
    bypass_validation: bool,
    keeps_timestamps: bool,
}

fn run(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let parts = Parts::read(&mut call.fields())?;
    let outcome = modify(call, &parts);
    if let Some(statement) = parts.statement.filter(|_| !is_suspended(&outcome)) {
        statement.count(call, "findAndModify");
    }
    outcome
}

fn modify(call: &mut Call<'_>, parts: &Parts<'_>) -> Result<HandlerStatus> {
    let mut retryable = Retryable::begin(call, 1)?;
    if let Some(answer) = retryable.as_mut().and_then(|retryable| retryable.recorded_result(0)) {
        return reply(call, retryable.as_ref(), &answer, None);
    }
    let scope = call.scope_to_write(&parts.namespace, parts.collation.as_ref(), parts.variables)?;
    let scope = scope.keep_empty_timestamps(parts.keeps_timestamps);
    // It makes one change of documents, so it can begin again until then.
    scope.operation.keep_progress();
    let context = &scope.context;
    let request = parts.parse(&scope)?;
    let projection = match parts.projection.is_empty() {
        true => None,
        false => Some(Projection::parse_find(parts.projection, context)?),
    };
    if parts.return_new && projection.as_ref().is_some_and(Projection::needs_position) {
        bail!(BadValue, "cannot use a positional projection and return the new document");
    }
    let database = &call.server.database;
    let answer_of = |outcome: &FindAndModifyOutcome| {
        let value = project(outcome, projection.as_ref(), &request.matcher, context)?;
        Ok(answer(outcome, value.as_ref(), parts.remove))
    };
    let run = |key: Option<RetryKey>| {
        let retry = key.map(|key| (key, &answer_of as ReplyBuilder<'_>));
        let outcome = database.find_and_modify(&scope, &request, retry)?;
        Ok((answer_of(&outcome)?, outcome.committed))
    };
    let recall = |answer: Document<'_>| (answer.to_owned(), None);
    let (answer, committed) = Retryable::run(retryable.as_mut(), call, 0, recall, |done| done.1, run)?;
    if let Some(retryable) = &retryable {
        retryable.record(0, answer.clone());
    }
    reply(call, retryable.as_ref(), &answer, committed)
}

/// Replies with an answer, which may be recorded.
fn reply(
    call: &mut Call<'_>,
    retryable: Option<&Retryable>,
    answer: &DocumentBuf,
    committed: Option<Committed>,
) -> Result<HandlerStatus> {
    call.reply.append_all(answer.view());
    if let Some(statement) = retryable.and_then(|retryable| retryable.retried.first()) {
        call.server.sessions.transactions.count_retried(1);
        call.reply.append(c"retriedStmtId", *statement);
    }
    call.acknowledge(committed)
}

impl<'a> Parts<'a> {
    /// Parses the fields of the command.
    ///
    /// Errors: invalid, missing or unknown fields.
    pub(crate) fn read(fields: &mut Fields<'a>) -> Result<Parts<'a>> {
        let namespace = fields.writable_namespace()?;
        let query = fields.document("query")?.unwrap_or(Document::EMPTY);
        let sort = fields.document("sort")?.unwrap_or(Document::EMPTY);
        let remove = fields.flag("remove")?.unwrap_or(false);
        let update = fields.any("update")?.filter(|update| !update.is_nullish());
        let return_new = fields.flag("new")?.unwrap_or(false);
        let projection = fields.document("fields")?.unwrap_or(Document::EMPTY);
        let upsert = fields.flag("upsert")?.unwrap_or(false);
        let bypass_validation = fields.flag("bypassDocumentValidation")?.unwrap_or(false);
        let keeps_timestamps = fields.boolean("bypassEmptyTsReplacement")?.unwrap_or(false);
        let array_filters = fields.array_filters()?;
        let hint = fields.hint()?;
        let variables = fields.document("let")?;
        let collation = fields.collation()?;
        // MongoDB reads them and does not use them.
        fields.integer("batchSize")?;
        fields.boolean("singleBatch")?;
        fields.refuse_unless_default("encryptionInformation")?;
        fields.refuse_unless_default("sampleId")?;
        fields.finish()?;
        if update.is_some_and(|update| !matches!(update, Value::Document(_) | Value::Array(_))) {
            bail!(FailedToParse, "Update argument must be either an object or an array");
        }
        check(remove, update, upsert, return_new, &array_filters)?;
        let statement = update.map(|update| Statement {
            upsert,
            hint: hint.clone(),
            array_filters,
            ..Statement::new(query, update)
        });
        Ok(Parts {
            namespace,
            query,
            sort,
            remove,
            return_new,
            projection,
            statement,
            hint,
            collation,
            variables,
            bypass_validation,
            keeps_timestamps,
        })
    }

    /// Parses filter, sort and update.
    pub(crate) fn parse(&self, scope: &Scope) -> Result<FindAndModifyRequest> {
        let reads_sort = !self.sort.is_empty() && !self.is_by_id();
        let sort = reads_sort.then(|| SortPattern::parse(self.sort)).transpose()?;
        let context = &scope.context;
        let sort = sort.map(|sort| sort.require_metadata(context).collated(&context.collation));
        let action = match &self.statement {
            Some(statement) => Action::Update {
                request: Box::new(statement.parse(&scope.context, self.bypass_validation)?),
                return_new: self.return_new,
            },
            None => Action::Remove,
        };
        let matcher = match &action {
            Action::Update { request, .. } => request.matcher.clone(),
            Action::Remove => Arc::new(Matcher::parse_query(self.query, &scope.context)?),
        };
        Ok(FindAndModifyRequest { matcher, sort, hint: self.hint.clone(), action })
    }

    /// Returns true if the query is one value of `_id`. MongoDB then does not read the sort (`isSimpleIdQuery`).
    fn is_by_id(&self) -> bool {
        let mut fields = self.query.iter();
        match (fields.next().filter(|first| first.name() == "_id"), fields.next()) {
            (Some(id), None) => match id.value() {
                Value::Document(id) => !id.first().is_some_and(|first| first.name().starts_with('$')),
                Value::Array(_) | Value::Regex { .. } | Value::Null | Value::Undefined => false,
                _ => true,
            },
            _ => false,
        }
    }
}

fn check(
    remove: bool,
    update: Option<Value<'_>>,
    upsert: bool,
    return_new: bool,
    array_filters: &[Document<'_>],
) -> Result<()> {
    let problem = match (remove, update) {
        (true, Some(_)) => "Cannot specify both an update and remove=true",
        (true, None) if upsert => "Cannot specify both upsert=true and remove=true ",
        (true, None) if return_new => {
            "Cannot specify both new=true and remove=true; 'remove' always returns the deleted document"
        }
        (true, None) if !array_filters.is_empty() => "Cannot specify arrayFilters and remove=true",
        (false, None) => "Either an update or remove=true must be specified",
        (false, Some(Value::Array(_))) if !array_filters.is_empty() => {
            "Cannot specify arrayFilters and a pipeline update"
        }
        _ => return Ok(()),
    };
    Err(err!(FailedToParse, "{problem}"))
}

fn project(
    outcome: &FindAndModifyOutcome,
    projection: Option<&Projection>,
    matcher: &Matcher,
    context: &Context,
) -> Result<Option<DocumentBuf>> {
    let Some(value) = &outcome.value else { return Ok(None) };
    let document = value.document.view();
    let Some(projection) = projection else { return Ok(Some(document.to_owned())) };
    let position = match projection.needs_position() {
        true => matcher.matches_at(document, context)?.and_then(|found| found.position),
        false => None,
    };
    projection.apply(value.view(), position, context, &Arena::new()).map(Some)
}

fn answer(outcome: &FindAndModifyOutcome, value: Option<&DocumentBuf>, remove: bool) -> DocumentBuf {
    let mut out = Builder::new();
    out.begin_document(c"lastErrorObject").append(c"n", outcome.n as i32);
    if !remove {
        out.append(c"updatedExisting", outcome.updated_existing);
        out.append_optional(c"upserted", outcome.upserted.as_ref());
    }
    out.end();
    match value {
        Some(value) => out.append(c"value", value),
        None => out.append(c"value", Value::Null),
    };
    out.finish()
}
