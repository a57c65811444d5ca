//! Geometry in documents and filters. Legacy pairs and GeoJSON occur in both; flat shapes and spherical circles only in
//! filters.
//!
//! The module also computes distances between geometry and points. It parses the shapes of `$geoWithin` and
//! `$geoIntersects`: `$geometry`, `$box`, `$center`, `$centerSphere` and `$polygon`.

use super::position::{fields_of, is_legacy};
use super::{Circle, EARTH_RADIUS, FlatBox, FlatPolygon, Position, geojson};
use base::bson::{Document, Element, Value};
use base::{Result, bail, err};
use s2rst::s1::Angle;
use s2rst::s2::polyline::Polyline;
use s2rst::s2::{Point, Polygon};

/// A point or a shape.
#[derive(Debug)]
pub enum Geometry {
    /// A legacy pair. It is also a point on the sphere if its numbers are a longitude and a latitude.
    Pair(Position),
    /// `$box`.
    Box(FlatBox),
    /// `$center`.
    Circle(Circle),
    /// `$polygon`.
    Polygon(FlatPolygon),
    /// `$centerSphere`.
    Cap(Cap),
    /// GeoJSON.
    Sphere {
        /// The points, lines and polygons of the geometry.
        parts: Vec<Part>,
        /// The GeoJSON form of the geometry.
        form: Form,
    },
}

/// Form of a GeoJSON geometry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// A point, line or polygon.
    Single,
    /// A GeoJSON type for several geometries.
    Several,
    /// A polygon whose interior is left of its border, however large.
    Strict,
}

/// A circle on the sphere.
#[derive(Clone, Copy, Debug)]
pub struct Cap {
    /// The circle as given, with the radius in radians.
    pub circle: Circle,
    /// The circle as an S2 region.
    pub cap: s2rst::s2::Cap,
}

/// One point, line or polygon on the sphere.
#[derive(Debug)]
pub enum Part {
    /// A point as given, and on the sphere.
    Point(Position, Point),
    /// A line.
    Line(Polyline),
    /// A polygon with its holes.
    Polygon(Box<Polygon>),
}

impl Cap {
    /// Builds a circle around a point; the radius is in radians.
    ///
    /// Errors: BadValue if the point is not on the sphere.
    pub fn new(circle: Circle) -> Result<Cap> {
        let center = circle.center.require_sphere()?;
        let cap = s2rst::s2::Cap::from_center_angle(center, Angle::from_radians(circle.radius));
        Ok(Cap { circle, cap })
    }
}

impl Part {
    /// Returns a point, if the position is on the sphere.
    pub(crate) fn point(position: Position) -> Option<Part> {
        Some(Part::Point(position, position.to_sphere()?))
    }
}

impl Geometry {
    /// Parses the geometry of a document.
    ///
    /// Errors: BadValue for a value that is not geometry.
    pub fn stored(value: Value<'_>) -> Result<Geometry> {
        if is_legacy(&value) {
            return Position::parse(Some(value), true).map(Geometry::Pair);
        }
        match value {
            Value::Document(document) => geojson::parse(document),
            _ => Err(err!(BadValue, "geo element must be an array or object: {value}")),
        }
    }

    /// The position of a pair or a GeoJSON point.
    pub fn position(&self) -> Option<Position> {
        match self {
            Geometry::Pair(position) => Some(*position),
            Geometry::Sphere { parts, form: Form::Single } => match parts.as_slice() {
                [Part::Point(position, _)] => Some(*position),
                _ => None,
            },
            _ => None,
        }
    }

    /// The parts on the sphere. `None` for flat geometry, and for polygons by winding order, which occur only in
    /// filters.
    pub fn stored_parts(self) -> Option<Vec<Part>> {
        match self {
            Geometry::Sphere { form: Form::Strict, .. } => None,
            Geometry::Sphere { parts, .. } => Some(parts),
            Geometry::Pair(position) => Part::point(position).map(|part| vec![part]),
            _ => None,
        }
    }

    /// Whether the shape is in the plane.
    pub fn is_flat(&self) -> bool {
        !matches!(self, Geometry::Cap(_) | Geometry::Sphere { .. })
    }

