//! findAndModify: change or remove one document and return it, before or after.

use super::retryable::Remember;
use super::update::{UpdateRequest, retry_upsert};
use super::{RETRIES_MAX, during, too_many_retries};
use crate::collection::Collection;
use crate::commit::Committed;
use crate::database::Database;
use crate::exec::Record;
use crate::plan::{Hint, Read, note, note_none, wanted};
use crate::retry_record::RetryKey;
use crate::scope::Scope;
use base::Result;
use base::bson::{DocumentBuf, DocumentCow, Value, ValueBuf};
use query::matcher::Matcher;
use query::{Interrupt, SortPattern};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// What messages call the statement.
const NAME: &str = "findAndModify";

/// One findAndModify, parsed.
pub struct FindAndModifyRequest {
    /// Which document.
    pub matcher: Arc<Matcher>,
    /// Which of those that match comes first.
    pub sort: Option<SortPattern>,
    /// The index to use.
    pub hint: Option<Hint>,
    /// What to do with it.
    pub action: Action,
}

/// What findAndModify does with the document it finds.
pub enum Action {
    /// Removes it and returns it.
    Remove,
    /// Updates it and returns it as it was, or as it is.
    Update {
        /// The update, with the same filter and sort.
        request: Box<UpdateRequest>,
        /// Returns it as it is after the update.
        return_new: bool,
    },
}

/// What findAndModify did.
#[derive(Default)]
pub struct FindAndModifyOutcome {
    /// The document to return, not yet projected.
    pub value: Option<DocumentCow>,
    /// The position that a positional projection of `value` means.
    pub n: u64,
    /// Whether a document was updated (rather than inserted or not found).
    pub updated_existing: bool,
    /// The `_id` of the document that was inserted.
    pub upserted: Option<ValueBuf>,
    /// The commit.
    pub committed: Option<Committed>,
}

/// Makes of an outcome what the command answers, which is what a retryable one records.
pub type AnswerOf<'a> = &'a dyn Fn(&FindAndModifyOutcome) -> Result<DocumentBuf>;

impl Database {
    /// Runs a findAndModify; a retryable one records its answer with the commit.
    ///
    /// Errors: those of reads and of the change; 40218 and BadValue for metadata that the document won't have.
    pub fn find_and_modify(
        &self,
        scope: &Scope,
        request: &FindAndModifyRequest,
        retry: Option<(RetryKey, AnswerOf<'_>)>,
    ) -> Result<FindAndModifyOutcome> {
        let Scope { operation, context, .. } = scope;
        let retry = retry.filter(|(key, _)| self.kept(Some(*key)).is_some());
        let remember = |before: Option<&DocumentCow>, after: Option<&DocumentCow>| {
            let Some((key, answer)) = retry else { return Ok(None) };
            answer(&request.outcome(before, after)).map(|answer| Some((key, answer)))
        };
        // What is returned may be projected by what is known of the document that was found.
        let sort = request.sort.as_ref();
        let metadata = wanted(&request.matcher, sort, context)?;
        for _ in 0..RETRIES_MAX {
            operation.check()?;
            let read = Read { metadata, ..request.read() };
            let outcome = match self.first_match(scope, read, Some(NAME))? {
                Some((collection, record)) => {
                    if context.metadata.wants_any() {
                        note(&record, sort, context)?;
                    }
                    self.change_one(scope, &collection, &record, request, &remember)
                }
                None => {
                    note_none(context);
                    self.insert_instead(scope, request, &remember)
                }
            };
            if let Some(outcome) = during(NAME, outcome)? {
                return Ok(outcome);
            }
        }
        Err(too_many_retries())
    }

    /// Changes the document that was found; `None` where it is no longer the one.
    fn change_one(
        &self,
        scope: &Scope,
        collection: &Arc<Collection>,
        record: &Record,
        request: &FindAndModifyRequest,
        remember: &Remember<'_>,
    ) -> Result<Option<FindAndModifyOutcome>> {
        let (before, after, committed) = match &request.action {
            Action::Remove => {
                let gone = self.delete_record(scope, collection, record, &request.matcher, remember)?;
                let Some((before, committed)) = gone else { return Ok(None) };
                self.counters.documents_deleted.fetch_add(1, Relaxed);
                (before, None, Some(committed))
            }
            Action::Update { request: update, .. } => {
                let change = self.update_record(scope, collection, record, update, remember)?;
                let Some(change) = change else { return Ok(None) };
                self.counters.documents_updated.fetch_add(u64::from(change.after.is_some()), Relaxed);
                (change.before, change.after, change.committed)
            }
        };
        let outcome = request.outcome(Some(&before), after.as_ref());
        Ok(Some(FindAndModifyOutcome { committed, ..outcome }))
    }

    /// Inserts where nothing was found, if that is asked for; `None` where somebody else did.
    fn insert_instead(
        &self,
        scope: &Scope,
        request: &FindAndModifyRequest,
        remember: &Remember<'_>,
    ) -> Result<Option<FindAndModifyOutcome>> {
        let Action::Update { request: update, .. } = &request.action else {
            return Ok(Some(FindAndModifyOutcome::default()));
        };
        match self.upsert(scope, update, remember) {
            Err(error) if retry_upsert(&error, update) => Ok(None),
            Err(error) => Err(error),
            Ok((upserted, document)) => {
                let outcome = request.outcome(None, document.as_ref());
                Ok(Some(FindAndModifyOutcome { committed: upserted.committed, ..outcome }))
            }
        }
    }
}

impl FindAndModifyRequest {
    /// What became of one document, given before and after: removed, changed or not, or inserted.
    fn outcome(&self, before: Option<&DocumentCow>, after: Option<&DocumentCow>) -> FindAndModifyOutcome {
        let new = matches!(self.action, Action::Update { return_new: true, .. });
        let Some(before) = before else {
            let id = |after: &DocumentCow| after.view().get("_id").unwrap_or(Value::Null).to_owned();
            return FindAndModifyOutcome {
                n: u64::from(after.is_some()),
                value: after.filter(|_| new).cloned(),
                upserted: after.map(id),
                ..FindAndModifyOutcome::default()
            };
        };
        FindAndModifyOutcome {
            n: 1,
            value: Some(after.filter(|_| new).unwrap_or(before).clone()),
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
