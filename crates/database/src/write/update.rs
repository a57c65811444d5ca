//! Updates: find, change and store documents, or insert a document from the filter.
//!
//! Every update of a document goes through [`Database::add_update`]; a new check of updated documents belongs there.
//! Update operators are in the crate `query`.

use super::retryable::{RetryRecorder, no_record};
use super::source::{Source, WriteProgress};
use super::{
    InsertRequest, RETRIES_MAX, TargetDocument, changed_keys_of, check_writable_within, during,
    feature_version, too_many_retries,
};
use crate::catalog::collection::Collection;
use crate::changes::Changes;
use crate::changes::retry_record::RetryKey;
use crate::database::Database;
use crate::index::shown;
use crate::plan::{Hint, Read, read_missing};
use crate::scope::Scope;
use base::bson::{Builder, Document, DocumentCow, Element, Path, Value, ValueBuf};
use base::{ErrorCode, Result};
use query::matcher::{Matcher, Node};
use query::{Collation, Interrupt, Row, SortPattern, Update};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use storage::store::Committed;

/// Name of the statement in error messages.
const UPDATE: &str = "update";

/// A parsed update statement.
pub struct UpdateRequest {
    /// Filter of the documents.
    pub matcher: Arc<Matcher>,
    /// The update.
    pub update: Arc<Update>,
    /// Updates all matching documents instead of one.
    pub multi: bool,
    /// Inserts a document from filter and update if no document matches.
    pub upsert: bool,
    /// Sort that selects one of several matching documents.
    pub sort: Option<SortPattern>,
    /// Index hint.
    pub hint: Option<Hint>,
    /// Skips the collection's validator.
    pub bypass_validation: bool,
}

/// Result of an update.
#[derive(Default, Debug)]
pub struct UpdateOutcome {
    /// Number of matching documents.
    pub matched: u64,
    /// Number of documents whose bytes changed.
    pub modified: u64,
    /// The `_id` of the inserted document.
    pub upserted: Option<ValueBuf>,
    /// The last commit.
    pub committed: Option<Committed>,
}

/// The versions of a document before and after an update.
pub(crate) struct Change {
    /// The version before.
    pub before: DocumentCow,
    /// The version after; `None` if the update changed nothing.
    pub after: Option<DocumentCow>,
    /// The commit, if the update wrote.
    pub committed: Option<Committed>,
}

/// Result of adding an update to changes.
enum Added {
    /// The record no longer matches.
    NoMatch,
    /// The update changes nothing.
    Same,
    /// The version after the update.
    Changed(DocumentCow),
}

impl Database {
    /// Runs an update statement.
    ///
    /// Errors: errors of update operators, DuplicateKey, DocumentValidationFailure, ImmutableField,
    /// interruption of the operation.
    pub fn update(&self, scope: &Scope, request: &UpdateRequest) -> Result<UpdateOutcome> {
        self.update_retryable(scope, request, None, &mut WriteProgress::default())
    }

    /// Runs an update statement and records the answer of a retryable one. Updates of many
    /// documents are not retryable. `progress` is kept while the statement is suspended.
    pub fn update_retryable(
        &self,
        scope: &Scope,
        request: &UpdateRequest,
        retry: Option<RetryKey>,
        progress: &mut WriteProgress,
    ) -> Result<UpdateOutcome> {
        let Scope { operation, .. } = scope;
        if request.multi {
            return self.update_many(scope, request, progress);
        }
        let retry = self.recorded_key(retry);
        let recorder = |before: Option<&DocumentCow>, after: Option<&DocumentCow>| {
            Ok(retry.map(|key| (key, UpdateOutcome::of(before, after).to_answer())))
        };
        for _ in 0..RETRIES_MAX {
            operation.check()?;
            let Some((collection, record)) = self.first_match(scope, request.read(), Some(UPDATE))? else {
                match self.upsert(scope, request, &recorder) {
                    // Another client inserted the document. The next attempt updates it.
                    Err(error) if retry_upsert(&error, request) => continue,
                    outcome => return during(UPDATE, outcome).map(|(outcome, _)| outcome),
                }
            };
            let change = self.update_record(scope, &collection, &record, request, &recorder);
            let Some(change) = during(UPDATE, change)? else { continue };
            let mut outcome = UpdateOutcome::default();
            outcome.add(&change);
            self.counters.documents_updated.fetch_add(outcome.modified, Relaxed);
            return Ok(outcome);
        }
        Err(too_many_retries())
    }

