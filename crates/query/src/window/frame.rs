//! Frames: the range of documents around each document for a window function.
//!
//! ```text
//! window: {documents: [<lower>, <upper>]}                 positions, relative to the document
//! window: {range: [<lower>, <upper>], unit: <string>}     sort values, relative to the document's; the unit for dates
//! ```
//!
//! A bound is a constant number, `"current"` (this document alone) or `"unbounded"`.

use super::{Partition, SortBy};
use crate::expression::Unit;
use crate::{Context, Expression};
use base::bson::{Array, Document, Number, Value, ValueBuf, compare};
use base::{Result, bail, err};
use std::cmp::Ordering;
use std::fmt::Display;
use std::ops::Range;

/// Parsed bounds of a window.
#[derive(Clone)]
pub(super) enum Bounds {
    /// Bounds by position, relative to the document.
    Documents(Bound<i64>, Bound<i64>),
    /// Bounds by sort value, relative to the document's value.
    Range { lower: Bound<ValueBuf>, upper: Bound<ValueBuf>, unit: Option<Unit> },
}

/// One end of a window.
#[derive(Clone)]
pub(super) enum Bound<T> {
    Unbounded,
    Current,
    Offset(T),
}

impl Bounds {
    /// Returns true unless all frames begin with their partition.
    pub(super) fn has_lower_bound(&self) -> bool {
        match self {
            Bounds::Documents(lower, _) => !matches!(lower, Bound::Unbounded),
            Bounds::Range { lower, .. } => !matches!(lower, Bound::Unbounded),
        }
    }

    /// Returns the ends that are numbers.
    pub(super) fn offsets(&self) -> (Option<f64>, Option<f64>) {
        fn number<T>(bound: &Bound<T>, number: impl Fn(&T) -> f64) -> Option<f64> {
            if let Bound::Offset(offset) = bound { Some(number(offset)) } else { None }
        }
        match self {
            Bounds::Documents(lower, upper) => {
                let position = |offset: &i64| *offset as f64;
                (number(lower, position), number(upper, position))
            }
            Bounds::Range { lower, upper, .. } => {
                let value =
                    |offset: &ValueBuf| offset.view().as_number().map_or(0.0, |offset| offset.to_f64());
                (number(lower, value), number(upper, value))
            }
        }
    }

    /// The whole partition.
    pub(super) const ALL: Bounds = Bounds::Documents(Bound::Unbounded, Bound::Unbounded);

    /// Parses `window`.
    ///
    /// Errors: FailedToParse for bad bounds, 5339900 for bounds in the wrong order. 5339901, 5339902, 8947400 and
    /// 8947401 for an unsuitable sort pattern.
    pub(super) fn parse(window: Value<'_>, sort_by: Option<&SortBy>, context: &Context) -> Result<Bounds> {
        let Value::Document(window) = window else {
            bail!(FailedToParse, "'window' field must be an object");
        };
        let fields = window.iter().count();
        match (window.get("documents"), window.get("range"), window.get("unit")) {
            (Some(_), Some(_), _) => {
                Err(err!(FailedToParse, "Window bounds can specify either 'documents' or 'unit', not both."))
            }
            (_, None, Some(_)) => {
                Err(err!(FailedToParse, "Window bounds can only specify 'unit' with range-based bounds."))
            }
            (None, None, None) if fields > 0 => Err(err!(
                FailedToParse,
                "'window' field can only contain 'documents' as the only argument or 'range' with an optional \
                 'unit' field"
            )),
            (None, None, None) => Ok(Bounds::ALL),
            (Some(_), ..) if fields > 1 => {
                Err(err!(FailedToParse, "'window' field that specifies documents cannot have other fields"))
            }
            (None, Some(_), Some(_)) if fields > 2 => Err(err!(
                FailedToParse,
                "'window' field that specifies unit cannot have other fields besides 'range'"
            )),
            (None, Some(_), None) if fields > 1 => Err(err!(
                FailedToParse,
                "'window' field that specifies range cannot have other fields besides 'unit'"
            )),
            (Some(documents), ..) => documents_bounds(pair("documents", documents)?, sort_by, context),
            (None, Some(range), unit) => range_bounds(pair("range", range)?, unit, sort_by, context),
        }
    }

