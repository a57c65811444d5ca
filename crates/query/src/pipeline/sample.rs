//! `$sample`: a random sample of documents.
//!
//! ```text
//! {$sample: {size: <integer>}}
//! ```

use super::operator::{Operator, Reads};
use super::parse::{Parsed, Scope};
use super::source::from_fn;
use super::{Environment, Stream};
use crate::interrupt_check::InterruptCheck;
use crate::row::RowCodec;
use base::bson::{Element, Value};
use base::{Result, bail, err};
use std::sync::Arc;

/// A parsed `$sample`: the number of documents.
struct Sample(usize);

/// Parses `$sample`. Errors: 28745 to 28749 as in MongoDB.
pub(crate) fn parse(spec: &Element<'_>, _scope: &Scope<'_>) -> Result<Parsed> {
    let Value::Document(options) = spec.value() else {
        bail!(28745, "the $sample stage specification must be an object");
    };
    let mut size = None;
    for option in options {
        if option.name() != "size" {
            bail!(28748, "unrecognized option to $sample: {}", option.name());
        }
        let Some(number) = option.value().as_number() else {
            bail!(28746, "size argument to $sample must be a number");
        };
        let count = number.to_i64_coerced();
        if count <= 0 {
            bail!(28747, "size argument to $sample must be a positive integer");
        }
        size = usize::try_from(count).ok();
    }
    let size = size.ok_or_else(|| err!(28749, "$sample stage must specify a size"))?;
    Ok(Parsed::one(Sample(size)))
}

impl Operator for Sample {
    fn reads(&self) -> Reads {
        Reads::Also(Vec::new())
    }

    /// Starts the stage, which blocks and keeps only the sampled documents in memory.
    fn start(self: Arc<Self>, input: Stream, environment: &Environment) -> Result<Stream> {
        let context = Arc::clone(&environment.context);
        let mut sorter = environment.sorter(self.0, context.limits.sort);
        let (mut interrupts, codec) = (InterruptCheck::new(&context), RowCodec::new(&context));
        let mut input = Some(input);
        Ok(from_fn(move || {
            if let Some(mut input) = input.take() {
                // The first documents in the order of random keys are a sample without replacement.
                while let Some(row) = input.next()? {
                    interrupts.check()?;
                    sorter.add(&context.random().to_be_bytes(), 0, codec.encode(row))?;
                }
                sorter.finish()?;
            }
            Ok(sorter.next_document()?.map(|(_, held)| codec.decode(held)))
        }))
    }
}

#[cfg(test)]
mod tests {
    use crate::pipeline::testing::{Run, fails, gives};

    #[test]
    fn takes_so_many_distinct_documents() {
        let documents: String = (0..50).map(|i| format!("{{_id: {i}}},")).collect();
        let run = Run::new(
            &format!("[{documents}]"),
            "[{$sample: {size: 10}}, {$group: {_id: '$_id'}}, {$count: 'n'}]",
        );
        run.gives("[{n: 10}]");
        gives("[{a: 1}]", "[{$sample: {size: 10}}]", "[{a: 1}]");
    }

    #[test]
    fn refuses_bad_sizes() {
        fails("[{$sample: 1}]", 28745, "the $sample stage specification must be an object");
        fails("[{$sample: {size: 'x'}}]", 28746, "must be a number");
        fails("[{$sample: {size: -1}}]", 28747, "must be a positive integer");
        fails("[{$sample: {x: 1}}]", 28748, "unrecognized option to $sample: x");
        fails("[{$sample: {}}]", 28749, "$sample stage must specify a size");
    }
}
