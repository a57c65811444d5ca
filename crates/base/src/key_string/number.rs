//! Encoding of numbers of all four types in one order; equal values have equal bytes.
//!
//! The first byte is the range of the magnitude. The following bytes depend on the range:
//! - Below one, and from 2^63 up: the 63 bits of the nearest double that is not greater, and a bit that marks a greater
//!   magnitude.
//! - Between: the integer part in as few bytes as possible, and a bit that marks a fraction. The fraction has 52 binary
//!   digits and a bit that marks more digits.
//!
//! Only decimals can have more binary digits. Their decimal exponent and digits follow. A negative number has a
//! mirrored first byte and the inverted bytes of its magnitude.

use super::tags;
use super::type_bits::Item;
use crate::bson::{Decimal128, DecimalParts, Number, Value};

/// The first magnitude beyond the int64 range.
const TWO_63: f64 = 9_223_372_036_854_775_808.0;
/// Scales 52 binary digits of a fraction to an integer.
const TWO_52: f64 = 4_503_599_627_370_496.0;
/// Size of a fraction: 52 binary digits and the bit for further digits.
const FRACTION_BYTES: usize = 7;
/// Makes the exponent of a decimal's first digit positive.
const EXPONENT_BIAS: i32 = 8192;

/// A non-zero magnitude, split for encoding.
enum Magnitude {
    /// The integer part, 52 bits of fraction, and whether more digits follow.
    Integer {
        integral: u64,
        fraction: u64,
        more: bool,
    },
    /// A double below one or of at least 2^63, and whether more digits follow.
    Float {
        float: f64,
        more: bool,
    },
    Infinity,
}

/// Appends a number.
pub(super) fn encode(number: Number, out: &mut Vec<u8>) {
    match number {
        Number::Int32(value) => integer(i64::from(value), out),
        Number::Int64(value) => integer(value, out),
        Number::Double(value) if value.is_nan() => out.push(tags::NAN),
        Number::Double(0.0) => out.push(tags::ZERO),
        Number::Double(value) => signed(value < 0.0, of_double(value.abs()), None, out),
        Number::Decimal128(value) => decimal(value, out),
    }
}

/// Encodes an integer. Only the least int64 has a magnitude of 2^63, which is encoded as a double.
#[inline]
fn integer(value: i64, out: &mut Vec<u8>) {
    let magnitude = value.unsigned_abs();
    if magnitude == 0 {
        out.push(tags::ZERO);
    } else if magnitude >> 63 == 0 {
        signed(value < 0, Magnitude::Integer { integral: magnitude, fraction: 0, more: false }, None, out);
    } else {
        signed(true, Magnitude::Float { float: TWO_63, more: false }, None, out);
    }
}

/// Encodes a decimal. Its digits follow only if the binary digits are inexact.
fn decimal(value: Decimal128, out: &mut Vec<u8>) {
    match value.parts() {
        DecimalParts::NaN => out.push(tags::NAN),
        DecimalParts::Infinity { negative } => signed(negative, Magnitude::Infinity, None, out),
        DecimalParts::Finite { coefficient: 0, .. } => out.push(tags::ZERO),
        DecimalParts::Finite { negative, coefficient, exponent } => {
            let magnitude = of_decimal(coefficient, exponent);
            signed(negative, magnitude, Some((coefficient, exponent)), out);
        }
    }
}

/// Splits the magnitude of a double. Doubles are always exact, so `more` is false.
fn of_double(value: f64) -> Magnitude {
    if value.is_infinite() {
        return Magnitude::Infinity;
    }
    if !(1.0..TWO_63).contains(&value) {
        return Magnitude::Float { float: value, more: false };
    }
    let integral = value as u64;
    // Exact: a double from one up has at most 52 binary digits after the point.
    let fraction = ((value - integral as f64) * TWO_52) as u64;
    Magnitude::Integer { integral, fraction, more: false }
}

