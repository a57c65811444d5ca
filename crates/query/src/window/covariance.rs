//! `$covariancePop` and `$covarianceSamp`: how two numbers vary together over a frame.

use super::frame::{Bounds, window_of};
use super::sliding::{self, Fold, Sliding};
use super::{Function, Partition, SortBy};
use crate::tick::Tick;
use crate::{Context, Expression};
use base::bson::{Decimal128, Document, Element, Number, Value, ValueBuf};
use base::{Result, err};
use std::marker::PhantomData;
use std::ops::Range;

struct Covariance {
    sample: bool,
    input: Expression,
    bounds: Bounds,
}

/// Errors: those of bounds and expressions, FailedToParse unless the argument is a pair.
pub(super) fn parse(
    function: &Element<'_>,
    spec: Document<'_>,
    sort_by: Option<&SortBy>,
    context: &Context,
) -> Result<Box<dyn Function>> {
    let bounds = match window_of(spec, true)? {
        Some(window) => Bounds::parse(window, sort_by)?,
        None => Bounds::ALL,
    };
    if function.value().as_array().is_some_and(|pair| pair.len() != 2) {
        return Err(err!(FailedToParse, "{} takes an array of two expressions", function.name()));
    }
    let input = Expression::parse(function.value(), context)?;
    Ok(Box::new(Covariance { sample: function.name() == "$covarianceSamp", input, bounds }))
}

/// The pair of numbers that a value is.
fn numbers(value: &Option<ValueBuf>) -> Option<(Number, Number)> {
    let pair = value.as_ref()?.view().as_array()?;
    let (first, second, None) = (pair.get(0)?, pair.get(1)?, pair.get(2)) else { return None };
    Some((first.as_number()?, second.as_number()?))
}

/// What is computed with: doubles, or decimals in partitions that have any.
trait Real: Copy {
    fn of(number: Number) -> Self;
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    fn over(self, other: Self) -> Self;
}

impl Real for f64 {
    fn of(number: Number) -> f64 {
        number.to_f64()
    }

    fn plus(self, other: f64) -> f64 {
        self + other
    }

    fn minus(self, other: f64) -> f64 {
        self - other
    }

    fn times(self, other: f64) -> f64 {
        self * other
    }

    fn over(self, other: f64) -> f64 {
        self / other
    }
}

impl Real for Decimal128 {
    fn of(number: Number) -> Decimal128 {
        number.to_decimal()
    }

    fn plus(self, other: Decimal128) -> Decimal128 {
        Decimal128::plus(self, other)
    }

    fn minus(self, other: Decimal128) -> Decimal128 {
        Decimal128::minus(self, other)
    }

    fn times(self, other: Decimal128) -> Decimal128 {
        Decimal128::times(self, other)
    }

    fn over(self, other: Decimal128) -> Decimal128 {
        self.divided_by(other)
    }
}

/// Two numbers over a run of documents.
#[derive(Clone, Copy)]
struct Moment<R> {
    count: i64,
    /// How many of the pairs have a decimal.
    decimals: i64,
    mean_x: R,
    mean_y: R,
    /// The sum of the products of both distances from the mean.
    moment: R,
}

impl<R: Real> Moment<R> {
    fn none() -> Moment<R> {
        let zero = R::of(Number::Int32(0));
        Moment { count: 0, decimals: 0, mean_x: zero, mean_y: zero, moment: zero }
    }

    fn add(&mut self, (x, y): (Number, Number)) {
        self.count += 1;
        self.decimals += i64::from(x.is_decimal() || y.is_decimal());
        let (x, y, count) = (R::of(x), R::of(y), R::of(Number::Int64(self.count)));
        let distance = x.minus(self.mean_x);
        self.mean_x = self.mean_x.plus(distance.over(count));
        self.mean_y = self.mean_y.plus(y.minus(self.mean_y).over(count));
        self.moment = self.moment.plus(distance.times(y.minus(self.mean_y)));
    }

