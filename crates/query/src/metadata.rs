//! Metadata: what is known of a document beside its fields, for `$meta` and for sorts by it.
//!
//! Metadata travels with documents like this:
//! - Whoever finds documents asks [`Metadata::wanted`] which kinds an operation will ask for, and
//!   makes [`DocumentMetadata`] for each document only of those. A plan puts it beside the record; a
//!   source of a pipeline notes it with [`Metadata::note`] just before it yields the document.
//! - A pipeline is pulled one document at a time, so what was noted last belongs to the document that
//!   the stages above are looking at. A stage that passes each document on before it pulls the next
//!   needs to do nothing.
//! - A stage that holds documents back takes a [`Carrier`]: what it holds is the document and its
//!   metadata as one document, which may be sorted, spilled and read back like any other, and whose
//!   metadata is noted again when it is given on.
//! - Stages whose documents are new note that these have none ([`pipeline::metadata`](crate::pipeline)).
//!
//! Where nobody asks for metadata a carrier does nothing and nothing is noted.
//!
//! A new kind of metadata is a line of [`MetaKind`], a field of [`DocumentMetadata`], and whoever
//! finds it out.

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
    /// Where it is stored.
    pub record_id: Option<i64>,
    /// The key of the index that found it, field by field.
    pub index_key: Option<DocumentBuf>,
    /// What it was sorted by: an array with a value for each field of the sort.
    pub sort_key: Option<ValueBuf>,
    /// How well it answers a search for text.
    pub text_score: Option<f64>,
    /// How far it lies from the point it was searched near to, in the query's unit.
    pub geo_near_distance: Option<f64>,
    /// The place in it that the distance is to.
    pub geo_near_point: Option<ValueBuf>,
}

impl DocumentMetadata {
    /// One kind, `None` where the document has none.
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

    /// Appends all there is under the names that `$meta` gives it.
    pub fn append_to(&self, out: &mut Builder) {
        for kind in MetaKind::ALL {
            out.append_optional(FieldName::literal(kind.name()), self.get(kind));
        }
    }

    /// What [`append_to`](Self::append_to) has appended; other fields are passed over.
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

/// What an operation wants to know of documents, and what is known of the one it looks at.
#[derive(Debug, Default)]
pub struct Metadata {
    /// Shared by an operation's contexts: a sub-pipeline is parsed with one, run with another.
    wanted: Arc<AtomicU16>,
    noted: Mutex<DocumentMetadata>,
}

impl Metadata {
    /// For a context derived from this one's, which looks at documents of its own.
    pub(crate) fn derived(&self) -> Metadata {
        Metadata { wanted: self.wanted.clone(), noted: Mutex::default() }
    }

    /// Notes while parsing that this kind will be asked for.
    pub(crate) fn want(&self, kind: MetaKind) {
        self.wanted.fetch_or(MetaKinds::from(kind).bits(), Relaxed);
    }

    /// The kinds that will be asked for, now that all is parsed.
    #[inline]
    pub fn wanted(&self) -> MetaKinds {
        MetaKinds::from_bits(self.wanted.load(Relaxed))
    }

    /// Whether this kind will be asked for.
    pub fn wants(&self, kind: MetaKind) -> bool {
        self.wanted().has(kind)
    }

    /// Whether any metadata will be asked for.
    pub fn wants_any(&self) -> bool {
        !self.wanted().is_empty()
    }

    /// Errors: 40218 where any metadata will be asked for.
    pub(crate) fn refuse_wanted(&self) -> Result<()> {
        match MetaKind::ALL.into_iter().find(|kind| self.wants(*kind)) {
            Some(kind) => Err(unavailable(kind.name())),
            None => Ok(()),
        }
    }

    /// Notes the metadata of the document that is looked at from now on.
    pub fn note(&self, noted: DocumentMetadata) {
        *self.noted.lock() = noted;
    }

    /// The metadata of the document that is looked at. It is locked meanwhile.
    pub(crate) fn noted(&self) -> MutexGuard<'_, DocumentMetadata> {
        self.noted.lock()
    }
}
