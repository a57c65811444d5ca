//! The collection that `$out` or `$merge` names: as text or as `{db, coll}`.

use super::collections::Namespace;
use base::bson::{Document, Element, Value};
use base::{Result, err};

/// Reads `{db, coll}`; `prefix` is how messages call it.
///
/// Errors: 40415 for an unknown field, 40414 without a collection, TypeMismatch, NotImplemented
/// for a time-series target.
pub(super) fn from_document(prefix: &str, target: Document<'_>) -> Result<Namespace> {
    let (mut database, mut collection) = (None, None);
    for field in target {
        match field.name() {
            "db" => database = Some(text(prefix, &field)?),
            "coll" => collection = Some(text(prefix, &field)?),
            "timeseries" => return Err(err!(NotImplemented, "{prefix}.timeseries is not implemented")),
            other => return Err(err!(40415, "BSON field '{prefix}.{other}' is an unknown field.")),
        }
    }
    match collection {
        Some(collection) => Ok(Namespace { database, collection }),
        None => Err(err!(40414, "BSON field '{prefix}.coll' is missing but a required field")),
    }
}

fn text(prefix: &str, field: &Element<'_>) -> Result<String> {
    match field.value() {
        Value::String(text) if !text.is_empty() => Ok(text.to_string()),
        Value::String(_) => Err(err!(InvalidNamespace, "{prefix}.{} cannot be empty", field.name())),
        other => Err(err!(
            TypeMismatch,
            "BSON field '{prefix}.{}' is the wrong type '{}', expected type 'string'",
            field.name(),
            other.kind().alias()
        )),
    }
}
