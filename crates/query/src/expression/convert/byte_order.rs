//! Conversions between numbers and binaries, byte by byte.

use super::super::evaluate::type_name;
use base::bson::{Type, Value};
use base::{Result, err};

/// Byte order of a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ByteOrder {
    #[default]
    Little,
    Big,
}

impl ByteOrder {
    /// Parses the argument `byteOrder`, which may be null.
    ///
    /// Errors: 9130001 for a value that is not a string, 9130002 for an unknown order.
    pub(super) fn read(found: Option<Value<'_>>) -> Result<ByteOrder> {
        match found.filter(|value| !value.is_nullish()) {
            None => Ok(ByteOrder::Little),
            Some(Value::String("little")) => Ok(ByteOrder::Little),
            Some(Value::String("big")) => Ok(ByteOrder::Big),
            Some(Value::String(other)) => {
                Err(err!(9130002, "Invalid 'byteOrder' argument for $convert: {other}"))
            }
            other => {
                let found = type_name(other);
                Err(err!(9130001, "$convert requires that 'byteOrder' be a string, found: {found}"))
            }
        }
    }

    /// Returns bytes, which are in little-endian order, in this order.
    pub(super) fn arranged(self, mut bytes: Vec<u8>) -> Vec<u8> {
        if self == ByteOrder::Big {
            bytes.reverse();
        }
        bytes
    }
}

/// Returns the bytes of a number; `None` for types without this conversion.
pub(super) fn bytes_of(number: Value<'_>, order: ByteOrder) -> Option<Vec<u8>> {
    let bytes = match number {
        Value::Int32(number) => number.to_le_bytes().to_vec(),
        Value::Int64(number) => number.to_le_bytes().to_vec(),
        Value::Double(number) => number.to_le_bytes().to_vec(),
        _ => return None,
    };
    Some(order.arranged(bytes))
}

/// Decodes a number: integers of up to the target's size, doubles of four or eight bytes. `None` for other targets.
///
/// Errors: ConversionFailure for another number of bytes.
pub(super) fn number_of(bytes: &[u8], target: Type, order: ByteOrder) -> Result<Option<Value<'static>>> {
    let little = order.arranged(bytes.to_vec());
    let integer = || match *little.as_slice() {
        [a] => Some(i64::from(i8::from_le_bytes([a]))),
        [a, b] => Some(i64::from(i16::from_le_bytes([a, b]))),
        [a, b, c, d] => Some(i64::from(i32::from_le_bytes([a, b, c, d]))),
        [a, b, c, d, e, f, g, h] if target == Type::Int64 => {
            Some(i64::from_le_bytes([a, b, c, d, e, f, g, h]))
        }
        _ => None,
    };
    let number = match target {
        Type::Int32 => integer().and_then(|integer| i32::try_from(integer).ok()).map(Value::Int32),
        Type::Int64 => integer().map(Value::Int64),
        Type::Double => match *little.as_slice() {
            [a, b, c, d] => Some(Value::Double(f64::from(f32::from_le_bytes([a, b, c, d])))),
            [a, b, c, d, e, f, g, h] => Some(Value::Double(f64::from_le_bytes([a, b, c, d, e, f, g, h]))),
            _ => None,
        },
        _ => return Ok(None),
    };
    number.map(Some).ok_or_else(|| {
        err!(
            ConversionFailure,
            "Failed to convert '{}' to number in $convert because of invalid length: {}",
            Value::Binary { subtype: 0, bytes },
            bytes.len()
        )
    })
}
