//! Conversions between decimals and the other numeric types, and exact comparison.
//!
//! Index keys and sort orders depend on the comparison with binary floats, so it neither rounds nor converts to text.

use super::rounding::{Rounding, digits};
use super::{COEFFICIENT_MAX, Decimal128, Parts};
use dashu_int::UBig;
use std::cmp::Ordering;

/// Powers of ten that doubles hold exactly.
const EXACT_POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18,
    1e19, 1e20, 1e21, 1e22,
];

/// Returns the double nearest to `coefficient × 10^exponent`.
pub(super) fn magnitude_to_f64(coefficient: u128, exponent: i32) -> f64 {
    // Both operands are exact, so the single rounding is correct.
    if coefficient < 1 << 53
        && let Some(power) = EXACT_POWERS.get(exponent.unsigned_abs() as usize)
    {
        let value = coefficient as f64;
        return if exponent < 0 { value / power } else { value * power };
    }
    // The parser of the standard library rounds correctly in all other cases, which are rare.
    format!("{coefficient}e{exponent}").parse().unwrap_or(f64::NAN)
}

impl Decimal128 {
    /// Converts an integer exactly.
    pub fn from_i64(value: i64) -> Decimal128 {
        Decimal128::from_parts(Parts::Finite {
            negative: value < 0,
            coefficient: u128::from(value.unsigned_abs()),
            exponent: 0,
        })
    }

    /// Converts a double to a decimal of 15 significant digits, as MongoDB does: 0.1 becomes 0.100000000000000. Zero
    /// has no digits to fill.
    pub fn from_f64(value: f64) -> Decimal128 {
        if value == 0.0 {
            return if value.is_sign_negative() { Decimal128::ZERO.negate() } else { Decimal128::ZERO };
        }
        Decimal128::parse(&format!("{value:.14e}")).unwrap_or(Decimal128::NAN)
    }

    /// Converts a double to a decimal of 34 significant digits, without trailing zeros.
    pub fn from_f64_exact(value: f64) -> Decimal128 {
        let Some(decimal) = Decimal128::parse(&format!("{value:.33e}")) else { return Decimal128::NAN };
        let Parts::Finite { negative, mut coefficient, mut exponent } = decimal.parts() else {
            return decimal;
        };
        while coefficient != 0 && coefficient.is_multiple_of(10) && exponent < 0 {
            coefficient /= 10;
            exponent += 1;
        }
        Decimal128::from_parts(Parts::Finite { negative, coefficient, exponent })
    }

    /// The nearest double; an infinity if out of range.
    pub fn to_f64(self) -> f64 {
        match self.parts() {
            Parts::NaN => f64::NAN,
            Parts::Infinity { negative: true } => f64::NEG_INFINITY,
            Parts::Infinity { negative: false } => f64::INFINITY,
            Parts::Finite { negative, coefficient, exponent } => {
                let magnitude = magnitude_to_f64(coefficient, exponent);
                if negative { -magnitude } else { magnitude }
            }
        }
    }

    /// The int64 with exactly this value, or `None`.
    pub fn to_i64_exact(self) -> Option<i64> {
        let Parts::Finite { negative, mut coefficient, mut exponent } = self.parts() else { return None };
        if coefficient == 0 {
            return Some(0);
        }
        while exponent < 0 {
            if !coefficient.is_multiple_of(10) {
                return None;
            }
            coefficient /= 10;
            exponent += 1;
        }
        let scale = 10i128.checked_pow(u32::try_from(exponent).ok()?)?;
        let magnitude = i128::try_from(coefficient).ok()?.checked_mul(scale)?;
        i64::try_from(if negative { -magnitude } else { magnitude }).ok()
    }

    /// The nearest int64 under the given rounding; `None` for NaN and values out of range.
    pub fn to_i64(self, rounding: Rounding) -> Option<i64> {
        self.round_to_integer(rounding).to_i64_exact()
    }

