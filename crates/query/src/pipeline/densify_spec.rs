//! Specification of `$densify`, and its steps.
//!
//! ```text
//! {$densify: {
//!     field: <path>,
//!     partitionByFields: [<path>, …],         optional
//!     range: {
//!         step: <number>,
//!         unit: <string>,                     only for dates
//!         bounds: "full" | "partition" | [<lower>, <upper>],
//!     },
//! }}
//! ```

use crate::field_path::checked_path;
use crate::window::Unit;
use base::bson::{Array, Document, Element, Number, Path, Value, ValueBuf, compare};
use base::{Result, bail, err};
use std::cmp::Ordering;

/// A parsed `$densify`.
pub(super) struct Densify {
    pub(super) field: Path,
    pub(super) partition_by: Vec<Path>,
    pub(super) ends: DensifyBounds,
    step: Number,
    unit: Option<Unit>,
}

/// The range of the steps.
pub(super) enum DensifyBounds {
    /// From the least to the greatest value of all documents.
    Full,
    /// From the least to the greatest value of each partition.
    Partition,
    /// An explicit range; the upper end is exclusive.
    Explicit(ValueBuf, ValueBuf),
}

impl Densify {
    /// Parses the specification.
    ///
    /// Errors: FailedToParse, 40414, 40415 for invalid, missing and unknown options, 5733401 for an invalid step,
    /// 5733402 and 5733403 for invalid bounds, 8993000 for overlapping paths.
    pub(super) fn parse(spec: &Element<'_>) -> Result<Densify> {
        let Value::Document(options) = spec.value() else {
            let found = spec.kind().alias();
            bail!(FailedToParse, "the $densify stage specification must be an object, found {found}");
        };
        check_fields("$densify", options, &["field", "partitionByFields", "range"])?;
        let field = parse_field(required("$densify", options, "field")?)?;
        let partition_by = match options.get("partitionByFields") {
            None => Vec::new(),
            Some(Value::Array(fields)) => fields.iter().map(parse_field).collect::<Result<_>>()?,
            Some(other) => return Err(wrong_type("$densify.partitionByFields", other, "array")),
        };
        if partition_by.iter().any(|path| path.starts_with(&field) || field.starts_with(path)) {
            bail!(8993000, "BSON field '$densify.partitionByFields' contains the field that is densified");
        }
        let range = required("$densify", options, "range")?;
        let Value::Document(range) = range else {
            return Err(wrong_type("$densify.range", range, "object"));
        };
        check_fields("$densify.range", range, &["step", "bounds", "unit"])?;
        let unit = match range.get("unit") {
            None => None,
            Some(Value::String(unit)) => Some(Unit::parse(unit)?),
            Some(other) => return Err(wrong_type("$densify.range.unit", other, "string")),
        };
        let step = parse_step(required("$densify.range", range, "step")?, unit)?;
        let ends = parse_ends(required("$densify.range", range, "bounds")?, unit)?;
        if matches!(ends, DensifyBounds::Partition) && partition_by.is_empty() {
            bail!(
                5733408,
                "one may not specify the bounds as 'partition' without specifying a non-empty array of \
                 partitionByFields. You may have meant to specify 'full' bounds."
            );
        }
        Ok(Densify { field, partition_by, ends, step, unit })
    }

    /// Checks the type of a value. Errors: 5733201 and 6053600 if it does not match the steps.
    pub(super) fn check_value(&self, value: Value<'_>) -> Result<()> {
        match (value, self.unit) {
            (Value::DateTime(_), Some(_)) => Ok(()),
            (Value::DateTime(_), None) => Err(err!(
                6053600,
                "Encountered date densify value in collection when step does not have a date unit."
            )),
            (value, None) if value.as_number().is_some() => Ok(()),
            (value, Some(_)) if value.as_number().is_some() => Err(err!(
                6053600,
                "Encountered numeric densify value in collection when step has a date unit."
            )),
            _ => Err(err!(5733201, "Densify field type must be numeric or a date")),
        }
    }

    /// Returns the step with this number. Dates are counted from the first, which preserves the day of the month;
    /// numbers continue from the last. `None` beyond the range of dates.
    pub(super) fn step(&self, anchor: &ValueBuf, last: &ValueBuf, count: i64) -> Option<ValueBuf> {
        if let (Value::DateTime(anchor), Some(unit)) = (anchor.view(), self.unit) {
            let amount = self.step.to_i64_clamped().checked_mul(count)?;
            return Some(Value::DateTime(unit.add(anchor, amount)?).to_owned());
        }
        let next = last.view().as_number()?.plus(self.step);
        // A step below the number's precision would never end.
        (next.compare(last.view().as_number()?) == Ordering::Greater).then(|| Value::from(next).to_owned())
    }
}

