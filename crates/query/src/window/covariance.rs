//! `$covariancePop` and `$covarianceSamp`: how two numbers vary together over a frame.

use super::frame::{Bounds, window_of};
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

impl Covariance {
    fn of(&self, pairs: &[Option<(f64, f64)>]) -> Option<f64> {
        let (mut count, mut mean_x, mut mean_y, mut moment) = (0.0, 0.0, 0.0, 0.0);
        for (x, y) in pairs.iter().flatten() {
            count += 1.0;
            let distance = x - mean_x;
            mean_x += distance / count;
            mean_y += (y - mean_y) / count;
            moment += distance * (y - mean_y);
        }
        let over = if self.sample { count - 1.0 } else { count };
        (over > 0.0).then(|| moment / over)
    }
}

impl Function for Covariance {
    fn compute(&self, partition: &Partition<'_>, tick: &mut Tick) -> Result<Vec<ValueBuf>> {
        let pairs: Vec<_> = partition.values(&self.input)?.iter().map(numbers).collect();
        let mut results = Vec::with_capacity(partition.len());
        for frame in self.bounds.frames(partition)? {
            tick.check()?;
            let covariance = self.of(pairs.get(frame).unwrap_or_default());
            results.push(covariance.map_or_else(ValueBuf::null, |value| Value::Double(value).to_owned()));
        }
        Ok(results)
    }
}