/// Splits the magnitude of a decimal: exact integer arithmetic within the int64 range, otherwise the nearest double
/// below.
fn of_decimal(coefficient: u128, exponent: i32) -> Magnitude {
    let power = 10u128.checked_pow(exponent.unsigned_abs());
    let split = match power {
        Some(power) if exponent >= 0 => coefficient.checked_mul(power).map(|integral| (integral, 0, 1)),
        Some(power) => Some((coefficient / power, coefficient % power, power)),
        None => None,
    };
    if let Some((integral, rest, divisor)) = split
        && let Ok(integral) = i64::try_from(integral)
        && integral > 0
    {
        let (fraction, rest) = binary_fraction(rest, divisor);
        return Magnitude::Integer { integral: integral.unsigned_abs(), fraction, more: rest != 0 };
    }
    let (float, more) = Decimal128::magnitude_to_f64_towards_zero(coefficient, exponent);
    Magnitude::Float { float, more }
}

/// Returns the first 52 binary digits of `rest / divisor`, which is below one, and the remainder. Both stay below
/// 10^38, so doubling does not overflow.
fn binary_fraction(mut rest: u128, divisor: u128) -> (u64, u128) {
    let mut bits = 0;
    if rest == 0 {
        return (0, 0);
    }
    for _ in 0..52 {
        rest <<= 1;
        bits <<= 1;
        if rest >= divisor {
            rest -= divisor;
            bits |= 1;
        }
    }
    (bits, rest)
}

/// Writes tag and magnitude; mirrors and inverts them for a negative number.
fn signed(negative: bool, magnitude: Magnitude, digits: Option<(u128, i32)>, out: &mut Vec<u8>) {
    let start = out.len();
    let more = write_magnitude(magnitude, out);
    if more && let Some((coefficient, exponent)) = digits {
        write_digits(coefficient, exponent, out);
    }
    if negative && let Some((tag, rest)) = out.get_mut(start..).and_then(<[u8]>::split_first_mut) {
        *tag = mirrored(*tag);
        rest.iter_mut().for_each(|byte| *byte = !*byte);
    }
}

fn mirrored(tag: u8) -> u8 {
    (2 * tags::ZERO).wrapping_sub(tag)
}

/// Writes the tag and the binary digits. Returns whether decimal digits must follow.
fn write_magnitude(magnitude: Magnitude, out: &mut Vec<u8>) -> bool {
    match magnitude {
        Magnitude::Infinity => {
            out.push(tags::INFINITY);
            false
        }
        Magnitude::Float { float, more } => {
            out.push(if float < 1.0 { tags::SMALL } else { tags::LARGE });
            out.extend_from_slice(&(float.to_bits() << 1 | u64::from(more)).to_be_bytes());
            more
        }
        Magnitude::Integer { integral, fraction, more } => {
            let fractional = fraction != 0 || more;
            let bytes = (integral << 1 | u64::from(fractional)).to_be_bytes();
            let skipped = (integral.leading_zeros() as usize - 1) / 8;
            out.push(tags::INTEGER + (8 - skipped) as u8);
            out.extend_from_slice(bytes.get(skipped..).unwrap_or(&bytes));
            if fractional {
                let bytes = (fraction << 1 | u64::from(more)).to_be_bytes();
                out.extend_from_slice(bytes.last_chunk::<FRACTION_BYTES>().unwrap_or(&[0; FRACTION_BYTES]));
            }
            more
        }
    }
}

/// Writes the exponent of the first digit, then the digits in pairs without trailing zeros. The low bit of each pair's
/// byte marks a following pair.
fn write_digits(coefficient: u128, exponent: i32, out: &mut Vec<u8>) {
    let digits = coefficient.ilog10() as i32 + 1;
    let first = exponent + digits - 1 + EXPONENT_BIAS;
    out.extend_from_slice(&(first as u16).to_be_bytes());
    // Padded to an even number of digits; pairs are taken from the top.
    let even = (digits + 1) & !1;
    let mut rest = if even == digits { coefficient } else { coefficient * 10 };
    let mut power = 10u128.pow((even - 2) as u32);
    loop {
        let pair = (rest / power) as u8;
        rest %= power;
        out.push(pair << 1 | u8::from(rest != 0));
        if rest == 0 {
            return;
        }
        power /= 100;
    }
}

