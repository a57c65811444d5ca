//! The shell's constants and constructors: `ObjectId('…')`, `NumberLong(1)`, `ISODate('…')`, `MinKey`.

use super::{date, typed};
use crate::bson::{Decimal128, ObjectId, Value, ValueBuf};
use crate::encoding::{from_base64, from_hex, from_uuid};

/// Returns the value of a constant.
pub(super) fn constant(word: &str) -> Option<Value<'static>> {
    Some(match word {
        "true" => Value::Boolean(true),
        "false" => Value::Boolean(false),
        "null" => Value::Null,
        "undefined" => Value::Undefined,
        "NaN" => Value::Double(f64::NAN),
        "Infinity" => Value::Double(f64::INFINITY),
        "MinKey" => Value::MinKey,
        "MaxKey" => Value::MaxKey,
        _ => return None,
    })
}

/// Returns the value of a constructor call; `None` for an unknown constructor or wrong arguments.
pub(super) fn construct(name: &str, arguments: &[ValueBuf]) -> Option<ValueBuf> {
    let arguments: Vec<_> = arguments.iter().map(ValueBuf::view).collect();
    let value = match (name, arguments.as_slice()) {
        ("MinKey", []) => Value::MinKey,
        ("MaxKey", []) => Value::MaxKey,
        ("ObjectId", [Value::String(hex)]) => Value::ObjectId(ObjectId::parse(hex)?),
        ("NumberInt" | "Int32", [number]) => Value::Int32(integer(*number)?.try_into().ok()?),
        ("NumberLong" | "Long", [number]) => Value::Int64(integer(*number)?),
        ("Double", [number]) => Value::Double(double(*number)?),
        ("NumberDecimal" | "Decimal128", [number]) => Value::Decimal128(decimal(*number)?),
        ("ISODate" | "Date", [Value::String(text)]) => Value::DateTime(date::parse_millis(text)?),
        ("ISODate" | "Date", [number]) => Value::DateTime(number.as_i64()?),
        ("Timestamp", [seconds, increment]) => timestamp(seconds.as_i64()?, increment.as_i64()?)?,
        ("UUID", [Value::String(hex)]) => {
            return Some(Value::Binary { subtype: 4, bytes: &from_uuid(hex)? }.to_owned());
        }
        ("BinData", [subtype, Value::String(text)]) => return binary(*subtype, from_base64(text)?),
        ("HexData", [subtype, Value::String(text)]) => return binary(*subtype, from_hex(text)?),
        ("RegExp", [Value::String(pattern)]) => typed::regex(pattern, "")?,
        ("RegExp", [Value::String(pattern), Value::String(options)]) => typed::regex(pattern, options)?,
        ("Code", [Value::String(code)]) => Value::JavaScript(code),
        ("Code", [Value::String(code), Value::Document(scope)]) => {
            Value::JavaScriptWithScope { code, scope: *scope }
        }
        ("Symbol", [Value::String(text)]) => Value::Symbol(text),
        ("DBPointer", [Value::String(namespace), Value::ObjectId(id)]) => {
            Value::DbPointer { namespace, id: *id }
        }
        _ => return None,
    };
    Some(value.to_owned())
}

fn integer(value: Value<'_>) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.parse().ok())
}

fn double(value: Value<'_>) -> Option<f64> {
    value.as_number().map(|number| number.to_f64()).or_else(|| typed::double(value.as_str()?))
}

fn decimal(value: Value<'_>) -> Option<Decimal128> {
    value.as_number().map(|number| number.to_decimal()).or_else(|| Decimal128::parse(value.as_str()?))
}

/// Builds a timestamp from seconds and increment, each 32 bits.
pub(super) fn timestamp(seconds: i64, increment: i64) -> Option<Value<'static>> {
    let (seconds, increment) = (u32::try_from(seconds).ok()?, u32::try_from(increment).ok()?);
    Some(Value::Timestamp(u64::from(seconds) << 32 | u64::from(increment)))
}

fn binary(subtype: Value<'_>, bytes: Vec<u8>) -> Option<ValueBuf> {
    typed::binary(subtype.as_i64()?.try_into().ok()?, &bytes)
}
