//! `$densify`: creates documents for the missing steps of a range.
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
//!
//! Documents are sorted by partition and field. A counter advances along the steps and creates a document for each step
//! without one.

use super::fields::{check_options, required_option, set_path};
use super::operator::Operator;
use super::parse::{Parsed, Scope};
use super::{Environment, Stage, Stream};
use crate::expression::Unit;
use crate::field_path::checked_path;
use crate::interrupt_check::InterruptCheck;
use crate::row::RowCodec;
use crate::{Collation, Row, Sorter};
use base::bson::{Array, Document, DocumentBuf, Element, Number, Path, Value, ValueBuf, compare};
use base::{Error, Result, bail, err};
use std::cmp::Ordering;
use std::sync::Arc;

/// Parses `$densify`. Errors: see [`Densify::parse`].
pub(crate) fn parse(spec: &Element<'_>, _scope: &Scope<'_>) -> Result<Parsed> {
    Ok(Parsed::one(Densify::parse(spec)?))
}

impl Operator for Densify {
    fn start(self: Arc<Self>, input: Stream, environment: &Environment) -> Result<Stream> {
        Ok(Box::new(Running {
            stage: self,
            input: Some(input),
            sorter: environment.sorter(usize::MAX, environment.context.limits.sort),
            interrupts: InterruptCheck::new(&environment.context),
            codec: RowCodec::new(&environment.context),
            collation: environment.context.collation.clone(),
            extremes: None,
            ahead: None,
            partition: None,
            made: 0,
            made_max: environment.context.limits.densify_documents,
        }))
    }
}

/// A blocking stage: it sorts the whole input, then returns one partition after another.
struct Running {
    stage: Arc<Densify>,
    input: Option<Stream>,
    sorter: Sorter,
    interrupts: InterruptCheck,
    codec: RowCodec,
    collation: Collation,
    /// The least and greatest value of all documents.
    extremes: Option<(ValueBuf, ValueBuf)>,
    /// The next row of the input.
    ahead: Option<Row>,
    partition: Option<Steps>,
    made: usize,
    /// Maximum number of documents that the stage may create.
    made_max: usize,
}

/// The steps of one partition.
struct Steps {
    key: Vec<u8>,
    /// Fields of created documents other than the stepped field.
    base: DocumentBuf,
    /// The next step; `None` beyond the range of dates.
    next: Option<ValueBuf>,
    /// The end of the steps, and whether it is inclusive.
    end: Option<(ValueBuf, bool)>,
}

impl Steps {
    /// Whether a value is before the end of the steps.
    fn is_within(&self, value: Value<'_>) -> bool {
        match &self.end {
            None => false,
            Some((end, inclusive)) => match compare(value, end.view()) {
                Ordering::Less => true,
                Ordering::Equal => *inclusive,
                Ordering::Greater => false,
            },
        }
    }

    fn advance(&mut self, stage: &Densify) {
        self.next = self.next.take().and_then(|value| stage.step(value.view()));
    }
}

