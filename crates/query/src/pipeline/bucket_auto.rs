//! `$bucketAuto`: groups of about equal size in the order of an expression.
//!
//! ```text
//! {$bucketAuto: {
//!     groupBy: <expression>,
//!     buckets: <int32>,                       the maximum number of buckets
//!     output: {<field>: <accumulator>, …},    optional: a count by default
//!     granularity: <string>,                  optional: a series of preferred numbers, such as "R5" or "POWERSOF2"
//! }}
//! ```
//!
//! The stage sorts its input by the expression, then fills one bucket after another. Preferred numbers are in
//! [`granularity`](super::granularity). A new option is a case in [`parse`].

use super::bucket::parse_group_by;
use super::granularity::{Granularity, checked};
use super::operator::Operator;
use super::parse::{Parsed, Scope};
use super::{Environment, Stage, Stream};
use crate::accumulator::{Accumulation, parse_field};
use crate::accumulator_state::Accumulator;
use crate::interrupt_check::InterruptCheck;
use crate::row::RowCodec;
use crate::{Arena, Context, Expression, Row, RowView, Sorter};
use base::bson::{Builder, DocumentBuf, Element, FieldNameBuf, Number, Value, ValueBuf};
use base::{Result, bail, err};
use std::sync::Arc;

/// A parsed `$bucketAuto`.
struct BucketAuto {
    group_by: Expression,
    buckets: u64,
    output: Vec<(FieldNameBuf, Accumulation)>,
    granularity: Option<Granularity>,
}

/// Parses `$bucketAuto`. Errors: 40239 to 40246 as in MongoDB; the errors of granularities.
pub(crate) fn parse(spec: &Element<'_>, scope: &Scope<'_>) -> Result<Parsed> {
    let Value::Document(options) = spec.value() else {
        bail!(40240, "The argument to $bucketAuto must be an object, but found type: {}.", spec.kind());
    };
    let (mut group_by, mut buckets, mut output, mut granularity) = (None, None, None, None);
    for option in options {
        match option.name() {
            "groupBy" => {
                let expression = parse_group_by("$bucketAuto", 40239, option.value())?;
                group_by = Some(Expression::parse(expression, scope.context)?);
            }
            "buckets" => buckets = Some(parse_buckets(option.value())?),
            "output" => output = Some(parse_output(option.value(), scope.context)?),
            "granularity" => granularity = Some(Granularity::parse(option.value())?),
            other => bail!(40245, "Unrecognized option to $bucketAuto: {other}."),
        }
    }
    let (Some(group_by), Some(buckets)) = (group_by, buckets) else {
        bail!(40246, "$bucketAuto requires 'groupBy' and 'buckets' to be specified.");
    };
    // An empty output also stands for the default.
    let output = match output.filter(|output| !output.is_empty()) {
        Some(output) => output,
        None => vec![count(scope.context)?],
    };
    Ok(Parsed::one(BucketAuto { group_by, buckets, output, granularity }))
}

/// Parses the number of buckets, a positive int32. Errors: 40241 to 40243.
fn parse_buckets(value: Value<'_>) -> Result<u64> {
    let Some(number) = value.as_number() else {
        let found = value.kind().alias();
        bail!(40241, "The $bucketAuto 'buckets' field must be a numeric value, but found type: {found}.");
    };
    let count = number.to_i64_exact().and_then(|count| i32::try_from(count).ok());
    let Some(count) = count else {
        bail!(
            40242,
            "The $bucketAuto 'buckets' field must be representable as a 32-bit integer, but found {value}."
        );
    };
    u64::try_from(count).ok().filter(|buckets| *buckets > 0).ok_or_else(|| {
        err!(40243, "The $bucketAuto 'buckets' field must be greater than 0, but found: {count}.")
    })
}

