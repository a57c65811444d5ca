//! findAndModify: change or remove one document and return it, before or after.

use super::update::{UpdateRequest, retry_upsert};
use super::{RETRIES_MAX, too_many_retries};
use crate::commit::Committed;
use crate::database::Database;
use crate::operation::Operation;
use crate::plan::{Hint, Read};
use base::bson::{DocumentCow, ValueBuf};
use base::{Namespace, Result};
use query::matcher::Matcher;
use query::{Context, Interrupt, SortPattern};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

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

impl Database {
    /// Runs a findAndModify.
    pub fn find_and_modify(
        &self,
        operation: &Arc<Operation>,
        namespace: &Namespace,
        request: &FindAndModifyRequest,
        context: &Arc<Context>,
    ) -> Result<FindAndModifyOutcome> {
        for _ in 0..RETRIES_MAX {
            operation.check()?;
            let found = self.first_match(operation, namespace, request.read(), context)?;
            let Some((collection, record)) = found else {
                let Action::Update { request: update, return_new } = &request.action else {
                    return Ok(FindAndModifyOutcome::default());
                };
                match self.upsert(namespace, update, context) {
                    Err(error) if retry_upsert(&error, update) => continue,
                    Err(error) => return Err(error),
                    Ok((outcome, document)) => {
                        return Ok(FindAndModifyOutcome {
                            n: u64::from(outcome.upserted.is_some()),
                            value: document.filter(|_| *return_new).map(DocumentCow::Owned),
                            updated_existing: false,
                            upserted: outcome.upserted,
                            committed: outcome.committed,
                        });
                    }
                }
            };
            let outcome = match &request.action {
                Action::Remove => {
                    let deleted = self.delete_record(&collection, &record, &request.matcher, context)?;
                    deleted.map(|(document, committed)| {
                        self.counters.documents_deleted.fetch_add(1, Relaxed);
                        FindAndModifyOutcome {
                            n: 1,
                            value: Some(document),
                            committed: Some(committed),
                            ..FindAndModifyOutcome::default()
                        }
                    })
                }
                Action::Update { request: update, return_new } => {
                    self.update_record(&collection, &record, update, context)?.map(|change| {
                        let after = if *return_new { change.after.clone() } else { None };
                        self.counters.documents_updated.fetch_add(u64::from(change.after.is_some()), Relaxed);
                        FindAndModifyOutcome {
                            n: 1,
                            value: Some(after.unwrap_or(change.before)),
                            updated_existing: true,
                            upserted: None,
                            committed: change.committed,
                        }
                    })
                }
            };
            if let Some(outcome) = outcome {
                return Ok(outcome);
            }
        }
        Err(too_many_retries())
    }
}

impl FindAndModifyRequest {
    pub(crate) fn read(&self) -> Read {
        Read {
            sort: self.sort.clone().map(Arc::new),
            hint: self.hint.clone(),
            limit: 1,
            ..Read::new(self.matcher.clone())
        }
    }
}