impl Running {
    /// Returns the field's value; `None` if the document passes unchanged.
    fn value<'d>(&self, document: Document<'d>) -> Option<Value<'d>> {
        self.stage.field.get(document).filter(|value| !value.is_nullish())
    }

    fn sort(&mut self, mut input: Stream) -> Result<()> {
        while let Some(row) = input.next()? {
            self.interrupts.check()?;
            let mut key = self.partition_key(row.document.view());
            let value = self.value(row.document.view());
            if let Some(value) = value {
                self.stage.check_value(value)?;
                self.widen(value.to_owned());
            }
            self.collation.append_key(value.unwrap_or(Value::Null), true, &mut key);
            self.sorter.add(&key, 0, self.codec.encode(row))?;
        }
        self.sorter.finish()?;
        self.ahead = self.next_sorted()?;
        if self.ahead.is_none() && self.stage.partition_by.is_empty() {
            self.begin_without_documents();
        }
        Ok(())
    }

    fn next_sorted(&mut self) -> Result<Option<Row>> {
        Ok(self.sorter.next_document()?.map(|(_, held)| self.codec.decode(held)))
    }

    /// Extends the range of all documents' values by a value.
    fn widen(&mut self, value: ValueBuf) {
        match &mut self.extremes {
            None => self.extremes = Some((value.clone(), value)),
            Some((least, greatest)) => {
                if compare(value.view(), least.view()) == Ordering::Less {
                    *least = value;
                } else if compare(value.view(), greatest.view()) == Ordering::Greater {
                    *greatest = value;
                }
            }
        }
    }

    fn partition_key(&self, document: Document<'_>) -> Vec<u8> {
        let mut key = Vec::new();
        for path in &self.stage.partition_by {
            self.collation.append_key(path.get(document).unwrap_or(Value::Null), true, &mut key);
        }
        key
    }

    /// Returns the steps of the partition that begins with this document, whose field has this value.
    fn begin(&self, document: Document<'_>, value: Value<'_>) -> Steps {
        let mut base = DocumentBuf::empty();
        for path in &self.stage.partition_by {
            if let Some(value) = path.get(document) {
                base = set_path(base.view(), path, Some(value));
            }
        }
        let (first, end) = match (&self.stage.ends, &self.extremes) {
            (DensifyBounds::Explicit(lower, upper), _) => (lower.clone(), Some((upper.clone(), false))),
            (DensifyBounds::Full, Some((least, greatest))) => (least.clone(), Some((greatest.clone(), true))),
            (DensifyBounds::Full, None) | (DensifyBounds::Partition, _) => (value.to_owned(), None),
        };
        Steps { key: self.partition_key(document), base, next: Some(first), end }
    }

    /// Starts an explicit range without documents, which is filled nevertheless.
    fn begin_without_documents(&mut self) {
        if let DensifyBounds::Explicit(..) = self.stage.ends {
            self.partition = Some(self.begin(Document::EMPTY, Value::Null));
        }
    }

    /// Returns the document of the next step, if the step is before `value` (or before the end, for `None`).
    fn make(&mut self, value: Option<Value<'_>>) -> Result<Option<DocumentBuf>> {
        let Some(steps) = &mut self.partition else { return Ok(None) };
        let Some(next) = &steps.next else { return Ok(None) };
        let due = match value {
            Some(value) => {
                compare(next.view(), value) == Ordering::Less
                    && (steps.end.is_none() || steps.is_within(next.view()))
            }
            None => steps.is_within(next.view()),
        };
        if !due {
            return Ok(None);
        }
        let made = set_path(steps.base.view(), &self.stage.field, Some(next.view()));
        steps.advance(&self.stage);
        self.made += 1;
        if self.made > self.made_max {
            bail!(
                5897900,
                "Generated {} documents in $densify, which is over the limit of {}. Increase the \
                 'internalQueryMaxAllowedDensifyDocs' parameter to allow more generated documents",
                self.made,
                self.made_max
            );
        }
        Ok(Some(made))
    }

    /// Returns a created document before the next row, or the next row.
    fn step(&mut self, row: Row) -> Result<Row> {
        let document = row.document.view();
        let key = self.partition_key(document);
        let changes = self.partition.as_ref().is_some_and(|steps| steps.key != key);
        if changes {
            if let Some(made) = self.make(None)? {
                self.ahead = Some(row);
                return Ok(made.into());
            }
            self.partition = None;
        }
        let Some(value) = self.value(document) else {
            self.ahead = self.next_sorted()?;
            return Ok(row);
        };
        if self.partition.is_none() {
            self.partition = Some(self.begin(document, value));
        }
        if let Some(made) = self.make(Some(value))? {
            self.ahead = Some(row);
            return Ok(made.into());
        }
        if let Some(steps) = &mut self.partition
            && steps.next.as_ref().is_some_and(|next| compare(next.view(), value).is_eq())
        {
            // The type of the document's value decides the type of the next steps.
            steps.next = self.stage.step(value);
        }
        self.ahead = self.next_sorted()?;
        Ok(row)
    }
}

