//! `$covariancePop` and `$covarianceSamp`: how two numbers vary together over a frame.

use super::frame::{Bounds, window_of};
use super::sliding::{self, Fold, Sliding};
use super::{Function, Partition, SortBy};
use crate::tick::Tick;
use crate::{Context, Expression};
use base::bson::{Document, Element, Value, ValueBuf};
use base::{Result, err};

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
fn numbers(value: &Option<ValueBuf>) -> Option<(f64, f64)> {
    let pair = value.as_ref()?.view().as_array()?;
    let (first, second, None) = (pair.get(0)?, pair.get(1)?, pair.get(2)) else { return None };
    Some((first.as_number()?.to_f64(), second.as_number()?.to_f64()))
}

/// Two numbers over a run of documents.
#[derive(Clone, Copy, Default)]
struct Moment {
    count: f64,
    mean_x: f64,
    mean_y: f64,
    /// The sum of the products of both distances from the mean.
    moment: f64,
}

impl Moment {
    fn add(&mut self, (x, y): (f64, f64)) {
        self.count += 1.0;
        let distance = x - self.mean_x;
        self.mean_x += distance / self.count;
        self.mean_y += (y - self.mean_y) / self.count;
        self.moment += distance * (y - self.mean_y);
    }
}

/// The pairs of a partition.
struct Pairs(Vec<Option<(f64, f64)>>);

impl Fold for &Pairs {
    type State = Moment;

    fn one(&self, at: usize) -> Result<Moment> {
        let mut moment = Moment::default();
        if let Some(Some(pair)) = self.0.get(at) {
            moment.add(*pair);
        }
        Ok(moment)
    }

    fn join(&self, a: &Moment, b: &Moment) -> Result<Moment> {
        if a.count == 0.0 || b.count == 0.0 {
            return Ok(if a.count == 0.0 { *b } else { *a });
        }
        let count = a.count + b.count;
        let (x, y) = (b.mean_x - a.mean_x, b.mean_y - a.mean_y);
        Ok(Moment {
            count,
            mean_x: a.mean_x + x * b.count / count,
            mean_y: a.mean_y + y * b.count / count,
            moment: a.moment + b.moment + x * y * a.count * b.count / count,
        })
    }
}

impl Covariance {
    fn of(&self, moment: Moment) -> Option<f64> {
        let over = if self.sample { moment.count - 1.0 } else { moment.count };
        (over > 0.0).then(|| moment.moment / over)
    }
}

impl Function for Covariance {
    fn compute(&self, partition: &Partition<'_>, tick: &mut Tick) -> Result<Vec<ValueBuf>> {
        let pairs = Pairs(partition.values(&self.input)?.iter().map(numbers).collect());
        let frames = self.bounds.frames(partition)?;
        let mut sliding = sliding::pays(&frames).then(|| Sliding::new(&pairs));
        let mut results = Vec::with_capacity(partition.len());
        for frame in frames {
            tick.check()?;
            let moment = match &mut sliding {
                Some(sliding) => sliding.slide(&frame, tick)?.unwrap_or_default(),
                None => {
                    let mut moment = Moment::default();
                    pairs
                        .0
                        .get(frame)
                        .unwrap_or_default()
                        .iter()
                        .flatten()
                        .for_each(|pair| moment.add(*pair));
                    moment
                }
            };
            let covariance = self.of(moment);
            results.push(covariance.map_or_else(ValueBuf::null, |value| Value::Double(value).to_owned()));
        }
        Ok(results)
    }
}
