//! The shapes that `$geoWithin` and `$geoIntersects` name: `$geometry`, `$box`, `$center`,
//! `$centerSphere` and `$polygon`.

use super::geometry::{Cap, Form, Geometry};
use super::position::{fields_of, is_legacy};
use super::{Circle, FlatBox, FlatPolygon, Position, geojson};
use base::bson::{Document, Element, Value};
use base::{Result, err};

impl Geometry {
    /// The shape that one field of the operator's argument asks for.
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

    /// Whether it is a polygon by its winding.
    pub fn is_strict(&self) -> bool {
        matches!(self, Geometry::Sphere { form: Form::Strict, .. })
    }
}

/// A point that a filter asks to be near to, and whether it is GeoJSON.
///
/// Errors: BadValue.
pub(crate) fn query_point(value: Value<'_>) -> Result<(Position, bool)> {
    if is_legacy(&value) {
        return Position::parse(Some(value), false).map(|position| (position, false));
    }
    let fields = fields_of(&value).unwrap_or(Document::EMPTY);
    geojson::place(fields).map(|position| (position, true))
}

/// A middle and a radius.
fn circle(fields: Document<'_>) -> Result<Circle> {
    let mut fields = fields.iter();
    let center = Position::parse(fields.next().map(|field| field.value()), false)?;
    let radius = fields.next();
    let number = radius.and_then(|field| field.value().as_number()).map(|number| number.to_f64());
    let Some(radius) = number.filter(|number| *number >= 0.0) else {
        let given = radius.map_or(Value::Undefined, |field| field.value());
        return Err(err!(BadValue, "Radius must be a non-negative number: {given}"));
    };
    if fields.next().is_some() {
        return Err(err!(BadValue, "Only 2 fields allowed for circular region, but more were provided"));
    }
    Ok(Circle { center, radius })
}
