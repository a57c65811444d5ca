//! Inserts: `_id` generation, checks, index keys and record ids.
//!
//! Inserts of one command are committed in groups. A group that fails is repeated up to the failed document. The limits
//! of capped collections are enforced here: the commit of an insert removes the oldest documents. If there are too
//! many, earlier commits remove them. A new check of inserted documents belongs to [`check_stored`].
//! `query::update` checks the result of an update.

use super::{check_writable_within, feature_version, keys_of};
use crate::catalog::collection::{Capped, Collection, Data};
use crate::changes::retry_record::RetryKey;
use crate::changes::{Applied, Changes};
use crate::database::Database;
use crate::index::DocumentKeys;
use crate::keys::RecordId;
use crate::operation::Operation;
use crate::scope::Scope;
use crate::storage_error;
use base::bson::{
    Builder, Document, Element, MAX_DOCUMENT_SIZE, MAX_STORED_DEPTH, Type, Value, nested, nests_deeper,
};
use base::{Error, ErrorCode, Namespace, Result, bail, err};
use query::{Context, Interrupt};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use storage::store::Committed;
use storage::{Direction, Range, mutant};

/// A document to insert.
#[derive(Clone, Copy)]
pub struct InsertRequest<'a> {
    /// The document. The server adds an ObjectId if it has no `_id`.
    pub document: Document<'a>,
    /// Skips the collection's validator.
    pub bypass_validation: bool,
}

/// A document to insert and the record of its retryable statement.
#[derive(Clone, Copy)]
pub struct Insertion<'a> {
    /// The document.
    pub request: InsertRequest<'a>,
    /// Key and answer of the statement's record.
    pub record: Option<(RetryKey, Document<'a>)>,
}

/// Result of inserting several documents.
#[derive(Default)]
pub struct Inserted {
    /// Number of inserted documents.
    pub count: usize,
    /// Error of the next document, if not all were inserted.
    pub error: Option<Error>,
    /// The last commit.
    pub committed: Option<Committed>,
}

/// Progress of a write that inserts documents, several in a group. A group is one commit.
///
/// A refused document repeats the work of its group. The group after an error therefore has one document, and each
/// commit doubles the number. Many duplicates thus take linear time.
#[derive(Clone, Copy)]
pub struct InsertProgress {
    /// Maximum number of documents in the next group.
    count_max: usize,
    /// The first statement of a retryable write of several documents.
    write: Option<RetryKey>,
}

impl Default for InsertProgress {
    fn default() -> InsertProgress {
        InsertProgress { count_max: REMOTE_OPERATIONS_MAX, write: None }
    }
}

impl InsertProgress {
    /// Returns the progress of a retryable write that begins with this statement.
    pub fn of_write(first: Option<RetryKey>) -> InsertProgress {
        InsertProgress { write: first, ..InsertProgress::default() }
    }

    fn take<'i, 'a>(self, insertions: &'i [Insertion<'a>]) -> &'i [Insertion<'a>] {
        insertions.get(..self.count_max).unwrap_or(insertions)
    }

    fn grow(&mut self, inserted: usize) {
        self.count_max = self.count_max.max(2 * inserted).min(REMOTE_OPERATIONS_MAX);
    }

    fn reset(&mut self) {
        self.count_max = 1;
    }
}

/// Maximum number of changes of documents and indexes in one commit. A larger commit would delay other clients, and the
/// engine would apply the batch to a copy.
pub(super) const OPERATIONS_MAX: usize = 400;

/// As `OPERATIONS_MAX`, for inserts into a store that takes a round trip for each commit.
const REMOTE_OPERATIONS_MAX: usize = 2000;

/// Maximum size of the documents and index keys of one commit in bytes.
pub(super) const BYTES_MAX: usize = 512 * 1024;

impl Database {
    /// Inserts a document. Creates the collection if it does not exist.
    ///
    /// Errors: DuplicateKey, DocumentValidationFailure, CommandNotSupportedOnView, BadValue for an
    /// invalid type of `_id`, key generation, interrupted waits.
    pub fn insert(&self, scope: &Scope, request: InsertRequest<'_>) -> Result<Committed> {
        self.insert_retryable(scope, request, None)
    }

