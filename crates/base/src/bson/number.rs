//! Numbers of the four BSON types: promotion on overflow, exact comparison across types.

use super::{Decimal128, Rounding};
use std::cmp::Ordering;

/// A number of one of the four numeric types.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug)]
pub enum Number {
    Int32(i32),
    Int64(i64),
    Double(f64),
    Decimal128(Decimal128),
}

/// Two to the 63rd, the first double past the int64 range.
const TWO_63: f64 = 9_223_372_036_854_775_808.0;

impl Number {
    /// Whether the number is zero of either sign.
    pub fn is_zero(self) -> bool {
        match self {
            Number::Int32(v) => v == 0,
            Number::Int64(v) => v == 0,
            Number::Double(v) => v == 0.0,
            Number::Decimal128(v) => v.is_zero(),
        }
    }

    /// Whether the number is NaN.
    pub fn is_nan(self) -> bool {
        match self {
            Number::Double(v) => v.is_nan(),
            Number::Decimal128(v) => v.is_nan(),
            Number::Int32(_) | Number::Int64(_) => false,
        }
    }

    /// The int64 with exactly this value, or `None`.
    pub fn to_i64_exact(self) -> Option<i64> {
        match self {
            Number::Int32(v) => Some(i64::from(v)),
            Number::Int64(v) => Some(v),
            Number::Double(v) => (v.trunc() == v && (-TWO_63..TWO_63).contains(&v)).then_some(v as i64),
            Number::Decimal128(v) => v.to_i64_exact(),
        }
    }

    /// The number truncated to an int64: clamped if out of range, zero for NaN. MongoDB reads lenient counts and limits
    /// this way.
    pub fn to_i64_clamped(self) -> i64 {
        match self {
            Number::Int32(v) => i64::from(v),
            Number::Int64(v) => v,
            Number::Double(v) => v as i64,
            Number::Decimal128(v) => v.to_i64_clamped(),
        }
    }

    /// The nearest int64 as MongoDB coerces: doubles are truncated, decimals are rounded half to even.
    pub fn to_i64_coerced(self) -> i64 {
        match self {
            Number::Decimal128(v) => v.to_i64(Rounding::HalfEven).unwrap_or_else(|| v.to_i64_clamped()),
            other => other.to_i64_clamped(),
        }
    }

    /// The nearest double.
    pub fn to_f64(self) -> f64 {
        match self {
            Number::Int32(v) => f64::from(v),
            Number::Int64(v) => v as f64,
            Number::Double(v) => v,
            Number::Decimal128(v) => v.to_f64(),
        }
    }

    /// The number as a decimal; doubles are rounded to 15 digits, as in MongoDB.
    pub fn to_decimal(self) -> Decimal128 {
        match self {
            Number::Int32(v) => Decimal128::from_i64(i64::from(v)),
            Number::Int64(v) => Decimal128::from_i64(v),
            Number::Double(v) => Decimal128::from_f64(v),
            Number::Decimal128(v) => v,
        }
    }

    /// Returns an int32 unless an operand was an int64 or the value needs one.
    fn integer(value: i64, wide: bool) -> Number {
        match i32::try_from(value) {
            Ok(narrow) if !wide => Number::Int32(narrow),
            _ => Number::Int64(value),
        }
    }

    /// Returns both operands as integers, and whether either is an int64. `None` unless both are integers.
    fn integers(self, other: Number) -> Option<(i64, i64, bool)> {
        let (a, wide_a) = self.as_integer()?;
        let (b, wide_b) = other.as_integer()?;
        Some((a, b, wide_a || wide_b))
    }

    fn as_integer(self) -> Option<(i64, bool)> {
        match self {
            Number::Int32(v) => Some((i64::from(v), false)),
            Number::Int64(v) => Some((v, true)),
            _ => None,
        }
    }

    /// Whether this is an int32 or int64 (the type, not the value).
    pub fn is_integer(self) -> bool {
        matches!(self, Number::Int32(_) | Number::Int64(_))
    }

    /// Whether this is a decimal (the type).
    pub fn is_decimal(self) -> bool {
        matches!(self, Number::Decimal128(_))
    }

    /// The sum. An int32 overflow becomes int64, an int64 overflow double, as in aggregation.
    pub fn plus(self, other: Number) -> Number {
        self.combine(other, i64::checked_add, |a, b| a + b, Decimal128::plus)
    }

    /// The difference, with the promotions of [`plus`](Self::plus).
    pub fn minus(self, other: Number) -> Number {
        self.combine(other, i64::checked_sub, |a, b| a - b, Decimal128::minus)
    }

