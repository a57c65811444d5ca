//! Geospatial indexes: `2dsphere`, whose keys are S2 cells, and `2d`, whose keys are hashes of pairs.
//!
//! The module holds their options, the keys of documents, and the bounds of a shape in the key. Bounds may include too
//! much, never too little, so the results are filtered again.

mod flat;
mod sphere;

use super::{DocumentKeys, IndexSpec, KeyKind, KeyPart};
use base::bson::{Builder, Document, FieldName, PathComponent, Value, ValueBuf};
use base::{Result, bail, err};
use query::geo::Geometry;
use query::geo::cells::Covering;
use query::geo::hash::Grid;
use query::matcher::{Center, Geo, Near, Relation};
use query::{Collation, Context};
use sphere::Sphere;

/// Option field with the version of a `2dsphere` index.
const VERSION: &str = "2dsphereIndexVersion";
/// Binary subtype of the hashes in keys.
const HASH_SUBTYPE: u8 = 128;

/// The geospatial properties of an index.
#[derive(Clone, PartialEq, Debug)]
pub enum GeoIndex {
    /// `2dsphere`.
    Sphere(Sphere),
    /// `2d`.
    Flat(Grid),
}

impl GeoIndex {
    /// Parses the options of a key pattern; `None` for a pattern without a geospatial part.
    ///
    /// Errors: MongoDB's errors for invalid options.
    pub(super) fn parse(
        parts: &[KeyPart],
        options: Document<'_>,
        collation: &Collation,
    ) -> Result<Option<GeoIndex>> {
        let has = |kind: KeyKind| parts.iter().any(|part| part.kind == kind);
        match (has(KeyKind::Sphere), has(KeyKind::Flat)) {
            (false, false) => Ok(None),
            _ if parts.iter().any(|part| part.kind == KeyKind::Hashed)
                || has(KeyKind::Sphere) && has(KeyKind::Flat) =>
            {
                Err(err!(CannotCreateIndex, "Can't use more than one index plugin for a single index."))
            }
            (true, _) => Ok(Some(GeoIndex::Sphere(Sphere::parse(options)?))),
            (_, true) => {
                let collation = collation.document().filter(|_| !collation.is_simple());
                if let Some(collation) = collation {
                    bail!(CannotCreateIndex, "Index type '2d' does not support collation: {collation}");
                }
                Ok(Some(GeoIndex::Flat(flat::parse(parts, options)?)))
            }
        }
    }

    /// Returns true if the options of two indexes on the same fields agree. Versions may differ.
    pub(super) fn same_options(a: Option<&GeoIndex>, b: Option<&GeoIndex>) -> bool {
        match (a, b) {
            (Some(GeoIndex::Sphere(a)), Some(GeoIndex::Sphere(b))) => a.same_options(b),
            (a, b) => a == b,
        }
    }

    /// Adds the default version if none is given.
    pub(super) fn complete(parts: &[KeyPart], options: &mut Builder, has_version: bool) {
        if !has_version && parts.iter().any(|part| part.kind == KeyKind::Sphere) {
            options.append(FieldName::literal(VERSION), 3i32);
        }
    }

    /// Returns the bounds of the keys that may satisfy a condition; `None` if the index cannot serve it.
    pub(crate) fn bounds(&self, geo: &Geo) -> Option<Vec<KeyRange>> {
        match self {
            GeoIndex::Sphere(sphere) => {
                let pair = matches!(geo.shape, Geometry::Pair(_));
                if geo.shape.is_flat() && !(pair && geo.relation == Relation::Intersects) {
                    return None;
                }
                Some(sphere.ranges(&sphere.levels.covering(&geo.shape)?))
            }
            GeoIndex::Flat(grid) if geo.relation == Relation::Within && grid.serves(&geo.shape) => {
                Some(hashes(grid.ranges(&geo.shape)?))
            }
            GeoIndex::Flat(_) => None,
        }
    }

    /// Returns true if the index can serve a search by distance.
    pub(crate) fn finds_near(&self, near: &Near) -> bool {
        match (self, near.center) {
            (GeoIndex::Sphere(_), Center::Sphere(..)) | (GeoIndex::Flat(_), Center::Flat(_)) => true,
            (GeoIndex::Flat(_), Center::Sphere(..)) => !near.geojson,
            (GeoIndex::Sphere(_), Center::Flat(_)) => false,
        }
    }

