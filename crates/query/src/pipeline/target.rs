//! The target collection of `$out` and `$merge`: a string or `{db, coll}`.

use super::collections::Namespace;
use base::bson::{Document, Element, Value};
use base::{Error, ErrorCode, Result, bail, err};

/// Parses `{db, coll}`; `prefix` is its name in messages.
///
/// Errors: 40415 for an unknown field, 40414 without a collection, TypeMismatch, NotImplemented for a time-series
/// target.
pub(super) fn from_document(prefix: &str, target: Document<'_>) -> Result<Namespace> {
    let (mut database, mut collection) = (None, None);
    for field in target {
        match field.name() {
            "db" if prefix.starts_with("$merge") && left_out(field.value()) => {}
            "db" => database = Some(text(prefix, &field)?),
            "coll" if prefix.starts_with("$merge") && left_out(field.value()) => {
                bail!(5786801, "Invalid {prefix}: the name of the collection is empty");
            }
            "coll" => collection = Some(text(prefix, &field)?),
            "timeseries" => bail!(NotImplemented, "{prefix}.timeseries is not implemented"),
            other => bail!(40415, "BSON field '{prefix}.{other}' is an unknown field."),
        }
    }
    match collection {
        Some(collection) => Ok(Namespace { database, collection }),
        None => Err(err!(40414, "BSON field '{prefix}.coll' is missing but a required field")),
    }
}

/// Null and an empty string mean an absent value.
fn left_out(value: Value<'_>) -> bool {
    value.is_nullish() || value.as_str() == Some("")
}

/// Refuses collections that a pipeline must not write to.
///
/// Errors: the first code for a system collection, the second for an internal database.
pub(super) fn check(target: &Namespace, stage: &str, codes: (i32, i32)) -> Result<()> {
    let error = |code, message| Err(Error::new(ErrorCode::Location(code), message));
    if target.collection.starts_with("system.") {
        return error(
            codes.0,
            format!("{stage} cannot write to the special collection {}", target.collection),
        );
    }
    match target.database.as_deref() {
        Some(database @ ("admin" | "config" | "local")) => {
            error(codes.1, format!("{stage} cannot write to the internal database {database}"))
        }
        _ => Ok(()),
    }
}

/// Returns a non-empty string. Errors: InvalidNamespace if empty, TypeMismatch for other types.
fn text(prefix: &str, field: &Element<'_>) -> Result<String> {
    match field.value() {
        Value::String(text) if !text.is_empty() => Ok(text.to_string()),
        Value::String(_) => Err(err!(InvalidNamespace, "{prefix}.{} cannot be empty", field.name())),
        other => Err(Error::wrong_type(format_args!("{prefix}.{}", field.name()), other.kind(), "string")),
    }
}