fn check_fields(name: &str, document: Document<'_>, known: &[&str]) -> Result<()> {
    match document.iter().find(|field| !known.contains(&field.name())) {
        Some(field) => Err(err!(40415, "BSON field '{name}.{}' is an unknown field.", field.name())),
        None => Ok(()),
    }
}

fn required<'a>(name: &str, document: Document<'a>, field: &str) -> Result<Value<'a>> {
    document
        .get(field)
        .ok_or_else(|| err!(40414, "BSON field '{name}.{field}' is missing but a required field"))
}

fn wrong_type(name: &str, found: Value<'_>, expected: &str) -> base::Error {
    let found = found.kind().alias();
    err!(TypeMismatch, "BSON field '{name}' is the wrong type '{found}', expected type '{expected}'")
}

fn parse_field(value: Value<'_>) -> Result<Path> {
    let Value::String(text) = value else { return Err(wrong_type("$densify.field", value, "string")) };
    checked_path(text)
}

/// Parses the step: positive, and integral for dates. Errors: 5733401, 6586400.
fn parse_step(value: Value<'_>, unit: Option<Unit>) -> Result<Number> {
    let positive = value.as_number().filter(|number| number.compare(Number::Int32(0)) == Ordering::Greater);
    let Some(step) = positive.filter(|step| step.to_f64().is_finite()) else {
        bail!(5733401, "the step parameter in a range statement must be a strictly positive numeric value");
    };
    if unit.is_some() && step.to_i64_exact().is_none() {
        bail!(
            6586400,
            "The step parameter in a range statement must be a whole number when densifying a date range"
        );
    }
    Ok(step)
}

/// Parses the bounds: `full`, `partition` or an explicit range. Errors: 5733402 and 5733403.
fn parse_ends(value: Value<'_>, unit: Option<Unit>) -> Result<DensifyBounds> {
    match value {
        Value::String("full") => Ok(DensifyBounds::Full),
        Value::String("partition") => Ok(DensifyBounds::Partition),
        Value::Array(pair) => parse_pair(pair, unit),
        _ => Err(err!(
            5733402,
            "the bounds in a range statement must be the string 'full', 'partition', or an ascending array of two \
             numbers or two dates"
        )),
    }
}

/// Parses an explicit range of two ascending dates or numbers. Errors: 5733403.
fn parse_pair(pair: Array<'_>, unit: Option<Unit>) -> Result<DensifyBounds> {
    let bad = || {
        err!(
            5733403,
            "a bounding array in a range statement must be an ascending array of either two dates or two numbers"
        )
    };
    let (Some(lower), Some(upper), None) = (pair.get(0), pair.get(1), pair.get(2)) else { return Err(bad()) };
    let fits = |value: Value<'_>| match value {
        Value::DateTime(_) => unit.is_some(),
        other => unit.is_none() && other.as_number().is_some_and(|number| !number.is_nan()),
    };
    if !fits(lower) || !fits(upper) || compare(lower, upper) == Ordering::Greater {
        return Err(bad());
    }
    Ok(DensifyBounds::Explicit(lower.to_owned(), upper.to_owned()))
}

#[cfg(test)]
mod tests {
    use crate::pipeline::testing::fails;

    #[test]
    fn refuses_bad_specifications() {
        fails("[{$densify: 1}]", 9, "must be an object, found int");
        fails("[{$densify: {field: 'a'}}]", 40414, "'$densify.range' is missing");
        fails("[{$densify: {field: 'a', x: 1}}]", 40415, "'$densify.x' is an unknown field");
        let range = |range: &str| format!("[{{$densify: {{field: 'a', range: {range}}}}}]");
        fails(&range("{step: 0, bounds: 'full'}"), 5733401, "strictly positive");
        fails(&range("{step: 1, bounds: 'x'}"), 5733402, "must be the string 'full'");
        fails(&range("{step: 1, bounds: [2, 1]}"), 5733403, "ascending array");
        fails(&range("{step: 1, bounds: 'partition'}"), 5733408, "without specifying a non-empty array");
        fails(&range("{step: 1.5, unit: 'day', bounds: 'full'}"), 6586400, "whole number");
    }
}