    /// Returns the frame of each document of a partition.
    ///
    /// Errors: 5429513, 5429413 and 5429414 for a sort value that is not a date or number, as the unit requires.
    pub(super) fn frames(&self, partition: &Partition<'_>) -> Result<Vec<Range<usize>>> {
        match self {
            Bounds::Documents(lower, upper) => {
                let frame = |at: usize| {
                    let (start, end) = (position(lower, at, 0), position(upper, at, i64::MAX - 1));
                    let end = usize::try_from(end.saturating_add(1)).unwrap_or(0).min(partition.len());
                    usize::try_from(start).unwrap_or(0).min(end)..end
                };
                Ok((0..partition.len()).map(frame).collect())
            }
            Bounds::Range { lower, upper, unit } => range_frames(lower, upper, *unit, partition),
        }
    }
}

fn position(bound: &Bound<i64>, at: usize, unbounded: i64) -> i64 {
    let at = i64::try_from(at).unwrap_or(i64::MAX);
    match bound {
        Bound::Unbounded => unbounded,
        Bound::Current => at,
        Bound::Offset(offset) => at.saturating_add(*offset),
    }
}

fn pair<'a>(name: &str, bounds: Value<'a>) -> Result<(Value<'a>, Value<'a>)> {
    let bad = || err!(FailedToParse, "Window bounds must be a 2-element array: {name}: {bounds}");
    let array: Array<'_> = bounds.as_array().ok_or_else(bad)?;
    match (array.get(0), array.get(1), array.get(2)) {
        (Some(lower), Some(upper), None) => Ok((lower, upper)),
        _ => Err(bad()),
    }
}

/// Parses bounds by position. Errors: 5339901 without a sort pattern, 5339900 for a wrong order.
fn documents_bounds(
    (lower, upper): (Value<'_>, Value<'_>),
    sort_by: Option<&SortBy>,
    context: &Context,
) -> Result<Bounds> {
    let integer = |value: Value<'_>| {
        let integer = value.as_i64().filter(|value| i32::try_from(*value).is_ok());
        integer.ok_or_else(|| err!(FailedToParse, "Numeric document-based bounds must be an integer"))
    };
    let (lower, upper) = (bound(lower, context, integer)?, bound(upper, context, integer)?);
    if position(&lower, 0, i64::MIN) > position(&upper, 0, i64::MAX) {
        let shown = |bound: &Bound<i64>| position(bound, 0, 0);
        return Err(wrong_order(shown(&lower), shown(&upper)));
    }
    let all = matches!((&lower, &upper), (Bound::Unbounded, Bound::Unbounded));
    if sort_by.is_none() && !all {
        bail!(5339901, "Document-based bounds require a sortBy");
    }
    Ok(Bounds::Documents(lower, upper))
}

fn wrong_order(lower: impl Display, upper: impl Display) -> base::Error {
    err!(5339900, "Lower bound must not exceed upper bound: [{lower}, {upper}]")
}

/// Parses `"unbounded"`, `"current"`, or a constant expression.
fn bound<T>(
    value: Value<'_>,
    context: &Context,
    offset: impl Fn(Value<'_>) -> Result<T>,
) -> Result<Bound<T>> {
    match value {
        Value::String("unbounded") => Ok(Bound::Unbounded),
        Value::String("current") => Ok(Bound::Current),
        Value::String(_) => {
            Err(err!(FailedToParse, "Window bounds must be 'unbounded', 'current', or a number."))
        }
        other => {
            let expression = Expression::parse(other, context)?;
            let Some(constant) = expression.constant() else {
                bail!(FailedToParse, "Window bounds expression must be a constant.");
            };
            offset(constant).map(Bound::Offset)
        }
    }
}

/// Parses bounds by sort value.
///
/// Errors: 5339902, 8947400 and 8947401 unless sorted by one ascending field, 5339900 for a wrong order.
fn range_bounds(
    (lower, upper): (Value<'_>, Value<'_>),
    unit: Option<Value<'_>>,
    sort_by: Option<&SortBy>,
    context: &Context,
) -> Result<Bounds> {
    let unit = match unit {
        None => None,
        Some(Value::String(name)) => Some(name),
        Some(_) => bail!(FailedToParse, "'unit' must be a string"),
    };
    let number = |value: Value<'_>| match value.as_number() {
        _ if unit.is_some() && value.as_i64().is_none() => {
            Err(err!(FailedToParse, "With 'unit', range-based bounds must be an integer"))
        }
        None => Err(err!(FailedToParse, "Range-based bounds expression must be a number")),
        Some(_) => Ok(value.to_owned()),
    };
    let (lower, upper) = (bound(lower, context, number)?, bound(upper, context, number)?);
    let zero = Value::Int32(0).to_owned();
    let offset = |bound: &Bound<ValueBuf>| match bound {
        Bound::Unbounded => None,
        Bound::Current => Some(zero.clone()),
        Bound::Offset(offset) => Some(offset.clone()),
    };
    if let (Some(lower), Some(upper)) = (offset(&lower), offset(&upper))
        && compare(lower.view(), upper.view()) == Ordering::Greater
    {
        return Err(wrong_order(lower.view(), upper.view()));
    }
    let unit = unit.map(Unit::parse).transpose()?;
    let Some(sort_by) = sort_by.filter(|sort_by| sort_by.pattern.len() == 1) else {
        bail!(5339902, "Range-based bounds require sortBy a single field");
    };
    if sort_by.single().is_none() {
        bail!(8947400, "Range-based bounds require a non-expression sortBy");
    }
    if sort_by.single_ascending().is_none() {
        bail!(8947401, "Range-based bounds require an ascending sortBy");
    }
    Ok(Bounds::Range { lower, upper, unit })
}

