//! The `crs` of GeoJSON: which way of reading coordinates it asks for.

use super::position::fields_of;
use base::bson::{Document, Value};
use base::{Result, err};

/// How to read a polygon.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Crs {
    /// The smaller of the two areas that a border divides the sphere into.
    Sphere,
    /// What is left of the border.
    Strict,
}

const NAMES: [&str; 2] = ["urn:ogc:def:crs:OGC:1.3:CRS84", "EPSG:4326"];
const STRICT: &str = "urn:x-mongodb:crs:strictwinding:EPSG:4326";

/// Reads the field.
///
/// Errors: BadValue for what isn't known, and for the strict one where it isn't `allowed`.
pub(super) fn parse(geometry: Document<'_>, strict_allowed: bool) -> Result<Crs> {
    let Some(crs) = geometry.get("crs") else { return Ok(Crs::Sphere) };
    let fields = fields_of(&crs).ok_or_else(|| {
        err!(BadValue, "GeoJSON CRS must be an object, instead got type {}", crs.kind().alias())
    })?;
    if fields.get("type").and_then(|kind| kind.as_str()) != Some("name") {
        return Err(err!(BadValue, "GeoJSON CRS must have field \"type\": \"name\""));
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
