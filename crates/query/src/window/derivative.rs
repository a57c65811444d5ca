//! `$derivative`: the rate of change from a frame's first document to its last.
//! `$integral`: the area below a value along the sort field (trapezoidal rule).
//!
//! ```text
//! {$derivative: {input: <expression>, unit: <string>}, window: <window>}
//! {$integral: {input: <expression>, unit: <string>}, window: <window>}
//! ```
//!
//! The unit, of constant length, is required if the sort field is a date. `$derivative` requires a window.

use super::frame::{Bounds, window_of};
use super::sliding::{Fold, Sliding};
use super::{Function, FunctionSpec, Partition};
use crate::Expression;
use crate::accumulator_state::Total;
use crate::expression::Unit;
use crate::expression::{difference, quotient};
use crate::interrupt_check::InterruptCheck;
use base::bson::{Element, Number, Path, Type, Value, ValueBuf};
use base::{Result, bail, err};

/// The common arguments of both functions: a value, along the sort field.
struct Rate {
    input: Expression,
    path: Path,
    /// Milliseconds of the unit, if the sort field is a date.
    unit: Option<i64>,
    /// The given window.
    bounds: Option<Bounds>,
}

impl Rate {
    /// Parses the arguments. Errors: FailedToParse for bad arguments, 5490710 for a unit of varying length.
    fn parse(given: &FunctionSpec<'_>) -> Result<Rate> {
        let FunctionSpec { function, spec, sort_by, context } = *given;
        let name = function.name();
        let Some(sort_by) = sort_by else { bail!(FailedToParse, "{name} requires a sortBy") };
        if sort_by.pattern.len() != 1 {
            bail!(FailedToParse, "{name} requires a non-compound sortBy");
        }
        let Some(path) = sort_by.single() else {
            bail!(FailedToParse, "{name} requires a non-expression sortBy");
        };
        let window = window_of(spec, true)?;
        let bounds = window.map(|window| Bounds::parse(window, Some(sort_by), context)).transpose()?;
        let Value::Document(arguments) = function.value() else {
            bail!(
                FailedToParse,
                "{name} expects an object, but got a {}: {function}",
                function.kind().alias()
            );
        };
        let (mut input, mut unit) = (None, None);
        for argument in arguments {
            match argument.name() {
                "input" => input = Some(Expression::parse(argument.value(), context)?),
                "unit" => unit = Some(parse_unit(&argument)?),
                other => bail!(FailedToParse, "{name} got unexpected argument: {other}"),
            }
        }
        let input = input.ok_or_else(|| err!(FailedToParse, "{name} requires an 'input' expression"))?;
        Ok(Rate { input, path: path.clone(), unit, bounds })
    }
}

fn parse_unit(argument: &Element<'_>) -> Result<i64> {
    let Value::String(unit) = argument.value() else {
        bail!(FailedToParse, "unit' must be a string, but got {}", argument.kind().alias());
    };
    Unit::parse(unit)?.milliseconds().ok_or_else(|| err!(5490710, "unit must be 'week' or smaller"))
}

/// A parsed `$derivative`.
struct Derivative {
    rate: Rate,
    bounds: Bounds,
}

/// Parses the function. Errors: FailedToParse for bad arguments or a missing window.
pub(super) fn parse_derivative(given: &FunctionSpec<'_>) -> Result<Box<dyn Function>> {
    let rate = Rate::parse(given)?;
    let Some(bounds) = rate.bounds.clone() else {
        bail!(FailedToParse, "$derivative requires explicit window bounds");
    };
    Ok(Box::new(Derivative { rate, bounds }))
}

impl Derivative {
    /// Returns the slope between two documents, given as sort value and input; null for equal sort values.
    ///
    /// Errors: 5624900 to 5624902 for a sort value that is not a date or number, as the unit requires. 5624903 for a
    /// null or missing input, TypeMismatch for one of another type.
    fn slope(&self, from: (Value<'_>, Value<'_>), to: (Value<'_>, Value<'_>)) -> Result<ValueBuf> {
        let times = [from.0, to.0];
        let is_date = |time: &Value<'_>| time.kind() == Type::DateTime;
        if self.rate.unit.is_some() {
            if !times.iter().all(is_date) {
                bail!(5624900, "$derivative with 'unit' expects the sortBy field to be a Date");
            }
        } else if times.iter().any(is_date) {
            bail!(5624901, "$derivative where the sortBy is a Date requires an 'unit'");
        } else if times.iter().any(|time| time.as_number().is_none()) {
            bail!(5624902, "$derivative (with no 'unit') expects the sortBy field to be numeric");
        }
        let run = difference(to.0, from.0)?;
        if from.1.is_nullish() || to.1.is_nullish() {
            bail!(5624903, "$derivative input must not be null or missing");
        }
        let rise = difference(to.1, from.1)?;
        if rise.as_number().is_some() && run.as_number().is_some_and(Number::is_zero) {
            return Ok(ValueBuf::null());
        }
        // Dates are milliseconds. MongoDB scales the quotient, which rounds twice.
        let slope = quotient(rise, run)?;
        Ok(Value::from(self.rate.unit.map_or(slope, |unit| slope.times(Number::Int64(unit)))).to_owned())
    }
}

