//! `$push`: all values in an array; missing ones are left out.

use super::{Accumulation, Accumulator, absorb_each, check_memory, only_value};
use crate::Context;
use base::Result;
use base::bson::{Builder, Element, Value, ValueBuf};

pub(super) fn parse(name: &'static str, spec: &Element<'_>, context: &Context) -> Result<Accumulation> {
    let limit = context.limits.push;
    Accumulation::unary(name, spec, context, move || Box::new(Push { values: Pushed::new(), limit }))
}

/// An array that grows in its final form.
#[derive(Clone)]
pub(super) struct Pushed {
    builder: Builder,
}

impl Pushed {
    pub(super) fn new() -> Pushed {
        let mut builder = Builder::new();
        builder.begin_array(c"");
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

struct Push {
    values: Pushed,
    limit: usize,
}

impl Accumulator for Push {
    fn add(&mut self, argument: Option<Value<'_>>) -> Result<()> {
        if let Some(value) = argument {
            self.values.push(value);
        }
        check_memory("$push", self.values.len(), self.limit)
    }

    fn finish(&self) -> Result<ValueBuf> {
        Ok(self.values.array())
    }

    fn save(&self) -> ValueBuf {
        self.values.array()
    }

    fn absorb(&mut self, saved: Value<'_>) -> Result<()> {
        absorb_each(self, saved)
    }

    fn memory(&self) -> usize {
        size_of::<Push>() + self.values.len()
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
