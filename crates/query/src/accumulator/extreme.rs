//! `$min` and `$max`: the least and greatest value in MongoDB's order, null and missing aside.

use super::{Accumulation, Accumulator, Folding};
use crate::{Collation, Context};
use base::Result;
use base::bson::{Element, Value, ValueBuf};
use std::cmp::Ordering;

pub(super) fn parse(name: &'static str, spec: &Element<'_>, context: &Context) -> Result<Accumulation> {
    let wanted = if name == "$min" { Ordering::Less } else { Ordering::Greater };
    let collation = context.collation.clone();
    Accumulation::unary(name, spec, context, move || {
        Box::new(Extreme { wanted, best: None, collation: collation.clone() })
    })
}

struct Extreme {
    wanted: Ordering,
    best: Option<ValueBuf>,
    collation: Collation,
}

impl Accumulator for Extreme {
    fn add(&mut self, argument: Option<Value<'_>>) -> Result<()> {
        let Some(value) = argument.filter(|value| !value.is_nullish()) else { return Ok(()) };
        let order = |best: &ValueBuf| self.collation.compare(value, best.view());
        let better = self.best.as_ref().is_none_or(|best| order(best) == self.wanted);
        if better {
            self.best = Some(value.to_owned());
        }
        Ok(())
    }

    fn finish(&self) -> Result<ValueBuf> {
        Ok(self.best.clone().unwrap_or_else(ValueBuf::null))
    }

    fn save(&self) -> ValueBuf {
        self.best.clone().unwrap_or_else(ValueBuf::null)
    }

    fn absorb(&mut self, saved: Value<'_>) -> Result<()> {
        self.add(Some(saved))
    }

    fn folding(&self) -> Folding {
        Folding::Joins
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
