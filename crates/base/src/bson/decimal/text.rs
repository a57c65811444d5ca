//! Decimals as text: writes MongoDB's canonical form and reads any spelling.

use super::rounding::{Rounding, digits, pack_by};
use super::{Decimal128, Parts};
use std::fmt;

/// Digits that the parser keeps: enough to round to 34 correctly, few enough for a u128.
const DIGITS_KEPT: u32 = 37;
/// Limit of exponents while parsing, far outside the range of finite decimals.
const EXPONENT_CLAMP: i64 = 1_000_000_000;

impl Decimal128 {
    /// Parses decimal text: digits, point, exponent, `Infinity` and `NaN` in any case. Rounds to 34 digits. `None` if
    /// the text is not a number.
    pub fn parse(text: &str) -> Option<Decimal128> {
        Decimal128::parse_by(text, Rounding::HalfEven)
    }

    /// As [`parse`](Self::parse), with another rounding mode.
    pub fn parse_by(text: &str, rounding: Rounding) -> Option<Decimal128> {
        let (negative, rest) = match text.as_bytes().first()? {
            b'-' => (true, text.get(1..)?),
            b'+' => (false, text.get(1..)?),
            _ => (false, text),
        };
        if rest.eq_ignore_ascii_case("inf") || rest.eq_ignore_ascii_case("infinity") {
            return Some(Decimal128::from_parts(Parts::Infinity { negative }));
        }
        if rest.eq_ignore_ascii_case("nan") {
            return Some(Decimal128::NAN);
        }
        let (mantissa, exponent) = match rest.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, parse_exponent(exponent)?),
            None => (rest, 0),
        };
        let (integral, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        if integral.is_empty() && fraction.is_empty() {
            return None;
        }
        finite(negative, (integral, fraction), exponent, rounding)
    }
}

fn parse_exponent(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let magnitude = digits.parse().unwrap_or(EXPONENT_CLAMP).min(EXPONENT_CLAMP);
    Some(if text.starts_with('-') { -magnitude } else { magnitude })
}

/// Parses digits before and after the point. Digits beyond [`DIGITS_KEPT`] only affect rounding.
fn finite(
    negative: bool,
    (integral, fraction): (&str, &str),
    exponent: i64,
    rounding: Rounding,
) -> Option<Decimal128> {
    let (mut coefficient, mut sticky, mut dropped) = (0u128, false, 0i64);
    for digit in integral.bytes().chain(fraction.bytes()) {
        if !digit.is_ascii_digit() {
            return None;
        }
        let digit = u128::from(digit - b'0');
        if digits(coefficient) < DIGITS_KEPT {
            coefficient = coefficient * 10 + digit;
        } else {
            sticky |= digit != 0;
            dropped += 1;
        }
    }
    let exponent = exponent.saturating_add(dropped).saturating_sub(fraction.len() as i64);
    let exponent = exponent.clamp(-EXPONENT_CLAMP, EXPONENT_CLAMP) as i32;
    Some(pack_by(negative, coefficient, exponent, sticky, rounding))
}

impl fmt::Display for Decimal128 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (negative, coefficient, exponent) = match self.parts() {
            Parts::NaN => return f.write_str("NaN"),
            Parts::Infinity { negative } => {
                return f.write_str(if negative { "-Infinity" } else { "Infinity" });
            }
            Parts::Finite { negative, coefficient, exponent } => (negative, coefficient, exponent),
        };
        if negative {
            f.write_str("-")?;
        }
        let text = coefficient.to_string();
        let scientific = exponent + text.len() as i32 - 1;
        if exponent > 0 || scientific < -6 {
            let (first, rest) = text.split_at(1);
            let point = if rest.is_empty() { "" } else { "." };
            return write!(f, "{first}{point}{rest}E{scientific:+}");
        }
        let places = exponent.unsigned_abs() as usize;
        if places == 0 {
            return f.write_str(&text);
        }
        let padded = format!("{text:0>width$}", width = places + 1);
        let (integral, fraction) = padded.split_at(padded.len() - places);
        write!(f, "{integral}.{fraction}")
    }
}

impl fmt::Debug for Decimal128 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Decimal128('{self}')")
    }
}
