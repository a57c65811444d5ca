//! `$concatArrays`: the elements of all arrays, one after the other.

use super::push::Pushed;
use super::{Accumulation, Accumulator, check_memory};
use crate::Context;
use base::bson::{Element, Value, ValueBuf};
use base::{Result, err};

pub(super) fn parse(name: &'static str, spec: &Element<'_>, context: &Context) -> Result<Accumulation> {
    let limit = context.limits.push;
    Accumulation::unary(name, spec, context, move || Box::new(Joined { values: Pushed::new(), limit }))
}

struct Joined {
    values: Pushed,
    limit: usize,
}

impl Accumulator for Joined {
    /// Errors: TypeMismatch for what is neither an array nor missing.
    fn add(&mut self, argument: Option<Value<'_>>) -> Result<()> {
        match argument {
            None => Ok(()),
            Some(Value::Array(array)) => {
                array.iter().for_each(|value| self.values.push(value));
                check_memory("$concatArrays", self.values.len(), self.limit)
            }
            Some(other) => Err(not_an_array("$concatArrays", other)),
        }
    }

    fn finish(&self) -> Result<ValueBuf> {
        Ok(self.values.array())
    }

    fn save(&self) -> ValueBuf {
        self.values.array()
    }

    fn absorb(&mut self, saved: Value<'_>) -> Result<()> {
        self.add(Some(saved))
    }

    fn memory(&self) -> usize {
        size_of::<Joined>() + self.values.len()
    }
}

/// The error of the accumulators that take arrays.
pub(super) fn not_an_array(name: &str, found: Value<'_>) -> base::Error {
    err!(TypeMismatch, "{name} requires array inputs, but input {found} is of type {}", found.kind().alias())
}

#[cfg(test)]
mod tests {
    use crate::accumulator::testing::{folding_fails, folds};

    #[test]
    fn joins_arrays() {
        folds("{$concatArrays: '$a'}", "[[1], [], [[2], 3]]", "[1, [2], 3]");
        folds("{$concatArrays: '$missing'}", "[[1]]", "[]");
        folding_fails("{$concatArrays: '$a'}", "[1]", 14);
    }
}
