//! Metadata: data of a document outside its fields, for `$meta` and for sorts by it.
//!
//! A [`Row`](crate::Row) carries metadata with its document through plans and pipelines.
//!
//! A new kind of metadata needs a line in [`MetaKind`], a field in [`DocumentMetadata`], and code in its producer.

mod kind;

pub(crate) use kind::unavailable;
pub use kind::{MetaKind, MetaKinds};

use base::Result;
use base::bson::{Document, DocumentBuf, Value, ValueBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

/// The metadata of one document, without its record id.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DocumentMetadata {
    /// The key of the index that found the document, field by field.
    pub index_key: Option<DocumentBuf>,
    /// The sort key: an array with a value for each field of the sort.
    pub sort_key: Option<ValueBuf>,
    /// The encoded sort key, if the sort above cannot compute it from the document.
    pub order: Option<Vec<u8>>,
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
            MetaKind::RandVal | MetaKind::RecordId => None,
            MetaKind::SortKey => self.sort_key.as_ref().map(ValueBuf::view),
            MetaKind::TextScore => self.text_score.map(Value::Double),
        }
    }

    /// Reads metadata from the fields of a document, by the names of `$meta`; other fields are ignored.
    pub(crate) fn read(document: Document<'_>) -> DocumentMetadata {
        let mut metadata = DocumentMetadata::default();
        for field in document {
            match (MetaKind::named(field.name()), field.value()) {
                (Some(MetaKind::GeoNearDistance), Value::Double(distance)) => {
                    metadata.geo_near_distance = Some(distance)
                }
                (Some(MetaKind::GeoNearPoint), point) => metadata.geo_near_point = Some(point.to_owned()),
                (Some(MetaKind::IndexKey), Value::Document(key)) => metadata.index_key = Some(key.to_owned()),
                (Some(MetaKind::SortKey), key) => metadata.sort_key = Some(key.to_owned()),
                (Some(MetaKind::TextScore), Value::Double(score)) => metadata.text_score = Some(score),
                _ => {}
            }
        }
        metadata
    }
}

/// The metadata that an operation requires.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    /// Shared by an operation's contexts, because a sub-pipeline is parsed with one context and run with another.
    required: Arc<AtomicU16>,
}

impl Metadata {
    /// Records during parsing that the operation requires this kind.
    pub(crate) fn require(&self, kind: MetaKind) {
        self.required.fetch_or(MetaKinds::from(kind).bits(), Relaxed);
    }

    /// The required kinds. Complete after parsing.
    #[inline]
    pub fn required(&self) -> MetaKinds {
        MetaKinds::from_bits(self.required.load(Relaxed))
    }

    /// Whether the operation requires this kind.
    pub fn requires(&self, kind: MetaKind) -> bool {
        self.required().has(kind)
    }

    /// Whether the operation requires any metadata.
    pub fn requires_any(&self) -> bool {
        !self.required().is_empty()
    }

    /// Refuses required metadata. Errors: 40218 if the operation requires any.
    pub(crate) fn refuse_required(&self) -> Result<()> {
        match MetaKind::ALL.into_iter().find(|kind| self.requires(*kind)) {
            Some(kind) => Err(unavailable(kind.name())),
            None => Ok(()),
        }
    }
}
