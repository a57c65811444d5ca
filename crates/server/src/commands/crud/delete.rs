//! `delete`: statements that remove documents.

use super::retry::Retryable;
use super::write_batch::{WriteBatch, is_suspended, run_in_order};
use crate::access::{Action, Kind, Requirements};
use crate::call::row::Row;
use crate::call::{Call, HandlerStatus};
use crate::protocol::fields::Fields;
use base::bson::Document;
use base::{ErrorCode, Result, bail};
use database::language::{Collation, Matcher};
use database::{DeleteRequest, Hint, Scope, UpdateOutcome, WriteProgress, delete_answer};
use std::sync::Arc;

/// Position in the command table.
pub(crate) const DELETE: Row =
    Row::new("delete", Kind::Write, "Removes documents.", delete, Requirements::Collection(Action::Remove))
        .stable_api()
        .retryable_write()
        .restarts();

/// An unparsed element of `deletes`.
pub(crate) struct Statement<'a> {
    pub(crate) filter: Document<'a>,
    /// The whole statement, as sent.
    document: Document<'a>,
    pub(crate) single: bool,
    pub(crate) hint: Option<Hint>,
    pub(crate) collation: Option<Collation>,
}

fn delete(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let namespace = fields.writable_namespace()?;
    let statements = fields.required("deletes", Fields::documents)?;
    let ordered = fields.flag("ordered")?.unwrap_or(true);
    // MongoDB accepts these flags in all write commands. A delete ignores them.
    fields.flag("bypassDocumentValidation")?;
    fields.boolean("bypassEmptyTsReplacement")?;
    let variables = fields.document("let")?;
    let uuid = fields.uuid("collectionUUID")?;
    fields.refuse_unless_default("isTimeseriesNamespace")?;
    fields.refuse_unless_default("encryptionInformation")?;
    fields.finish()?;

    let scope_of = |call: &Call<'_>| -> Result<Scope> {
        let scope = call.scope_to_write(&namespace, None, variables)?;
        scope.operation.keep_progress();
        Ok(scope)
    };
    let begin = |call: &Call<'_>| {
        call.check_uuid(&namespace, uuid)?;
        let scope = scope_of(call)?;
        let batch = WriteBatch::begin(call, statements.len(), ordered)?;
        Ok(Deleting { scope, batch, deleted: 0, progress: WriteProgress::default() })
    };
    let run = |call: &mut Call<'_>, deleting: &mut Deleting, position: usize, statement: &Statement<'_>| {
        deleting.run(call, position, statement, &scope_of)
    };
    let finish = |call: &mut Call<'_>, deleting: &mut Deleting| {
        call.reply.append(c"n", deleting.deleted as i32);
        deleting.batch.finish(call)
    };
    run_in_order(call, statements, read, begin, run, finish)
}

/// A running delete command. It continues after a wait.
struct Deleting {
    scope: Scope,
    batch: WriteBatch,
    /// Number of deleted documents.
    deleted: i64,
    /// Progress of the running statement.
    progress: WriteProgress,
}

impl Deleting {
    /// Runs a statement. Returns false if the command must stop.
    ///
    /// Errors: as [`WriteBatch::failed`].
    fn run(
        &mut self,
        call: &mut Call<'_>,
        position: usize,
        statement: &Statement<'_>,
        scope_of: &dyn Fn(&Call<'_>) -> Result<Scope>,
    ) -> Result<bool> {
        let Deleting { scope, batch, deleted, progress } = self;
        Retryable::check_single(batch.retryable.as_ref(), !statement.single)?;
        let run = |key| loop {
            let own = scope.collated(statement.collation.as_ref());
            let request = parse(statement.filter, statement.single, statement.hint.clone(), &own);
            let outcome = request
                .and_then(|request| call.server.database.delete_retryable(&own, &request, key, progress));
            match outcome {
                // The latest catalog may have another collation for the collection.
                Err(error) if error.code() == ErrorCode::StaleConfig => *scope = scope_of(call)?,
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
