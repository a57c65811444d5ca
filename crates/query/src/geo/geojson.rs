//! Parser of GeoJSON: points, lines and polygons on the sphere.
//!
//! The field `crs` selects the interpretation of coordinates.

use super::geometry::{Form, Geometry, Part};
use super::position::fields_of;
use super::{Position, rings};
use base::bson::{Array, Document, Value};
use base::{Result, bail, err};
use s2rst::s2::Point;
use s2rst::s2::polyline::Polyline;

/// Parses a geometry of any type.
///
/// Errors: BadValue with MongoDB's message.
pub(super) fn parse(geometry: Document<'_>) -> Result<Geometry> {
    let Some(kind) = Kind::of(geometry) else {
        bail!(BadValue, "unknown GeoJSON type: {geometry}");
    };
    if kind != Kind::GeometryCollection {
        return kind.parse(geometry);
    }
    let geometries = list(geometry, "geometries", "GeometryCollection geometries")?;
    let mut parts = Vec::new();
    for (index, member) in geometries.iter().enumerate() {
        parts.extend(member_of_collection(index, member)?);
    }
    Ok(Geometry::Sphere { parts, form: Form::Several })
}

/// GeoJSON's types.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Point,
    LineString,
    Polygon,
    MultiPoint,
    MultiLineString,
    MultiPolygon,
    GeometryCollection,
}

impl Kind {
    /// Returns the type of a geometry; `None` if the field `type` is missing or unknown.
    fn of(geometry: Document<'_>) -> Option<Kind> {
        Some(match geometry.get("type")?.as_str()? {
            "Point" => Kind::Point,
            "LineString" => Kind::LineString,
            "Polygon" => Kind::Polygon,
            "MultiPoint" => Kind::MultiPoint,
            "MultiLineString" => Kind::MultiLineString,
            "MultiPolygon" => Kind::MultiPolygon,
            "GeometryCollection" => Kind::GeometryCollection,
            _ => return None,
        })
    }

    /// Parses a geometry with coordinates.
    fn parse(self, geometry: Document<'_>) -> Result<Geometry> {
        let crs = parse_crs(geometry, self == Kind::Polygon)?;
        let coordinates = geometry.get("coordinates");
        let listed = |name: &str| list(geometry, "coordinates", name);
        let parts: Vec<Part> = match self {
            Kind::Point => vec![point(coordinates)?],
            Kind::LineString => vec![line(coordinates)?],
            Kind::Polygon if crs == Crs::Strict => {
                let parts = vec![Part::Polygon(Box::new(rings::strict(coordinates)?))];
                return Ok(Geometry::Sphere { parts, form: Form::Strict });
            }
            Kind::Polygon => vec![Part::Polygon(Box::new(rings::polygon(coordinates)?))],
            Kind::MultiPoint => {
                let all: Vec<Part> =
                    elements(coordinates)?.iter().map(point_of_many).collect::<Result<_>>()?;
                if all.is_empty() {
                    bail!(BadValue, "MultiPoint coordinates must have at least 1 element");
                }
                all
            }
            Kind::MultiLineString => {
                let all = listed("MultiLineString coordinates")?;
                all.iter().map(|value| line(Some(value))).collect::<Result<_>>()?
            }
            Kind::MultiPolygon => {
                let all = listed("MultiPolygon coordinates")?;
                let polygon = |value| Ok(Part::Polygon(Box::new(rings::polygon(Some(value))?)));
                all.iter().map(polygon).collect::<Result<_>>()?
            }
            Kind::GeometryCollection => Vec::new(),
        };
        let single = matches!(self, Kind::Point | Kind::LineString | Kind::Polygon);
        Ok(Geometry::Sphere { parts, form: if single { Form::Single } else { Form::Several } })
    }
}

/// Parses one geometry of a GeometryCollection, which cannot contain collections.
fn member_of_collection(index: usize, member: Value<'_>) -> Result<Vec<Part>> {
    let Value::Document(geometry) = member else {
        bail!(
            BadValue,
            "Element {index} of \"geometries\" is not an object, it is of type {}",
            member.kind().alias()
        );
    };
    let Some(kind) = Kind::of(geometry) else {
        bail!(BadValue, "Unknown GeoJSON type: {geometry}");
    };
    if kind == Kind::GeometryCollection {
        bail!(BadValue, "GeometryCollections cannot be nested: {geometry}");
    }
    match kind.parse(geometry)? {
        Geometry::Sphere { form: Form::Strict, .. } => {
            Err(err!(BadValue, "Strict winding order is only supported by polygon"))
        }
        Geometry::Sphere { parts, .. } => Ok(parts),
        _ => Ok(Vec::new()),
    }
}