/// Finds the frames by binary search in the sorted values.
fn range_frames(
    lower: &Bound<ValueBuf>,
    upper: &Bound<ValueBuf>,
    unit: Option<Unit>,
    partition: &Partition<'_>,
) -> Result<Vec<Range<usize>>> {
    let Some(path) = partition.sort_by.and_then(SortBy::single_ascending) else { return Ok(Vec::new()) };
    let values = partition.sort_values(path)?;
    for value in &values {
        check_value(value.view(), unit)?;
    }
    let mut frames = Vec::with_capacity(values.len());
    for (at, value) in values.iter().enumerate() {
        let start = match lower {
            Bound::Unbounded => 0,
            Bound::Current => at,
            Bound::Offset(offset) => {
                let least = shifted(value.view(), offset.view(), unit);
                values.partition_point(|other| compare(other.view(), least.view()) == Ordering::Less)
            }
        };
        let end = match upper {
            Bound::Unbounded => values.len(),
            Bound::Current => at + 1,
            Bound::Offset(offset) => {
                let most = shifted(value.view(), offset.view(), unit);
                values.partition_point(|other| compare(other.view(), most.view()) != Ordering::Greater)
            }
        };
        frames.push(start.min(end)..end);
    }
    Ok(frames)
}

/// Checks the type of a sort value: a date with a unit, a number without. Errors: 5429513, 5429413 for a
/// date without a unit, 5429414.
fn check_value(value: Value<'_>, unit: Option<Unit>) -> Result<()> {
    let fits = if unit.is_some() { matches!(value, Value::DateTime(_)) } else { value.as_number().is_some() };
    if fits {
        return Ok(());
    }
    let found = value.kind().alias();
    match unit {
        Some(_) => {
            Err(err!(5429513, "Invalid range: Expected the sortBy field to be a Date, but it was {found}"))
        }
        None if matches!(value, Value::DateTime(_)) => Err(err!(
            5429413,
            "Invalid range: For windows that involve date or time ranges, a unit must be provided."
        )),
        None => {
            Err(err!(5429414, "Invalid range: Expected the sortBy field to be a number, but it was {found}"))
        }
    }
}

/// Returns the value at a distance.
fn shifted(value: Value<'_>, offset: Value<'_>, unit: Option<Unit>) -> ValueBuf {
    let shifted = match (value, unit) {
        (Value::DateTime(date), Some(unit)) => {
            let amount = offset.as_i64().unwrap_or(0);
            // No dates exist beyond the range.
            let end = if amount < 0 { i64::MIN } else { i64::MAX };
            Value::DateTime(unit.add(date, amount).unwrap_or(end))
        }
        _ => {
            let number = value.as_number().unwrap_or(Number::Int32(0));
            Value::from(number.plus(offset.as_number().unwrap_or(Number::Int32(0))))
        }
    };
    shifted.to_owned()
}

/// Parses the window of a specification; the whole partition by default.
///
/// Errors: as [`window_of`] and [`Bounds::parse`].
pub(super) fn bounds_of(spec: Document<'_>, sort_by: Option<&SortBy>, context: &Context) -> Result<Bounds> {
    window_of(spec, true)?.map_or(Ok(Bounds::ALL), |window| Bounds::parse(window, sort_by, context))
}

/// Returns the window of a specification. Errors: FailedToParse for a field other than the function and `window`.
pub(super) fn window_of<'a>(spec: Document<'a>, takes_window: bool) -> Result<Option<Value<'a>>> {
    for field in spec {
        let known = field.name().starts_with('$') || field.name() == "window" && takes_window;
        if !known {
            bail!(FailedToParse, "Window function found an unknown argument: {}", field.name());
        }
    }
    Ok(spec.get("window"))
}
