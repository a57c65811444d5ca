//! `$minMaxScaler`: a number scaled by the minimum and maximum of its frame.
//!
//! ```text
//! {$minMaxScaler: {input: <expression>, min: <number>, max: <number>}, window: <window>}
//! ```
//!
//! The range is 0 to 1 by default.

use super::frame::{Bounds, bounds_of};
use super::sliding::{Fold, Sliding};
use super::{Function, FunctionSpec, Partition};
use crate::interrupt_check::InterruptCheck;
use crate::{Context, Expression};
use base::bson::{Element, Value, ValueBuf};
use base::{Result, bail, err};

/// A parsed `$minMaxScaler` with the range of its results.
struct MinMaxScaler {
    input: Expression,
    min: f64,
    max: f64,
    bounds: Bounds,
}

/// Parses the function. Errors: FailedToParse and 40414 for bad and missing arguments.
pub(super) fn parse(given: &FunctionSpec<'_>) -> Result<Box<dyn Function>> {
    let FunctionSpec { function, spec, sort_by, context } = *given;
    let Value::Document(arguments) = function.value() else {
        bail!(FailedToParse, "$minMaxScaler expects an object, but got {}", function.value());
    };
    let (mut input, mut min, mut max) = (None, None, None);
    for argument in arguments {
        match argument.name() {
            "input" => input = Some(Expression::parse(argument.value(), context)?),
            "min" => min = Some(limit(&argument, context)?),
            "max" => max = Some(limit(&argument, context)?),
            other => bail!(FailedToParse, "$minMaxScaler got unexpected argument: {other}"),
        }
    }
    if min.is_some() != max.is_some() {
        bail!(FailedToParse, "$minMaxScaler requires both 'min' and 'max', or neither");
    }
    let (min, max) = (min.unwrap_or(0.0), max.unwrap_or(1.0));
    if min >= max {
        bail!(FailedToParse, "$minMaxScaler requires 'max' to be strictly greater than 'min'");
    }
    let bounds = bounds_of(spec, sort_by)?;
    let input = input.ok_or_else(|| err!(FailedToParse, "$minMaxScaler requires an 'input' expression"))?;
    Ok(Box::new(MinMaxScaler { input, min, max, bounds }))
}

fn limit(argument: &Element<'_>, context: &Context) -> Result<f64> {
    let expression = Expression::parse(argument.value(), context)?;
    let number = expression.constant().and_then(|value| value.as_number());
    let number = number.filter(|number| !number.is_nan());
    number.map(|number| number.to_f64()).ok_or_else(|| {
        err!(FailedToParse, "$minMaxScaler requires '{}' to be a constant number", argument.name())
    })
}

impl MinMaxScaler {
    fn scaled(&self, number: f64, (least, greatest): (f64, f64)) -> f64 {
        if least >= greatest {
            return self.min;
        }
        (number - least) / (greatest - least) * (self.max - self.min) + self.min
    }
}

/// The extremes of an empty frame.
const NO_EXTREMES: (f64, f64) = (f64::INFINITY, f64::NEG_INFINITY);

/// The numbers of a partition.
struct Numbers(Vec<Option<f64>>);

impl Fold for &Numbers {
    /// The minimum and the maximum.
    type State = (f64, f64);

    fn single(&self, at: usize) -> Result<(f64, f64)> {
        Ok(self.0.get(at).copied().flatten().map_or(NO_EXTREMES, |number| (number, number)))
    }

    fn merge(&self, earlier: &(f64, f64), later: &(f64, f64)) -> Result<(f64, f64)> {
        Ok((earlier.0.min(later.0), earlier.1.max(later.1)))
    }
}

impl Function for MinMaxScaler {
    /// Computes the values. Errors: TypeMismatch if the document's own value is not a number.
    fn compute(&self, partition: &Partition<'_>, interrupts: &mut InterruptCheck) -> Result<Vec<ValueBuf>> {
        let values = partition.values(&self.input)?;
        let number = |value: &Option<ValueBuf>| Some(value.as_ref()?.view().as_number()?.to_f64());
        let numbers = Numbers(values.iter().map(number).collect());
        let mut sliding = Sliding::new(&numbers);
        let mut results = Vec::with_capacity(values.len());
        for (frame, number) in self.bounds.frames(partition)?.into_iter().zip(&numbers.0) {
            interrupts.check()?;
            let Some(number) = number else {
                bail!(TypeMismatch, "$minMaxScaler requires its input to be a number in every document");
            };
            let extremes = sliding.slide(&frame, interrupts)?.unwrap_or(NO_EXTREMES);
            results.push(Value::Double(self.scaled(*number, extremes)).to_owned());
        }
        Ok(results)
    }
}