/// Returns the type-bit item of a number.
pub(super) fn item(number: Number) -> Item {
    match number {
        Number::Int32(_) => Item::Plain,
        Number::Int64(value) if i32::try_from(value).is_err() && value != i64::MIN => Item::Plain,
        Number::Int64(_) => Item::Int64,
        Number::Double(value) if value.is_nan() => {
            if value.to_bits() == f64::NAN.to_bits() {
                Item::Plain
            } else {
                Item::RawDouble
            }
        }
        Number::Double(0.0) => {
            if number_is_negative_zero(number) {
                Item::NegativeZero
            } else {
                Item::Double
            }
        }
        Number::Double(value) if value.abs() >= TWO_63 || value.trunc() != value => Item::Plain,
        Number::Double(_) => Item::Double,
        Number::Decimal128(_) => Item::Decimal,
    }
}

fn number_is_negative_zero(number: Number) -> bool {
    matches!(number, Number::Double(value) if value.to_bits() == (-0.0f64).to_bits())
}

/// A decoded number without its type, which the type bits add.
#[derive(Clone, Copy)]
pub(super) enum Decoded {
    Integer(i64),
    Float(f64),
}

impl Decoded {
    /// The value in the type that the key implies.
    pub(super) fn plain(self) -> Value<'static> {
        match self {
            Decoded::Integer(value) => i32::try_from(value).map_or(Value::Int64(value), Value::Int32),
            Decoded::Float(value) => Value::Double(value),
        }
    }

    /// As a double.
    pub(super) fn double(self) -> Value<'static> {
        match self {
            Decoded::Integer(value) => Value::Double(value as f64),
            Decoded::Float(value) => Value::Double(value),
        }
    }

    /// As an int64.
    pub(super) fn int64(self) -> Value<'static> {
        match self {
            Decoded::Integer(value) => Value::Int64(value),
            Decoded::Float(value) => Value::Int64(value as i64),
        }
    }
}

/// Reads the number behind `tag`, taking bytes from `next`.
pub(super) fn decode(tag: u8, next: &mut dyn FnMut() -> Option<u8>) -> Option<Decoded> {
    if tag == tags::NAN {
        return Some(Decoded::Float(f64::NAN));
    }
    if tag == tags::ZERO {
        return Some(Decoded::Integer(0));
    }
    let negative = tag < tags::ZERO;
    let tag = if negative { mirrored(tag) } else { tag };
    let mask = if negative { 0xFF } else { 0 };
    let mut next = || next().map(|byte| byte ^ mask);
    let magnitude = match tag {
        tags::INFINITY => Decoded::Float(f64::INFINITY),
        tags::SMALL | tags::LARGE => {
            let bits = bytes(8, &mut next)?;
            skip_digits(bits & 1 == 1, &mut next)?;
            Decoded::Float(f64::from_bits(bits >> 1))
        }
        _ => integer_part(usize::from(tag.checked_sub(tags::INTEGER)?), &mut next)?,
    };
    Some(match magnitude {
        Decoded::Integer(value) if negative => Decoded::Integer(-value),
        Decoded::Float(value) if negative => Decoded::Float(-value),
        positive => positive,
    })
}

/// Decodes a magnitude with an integer part of `length` bytes.
fn integer_part(length: usize, next: &mut dyn FnMut() -> Option<u8>) -> Option<Decoded> {
    let bits = bytes(length, next)?;
    let integral = (bits >> 1) as i64;
    if bits & 1 == 0 {
        return Some(Decoded::Integer(integral));
    }
    let fraction = bytes(FRACTION_BYTES, next)?;
    skip_digits(fraction & 1 == 1, next)?;
    Some(Decoded::Float(integral as f64 + (fraction >> 1) as f64 / TWO_52))
}

fn bytes(count: usize, next: &mut dyn FnMut() -> Option<u8>) -> Option<u64> {
    (0..count).try_fold(0u64, |bits, _| Some(bits << 8 | u64::from(next()?)))
}

fn skip_digits(present: bool, next: &mut dyn FnMut() -> Option<u8>) -> Option<()> {
    if present {
        bytes(2, next)?;
        while next()? & 1 == 1 {}
    }
    Some(())
}
