//! Conversions between types: `$convert`, its shorthands such as `$toInt`, and `$type`.
//!
//! [`convert`] handles all pairs of types. It returns ConversionFailure for a pair or value without a conversion, which
//! `onError` catches. All other errors are errors of the caller.
//!
//! ```text
//! {$convert: {
//!     input: <expression>,
//!     to: <type> | {type: <type>, subtype: <integer>},
//!     format: <string>,                       between strings and binaries
//!     byteOrder: <string>,                    between numbers and binaries
//!     base: 2 | 8 | 10 | 16,                  between strings and numbers
//!     onError: <expression>,                  optional
//!     onNull: <expression>,                   optional
//! }}
//! ```

pub(super) mod binary;
mod json;
pub(super) mod number;
#[cfg(test)]
mod tests;

use super::evaluate::{Call, Computed, Scope, null, type_name, value};
use super::named::{ErrorTemplate, Named, Parameter, optional};
use super::{date, show};
use base::bson::{ObjectId, Type, Value};
use base::{CompatibleWith, ErrorCode, Result, bail, err};
pub(super) use binary::Format;
use binary::{ByteOrder, UUID};

/// The arguments in the order of their evaluation.
pub(super) static ARGUMENTS: Named = Named {
    parameters: &[
        needed("input", "Missing 'input' parameter to $convert"),
        needed("to", "Missing 'to' parameter to $convert"),
        optional("onError"),
        optional("onNull"),
        optional("format"),
        optional("byteOrder"),
        optional("base"),
    ],
    no_object: ErrorTemplate(
        ErrorCode::FailedToParse,
        "$convert expects an object of named arguments but found: {}",
    ),
    unknown: ErrorTemplate(ErrorCode::FailedToParse, "$convert found an unknown argument: {}"),
};

/// Defines a required argument, whose absence is FailedToParse.
const fn needed(name: &'static str, message: &'static str) -> Parameter {
    Parameter { name, missing: Some(ErrorTemplate(ErrorCode::FailedToParse, message)) }
}

/// Evaluates `$convert`. Errors: errors of the target and the format; ConversionFailure without `onError`.
pub(super) fn operator<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let (input, to) = (call.get_non_null(0)?, call.get_non_null(1)?);
    let Some(input) = input else {
        return if call.has_argument(3) { call.get(3) } else { null() };
    };
    let Some(to) = to else { return null() };
    let target = Target::read(to)?;
    let form = Form {
        base: read_base(call.get_non_null(6)?)?,
        format: Format::read(call.get(4)?)?,
        byte_order: ByteOrder::read(call.get(5)?)?,
        any_type: call.scope.context.compatible_with >= CompatibleWith::V9_0,
    };
    match convert(input, target, form, call.scope) {
        Err(error) if error.code() == ErrorCode::ConversionFailure && call.has_argument(2) => call.get(2),
        converted => converted,
    }
}

/// Parses the argument `base`. Errors: 3501300 for a value that is not an integer, 3501301 for another base.
fn read_base(found: Option<Value<'_>>) -> Result<Option<u32>> {
    let Some(found) = found else { return Ok(None) };
    match found.as_number().and_then(|base| base.to_i64_exact()) {
        None => Err(err!(3501300, "In $convert, 'base' argument is not an integer")),
        Some(base @ (2 | 8 | 10 | 16)) => Ok(Some(base as u32)),
        Some(_) => Err(err!(3501301, "In $convert, 'base' argument is not a valid base")),
    }
}

/// Representation of binaries and numbers, and the conversions that exist.
#[derive(Clone, Copy, Default)]
struct Form {
    /// The base of numbers in strings.
    base: Option<u32>,
    /// The format as text.
    format: Option<Format>,
    /// The byte order of numbers.
    byte_order: ByteOrder,
    /// Whether the conversions of MongoDB 8.3 exist: any type to a string, strings to documents and arrays, and
    /// documents and arrays to binaries.
    any_type: bool,
}

