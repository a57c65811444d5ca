//! Conversions to binary data and back: of strings by `format`, of numbers byte by byte, of arrays as vectors.
//!
//! A vector has subtype 9: a byte for the type of its elements, a byte for the unused bits of its last byte, and the
//! numbers.

use super::super::evaluate::{Computed, Scope, type_name};
use super::unsupported;
use base::bson::{Array, Builder, Type, Value};
use base::{Result, bail, encoding, err};

/// Text format of a binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Format {
    /// A UUID if the subtype is UUID, otherwise base64.
    Auto,
    Base64,
    Base64Url,
    Hex,
    Utf8,
    Uuid,
}

/// The subtype of UUIDs.
pub(in super::super) const UUID: u8 = 4;

impl Format {
    /// Parses the argument `format`, which may be null.
    ///
    /// Errors: 4341114 for a value that is not a string, 4341125 for an unknown format.
    pub(super) fn read(found: Option<Value<'_>>) -> Result<Option<Format>> {
        let name = match found.filter(|value| !value.is_nullish()) {
            None => return Ok(None),
            Some(Value::String(name)) => name,
            other => {
                let found = type_name(other);
                bail!(4341114, "$convert requires that 'format' be a string, found: {found}");
            }
        };
        Ok(Some(match name {
            "auto" => Format::Auto,
            "base64" => Format::Base64,
            "base64url" => Format::Base64Url,
            "hex" => Format::Hex,
            "utf8" => Format::Utf8,
            "uuid" => Format::Uuid,
            other => bail!(4341125, "Invalid 'format' argument for $convert: {other}"),
        }))
    }
}

/// Converts a binary to a string. Errors: 4341115 without a format, ConversionFailure if the bytes are not text or not
/// a UUID.
pub(super) fn to_string<'a>(
    subtype: u8,
    bytes: &[u8],
    format: Option<Format>,
    scope: &Scope<'_, 'a>,
) -> Computed<'a> {
    let failed = |message: &str| err!(ConversionFailure, "{message} in $convert with no onError value");
    let text = match format {
        None => return Err(format_missing("binData", "string")),
        Some(Format::Auto) => auto_text(subtype, bytes),
        Some(Format::Base64) => encoding::base64(bytes),
        Some(Format::Base64Url) => base64_url_text(bytes),
        Some(Format::Hex) => encoding::hex_upper(bytes),
        Some(Format::Utf8) => std::str::from_utf8(bytes)
            .map_err(|_| failed("BinData does not represent a valid UTF-8 string"))?
            .to_string(),
        Some(Format::Uuid) if subtype == UUID && bytes.len() == 16 => encoding::uuid(bytes),
        Some(Format::Uuid) => return Err(failed("Unsupported format 'uuid' for BinData of another subtype")),
    };
    scope.text(&text)
}

/// Converts a string to a binary. Errors: 4341115 without a format, ConversionFailure if the text has another format.
pub(super) fn to_binary<'a>(
    input: Value<'a>,
    subtype: u8,
    format: Option<Format>,
    scope: &Scope<'_, 'a>,
) -> Computed<'a> {
    let text = match input {
        Value::String(text) => text,
        Value::Binary { subtype: found, .. } if found == subtype => return Ok(Some(input)),
        Value::Binary { .. } => {
            bail!(
                ConversionFailure,
                "Conversions between different BinData subtypes are not supported in $convert with no onError value"
            );
        }
        other => return Err(unsupported(other, Type::Binary)),
    };
    let uuid = subtype == UUID;
    let bytes = match format {
        None => return Err(format_missing("string", "binData")),
        Some(Format::Auto | Format::Uuid) if uuid => uuid_bytes(text),
        Some(_) if uuid => None,
        Some(Format::Uuid) => None,
        Some(Format::Auto) => None,
        Some(Format::Base64) => base64_bytes(text),
        Some(Format::Base64Url) => base64_url_bytes(text),
        Some(Format::Hex) => encoding::from_hex(text),
        Some(Format::Utf8) => Some(text.as_bytes().to_vec()),
    };
    let bytes = bytes.ok_or_else(|| {
        let name = format.map_or_else(String::new, |format| format!("{format:?}").to_ascii_lowercase());
        err!(
            ConversionFailure,
            "Input string '{text}' does not represent binary data in format '{name}' in $convert with no onError value"
        )
    })?;
    Ok(Some(Value::Binary { subtype, bytes: scope.bytes(&bytes)? }))
}

fn format_missing(from: &str, to: &str) -> base::Error {
    err!(4341115, "Format must be specified when converting from '{from}' to '{to}'")
}

/// Formats a UUID with dashes, and another binary as base64.
pub(super) fn auto_text(subtype: u8, bytes: &[u8]) -> String {
    if subtype == UUID && bytes.len() == 16 { encoding::uuid(bytes) } else { encoding::base64(bytes) }
}

/// Parses a UUID with dashes.
pub(in super::super) fn uuid_bytes(text: &str) -> Option<Vec<u8>> {
    let dashes = text.char_indices().filter(|(_, c)| *c == '-').map(|(index, _)| index);
    if text.len() != 36 || !dashes.eq([8, 13, 18, 23]) {
        return None;
    }
    encoding::from_uuid(text).map(Vec::from)
}

/// Encodes base64url: without padding, with `-` and `_`.
fn base64_url_text(bytes: &[u8]) -> String {
    encoding::base64(bytes).trim_end_matches('=').replace('+', "-").replace('/', "_")
}

