//! Conversions between decimals and the other numeric types.

use super::rounding::Rounding;
use super::{COEFFICIENT_MAX, Decimal128, Parts};

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