/// Converts a value that is not null.
///
/// Errors: ConversionFailure without a conversion; 4341115 without a required format.
fn convert<'a>(input: Value<'a>, target: Target, form: Form, scope: &Scope<'_, 'a>) -> Computed<'a> {
    let format = form.format;
    let converted = match (target.kind, input) {
        (Type::String, Value::Document(_) | Value::Array(_)) if form.any_type => {
            return scope.text(&json::write(input, scope.context)?);
        }
        (Type::String, _) if form.any_type && has_new_text(input) => {
            return scope.text(&json::any_text(input));
        }
        (Type::Document | Type::Array, Value::String(text)) if form.any_type => {
            return json::read(text, target.kind, scope);
        }
        (Type::Array, Value::Binary { subtype, bytes }) if form.any_type => {
            return binary::to_array(subtype, bytes, form.byte_order, scope);
        }
        (Type::Binary, Value::Array(array)) if form.any_type => {
            return binary::to_vector(array, form.byte_order, scope);
        }
        (Type::Binary, Value::Document(document)) if form.any_type => {
            let bytes = scope.bytes(document.bytes())?;
            return value(Value::Binary { subtype: target.subtype, bytes });
        }
        (Type::String, number) if let (Some(base), Some(_)) = (form.base, number.as_number()) => {
            return scope.text(&number::in_base(number, base)?);
        }
        (kind, Value::String(text)) if let (Some(base), true) = (form.base, kind.is_numeric()) => {
            Some(number::parse_in_base(text, base, kind)?)
        }
        (kind, Value::Binary { bytes, .. }) if kind.is_numeric() => {
            binary::number_of(bytes, kind, form.byte_order)?
        }
        (Type::Binary, Value::Int32(_) | Value::Int64(_) | Value::Double(_)) => {
            let bytes = binary::bytes_of(input, form.byte_order);
            let copied = bytes.map(|bytes| scope.bytes(&bytes)).transpose()?;
            copied.map(|bytes| Value::Binary { subtype: target.subtype, bytes })
        }
        (kind, _) => convert_other(input, Target { kind, ..target }, format, scope)?,
    };
    match converted {
        Some(converted) => Ok(Some(converted)),
        None => Err(unsupported(input, target.kind)),
    }
}

/// Converts between types other than binaries and numbers; `None` without a conversion.
fn convert_other<'a>(
    input: Value<'a>,
    target: Target,
    format: Option<Format>,
    scope: &Scope<'_, 'a>,
) -> Computed<'a> {
    Ok(match target.kind {
        Type::Double | Type::Int32 | Type::Int64 | Type::Decimal128 => number::convert(input, target.kind)?,
        Type::Boolean => Some(Value::Boolean(to_bool(input))),
        Type::DateTime => to_date(input)?,
        Type::ObjectId => to_object_id(input)?,
        Type::String => return to_string(input, format, scope),
        Type::Binary => return binary::to_binary(input, target.subtype, format, scope),
        _ => None,
    })
}

fn unsupported(input: Value<'_>, target: Type) -> base::Error {
    let (from, to) = (input.kind().alias(), target.alias());
    err!(ConversionFailure, "Unsupported conversion from {from} to {to} in $convert with no onError value")
}

/// Whether a value, which is no document or array, has a text since MongoDB 8.3.
fn has_new_text(input: Value<'_>) -> bool {
    matches!(
        input,
        Value::Regex { .. }
            | Value::Timestamp(_)
            | Value::DbPointer { .. }
            | Value::JavaScript(_)
            | Value::JavaScriptWithScope { .. }
            | Value::Symbol(_)
            | Value::MinKey
            | Value::MaxKey
    )
}

/// Converts to a boolean: numbers are true unless zero, all other values are true.
fn to_bool(input: Value<'_>) -> bool {
    match input {
        Value::Boolean(value) => value,
        other => other.as_number().is_none_or(|number| !number.is_zero()),
    }
}

/// Converts to a date: a date string, milliseconds since 1970, or the time of a timestamp or object id.
fn to_date(input: Value<'_>) -> Result<Option<Value<'static>>> {
    Ok(Some(Value::DateTime(match input {
        Value::String(text) => date::from_string::read_free_form(text)?,
        Value::Int64(millis) => millis,
        Value::Double(_) | Value::Decimal128(_) => match number::convert(input, Type::Int64)? {
            Some(Value::Int64(millis)) => millis,
            _ => return Ok(None),
        },
        other => match date::to_millis(other) {
            Some(millis) => millis,
            None => return Ok(None),
        },
    })))
}

/// Converts to an object id; `None` for types other than strings and object ids. Errors: ConversionFailure for an
/// invalid string.
fn to_object_id(input: Value<'_>) -> Result<Option<Value<'static>>> {
    let text = match input {
        Value::ObjectId(id) => return Ok(Some(Value::ObjectId(id))),
        Value::String(text) => text,
        _ => return Ok(None),
    };
    ObjectId::parse(text).map(|id| Some(Value::ObjectId(id))).ok_or_else(|| {
        let reason = if text.len() == 24 {
            let bad = text.chars().find(|c| !c.is_ascii_hexdigit()).unwrap_or_default();
            format!("Invalid character found in hex string: {bad}")
        } else {
            format!("Invalid string length for parsing to OID, expected 24 but found {}", text.len())
        };
        err!(
            ConversionFailure,
            "Failed to parse objectId '{text}' in $convert with no onError value: {reason}"
        )
    })
}

/// Converts to a string. Binaries need a format; timestamps and symbols have no conversion.
fn to_string<'a>(input: Value<'a>, format: Option<Format>, scope: &Scope<'_, 'a>) -> Computed<'a> {
    match input {
        Value::String(_) => Ok(Some(input)),
        Value::Binary { subtype, bytes } => binary::to_string(subtype, bytes, format, scope),
        Value::Timestamp(_) | Value::Symbol(_) => Err(unsupported(input, Type::String)),
        other => match to_text(other) {
            Some(text) => scope.text(&text),
            None => Err(unsupported(input, Type::String)),
        },
    }
}

