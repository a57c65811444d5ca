//! `$covariancePop` and `$covarianceSamp`: the covariance of two numbers over a frame.
//!
//! The online algorithm is MongoDB's, term by term, so digits and exponents of decimals are equal. A pair that enters
//! the frame adds a product of two deviations. A pair that leaves subtracts one.
//!
//! ```text
//! {$covariancePop: [<expression>, <expression>], window: <window>}
//! ```

use super::frame::{Bounds, bounds_of};
use super::{Function, FunctionSpec, Partition};
use crate::Expression;
use crate::accumulator_state::Total;
use crate::interrupt_check::InterruptCheck;
use base::Result;
use base::bson::{Decimal128, Number, Value, ValueBuf};

/// A parsed `$covariancePop` or `$covarianceSamp`.
struct Covariance {
    sample: bool,
    input: Expression,
    bounds: Bounds,
}

/// Parses the function. Errors: errors of bounds and expressions. An argument that is not a pair of numbers is ignored.
pub(super) fn parse(given: &FunctionSpec<'_>) -> Result<Box<dyn Function>> {
    let FunctionSpec { function, spec, sort_by, context } = *given;
    let bounds = bounds_of(spec, sort_by, context)?;
    let input = Expression::parse(function.value(), context)?;
    Ok(Box::new(Covariance { sample: function.name() == "$covarianceSamp", input, bounds }))
}

/// Returns the pair of numbers in a value.
fn numbers(value: &Option<ValueBuf>) -> Option<(Number, Number)> {
    let pair = value.as_ref()?.view().as_array()?;
    let (first, second, None) = (pair.get(0)?, pair.get(1)?, pair.get(2)) else { return None };
    Some((first.as_number()?, second.as_number()?))
}

/// A sum with removable numbers. Infinities and NaN are counted separately.
#[derive(Default)]
struct Sum {
    finite: Total,
    infinities: i64,
    negative_infinities: i64,
    nans: i64,
    decimals: i64,
}

impl Sum {
    fn add(&mut self, number: Number) {
        self.update(number, 1);
    }

    fn remove(&mut self, number: Number) {
        self.update(number, -1);
    }

    /// Adds a number (`by` is 1) or removes it (-1).
    fn update(&mut self, number: Number, by: i64) {
        self.decimals += if number.is_decimal() { by } else { 0 };
        let double = number.to_f64();
        if number.is_nan() {
            self.nans += by;
        } else if !is_finite(number) {
            *if double > 0.0 { &mut self.infinities } else { &mut self.negative_infinities } += by;
        } else {
            self.finite.add(if by < 0 { negated(number) } else { number });
        }
    }

    /// Returns the sum. NaN, or infinities of both signs, give NaN.
    fn value(&self) -> Number {
        let decimal = self.decimals > 0;
        let special = |double: f64| match decimal {
            true => Number::Decimal128(Decimal128::from_f64_exact(double)),
            false => Number::Double(double),
        };
        match (self.nans > 0, self.infinities > 0, self.negative_infinities > 0) {
            (true, _, _) | (_, true, true) => special(f64::NAN),
            (_, true, _) => special(f64::INFINITY),
            (_, _, true) => special(f64::NEG_INFINITY),
            _ => match self.finite.number() {
                // No decimal is left in the sum.
                Number::Decimal128(sum) if !decimal => Number::Double(sum.to_f64()),
                sum => sum,
            },
        }
    }

    /// Returns the mean of `count` numbers.
    fn mean(&self, count: i64) -> Number {
        match self.value() {
            sum if !is_finite(sum) => sum,
            Number::Decimal128(sum) => Number::Decimal128(sum.divided_by(Decimal128::from_i64(count))),
            sum => Number::Double(sum.to_f64() / count as f64),
        }
    }
}

