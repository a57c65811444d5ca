//! Sums that do not lose digits: doubles are added with their rounding errors kept.

use base::bson::{Decimal128, Number};

/// The running sum of numbers of any type, as `$sum`, `$avg` and `$add` share it.
///
/// Doubles are kept as a pair of doubles (the sum and what rounding took from it), integers
/// exactly, decimals apart, so that the order of the operands hardly matters.
#[derive(Clone, Debug)]
pub(crate) struct Summation {
    sum: f64,
    rest: f64,
    integers: i128,
    decimals: Option<Decimal128>,
    widest: Widest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Widest {
    Int32,
    Int64,
    Double,
}

impl Default for Summation {
    fn default() -> Summation {
        Summation { sum: 0.0, rest: 0.0, integers: 0, decimals: None, widest: Widest::Int32 }
    }
}

impl Summation {
    /// Adds a number.
    pub(crate) fn add(&mut self, number: Number) {
        match number {
            Number::Int32(value) => self.integers += i128::from(value),
            Number::Int64(value) => {
                self.integers += i128::from(value);
                self.widest = self.widest.max(Widest::Int64);
            }
            Number::Double(value) => {
                self.add_double(value);
                self.widest = Widest::Double;
            }
            Number::Decimal128(value) => {
                let decimals = self.decimals.unwrap_or(Decimal128::from_i64(0));
                self.decimals = Some(decimals.plus(value));
            }
        }
    }

    fn add_double(&mut self, value: f64) {
        let sum = self.sum + value;
        // Knuth's two-sum: the exact error of the addition. Infinities have none.
        let back = sum - self.sum;
        let error = (self.sum - (sum - back)) + (value - back);
        self.sum = sum;
        if sum.is_finite() {
            self.rest += error;
        } else {
            self.rest = 0.0;
        }
    }

    /// The sum: the narrowest type that the operands and the value allow.
    pub(crate) fn total(&self) -> Number {
        if let Some(decimals) = self.decimals {
            return Number::Decimal128(decimals.plus(self.exact_decimal()));
        }
        if self.widest == Widest::Double {
            return Number::Double(self.to_f64());
        }
        match (i32::try_from(self.integers), i64::try_from(self.integers)) {
            (Ok(narrow), _) if self.widest == Widest::Int32 => Number::Int32(narrow),
            (_, Ok(wide)) => Number::Int64(wide),
            _ => Number::Double(self.integers as f64),
        }
    }

    /// The sum as the nearest double, decimals left aside.
    pub(crate) fn to_f64(&self) -> f64 {
        let mut all = self.clone();
        // Both halves are exact doubles, so nothing is lost before the last addition.
        let high = self.integers as f64;
        all.add_double(high);
        all.add_double((self.integers - high as i128) as f64);
        all.sum + all.rest
    }

    fn exact_decimal(&self) -> Decimal128 {
        let integers = Decimal128::parse(&self.integers.to_string()).unwrap_or(Decimal128::from_i64(0));
        if self.widest != Widest::Double {
            return integers;
        }
        let doubles = Decimal128::from_f64_exact(self.sum).plus(Decimal128::from_f64_exact(self.rest));
        integers.plus(doubles)
    }

    /// The sum in whole milliseconds, rounded to the nearest; `None` out of range.
    pub(crate) fn to_millis(&self) -> Option<i64> {
        match self.total() {
            Number::Int32(value) => Some(i64::from(value)),
            Number::Int64(value) => Some(value),
            Number::Double(_) if self.widest != Widest::Double => None,
            other => whole(self.integers, other.to_f64(), self.sum + self.rest, self.decimals),
        }
    }
}

fn whole(integers: i128, total: f64, doubles: f64, decimals: Option<Decimal128>) -> Option<i64> {
    if !total.is_finite() {
        return None;
    }
    let fraction = doubles + decimals.map_or(0.0, Decimal128::to_f64);
    i64::try_from(integers + fraction.round() as i128).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(numbers: &[Number]) -> Number {
        let mut summation = Summation::default();
        numbers.iter().for_each(|number| summation.add(*number));
        summation.total()
    }

    #[test]
    fn rounding_errors_are_kept() {
        let Number::Double(total) = sum(&[1e100, 1.0, -1e100].map(Number::Double)) else { panic!() };
        assert_eq!(total, 1.0);
        let Number::Double(infinite) = sum(&[f64::INFINITY, 1.0].map(Number::Double)) else { panic!() };
        assert_eq!(infinite, f64::INFINITY);
    }

    #[test]
    fn integers_stay_integers_while_they_fit() {
        assert!(matches!(sum(&[Number::Int64(i64::MAX), Number::Int64(1)]), Number::Double(_)));
        let back = sum(&[Number::Int64(i64::MAX), Number::Int64(1), Number::Int64(-1)]);
        assert!(matches!(back, Number::Int64(i64::MAX)));
    }
}
