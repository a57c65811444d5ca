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
use crate::expression::quotient;
use crate::interrupt_check::InterruptCheck;
use crate::{Context, Expression};
use base::bson::{Element, Number, Value, ValueBuf};
use base::{Error, ErrorCode, Result, bail, err};
use std::cmp::Ordering;

/// A parsed `$minMaxScaler` with the range of its results.
struct MinMaxScaler {
    input: Expression,
    min: Number,
    max: Number,
    bounds: Bounds,
}

/// Parses the function.
///
/// Errors: FailedToParse for bad arguments, or for a window without its document. 40414, 40415 and TypeMismatch for
/// missing and unknown fields and fields of a wrong type.
pub(super) fn parse(given: &FunctionSpec<'_>) -> Result<Box<dyn Function>> {
    let FunctionSpec { function, spec, sort_by, context } = *given;
    if let Some(other) = spec.iter().find(|field| !matches!(field.name(), "$minMaxScaler" | "window")) {
        return Err(Error::unknown_field(format_args!("root.{}", other.name())));
    }
    if let Some(window) = spec.find("window").filter(|window| window.value().as_document().is_none()) {
        return Err(Error::wrong_type("root.window", window.kind(), "object"));
    }
    let Value::Document(arguments) = function.value() else {
        return Err(Error::wrong_type("root.$minMaxScaler", function.kind(), "object"));
    };
    if let Some(other) = arguments.iter().find(|field| !matches!(field.name(), "input" | "min" | "max")) {
        return Err(Error::unknown_field(format_args!("root.$minMaxScaler.{}", other.name())));
    }
    let Some(input) = arguments.find("input") else {
        return Err(Error::missing_field("root.$minMaxScaler.input"));
    };
    let bounds = bounds_of(spec, sort_by, context)?;
    check_bounds(&bounds)?;
    let input = Expression::parse(input.value(), context)?;
    let (min, max) = match (arguments.find("min"), arguments.find("max")) {
        (None, None) => (Number::Int32(0), Number::Int32(1)),
        (Some(min), Some(max)) => (limit(&min, context)?, limit(&max, context)?),
        _ => bail!(
            FailedToParse,
            "Only one of 'min' and 'max' were specified as an argument to $minMaxScaler. Neither or both must be specified"
        ),
    };
    if min.compare(max) != Ordering::Less {
        bail!(FailedToParse, "the 'max' must be strictly greater than 'min', as arguments to $minMaxScaler");
    }
    Ok(Box::new(MinMaxScaler { input, min, max, bounds }))
}

/// Checks that each frame has its own document.
fn check_bounds(bounds: &Bounds) -> Result<()> {
    let (lower, upper) = bounds.offsets();
    for (which, relation, offset) in [
        ("Lower", "greater", lower.filter(|offset| *offset > 0.0)),
        ("Upper", "less", upper.filter(|offset| *offset < 0.0)),
    ] {
        if let Some(offset) = offset {
            bail!(
                FailedToParse,
                "{which} specified bound cannot be {relation} than 0 (the current doc), as $minMaxScaler must ensure \
                 that the current document being processed is always within the configured window. {which} specified \
                 bound = {offset:.6}"
            );
        }
    }
    Ok(())
}

fn limit(argument: &Element<'_>, context: &Context) -> Result<Number> {
    let name = argument.name();
    let expression = Expression::parse(argument.value(), context)?;
    let Some(constant) = expression.constant() else {
        bail!(FailedToParse, "'{name}' argument to $minMaxScaler must be a constant");
    };
    let number = constant.as_number();
    number.ok_or_else(|| err!(FailedToParse, "'{name}' argument to $minMaxScaler must be a numeric type"))
}

impl MinMaxScaler {
    fn scaled(&self, number: Number, (least, greatest): (Number, Number)) -> Result<Number> {
        if least.compare(greatest) == Ordering::Equal {
            return Ok(self.min);
        }
        let fraction = quotient(Value::from(number.minus(least)), Value::from(greatest.minus(least)))?;
        Ok(fraction.times(self.max.minus(self.min)).plus(self.min))
    }
}

/// The values of a partition.
struct Inputs {
    values: Vec<Option<ValueBuf>>,
    /// The error of a value that is not a number. MongoDB has one for each of its algorithms.
    code: i32,
}

impl Inputs {
    /// Errors: the code, unless the value is a number.
    fn number(&self, at: usize) -> Result<Number> {
        let value = self.values.get(at).and_then(Option::as_ref).map(ValueBuf::view);
        value.and_then(|value| value.as_number()).ok_or_else(|| {
            let found = value.map_or("missing", |value| value.kind().alias());
            let code = ErrorCode::Location(self.code);
            Error::new(
                code,
                format!("'input' argument to $minMaxScaler must evaluate to a numeric type, got: {found}"),
            )
        })
    }
}

impl Fold for &Inputs {
    /// The minimum and the maximum.
    type State = (Number, Number);

    fn single(&self, at: usize) -> Result<(Number, Number)> {
        self.number(at).map(|number| (number, number))
    }

    fn merge(&self, earlier: &(Number, Number), later: &(Number, Number)) -> Result<(Number, Number)> {
        let least = if later.0.compare(earlier.0) == Ordering::Less { later.0 } else { earlier.0 };
        let greatest = if later.1.compare(earlier.1) == Ordering::Greater { later.1 } else { earlier.1 };
        Ok((least, greatest))
    }
}

impl Function for MinMaxScaler {
    /// Computes the values. Errors: 10487000, 10487001 or 10487004 for an input that is not a number.
    fn compute(&self, partition: &Partition<'_>, interrupts: &mut InterruptCheck) -> Result<Vec<ValueBuf>> {
        let code = match &self.bounds {
            bounds if bounds.has_lower_bound() => 10487000,
            Bounds::Documents(..) => 10487001,
            Bounds::Range { .. } => 10487004,
        };
        let inputs = Inputs { values: partition.values(&self.input)?, code };
        let mut sliding = Sliding::new(&inputs);
        let mut results = Vec::with_capacity(partition.len());
        for (at, frame) in self.bounds.frames(partition)?.into_iter().enumerate() {
            interrupts.check()?;
            let number = inputs.number(at)?;
            let extremes = sliding.slide(&frame, interrupts)?.unwrap_or((number, number));
            results.push(Value::from(self.scaled(number, extremes)?).to_owned());
        }
        Ok(results)
    }
}