    /// The product, with the promotions of [`plus`](Self::plus).
    pub fn times(self, other: Number) -> Number {
        self.combine(other, i64::checked_mul, |a, b| a * b, Decimal128::times)
    }

    /// Whether both numbers have the same type.
    pub fn same_type(self, other: Number) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }

    /// The sum for `$inc`; `None` if an int64 overflows, which `$inc` refuses.
    pub fn add_checked(self, other: Number) -> Option<Number> {
        match self.integers(other) {
            Some((a, b, wide)) => a.checked_add(b).map(|sum| Number::integer(sum, wide)),
            None => Some(self.plus(other)),
        }
    }

    /// The product for `$mul`; `None` if an int64 overflows.
    pub fn multiply_checked(self, other: Number) -> Option<Number> {
        match self.integers(other) {
            Some((a, b, wide)) => a.checked_mul(b).map(|product| Number::integer(product, wide)),
            None => Some(self.times(other)),
        }
    }

    /// Applies an operation in the type of the result: decimal if either operand is one, integer if both are and the
    /// result fits an int64, otherwise double.
    fn combine(
        self,
        other: Number,
        integers: fn(i64, i64) -> Option<i64>,
        doubles: fn(f64, f64) -> f64,
        decimals: fn(Decimal128, Decimal128) -> Decimal128,
    ) -> Number {
        if self.is_decimal() || other.is_decimal() {
            return Number::Decimal128(decimals(self.to_decimal(), other.to_decimal()));
        }
        if let Some((a, b, wide)) = self.integers(other)
            && let Some(result) = integers(a, b)
        {
            return Number::integer(result, wide);
        }
        Number::Double(doubles(self.to_f64(), other.to_f64()))
    }

    /// MongoDB's order of numbers: by exact value across types. NaN equals itself and sorts before all other values.
    /// Zeros of both signs are equal.
    #[inline]
    pub fn compare(self, other: Number) -> Ordering {
        match (self, other) {
            (Number::Int32(a), Number::Int32(b)) => a.cmp(&b),
            (Number::Decimal128(a), Number::Double(b)) => a.compare_f64(b),
            (Number::Double(a), Number::Decimal128(b)) => b.compare_f64(a).reverse(),
            // Conversion of integers to decimals is exact.
            (Number::Decimal128(a), b) => a.compare(b.to_decimal()),
            (a, Number::Decimal128(b)) => a.to_decimal().compare(b),
            (Number::Double(a), Number::Double(b)) => compare_doubles(a, b),
            (Number::Double(a), b) => compare_double_integer(a, b.to_i64_clamped()),
            (a, Number::Double(b)) => compare_double_integer(b, a.to_i64_clamped()).reverse(),
            (a, b) => a.to_i64_clamped().cmp(&b.to_i64_clamped()),
        }
    }
}

fn compare_doubles(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| b.is_nan().cmp(&a.is_nan()))
}

/// Compares a double with an integer by exact value, without a lossy conversion. NaN sorts first.
fn compare_double_integer(a: f64, b: i64) -> Ordering {
    if a.is_nan() || a < -TWO_63 {
        return Ordering::Less;
    }
    if a >= TWO_63 {
        return Ordering::Greater;
    }
    // Truncation is exact in this range. The fraction decides between equal integers.
    let truncated = a.trunc();
    (truncated as i64).cmp(&b).then_with(|| compare_doubles(a, truncated))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overflow_promotes() {
        assert!(matches!(Number::Int32(i32::MAX).plus(Number::Int32(1)), Number::Int64(2_147_483_648)));
        assert!(matches!(Number::Int64(i64::MAX).plus(Number::Int32(1)), Number::Double(_)));
        assert!(Number::Int64(i64::MAX).add_checked(Number::Int32(1)).is_none());
        assert!(matches!(Number::Int64(1).plus(Number::Int32(1)), Number::Int64(2)));
    }

    #[test]
    fn comparison_is_exact_across_types() {
        let big = (1i64 << 53) + 1;
        assert_eq!(Number::Int64(big).compare(Number::Double(big as f64)), Ordering::Greater);
        assert_eq!(Number::Double(f64::NAN).compare(Number::Int64(i64::MIN)), Ordering::Less);
        assert_eq!(Number::Double(f64::NAN).compare(Number::Double(f64::NAN)), Ordering::Equal);
        assert_eq!(Number::Double(-0.0).compare(Number::Int32(0)), Ordering::Equal);
        assert_eq!(Number::Double(TWO_63).compare(Number::Int64(i64::MAX)), Ordering::Greater);
        assert_eq!(Number::Double(-2.5).compare(Number::Int32(-2)), Ordering::Less);
        assert_eq!(Number::Int32(-2).compare(Number::Double(-2.5)), Ordering::Greater);
    }
}
