//! The kinds of metadata, by the names that `$meta` gives them.

use base::bson::{Array, Document, Value};
use base::{Error, Result, err};

/// The kinds of metadata that documents may have here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaKind {
    /// How far the document lies from the point it was searched near to.
    GeoNearDistance,
    /// The place in the document that the distance is to.
    GeoNearPoint,
    /// The key of the index that found the document.
    IndexKey,
    /// A random number; nothing here gives a document one.
    RandVal,
    /// Where the document is stored.
    RecordId,
    /// What the document was sorted by, as an array.
    SortKey,
    /// How well the document answers a search for text.
    TextScore,
}

impl MetaKind {
    /// All kinds, by name.
    pub const ALL: [MetaKind; 7] = [
        MetaKind::GeoNearDistance,
        MetaKind::GeoNearPoint,
        MetaKind::IndexKey,
        MetaKind::RandVal,
        MetaKind::RecordId,
        MetaKind::SortKey,
        MetaKind::TextScore,
    ];

    /// The name that `$meta` gives the kind.
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

    /// The kind of this name.
    pub(crate) fn named(name: &str) -> Option<MetaKind> {
        MetaKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The kind by the name that `$meta` gives it.
    ///
    /// Errors: 17307 for what is no string, 40218 for metadata of searches that there are none of
    /// here, 17308 for an unknown name.
    pub(crate) fn parse(argument: Value<'_>) -> Result<MetaKind> {
        let Value::String(name) = argument else {
            return Err(err!(17307, "$meta only supports string arguments"));
        };
        MetaKind::named(name).ok_or_else(|| unavailable(name))
    }

    /// Only sources of some kinds know this metadata, so that asking for it elsewhere is refused.
    pub const SEARCHED: [MetaKind; 3] =
        [MetaKind::GeoNearDistance, MetaKind::GeoNearPoint, MetaKind::TextScore];

    /// Whether what is near to a place has it.
    pub fn is_of_places(self) -> bool {
        matches!(self, MetaKind::GeoNearDistance | MetaKind::GeoNearPoint)
    }

    /// Whether `{$meta: kind}` stands anywhere in a specification, whose depth is bounded.
    /// Sub-pipelines, which look at other documents, don't count.
    pub fn is_asked_in(self, specification: Document<'_>) -> bool {
        specification.iter().filter(|field| field.name() != "pipeline").any(|field| {
            let named = field.name() == "$meta" && field.value().as_str() == Some(self.name());
            named || self.is_asked_in_value(field.value())
        })
    }

    fn is_asked_in_value(self, value: Value<'_>) -> bool {
        match value {
            Value::Document(inner) => self.is_asked_in(inner),
            Value::Array(items) => self.is_asked_in_items(items),
            _ => false,
        }
    }

    fn is_asked_in_items(self, items: Array<'_>) -> bool {
        items.iter().any(|item| self.is_asked_in_value(item))
    }

    /// The error of asking for the kind where no source gives it.
    pub fn unavailable(self) -> Error {
        unavailable(self.name())
    }
}

/// Some of the kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetaKinds(u16);

impl MetaKinds {
    pub(super) fn from_bits(bits: u16) -> MetaKinds {
        MetaKinds(bits)
    }

    pub(super) fn bits(self) -> u16 {
        self.0
    }

    /// Whether the kind is among them.
    #[inline]
    pub fn has(self, kind: MetaKind) -> bool {
        self.0 & MetaKinds::from(kind).0 != 0
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// All but this one.
    pub fn without(self, kind: MetaKind) -> MetaKinds {
        MetaKinds(self.0 & !MetaKinds::from(kind).0)
    }
}

impl From<MetaKind> for MetaKinds {
    fn from(kind: MetaKind) -> MetaKinds {
        MetaKinds(1 << kind as u16)
    }
}

/// Why there is no metadata of this name.
pub(crate) fn unavailable(name: &str) -> Error {
    let what = match name {
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
    err!(40218, "query requires {what} metadata, but it is not available")
}