    /// Whether the geometry has an interior.
    pub(crate) fn has_inside(&self) -> bool {
        match self {
            Geometry::Pair(_) => false,
            Geometry::Box(_) | Geometry::Circle(_) | Geometry::Polygon(_) | Geometry::Cap(_) => true,
            Geometry::Sphere { parts, .. } => parts.iter().any(|part| matches!(part, Part::Polygon(_))),
        }
    }
}

/// Converts radians on the earth to metres.
pub(crate) fn metres(radians: f64) -> f64 {
    radians * EARTH_RADIUS
}

impl Part {
    /// The least angle to a point, in radians; zero within a polygon.
    pub(crate) fn angle(&self, point: Point) -> f64 {
        let nearest = match self {
            Part::Point(_, point) => *point,
            Part::Line(line) => line.project(point).0,
            Part::Polygon(polygon) => polygon.project_point(point),
        };
        point.distance(nearest).radians()
    }
}

impl Geometry {
    /// The least distance of a document's geometry to a point on the sphere, in metres; `None` if it is not on the
    /// sphere.
    pub fn metres_from(self, point: Point) -> Option<f64> {
        let parts = self.stored_parts()?;
        parts.iter().map(|part| metres(part.angle(point))).reduce(f64::min)
    }

    /// The distance of a pair or point to a point in the plane; `None` for other shapes.
    pub fn distance_from(&self, position: Position) -> Option<f64> {
        self.position().map(|own| own.distance(position))
    }
}

impl Geometry {
    /// Parses the shape in one field of the operator's argument.
    ///
    /// Errors: BadValue.
    pub fn specified(specifier: &Element<'_>) -> Result<Geometry> {
        let value = specifier.value();
        let unknown = || err!(BadValue, "unknown geo specifier: {}: {value}", specifier.name());
        let fields = fields_of(&value).ok_or_else(unknown)?;
        match specifier.name() {
            "$geometry" if is_legacy(&value) => Position::parse(Some(value), false).map(Geometry::Pair),
            "$geometry" => geojson::parse(fields),
            "$box" => {
                let mut corners = fields.iter();
                let mut corner = || Position::parse(corners.next().map(|field| field.value()), false);
                Ok(Geometry::Box(FlatBox::new(corner()?, corner()?)))
            }
            "$center" => circle(fields).map(Geometry::Circle),
            "$centerSphere" => Cap::new(circle(fields)?).map(Geometry::Cap),
            "$polygon" => {
                let corners = fields.iter().map(|field| Position::parse(Some(field.value()), false));
                FlatPolygon::new(corners.collect::<Result<_>>()?).map(Geometry::Polygon)
            }
            _ => Err(unknown()),
        }
    }

    /// Whether the shape is a polygon by winding order.
    pub fn is_strict(&self) -> bool {
        matches!(self, Geometry::Sphere { form: Form::Strict, .. })
    }
}

/// Parses the center of a near condition. Also returns whether it is GeoJSON.
///
/// Errors: BadValue.
pub(crate) fn query_point(value: Value<'_>) -> Result<(Position, bool)> {
    if is_legacy(&value) {
        return Position::parse(Some(value), false).map(|position| (position, false));
    }
    let fields = fields_of(&value).unwrap_or(Document::EMPTY);
    geojson::position_of_point(fields).map(|position| (position, true))
}

/// Parses a center and a radius.
fn circle(fields: Document<'_>) -> Result<Circle> {
    let mut fields = fields.iter();
    let center = Position::parse(fields.next().map(|field| field.value()), false)?;
    let radius = fields.next();
    let number = radius.and_then(|field| field.value().as_number()).map(|number| number.to_f64());
    let Some(radius) = number.filter(|number| *number >= 0.0) else {
        let given = radius.map_or(Value::Undefined, |field| field.value());
        bail!(BadValue, "Radius must be a non-negative number: {given}");
    };
    if fields.next().is_some() {
        bail!(BadValue, "Only 2 fields allowed for circular region, but more were provided");
    }
    Ok(Circle { center, radius })
}
