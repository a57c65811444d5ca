//! Exact comparison of decimals with decimals and with binary floats.
//!
//! Index keys and sort orders depend on this comparison, so it neither rounds nor converts to text.

use super::Decimal128;
use super::rounding::digits;
use dashu_int::UBig;
use std::cmp::Ordering;

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
        let nearest = super::convert::magnitude_to_f64(coefficient, exponent);
        match compare_with_double(coefficient, exponent, nearest) {
            Ordering::Equal => (nearest, false),
            Ordering::Greater => (nearest, true),
            Ordering::Less => (f64::from_bits(nearest.to_bits().saturating_sub(1)), true),
        }
    }
}
