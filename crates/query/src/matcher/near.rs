//! `$near`, `$nearSphere` and `$geoNear`: all documents, nearest first.
//!
//! The conditions match every document. The plan applies the order and the distance limits.
//!
//! ```text
//! {<path>: {$near: {$geometry: <GeoJSON point>, $minDistance: <metres>, $maxDistance: <metres>}}}
//! {<path>: {$near: [<x>, <y>], $maxDistance: <number>}}
//! ```

use super::node::{Node, Predicate};
use super::operators::FieldArgument;
use super::parse::Parser;
use crate::geo::{EARTH_RADIUS, Position};
use base::bson::{Document, DocumentBuf, Element, Path, Value};
use base::{Result, bail, err};
use s2rst::s2::Point;

/// A near condition: a center and distance limits.
#[derive(Clone, Debug)]
pub struct Near {
    /// The center.
    pub center: Center,
    /// The minimum distance: metres on the sphere, otherwise units of the plane.
    pub min: f64,
    /// The maximum distance, in the unit of `min`.
    pub max: f64,
    /// Whether the operator was `$nearSphere`.
    pub near_sphere: bool,
    /// Whether distances are given and returned in radians.
    pub radians: bool,
    /// Whether the center was GeoJSON, which a `2d` index does not support.
    pub geojson: bool,
    /// The operators as given.
    source: DocumentBuf,
}

/// The center of a near condition.
#[derive(Clone, Copy, Debug)]
pub enum Center {
    /// A point in the plane.
    Flat(Position),
    /// A point on the sphere, as given and converted.
    Sphere(Position, Point),
}

/// The greatest distance between two points of the earth, in metres.
const FARTHEST: f64 = std::f64::consts::PI * EARTH_RADIUS;

impl Near {
    /// Converts a distance to the unit of the output.
    pub fn shown(&self, distance: f64) -> f64 {
        if self.radians { distance / EARTH_RADIUS } else { distance }
    }

    /// The operators as given.
    pub fn source(&self) -> Document<'_> {
        self.source.view()
    }
}

/// Whether this operator starts a near condition.
fn is_near(name: &str) -> bool {
    matches!(name, "$near" | "$nearSphere" | "$geoNear")
}

/// Parses a near condition, which takes all operators of its field. `None` if the first operator does not start one.
pub(super) fn parse_all(path: &Path, operators: Document<'_>) -> Option<Result<Node>> {
    let first = operators.first()?;
    let is_place = matches!(first.value(), Value::Document(_) | Value::Array(_));
    if !is_near(first.name()) || !is_place {
        return None;
    }
    let node = |near| Node::Field { path: path.clone(), predicate: Predicate::Near(Box::new(near)) };
    Some(parse(operators).map(node))
}

/// Refuses a near operator that is not the first of its field.
pub(super) fn parse_near(_: &Parser<'_>, argument: &FieldArgument<'_>) -> Result<Option<Node>> {
    Err(err!(BadValue, "near must be first in: {}", argument.siblings))
}

/// The given center and distances.
#[derive(Default)]
struct NearSpec {
    position: Option<(Position, bool)>,
    near_sphere: bool,
    min: Option<f64>,
    max: Option<f64>,
}

/// Parses the operators of a near condition. Legacy points of `$nearSphere` have distances in radians, which become
/// metres here.
fn parse(operators: Document<'_>) -> Result<Near> {
    let spec = match legacy(operators)? {
        Some(spec) => spec,
        None => with_geometry(operators)?,
    };
    let NearSpec { position: Some((position, geojson)), near_sphere, min, max } = spec else {
        bail!(BadValue, "$geometry is required for geo near query");
    };
    let radians = near_sphere && !geojson;
    let center = match near_sphere || geojson {
        true => position
            .to_sphere()
            .map(|point| Center::Sphere(position, point))
            .ok_or_else(|| err!(BadValue, "Legacy point is out of bounds for spherical query"))?,
        false => Center::Flat(position),
    };
    let unit = if radians { EARTH_RADIUS } else { 1.0 };
    let most = if matches!(center, Center::Sphere(..)) { FARTHEST } else { f64::MAX };
    Ok(Near {
        center,
        min: min.unwrap_or(0.0) * unit,
        max: max.map_or(most, |max| max * unit).min(most),
        near_sphere,
        radians,
        geojson,
        source: operators.to_owned(),
    })
}

