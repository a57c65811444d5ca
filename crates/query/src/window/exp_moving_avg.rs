//! `$expMovingAvg`: the exponential moving average.
//!
//! ```text
//! {$expMovingAvg: {input: <expression>, N: <integer>}}        alpha is 2 / (N + 1)
//! {$expMovingAvg: {input: <expression>, alpha: <number>}}
//! ```

use super::{Function, FunctionSpec, Partition};
use crate::Expression;
use crate::interrupt_check::InterruptCheck;
use base::bson::{Decimal128, Number, Value, ValueBuf};
use base::{Result, bail, err};

/// A parsed `$expMovingAvg` with its smoothing factor.
struct ExpMovingAvg {
    input: Expression,
    alpha: Decimal128,
}

/// Parses the function. Errors: FailedToParse for bad and missing arguments.
pub(super) fn parse(given: &FunctionSpec<'_>) -> Result<Box<dyn Function>> {
    let FunctionSpec { function, spec, sort_by, context } = *given;
    let Some(arguments) = function.value().as_document().filter(|_| spec.iter().count() == 1) else {
        bail!(FailedToParse, "$expMovingAvg must have exactly one argument that is an object");
    };
    let bad = || {
        err!(
            FailedToParse,
            "$expMovingAvg sub object must have exactly two fields: An 'input' field, and either an 'N' field or an \
             'alpha' field"
        )
    };
    let input = arguments.get("input").filter(|_| arguments.iter().count() == 2).ok_or_else(bad)?;
    if sort_by.is_none() {
        bail!(FailedToParse, "$expMovingAvg requires an explicit 'sortBy'");
    }
    let input = Expression::parse(input, context)?;
    let alpha = match (arguments.get("N"), arguments.get("alpha")) {
        (Some(count), _) => alpha_of_count(count)?,
        (None, Some(alpha)) => check_alpha(alpha)?,
        (None, None) => bail!(FailedToParse, "Got unrecognized field in $expMovingAvg{}", bad().message()),
    };
    Ok(Box::new(ExpMovingAvg { input, alpha }))
}

fn alpha_of_count(value: Value<'_>) -> Result<Decimal128> {
    let Some(number) = value.as_number() else {
        bail!(FailedToParse, "'N' field must be an integer, but found type {}", value.kind().alias());
    };
    let Some(count) = number.to_i64_exact() else {
        bail!(
            FailedToParse,
            "'N' field must be an integer, but found  N: {value}. To use a non-integer, use the 'alpha' argument \
             instead"
        );
    };
    if count <= 0 {
        bail!(FailedToParse, "'N' must be greater than zero. Got {count}");
    }
    let one = Decimal128::from_i64(1);
    Ok(Decimal128::from_i64(2).divided_by(Decimal128::from_i64(count).plus(one)))
}

fn check_alpha(value: Value<'_>) -> Result<Decimal128> {
    let Some(alpha) = value.as_number() else { bail!(FailedToParse, "'alpha' must be a number") };
    if alpha.to_f64() <= 0.0 || alpha.to_f64() >= 1.0 || alpha.is_nan() {
        bail!(FailedToParse, "'alpha' must be between 0 and 1 (exclusive), found alpha: {value}");
    }
    Ok(alpha.to_decimal())
}

impl Function for ExpMovingAvg {
    /// Computes with decimals. The results are doubles until the input has a decimal, as in MongoDB.
    fn compute(&self, partition: &Partition<'_>, _interrupts: &mut InterruptCheck) -> Result<Vec<ValueBuf>> {
        let rest = Decimal128::from_i64(1).minus(self.alpha);
        let (mut mean, mut has_decimal): (Option<Decimal128>, bool) = (None, false);
        let mut results = Vec::with_capacity(partition.len());
        for value in partition.values(&self.input)? {
            if let Some(number) = value.as_ref().and_then(|value| value.view().as_number()) {
                has_decimal |= number.is_decimal();
                let number = number.to_decimal();
                mean = Some(match mean {
                    Some(mean) => number.times(self.alpha).plus(mean.times(rest)),
                    None => number,
                });
            }
            results.push(match mean {
                None => ValueBuf::null(),
                Some(mean) if has_decimal => Value::Decimal128(mean).to_owned(),
                Some(mean) => Value::from(Number::Double(mean.to_f64())).to_owned(),
            });
        }
        Ok(results)
    }
}