/// Parses the output fields. Errors: 40244 unless it is a document, 4544714 for an `n` that is not constant, and errors
/// of accumulators.
fn parse_output(value: Value<'_>, context: &Context) -> Result<Vec<(FieldNameBuf, Accumulation)>> {
    let Value::Document(fields) = value else {
        bail!(40244, "The $bucketAuto 'output' field must be an object, but found type: {}.", value.kind());
    };
    let parse = |field: Element<'_>| match parse_field(&field, context)? {
        (_, accumulation) if !accumulation.has_constant_count() => {
            Err(err!(4544714, "Can't refer to the group key in $bucketAuto"))
        }
        parsed => Ok(parsed),
    };
    fields.iter().map(parse).collect()
}

/// The default output.
fn count(context: &Context) -> Result<(FieldNameBuf, Accumulation)> {
    let mut builder = Builder::new();
    builder.begin_document(c"count").append(c"$sum", 1i32).end();
    match builder.finish().view().first() {
        Some(field) => parse_field(&field, context),
        None => Err(err!(InternalError, "$bucketAuto has no output")),
    }
}

impl Operator for BucketAuto {
    fn start(self: Arc<Self>, input: Stream, environment: &Environment) -> Result<Stream> {
        Ok(Box::new(Running {
            stage: self,
            input: Some(input),
            sorter: environment.sorter(usize::MAX, environment.context.limits.bucket_auto),
            context: Arc::clone(&environment.context),
            interrupts: InterruptCheck::new(&environment.context),
            codec: RowCodec::new(&environment.context),
            size: 1,
            returned: 0,
            next_input: None,
            rounded: None,
        }))
    }
}

/// A blocking stage: it sorts the entire input by value, then fills one bucket at a time.
struct Running {
    stage: Arc<BucketAuto>,
    input: Option<Stream>,
    sorter: Sorter,
    context: Arc<Context>,
    codec: RowCodec,
    interrupts: InterruptCheck,
    /// Target number of documents in a bucket.
    size: u64,
    /// Number of buckets returned so far.
    returned: u64,
    /// The first row of the next bucket, and its value.
    next_input: Option<(ValueBuf, Row)>,
    /// The rounded upper bound of the previous bucket, which is the next lower bound. `None` without granularity.
    rounded: Option<ValueBuf>,
}

/// A bucket under construction.
struct Bucket {
    min: ValueBuf,
    max: ValueBuf,
    count: u64,
    accumulators: Vec<Box<dyn Accumulator>>,
}

impl Running {
    fn value(&self, row: RowView<'_>) -> Result<ValueBuf> {
        let arena = Arena::new();
        let value = self.stage.group_by.evaluate(row, &self.context, &arena)?;
        if self.stage.granularity.is_some() {
            checked(value)?;
        }
        Ok(value.unwrap_or(Value::Null).to_owned())
    }

    fn sort(&mut self, mut input: Stream) -> Result<()> {
        let mut count = 0u64;
        while let Some(row) = input.next()? {
            self.interrupts.check()?;
            let mut key = Vec::new();
            let (value, context) = (self.value(row.view())?, &self.context);
            context.collation.append_large_key(value.view(), true, &*context.interrupt, &mut key)?;
            self.sorter.add(&key, 0, self.codec.encode(row))?;
            count += 1;
        }
        self.sorter.finish()?;
        self.size = ((count as f64 / self.stage.buckets as f64).round() as u64).max(1);
        self.next_input = self.next_sorted()?;
        Ok(())
    }

    fn next_sorted(&mut self) -> Result<Option<(ValueBuf, Row)>> {
        let Some((_, encoded)) = self.sorter.next_document()? else { return Ok(None) };
        let row = self.codec.decode(encoded);
        Ok(Some((self.value(row.view())?, row)))
    }

    fn begin(&self, value: ValueBuf) -> Result<Bucket> {
        let start =
            |(_, accumulation): &(FieldNameBuf, Accumulation)| accumulation.start(Value::Null, &self.context);
        let accumulators = self.stage.output.iter().map(start).collect::<Result<_>>()?;
        Ok(Bucket { min: value.clone(), max: value, count: 0, accumulators })
    }

