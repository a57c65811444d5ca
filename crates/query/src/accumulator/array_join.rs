//! `$concatArrays`: the elements of all arrays, one after the other.

use super::push::Pushed;
use super::{Accumulation, Accumulator, check_memory};
use crate::Context;
use base::bson::{Element, Value, ValueBuf};
use base::{Result, err};

pub(super) fn parse(name: &'static str, spec: &Element<'_>, context: &Context) -> Result<Accumulation> {
    Accumulation::unary(name, spec, context, || Box::new(Joined(Pushed::new())))
}

struct Joined(Pushed);

impl Accumulator for Joined {
    /// Errors: TypeMismatch for what is neither an array nor missing.
    fn add(&mut self, argument: Option<Value<'_>>) -> Result<()> {
        match argument {
            None => Ok(()),
            Some(Value::Array(array)) => {
                array.iter().for_each(|value| self.0.push(value));
                check_memory("$concatArrays", self.0.len())
            }
            Some(other) => Err(not_an_array("$concatArrays", other)),
        }
    }

    fn finish(&self) -> Result<ValueBuf> {
        Ok(self.0.array())
    }

    fn memory(&self) -> usize {
        self.0.memory()
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
