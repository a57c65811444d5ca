//! Conversions to the numeric types.

use super::super::show;
use base::bson::{Decimal128, Number, Rounding, Type, Value};
use base::{Error, Result, bail, err};

/// Two to the 63rd: the first double beyond the int64 range.
const TWO_63: f64 = 9_223_372_036_854_775_808.0;

/// Converts a value to a numeric type; `None` if the pair of types has no conversion.
///
/// Errors: ConversionFailure for a value that does not fit or does not parse.
pub(in super::super) fn convert(input: Value<'_>, target: Type) -> Result<Option<Value<'static>>> {
    let number = match input {
        Value::String(text) => return parse(text, target).map(Some),
        Value::Boolean(value) => Number::Int32(i32::from(value)),
        Value::DateTime(_) if target == Type::Int32 => return Ok(None),
        Value::DateTime(millis) => Number::Int64(millis),
        other => match other.as_number() {
            Some(number) => number,
            None => return Ok(None),
        },
    };
    let converted = match target {
        // MongoDB compares the double before it truncates it.
        Type::Int32 if is_beyond_int(number) => return Err(overflow(number)),
        Type::Int32 => {
            let integer = to_integer(number)?;
            Value::Int32(i32::try_from(integer).map_err(|_| overflow(number))?)
        }
        Type::Int64 => Value::Int64(to_integer(number)?),
        Type::Double => Value::Double(to_double(number)?),
        Type::Decimal128 => Value::Decimal128(number.to_decimal()),
        _ => return Ok(None),
    };
    Ok(Some(converted))
}

fn overflow(number: Number) -> Error {
    let found = show::value(Value::from(number));
    err!(
        ConversionFailure,
        "Conversion would overflow target type in $convert with no onError value: {found}"
    )
}

/// Truncates a number.
fn to_integer(number: Number) -> Result<i64> {
    if number.is_nan() {
        bail!(
            ConversionFailure,
            "Attempt to convert NaN value to integer type in $convert with no onError value"
        );
    }
    if is_infinite(number) {
        bail!(
            ConversionFailure,
            "Attempt to convert infinity value to integer type in $convert with no onError value"
        );
    }
    match number {
        Number::Int32(value) => Ok(i64::from(value)),
        Number::Int64(value) => Ok(value),
        Number::Double(value) if (-TWO_63..TWO_63).contains(&value) => Ok(value as i64),
        Number::Double(_) => Err(overflow(number)),
        Number::Decimal128(value) => value.to_i64(Rounding::TowardZero).ok_or_else(|| overflow(number)),
    }
}

fn is_beyond_int(number: Number) -> bool {
    matches!(number, Number::Double(value)
        if value.is_finite() && !(f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&value))
}

fn is_infinite(number: Number) -> bool {
    match number {
        Number::Double(value) => value.is_infinite(),
        Number::Decimal128(value) => value.is_infinite(),
        Number::Int32(_) | Number::Int64(_) => false,
    }
}

fn to_double(number: Number) -> Result<f64> {
    let double = number.to_f64();
    if double.is_infinite() && !is_infinite(number) {
        return Err(overflow(number));
    }
    Ok(double)
}

/// Prints an integer in a base. Errors: ConversionFailure for other numbers.
pub(super) fn in_base(number: Value<'_>, base: u32) -> Result<String> {
    let Some(integer) = number.as_number().and_then(|number| number.to_i64_exact()) else {
        bail!(
            ConversionFailure,
            "Base conversion is not supported for non-integers in $convert with no onError value: "
        );
    };
    let (sign, size) = (if integer < 0 { "-" } else { "" }, integer.unsigned_abs());
    Ok(match base {
        2 => format!("{sign}{size:b}"),
        8 => format!("{sign}{size:o}"),
        16 => format!("{sign}{size:X}"),
        _ => integer.to_string(),
    })
}

/// Parses an integer of 64 bits in a base, for any numeric type. Errors: ConversionFailure.
pub(super) fn parse_in_base(text: &str, base: u32, target: Type) -> Result<Value<'static>> {
    if text.starts_with("0x") || text.starts_with("0X") {
        bail!(ConversionFailure, "Illegal hexadecimal input in $convert with no onError value: {text}");
    }
    let integer = i64::from_str_radix(text, base).map_err(|error| {
        let reason = match error.kind() {
            std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow => "Overflow",
            _ => "Did not consume whole string.",
        };
        err!(ConversionFailure, "Failed to parse number '{text}' in $convert with no onError value: {reason}")
    })?;
    convert(Value::Int64(integer), target)?
        .ok_or_else(|| err!(ConversionFailure, "Unsupported conversion from string to {}", target.alias()))
}

