//! Metadata: data of a document outside its fields, for `$meta` and for sorts by it.
//!
//! A [`Row`](crate::Row) carries metadata with its document through plans and pipelines.
//!
//! A new kind of metadata needs a line in [`MetaKind`], a field in [`DocumentMetadata`], and code in its producer.

use base::bson::{Array, Document, DocumentBuf, Value, ValueBuf};
use base::{Error, Result, bail, err};
use std::sync::Arc;
use std::sync::atomic::AtomicU16;
use std::sync::atomic::Ordering::Relaxed;

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

/// The supported kinds of metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaKind {
    /// The distance from the center of a near query.
    GeoNearDistance,
    /// The point in the document to which the distance applies.
    GeoNearPoint,
    /// The key of the index that found the document.
    IndexKey,
    /// A random number; no source provides it here.
    RandVal,
    /// The record id.
    RecordId,
    /// The sort key, as an array.
    SortKey,
    /// The score of a text search.
    TextScore,
}

impl MetaKind {
    /// All kinds, sorted by name.
    pub const ALL: [MetaKind; 7] = [
        MetaKind::GeoNearDistance,
        MetaKind::GeoNearPoint,
        MetaKind::IndexKey,
        MetaKind::RandVal,
        MetaKind::RecordId,
        MetaKind::SortKey,
        MetaKind::TextScore,
    ];

    /// The name in `$meta`.
    pub fn name(self) -> &'static str {
        match self {
            MetaKind::GeoNearDistance => "geoNearDistance",
            MetaKind::GeoNearPoint => "geoNearPoint",
            MetaKind::IndexKey => "indexKey",
            MetaKind::RandVal => "randVal",
            MetaKind::RecordId => "recordId",
            MetaKind::SortKey => "sortKey",
            MetaKind::TextScore => "textScore",
        }
    }

    /// Returns the kind with this name.
    pub(crate) fn named(name: &str) -> Option<MetaKind> {
        MetaKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Parses a kind by its name in `$meta`.
    ///
    /// Errors: 17307 for a value that is not a string, 40218 for metadata of unsupported searches, 17308 for an unknown
    /// name.
    pub(crate) fn parse(argument: Value<'_>) -> Result<MetaKind> {
        let Value::String(name) = argument else {
            bail!(17307, "$meta only supports string arguments");
        };
        MetaKind::named(name).ok_or_else(|| unavailable(name))
    }

    /// Metadata that only some sources provide. Other operations refuse it.
    pub const SEARCHED: [MetaKind; 3] =
        [MetaKind::GeoNearDistance, MetaKind::GeoNearPoint, MetaKind::TextScore];

    /// Whether near queries provide this kind.
    pub fn is_geo_near(self) -> bool {
        matches!(self, MetaKind::GeoNearDistance | MetaKind::GeoNearPoint)
    }

    /// Whether a specification, whose depth is bounded, contains `{$meta: kind}`. Sub-pipelines do not count, because
    /// they read other documents.
    pub fn is_referenced_in(self, specification: Document<'_>) -> bool {
        specification.iter().filter(|field| field.name() != "pipeline").any(|field| {
            let named = field.name() == "$meta" && field.value().as_str() == Some(self.name());
            named || self.is_referenced_in_value(field.value())
        })
    }

    fn is_referenced_in_value(self, value: Value<'_>) -> bool {
        match value {
            Value::Document(inner) => self.is_referenced_in(inner),
            Value::Array(items) => self.is_referenced_in_items(items),
            _ => false,
        }
    }

    fn is_referenced_in_items(self, items: Array<'_>) -> bool {
        items.iter().any(|item| self.is_referenced_in_value(item))
    }

    /// Returns the error for a kind that no source provides.
    pub fn unavailable(self) -> Error {
        unavailable(self.name())
    }
}

/// A set of kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetaKinds(u16);

impl MetaKinds {
    fn from_bits(bits: u16) -> MetaKinds {
        MetaKinds(bits)
    }

    fn bits(self) -> u16 {
        self.0
    }

    /// Whether the set contains the kind.
    #[inline]
    pub fn has(self, kind: MetaKind) -> bool {
        self.0 & MetaKinds::from(kind).0 != 0
    }

    /// Whether the set is empty.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The set without this kind.
    pub fn without(self, kind: MetaKind) -> MetaKinds {
        MetaKinds(self.0 & !MetaKinds::from(kind).0)
    }
}

impl From<MetaKind> for MetaKinds {
    fn from(kind: MetaKind) -> MetaKinds {
        MetaKinds(1 << kind as u16)
    }
}

/// Returns the error for metadata of this name.
pub(crate) fn unavailable(name: &str) -> Error {
    let kind = match name {
        "indexKey" => "index key",
        "randVal" => "rand val",
        "recordId" => "record ID",
        "sortKey" => "sort key",
        "textScore" => "text score",
        "geoNearDistance" => "$geoNear distance",
        "geoNearPoint" => "$geoNear point",
        "searchHighlights" => "$search highlights",
        "searchScore" => "$search score",
        "searchScoreDetails" => "$search score details",
        "searchSequenceToken" => "$search sequence token",
        "timeseriesBucketMaxTime" => "timeseries bucket max time",
        "timeseriesBucketMinTime" => "timeseries bucket min time",
        "vectorSearchScore" => "$vectorSearch score",
        _ => return err!(17308, "Unsupported argument to $meta: {name}"),
    };
    err!(40218, "query requires {kind} metadata, but it is not available")
}
