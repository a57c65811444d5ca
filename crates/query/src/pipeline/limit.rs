//! `$limit`: passes on the first documents.

use super::operator::{Kind, Operator, Reads};
use super::parse::{Parsed, Scope, non_negative};
use super::{Environment, Stage, Step, Stream};
use crate::Row;
use base::bson::{Builder, Element};
use base::{Result, bail, err};
use std::sync::Arc;

/// A parsed `$limit`.
struct Limit(u64);

/// Parses `$limit`. Errors: 5107201 unless the number is integral and not negative, 15958 for zero.
pub(crate) fn parse(spec: &Element<'_>, _scope: &Scope<'_>) -> Result<Parsed> {
    let limit = non_negative(spec).map_err(|why| err!(5107201, "invalid argument to $limit stage: {why}"))?;
    if limit == 0 {
        bail!(15958, "the limit must be positive");
    }
    Ok(Parsed::one(Limit(limit)))
}

/// Returns a step with another limit.
pub(crate) fn step(like: &Step, limit: u64) -> Step {
    let mut builder = Builder::new();
    builder.append(c"$limit", i64::try_from(limit).unwrap_or(i64::MAX));
    Step::new(like.definition, builder.finish(), Arc::new(Limit(limit)))
}

impl Operator for Limit {
    fn kind(&self) -> Kind<'_> {
        Kind::Limit(self.0)
    }

    fn reads(&self) -> Reads {
        Reads::Also(Vec::new())
    }

    fn start(self: Arc<Self>, input: Stream, _environment: &Environment) -> Result<Stream> {
        Ok(Box::new(Running { input, left: self.0 }))
    }
}

/// Counts down. It never pulls a document beyond the limit.
struct Running {
    input: Stream,
    left: u64,
}

impl Stage for Running {
    fn next(&mut self) -> Result<Option<Row>> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        self.input.next()
    }
}

#[cfg(test)]
mod tests {
    use crate::pipeline::testing::{fails, gives};

    #[test]
    fn passes_the_first_documents() {
        gives("[{a: 1}, {a: 2}, {a: 3}]", "[{$limit: 2}]", "[{a: 1}, {a: 2}]");
        gives("[{a: 1}]", "[{$limit: 2.0}]", "[{a: 1}]");
    }

    #[test]
    fn refuses_values_other_than_positive_numbers() {
        fails("[{$limit: 0}]", 15958, "the limit must be positive");
        fails("[{$limit: 'x'}]", 5107201, "Expected a number in: $limit: \"x\"");
        fails("[{$limit: -1}]", 5107201, "Expected a non-negative number in: $limit: -1");
        fails("[{$limit: 1.5}]", 5107201, "Expected an integer: $limit: 1.5");
    }
}
