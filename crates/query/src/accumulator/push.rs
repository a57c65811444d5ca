//! `$push`: all values in an array; missing ones are left out.

use super::{Accumulation, Accumulator, check_memory, only_value};
use crate::Context;
use base::Result;
use base::bson::{Builder, Element, Value, ValueBuf};

pub(super) fn parse(name: &'static str, spec: &Element<'_>, context: &Context) -> Result<Accumulation> {
    Accumulation::unary(name, spec, context, || Box::new(Pushed::new()))
}

/// An array that grows in its final form.
pub(super) struct Pushed {
    builder: Builder,
}

impl Pushed {
    pub(super) fn new() -> Pushed {
        let mut builder = Builder::new();
        builder.begin_array("");
        Pushed { builder }
    }

    pub(super) fn push(&mut self, value: Value<'_>) {
        self.builder.push(value);
    }

    pub(super) fn len(&self) -> usize {
        self.builder.len()
    }

    pub(super) fn array(&self) -> ValueBuf {
        only_value(self.builder.clone())
    }
}

impl Accumulator for Pushed {
    fn add(&mut self, argument: Option<Value<'_>>) -> Result<()> {
        if let Some(value) = argument {
            self.push(value);
        }
        check_memory("$push", self.len())
    }

    fn finish(&self) -> Result<ValueBuf> {
        Ok(self.array())
    }

    fn memory(&self) -> usize {
        size_of::<Pushed>() + self.len()
    }
}

#[cfg(test)]
mod tests {
    use crate::accumulator::testing::folds;

    #[test]
    fn keeps_order_and_nulls() {
        folds("{$push: '$a'}", "[3, null, 3, [1]]", "[3, null, 3, [1]]");
        folds("{$push: '$missing'}", "[3]", "[]");
        folds("{$push: {x: '$a'}}", "[3]", "[{x: 3}]");
    }
}