    fn update_many(
        &self,
        scope: &Scope,
        request: &UpdateRequest,
        progress: &mut WriteProgress,
    ) -> Result<UpdateOutcome> {
        let Scope { operation, .. } = scope;
        let source = match progress.take() {
            Some(source) => Some(source),
            None => Source::open(self, scope, request.read())?,
        };
        let Some(mut source) = source else {
            return Ok(during(UPDATE, self.upsert(scope, request, &no_record))?.0);
        };
        let collection = source.collection.clone();
        let group = |group: &[Row]| match self.updates_of(scope, &collection, group, request) {
            Ok(Some((mut changes, modified))) => {
                let committed = if modified > 0 { self.apply(operation, &mut changes)? } else { None };
                let matched = group.len() as u64;
                let outcome = UpdateOutcome { matched, modified, upserted: None, committed };
                Ok((modified == 0 || committed.is_some()).then_some(outcome))
            }
            Ok(None) | Err(_) => Ok(None),
        };
        let one = |record: &Row| {
            let change = self.update_record(scope, &collection, record, request, &no_record)?;
            let mut outcome = UpdateOutcome::default();
            change.iter().for_each(|change| outcome.add(change));
            Ok(outcome)
        };
        // A commit to a remote store takes a round trip.
        let in_groups = self.store.known_generation().is_some();
        if let Err(error) = during(UPDATE, source.change_all(operation, in_groups, &group, &one)) {
            return Err(progress.keep(source, error));
        }
        if source.outcome.matched > 0 {
            self.counters.documents_updated.fetch_add(source.outcome.modified, Relaxed);
            return Ok(source.outcome);
        }
        match during(UPDATE, self.upsert(scope, request, &no_record)) {
            Ok((outcome, _)) => Ok(outcome),
            Err(error) => Err(progress.keep(source, error)),
        }
    }

    /// Returns the changes that update several records, and the number of records that change. Returns `None` if a
    /// unique key changes, since the order of the updates decides about duplicates.
    fn updates_of(
        &self,
        scope: &Scope,
        planned: &Arc<Collection>,
        group: &[Row],
        request: &UpdateRequest,
    ) -> Result<Option<(Changes, u64)>> {
        let (mut changes, mut modified) = (Changes::new(self.logs()), 0);
        for record in group {
            match self.add_update(scope, &TargetDocument::new(planned, record), request, &mut changes)? {
                Added::NoMatch => return Ok(None),
                Added::Same => {}
                Added::Changed(_) => modified += 1,
            }
        }
        Ok((!changes.adds_unique_keys()).then_some((changes, modified)))
    }

    /// Returns the first record of a read on a new view. `statement` is the name in error messages.
    pub(crate) fn first_match(
        &self,
        scope: &Scope,
        read: Read,
        statement: Option<&str>,
    ) -> Result<Option<(Arc<Collection>, Row)>> {
        let Scope { operation, namespace, context, .. } = scope;
        let view = self.view_for(operation);
        let Some(collection) = view.catalog.get(namespace).cloned() else {
            return self.confirmed(&view, read_missing(operation, &read.matcher, namespace).map(|()| None));
        };
        let records = self.read(operation, &view, &collection, Read { alone: true, ..read }, context);
        let mut records = self.confirmed(&view, records)?;
        let record = operation.run(|| records.next());
        let record = match statement {
            Some(statement) => during(statement, record)?,
            None => record?,
        };
        Ok(record.map(|record| (collection, record)))
    }

    /// Updates one record that a plan found. Returns `None` if it is gone or no longer matches.
    pub(crate) fn update_record(
        &self,
        scope: &Scope,
        planned: &Arc<Collection>,
        record: &Row,
        request: &UpdateRequest,
        recorder: &RetryRecorder<'_>,
    ) -> Result<Option<Change>> {
        let Scope { operation, .. } = scope;
        let mut target = TargetDocument::new(planned, record);
        loop {
            let _ticket = target.queue(self, operation)?;
            if target.is_stale() && !target.read_again(self, operation)? {
                return Ok(None);
            }
            let before = || DocumentCow::Shared(target.document.to_shared());
            let mut changes = Changes::new(self.logs());
            let after = match self.add_update(scope, &target, request, &mut changes)? {
                Added::NoMatch => return Ok(None),
                Added::Same => return Ok(Some(Change { before: before(), after: None, committed: None })),
                Added::Changed(after) => after,
            };
            let answer = recorder(Some(&before()), Some(&after))?;
            self.record_retry(&mut changes, answer.as_ref().map(|(key, answer)| (*key, answer.view())))?;
            if let Some(committed) = self.apply(operation, &mut changes)? {
                return Ok(Some(Change { before: before(), after: Some(after), committed: Some(committed) }));
            }
            operation.check()?;
            target.note_conflict();
        }
    }