    /// Inserts a document and records the answer of a retryable statement.
    pub fn insert_retryable(
        &self,
        scope: &Scope,
        request: InsertRequest<'_>,
        record: Option<(RetryKey, Document<'_>)>,
    ) -> Result<Committed> {
        let inserted =
            self.insert_many(scope, &[Insertion { request, record }], &mut InsertProgress::default());
        match inserted.error {
            Some(error) => Err(error),
            None => Ok(inserted.committed.unwrap_or_default()),
        }
    }

    /// Inserts documents in order, several in each commit, up to the first error. A caller that continues after an
    /// error passes the same `progress` again.
    pub fn insert_many(
        &self,
        scope: &Scope,
        insertions: &[Insertion<'_>],
        progress: &mut InsertProgress,
    ) -> Inserted {
        let mut inserted = Inserted::default();
        while let Some(rest) = insertions.get(inserted.count..).filter(|rest| !rest.is_empty()) {
            match self.insert_group(scope, progress.take(rest), progress.write) {
                Ok(group) => {
                    debug_assert!(group.count <= rest.len(), "{} of {} documents", group.count, rest.len());
                    debug_assert!(group.count > 0 || group.error.is_some(), "no progress, and no error");
                    progress.grow(group.count);
                    inserted.count += group.count;
                    inserted.committed = group.committed.or(inserted.committed);
                    inserted.error = group.error;
                }
                Err(error) => inserted.error = Some(error),
            }
            if let Some(error) = &inserted.error {
                // A suspended group is tried again as a whole.
                if error.code() != ErrorCode::LockBusy {
                    progress.reset();
                }
                break;
            }
        }
        self.counters.documents_inserted.fetch_add(inserted.count as u64, Relaxed);
        inserted
    }

    /// Inserts a group of documents in one commit. Returns the error of the document after them, if
    /// any.
    fn insert_group(
        &self,
        scope: &Scope,
        insertions: &[Insertion<'_>],
        write: Option<RetryKey>,
    ) -> Result<Inserted> {
        let Scope { operation, .. } = scope;
        loop {
            let known = self.store.known_generation();
            let inserted = self.insert_known(scope, insertions, write);
            match (&inserted, known) {
                // An error found with an old catalog may not occur with the latest catalog. An unreachable store has
                // been waited for.
                (Err(error), Some(known))
                    if error.code() != ErrorCode::HostUnreachable && self.store.generation() != known =>
                {
                    operation.check()?
                }
                _ => return inserted,
            }
        }
    }

    /// Inserts a group of documents with the catalog known to this process.
    fn insert_known(
        &self,
        scope: &Scope,
        insertions: &[Insertion<'_>],
        write: Option<RetryKey>,
    ) -> Result<Inserted> {
        let Scope { operation, context, .. } = scope;
        let write = write.filter(|_| self.shares_retries() && is_run(insertions));
        let mut count_max = insertions.len();
        let mut failure: Option<Error> = None;
        loop {
            operation.check()?;
            let planned = self.collection_for(scope, insertions)?;
            check_writable_within(operation, &planned)?;
            let data = planned.data()?;
            // A tailable cursor continues after the last record. Records must therefore be
            // committed in the order of their ids.
            let _ticket = match planned.options.capped {
                Some(_) => Some(self.write_queues.take(
                    data.ident,
                    RecordId(0),
                    (operation.as_ref(), self.blocking_hook()),
                )?),
                None => None,
            };
            let per_commit = self.documents_per_commit(&planned, data);
            let mut changes = Changes::new(self.logs());
            let (mut count, mut bytes) = (0, 0);
            let (mut refused, mut must_trim) = (None, false);
            let group = insertions.get(..count_max.min(per_commit)).unwrap_or(insertions);
            if group.len() > 1 {
                changes.reserve(group.len(), data);
            }
            for insertion in group {
                match self.add(operation, &mut changes, &planned, (insertion, write.is_some()), context) {
                    Ok(Some(size)) => bytes += size,
                    Ok(None) => {
                        must_trim = true;
                        break;
                    }
                    Err(error) => {
                        refused = Some(error);
                        break;
                    }
                }
                count += 1;
                if bytes > BYTES_MAX {
                    break;
                }
            }
            if must_trim {
                self.apply(operation, &mut changes)?;
                continue;
            }
            if let (Some(write), Some(run), None) = (write, insertions.get(..count), &refused) {
                self.record_run(&mut changes, write, run)?;
            }
            let duplicate = match refused {
                // The changes of the refused document are discarded by starting again.
                Some(error) => Some((count, error)),
                None => match self.apply_several(operation, &mut changes)? {
                    Applied::Committed(committed) => {
                        let error = failure.filter(|_| count == count_max);
                        return Ok(Inserted { count, committed: Some(committed), error });
                    }
                    // The collection was dropped, replaced or changed. The checks and changes are
                    // no longer valid.
                    Applied::Retry => None,
                    Applied::Duplicate(document, error) => Some((document, error)),
                },
            };
            if let Some((document, error)) = duplicate {
                // Documents that leave a capped collection are counted before the inserted
                // document.
                let is_only = per_commit == 1 && !mutant!("duplicates in capped collections are tried again");
                if document == 0 || is_only {
                    return Err(error);
                }
                debug_assert!(
                    document < count_max,
                    "no fewer documents are tried: {document} of {count_max}"
                );
                (count_max, failure) = (document, Some(error));
            }
        }
    }

    /// Returns the collection of an insert, or creates it. An invalid document does not create it.
    fn collection_for(&self, scope: &Scope, insertions: &[Insertion<'_>]) -> Result<Arc<Collection>> {
        let Scope { operation, namespace, context, .. } = scope;
        if let Some(existing) = self.existing_collection(operation, namespace) {
            return Ok(existing);
        }
        insertions.first().map(|first| self.prepare(first.request.document, context)).transpose()?;
        self.collection_or_create(operation, namespace)
    }

    /// Returns the maximum number of documents in a commit.
    fn documents_per_commit(&self, planned: &Collection, data: &Data) -> usize {
        // Two documents with the same key of an index build end the build, not the insert. Separate commits detect such
        // duplicates.
        let builds_unique = data.building.iter().any(|build| build.index.unique());
        if builds_unique || planned.options.capped.is_some() {
            return 1;
        }
        let is_remote = self.store.known_generation().is_some();
        let operations = if is_remote { REMOTE_OPERATIONS_MAX } else { OPERATIONS_MAX };
        (operations / (1 + data.indexes.len())).max(1)
    }

    /// Adds a document to the changes. Returns its size in bytes, with its index keys. A document of a run has no
    /// record of its own.
    ///
    /// Returns `None` if more of the oldest documents must leave a capped collection than one commit can remove. The
    /// changes then only remove documents.
    fn add(
        &self,
        operation: &Operation,
        changes: &mut Changes,
        planned: &Arc<Collection>,
        (Insertion { request, record }, in_run): (&Insertion<'_>, bool),
        context: &Context,
    ) -> Result<Option<usize>> {
        let document = self.prepare(request.document, context)?;
        if let Some(validator) = &planned.options.validator {
            validator.check(Document::from_valid(&document), None, request.bypass_validation, context)?;
        }
        feature_version::check_write(planned, Document::from_valid(&document), context)?;
        let keys = keys_of(planned, Document::from_valid(&document), context)?;
        self.set_multikey(operation, planned, &keys)?;
        let (size, key_bytes) = (document.len(), keys.iter().map(DocumentKeys::bytes).sum::<usize>());
        if let Some(capped) = planned.options.capped
            && !self.remove_oldest_for(operation, changes, planned, capped, size as i64, context)?
        {
            return Ok(None);
        }
        let id = RecordId(self.store.new_record(&planned.data()?.counts));
        changes.insert(planned, id, document, &keys)?;
        match record {
            Some((key, _)) if in_run => changes.set_statement(*key)?,
            record => self.record_retry(changes, *record)?,
        }
        if key_bytes > BYTES_MAX {
            // The changes have copies of the keys.
            operation.check()?;
        }
        Ok(Some(size + key_bytes))
    }

    /// Returns the document for storage: `_id` is first and generated if missing. Empty timestamps
    /// at the top level get a value, unless the context keeps them.
    fn prepare(&self, document: Document<'_>, context: &Context) -> Result<Arc<[u8]>> {
        let is_id = |element: &Element<'_>| element.name_bytes() == b"_id";
        let is_empty_time =
            |element: &Element<'_>| element.kind() == Type::Timestamp && element.value_bytes() == [0; 8];
        let (mut id, mut fills_in) = (None, false);
        for (at, element) in document.iter().enumerate() {
            if !is_id(&element) {
                fills_in |= is_empty_time(&element) && !context.keep_empty_timestamps;
            } else if id.replace((at, element)).is_some() {
                bail!(BadValue, "can't have multiple _id fields in one document");
            }
        }
        let out = || Builder::with_buffer(Vec::with_capacity(document.bytes().len() + 17));
        let stored: Arc<[u8]> = match id {
            Some((0, _)) if !fills_in => document.bytes().into(),
            None if !fills_in => {
                let mut out = out();
                out.append(c"_id", self.new_object_id_at(context.now_millis)).append_all(document);
                out.finish().into_bytes().into()
            }
            _ => {
                let mut out = out();
                match &id {
                    Some((_, id)) => out.append_element(id),
                    None => out.append(c"_id", self.new_object_id_at(context.now_millis)),
                };
                for element in document.iter().filter(|element| !is_id(element)) {
                    if fills_in && is_empty_time(&element) {
                        let now = self.cluster_time().max(self.earliest_cluster_time());
                        out.append(element.field_name(), Value::Timestamp(context.timestamps.next(now)));
                    } else {
                        out.append_element(&element);
                    }
                }
                out.finish().into_bytes().into()
            }
        };
        let document = Document::from_valid(&stored);
        check_stored(document)?;
        Ok(stored)
    }
}

/// Returns true if the statements are consecutive.
fn is_run(insertions: &[Insertion<'_>]) -> bool {
    let statement = |insertion: &Insertion<'_>| insertion.record.map(|(key, _)| key.statement);
    let mut statements = insertions.iter().map(statement);
    let mut last = statements.next().flatten();
    last.is_some()
        && statements.all(|statement| {
            last = last.and_then(|last| last.checked_add(1));
            last.is_some() && last == statement
        })
}

/// Checks an inserted document: its limits and its `_id`.
fn check_stored(document: Document<'_>) -> Result<()> {
    let size = document.bytes().len();
    if size > MAX_DOCUMENT_SIZE {
        bail!(
            BSONObjectTooLarge,
            "object to insert too large. size in bytes: {size}, max size: {MAX_DOCUMENT_SIZE}"
        );
    }
    if nests_deeper(document, MAX_STORED_DEPTH) {
        bail!(Overflow, "cannot insert document because it exceeds {MAX_STORED_DEPTH} levels of nesting");
    }
    let Some(id) = document.get("_id") else { return Ok(()) };
    match id {
        Value::Array(_) | Value::Undefined | Value::Regex { .. } => {
            Err(err!(InvalidIdField, "The '_id' value cannot be of type {}", id.kind().alias()))
        }
        Value::Document(inner) => check_id_names(inner),
        _ => Ok(()),
    }
}

/// Checks the names at every level of an `_id`. Only a reference (DBRef) at the beginning of a document may have names
/// with a dollar sign, and its values are not checked. The nesting limit bounds the recursion.
fn check_id_names(document: Document<'_>) -> Result<()> {
    for field in document.iter().skip(reference_fields(document)) {
        if field.name_bytes().starts_with(b"$") {
            bail!(
                DollarPrefixedFieldName,
                "_id fields may not contain '$'-prefixed fields: {} is not valid for storage.",
                field.name()
            );
        }
        nested(&field).map_or(Ok(()), check_id_names)?;
    }
    Ok(())
}

/// Returns the number of fields of a leading reference: `$ref`, `$id` and perhaps `$db`.
fn reference_fields(document: Document<'_>) -> usize {
    let mut fields = document.iter();
    let mut next_is = |name: &[u8], kind: Option<Type>| {
        let is =
            |field: Element<'_>| field.name_bytes() == name && kind.is_none_or(|kind| field.kind() == kind);
        fields.next().is_some_and(is)
    };
    match next_is(b"$ref", Some(Type::String)) && next_is(b"$id", None) {
        true => 2 + usize::from(next_is(b"$db", Some(Type::String))),
        false => 0,
    }
}

impl Database {
    /// Removes the oldest documents of a capped collection until a new document fits. Returns false if one commit
    /// cannot remove them all.
    fn remove_oldest_for(
        &self,
        operation: &Operation,
        changes: &mut Changes,
        collection: &Arc<Collection>,
        capped: Capped,
        incoming: i64,
        context: &Context,
    ) -> Result<bool> {
        if incoming > capped.size {
            bail!(BadValue, "object to insert exceeds cappedMaxSize: {incoming} > {}", capped.size);
        }
        let limits = Capped { size: capped.size - incoming, max: capped.max.checked_sub(1).unwrap_or(0) };
        self.remove_oldest(operation, changes, collection, (limits, capped.max > 0), context)
    }

    /// Removes the oldest documents until the limits hold, after a conversion or a smaller limit.
    ///
    /// Errors: key generation, interrupted waits.
    pub(crate) fn trim_capped(
        &self,
        operation: &Operation,
        namespace: &Namespace,
        context: &Context,
    ) -> Result<()> {
        loop {
            let collection = self.catalog().require(namespace)?.clone();
            let Some(capped) = collection.options.capped else { return Ok(()) };
            let _ticket = self.write_queues.take(
                collection.data()?.ident,
                RecordId(0),
                (operation, self.blocking_hook()),
            )?;
            let mut changes = Changes::new(self.logs());
            let limits = (capped, capped.max > 0);
            let is_complete = self.remove_oldest(operation, &mut changes, &collection, limits, context)?;
            if changes.is_empty() || self.apply(operation, &mut changes)?.is_some() && is_complete {
                return Ok(());
            }
            operation.check()?;
        }
    }

    /// Adds the removal of the oldest documents to empty changes until the limits hold, or until the commit is large.
    /// Returns true if the limits hold.
    fn remove_oldest(
        &self,
        operation: &Operation,
        changes: &mut Changes,
        collection: &Arc<Collection>,
        (limits, limit_count): (Capped, bool),
        context: &Context,
    ) -> Result<bool> {
        debug_assert!(changes.is_empty(), "other changes are in the commit of removals");
        let data = collection.data()?;
        self.refresh_counts(collection)?;
        let mut bytes = data.counts.bytes.load(Relaxed);
        let mut records = data.counts.records.load(Relaxed);
        let fits = |bytes: i64, records: i64| bytes <= limits.size && (!limit_count || records <= limits.max);
        if fits(bytes, records) {
            return Ok(true);
        }
        let snapshot = self.view_for(operation).snapshot;
        let first = RecordId(data.counts.oldest_record.load(Relaxed));
        let range = Range { lower: Bound::Included(first.key()), upper: Bound::Unbounded };
        let mut oldest = snapshot.scan(data.ident, range, Direction::Forward).map_err(storage_error)?;
        let count_max = OPERATIONS_MAX / (1 + data.indexes.len());
        let mut removed = 0;
        while !fits(bytes, records) {
            let Some((key, value)) = oldest.next().map_err(storage_error)? else { break };
            operation.check()?;
            let id = RecordId::from_key(key)?;
            if changes.is_empty() && self.store.known_generation().is_none() {
                // The next scan skips the places of removed documents. Other processes could add documents before it.
                data.counts.oldest_record.store(id.0, Relaxed);
            }
            if changes.documents >= count_max.max(1) || removed > BYTES_MAX {
                return Ok(false);
            }
            let keys = keys_of(collection, Document::from_valid(&value), context)?;
            bytes -= value.len() as i64;
            records -= 1;
            removed += value.len();
            changes.delete(collection, id, &value.to_value(), &keys)?;
        }
        Ok(true)
    }
}