    /// The value truncated to an int64: clamped if out of range, zero for NaN.
    pub fn to_i64_clamped(self) -> i64 {
        match (self.to_i64(Rounding::TowardZero), self.is_nan()) {
            (Some(value), _) => value,
            (None, true) => 0,
            (None, false) => {
                if self.is_negative() {
                    i64::MIN
                } else {
                    i64::MAX
                }
            }
        }
    }

    /// The largest coefficient that [`from_parts`](Self::from_parts) accepts.
    pub const COEFFICIENT_MAX: u128 = COEFFICIENT_MAX;
}

/// Compares two non-zero magnitudes, each coefficient × 10^exponent.
pub(super) fn compare_magnitudes((a, a_exponent): (u128, i32), (b, b_exponent): (u128, i32)) -> Ordering {
    let first_digits = (a_exponent + digits(a) as i32).cmp(&(b_exponent + digits(b) as i32));
    first_digits.then_with(|| {
        // Aligned coefficients have equal lengths, so the products have at most 34 digits.
        let power = 10u128.saturating_pow(a_exponent.abs_diff(b_exponent));
        if a_exponent >= b_exponent {
            a.saturating_mul(power).cmp(&b)
        } else {
            a.cmp(&b.saturating_mul(power))
        }
    })
}

/// Compares `coefficient × 10^exponent` with a double, both positive.
fn compare_with_double(coefficient: u128, exponent: i32, double: f64) -> Ordering {
    if double.is_infinite() {
        return Ordering::Less;
    }
    let first_digit = exponent + digits(coefficient) as i32;
    // Far outside the range of doubles. This also bounds the integers below.
    if first_digit > 320 {
        return Ordering::Greater;
    }
    if first_digit < -360 || double == 0.0 {
        return if double == 0.0 { Ordering::Greater } else { Ordering::Less };
    }
    let bits = double.to_bits();
    let fraction = u128::from(bits & ((1 << 52) - 1));
    let (mantissa, power) = match (bits >> 52) as i32 {
        0 => (fraction, -1074),
        biased => (fraction | 1 << 52, biased - 1075),
    };
    // decimal = c × 5^e × 2^e, double = m × 2^p. Both are scaled up to integers.
    let fives = UBig::from(5u8).pow(exponent.unsigned_abs() as usize);
    let (mut decimal, mut binary) = (UBig::from(coefficient), UBig::from(mantissa));
    *(if exponent >= 0 { &mut decimal } else { &mut binary }) *= fives;
    *(if exponent >= power { &mut decimal } else { &mut binary }) <<= exponent.abs_diff(power) as usize;
    decimal.cmp(&binary)
}

impl Decimal128 {
    /// Compares with a double by exact value; NaN sorts before all other values.
    pub fn compare_f64(self, double: f64) -> Ordering {
        let nearest = self.to_f64();
        if nearest.is_nan() || double.is_nan() {
            return double.is_nan().cmp(&nearest.is_nan());
        }
        // Rounding preserves order, so the nearest double decides unless it is equal.
        let order = nearest.partial_cmp(&double).unwrap_or(Ordering::Equal);
        if order.is_ne() || self.is_infinite() {
            return order;
        }
        let (coefficient, exponent) = self.magnitude();
        if coefficient == 0 {
            return order;
        }
        let magnitudes = compare_with_double(coefficient, exponent, double.abs());
        if self.is_negative() { magnitudes.reverse() } else { magnitudes }
    }

    /// Returns the largest double that is at most `coefficient × 10^exponent` (and at most `f64::MAX`), and whether the
    /// decimal exceeds it.
    pub(crate) fn magnitude_to_f64_towards_zero(coefficient: u128, exponent: i32) -> (f64, bool) {
        let nearest = magnitude_to_f64(coefficient, exponent);
        match compare_with_double(coefficient, exponent, nearest) {
            Ordering::Equal => (nearest, false),
            Ordering::Greater => (nearest, true),
            Ordering::Less => (f64::from_bits(nearest.to_bits().saturating_sub(1)), true),
        }
    }
}
