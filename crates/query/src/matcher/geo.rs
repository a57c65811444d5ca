//! `$geoWithin` (formerly `$within`) and `$geoIntersects`: geometry within a shape, and geometry that intersects a
//! shape.
//!
//! ```text
//! {<path>: {$geoWithin: {$geometry: <GeoJSON>} | {$box: …} | {$center: …} | {$centerSphere: …} | {$polygon: …}}}
//! {<path>: {$geoIntersects: {$geometry: <GeoJSON>}}}
//! ```

use super::node::{Node, Predicate};
use super::operators::FieldArgument;
use super::parse::Parser;
use crate::geo::Geometry;
use base::bson::{DocumentBuf, Element, Value};
use base::{Result, bail, err};
use std::sync::Arc;

/// Required relation of stored geometry to a shape.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relation {
    /// The stored geometry lies within the shape.
    Within,
    /// The stored geometry and the shape share a point.
    Intersects,
}

/// A geospatial condition: a relation and a shape.
#[derive(Debug)]
pub struct Geo {
    /// The required relation.
    pub relation: Relation,
    /// The shape.
    pub shape: Geometry,
    /// The operator as given.
    pub(super) source: DocumentBuf,
}

impl Geo {
    /// Whether both conditions were given in equal terms.
    pub fn is_as_given(&self, other: &Geo) -> bool {
        let (own, other) = (self.source.view(), other.source.view());
        base::bson::compare(Value::Document(own), Value::Document(other)).is_eq()
    }

    /// Whether a value has the relation. Values that are not geometry, or lie in another coordinate system, never
    /// match.
    pub(super) fn test(&self, element: Option<&Element<'_>>) -> bool {
        let Some(value) = element.map(|element| element.value()) else { return false };
        if !matches!(value, Value::Document(_) | Value::Array(_)) {
            return false;
        }
        let Ok(stored) = Geometry::stored(value) else { return false };
        match self.relation {
            Relation::Within => self.shape.contains(stored),
            Relation::Intersects => self.shape.intersects(stored),
        }
    }
}

pub(super) fn parse_within(_: &Parser<'_>, argument: &FieldArgument<'_>) -> Result<Option<Node>> {
    let geo = parse(argument, Relation::Within)?;
    if !geo.shape.has_inside() {
        bail!(BadValue, "$within not supported with provided geometry: {}", argument.siblings);
    }
    Ok(Some(Node::Field { path: argument.path.clone(), predicate: Predicate::Geo(Arc::new(geo)) }))
}

/// `$geoIntersects`. Errors: BadValue for a shape that is not on the sphere.
pub(super) fn parse_intersects(_: &Parser<'_>, argument: &FieldArgument<'_>) -> Result<Option<Node>> {
    let geo = parse(argument, Relation::Intersects)?;
    let on_sphere = match &geo.shape {
        Geometry::Pair(position) => position.is_on_sphere(),
        shape => !shape.is_flat(),
    };
    if !on_sphere {
        bail!(BadValue, "$geoIntersect not supported with provided geometry: {}", argument.siblings);
    }
    Ok(Some(Node::Field { path: argument.path.clone(), predicate: Predicate::Geo(Arc::new(geo)) }))
}