/// A shorthand such as `$toInt`: null for null, and the errors of [`convert`].
pub(super) fn to_type<'a>(call: &Call<'_, 'a>, kind: Type, format: Option<Format>) -> Computed<'a> {
    let Some(input) = call.get_non_null(0)? else { return null() };
    // `$toArray` and `$toObject` are as new as their conversions.
    let is_new = matches!(kind, Type::Array | Type::Document);
    let any_type = is_new || call.scope.context.compatible_with >= CompatibleWith::V9_0;
    convert(
        input,
        Target { kind, subtype: if format == Some(Format::Uuid) { UUID } else { 0 } },
        Form { format, any_type, ..Form::default() },
        call.scope,
    )
}

/// `$type`: the alias of the type, or `missing`.
pub(super) fn type_of<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    value(type_name(call.get(0)?))
}

/// `$isNumber`.
pub(super) fn is_number<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    value(call.get(0)?.is_some_and(|value| value.as_number().is_some()))
}

/// The target type of a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Target {
    kind: Type,
    /// The subtype of a binary.
    subtype: u8,
}

impl Target {
    /// Parses the target.
    ///
    /// Errors: FailedToParse for a value that is not a type's name or number, BadValue for an unknown name, 4341106 to
    /// 4341108 for the subtype.
    fn read(to: Value<'_>) -> Result<Target> {
        let Value::Document(document) = to else { return Ok(Target { kind: target_type(to)?, subtype: 0 }) };
        let (mut found, mut subtype) = (None, 0);
        for element in document {
            match element.name() {
                "type" => found = Some(target_type(element.value())?),
                "subtype" => subtype = read_subtype(element.value())?,
                // MongoDB ignores all other fields.
                _ => {}
            }
        }
        let kind = found.ok_or_else(|| err!(FailedToParse, "Missing 'type' parameter to $convert"))?;
        Ok(Target { kind, subtype })
    }
}

/// Parses a type by name or number. Errors: BadValue and FailedToParse; ConversionFailure for 0.
fn target_type(to: Value<'_>) -> Result<Type> {
    if let Value::String(name) = to {
        return Type::from_alias(name).ok_or_else(|| err!(BadValue, "Unknown type name: {name}"));
    }
    let Some(number) = to.as_number() else {
        bail!(FailedToParse, "$convert's 'to' argument must be a string or number, but is {}", to.kind());
    };
    let code = number
        .to_i64_exact()
        .ok_or_else(|| err!(FailedToParse, "In $convert, numeric 'to' argument is not an integer"))?;
    if code == 0 {
        // This number marks the end of a document and is not a value's type.
        bail!(ConversionFailure, "Unsupported conversion to missing in $convert with no onError value");
    }
    i32::try_from(code).ok().and_then(Type::from_number).ok_or_else(|| {
        let found = show::value(to);
        err!(FailedToParse, "In $convert, numeric value for 'to' does not correspond to a BSON type: {found}")
    })
}

/// Reads the subtype of a binary: 0 to 9, or 128 and more. Errors: 4341106 to 4341108.
fn read_subtype(found: Value<'_>) -> Result<u8> {
    if found.as_number().is_none() {
        bail!(4341108, "In $convert, 'subtype' must be a number, but is {}", found.kind());
    }
    let integer = found.as_i64().ok_or_else(|| {
        err!(4341106, "In $convert, 'subtype' must be an integer, found: {}", show::value(found))
    })?;
    u8::try_from(integer).ok().filter(|subtype| *subtype <= 9 || *subtype >= 128).ok_or_else(|| {
        err!(
            4341107,
            "In $convert, numeric value for 'subtype' does not correspond to a BinData type: {integer}"
        )
    })
}

/// Returns the text that `$toString` prints; `None` for types without a text form.
pub(super) fn to_text(value: Value<'_>) -> Option<String> {
    Some(match value {
        Value::String(text) | Value::Symbol(text) => text.to_string(),
        Value::Double(number) => double(number),
        Value::Boolean(value) => value.to_string(),
        Value::Int32(number) => number.to_string(),
        Value::Int64(number) => number.to_string(),
        Value::Decimal128(number) => number.to_string(),
        Value::DateTime(millis) => show::date(millis),
        Value::Timestamp(time) => show::value(Value::Timestamp(time)),
        Value::ObjectId(id) => id.to_string(),
        _ => return None,
    })
}

/// Prints a double with the fewest digits that parse to it again; scientific below 1e-4 and from 1e16 on.
fn double(number: f64) -> String {
    if number.is_nan() {
        "NaN".to_string()
    } else if number.is_infinite() {
        if number > 0.0 { "Infinity" } else { "-Infinity" }.to_string()
    } else {
        show::shortest(number)
    }
}