    fn join(&self, later: &Moment<R>) -> Moment<R> {
        if self.count == 0 || later.count == 0 {
            return if self.count == 0 { *later } else { *self };
        }
        let both = self.count + later.count;
        let of = |count| R::of(Number::Int64(count));
        let (count, earlier_count, later_count) = (of(both), of(self.count), of(later.count));
        let (x, y) = (later.mean_x.minus(self.mean_x), later.mean_y.minus(self.mean_y));
        let apart = x.times(y).times(earlier_count).times(later_count).over(count);
        Moment {
            count: both,
            decimals: self.decimals + later.decimals,
            mean_x: self.mean_x.plus(x.times(later_count).over(count)),
            mean_y: self.mean_y.plus(y.times(later_count).over(count)),
            moment: self.moment.plus(later.moment).plus(apart),
        }
    }
}

/// The pairs of a partition.
struct Pairs<R>(Vec<Option<(Number, Number)>>, PhantomData<R>);

impl<R: Real> Fold for &Pairs<R> {
    type State = Moment<R>;

    fn one(&self, at: usize) -> Result<Moment<R>> {
        let mut moment = Moment::none();
        if let Some(Some(pair)) = self.0.get(at) {
            moment.add(*pair);
        }
        Ok(moment)
    }

    fn join(&self, a: &Moment<R>, b: &Moment<R>) -> Result<Moment<R>> {
        Ok(a.join(b))
    }
}

impl<R: Real> Pairs<R> {
    /// The moments of all frames.
    fn moments(&self, frames: &[Range<usize>], tick: &mut Tick) -> Result<Vec<Moment<R>>> {
        let mut sliding = sliding::pays(frames).then(|| Sliding::new(self));
        let mut moments = Vec::with_capacity(frames.len());
        for frame in frames {
            tick.check()?;
            moments.push(match &mut sliding {
                Some(sliding) => sliding.slide(frame, tick)?.unwrap_or_else(Moment::none),
                None => {
                    let mut moment = Moment::none();
                    let pairs = self.0.get(frame.clone()).unwrap_or_default();
                    pairs.iter().flatten().for_each(|pair| moment.add(*pair));
                    moment
                }
            });
        }
        Ok(moments)
    }
}

impl Covariance {
    fn of<R: Real>(&self, moment: &Moment<R>) -> Option<R> {
        let over = if self.sample { moment.count - 1 } else { moment.count };
        (over > 0).then(|| moment.moment.over(R::of(Number::Int64(over))))
    }

    /// A frame with a decimal in it has a decimal covariance; but that of a population of one is the
    /// double zero.
    fn of_decimals(&self, moment: &Moment<Decimal128>) -> Option<ValueBuf> {
        let is_one = moment.count == 1 && !self.sample;
        let decimal = moment.decimals > 0 && !is_one;
        decimal
            .then(|| self.of(moment).map_or_else(ValueBuf::null, |value| Value::Decimal128(value).to_owned()))
    }
}

impl Function for Covariance {
    fn compute(&self, partition: &Partition<'_>, tick: &mut Tick) -> Result<Vec<ValueBuf>> {
        let pairs: Vec<_> = partition.values(&self.input)?.iter().map(numbers).collect();
        let frames = self.bounds.frames(partition)?;
        let any_decimal = pairs.iter().flatten().any(|(x, y)| x.is_decimal() || y.is_decimal());
        let decimals = match any_decimal {
            true => Pairs::<Decimal128>(pairs.clone(), PhantomData).moments(&frames, tick)?,
            false => Vec::new(),
        };
        let doubles = Pairs::<f64>(pairs, PhantomData).moments(&frames, tick)?;
        let result = |(at, moment): (usize, &Moment<f64>)| {
            let decimal = decimals.get(at).and_then(|moment| self.of_decimals(moment));
            let double =
                || self.of(moment).map_or_else(ValueBuf::null, |value| Value::Double(value).to_owned());
            decimal.unwrap_or_else(double)
        };
        Ok(doubles.iter().enumerate().map(result).collect())
    }
}
