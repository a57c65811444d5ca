//! `$min` and `$max`: the least and greatest value in MongoDB's order, null and missing aside.

use super::{Accumulation, Accumulator};
use crate::Context;
use base::Result;
use base::bson::{Element, Value, ValueBuf, compare};
use std::cmp::Ordering;

pub(super) fn parse(name: &'static str, spec: &Element<'_>, context: &Context) -> Result<Accumulation> {
    if name == "$min" {
        Accumulation::unary(name, spec, context, || Box::new(Extreme { wanted: Ordering::Less, best: None }))
    } else {
        Accumulation::unary(name, spec, context, || {
            Box::new(Extreme { wanted: Ordering::Greater, best: None })
        })
    }
}

struct Extreme {
    wanted: Ordering,
    best: Option<ValueBuf>,
}

impl Accumulator for Extreme {
    fn add(&mut self, argument: Option<Value<'_>>) -> Result<()> {
        let Some(value) = argument.filter(|value| !value.is_nullish()) else { return Ok(()) };
        let better = self.best.as_ref().is_none_or(|best| compare(value, best.view()) == self.wanted);
        if better {
            self.best = Some(value.to_owned());
        }
        Ok(())
    }

    fn finish(&self) -> Result<ValueBuf> {
        Ok(self.best.clone().unwrap_or_else(ValueBuf::null))
    }

    fn memory(&self) -> usize {
        size_of::<Extreme>() + self.best.as_ref().map_or(0, |best| best.bytes().len())
    }
}

#[cfg(test)]
mod tests {
    use crate::accumulator::testing::folds;

    #[test]
    fn finds_the_extreme_across_types() {
        folds("{$min: '$a'}", "[3, 1.5, null, 'x']", "1.5");
        folds("{$max: '$a'}", "[3, 1.5, null, 'x']", "'x'");
        folds("{$max: '$a'}", "[null]", "null");
        folds("{$min: '$a'}", "[[3], [1, 9]]", "[1, 9]");
    }
}