/// Parses a decimal number from the whole text, without blanks.
fn parse(text: &str, target: Type) -> Result<Value<'static>> {
    let failed = |reason: &str| {
        err!(ConversionFailure, "Failed to parse number '{text}' in $convert with no onError value: {reason}")
    };
    if text.is_empty() {
        return Err(failed("Empty string"));
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if target == Type::Double
        && let Some(value) = hexadecimal(text)
    {
        return Ok(Value::Double(value));
    }
    if unsigned.starts_with("0x") || unsigned.starts_with("0X") {
        bail!(ConversionFailure, "Illegal hexadecimal input in $convert with no onError value: {text}");
    }
    if unsigned.starts_with(|c: char| c.is_whitespace()) {
        return Err(failed("Leading whitespace"));
    }
    match target {
        Type::Int32 => parse_integer(text, unsigned, failed)
            .and_then(|value| i32::try_from(value).map(Value::Int32).map_err(|_| failed("Overflow"))),
        Type::Int64 => parse_integer(text, unsigned, failed).map(Value::Int64),
        Type::Double => double(text, unsigned, failed).map(Value::Double),
        // MongoDB cuts digits beyond the 34th.
        _ => Decimal128::parse_by(text, Rounding::TowardZero)
            .map(Value::Decimal128)
            .ok_or_else(|| failed("Failed to parse string to decimal")),
    }
}

fn parse_integer(text: &str, unsigned: &str, failed: impl Fn(&str) -> Error) -> Result<i64> {
    if !unsigned.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(failed("Did not consume any digits"));
    }
    if !unsigned.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(failed("Did not consume whole string."));
    }
    text.parse().map_err(|_| failed("Overflow"))
}

/// Parses a double. A finite number that becomes infinity or zero is out of range, as with C's `ERANGE`.
fn double(text: &str, unsigned: &str, failed: impl Fn(&str) -> Error) -> Result<f64> {
    // The standard library accepts what C's strtod accepts, including `inf` and `nan` in any case.
    let value: f64 = text.parse().map_err(|_| failed("Did not consume whole string."))?;
    let digits = unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    let mantissa = unsigned.split(['e', 'E']).next().unwrap_or_default();
    let vanished = value == 0.0 && mantissa.bytes().any(|byte| matches!(byte, b'1'..=b'9'));
    if digits && (value.is_infinite() || vanished) {
        return Err(failed("Out of range"));
    }
    Ok(value)
}

/// Parses a hexadecimal number as C's `strtod` does: `+0x1.8p1` is 3. MongoDB refuses numbers that begin with `0x`.
fn hexadecimal(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']);
    let digits = match unsigned {
        Some(signed) => signed.strip_prefix("0x").or_else(|| signed.strip_prefix("0X"))?,
        None => text.strip_prefix("0X")?,
    };
    let (digits, exponent) = match digits.split_once(['p', 'P']) {
        Some((digits, exponent)) => (digits, exponent.parse::<i32>().ok()?),
        None => (digits, 0),
    };
    let (integer_digits, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if integer_digits.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut value = 0.0;
    for digit in integer_digits.chars().chain(fraction.chars()) {
        value = value * 16.0 + f64::from(digit.to_digit(16)?);
    }
    let places = i32::try_from(fraction.len()).ok()?.checked_mul(4)?;
    let value: f64 = value * 2f64.powi(exponent.checked_sub(places)?);
    value.is_finite().then_some(if text.starts_with('-') { -value } else { value })
}