    /// Returns the bounds of the keys of cells on the sphere.
    pub(crate) fn cell_ranges(&self, covering: &Covering) -> Vec<KeyRange> {
        match self {
            GeoIndex::Sphere(sphere) => sphere.ranges(covering),
            GeoIndex::Flat(_) => Vec::new(),
        }
    }

    /// Returns true if a part of the key pattern is geospatial.
    pub(crate) fn is_geo_part(part: &KeyPart) -> bool {
        matches!(part.kind, KeyKind::Sphere | KeyKind::Flat)
    }

    /// Returns true if the keys of other parts are as in an ordinary index.
    pub(crate) fn has_plain_parts(&self) -> bool {
        matches!(self, GeoIndex::Sphere(_))
    }

    /// Adds the keys of a document. Errors: those of invalid places.
    pub(super) fn keys(
        &self,
        spec: &IndexSpec,
        document: Document<'_>,
        document_keys: &mut DocumentKeys,
        context: &Context,
    ) -> Result<()> {
        match self {
            GeoIndex::Sphere(sphere) => sphere.keys(spec, document, document_keys, context),
            GeoIndex::Flat(grid) => flat::keys(grid, spec, document, document_keys, context),
        }
    }
}

/// A range of values in a part of the key.
pub(crate) struct KeyRange {
    /// First value.
    pub(crate) low: ValueBuf,
    /// Last value.
    pub(crate) high: ValueBuf,
    /// True if the last value is included.
    pub(crate) closed: bool,
}

/// Converts ranges of hashes into ranges of values.
pub(crate) fn hashes(ranges: Vec<(u64, u64)>) -> Vec<KeyRange> {
    let range = |(first, last): (u64, u64)| {
        let value = |bytes: [u8; 8]| hash(&bytes).to_owned();
        KeyRange { low: value(first.to_be_bytes()), high: value(last.to_be_bytes()), closed: true }
    };
    ranges.into_iter().map(range).collect()
}

/// Returns the value that stands for a hash in keys.
fn hash(bytes: &[u8; 8]) -> Value<'_> {
    Value::Binary { subtype: HASH_SUBTYPE, bytes }
}

/// Returns a number among the options.
fn number(options: Document<'_>, name: &str) -> Option<f64> {
    options.get(name).and_then(|value| value.as_number()).map(|number| number.to_f64())
}

// Values at a path, for indexes that may have arrays as values.

/// Calls `visit` with each value at a path. Visits documents in arrays on the way, or one position if the path has a
/// number. An array at the end is one value, unless `expanded`. Bits mark the path components whose arrays fan out.
pub(crate) fn elements<'d>(
    document: Document<'d>,
    components: &[PathComponent],
    expanded: bool,
    visit: &mut dyn FnMut(Value<'d>),
) -> u32 {
    walk(document, components, 0, expanded, visit)
}

/// The depth of the recursion is limited by the path.
fn walk<'d>(
    document: Document<'d>,
    components: &[PathComponent],
    depth: usize,
    expanded: bool,
    visit: &mut dyn FnMut(Value<'d>),
) -> u32 {
    let Some((first, rest)) = components.split_first() else { return 0 };
    let Some(value) = document.get(first.name()) else { return 0 };
    let bit = 1 << depth.min(31);
    match (value, rest.first()) {
        (Value::Array(array), None) if expanded => {
            array.iter().for_each(&mut *visit);
            bit
        }
        (_, None) => {
            visit(value);
            0
        }
        (Value::Document(inner), Some(_)) => walk(inner, rest, depth + 1, expanded, visit),
        (Value::Array(array), Some(next)) if next.index().is_some() => {
            walk(array.as_document(), rest, depth + 1, expanded, visit)
        }
        (Value::Array(array), Some(_)) => {
            let inner = array.iter().filter_map(|element| element.as_document());
            inner.fold(bit, |bits, inner| bits | walk(inner, rest, depth + 1, expanded, visit))
        }
        _ => 0,
    }
}
