//! findAndModify: changes or removes one document and returns its old or new version.

use super::retryable::RetryRecorder;
use super::update::{UpdateRequest, retry_upsert};
use super::{RETRIES_MAX, TargetDocument, during, too_many_retries};
use crate::catalog::collection::Collection;
use crate::changes::retry_record::RetryKey;
use crate::database::Database;
use crate::plan::{Hint, Read, note_sort_key, required_metadata};
use crate::scope::Scope;
use base::Result;
use base::bson::{DocumentBuf, DocumentCow, Value, ValueBuf};
use query::matcher::Matcher;
use query::{Interrupt, Row, SortPattern};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use storage::store::Committed;

/// Name of the statement in error messages.
const NAME: &str = "findAndModify";

/// A parsed findAndModify.
pub struct FindAndModifyRequest {
    /// Filter of the document.
    pub matcher: Arc<Matcher>,
    /// Sort that selects one of several matching documents.
    pub sort: Option<SortPattern>,
    /// Index hint.
    pub hint: Option<Hint>,
    /// The change.
    pub action: Action,
}

/// The change that findAndModify makes to the document.
pub enum Action {
    /// Removes the document and returns it.
    Remove,
    /// Updates the document and returns the old or the new version.
    Update {
        /// The update, with the same filter and sort.
        request: Box<UpdateRequest>,
        /// Returns the new version.
        return_new: bool,
    },
}

/// Result of a findAndModify.
#[derive(Default)]
pub struct FindAndModifyOutcome {
    /// The document to return, before the projection.
    pub value: Option<Row>,
    /// The array position for a positional projection of `value`.
    pub n: u64,
    /// True if a document was updated, false after an insert or without a match.
    pub updated_existing: bool,
    /// The `_id` of the inserted document.
    pub upserted: Option<ValueBuf>,
    /// The commit.
    pub committed: Option<Committed>,
}

/// Converts an outcome to the command's answer, which a retryable statement records.
pub type ReplyBuilder<'a> = &'a dyn Fn(&FindAndModifyOutcome) -> Result<DocumentBuf>;

impl Database {
    /// Runs a findAndModify. A retryable statement records its answer with the commit.
    ///
    /// Errors: errors of the read and of the change; 40218 and BadValue for unavailable metadata.
    pub fn find_and_modify(
        &self,
        scope: &Scope,
        request: &FindAndModifyRequest,
        retry: Option<(RetryKey, ReplyBuilder<'_>)>,
    ) -> Result<FindAndModifyOutcome> {
        let Scope { operation, context, .. } = scope;
        let retry = retry.filter(|(key, _)| self.recorded_key(Some(*key)).is_some());
        // The projection may use metadata of the found document.
        let sort = request.sort.as_ref();
        let metadata = required_metadata(&request.matcher, sort, context)?;
        for _ in 0..RETRIES_MAX {
            operation.check()?;
            let read = Read { metadata, ..request.read() };
            let mut found = self.first_match(scope, read, Some(NAME))?;
            if let Some((_, record)) = &mut found {
                note_sort_key(record, sort, context)?;
            }
            let record = found.as_ref().map(|(_, record)| record);
            let recorder = |before: Option<&DocumentCow>, after: Option<&DocumentCow>| {
                let Some((key, answer)) = retry else { return Ok(None) };
                answer(&request.outcome(record, before, after)).map(|answer| Some((key, answer)))
            };
            let outcome = match &found {
                Some((collection, record)) => self.change_one(scope, collection, record, request, &recorder),
                None => self.insert_instead(scope, request, &recorder),
            };
            if let Some(outcome) = during(NAME, outcome)? {
                return Ok(outcome);
            }
        }
        Err(too_many_retries())
    }

    /// Changes the found document. Returns `None` if it no longer matches.
    fn change_one(
        &self,
        scope: &Scope,
        collection: &Arc<Collection>,
        record: &Row,
        request: &FindAndModifyRequest,
        recorder: &RetryRecorder<'_>,
    ) -> Result<Option<FindAndModifyOutcome>> {
        // The new document and the reply.
        scope.operation.reserve_required(2 * record.document.view().bytes().len())?;
        let (before, after, committed) = match &request.action {
            Action::Remove => {
                let target = TargetDocument::new(collection, record);
                let removed = self.delete_record(scope, target, &request.matcher, recorder)?;
                let Some((before, committed)) = removed else { return Ok(None) };
                self.counters.documents_deleted.fetch_add(1, Relaxed);
                (before, None, Some(committed))
            }
            Action::Update { request: update, .. } => {
                let change = self.update_record(scope, collection, record, update, recorder)?;
                let Some(change) = change else { return Ok(None) };
                self.counters.documents_updated.fetch_add(u64::from(change.after.is_some()), Relaxed);
                (change.before, change.after, change.committed)
            }
        };
        let outcome = request.outcome(Some(record), Some(&before), after.as_ref());
        Ok(Some(FindAndModifyOutcome { committed, ..outcome }))
    }

    /// Inserts a document if the request is an upsert. Returns `None` if another client inserted it
    /// first.
    fn insert_instead(
        &self,
        scope: &Scope,
        request: &FindAndModifyRequest,
        recorder: &RetryRecorder<'_>,
    ) -> Result<Option<FindAndModifyOutcome>> {
        let Action::Update { request: update, .. } = &request.action else {
            return Ok(Some(FindAndModifyOutcome::default()));
        };
        match self.upsert(scope, update, recorder) {
            Err(error) if retry_upsert(&error, update) => Ok(None),
            Err(error) => Err(error),
            Ok((upserted, document)) => {
                let outcome = request.outcome(None, None, document.as_ref());
                Ok(Some(FindAndModifyOutcome { committed: upserted.committed, ..outcome }))
            }
        }
    }
}

impl FindAndModifyRequest {
    /// Returns the outcome for one record, from its document before and after the change.
    fn outcome(
        &self,
        record: Option<&Row>,
        before: Option<&DocumentCow>,
        after: Option<&DocumentCow>,
    ) -> FindAndModifyOutcome {
        let new = matches!(self.action, Action::Update { return_new: true, .. });
        let Some(before) = before else {
            let id = |after: &DocumentCow| after.view().get("_id").unwrap_or(Value::Null).to_owned();
            return FindAndModifyOutcome {
                n: u64::from(after.is_some()),
                value: after.filter(|_| new).cloned().map(Row::from),
                upserted: after.map(id),
                ..FindAndModifyOutcome::default()
            };
        };
        let value = after.filter(|_| new).unwrap_or(before).clone();
        FindAndModifyOutcome {
            n: 1,
            value: Some(match record {
                Some(record) => record.copy(value),
                None => value.into(),
            }),
            updated_existing: matches!(self.action, Action::Update { .. }),
            ..FindAndModifyOutcome::default()
        }
    }

    pub(crate) fn read(&self) -> Read {
        Read {
            sort: self.sort.clone().map(Arc::new),
            hint: self.hint.clone(),
            limit: 1,
            ..Read::new(self.matcher.clone())
        }
    }
}
