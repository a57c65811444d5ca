//! Deletes of one document, of many documents, or of a whole collection at once.

use super::retryable::{RetryRecorder, delete_answer, no_record};
use super::source::{Source, WriteProgress};
use super::update::UpdateOutcome;
use super::{RETRIES_MAX, TargetDocument, check_writable_within, feature_version, keys_of, too_many_retries};
use crate::catalog::collection::Collection;
use crate::catalog::history::View;
use crate::changes::Changes;
use crate::changes::retry_record::RetryKey;
use crate::database::Database;
use crate::operation::Operation;
use crate::plan::{Hint, Read, read_missing};
use crate::scope::Scope;
use base::bson::{Document, DocumentCow};
use base::{ErrorCode, Namespace, Result};
use query::matcher::Matcher;
use query::{Interrupt, Row};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use storage::store::Committed;

/// A parsed delete statement.
pub struct DeleteRequest {
    /// Filter of the documents.
    pub matcher: Arc<Matcher>,
    /// Deletes one document instead of all matching documents.
    pub single: bool,
    /// Index hint.
    pub hint: Option<Hint>,
}

impl Database {
    /// Runs a delete statement. Returns the number of deleted documents and the last commit.
    ///
    /// The cost of deleting all documents does not depend on their number.
    pub fn delete(&self, scope: &Scope, request: &DeleteRequest) -> Result<(u64, Option<Committed>)> {
        self.delete_retryable(scope, request, None, &mut WriteProgress::default())
    }

    /// Runs a delete statement and records the answer of a retryable one. Deletes of many documents
    /// are not retryable. `progress` is kept while the statement is suspended.
    pub fn delete_retryable(
        &self,
        scope: &Scope,
        request: &DeleteRequest,
        retry: Option<RetryKey>,
        progress: &mut WriteProgress,
    ) -> Result<(u64, Option<Committed>)> {
        let Scope { operation, namespace, .. } = scope;
        if request.single {
            let retry = self.recorded_key(retry);
            let recorder = |_: Option<&_>, _: Option<&_>| Ok(retry.map(|key| (key, delete_answer(1))));
            return self.delete_one(scope, request, &recorder);
        }
        if request.matcher.is_empty()
            && request.hint.is_none()
            && progress.is_empty()
            && let Some(outcome) = self.delete_all(operation, namespace)?
        {
            return Ok(outcome);
        }
        let source = match progress.take() {
            Some(source) => Some(source),
            None => Source::open(self, scope, request.read())?,
        };
        let Some(mut source) = source else {
            let view = self.view_for(operation);
            return self
                .confirmed(&view, read_missing(operation, &request.matcher, namespace).map(|()| (0, None)));
        };
        if let Err(error) = self.delete_found(scope, request, &mut source, false) {
            return Err(progress.keep(source, error));
        }
        let UpdateOutcome { matched, committed, .. } = source.outcome;
        self.counters.documents_deleted.fetch_add(matched, Relaxed);
        Ok((matched, committed))
    }

    /// Deletes the matching documents of a collection until it changes: a caller that derives the filter from the
    /// collection must then do so again. Returns their number, and false after a change.
    pub(crate) fn delete_until_changed(
        &self,
        scope: &Scope,
        request: &DeleteRequest,
        view: &View,
        collection: &Arc<Collection>,
    ) -> Result<(u64, bool)> {
        let mut source = Source::over(self, scope, view, collection.clone(), request.read())?;
        let has_changed = || {
            let now = self.collection(&collection.namespace);
            now.is_none_or(|now| now.generation != collection.generation)
        };
        let is_unchanged = match self.delete_found(scope, request, &mut source, true) {
            Err(error) if error.code() == ErrorCode::QueryPlanKilled && has_changed() => false,
            ended => ended.map(|()| true)?,
        };
        self.counters.documents_deleted.fetch_add(source.outcome.matched, Relaxed);
        Ok((source.outcome.matched, is_unchanged))
    }

    /// Deletes the documents that a plan finds.
    ///
    /// Errors: as [`Source::change_all`]; QueryPlanKilled after a change of the collection, if it `must_stay`.
    fn delete_found(
        &self,
        scope: &Scope,
        request: &DeleteRequest,
        source: &mut Source,
        must_stay: bool,
    ) -> Result<()> {
        let operation = &scope.operation;
        let collection = source.collection.clone();
        let deleted =
            |count, committed| UpdateOutcome { matched: count, committed, ..UpdateOutcome::default() };
        let group = |group: &[Row]| match self.deletes_of(scope, &collection, group) {
            Ok(mut changes) => {
                let committed = self.apply(operation, &mut changes)?;
                Ok(committed.map(|committed| deleted(group.len() as u64, Some(committed))))
            }
            Err(_) => Ok(None),
        };
        let one = |record: &Row| {
            let target = TargetDocument { must_stay, ..TargetDocument::new(&collection, record) };
            let done = self.delete_record(scope, target, &request.matcher, &no_record)?;
            Ok(deleted(u64::from(done.is_some()), done.map(|(_, committed)| committed)))
        };
        source.change_all(operation, true, &group, &one)
    }