impl Stage for Running {
    fn next(&mut self) -> Result<Option<Row>> {
        if let Some(input) = self.input.take() {
            self.sort(input)?;
        }
        self.interrupts.check()?;
        match self.ahead.take() {
            Some(row) => self.step(row).map(Some),
            None => Ok(self.make(None)?.map(Row::from)),
        }
    }
}

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
    /// 8993000 and 9554500 for overlapping paths. Invalid bounds have the errors of [`parse_ends`].
    pub(super) fn parse(spec: &Element<'_>) -> Result<Densify> {
        let Value::Document(options) = spec.value() else {
            bail!(FailedToParse, "The $densify stage specification must be an object, found {}", spec.kind());
        };
        check_options("$densify", options, &["field", "partitionByFields", "range"])?;
        let field = field_option(required_option("$densify", options, "field")?)?;
        let partition_by = match options.get("partitionByFields") {
            None => Vec::new(),
            Some(Value::Array(fields)) => fields.iter().map(field_option).collect::<Result<_>>()?,
            Some(other) => {
                return Err(Error::wrong_type("$densify.partitionByFields", other.kind(), "array"));
            }
        };
        let range = required_option("$densify", options, "range")?;
        let Value::Document(range) = range else {
            return Err(Error::wrong_type("$densify.range", range.kind(), "object"));
        };
        check_options("$densify.range", range, &["step", "bounds", "unit"])?;
        let unit = match range.get("unit") {
            None => None,
            Some(Value::String(unit)) => Some(Unit::parse(unit)?),
            Some(other) => return Err(Error::wrong_type("$densify.range.unit", other.kind(), "string")),
        };
        let bounds = required_option("$densify.range", range, "bounds")?;
        let step = parse_step(required_option("$densify.range", range, "step")?, unit)?;
        let ends = parse_ends(bounds, unit, step)?;
        // MongoDB compares the names as text.
        for path in &partition_by {
            if path.starts_with(field) {
                bail!(
                    8993000,
                    "partitionByFields '{path}' cannot include field '{field}' that is being densified."
                );
            }
            if field.starts_with(path) {
                bail!(
                    9554500,
                    "field '{field}' that is being densified cannot include partitionByFields '{path}'."
                );
            }
        }
        let field = checked_path(field)?;
        let partition_by: Vec<Path> = partition_by.into_iter().map(checked_path).collect::<Result<_>>()?;
        if matches!(ends, DensifyBounds::Partition) && partition_by.is_empty() {
            bail!(
                5733408,
                "One cannot specify the bounds as 'partition' without specifying a non-empty array of \
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

    /// Returns the step after another; `None` beyond the range of dates.
    pub(super) fn step(&self, last: Value<'_>) -> Option<ValueBuf> {
        if let (Value::DateTime(last), Some(unit)) = (last, self.unit) {
            return Some(Value::DateTime(unit.add(last, self.step.to_i64_clamped())?).to_owned());
        }
        let last = last.as_number()?;
        let next = last.plus(self.step);
        // A step below the number's precision would never end.
        (next.compare(last) == Ordering::Greater).then(|| Value::from(next).to_owned())
    }
}

fn field_option(value: Value<'_>) -> Result<&str> {
    value.as_str().ok_or_else(|| Error::wrong_type("$densify.field", value.kind(), "string"))
}

/// Parses the step: positive, and integral for dates. Errors: TypeMismatch, 5733401, 6586400.
fn parse_step(value: Value<'_>, unit: Option<Unit>) -> Result<Number> {
    let Some(step) = value.as_number() else {
        return Err(Error::wrong_type("$densify.range.step", value.kind(), "[long, int, decimal, double"));
    };
    if step.compare(Number::Int32(0)) != Ordering::Greater || !step.to_f64().is_finite() {
        bail!(5733401, "The step parameter in a range statement must be a strictly positive numeric value");
    };
    if unit.is_some() && step.to_i64_exact().is_none() {
        bail!(
            6586400,
            "The step parameter in a range statement must be a whole number when densifying a date range"
        );
    }
    Ok(step)
}

/// Parses the bounds: `full`, `partition` or an explicit range.
///
/// Errors: 5733404 and 5946802 for values of no form; the errors of [`parse_pair`].
fn parse_ends(value: Value<'_>, unit: Option<Unit>, step: Number) -> Result<DensifyBounds> {
    match value {
        Value::String("full") => Ok(DensifyBounds::Full),
        Value::String("partition") => Ok(DensifyBounds::Partition),
        Value::String(_) => Err(err!(5946802, "Bounds string must either be 'full' or 'partition'")),
        Value::Array(pair) => parse_pair(pair, unit, step),
        _ => Err(err!(
            5733404,
            "The bounds in a range statement must be the string 'full', 'partition', or an ascending array of two \
             numbers or two dates"
        )),
    }
}

/// Parses an explicit range of two ascending dates or numbers.
///
/// Errors: 5733403 for another number of bounds, 5733402 for the wrong order, 5733405, 5733406 and 5946800 for other
/// types, 5733409 and 5733410 for a wrong or missing unit, 5876900 if bounds and step are different types of numbers.
fn parse_pair(pair: Array<'_>, unit: Option<Unit>, step: Number) -> Result<DensifyBounds> {
    let (Some(lower), Some(upper), None) = (pair.get(0), pair.get(1), pair.get(2)) else {
        bail!(5733403, "A bounding array in a range statement must have exactly two elements");
    };
    if compare(lower, upper) == Ordering::Greater {
        bail!(5733402, "A bounding array must be an ascending array of either two dates or two numbers");
    }
    let mixed = "A bounding array must contain either both dates or both numeric types";
    match (lower, lower.as_number()) {
        (_, Some(least)) => {
            if unit.is_some() {
                bail!(5733409, "Numeric bounds may not have unit parameter");
            }
            let Some(greatest) = upper.as_number() else { bail!(5733406, "{mixed}") };
            if !least.same_type(greatest) || !least.same_type(step) {
                bail!(5876900, "Upper bound, lower bound, and step must all have the same type");
            }
        }
        (Value::DateTime(_), None) => {
            if !matches!(upper, Value::DateTime(_)) {
                bail!(5733405, "{mixed}");
            }
            if unit.is_none() {
                bail!(5733410, "A bounding array of dates must specify a unit");
            }
        }
        _ => bail!(5946800, "Explicit bounds must be numeric or dates"),
    }
    Ok(DensifyBounds::Explicit(lower.to_owned(), upper.to_owned()))
}

#[cfg(test)]
mod tests {
    use crate::pipeline::testing::{fails, gives, running_fails};

    const INPUT: &str =
        "[{_id: 1, p: 'a', x: 1}, {_id: 2, p: 'a', x: 4}, {_id: 3, p: 'b', x: 2}, {_id: 4, p: 'b'}]";

    #[test]
    fn steps_between_documents() {
        gives(
            "[{x: 1}, {x: 4.5}, {y: 1}]",
            "[{$densify: {field: 'x', range: {step: 1, bounds: 'full'}}}]",
            "[{y: 1}, {x: 1}, {x: 2}, {x: 3}, {x: 4}, {x: 4.5}]",
        );
        gives(
            INPUT,
            "[{$densify: {field: 'x', partitionByFields: ['p'], range: {step: 1, bounds: 'partition'}}}]",
            "[{_id: 1, p: 'a', x: 1}, {p: 'a', x: 2}, {p: 'a', x: 3}, {_id: 2, p: 'a', x: 4}, {_id: 4, p: 'b'},
              {_id: 3, p: 'b', x: 2}]",
        );
        gives(
            INPUT,
            "[{$densify: {field: 'x', partitionByFields: ['p'], range: {step: 2, bounds: 'full'}}}]",
            "[{_id: 1, p: 'a', x: 1}, {p: 'a', x: 3}, {_id: 2, p: 'a', x: 4}, {_id: 4, p: 'b'}, {p: 'b', x: 1},
              {_id: 3, p: 'b', x: 2}, {p: 'b', x: 3}]",
        );
        gives(
            "[{x: 1}, {x: 9}]",
            "[{$densify: {field: 'x', range: {step: 2, bounds: [0, 5]}}}]",
            "[{x: 0}, {x: 1}, {x: 2}, {x: 4}, {x: 9}]",
        );
        gives("[]", "[{$densify: {field: 'x', range: {step: 2, bounds: [0, 3]}}}]", "[{x: 0}, {x: 2}]");
        gives(
            "[{x: NumberDecimal('0')}, {x: 0.5}, {x: NumberDecimal('1')}]",
            "[{$densify: {field: 'x', range: {step: 0.25, bounds: 'full'}}}]",
            "[{x: NumberDecimal('0')}, {x: NumberDecimal('0.250000000000000')}, {x: 0.5}, {x: 0.75},
              {x: NumberDecimal('1')}]",
        );
    }

    #[test]
    fn steps_of_time() {
        gives(
            "[{t: ISODate('2024-01-31T00:00:00Z')}, {t: ISODate('2024-03-31T00:00:00Z')}]",
            "[{$densify: {field: 't', range: {step: 1, unit: 'month', bounds: 'full'}}}]",
            "[{t: ISODate('2024-01-31T00:00:00Z')}, {t: ISODate('2024-02-29T00:00:00Z')}, {t: ISODate('2024-03-29T00:00:00Z')}, {t: ISODate('2024-03-31T00:00:00Z')}]",
        );
    }

    #[test]
    fn refuses_values_of_other_types() {
        let by_number = "[{$densify: {field: 'x', range: {step: 1, bounds: 'full'}}}]";
        running_fails("[{x: 'a'}]", by_number, 5733201, "Densify field type must be numeric");
        let by_day = "[{$densify: {field: 'x', range: {step: 1, unit: 'day', bounds: 'full'}}}]";
        running_fails("[{x: 1}]", by_day, 6053600, "numeric densify value");
        let endless = "[{$densify: {field: 'x', range: {step: 1, bounds: [0, 1000000]}}}, {$count: 'n'}]";
        running_fails("[]", endless, 5897900, "over the limit of 500000");
    }

    #[test]
    fn refuses_bad_specifications() {
        fails("[{$densify: 1}]", 9, "must be an object, found int");
        fails("[{$densify: {field: 'a'}}]", 40414, "'$densify.range' is missing");
        fails("[{$densify: {field: 'a', x: 1}}]", 40415, "'$densify.x' is an unknown field");
        let range = |range: &str| format!("[{{$densify: {{field: 'a', range: {range}}}}}]");
        fails(&range("{step: 0, bounds: 'full'}"), 5733401, "strictly positive");
        fails(&range("{step: 'i', bounds: 'full'}"), 14, "expected types '[long, int, decimal, double']");
        fails(&range("{step: 1, bounds: 'x'}"), 5946802, "Bounds string must either be 'full'");
        fails(&range("{step: 1, bounds: 5}"), 5733404, "must be the string 'full'");
        fails(&range("{step: 1, bounds: [2]}"), 5733403, "exactly two elements");
        fails(&range("{step: 1, bounds: [2, 1]}"), 5733402, "ascending array");
        fails(
            &range("{step: 1, bounds: [2, ISODate('2024-01-01T00:00:00Z')]}"),
            5733406,
            "either both dates",
        );
        fails(&range("{step: 1.5, bounds: [2, 3]}"), 5876900, "must all have the same type");
        fails(&range("{step: 1, bounds: ['a', 'b']}"), 5946800, "must be numeric or dates");
        fails(&range("{step: 1, bounds: 'partition'}"), 5733408, "without specifying a non-empty array");
        fails(&range("{step: 1.5, unit: 'day', bounds: 'full'}"), 6586400, "whole number");
    }
}
