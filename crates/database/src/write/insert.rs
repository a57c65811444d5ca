//! Inserting one document: its `_id`, its checks, its keys, its place.

use super::{RetryKey, keys_of};
use crate::collection::{Capped, Collection};
use crate::commit::{Committed, Transaction};
use crate::database::Database;
use crate::keys::RecordId;
use base::bson::{Builder, Document, MAX_DOCUMENT_SIZE, MAX_STORED_DEPTH, Type, Value, nests_deeper};
use base::{Namespace, Result, err};
use query::Context;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// One document to insert.
#[derive(Clone, Copy)]
pub struct InsertRequest<'a> {
    /// The document; without `_id` it gets an object id.
    pub document: Document<'a>,
    /// Leaves out the collection's validator.
    pub bypass_validation: bool,
}

impl Database {
    /// Inserts a document, creating the collection if it isn't there.
    ///
    /// Errors: DuplicateKey, DocumentValidationFailure, CommandNotSupportedOnView, BadValue for
    /// an `_id` of a type that can't be one, and those of key generation.
    pub fn insert(
        &self,
        namespace: &Namespace,
        request: InsertRequest<'_>,
        context: &Context,
    ) -> Result<Committed> {
        self.insert_retryable(namespace, request, context, None)
    }

    /// The same, recording for a retryable statement what it answers.
    pub fn insert_retryable(
        &self,
        namespace: &Namespace,
        request: InsertRequest<'_>,
        context: &Context,
        record: Option<(RetryKey, Document<'_>)>,
    ) -> Result<Committed> {
        let document = self.prepare(request.document)?;
        loop {
            let planned = self.collection_or_create(namespace, context)?;
            if let (Some(validator), false) = (&planned.options.validator, request.bypass_validation) {
                validator.check(Document::from_valid(&document), None, context)?;
            }
            let keys = keys_of(&planned, Document::from_valid(&document), context)?;
            let mut transaction = self.begin();
            let same = transaction.catalog().get(namespace).is_some_and(|now| Arc::ptr_eq(now, &planned));
            if !same {
                // Dropped, replaced or changed since: what was checked and made no longer counts.
                continue;
            }
            if let Some(capped) = planned.options.capped {
                make_room(&mut transaction, &planned, capped, document.len() as i64, context)?;
            }
            transaction.insert_record(&planned, document, &keys)?;
            transaction.remember(record);
            let committed = transaction.commit()?;
            self.counters.documents_inserted.fetch_add(1, Relaxed);
            return Ok(committed);
        }
    }

    /// The document as it will be stored: `_id` first, made up if missing; zero timestamps at the
    /// top filled in.
    fn prepare(&self, document: Document<'_>) -> Result<Arc<[u8]>> {
        let first_is_id = document.first().is_some_and(|element| element.name_bytes() == b"_id");
        let zero_time = |document: Document<'_>| {
            document
                .iter()
                .any(|e| e.kind() == Type::Timestamp && e.value_bytes() == [0; 8] && e.name_bytes() != b"_id")
        };
        let stored: Arc<[u8]> = if first_is_id && !zero_time(document) {
            document.bytes().into()
        } else {
            let mut out = Builder::with_buffer(Vec::with_capacity(document.bytes().len() + 17));
            match document.find("_id") {
                Some(id) => out.append_element(&id),
                None => out.append("_id", self.new_object_id()),
            };
            for element in document.iter().filter(|element| element.name_bytes() != b"_id") {
                match element.value() {
                    Value::Timestamp(0) => out.append(element.name(), Value::Timestamp(self.cluster_time())),
                    _ => out.append_element(&element),
                };
            }
            out.finish().into_bytes().into()
        };
        let document = Document::from_valid(&stored);
        check_stored(document)?;
        if nests_deeper(document, MAX_STORED_DEPTH) {
            return Err(err!(
                Overflow,
                "cannot insert document because it exceeds {MAX_STORED_DEPTH} levels of nesting"
            ));
        }
        Ok(stored)
    }
}

/// What every stored document keeps to.
pub(crate) fn check_stored(document: Document<'_>) -> Result<()> {
    let size = document.bytes().len();
    if size > MAX_DOCUMENT_SIZE {
        return Err(err!(
            BSONObjectTooLarge,
            "object to insert too large. size in bytes: {size}, max size: {MAX_DOCUMENT_SIZE}"
        ));
    }
    let Some(id) = document.get("_id") else { return Ok(()) };
    match id {
        Value::Array(_) => Err(err!(InvalidIdField, "The '_id' value cannot be of type array")),
        Value::Undefined => Err(err!(InvalidIdField, "The '_id' value cannot be of type undefined")),
        Value::Regex { .. } => Err(err!(InvalidIdField, "The '_id' value cannot be of type regex")),
        Value::Document(inner) => match inner.iter().find(|e| e.name_bytes().starts_with(b"$")) {
            Some(bad) if !matches!(bad.name(), "$id" | "$ref" | "$db") => Err(err!(
                DollarPrefixedFieldName,
                "_id fields may not contain '$'-prefixed fields: {} is not valid for storage.",
                bad.name()
            )),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Removes the oldest documents of a capped collection until a new one fits.
fn make_room(
    transaction: &mut Transaction<'_>,
    collection: &Collection,
    capped: Capped,
    incoming: i64,
    context: &Context,
) -> Result<()> {
    if incoming > capped.size {
        return Err(err!(BadValue, "object to insert exceeds cappedMaxSize: {incoming} > {}", capped.size));
    }
    let limits = Capped { size: capped.size - incoming, max: capped.max.checked_sub(1).unwrap_or(0) };
    remove_oldest(transaction, collection, limits, capped.max > 0, context)
}

/// Removes the oldest documents until the limits hold, as after converting or shrinking.
pub(crate) fn trim(
    transaction: &mut Transaction<'_>,
    collection: &Collection,
    capped: Capped,
    context: &Context,
) -> Result<()> {
    remove_oldest(transaction, collection, capped, capped.max > 0, context)
}

fn remove_oldest(
    transaction: &mut Transaction<'_>,
    collection: &Collection,
    limits: Capped,
    limit_count: bool,
    context: &Context,
) -> Result<()> {
    let data = collection.data()?;
    let mut bytes = data.counts.bytes.load(Relaxed);
    let mut records = data.counts.records.load(Relaxed);
    let fits = |bytes: i64, records: i64| bytes <= limits.size && (!limit_count || records <= limits.max);
    if fits(bytes, records) {
        return Ok(());
    }
    let mut oldest = transaction.oldest(data)?;
    while !fits(bytes, records) {
        let Some((key, value)) = oldest.next().map_err(crate::storage_error)? else { break };
        let keys = keys_of(collection, Document::from_valid(value), context)?;
        bytes -= value.len() as i64;
        records -= 1;
        transaction.delete_record(collection, RecordId::from_key(key)?, value.len(), &keys)?;
    }
    Ok(())
}