    /// Adds the update of a record to changes.
    fn add_update(
        &self,
        scope: &Scope,
        target: &TargetDocument,
        request: &UpdateRequest,
        changes: &mut Changes,
    ) -> Result<Added> {
        let Scope { operation, context, .. } = scope;
        let before = Document::from_valid(&target.document);
        let position = if request.update.needs_position() || target.is_changed() {
            let Some(matched) = request.matcher.matches_at(before, context)? else {
                return Ok(Added::NoMatch);
            };
            matched.position
        } else {
            None
        };
        let Some(after) = request.update.apply(before, position, false, context)? else {
            return Ok(Added::Same);
        };
        let collection = &target.collection;
        if let Some(validator) = &collection.options.validator {
            validator.check(after.view(), Some(before), request.bypass_validation, context)?;
        }
        feature_version::check_write(collection, after.view(), context)?;
        let (old_keys, new_keys) = changed_keys_of(collection, before, after.view(), context)?;
        check_writable_within(operation, collection)?;
        self.set_multikey(operation, collection, &new_keys)?;
        let diff = match self.logs() {
            true => request.update.diff(before, after.view(), position, context)?,
            false => None,
        };
        let bytes: Arc<[u8]> = after.into_bytes().into();
        let keys = (&old_keys[..], &new_keys[..]);
        changes.update(collection, target.id, &target.document, bytes.clone(), keys, diff)?;
        // The changes have copies of the keys, which may take much memory.
        operation.check()?;
        Ok(Added::Changed(DocumentCow::Shared(bytes)))
    }

    /// Inserts the document described by filter and update if the request is an upsert.
    pub(crate) fn upsert(
        &self,
        scope: &Scope,
        request: &UpdateRequest,
        recorder: &RetryRecorder<'_>,
    ) -> Result<(UpdateOutcome, Option<DocumentCow>)> {
        let Scope { context, .. } = scope;
        if !request.upsert {
            return Ok((UpdateOutcome::default(), None));
        }
        let described = request.update.upsert(&request.matcher, context)?;
        let document = match described.view().find("_id") {
            Some(_) => described,
            None => {
                let mut out = Builder::new();
                out.append(c"_id", self.new_object_id_at(context.now_millis)).append_all(described.view());
                out.finish()
            }
        };
        let document = DocumentCow::Owned(document);
        let insert =
            InsertRequest { document: document.view(), bypass_validation: request.bypass_validation };
        let record = recorder(None, Some(&document))?;
        let record = record.as_ref().map(|(key, answer)| (*key, answer.view()));
        // A replacement has replaced its empty timestamps. Those of operators and pipelines stay.
        let scope = scope.clone().keep_empty_timestamps(true);
        let committed = Some(self.insert_retryable(&scope, insert, record)?);
        Ok((UpdateOutcome { committed, ..UpdateOutcome::of(None, Some(&document)) }, Some(document)))
    }
}

/// Returns true if a failed upsert can be retried as an update: another client inserted the same
/// key between the read and the insert. The filter must be an equality on that key alone. Otherwise
/// the existing document might never match.
pub(crate) fn retry_upsert(error: &base::Error, request: &UpdateRequest) -> bool {
    if error.code() != ErrorCode::DuplicateKey {
        return false;
    }
    let Some(key) = error.info().and_then(|info| info.get("keyValue")).and_then(|v| v.as_document()) else {
        return false;
    };
    let Ok(equalities) = request.matcher.equalities() else { return false };
    let conditions = match request.matcher.root() {
        Node::And(children) => children.len(),
        _ => 1,
    };
    let collation = error.info().and_then(|info| info.get("collation")).and_then(|v| v.as_document());
    let collation = match collation.map(|collation| Collation::parse(collation, "collation")) {
        Some(collation) => collation.unwrap_or_default(),
        None => Collation::SIMPLE,
    };
    if collation != *request.matcher.collation() {
        return false;
    }
    let is_in_filter = |field: Element<'_>| {
        let same = |(path, operand): &(&Path, Value<'_>)| {
            let operand = shown(*operand, &collation);
            path.as_str() == field.name()
                && operand.is_ok_and(|operand| base::bson::equal(operand.view(), field.value()))
        };
        equalities.iter().any(same)
    };
    let fields = key.iter().count();
    equalities.len() == fields && conditions == fields && key.iter().all(is_in_filter)
}

impl UpdateRequest {
    /// Returns the read that finds the documents.
    pub(crate) fn read(&self) -> Read {
        Read {
            sort: self.sort.clone().map(Arc::new),
            hint: self.hint.clone(),
            limit: if self.multi { 0 } else { 1 },
            ..Read::new(self.matcher.clone())
        }
    }
}

impl UpdateOutcome {
    /// Returns the outcome for one document: updated, or inserted if `before` is `None`.
    fn of(before: Option<&DocumentCow>, after: Option<&DocumentCow>) -> UpdateOutcome {
        let Some(_) = before else {
            let upserted = after.map(|after| after.view().get("_id").unwrap_or(Value::Null).to_owned());
            return UpdateOutcome { upserted, ..UpdateOutcome::default() };
        };
        UpdateOutcome { matched: 1, modified: u64::from(after.is_some()), ..UpdateOutcome::default() }
    }

    fn add(&mut self, change: &Change) {
        self.matched += 1;
        self.modified += u64::from(change.after.is_some());
        self.committed = change.committed.or(self.committed);
    }

    /// Adds the outcome of later documents of the same statement.
    pub(super) fn join(&mut self, later: UpdateOutcome) {
        self.matched += later.matched;
        self.modified += later.modified;
        self.committed = later.committed.or(self.committed);
    }
}
