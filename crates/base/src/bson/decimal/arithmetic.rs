//! IEEE arithmetic with 34 digits, rounding half to even.
//!
//! Sums and products that need no rounding are computed here. decNumber computes all other results.

use super::library::{binary, wide, widen};
use super::{COEFFICIENT_MAX, Decimal128, Parts};

impl Decimal128 {
    /// The IEEE sum.
    pub fn plus(self, other: Decimal128) -> Decimal128 {
        self.plus_exact(other).unwrap_or_else(|| binary(self, other, |context, a, b| context.add(a, b)))
    }

    /// The IEEE difference.
    pub fn minus(self, other: Decimal128) -> Decimal128 {
        self.plus(other.negate())
    }

    /// Returns the sum of two finite values if it fits exactly and its sign is clear: equally signed or unequal
    /// operands.
    fn plus_exact(self, other: Decimal128) -> Option<Decimal128> {
        let (a, a_exponent) = self.signed_parts()?;
        let (b, b_exponent) = other.signed_parts()?;
        let exponent = a_exponent.min(b_exponent);
        let sum = aligned(a, a_exponent - exponent)?.checked_add(aligned(b, b_exponent - exponent)?)?;
        // The sign of a zero sum depends on the signs of both operands.
        if sum == 0 || sum.unsigned_abs() > COEFFICIENT_MAX {
            return None;
        }
        let coefficient = sum.unsigned_abs();
        Some(Decimal128::from_parts(Parts::Finite { negative: sum < 0, coefficient, exponent }))
    }

    fn signed_parts(self) -> Option<(i128, i32)> {
        let Parts::Finite { negative, coefficient, exponent } = self.parts() else { return None };
        let magnitude = coefficient as i128;
        Some((if negative { -magnitude } else { magnitude }, exponent))
    }

    /// The IEEE product.
    pub fn times(self, other: Decimal128) -> Decimal128 {
        self.times_exact(other).unwrap_or_else(|| binary(self, other, |context, a, b| context.mul(a, b)))
    }

    /// Returns the product of two finite values if coefficient and exponent fit exactly.
    fn times_exact(self, other: Decimal128) -> Option<Decimal128> {
        let (a, a_exponent) = self.signed_parts()?;
        let (b, b_exponent) = other.signed_parts()?;
        let coefficient = a.unsigned_abs().checked_mul(b.unsigned_abs())?;
        let exponent = a_exponent + b_exponent;
        if coefficient > COEFFICIENT_MAX || !(super::EXPONENT_MIN..=super::EXPONENT_MAX).contains(&exponent) {
            return None;
        }
        let negative = self.is_negative() != other.is_negative();
        Some(Decimal128::from_parts(Parts::Finite { negative, coefficient, exponent }))
    }

    /// The IEEE quotient: infinity for division by zero, NaN for zero by zero.
    pub fn divided_by(self, other: Decimal128) -> Decimal128 {
        binary(self, other, |context, a, b| context.div(a, b))
    }

    /// The remainder of truncated division, with the dividend's sign. It is exact even if the quotient has more than 34
    /// digits. NaN for a zero divisor or an infinite dividend.
    pub fn remainder(self, other: Decimal128) -> Decimal128 {
        let Parts::Finite { negative, coefficient: a, exponent: a_exponent } = self.parts() else {
            return Decimal128::NAN;
        };
        let (b, b_exponent) = match other.parts() {
            Parts::NaN | Parts::Finite { coefficient: 0, .. } => return Decimal128::NAN,
            Parts::Infinity { .. } => return self,
            Parts::Finite { coefficient, exponent, .. } => (coefficient, exponent),
        };
        let coefficient = if a_exponent >= b_exponent {
            // Below 10^34 at each step, so one more digit fits.
            (b_exponent..a_exponent).fold(a % b, |rest, _| rest * 10 % b)
        } else {
            let power = 10u128.checked_pow(a_exponent.abs_diff(b_exponent));
            power.and_then(|power| b.checked_mul(power)).map_or(a, |b| a % b)
        };
        Decimal128::from_parts(Parts::Finite { negative, coefficient, exponent: a_exponent.min(b_exponent) })
    }

    /// The power; NaN if the result is not real.
    pub fn power(self, exponent: Decimal128) -> Decimal128 {
        let exponent = widen(exponent);
        wide(self, move |context, number| context.pow(number, &exponent))
    }

    /// The square root; NaN for negative numbers.
    pub fn square_root(self) -> Decimal128 {
        wide(self, |context, number| context.sqrt(number))
    }

    /// e to this power.
    pub fn exponential(self) -> Decimal128 {
        wide(self, |context, number| context.exp(number))
    }

    /// The natural logarithm: −Infinity for zero, NaN for negative numbers.
    pub fn natural_logarithm(self) -> Decimal128 {
        wide(self, |context, number| context.ln(number))
    }

    /// The logarithm to base ten.
    pub fn logarithm_10(self) -> Decimal128 {
        wide(self, |context, number| context.log10(number))
    }
}

/// Returns the coefficient with `zeros` more digits.
fn aligned(coefficient: i128, zeros: i32) -> Option<i128> {
    if zeros == 0 {
        return Some(coefficient);
    }
    coefficient.checked_mul(10i128.checked_pow(zeros.unsigned_abs())?)
}
