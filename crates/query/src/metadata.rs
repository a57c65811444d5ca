//! Metadata: data of a document outside its fields, for `$meta` and for sorts by it.
//!
//! Metadata travels with documents as follows:
//! - A producer of documents reads from [`Metadata::wanted`] which kinds an operation needs. It creates a
//!   [`DocumentMetadata`] of only these kinds for each document. A plan stores it with the record. A source of a
//!   pipeline notes it with [`Metadata::note`] directly before it yields the document.
//! - A pipeline is pulled one document at a time, so the last noted metadata belongs to the current document of the
//!   stages above. A stage that passes on each document before it pulls the next needs no code for metadata.
//! - A blocking stage uses a [`Carrier`]. It holds the document and its metadata as one document, which can be sorted,
//!   spilled and read back. Its metadata is noted again when the stage returns it.
//! - Stages that create documents note that these have no metadata ([`pipeline::metadata`](crate::pipeline)).
//!
//! Carriers and notes do nothing if no metadata is wanted.
//!
//! A new kind of metadata needs a line in [`MetaKind`], a field in [`DocumentMetadata`], and code in its producer.

mod carrier;
mod kind;

pub(crate) use carrier::Carrier;
pub(crate) use kind::unavailable;
pub use kind::{MetaKind, MetaKinds};

use base::Result;
use base::bson::{Builder, Document, DocumentBuf, FieldName, Value, ValueBuf};
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

/// The metadata of one document.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DocumentMetadata {
    /// The record id of the document.
    pub record_id: Option<i64>,
    /// The key of the index that found the document, field by field.
    pub index_key: Option<DocumentBuf>,
    /// The sort key: an array with a value for each field of the sort.
    pub sort_key: Option<ValueBuf>,
    /// The score of a text search.
    pub text_score: Option<f64>,
    /// The distance from the center of a near query, in the query's unit.
    pub geo_near_distance: Option<f64>,
    /// The point in the document to which the distance applies.
    pub geo_near_point: Option<ValueBuf>,
}

impl DocumentMetadata {
    /// Returns one kind; `None` if the document does not have it.
    pub fn get(&self, kind: MetaKind) -> Option<Value<'_>> {
        match kind {
            MetaKind::GeoNearDistance => self.geo_near_distance.map(Value::Double),
            MetaKind::GeoNearPoint => self.geo_near_point.as_ref().map(ValueBuf::view),
            MetaKind::IndexKey => self.index_key.as_ref().map(|key| Value::Document(key.view())),
            MetaKind::RandVal => None,
            MetaKind::RecordId => self.record_id.map(Value::Int64),
            MetaKind::SortKey => self.sort_key.as_ref().map(ValueBuf::view),
            MetaKind::TextScore => self.text_score.map(Value::Double),
        }
    }

    /// Appends all metadata under the names of `$meta`.
    pub fn append_to(&self, out: &mut Builder) {
        for kind in MetaKind::ALL {
            out.append_optional(FieldName::literal(kind.name()), self.get(kind));
        }
    }

    /// Reads metadata that [`append_to`](Self::append_to) has written; other fields are ignored.
    pub fn read(document: Document<'_>) -> DocumentMetadata {
        let mut found = DocumentMetadata::default();
        for field in document {
            match (MetaKind::named(field.name()), field.value()) {
                (Some(MetaKind::GeoNearDistance), Value::Double(far)) => found.geo_near_distance = Some(far),
                (Some(MetaKind::GeoNearPoint), point) => found.geo_near_point = Some(point.to_owned()),
                (Some(MetaKind::IndexKey), Value::Document(key)) => found.index_key = Some(key.to_owned()),
                (Some(MetaKind::RecordId), Value::Int64(id)) => found.record_id = Some(id),
                (Some(MetaKind::SortKey), key) => found.sort_key = Some(key.to_owned()),
                (Some(MetaKind::TextScore), Value::Double(score)) => found.text_score = Some(score),
                _ => {}
            }
        }
        found
    }
}

/// The metadata that an operation wants, and the metadata of its current document.
#[derive(Debug, Default)]
pub struct Metadata {
    /// Shared by an operation's contexts, because a sub-pipeline is parsed with one context and run with another.
    wanted: Arc<AtomicU16>,
    noted: Mutex<DocumentMetadata>,
}

impl Metadata {
    /// Returns the metadata of a derived context, which has its own current document.
    pub(crate) fn derived(&self) -> Metadata {
        Metadata { wanted: self.wanted.clone(), noted: Mutex::default() }
    }

    /// Records during parsing that this kind is wanted.
    pub(crate) fn want(&self, kind: MetaKind) {
        self.wanted.fetch_or(MetaKinds::from(kind).bits(), Relaxed);
    }

    /// The wanted kinds, after parsing.
    #[inline]
    pub fn wanted(&self) -> MetaKinds {
        MetaKinds::from_bits(self.wanted.load(Relaxed))
    }

    /// Whether this kind is wanted.
    pub fn wants(&self, kind: MetaKind) -> bool {
        self.wanted().has(kind)
    }

    /// Whether any metadata is wanted.
    pub fn wants_any(&self) -> bool {
        !self.wanted().is_empty()
    }

    /// Refuses wanted metadata. Errors: 40218 if any is wanted.
    pub(crate) fn refuse_wanted(&self) -> Result<()> {
        match MetaKind::ALL.into_iter().find(|kind| self.wants(*kind)) {
            Some(kind) => Err(unavailable(kind.name())),
            None => Ok(()),
        }
    }

    /// Sets the metadata of the current document.
    pub fn note(&self, noted: DocumentMetadata) {
        *self.noted.lock() = noted;
    }

    /// Returns the metadata of the current document, locked.
    pub(crate) fn noted(&self) -> MutexGuard<'_, DocumentMetadata> {
        self.noted.lock()
    }
}
