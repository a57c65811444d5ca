//! `$limit` passes on the first documents; `$skip` drops them.
//!
//! ```text
//! {$limit: <number>}    {$skip: <number>}
//! ```

use super::operator::{Kind, Operator, Reads};
use super::parse::{Parsed, Scope, non_negative};
use super::source::from_fn;
use super::{Environment, Step, Stream};
use crate::interrupt_check::InterruptCheck;
use base::bson::{Builder, Element};
use base::{Result, bail, err};
use std::sync::Arc;

/// A parsed `$limit`.
struct Limit(u64);

/// Parses `$limit`. Errors: 5107201 unless the number is integral and not negative, 15958 for zero.
pub(crate) fn parse_limit(spec: &Element<'_>, _scope: &Scope<'_>) -> Result<Parsed> {
    let limit = non_negative(spec).map_err(|why| err!(5107201, "invalid argument to $limit stage: {why}"))?;
    if limit == 0 {
        bail!(15958, "the limit must be positive");
    }
    Ok(Parsed::one(Limit(limit)))
}

/// Returns a step with another limit.
pub(crate) fn limit_step(like: &Step, limit: u64) -> Step {
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

    /// Starts the stage. It never pulls a document beyond the limit.
    fn start(self: Arc<Self>, mut input: Stream, _environment: &Environment) -> Result<Stream> {
        let mut left = self.0;
        Ok(from_fn(move || {
            if left == 0 {
                return Ok(None);
            }
            left -= 1;
            input.next()
        }))
    }
}

/// A parsed `$skip`.
struct Skip(u64);

/// Parses `$skip`. Errors: 5107200 unless the number is integral and not negative.
pub(crate) fn parse_skip(spec: &Element<'_>, _scope: &Scope<'_>) -> Result<Parsed> {
    let skip = non_negative(spec).map_err(|why| err!(5107200, "invalid argument to $skip stage: {why}"))?;
    Ok(Parsed::one(Skip(skip)))
}

/// Returns a step with another number.
pub(crate) fn skip_step(like: &Step, skip: u64) -> Step {
    let mut builder = Builder::new();
    builder.append(c"$skip", i64::try_from(skip).unwrap_or(i64::MAX));
    Step::new(like.definition, builder.finish(), Arc::new(Skip(skip)))
}

impl Operator for Skip {
    fn kind(&self) -> Kind<'_> {
        Kind::Skip(self.0)
    }

    fn reads(&self) -> Reads {
        Reads::Also(Vec::new())
    }

    /// Starts the stage. It drops the first documents when the first document is pulled.
    fn start(self: Arc<Self>, mut input: Stream, environment: &Environment) -> Result<Stream> {
        let (mut left, mut interrupts) = (self.0, InterruptCheck::new(&environment.context));
        Ok(from_fn(move || {
            while left > 0 {
                left -= 1;
                interrupts.check()?;
                if input.next()?.is_none() {
                    left = 0;
                    return Ok(None);
                }
            }
            input.next()
        }))
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

    #[test]
    fn drops_the_first_documents() {
        gives("[{a: 1}, {a: 2}, {a: 3}]", "[{$skip: 2}]", "[{a: 3}]");
        gives("[{a: 1}]", "[{$skip: 0}]", "[{a: 1}]");
        gives("[{a: 1}]", "[{$skip: NumberLong(5)}]", "[]");
    }

    #[test]
    fn refuses_values_other_than_counts() {
        fails("[{$skip: -1}]", 5107200, "Expected a non-negative number in: $skip: -1");
        fails("[{$skip: {}}]", 5107200, "Expected a number in: $skip: {}");
    }
}