fn base64_url_bytes(text: &str) -> Option<Vec<u8>> {
    if text.contains(['+', '/']) || text.trim_end_matches('=').len() % 4 == 1 {
        return None;
    }
    encoding::from_base64(&text.replace('-', "+").replace('_', "/"))
}

/// Decodes base64; padding is required, as in MongoDB.
pub(in super::super) fn base64_bytes(text: &str) -> Option<Vec<u8>> {
    let padding = text.len() - text.trim_end_matches('=').len();
    if padding > 2 || !text.len().is_multiple_of(4) {
        return None;
    }
    encoding::from_base64(text)
}

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

/// The subtype of vectors.
const VECTOR: u8 = 9;

/// Type of the elements. A vector of numbers takes the largest type that one of them needs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ElementType {
    PackedBit,
    Int8,
    Float32,
}

impl ElementType {
    fn byte(self) -> u8 {
        match self {
            ElementType::PackedBit => 0x10,
            ElementType::Int8 => 0x03,
            ElementType::Float32 => 0x27,
        }
    }

    /// Returns the smallest type that holds a value. Errors: ConversionFailure for other values and large integers.
    fn of(value: Value<'_>) -> Result<ElementType> {
        Ok(match value {
            Value::Boolean(_) | Value::Int32(0 | 1) => ElementType::PackedBit,
            Value::Int32(number) if i8::try_from(number).is_ok() => ElementType::Int8,
            Value::Int32(_) => bail!(
                ConversionFailure,
                "Converting a BSON array with integers larger than INT8 is not supported."
            ),
            Value::Double(number) if number.fract() == 0.0 && (-128.0..=127.0).contains(&number) => {
                ElementType::Int8
            }
            Value::Double(_) => ElementType::Float32,
            _ => bail!(
                ConversionFailure,
                "Converting array to BinData requires an array with numeric or bool content"
            ),
        })
    }
}

/// Returns the vector of an array. Errors: ConversionFailure for elements that a vector cannot hold.
pub(super) fn to_vector<'a>(array: Array<'_>, order: ByteOrder, scope: &Scope<'_, 'a>) -> Computed<'a> {
    let mut kind = ElementType::PackedBit;
    for value in array.iter() {
        scope.context.steps(1)?;
        kind = kind.max(ElementType::of(value)?);
    }
    let number = |value: Value<'_>| match value {
        Value::Boolean(value) => f64::from(u8::from(value)),
        other => other.as_number().map_or(0.0, |number| number.to_f64()),
    };
    let mut bytes = vec![kind.byte(), 0];
    for (index, value) in array.iter().enumerate() {
        let number = number(value);
        match kind {
            ElementType::PackedBit => {
                if index % 8 == 0 {
                    bytes.push(0);
                }
                if let (true, Some(last)) = (number != 0.0, bytes.last_mut()) {
                    *last |= 0x80 >> (index % 8);
                }
            }
            ElementType::Int8 => bytes.push(number as i8 as u8),
            ElementType::Float32 => bytes.extend(order.arranged((number as f32).to_le_bytes().to_vec())),
        }
    }
    if let (ElementType::PackedBit, Some(padding)) = (kind, bytes.get_mut(1)) {
        *padding = ((8 - array.len() % 8) % 8) as u8;
    }
    Ok(Some(Value::Binary { subtype: VECTOR, bytes: scope.bytes(&bytes)? }))
}

/// Returns the elements of a vector.
///
/// Errors: ConversionFailure for another subtype; 10506600 to 10506606 for a malformed vector.
pub(super) fn to_array<'a>(
    subtype: u8,
    bytes: &[u8],
    order: ByteOrder,
    scope: &Scope<'_, 'a>,
) -> Computed<'a> {
    if subtype != VECTOR {
        bail!(
            ConversionFailure,
            "Conversion from binData to array is only supported for bindata with the vector subtype"
        );
    }
    let mut out = Builder::new();
    if bytes.is_empty() {
        return scope.array(out);
    }
    let [kind, padding, data @ ..] = bytes else { bail!(10506601, "binData length invalid") };
    let kinds = [ElementType::PackedBit, ElementType::Int8, ElementType::Float32];
    let kind = kinds.into_iter().find(|known| known.byte() == *kind).ok_or_else(|| {
        err!(
            10506600,
            "Invalid dType for provided BinData vector. Valid options are 0x10 for PACKED_BIT, 0x03 for INT8, or \
             0x27 for FLOAT32."
        )
    })?;
    if *padding > if kind == ElementType::PackedBit { 7 } else { 0 } {
        bail!(10506606, "Padding must be between 0 and 7 for PACKED_BIT vectors, or 0 otherwise");
    }
    match kind {
        ElementType::PackedBit => {
            let bits = (data.len() * 8).saturating_sub(usize::from(*padding));
            for index in 0..bits {
                scope.context.steps(1)?;
                let byte = data.get(index / 8).copied().unwrap_or_default();
                out.push(byte & (0x80 >> (index % 8)) != 0);
            }
        }
        ElementType::Int8 => {
            for byte in data {
                scope.context.steps(1)?;
                out.push(i32::from(*byte as i8));
            }
        }
        ElementType::Float32 => {
            let (floats, rest) = data.as_chunks::<4>();
            if !rest.is_empty() {
                bail!(10506602, "BinData vector of type FLOAT32 has a length that is not a multiple of 4");
            }
            for float in floats {
                scope.context.steps(1)?;
                let number = match order {
                    ByteOrder::Little => f32::from_le_bytes(*float),
                    ByteOrder::Big => f32::from_be_bytes(*float),
                };
                out.push(f64::from(number));
            }
        }
    }
    scope.check_memory(out.len())?;
    scope.array(out)
}
