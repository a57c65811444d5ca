//! `$locf` and `$linearFill`: values for documents without a value.
//!
//! ```text
//! {$locf: <expression>}
//! {$linearFill: <expression>}
//! ```

use super::frame::window_of;
use super::{Function, FunctionSpec, Partition, SortBy};
use crate::Expression;
use crate::expression::quotient;
use crate::interrupt_check::InterruptCheck;
use base::bson::{Document, Number, Path, Type, Value, ValueBuf};
use base::{Result, bail, err};

/// A parsed `$locf`: the last observation carried forward.
struct Locf(Expression);

/// Parses `$locf`. Errors: FailedToParse for a window.
pub(super) fn parse_locf(given: &FunctionSpec<'_>) -> Result<Box<dyn Function>> {
    let FunctionSpec { function, spec, context, .. } = *given;
    check_no_window("$locf", spec)?;
    Ok(Box::new(Locf(Expression::parse(function.value(), context)?)))
}

fn check_no_window(name: &str, spec: Document<'_>) -> Result<()> {
    if spec.find("window").is_some() {
        bail!(FailedToParse, "'window' field is not allowed in {name}");
    }
    window_of(spec, false).map(drop)
}

fn present(value: &Option<ValueBuf>) -> Option<&ValueBuf> {
    value.as_ref().filter(|value| !value.view().is_nullish())
}

impl Function for Locf {
    fn compute(&self, partition: &Partition<'_>, _interrupts: &mut InterruptCheck) -> Result<Vec<ValueBuf>> {
        let mut last = ValueBuf::null();
        let mut results = Vec::with_capacity(partition.len());
        for value in partition.values(&self.0)? {
            if let Some(value) = present(&value) {
                last = value.clone();
            }
            results.push(last.clone());
        }
        Ok(results)
    }
}

/// A parsed `$linearFill`: linear interpolation along the sort field.
struct LinearFill {
    input: Expression,
    path: Path,
}

/// Parses `$linearFill`. Errors: 605001 unless sorted by one ascending field.
pub(super) fn parse_linear(given: &FunctionSpec<'_>) -> Result<Box<dyn Function>> {
    let FunctionSpec { function, spec, sort_by, context } = *given;
    check_no_window("$linearFill", spec)?;
    let Some(path) = sort_by.and_then(SortBy::single) else {
        bail!(
            605001,
            "$linearFill must be specified with a top level sortBy expression with exactly one element"
        );
    };
    Ok(Box::new(LinearFill { input: Expression::parse(function.value(), context)?, path: path.clone() }))
}

/// Returns the sort value as a number. Errors: TypeMismatch unless it is a number or a date.
fn x_value(value: Value<'_>) -> Result<Number> {
    match value {
        Value::DateTime(date) => Ok(Number::Int64(date)),
        other => other.as_number().ok_or_else(|| {
            err!(
                TypeMismatch,
                "Value of the sortBy field must be numeric or a date, but found {}",
                other.kind().alias()
            )
        }),
    }
}

/// Returns the value as a number. Errors: TypeMismatch for a value that is neither a number nor null.
fn number(value: &ValueBuf) -> Result<Number> {
    let value = value.view();
    let found = value.kind().alias();
    value
        .as_number()
        .ok_or_else(|| err!(TypeMismatch, "Value to be filled must be numeric or nullish, but found {found}"))
}

impl LinearFill {
    /// Interpolates linearly between two points at `x`.
    fn interpolate((x0, y0): (Number, Number), (x1, y1): (Number, Number), x: Number) -> Result<Number> {
        let slope = quotient(Value::from(y1.minus(y0)), Value::from(x1.minus(x0)))?;
        Ok(y0.plus(x.minus(x0).times(slope)))
    }
}

impl Function for LinearFill {
    fn compute(&self, partition: &Partition<'_>, interrupts: &mut InterruptCheck) -> Result<Vec<ValueBuf>> {
        let values = partition.values(&self.input)?;
        let positions = partition.sort_values(&self.path)?;
        let ties = partition.ties()?;
        let mut x_values = Vec::with_capacity(positions.len());
        let mut last: Option<Type> = None;
        for ((value, position), is_tie) in values.iter().zip(&positions).zip(ties) {
            present(value).map(number).transpose()?;
            x_values.push(x_value(position.view())?);
            if is_tie {
                bail!(6050106, "There can be no repeated values in the sort field");
            }
            let kind = position.view().kind();
            if let Some(last) = last.filter(|last| (*last == Type::DateTime) != (kind == Type::DateTime)) {
                bail!(
                    TypeMismatch,
                    "Conflicting sort value types, previously received type {}, but found {}",
                    last.alias(),
                    kind.alias()
                );
            }
            last = Some(kind);
        }
        let mut results = vec![ValueBuf::null(); values.len()];
        let mut before: Option<(usize, (Number, Number))> = None;
        for (at, (value, x)) in values.iter().zip(&x_values).enumerate() {
            interrupts.check()?;
            let Some(value) = present(value) else { continue };
            let point = (*x, number(value)?);
            if let Some((start, from)) = before {
                for (result, x) in results.iter_mut().zip(&x_values).take(at).skip(start + 1) {
                    *result = Value::from(LinearFill::interpolate(from, point, *x)?).to_owned();
                }
            }
            if let Some(result) = results.get_mut(at) {
                *result = value.clone();
            }
            before = Some((at, point));
        }
        Ok(results)
    }
}