    fn add(&self, bucket: &mut Bucket, value: ValueBuf, row: RowView<'_>) -> Result<()> {
        let arena = Arena::new();
        bucket.max = value;
        bucket.count += 1;
        let mut memory = 0;
        for ((_, accumulation), state) in self.stage.output.iter().zip(&mut bucket.accumulators) {
            state.add(accumulation.argument(row, &self.context, &arena)?)?;
            memory += state.memory();
            self.context.limits.check_document(memory)?;
        }
        Ok(())
    }

    /// Whether the next document belongs to the bucket. It does if the bucket is below its target size, if it is the
    /// last bucket, if the value equals the bucket's maximum, or if the value is below the rounded bound.
    fn belongs(&self, bucket: &Bucket, value: &ValueBuf) -> Result<bool> {
        if bucket.count < self.size
            || self.returned + 1 >= self.stage.buckets
            || self.context.collation.equal(bucket.max.view(), value.view())
        {
            return Ok(true);
        }
        let Some(granularity) = &self.stage.granularity else { return Ok(false) };
        let bound = granularity.round_up(checked(Some(bucket.max.view()))?);
        Ok(checked(Some(value.view()))?.compare(bound).is_lt())
    }

    /// Returns the bucket's bounds. The upper bound is the next bucket's lower bound, unless rounded.
    fn bounds(&mut self, bucket: &Bucket) -> Result<(ValueBuf, ValueBuf)> {
        let Some(granularity) = &self.stage.granularity else {
            let max = self.next_input.as_ref().map_or(&bucket.max, |(value, _)| value);
            return Ok((bucket.min.clone(), max.clone()));
        };
        let rounded = |value: &ValueBuf, round: fn(&Granularity, Number) -> Number| -> Result<ValueBuf> {
            Ok(Value::from(round(granularity, checked(Some(value.view()))?)).to_owned())
        };
        let min = match self.rounded.take() {
            Some(before) => before,
            None => rounded(&bucket.min, Granularity::round_down)?,
        };
        let max = match &self.next_input {
            // A series cannot round zero up. The bound is the next value, rounded down.
            Some((next, _)) if checked(Some(bucket.max.view()))?.is_zero() => {
                rounded(next, Granularity::round_down)?
            }
            _ => rounded(&bucket.max, Granularity::round_up)?,
        };
        self.rounded = Some(max.clone());
        Ok((min, max))
    }

    /// Returns the bucket as a document.
    fn finish(&mut self, bucket: &Bucket) -> Result<DocumentBuf> {
        let (min, max) = self.bounds(bucket)?;
        let mut builder = Builder::new();
        builder.begin_document(c"_id").append(c"min", &min).append(c"max", &max).end();
        for ((name, _), state) in self.stage.output.iter().zip(&bucket.accumulators) {
            self.context.limits.check_document(builder.len())?;
            builder.append(name, &state.finish()?);
        }
        self.context.limits.check_document(builder.len())?;
        Ok(builder.finish())
    }
}

impl Stage for Running {
    fn next(&mut self) -> Result<Option<Row>> {
        if let Some(input) = self.input.take() {
            self.sort(input)?;
        }
        let Some((value, row)) = self.next_input.take() else { return Ok(None) };
        let mut bucket = self.begin(value.clone())?;
        self.add(&mut bucket, value, row.view())?;
        while let Some((value, row)) = self.next_sorted()? {
            self.interrupts.check()?;
            if !self.belongs(&bucket, &value)? {
                self.next_input = Some((value, row));
                break;
            }
            self.add(&mut bucket, value, row.view())?;
        }
        let document = self.finish(&bucket)?;
        self.returned += 1;
        Ok(Some(document.into()))
    }
}

#[cfg(test)]
mod tests {
    use crate::pipeline::testing::{fails, gives};

