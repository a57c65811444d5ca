//! What a document or a filter holds: legacy pairs and GeoJSON in both, flat shapes and spherical
//! circles in filters only.

use super::position::is_legacy;
use super::{Circle, EARTH_RADIUS, FlatBox, FlatPolygon, Position, geojson};
use base::bson::Value;
use base::{Result, err};
use s2rst::s1::Angle;
use s2rst::s2::polyline::Polyline;
use s2rst::s2::{Point, Polygon};

/// A place or a shape.
#[derive(Debug)]
pub enum Geometry {
    /// A legacy pair, which is on the sphere too where its numbers are a longitude and a latitude.
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
        /// What it consists of.
        parts: Vec<Part>,
        /// What it was written as.
        form: Form,
    },
}

/// What GeoJSON was written as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// A point, line or polygon.
    Single,
    /// One of GeoJSON's types for several.
    Several,
    /// A polygon whose inside is left of its border, however large that is.
    Strict,
}

/// A circle on the sphere.
#[derive(Clone, Copy, Debug)]
pub struct Cap {
    /// As it was given, the radius being in radians.
    pub circle: Circle,
    /// As a region.
    pub cap: s2rst::s2::Cap,
}

/// One point, line or polygon on the sphere.
#[derive(Debug)]
pub enum Part {
    /// A point, as it was given and on the sphere.
    Point(Position, Point),
    /// A line.
    Line(Polyline),
    /// A polygon with its holes.
    Polygon(Box<Polygon>),
}

impl Cap {
    /// A circle around a place, by a radius in radians.
    ///
    /// Errors: BadValue where the place isn't on the sphere.
    pub fn new(circle: Circle) -> Result<Cap> {
        let center = circle.center.require_sphere()?;
        let cap = s2rst::s2::Cap::from_center_angle(center, Angle::from_radians(circle.radius));
        Ok(Cap { circle, cap })
    }
}

impl Part {
    /// A point where there is one on the sphere.
    pub(crate) fn point(position: Position) -> Option<Part> {
        Some(Part::Point(position, position.to_sphere()?))
    }
}

impl Geometry {
    /// What a document holds.
    ///
    /// Errors: BadValue for what is no geometry.
    pub fn stored(value: Value<'_>) -> Result<Geometry> {
        if is_legacy(&value) {
            return Position::parse(Some(value), true).map(Geometry::Pair);
        }
        match value {
            Value::Document(document) => geojson::parse(document),
            _ => Err(err!(BadValue, "geo element must be an array or object: {value}")),
        }
    }

    /// The place of a pair or a GeoJSON point.
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

    /// What it consists of on the sphere; `None` for what isn't there, and for polygons by their
    /// winding, which only filters have.
    pub fn stored_parts(self) -> Option<Vec<Part>> {
        match self {
            Geometry::Sphere { form: Form::Strict, .. } => None,
            Geometry::Sphere { parts, .. } => Some(parts),
            Geometry::Pair(position) => Part::point(position).map(|part| vec![part]),
            _ => None,
        }
    }

    /// Whether it is a shape in the plane.
    pub fn is_flat(&self) -> bool {
        !matches!(self, Geometry::Cap(_) | Geometry::Sphere { .. })
    }

    /// Whether something may lie within it.
    pub(crate) fn has_inside(&self) -> bool {
        match self {
            Geometry::Pair(_) => false,
            Geometry::Box(_) | Geometry::Circle(_) | Geometry::Polygon(_) | Geometry::Cap(_) => true,
            Geometry::Sphere { parts, .. } => parts.iter().any(|part| matches!(part, Part::Polygon(_))),
        }
    }
}

/// Radians on the earth as metres.
pub(crate) fn metres(radians: f64) -> f64 {
    radians * EARTH_RADIUS
}