/// Parses the shape of an operator, which must be alone in its field's document.
fn parse(argument: &FieldArgument<'_>, relation: Relation) -> Result<Geo> {
    let mut operators = argument.siblings.iter();
    let first = operators.next();
    if let Some(extra) = operators.next() {
        bail!(BadValue, "can't parse extra field: {}: {}", extra.name(), extra.value());
    }
    let Some(Value::Document(specifiers)) = first.map(|operator| operator.value()) else {
        bail!(BadValue, "geometry must be an object");
    };
    let mut shape = None;
    for specifier in specifiers {
        if shape.is_some() && argument.name() == "$geoWithin" {
            bail!(
                BadValue,
                "$geoWithin doesn't accept multiple shapes {}: {}",
                argument.name(),
                argument.value()
            );
        }
        // Accepted without effect, as in MongoDB since 2.6.
        if specifier.name() != "$uniqueDocs" {
            shape = Some(Geometry::specified(&specifier)?);
        }
    }
    let shape = shape.ok_or_else(|| err!(BadValue, "geo query doesn't have any geometry"))?;
    Ok(Geo { relation, shape, source: argument.siblings.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, check_error};

    #[test]
    fn points_in_flat_shapes() {
        check(
            "{a: {$geoWithin: {$box: [[0, 0], [2, 2]]}}}",
            &[
                "{a: [1, 1]}",
                "{a: {x: 2, y: 2}}",
                "{a: [[5, 5], [1, 1]]}",
                "{a: {type: 'Point', coordinates: [1, 1]}}",
                "{a: [1, 1, 'more']}",
            ],
            &[
                "{a: [3, 1]}",
                "{a: 1}",
                "{}",
                "{a: [1]}",
                "{a: {type: 'LineString', coordinates: [[1, 1], [2, 2]]}}",
            ],
        );
        check(
            "{a: {$within: {$polygon: {a: [0, 0], b: [0, 2], c: [2, 0]}}}}",
            &["{a: [1, 1]}", "{a: [0, 0]}"],
            &["{a: [2, 2]}"],
        );
        check("{a: {$geoWithin: {$center: [[0, 0], 5]}}}", &["{a: [3, 4]}"], &["{a: [3, 4.1]}"]);
    }

    #[test]
    fn shapes_on_the_sphere() {
        let square = "{type: 'Polygon', coordinates: [[[0, 0], [4, 0], [4, 4], [0, 4], [0, 0]], \
                      [[1, 1], [2, 1], [2, 2], [1, 2], [1, 1]]]}";
        check(
            &format!("{{a: {{$geoWithin: {{$geometry: {square}}}}}}}"),
            &["{a: [3, 3]}", "{a: {type: 'LineString', coordinates: [[3, 0.5], [3, 3]]}}", "{a: [0, 0]}"],
            &[
                "{a: [1.5, 1.5]}",
                "{a: [5, 5]}",
                "{a: {type: 'LineString', coordinates: [[0.5, 0.5], [3, 3]]}}",
            ],
        );
        check(
            &format!("{{a: {{$geoIntersects: {{$geometry: {square}}}}}}}"),
            &["{a: {type: 'LineString', coordinates: [[0.5, 0.5], [3, 3]]}}", "{a: [0, 0]}", "{a: [3, 3]}"],
            &["{a: [1.5, 1.5]}", "{a: [5, 5]}"],
        );
        check(
            "{a: {$geoWithin: {$centerSphere: [[0, 0], 0.1]}}}",
            &["{a: [1, 1]}", "{a: {type: 'LineString', coordinates: [[0, 0], [3, 3]]}}"],
            &["{a: [6, 6]}", "{a: {type: 'LineString', coordinates: [[0, 0], [9, 9]]}}", "{a: [200, 0]}"],
        );
    }

    #[test]
    fn a_strict_polygon_is_left_of_its_edges() {
        let crs = "crs: {type: 'name', properties: {name: 'urn:x-mongodb:crs:strictwinding:EPSG:4326'}}";
        let clockwise = "coordinates: [[[0, 0], [0, 4], [4, 4], [4, 0], [0, 0]]]";
        check(
            &format!("{{a: {{$geoWithin: {{$geometry: {{type: 'Polygon', {clockwise}, {crs}}}}}}}}}"),
            &["{a: [50, 50]}"],
            &["{a: [2, 2]}", &format!("{{a: {{type: 'Polygon', {clockwise}, {crs}}}}}")],
        );
    }

    #[test]
    fn invalid_shapes_are_refused() {
        check_error("{a: {$geoWithin: 5}}", 2, "geometry must be an object");
        check_error("{a: {$geoWithin: {}}}", 2, "geo query doesn't have any geometry");
        check_error("{a: {$geoWithin: {$foo: [1, 2]}}}", 2, "unknown geo specifier: $foo: [ 1, 2 ]");
        check_error(
            "{a: {$geoWithin: {$geometry: {type: 'Point', coordinates: [0, 0]}}}}",
            2,
            "$within not supported with provided geometry: { $geoWithin: { $geometry: { type: \"Point\", \
             coordinates: [ 0, 0 ] } } }",
        );
        check_error(
            "{a: {$geoWithin: {$center: [[0, 0], -1]}}}",
            2,
            "Radius must be a non-negative number: -1",
        );
        check_error(
            "{a: {$geoWithin: {$center: [[0, 0], 1, 2]}}}",
            2,
            "Only 2 fields allowed for circular region, but more were provided",
        );
        check_error(
            "{a: {$geoWithin: {$box: [[0, 0], 5]}}}",
            2,
            "Point must be an array or object, instead got type int",
        );
        check_error(
            "{a: {$geoWithin: {$centerSphere: [[0, 95], 1]}}}",
            2,
            "longitude/latitude is out of bounds, lng: 0 lat: 95",
        );
        check_error(
            "{a: {$geoWithin: {$center: [[0, 0], 1]}, $gt: 5}}",
            2,
            "can't parse extra field: $gt: 5",
        );
        check_error(
            "{a: {$geoIntersects: {$box: [[0, 0], [1, 1]]}}}",
            2,
            "$geoIntersect not supported with provided geometry: { $geoIntersects: { $box: [ [ 0, 0 ], [ 1, 1 ] ] } }",
        );
    }
}
