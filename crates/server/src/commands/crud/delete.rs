//! `delete`: statements that remove documents.

use super::retry::Retryable;
use super::write_batch::{WriteBatch, WriteCommand, is_suspended};
use crate::access::{Action, Requirements};
use crate::call::{Call, HandlerStatus, Row};
use crate::protocol::fields::Fields;
use base::bson::Document;
use base::{ErrorCode, Namespace, Result, bail};
use database::language::{Collation, Matcher};
use database::{DeleteRequest, Hint, Scope, UpdateOutcome, WriteProgress, delete_answer};
use std::sync::Arc;

/// Position in the command table.
pub(crate) const DELETE: Row = Row::write("delete", delete, Requirements::Collection(Action::Remove))
    .help("Removes documents.")
    .stable_api()
    .retryable_write()
    .restarts();

/// An unparsed element of `deletes`.
pub(crate) struct Statement<'a> {
    pub(crate) filter: Document<'a>,
    /// The whole statement, as sent.
    pub(super) document: Document<'a>,
    pub(crate) single: bool,
    pub(crate) hint: Option<Hint>,
    pub(crate) collation: Option<Collation>,
}

/// Parsed fields of the command.
struct Delete<'a> {
    namespace: Namespace,
    /// Number of statements.
    count: usize,
    ordered: bool,
    variables: Option<Document<'a>>,
    uuid: Option<[u8; 16]>,
}

/// A running delete command.
struct Deleting {
    scope: Scope,
    batch: WriteBatch,
    /// Number of deleted documents.
    deleted: i64,
    /// Progress of the running statement.
    progress: WriteProgress,
}

fn delete(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let namespace = fields.writable_namespace()?;
    let statements = fields.required("deletes", Fields::sequence)?;
    let ordered = fields.flag("ordered")?.unwrap_or(true);
    // MongoDB accepts these flags in all write commands. A delete ignores them.
    fields.flag("bypassDocumentValidation")?;
    fields.boolean("bypassEmptyTsReplacement")?;
    let variables = fields.document("let")?;
    let uuid = fields.uuid("collectionUUID")?;
    fields.refuse_unless_default("isTimeseriesNamespace")?;
    fields.refuse_unless_default("encryptionInformation")?;
    fields.finish()?;
    Delete { namespace, count: statements.len(), ordered, variables, uuid }.run_list(call, statements)
}

impl Delete<'_> {
    fn scope(&self, call: &Call<'_>) -> Result<Scope> {
        let scope = call.scope_to_write(&self.namespace, None, self.variables)?;
        scope.operation.keep_progress();
        Ok(scope)
    }
}

impl<'d> WriteCommand<'d> for Delete<'_> {
    type Statement = Statement<'d>;
    type State = Deleting;

    fn parse(&self, document: Document<'d>) -> Result<Statement<'d>> {
        read(document)
    }

    fn begin(&self, call: &Call<'_>) -> Result<Deleting> {
        call.check_uuid(&self.namespace, self.uuid)?;
        let scope = self.scope(call)?;
        let batch = WriteBatch::begin(call, self.count, self.ordered)?;
        Ok(Deleting { scope, batch, deleted: 0, progress: WriteProgress::default() })
    }

    fn run(
        &self,
        call: &mut Call<'_>,
        state: &mut Deleting,
        position: usize,
        statement: &Statement<'_>,
    ) -> Result<bool> {
        let Deleting { scope, batch, deleted, progress } = state;
        let message = "Cannot use (or request) retryable writes with limit=0";
        if let Err(error) = Retryable::check_single(batch.retryable.as_ref(), !statement.single, message) {
            return batch.failed(position, error);
        }
        let run = |key| loop {
            let own = scope.collated(statement.collation.as_ref());
            let outcome = statement
                .parse(&own)
                .and_then(|request| call.server.database.delete_retryable(&own, &request, key, progress));
            match outcome {
                // The latest catalog may have another collation for the collection.
                Err(error) if error.code() == ErrorCode::StaleConfig => *scope = self.scope(call)?,
                outcome => break outcome,
            }
        };
        let recall = |answer: Document<'_>| (UpdateOutcome::from_answer(answer).matched, None);
        let outcome = Retryable::run(batch.retryable.as_mut(), call, position, recall, |done| done.1, run);
        if is_suspended(&outcome) {
            return outcome.map(|_| false);
        }
        call.leave_queue();
        call.server.counters.deleted.add(1);
        match outcome {
            Ok((n, committed)) => {
                call.note(statement.document, &scope.operation, |counts| {
                    counts.append_number(c"ndeleted", n as i64);
                });
                *deleted += n as i64;
                batch.committed(committed);
                batch.record(position, || delete_answer(n));
                Ok(true)
            }
            Err(error) => batch.failed(position, error),
        }
    }

    fn finish(&self, call: &mut Call<'_>, state: &mut Deleting) -> Result<HandlerStatus> {
        call.reply.append(c"n", if call.is_unacknowledged() { 0 } else { state.deleted as i32 });
        state.batch.finish(call)
    }
}

/// Parses an element of `deletes`.
pub(crate) fn read(document: Document<'_>) -> Result<Statement<'_>> {
    let mut fields = Fields::of_document("delete.deletes", document);
    let filter = fields.required("q", Fields::document)?;
    let limit = fields.required("limit", Fields::number)?;
    let hint = fields.hint()?;
    let collation = fields.collation()?;
    fields.refuse_unless_default("sampleId")?;
    fields.finish()?;
    if limit != 0.0 && limit != 1.0 {
        bail!(FailedToParse, "The limit field in delete objects must be 0 or 1. Got {limit}");
    }
    Ok(Statement { filter, document, single: limit == 1.0, hint, collation })
}

impl Statement<'_> {
    /// Parses the filter.
    pub(super) fn parse(&self, scope: &Scope) -> Result<DeleteRequest> {
        parse(self.filter, self.single, self.hint.clone(), scope)
    }
}

/// Parses a delete statement.
pub(crate) fn parse(
    filter: Document<'_>,
    single: bool,
    hint: Option<Hint>,
    scope: &Scope,
) -> Result<DeleteRequest> {
    let matcher = Arc::new(Matcher::parse_query(filter, &scope.context)?);
    Ok(DeleteRequest { matcher, single, hint })
}
