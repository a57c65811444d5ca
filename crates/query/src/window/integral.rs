//! `$integral`: the area below a value along the sort field (trapezoidal rule).
//!
//! ```text
//! {$integral: {input: <expression>, unit: <string>}, window: <window>}
//! ```

use super::derivative::{Rate, divide};
use super::frame::{Bounds, bounds_of};
use super::sliding::{Fold, Sliding};
use super::{Function, FunctionSpec, Partition};
use crate::interrupt_check::InterruptCheck;
use base::Result;
use base::bson::{Number, Value, ValueBuf};

/// A parsed `$integral`.
struct Integral {
    rate: Rate,
    bounds: Bounds,
}

/// Parses the function. Errors: FailedToParse for bad arguments.
pub(super) fn parse(given: &FunctionSpec<'_>) -> Result<Box<dyn Function>> {
    let FunctionSpec { function, spec, sort_by, context } = *given;
    let rate = Rate::parse("$integral", function, sort_by, context)?;
    let bounds = bounds_of(spec, sort_by)?;
    Ok(Box::new(Integral { rate, bounds }))
}

/// The sort value and the number of a document.
type Point = (Number, Number);

/// The area below a run of documents.
#[derive(Clone, Copy)]
struct Area {
    first: Point,
    last: Point,
    area: Number,
}

/// The points of a partition; `None` for a missing number.
struct Points(Vec<Option<Point>>);

impl Fold for &Points {
    type State = Option<Area>;

    fn single(&self, at: usize) -> Result<Option<Area>> {
        let point = self.0.get(at).copied().flatten();
        Ok(point.map(|point| Area { first: point, last: point, area: Number::Double(0.0) }))
    }

    fn merge(&self, earlier: &Option<Area>, later: &Option<Area>) -> Result<Option<Area>> {
        let (Some(a), Some(b)) = (earlier, later) else { return Ok(earlier.or(*later)) };
        let area = a.area.plus(trapezoid(a.last, b.first)).plus(b.area);
        Ok(Some(Area { first: a.first, last: b.last, area }))
    }
}

impl Function for Integral {
    fn compute(&self, partition: &Partition<'_>, interrupts: &mut InterruptCheck) -> Result<Vec<ValueBuf>> {
        let (x_values, y_values) = (self.rate.x_values(partition)?, self.rate.y_values(partition)?);
        let points = Points(x_values.into_iter().zip(y_values).map(|(x, y)| Some((x, y?))).collect());
        let mut sliding = Sliding::new(&points);
        let mut results = Vec::with_capacity(partition.len());
        for frame in self.bounds.frames(partition)? {
            interrupts.check()?;
            let area = sliding.slide(&frame, interrupts)?.flatten();
            results.push(area.map_or_else(ValueBuf::null, |area| Value::from(area.area).to_owned()));
        }
        Ok(results)
    }
}

fn trapezoid((x0, y0): (Number, Number), (x1, y1): (Number, Number)) -> Number {
    divide(x1.minus(x0).times(y0.plus(y1)), Number::Int32(2))
}
