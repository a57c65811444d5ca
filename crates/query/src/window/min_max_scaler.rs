//! `$minMaxScaler`: a number's place between the least and the greatest of its frame.

use super::frame::{Bounds, window_of};
use super::{Function, Partition, SortBy};
use crate::tick::Tick;
use crate::{Context, Expression};
use base::bson::{Document, Element, Value, ValueBuf};
use base::{Result, err};

struct MinMaxScaler {
    input: Expression,
    min: f64,
    max: f64,
    bounds: Bounds,
}

/// Errors: FailedToParse and 40414 for bad and missing arguments.
pub(super) fn parse(
    function: &Element<'_>,
    spec: Document<'_>,
    sort_by: Option<&SortBy>,
    context: &Context,
) -> Result<Box<dyn Function>> {
    let Value::Document(arguments) = function.value() else {
        return Err(err!(FailedToParse, "$minMaxScaler expects an object, but got {}", function.value()));
    };
    let (mut input, mut min, mut max) = (None, None, None);
    for argument in arguments {
        match argument.name() {
            "input" => input = Some(Expression::parse(argument.value(), context)?),
            "min" => min = Some(limit(&argument, context)?),
            "max" => max = Some(limit(&argument, context)?),
            other => return Err(err!(FailedToParse, "$minMaxScaler got unexpected argument: {other}")),
        }
    }
    if min.is_some() != max.is_some() {
        return Err(err!(FailedToParse, "$minMaxScaler requires both 'min' and 'max', or neither"));
    }
    let (min, max) = (min.unwrap_or(0.0), max.unwrap_or(1.0));
    if min >= max {
        return Err(err!(FailedToParse, "$minMaxScaler requires 'max' to be strictly greater than 'min'"));
    }
    let bounds = match window_of(spec, true)? {
        Some(window) => Bounds::parse(window, sort_by)?,
        None => Bounds::ALL,
    };
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
    fn scaled(&self, number: f64, frame: &[Option<f64>]) -> f64 {
        let least = frame.iter().flatten().copied().fold(f64::INFINITY, f64::min);
        let greatest = frame.iter().flatten().copied().fold(f64::NEG_INFINITY, f64::max);
        if least >= greatest {
            return self.min;
        }
        (number - least) / (greatest - least) * (self.max - self.min) + self.min
    }
}

impl Function for MinMaxScaler {
    /// Errors: TypeMismatch where the document's own value is no number.
    fn compute(&self, partition: &Partition<'_>, tick: &mut Tick) -> Result<Vec<ValueBuf>> {
        let values = partition.values(&self.input)?;
        let number = |value: &Option<ValueBuf>| Some(value.as_ref()?.view().as_number()?.to_f64());
        let numbers: Vec<_> = values.iter().map(number).collect();
        let mut results = Vec::with_capacity(values.len());
        for (frame, number) in self.bounds.frames(partition)?.into_iter().zip(&numbers) {
            tick.check()?;
            let Some(number) = number else {
                return Err(err!(
                    TypeMismatch,
                    "$minMaxScaler requires its input to be a number in every document"
                ));
            };
            let frame = numbers.get(frame).unwrap_or_default();
            results.push(Value::Double(self.scaled(*number, frame)).to_owned());
        }
        Ok(results)
    }
}