/// Parses a center with separate distances, `{$near: [0, 0], $maxDistance: 1}`, or a combined array, `[0, 0, 1]`.
/// `None` without a center in these forms.
fn legacy(operators: Document<'_>) -> Result<Option<NearSpec>> {
    let mut spec = NearSpec::default();
    for element in operators {
        let value = element.value();
        match element.name() {
            name if is_near(name) => {
                if !matches!(value, Value::Document(_) | Value::Array(_)) {
                    return Ok(None);
                }
                if let Ok(found) = query_point(value) {
                    spec.position = Some(found);
                    spec.near_sphere = name == "$nearSphere";
                } else if let Some((position, max)) = with_distance(value) {
                    if max.is_nan() || max < 0.0 {
                        bail!(18522, "max distance must be non-negative");
                    }
                    spec.position = Some((position, false));
                    spec.near_sphere = name == "$nearSphere";
                    spec.max = Some(max);
                }
            }
            "$minDistance" => spec.min = Some(distance(&element, 16893, 16894)?),
            "$maxDistance" => spec.max = Some(distance(&element, 16895, 16896)?),
            // Accepted without effect, as in MongoDB since 2.6.
            "$uniqueDocs" => {}
            name => bail!(34413, "invalid argument in geo near query: {name}"),
        }
    }
    Ok(spec.position.is_some().then_some(spec))
}

/// Parses a center with geometry: `{$near: {$geometry: {…}, $maxDistance: 1}}`.
fn with_geometry(operators: Document<'_>) -> Result<NearSpec> {
    let mut operators = operators.iter();
    let operator = operators.next();
    if let Some(extra) = operators.next() {
        bail!(
            BadValue,
            "geo near accepts just one argument when querying for a GeoJSON point. Extra field found: {}: {}",
            extra.name(),
            extra.value()
        );
    }
    let argument = operator.and_then(|operator| crate::geo::fields_of(&operator.value()));
    let Some(argument) = argument else {
        bail!(BadValue, "geo near query argument is not an object");
    };
    let mut spec = NearSpec::default();
    for element in argument {
        let value = element.value();
        match element.name() {
            "$geometry" if matches!(value, Value::Document(_) | Value::Array(_)) => {
                spec.position = Some(geometry(value)?);
            }
            "$geometry" => {}
            name @ ("$minDistance" | "$maxDistance") => {
                let Some(number) = value.as_number().map(|number| number.to_f64()) else {
                    bail!(BadValue, "{name} must be a number");
                };
                if !(number >= 0.0 && number.is_finite()) {
                    bail!(BadValue, "{name} must be non-negative");
                }
                if name == "$minDistance" { spec.min = Some(number) } else { spec.max = Some(number) }
            }
            name => bail!(BadValue, "invalid argument in geo near query: {name}"),
        }
    }
    Ok(spec)
}

fn geometry(value: Value<'_>) -> Result<(Position, bool)> {
    let (position, geojson) = query_point(value).map_err(|error| {
        err!(BadValue, "invalid point in geo near query $geometry argument: {value}  {}", error.message())
    })?;
    if !geojson {
        bail!(BadValue, "$near requires geojson point, given {value}");
    }
    Ok((position, geojson))
}

/// Parses a point. Also returns whether it is GeoJSON.
fn query_point(value: Value<'_>) -> Result<(Position, bool)> {
    crate::geo::query_point(value)
}

/// Parses a pair combined with a distance.
fn with_distance(value: Value<'_>) -> Option<(Position, f64)> {
    let fields = crate::geo::fields_of(&value)?;
    let mut numbers = fields.iter().map(|field| field.value().as_number().map(|number| number.to_f64()));
    let (x, y, max) = (numbers.next()??, numbers.next()??, numbers.next()??);
    let finite = x.is_finite() && y.is_finite();
    (finite && numbers.next().is_none()).then_some((Position { x, y }, max))
}

fn distance(element: &Element<'_>, no_number: i32, negative: i32) -> Result<f64> {
    let fail = |code: i32, message: &str| {
        base::Error::new(base::ErrorCode::Location(code), format!("{} must be {message}", element.name()))
    };
    let number = element.value().as_number().ok_or_else(|| fail(no_number, "a number"))?.to_f64();
    if number >= 0.0 { Ok(number) } else { Err(fail(negative, "non-negative")) }
}

/// Refuses near conditions whose order no plan could produce.
///
/// Errors: BadValue for several near conditions, or for a near condition that is not at the top.
pub(super) fn check_place(root: &Node) -> Result<()> {
    let is_near = |node: &Node| matches!(node, Node::Field { predicate: Predicate::Near(_), .. });
    let count = root.count(&is_near);
    if count > 1 {
        bail!(BadValue, "Too many geoNear expressions");
    }
    let at_top = match root {
        Node::And(children) => children.iter().any(is_near),
        single => is_near(single),
    };
    if count > 0 && !at_top {
        bail!(BadValue, "geoNear must be top-level expr");
    }
    Ok(())
}

/// Refuses near conditions in operations that order documents differently.
///
/// Errors: 5626500.
pub(super) fn refuse(root: &Node) -> Result<()> {
    let is_near = |node: &Node| matches!(node, Node::Field { predicate: Predicate::Near(_), .. });
    if root.any(&is_near) {
        bail!(
            5626500,
            "$geoNear, $near, and $nearSphere are not allowed in this context, as these operators require sorting \
             geospatial data. If you do not need sort, consider using $geoWithin instead."
        );
    }
    Ok(())
}