    #[test]
    fn buckets_are_about_equal() {
        gives(
            "[{a: 5}, {a: 1}, {a: 2}, {a: 4}, {a: 3}]",
            "[{$bucketAuto: {groupBy: '$a', buckets: 2}}]",
            "[{_id: {min: 1, max: 4}, count: 3}, {_id: {min: 4, max: 5}, count: 2}]",
        );
        gives(
            "[{a: 1}, {a: 1}, {a: 1}, {a: 2}]",
            "[{$bucketAuto: {groupBy: '$a', buckets: 2, output: {s: {$sum: '$a'}}}}]",
            "[{_id: {min: 1, max: 2}, s: 3}, {_id: {min: 2, max: 2}, s: 2}]",
        );
        gives(
            "[{a: 1}]",
            "[{$bucketAuto: {groupBy: '$a', buckets: 5}}]",
            "[{_id: {min: 1, max: 1}, count: 1}]",
        );
        gives("[]", "[{$bucketAuto: {groupBy: '$a', buckets: 5}}]", "[]");
    }

    #[test]
    fn refuses_bad_specifications() {
        fails("[{$bucketAuto: 1}]", 40240, "must be an object, but found type: int.");
        fails("[{$bucketAuto: {groupBy: 'a'}}]", 40239, "$-prefixed path");
        fails(
            "[{$bucketAuto: {groupBy: '$a', buckets: 'x'}}]",
            40241,
            "numeric value, but found type: string.",
        );
        fails("[{$bucketAuto: {groupBy: '$a', buckets: 1.5}}]", 40242, "32-bit integer, but found 1.5.");
        fails("[{$bucketAuto: {groupBy: '$a', buckets: 0}}]", 40243, "greater than 0, but found: 0.");
        fails("[{$bucketAuto: {groupBy: '$a', buckets: 1, output: 1}}]", 40244, "must be an object");
        fails(
            "[{$bucketAuto: {groupBy: '$a', buckets: 1, x: 1}}]",
            40245,
            "Unrecognized option to $bucketAuto: x.",
        );
        fails("[{$bucketAuto: {groupBy: '$a'}}]", 40246, "requires 'groupBy' and 'buckets'");
        fails("[{$bucketAuto: {groupBy: '$a', buckets: 1, granularity: 'R6'}}]", 40257, "granularity 'R6'");
        fails("[{$bucketAuto: {groupBy: '$a', buckets: 1, granularity: 5}}]", 40261, "found type: int.");
    }

    #[test]
    fn bounds_are_rounded() {
        let hundred: String = (0..100).map(|i| format!("{{a: {i}}},")).collect();
        let run = |buckets: usize, granularity: &str, expected: &str| {
            let stage = format!("{{groupBy: '$a', buckets: {buckets}, granularity: '{granularity}'}}");
            gives(&format!("[{hundred}]"), &format!("[{{$bucketAuto: {stage}}}]"), expected);
        };
        run(
            5,
            "R20",
            "[{_id: {min: 0, max: 20.0}, count: 20}, {_id: {min: 20.0, max: 40.0}, count: 20},
              {_id: {min: 40.0, max: 63.0}, count: 23}, {_id: {min: 63.0, max: 90.0}, count: 27},
              {_id: {min: 90.0, max: 100.0}, count: 10}]",
        );
        run(2, "1-2-5", "[{_id: {min: 0, max: 50.0}, count: 50}, {_id: {min: 50.0, max: 100.0}, count: 50}]");
        run(3, "POWERSOF2", "[{_id: {min: 0, max: 64}, count: 64}, {_id: {min: 64, max: 128}, count: 36}]");
        gives(
            "[{a: 0}, {a: 0}, {a: 7}]",
            "[{$bucketAuto: {groupBy: '$a', buckets: 2, granularity: 'R5'}}]",
            "[{_id: {min: 0, max: 6.300000000000001}, count: 2}, {_id: {min: 6.300000000000001, max: 10.0}, count: 1}]",
        );
    }
}
