//! `$expMovingAvg`: the exponential moving average.
//!
//! ```text
//! {$expMovingAvg: {input: <expression>, N: <integer>}}        alpha is 2 / (N + 1)
//! {$expMovingAvg: {input: <expression>, alpha: <number>}}
//! ```

use super::frame::window_of;
use super::{Function, FunctionSpec, Partition};
use crate::Expression;
use crate::interrupt_check::InterruptCheck;
use base::bson::{Decimal128, Number, Value, ValueBuf};
use base::{Result, bail, err};

/// A parsed `$expMovingAvg` with its smoothing factor.
struct ExpMovingAvg {
    input: Expression,
    alpha: Number,
}

/// Parses the function. Errors: FailedToParse for bad and missing arguments.
pub(super) fn parse(given: &FunctionSpec<'_>) -> Result<Box<dyn Function>> {
    let FunctionSpec { function, spec, sort_by, context } = *given;
    if spec.find("window").is_some() {
        bail!(FailedToParse, "$expMovingAvg does not accept a 'window' field");
    }
    window_of(spec, false)?;
    let Value::Document(arguments) = function.value() else {
        bail!(FailedToParse, "$expMovingAvg must have exactly one argument that is an object");
    };
    if sort_by.is_none() {
        bail!(FailedToParse, "$expMovingAvg requires an explicit 'sortBy'");
    }
    let mut input = None;
    for argument in arguments {
        match argument.name() {
            "input" => input = Some(Expression::parse(argument.value(), context)?),
            "N" | "alpha" => {}
            other => bail!(FailedToParse, "Got unrecognized field in $expMovingAvg: {other}"),
        }
    }
    let alpha = match (arguments.get("N"), arguments.get("alpha")) {
        (Some(count), None) => alpha_of_count(count)?,
        (None, Some(alpha)) => check_alpha(alpha)?,
        _ => {
            bail!(
                FailedToParse,
                "$expMovingAvg sub object must have exactly two fields: An 'input' field, and either an 'N' field or \
                 an 'alpha' field"
            );
        }
    };
    let input = input.ok_or_else(|| err!(FailedToParse, "$expMovingAvg requires an 'input' field"))?;
    Ok(Box::new(ExpMovingAvg { input, alpha }))
}

fn alpha_of_count(value: Value<'_>) -> Result<Number> {
    match value.as_i64() {
        Some(count) if count > 0 => Ok(Number::Double(2.0 / (count as f64 + 1.0))),
        _ => Err(err!(FailedToParse, "'N' field must be an integer greater than zero, but found {value}")),
    }
}

fn check_alpha(value: Value<'_>) -> Result<Number> {
    match value.as_number() {
        Some(alpha) if alpha.to_f64() > 0.0 && alpha.to_f64() < 1.0 => Ok(alpha),
        _ => Err(err!(FailedToParse, "'alpha' must be between 0 and 1 (exclusive), found alpha: {value}")),
    }
}

impl Function for ExpMovingAvg {
    fn compute(&self, partition: &Partition<'_>, _interrupts: &mut InterruptCheck) -> Result<Vec<ValueBuf>> {
        let rest = Number::Double(1.0).minus(self.alpha);
        let mut mean: Option<Number> = None;
        let mut results = Vec::with_capacity(partition.len());
        for value in partition.values(&self.input)? {
            if let Some(number) = value.as_ref().and_then(|value| value.view().as_number()) {
                mean = Some(match mean {
                    Some(mean) => number.times(self.alpha).plus(mean.times(rest)),
                    None => number,
                });
            }
            results.push(mean.map_or_else(ValueBuf::null, |mean| Value::from(in_double(mean)).to_owned()));
        }
        Ok(results)
    }
}

/// Converts integers to doubles, as for all means.
fn in_double(number: Number) -> Number {
    match number {
        Number::Decimal128(decimal) => Number::Decimal128(decimal.plus(Decimal128::from_i64(0))),
        other => Number::Double(other.to_f64()),
    }
}
