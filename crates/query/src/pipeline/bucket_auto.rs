//! `$bucketAuto`: groups of about equal size by the order of an expression.

use super::bucket::parse_group_by;
use super::operator::Operator;
use super::parse::{Parsed, Scope};
use super::{Environment, Stage, Stream};
use crate::accumulator::{Accumulation, Accumulator, parse_field};
use crate::tick::Tick;
use crate::{Arena, Context, Expression, Sorter};
use base::bson::{Builder, Document, DocumentBuf, DocumentCow, Element, Value, ValueBuf};
use base::{Result, err};
use std::sync::Arc;

struct BucketAuto {
    group_by: Expression,
    buckets: u64,
    output: Vec<(String, Accumulation)>,
}

/// Errors: 40239 to 40246 as MongoDB's; NotImplemented for `granularity`.
pub(crate) fn parse(spec: &Element<'_>, scope: &Scope<'_>) -> Result<Parsed> {
    let Value::Document(options) = spec.value() else {
        let found = spec.kind().alias();
        return Err(err!(40240, "The argument to $bucketAuto must be an object, but found type: {found}."));
    };
    let (mut group_by, mut buckets, mut output) = (None, None, None);
    for option in options {
        match option.name() {
            "groupBy" => {
                let expression = parse_group_by("$bucketAuto", 40239, option.value())?;
                group_by = Some(Expression::parse(expression, scope.context)?);
            }
            "buckets" => buckets = Some(parse_buckets(option.value())?),
            "output" => output = Some(parse_output(option.value(), scope.context)?),
            "granularity" => return Err(err!(NotImplemented, "$bucketAuto granularity is not implemented")),
            other => return Err(err!(40245, "Unrecognized option to $bucketAuto: {other}.")),
        }
    }
    let (Some(group_by), Some(buckets)) = (group_by, buckets) else {
        return Err(err!(40246, "$bucketAuto requires 'groupBy' and 'buckets' to be specified."));
    };
    let output = match output {
        Some(output) => output,
        None => vec![count(scope.context)?],
    };
    Ok(Parsed::one(BucketAuto { group_by, buckets, output }))
}

fn parse_buckets(value: Value<'_>) -> Result<u64> {
    let Some(number) = value.as_number() else {
        let found = value.kind().alias();
        return Err(err!(
            40241,
            "The $bucketAuto 'buckets' field must be a numeric value, but found type: {found}."
        ));
    };
    let whole = number.to_i64_exact().and_then(|whole| i32::try_from(whole).ok());
    let Some(whole) = whole else {
        return Err(err!(
            40242,
            "The $bucketAuto 'buckets' field must be representable as a 32-bit integer, but found {value}."
        ));
    };
    u64::try_from(whole).ok().filter(|buckets| *buckets > 0).ok_or_else(|| {
        err!(40243, "The $bucketAuto 'buckets' field must be greater than 0, but found: {whole}.")
    })
}

fn parse_output(value: Value<'_>, context: &Context) -> Result<Vec<(String, Accumulation)>> {
    let Value::Document(fields) = value else {
        let found = value.kind().alias();
        return Err(err!(
            40244,
            "The $bucketAuto 'output' field must be an object, but found type: {found}."
        ));
    };
    fields.iter().map(|field| parse_field(&field, context)).collect()
}

/// The output where none is given.
fn count(context: &Context) -> Result<(String, Accumulation)> {
    let mut builder = Builder::new();
    builder.begin_document("count").append("$sum", 1i32).end();
    match builder.finish().view().first() {
        Some(field) => parse_field(&field, context),
        None => Err(err!(InternalError, "$bucketAuto has no output")),
    }
}

impl Operator for BucketAuto {
    fn name(&self) -> &'static str {
        "$bucketAuto"
    }

    fn start(self: Arc<Self>, input: Stream, environment: &Environment) -> Result<Stream> {
        Ok(Box::new(Running {
            stage: self,
            input: Some(input),
            sorter: environment.sorter(usize::MAX, environment.context.limits.bucket_auto),
            context: Arc::clone(&environment.context),
            tick: Tick::new(&environment.context),
            size: 1,
            made: 0,
            ahead: None,
        }))
    }
}