fn is_finite(number: Number) -> bool {
    match number {
        Number::Double(value) => value.is_finite(),
        Number::Decimal128(value) => !value.is_nan() && !value.is_infinite(),
        Number::Int32(_) | Number::Int64(_) => true,
    }
}

fn negated(number: Number) -> Number {
    match number {
        Number::Double(value) => Number::Double(-value),
        Number::Decimal128(value) => Number::Decimal128(value.negate()),
        integer => Number::Int32(0).minus(integer),
    }
}

/// The comoment of the pairs in a frame: the sum of the products of their deviations from the means.
#[derive(Default)]
struct Comoment {
    count: i64,
    x: Sum,
    y: Sum,
    /// The sum of the products.
    products: Sum,
}

impl Comoment {
    fn add(&mut self, (x, y): (Number, Number)) {
        if !is_finite(x) || !is_finite(y) {
            return self.products.add(not_finite(x, y));
        }
        let before = (self.count > 0).then(|| self.x.mean(self.count));
        self.count += 1;
        self.x.add(x);
        self.y.add(y);
        if let Some(mean) = before {
            self.products.add(x.minus(mean).times(y.minus(self.y.mean(self.count))));
        }
    }

    fn remove(&mut self, (x, y): (Number, Number)) {
        if !is_finite(x) || !is_finite(y) {
            return self.products.remove(not_finite(x, y));
        }
        self.count -= 1;
        if self.count == 0 {
            *self = Comoment::default();
            return;
        }
        self.x.remove(x);
        let deviations = (x.minus(self.x.mean(self.count)), y.minus(self.y.mean(self.count + 1)));
        self.products.remove(deviations.0.times(deviations.1));
        self.y.remove(y);
    }
}

/// Returns the contribution of a pair with infinities or NaN: NaN for one or two infinities.
fn not_finite(x: Number, y: Number) -> Number {
    let infinite = |number: Number| if is_finite(number) { 0.0 } else { number.to_f64() };
    let sum = infinite(x) + infinite(y);
    match x.is_decimal() || y.is_decimal() {
        true => Number::Decimal128(Decimal128::from_f64_exact(sum)),
        false => Number::Double(sum),
    }
}

impl Covariance {
    /// Returns the result: the double zero for a population of one pair, null for too few pairs.
    fn result(&self, comoment: &Comoment) -> ValueBuf {
        let divisor = if self.sample { comoment.count - 1 } else { comoment.count };
        match comoment.products.value() {
            _ if comoment.count == 1 && !self.sample => Value::Double(0.0).to_owned(),
            _ if divisor <= 0 => ValueBuf::null(),
            Number::Decimal128(sum) => {
                Value::Decimal128(sum.divided_by(Decimal128::from_f64(divisor as f64))).to_owned()
            }
            sum => Value::Double(sum.to_f64() / divisor as f64).to_owned(),
        }
    }
}

impl Function for Covariance {
    fn compute(&self, partition: &Partition<'_>, interrupts: &mut InterruptCheck) -> Result<Vec<ValueBuf>> {
        let pairs: Vec<_> = partition.values(&self.input)?.iter().map(numbers).collect();
        let (mut comoment, mut previous) = (Comoment::default(), 0..0);
        let mut results = Vec::with_capacity(pairs.len());
        for frame in self.bounds.frames(partition)? {
            if frame.start < previous.start || frame.end < previous.end || frame.start >= previous.end {
                (comoment, previous) = (Comoment::default(), frame.start..frame.start);
            }
            for pair in pairs.get(previous.end..frame.end).unwrap_or_default() {
                interrupts.check()?;
                pair.iter().for_each(|pair| comoment.add(*pair));
            }
            for pair in pairs.get(previous.start..frame.start).unwrap_or_default() {
                interrupts.check()?;
                pair.iter().for_each(|pair| comoment.remove(*pair));
            }
            previous = frame;
            interrupts.check()?;
            results.push(self.result(&comoment));
        }
        Ok(results)
    }
}
