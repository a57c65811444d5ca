//! Conversions between arrays of numbers and binary vectors, subtype 9.
//!
//! A vector is a byte for the type of its elements, a byte for the unused bits of its last byte, and the elements.

use super::super::evaluate::{Computed, Scope};
use super::byte_order::ByteOrder;
use base::bson::{Array, Builder, Value};
use base::{Result, bail, err};

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
pub(super) fn to_binary<'a>(array: Array<'_>, order: ByteOrder, scope: &Scope<'_, 'a>) -> Computed<'a> {
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