struct Running {
    stage: Arc<BucketAuto>,
    input: Option<Stream>,
    sorter: Sorter,
    context: Arc<Context>,
    tick: Tick,
    /// Documents that a bucket should have.
    size: u64,
    made: u64,
    /// The first document of the next bucket, and its value.
    ahead: Option<(ValueBuf, DocumentCow)>,
}

/// A bucket that is being filled.
struct Bucket {
    min: ValueBuf,
    max: ValueBuf,
    count: u64,
    accumulators: Vec<Box<dyn Accumulator>>,
}

impl Running {
    fn value(&self, document: Document<'_>) -> Result<ValueBuf> {
        let arena = Arena::new();
        let value = self.stage.group_by.evaluate(document, &self.context, &arena)?;
        Ok(value.unwrap_or(Value::Null).to_owned())
    }

    fn sort(&mut self, mut input: Stream) -> Result<()> {
        let mut count = 0u64;
        while let Some(document) = input.next()? {
            self.tick.check()?;
            let mut key = Vec::new();
            self.context.collation.append_key(self.value(document.view())?.view(), true, &mut key);
            self.sorter.add(&key, 0, document)?;
            count += 1;
        }
        self.sorter.finish()?;
        self.size = ((count as f64 / self.stage.buckets as f64).round() as u64).max(1);
        self.ahead = self.next_sorted()?;
        Ok(())
    }

    fn next_sorted(&mut self) -> Result<Option<(ValueBuf, DocumentCow)>> {
        let Some((_, document)) = self.sorter.give()? else { return Ok(None) };
        Ok(Some((self.value(document.view())?, document)))
    }

    fn begin(&self, value: ValueBuf) -> Result<Bucket> {
        let start =
            |(_, accumulation): &(String, Accumulation)| accumulation.start(Value::Null, &self.context);
        let accumulators = self.stage.output.iter().map(start).collect::<Result<_>>()?;
        Ok(Bucket { min: value.clone(), max: value, count: 0, accumulators })
    }

    fn add(&self, bucket: &mut Bucket, value: ValueBuf, document: Document<'_>) -> Result<()> {
        let arena = Arena::new();
        bucket.max = value;
        bucket.count += 1;
        for ((_, accumulation), state) in self.stage.output.iter().zip(&mut bucket.accumulators) {
            state.add(accumulation.argument(document, &self.context, &arena)?)?;
        }
        Ok(())
    }

    /// Whether the next document still belongs to the bucket: while there is room, in the last
    /// bucket, and where its value is the bucket's greatest.
    fn belongs(&self, bucket: &Bucket, value: &ValueBuf) -> bool {
        bucket.count < self.size
            || self.made + 1 >= self.stage.buckets
            || self.context.collation.equal(bucket.max.view(), value.view())
    }

    /// The bucket as a document; its upper bound is the next bucket's lower one.
    fn finish(&self, bucket: &Bucket) -> Result<DocumentBuf> {
        let max = self.ahead.as_ref().map_or(&bucket.max, |(value, _)| value);
        let mut builder = Builder::new();
        builder.begin_document("_id").append("min", &bucket.min).append("max", max).end();
        for ((name, _), state) in self.stage.output.iter().zip(&bucket.accumulators) {
            builder.append(name, &state.finish()?);
        }
        Ok(builder.finish())
    }
}

impl Stage for Running {
    fn next(&mut self) -> Result<Option<DocumentCow>> {
        if let Some(input) = self.input.take() {
            self.sort(input)?;
        }
        let Some((value, document)) = self.ahead.take() else { return Ok(None) };
        let mut bucket = self.begin(value.clone())?;
        self.add(&mut bucket, value, document.view())?;
        while let Some((value, document)) = self.next_sorted()? {
            self.tick.check()?;
            if !self.belongs(&bucket, &value) {
                self.ahead = Some((value, document));
                break;
            }
            self.add(&mut bucket, value, document.view())?;
        }
        let made = self.finish(&bucket)?;
        self.made += 1;
        Ok(Some(made.into()))
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
        fails("[{$bucketAuto: {groupBy: '$a', buckets: 1, granularity: 'R5'}}]", 238, "granularity");
    }
}