    /// Returns the changes that delete several records.
    fn deletes_of(&self, scope: &Scope, planned: &Arc<Collection>, group: &[Row]) -> Result<Changes> {
        let Scope { operation, context, .. } = scope;
        check_writable_within(operation, planned)?;
        let mut changes = Changes::new(self.logs());
        for record in group {
            let target = TargetDocument::new(planned, record);
            let document = Document::from_valid(&target.document);
            feature_version::check_delete(planned, document)?;
            let keys = keys_of(planned, document, context)?;
            changes.delete(planned, target.id, &target.document, &keys)?;
        }
        Ok(changes)
    }

    fn delete_one(
        &self,
        scope: &Scope,
        request: &DeleteRequest,
        recorder: &RetryRecorder<'_>,
    ) -> Result<(u64, Option<Committed>)> {
        let Scope { operation, .. } = scope;
        for _ in 0..RETRIES_MAX {
            operation.check()?;
            let Some((collection, record)) = self.first_match(scope, request.read(), None)? else {
                return Ok((0, None));
            };
            let target = TargetDocument::new(&collection, &record);
            if let Some((_, committed)) = self.delete_record(scope, target, &request.matcher, recorder)? {
                self.counters.documents_deleted.fetch_add(1, Relaxed);
                return Ok((1, Some(committed)));
            }
        }
        Err(too_many_retries())
    }

    /// Deletes all documents of a collection at once. Returns `None` if the documents must be
    /// deleted one by one: for the log, or because an open transaction has changed some of them.
    fn delete_all(
        &self,
        operation: &Operation,
        namespace: &Namespace,
    ) -> Result<Option<(u64, Option<Committed>)>> {
        // The log has an entry for each document.
        let mut one_by_one =
            operation.transaction().is_some() || self.logs() || feature_version::is_stored_in(namespace);
        if one_by_one {
            return Ok(None);
        }
        let cleared = self.change_catalog(operation, |change| {
            let Some(collection) = change.catalog().get(namespace).cloned() else { return Ok(None) };
            one_by_one = change.is_relied_on(&collection);
            match one_by_one {
                true => Ok(None),
                false => Ok(Some(change.clear(&collection)?).filter(|deleted| *deleted > 0)),
            }
        })?;
        if one_by_one {
            return Ok(None);
        }
        let Some((deleted, committed)) = cleared else { return Ok(Some((0, None))) };
        self.counters.documents_deleted.fetch_add(deleted, Relaxed);
        Ok(Some((deleted, Some(committed))))
    }

    /// Deletes one record that a plan found. Returns `None` if it is gone or no longer matches.
    pub(super) fn delete_record(
        &self,
        scope: &Scope,
        mut target: TargetDocument,
        matcher: &Matcher,
        recorder: &RetryRecorder<'_>,
    ) -> Result<Option<(DocumentCow, Committed)>> {
        let Scope { operation, context, .. } = scope;
        loop {
            let _ticket = target.queue(self, operation)?;
            if target.is_stale() && !target.read_again(self, operation)? {
                return Ok(None);
            }
            let document = Document::from_valid(&target.document);
            if target.is_changed() && !matcher.matches(document, context)? {
                return Ok(None);
            }
            check_writable_within(operation, &target.collection)?;
            feature_version::check_delete(&target.collection, document)?;
            let keys = keys_of(&target.collection, document, context)?;
            let mut changes = Changes::new(self.logs());
            changes.delete(&target.collection, target.id, &target.document, &keys)?;
            let removed = DocumentCow::Shared(target.document.to_shared());
            let answer = recorder(Some(&removed), None)?;
            self.record_retry(&mut changes, answer.as_ref().map(|(key, answer)| (*key, answer.view())))?;
            if let Some(committed) = self.apply(operation, &mut changes)? {
                return Ok(Some((removed, committed)));
            }
            operation.check()?;
            target.note_conflict();
        }
    }
}

impl DeleteRequest {
    pub(crate) fn read(&self) -> Read {
        Read { hint: self.hint.clone(), limit: u64::from(self.single), ..Read::new(self.matcher.clone()) }
    }
}