/// Returns a non-empty array.
fn list<'a>(geometry: Document<'a>, field: &str, name: &str) -> Result<Array<'a>> {
    match geometry.get(field) {
        Some(Value::Array(array)) if array.is_empty() => {
            Err(err!(BadValue, "{name} must have at least 1 element"))
        }
        Some(Value::Array(array)) => Ok(array),
        other => Err(err!(BadValue, "{name} must be an array, instead got type {}", kind_of(other))),
    }
}

pub(super) fn kind_of(value: Option<Value<'_>>) -> &'static str {
    value.map_or("missing", |value| value.kind().alias())
}

/// Returns an array of coordinates.
pub(super) fn elements(coordinates: Option<Value<'_>>) -> Result<Array<'_>> {
    match coordinates {
        Some(Value::Array(array)) => Ok(array),
        other => Err(err!(
            BadValue,
            "GeoJSON coordinates must be an array of coordinates, instead got type {}",
            kind_of(other)
        )),
    }
}

/// Parses the coordinates of one point, optionally with an altitude.
fn position(coordinates: Value<'_>) -> Result<Position> {
    elements(Some(coordinates))?;
    Position::parse(Some(coordinates), true)
}

pub(super) fn vertex(coordinates: Value<'_>) -> Result<Point> {
    position(coordinates)?.require_sphere()
}

fn point_of_many(coordinates: Value<'_>) -> Result<Part> {
    let position = position(coordinates)?;
    Ok(Part::Point(position, position.require_sphere()?))
}

/// Returns the position of a point, whatever type the document names.
///
/// Errors: BadValue.
pub(super) fn position_of_point(geometry: Document<'_>) -> Result<Position> {
    parse_crs(geometry, false)?;
    let position = Position::parse(geometry.get("coordinates"), true)?;
    point(geometry.get("coordinates")).map(|_| position)
}

fn point(coordinates: Option<Value<'_>>) -> Result<Part> {
    let position = Position::parse(coordinates, true)?;
    Part::point(position).ok_or_else(|| {
        err!(BadValue, "Longitude/latitude is out of bounds, lng: {} lat: {}", position.x, position.y)
    })
}

/// Parses a LineString. Adjacent duplicates of a vertex are removed, and two vertices must remain.
fn line(coordinates: Option<Value<'_>>) -> Result<Part> {
    let array = elements(coordinates)?;
    let mut vertices: Vec<Point> = array.iter().map(vertex).collect::<Result<_>>()?;
    vertices.dedup();
    if vertices.len() < 2 {
        bail!(BadValue, "GeoJSON LineString must have at least 2 vertices: {}", Value::Array(array));
    }
    let line = Polyline::new(vertices);
    match line.find_validation_error() {
        None => Ok(Part::Line(line)),
        Some(error) => {
            Err(err!(BadValue, "GeoJSON LineString is not valid: {} {}", error.message, Value::Array(array)))
        }
    }
}

/// Interpretation of a polygon.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Crs {
    /// The smaller of the two areas that a border divides the sphere into.
    Sphere,
    /// The area to the left of the border.
    Strict,
}

/// Names of the default coordinate system.
const NAMES: [&str; 2] = ["urn:ogc:def:crs:OGC:1.3:CRS84", "EPSG:4326"];
/// The name of MongoDB's coordinate system for polygons by winding order.
const STRICT: &str = "urn:x-mongodb:crs:strictwinding:EPSG:4326";

/// Parses the field `crs`.
///
/// Errors: BadValue for an unknown system, and for the strict system unless allowed.
fn parse_crs(geometry: Document<'_>, strict_allowed: bool) -> Result<Crs> {
    let Some(crs) = geometry.get("crs") else { return Ok(Crs::Sphere) };
    let fields = fields_of(&crs).ok_or_else(|| {
        err!(BadValue, "GeoJSON CRS must be an object, instead got type {}", crs.kind().alias())
    })?;
    if fields.get("type").and_then(|kind| kind.as_str()) != Some("name") {
        bail!(BadValue, "GeoJSON CRS must have field \"type\": \"name\"");
    }
    let properties = fields.get("properties");
    let properties = properties.and_then(|value| fields_of(&value)).ok_or_else(|| {
        let kind = properties.map_or("missing", |value| value.kind().alias());
        err!(BadValue, "CRS must have field \"properties\" which is an object, instead got type {kind}")
    })?;
    match properties.get("name") {
        Some(Value::String(name)) if NAMES.contains(&name) => Ok(Crs::Sphere),
        Some(Value::String(STRICT)) if strict_allowed => Ok(Crs::Strict),
        Some(Value::String(STRICT)) => {
            Err(err!(BadValue, "Strict winding order is only supported by polygon"))
        }
        Some(Value::String(name)) => Err(err!(BadValue, "Unknown CRS name: {name}")),
        other => Err(err!(
            BadValue,
            "In CRS, \"properties.name\" must be a string, instead got type {}",
            other.map_or("missing", |value| value.kind().alias())
        )),
    }
}
