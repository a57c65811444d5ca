//! A pair of numbers: a place in the plane, or a longitude and a latitude in degrees.

use base::bson::{Document, Value};
use base::{Result, bail, err};
use s2rst::s2::{LatLng, Point};

/// A point in the plane, or on the sphere as longitude and latitude in degrees.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Position {
    /// The first coordinate: the longitude.
    pub x: f64,
    /// The second coordinate: the latitude.
    pub y: f64,
}

impl Position {
    /// Parses a legacy pair, an array or an embedded document. Pairs in documents may have further fields after the two
    /// numbers; pairs in filters may not.
    ///
    /// Errors: BadValue.
    pub(crate) fn parse(value: Option<Value<'_>>, more_fields: bool) -> Result<Position> {
        let Some(fields) = value.and_then(|value| fields_of(&value)) else {
            bail!(
                BadValue,
                "Point must be an array or object, instead got type {}",
                value.map_or("missing", |value| value.kind().alias())
            );
        };
        let mut fields = fields.iter();
        let mut number = || {
            let field = fields.next();
            let number = field.and_then(|field| field.value().as_number());
            number.map(|number| number.to_f64()).ok_or_else(|| {
                let kind = field.map_or("missing", |field| field.kind().alias());
                err!(BadValue, "Point must only contain numeric elements, instead got type {kind}")
            })
        };
        let position = Position { x: number()?, y: number()? };
        if !more_fields && fields.next().is_some() {
            bail!(BadValue, "Point must only contain two numeric elements");
        }
        if !position.x.is_finite() || !position.y.is_finite() {
            bail!(BadValue, "Point coordinates must be finite numbers");
        }
        Ok(position)
    }

    /// Whether the position is a longitude and a latitude.
    pub fn is_on_sphere(self) -> bool {
        self.x.abs() <= 180.0 && self.y.abs() <= 90.0
    }

    /// The point on the sphere, if the position is on it.
    pub(crate) fn to_sphere(self) -> Option<Point> {
        let point = || LatLng::from_degrees(self.y, self.x).normalized().to_point();
        self.is_on_sphere().then(point)
    }

    /// The point on the sphere.
    ///
    /// Errors: BadValue if the position is not on the sphere.
    pub(crate) fn require_sphere(self) -> Result<Point> {
        self.to_sphere().ok_or_else(|| {
            err!(BadValue, "longitude/latitude is out of bounds, lng: {} lat: {}", self.x, self.y)
        })
    }

    /// The distance in the plane.
    pub fn distance(self, other: Position) -> f64 {
        let (a, b) = (self.x - other.x, self.y - other.y);
        // Distances along an axis need no square root and stay exact.
        match (a == 0.0, b == 0.0) {
            (true, _) => b.abs(),
            (_, true) => a.abs(),
            _ => (a * a + b * b).sqrt(),
        }
    }
}

/// The fields of a document or array.
pub(crate) fn fields_of<'a>(value: &Value<'a>) -> Option<Document<'a>> {
    match value {
        Value::Document(document) => Some(*document),
        Value::Array(array) => Some(array.as_document()),
        _ => None,
    }
}

/// Whether a value parses as a legacy pair rather than as GeoJSON.
pub(crate) fn is_legacy(value: &Value<'_>) -> bool {
    match value {
        Value::Array(_) => true,
        Value::Document(document) => {
            document.first().is_some_and(|field| field.value().as_number().is_some())
        }
        _ => false,
    }
}