impl Function for Derivative {
    fn compute(&self, partition: &Partition<'_>, interrupts: &mut InterruptCheck) -> Result<Vec<ValueBuf>> {
        let times = partition.sort_values(&self.rate.path)?;
        let inputs = partition.values(&self.rate.input)?;
        let document = |at: usize| {
            let input = inputs.get(at)?.as_ref().map_or(Value::Null, ValueBuf::view);
            Some((times.get(at)?.view(), input))
        };
        let mut results = Vec::with_capacity(partition.len());
        for frame in self.bounds.frames(partition)? {
            interrupts.check()?;
            let ends = frame.clone().next().zip(frame.last());
            results.push(match ends.and_then(|(first, last)| document(first).zip(document(last))) {
                Some((from, to)) => self.slope(from, to)?,
                None => ValueBuf::null(),
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
    let rate = Rate::parse(given)?;
    let bounds = rate.bounds.clone().unwrap_or(Bounds::ALL);
    Ok(Box::new(Integral { rate, bounds }))
}

/// The sort value and the number of a document.
type Point = (Number, Number);

/// The area below a run of documents.
#[derive(Clone)]
struct Area {
    first: Point,
    last: Point,
    area: Total,
    has_nan: bool,
}

/// The documents of a partition.
struct Points<'a> {
    times: &'a [ValueBuf],
    inputs: &'a [Option<ValueBuf>],
    needs_dates: bool,
}

impl Fold for &Points<'_> {
    type State = Option<Area>;

    /// Errors: 5423900 unless the sort value is a number or date and the input a number, 5423901 and 5423902 for a sort
    /// value of the type that the unit does not allow.
    fn single(&self, at: usize) -> Result<Option<Area>> {
        let Some((time, input)) = self.times.get(at).zip(self.inputs.get(at)) else { return Ok(None) };
        let (time, is_date) = match time.view() {
            Value::DateTime(date) => (Some(Number::Int64(date)), true),
            other => (other.as_number(), false),
        };
        let input = input.as_ref().and_then(|input| input.view().as_number());
        let Some(point) = time.zip(input) else {
            bail!(
                5423900,
                "The input value of $integral window function must be a vector of 2 value, the first value must be \
                 numeric or date type and the second must be numeric."
            );
        };
        if self.needs_dates && !is_date {
            bail!(5423901, "$integral with 'unit' expects the sortBy field to be a Date");
        }
        if !self.needs_dates && is_date {
            bail!(5423902, "$integral (with no 'unit') expects the sortBy field to be numeric");
        }
        let has_nan = point.0.is_nan() || point.1.is_nan();
        Ok(Some(Area { first: point, last: point, area: Total::default(), has_nan }))
    }

    fn merge(&self, earlier: &Option<Area>, later: &Option<Area>) -> Result<Option<Area>> {
        let (Some(a), Some(b)) = (earlier, later) else {
            return Ok(earlier.as_ref().or(later.as_ref()).cloned());
        };
        let mut area = a.area.clone();
        area.add(trapezoid(a.last, b.first)?);
        area.join(&b.area.to_bytes());
        Ok(Some(Area { first: a.first, last: b.last, area, has_nan: a.has_nan || b.has_nan }))
    }
}

impl Function for Integral {
    fn compute(&self, partition: &Partition<'_>, interrupts: &mut InterruptCheck) -> Result<Vec<ValueBuf>> {
        let times = partition.sort_values(&self.rate.path)?;
        let inputs = partition.values(&self.rate.input)?;
        let points = Points { times: &times, inputs: &inputs, needs_dates: self.rate.unit.is_some() };
        let mut sliding = Sliding::new(&points);
        let mut results = Vec::with_capacity(partition.len());
        for frame in self.bounds.frames(partition)? {
            interrupts.check()?;
            let Some(area) = sliding.slide(&frame, interrupts)?.flatten() else {
                results.push(ValueBuf::null());
                continue;
            };
            let sum = if area.has_nan { Number::Double(f64::NAN) } else { area.area.number() };
            let result = match self.rate.unit {
                Some(unit) if !area.has_nan => quotient(Value::from(sum), Value::Int64(unit))?,
                _ => sum,
            };
            results.push(Value::from(result).to_owned());
        }
        Ok(results)
    }
}

fn trapezoid((x0, y0): Point, (x1, y1): Point) -> Result<Number> {
    let area = y1.plus(y0).times(x1.minus(x0));
    quotient(Value::from(area), Value::Double(2.0))
}
