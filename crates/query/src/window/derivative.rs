//! `$derivative`: the rate of change from a frame's first document to its last.
//! `$integral`: the area below a value along the sort field (trapezoidal rule).
//!
//! ```text
//! {$derivative: {input: <expression>, unit: <string>}, window: <window>}
//! {$integral: {input: <expression>, unit: <string>}, window: <window>}
//! ```
//!
//! The unit, of constant length, is required if the sort field is a date. `$derivative` requires a window.

use super::frame::{Bounds, bounds_of, window_of};
use super::sliding::{Fold, Sliding};
use super::{Function, FunctionSpec, Partition, SortBy, Unit};
use crate::interrupt_check::InterruptCheck;
use crate::{Context, Expression};
use base::bson::{Element, Number, Path, Value, ValueBuf};
use base::{Result, bail, err};

/// A parsed `$derivative`.
struct Derivative {
    rate: Rate,
    bounds: Bounds,
}

/// Common arguments of `$derivative` and `$integral`: a value, along the sort field.
pub(super) struct Rate {
    pub(super) name: &'static str,
    pub(super) input: Expression,
    pub(super) path: Path,
    /// Milliseconds of the unit, if the sort field is a date.
    pub(super) unit: Option<i64>,
}

/// Parses the function. Errors: FailedToParse for bad arguments or a missing window.
pub(super) fn parse_derivative(given: &FunctionSpec<'_>) -> Result<Box<dyn Function>> {
    let FunctionSpec { function, spec, sort_by, context } = *given;
    let rate = Rate::parse("$derivative", function, sort_by, context)?;
    let Some(window) = window_of(spec, true)? else {
        bail!(FailedToParse, "$derivative requires explicit window bounds");
    };
    Ok(Box::new(Derivative { rate, bounds: Bounds::parse(window, sort_by)? }))
}

impl Rate {
    /// Parses the common arguments. Errors: FailedToParse for bad arguments, including a unit of varying length.
    pub(super) fn parse(
        name: &'static str,
        function: &Element<'_>,
        sort_by: Option<&SortBy>,
        context: &Context,
    ) -> Result<Rate> {
        let Value::Document(arguments) = function.value() else {
            bail!(FailedToParse, "{name} expects an object, but got {}", function.value());
        };
        let (mut input, mut unit) = (None, None);
        for argument in arguments {
            match argument.name() {
                "input" => input = Some(Expression::parse(argument.value(), context)?),
                "unit" => unit = Some(parse_unit(name, argument.value())?),
                other => bail!(FailedToParse, "{name} got unexpected argument: {other}"),
            }
        }
        let input = input.ok_or_else(|| err!(FailedToParse, "{name} requires an 'input' expression"))?;
        let Some(path) = sort_by.and_then(SortBy::single_ascending) else {
            bail!(FailedToParse, "{name} requires a sortBy with exactly one, ascending, field");
        };
        Ok(Rate { name, input, path: path.clone(), unit })
    }

    /// Returns the values of the sort field, in units.
    ///
    /// Errors: 5624900 to 5624902 for a value that is not a date or number, as the unit requires.
    pub(super) fn x_values(&self, partition: &Partition<'_>) -> Result<Vec<Number>> {
        let x_value = |value: &ValueBuf| match (value.view(), self.unit) {
            (Value::DateTime(date), Some(unit)) => Ok(in_units(date, unit)),
            (other, Some(_)) => Err(err!(
                5624901,
                "{} with 'unit' expects the sortBy field to be a Date, but found {}",
                self.name,
                other.kind().alias()
            )),
            (Value::DateTime(_), None) => {
                Err(err!(5624900, "{} where the sortBy is a Date requires a 'unit'", self.name))
            }
            (other, None) => other.as_number().ok_or_else(|| {
                err!(
                    5624902,
                    "{} expects the sortBy field to be numeric, but found {}",
                    self.name,
                    other.kind().alias()
                )
            }),
        };
        partition.sort_values(&self.path)?.iter().map(x_value).collect()
    }

    /// Returns the numbers of the input; `None` for null and missing.
    ///
    /// Errors: 5624903 for a value that is not a number.
    pub(super) fn y_values(&self, partition: &Partition<'_>) -> Result<Vec<Option<Number>>> {
        let number = |value: &Option<ValueBuf>| match value.as_ref().map(ValueBuf::view) {
            None | Some(Value::Null | Value::Undefined) => Ok(None),
            Some(Value::DateTime(date)) => Ok(Some(Number::Int64(date))),
            Some(other) => other.as_number().map(Some).ok_or_else(|| {
                err!(5624903, "{} expects numeric input, but found {}", self.name, other.kind().alias())
            }),
        };
        partition.values(&self.input)?.iter().map(number).collect()
    }
}

fn in_units(date: i64, unit: i64) -> Number {
    if date % unit == 0 { Number::Int64(date / unit) } else { Number::Double(date as f64 / unit as f64) }
}

fn parse_unit(name: &str, value: Value<'_>) -> Result<i64> {
    let Value::String(unit) = value else {
        bail!(FailedToParse, "{name} unit must be a string, but found {value}");
    };
    Unit::parse(unit)?.milliseconds().ok_or_else(|| {
        err!(5490710, "unit must be 'week' or smaller, because longer units have a variable length: '{unit}'")
    })
}

/// Returns the quotient: a decimal if either operand is a decimal, else a double.
pub(super) fn divide(a: Number, b: Number) -> Number {
    if a.is_decimal() || b.is_decimal() {
        return Number::Decimal128(a.to_decimal().divided_by(b.to_decimal()));
    }
    Number::Double(a.to_f64() / b.to_f64())
}

impl Function for Derivative {
    fn compute(&self, partition: &Partition<'_>, interrupts: &mut InterruptCheck) -> Result<Vec<ValueBuf>> {
        let (x_values, y_values) = (self.rate.x_values(partition)?, self.rate.y_values(partition)?);
        let mut results = Vec::with_capacity(partition.len());
        for frame in self.bounds.frames(partition)? {
            interrupts.check()?;
            let last = frame.end.wrapping_sub(1);
            let ends = (
                x_values.get(frame.start),
                x_values.get(last),
                y_values.get(frame.start),
                y_values.get(last),
            );
            let (Some(x0), Some(x1), Some(Some(y0)), Some(Some(y1))) = ends else {
                results.push(ValueBuf::null());
                continue;
            };
            let run = x1.minus(*x0);
            results.push(if frame.len() < 2 || run.is_zero() {
                ValueBuf::null()
            } else {
                Value::from(divide(y1.minus(*y0), run)).to_owned()
            });
        }
        Ok(results)
    }
}

/// A parsed `$integral`.
struct Integral {
    rate: Rate,
    bounds: Bounds,
}

/// Parses the function. Errors: FailedToParse for bad arguments.
pub(super) fn parse_integral(given: &FunctionSpec<'_>) -> Result<Box<dyn Function>> {
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
