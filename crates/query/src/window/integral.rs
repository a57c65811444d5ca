//! `$integral`: the area below a value along the one sorted by (trapezoids).

use super::derivative::{Rate, divide};
use super::frame::{Bounds, window_of};
use super::{Function, Partition, SortBy};
use crate::Context;
use crate::tick::Tick;
use base::Result;
use base::bson::{Document, Element, Number, Value, ValueBuf};

struct Integral {
    rate: Rate,
    bounds: Bounds,
}

/// Errors: FailedToParse for bad arguments.
pub(super) fn parse(
    function: &Element<'_>,
    spec: Document<'_>,
    sort_by: Option<&SortBy>,
    context: &Context,
) -> Result<Box<dyn Function>> {
    let rate = Rate::parse("$integral", function, sort_by, context)?;
    let bounds = match window_of(spec, true)? {
        Some(window) => Bounds::parse(window, sort_by)?,
        None => Bounds::ALL,
    };
    Ok(Box::new(Integral { rate, bounds }))
}

impl Function for Integral {
    fn compute(&self, partition: &Partition<'_>, tick: &mut Tick) -> Result<Vec<ValueBuf>> {
        let (places, numbers) = (self.rate.places(partition)?, self.rate.numbers(partition)?);
        let points: Vec<_> = places.into_iter().zip(numbers).map(|(x, y)| Some((x, y?))).collect();
        let mut results = Vec::with_capacity(partition.len());
        for frame in self.bounds.frames(partition)? {
            let mut area: Option<Number> = None;
            let mut before = None;
            for point in points.get(frame).unwrap_or_default().iter().flatten() {
                tick.check()?;
                if let Some((x, y)) = before {
                    let slice = trapezoid((x, y), *point);
                    area = Some(area.map_or(slice, |area| area.plus(slice)));
                } else {
                    area = Some(Number::Double(0.0));
                }
                before = Some(*point);
            }
            results.push(area.map_or_else(ValueBuf::null, |area| Value::from(area).to_owned()));
        }
        Ok(results)
    }
}

fn trapezoid((x0, y0): (Number, Number), (x1, y1): (Number, Number)) -> Number {
    divide(x1.minus(x0).times(y0.plus(y1)), Number::Int32(2))
}
