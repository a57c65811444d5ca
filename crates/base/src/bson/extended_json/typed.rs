//! Extended JSON's typed values, such as `{"$oid": "…"}`.

use super::{date, shell};
use crate::bson::{Decimal128, Document, ObjectId, RegexText, Value, ValueBuf};
use crate::encoding::{from_base64, from_uuid};

/// Names that make a document a typed value in first position.
// tidy: sorted
const TYPE_NAMES: [&str; 17] = [
    "$binary",
    "$code",
    "$date",
    "$dbPointer",
    "$maxKey",
    "$minKey",
    "$numberDecimal",
    "$numberDouble",
    "$numberInt",
    "$numberLong",
    "$oid",
    "$regularExpression",
    "$scope",
    "$symbol",
    "$timestamp",
    "$undefined",
    "$uuid",
];

pub(super) fn is_type_name(name: &str) -> bool {
    TYPE_NAMES.binary_search(&name).is_ok()
}

/// Returns the value that the document represents; `None` if its shape does not match. Nested typed values have been
/// converted already.
pub(super) fn from_document(document: Document<'_>) -> Option<ValueBuf> {
    let first = document.first()?;
    let expected = if matches!(first.name(), "$code" | "$binary") { 2 } else { 1 };
    if document.iter().count() > expected {
        return None;
    }
    let value = first.value();
    let value = match first.name() {
        "$binary" => return from_binary(document, value),
        "$code" => match document.get("$scope") {
            Some(scope) => Value::JavaScriptWithScope { code: value.as_str()?, scope: scope.as_document()? },
            None if document.iter().count() == 1 => Value::JavaScript(value.as_str()?),
            None => return None,
        },
        "$date" => match value {
            Value::String(text) => Value::DateTime(date::parse_millis(text)?),
            _ => Value::DateTime(value.as_i64()?),
        },
        "$dbPointer" => {
            let pointer = value.as_document()?;
            let Value::ObjectId(id) = pointer.get("$id")? else { return None };
            Value::DbPointer { namespace: pointer.get("$ref")?.as_str()?, id }
        }
        "$maxKey" => Value::MaxKey,
        "$minKey" => Value::MinKey,
        "$numberDecimal" => Value::Decimal128(Decimal128::parse(value.as_str()?)?),
        "$numberDouble" => Value::Double(double(value.as_str()?)?),
        "$numberInt" => Value::Int32(value.as_str()?.parse().ok()?),
        "$numberLong" => Value::Int64(value.as_str()?.parse().ok()?),
        "$oid" => Value::ObjectId(ObjectId::parse(value.as_str()?)?),
        "$regularExpression" => {
            let parts = value.as_document()?;
            regex(parts.get("pattern")?.as_str()?, parts.get("options")?.as_str()?)?
        }
        "$symbol" => Value::Symbol(value.as_str()?),
        "$timestamp" => {
            let parts = value.as_document()?;
            shell::timestamp(parts.get("t")?.as_i64()?, parts.get("i")?.as_i64()?)?
        }
        "$undefined" => Value::Undefined,
        "$uuid" => {
            return Some(Value::Binary { subtype: 4, bytes: &from_uuid(value.as_str()?)? }.to_owned());
        }
        _ => return None,
    };
    Some(value.to_owned())
}

/// Reads the present form, a document, and the older form with a `$type` field.
fn from_binary(document: Document<'_>, value: Value<'_>) -> Option<ValueBuf> {
    let (text, subtype) = match value.as_document() {
        Some(parts) => (parts.get("base64")?, parts.get("subType")?),
        None => (value, document.get("$type")?),
    };
    let subtype = u8::from_str_radix(subtype.as_str()?, 16).ok()?;
    binary(subtype, &from_base64(text.as_str()?)?)
}

/// Builds a binary; the old subtype 2 repeats its length inside.
pub(super) fn binary(subtype: u8, bytes: &[u8]) -> Option<ValueBuf> {
    if subtype != 2 {
        return Some(Value::Binary { subtype, bytes }.to_owned());
    }
    let mut inner = u32::try_from(bytes.len()).ok()?.to_le_bytes().to_vec();
    inner.extend_from_slice(bytes);
    Some(Value::Binary { subtype, bytes: &inner }.to_owned())
}

/// Builds a regular expression; `None` if a part contains NUL.
pub(super) fn regex<'v>(pattern: &'v str, options: &'v str) -> Option<Value<'v>> {
    Some(Value::Regex { pattern: RegexText::new(pattern).ok()?, options: RegexText::new(options).ok()? })
}

/// Parses a double in the syntax of `$numberDouble`.
pub(super) fn double(text: &str) -> Option<f64> {
    match text {
        "NaN" => Some(f64::NAN),
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        _ => text
            .parse()
            .ok()
            .filter(|_| text.bytes().all(|b| !b.is_ascii_alphabetic() || matches!(b, b'e' | b'E'))),
    }
}

/// Parses a bare number as the narrowest integer that holds it. Numbers with a point or an exponent, and larger
/// numbers, are doubles.
pub(super) fn number(text: &str) -> Option<Value<'static>> {
    if let Ok(integer) = text.parse::<i32>() {
        return Some(Value::Int32(integer));
    }
    if let Ok(integer) = text.parse::<i64>() {
        return Some(Value::Int64(integer));
    }
    double(text).map(Value::Double)
}
