//! Inserting one document: its `_id`, its checks, its keys, its place.

use super::{RetryKey, keys_of};
use crate::changes::Changes;
use crate::collection::{Capped, Collection};
use crate::commit::{Applied, Committed};
use crate::database::Database;
use crate::keys::RecordId;
use crate::operation::Operation;
use crate::storage_error;
use crate::transaction::check_writable_within;
use base::bson::{Builder, Document, MAX_DOCUMENT_SIZE, Type, Value};
use base::{Namespace, Result, err};
use query::{Context, Interrupt};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use storage::{Direction, Range};

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
    /// an `_id` of a type that can't be one, those of key generation, and what interrupts waiting.
    pub fn insert(
        &self,
        operation: &Operation,
        namespace: &Namespace,
        request: InsertRequest<'_>,
        context: &Context,
    ) -> Result<Committed> {
        self.insert_retryable(operation, namespace, request, context, None)
    }

    /// The same, recording for a retryable statement what it answers.
    pub fn insert_retryable(
        &self,
        operation: &Operation,
        namespace: &Namespace,
        request: InsertRequest<'_>,
        context: &Context,
        record: Option<(RetryKey, Document<'_>)>,
    ) -> Result<Committed> {
        let document = self.prepare(request.document)?;
        loop {
            let planned = self.collection_or_create(operation, namespace)?;
            if let (Some(validator), false) = (&planned.options.validator, request.bypass_validation) {
                validator.check(Document::from_valid(&document), None, context)?;
            }
            let keys = keys_of(&planned, Document::from_valid(&document), context)?;
            self.learn_multikey(operation, &planned, &keys)?;
            check_writable_within(operation, &planned)?;
            let data = planned.data()?;
            let mut changes = Changes::default();
            // Who tails a capped collection reads on from the last record: records must be committed in the
            // order of their ids.
            let _turn = match planned.options.capped {
                Some(capped) => {
                    let turn = self.turn(data.ident, RecordId(0), operation)?;
                    self.make_room(
                        operation,
                        &mut changes,
                        &planned,
                        capped,
                        document.len() as i64,
                        context,
                    )?;
                    Some(turn)
                }
                None => None,
            };
            let id = RecordId(data.counts.next_record.fetch_add(1, Relaxed));
            changes.insert(&planned, id, document.clone(), &keys)?;
            self.remember(&mut changes, record);
            if let Applied::Done(committed) = self.apply(operation, changes)? {
                self.counters.documents_inserted.fetch_add(1, Relaxed);
                return Ok(committed);
            }
            // Dropped, replaced or changed since: what was checked and made no longer counts.
            operation.check()?;
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
        check_stored(Document::from_valid(&stored))?;
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

impl Database {
    /// Removes the oldest documents of a capped collection until a new one fits.
    fn make_room(
        &self,
        operation: &Operation,
        changes: &mut Changes,
        collection: &Arc<Collection>,
        capped: Capped,
        incoming: i64,
        context: &Context,
    ) -> Result<()> {
        if incoming > capped.size {
            return Err(err!(
                BadValue,
                "object to insert exceeds cappedMaxSize: {incoming} > {}",
                capped.size
            ));
        }
        let limits = Capped { size: capped.size - incoming, max: capped.max.checked_sub(1).unwrap_or(0) };
        self.remove_oldest(operation, changes, collection, (limits, capped.max > 0), context)
    }

    /// Removes the oldest documents until the limits hold, as after converting or shrinking.
    ///
    /// Errors: those of key generation, and what interrupts waiting.
    pub(crate) fn trim_capped(
        &self,
        operation: &Operation,
        namespace: &Namespace,
        context: &Context,
    ) -> Result<()> {
        loop {
            let collection = self.catalog().require(namespace)?.clone();
            let Some(capped) = collection.options.capped else { return Ok(()) };
            let _turn = self.turn(collection.data()?.ident, RecordId(0), operation)?;
            let mut changes = Changes::default();
            let limits = (capped, capped.max > 0);
            self.remove_oldest(operation, &mut changes, &collection, limits, context)?;
            if changes.is_empty() || matches!(self.apply(operation, changes)?, Applied::Done(_)) {
                return Ok(());
            }
            operation.check()?;
        }
    }

    fn remove_oldest(
        &self,
        operation: &Operation,
        changes: &mut Changes,
        collection: &Arc<Collection>,
        (limits, limit_count): (Capped, bool),
        context: &Context,
    ) -> Result<()> {
        let data = collection.data()?;
        let mut bytes = data.counts.bytes.load(Relaxed);
        let mut records = data.counts.records.load(Relaxed);
        let fits = |bytes: i64, records: i64| bytes <= limits.size && (!limit_count || records <= limits.max);
        if fits(bytes, records) {
            return Ok(());
        }
        let snapshot = self.view_for(operation).snapshot;
        let mut oldest =
            snapshot.scan(data.ident, Range::all(), Direction::Forward).map_err(storage_error)?;
        while !fits(bytes, records) {
            let Some((key, value)) = oldest.next().map_err(storage_error)? else { break };
            operation.check()?;
            let keys = keys_of(collection, Document::from_valid(value), context)?;
            bytes -= value.len() as i64;
            records -= 1;
            changes.delete(collection, RecordId::from_key(key)?, value, &keys)?;
        }
        Ok(())
    }
}
