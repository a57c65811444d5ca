//! IEEE arithmetic with 34 digits, rounding half to even.
//!
//! Sums and products that need no rounding are computed here. The decNumber library, which encodes significands in
//! units of ten bits, computes all other results.

use super::{COEFFICIENT_MAX, Decimal128, Parts};
use dec::{Context, Decimal};

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

/// Holds 36 digits, so a result of 34 digits is rounded from an exact one.
type Wide = Decimal<12>;

/// Converts to the library's encoding (densely packed decimal).
pub(super) fn to_library(value: Decimal128, context: &mut Context<dec::Decimal128>) -> dec::Decimal128 {
    match value.parts() {
        Parts::NaN => dec::Decimal128::NAN,
        Parts::Infinity { negative } => {
            let infinity = context.div(dec::Decimal128::ONE, dec::Decimal128::ZERO);
            if negative { -infinity } else { infinity }
        }
        Parts::Finite { negative, coefficient, exponent } => {
            let mut result = context.from_u128(coefficient);
            context.set_exponent(&mut result, exponent);
            if negative { -result } else { result }
        }
    }
}

/// Converts from the library's encoding. Every NaN becomes the default NaN.
pub(super) fn from_library(value: dec::Decimal128) -> Decimal128 {
    if value.is_nan() {
        return Decimal128::NAN;
    }
    let negative = value.is_signed();
    if value.is_infinite() {
        return Decimal128::from_parts(Parts::Infinity { negative });
    }
    let coefficient = value.coefficient().unsigned_abs();
    Decimal128::from_parts(Parts::Finite { negative, coefficient, exponent: value.exponent() })
}

/// Applies a binary operation.
pub(super) fn binary(
    a: Decimal128,
    b: Decimal128,
    operation: fn(&mut Context<dec::Decimal128>, dec::Decimal128, dec::Decimal128) -> dec::Decimal128,
) -> Decimal128 {
    let mut context = Context::default();
    let (a, b) = (to_library(a, &mut context), to_library(b, &mut context));
    from_library(operation(&mut context, a, b))
}

/// Applies, with 34 digits, an operation that the library offers only for arbitrary precision.
pub(super) fn wide(value: Decimal128, operation: impl Fn(&mut Context<Wide>, &mut Wide)) -> Decimal128 {
    let mut narrow = Context::default();
    let mut number = Wide::from(to_library(value, &mut narrow));
    let mut context = Context::<Wide>::default();
    // 34 digits fit the type's 36, and the exponents are Decimal128's. Series refuse the default, unlimited exponents.
    let limited = context.set_precision(34).is_ok()
        && context.set_max_exponent(6144).is_ok()
        && context.set_min_exponent(-6143).is_ok();
    if !limited {
        return Decimal128::NAN;
    }
    operation(&mut context, &mut number);
    from_library(narrow.from_decimal(&number))
}

/// Widens a second operand.
pub(super) fn widen(value: Decimal128) -> Wide {
    Wide::from(to_library(value, &mut Context::default()))
}
