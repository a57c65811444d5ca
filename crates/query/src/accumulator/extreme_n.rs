//! `$minN` and `$maxN`: the n least or greatest values, best first, null and missing aside.

use super::parse::input_and_count;
use super::{Accumulation, Accumulator, Argument, FEW, Folding, absorb_each, array, check_memory};
use crate::{Collation, Context};
use base::Result;
use base::bson::{Element, Value, ValueBuf};
use std::cmp::Ordering;
use std::sync::Arc;

pub(super) fn parse(name: &'static str, spec: &Element<'_>, context: &Context) -> Result<Accumulation> {
    let (input, count) = input_and_count(spec, context)?;
    let greatest = name == "$maxN";
    let collation = context.collation.clone();
    let limit = context.limits.several;
    let make = move |count| -> Box<dyn Accumulator> {
        let collation = collation.clone();
        Box::new(ExtremeN { name, greatest, count, collation, best: Vec::new(), held: 0, limit })
    };
    Ok(Accumulation::of(Argument::Value(input), Arc::new(make)).with_count(Some(count)))
}

struct ExtremeN {
    name: &'static str,
    greatest: bool,
    count: usize,
    collation: Collation,
    /// In the result's order; of equal values the earlier first.
    best: Vec<ValueBuf>,
    held: usize,
    limit: usize,
}

impl ExtremeN {
    fn order(&self, a: Value<'_>, b: Value<'_>) -> Ordering {
        if self.greatest { self.collation.compare(b, a) } else { self.collation.compare(a, b) }
    }
}

impl Accumulator for ExtremeN {
    fn add(&mut self, argument: Option<Value<'_>>) -> Result<()> {
        let Some(value) = argument.filter(|value| !value.is_nullish()) else { return Ok(()) };
        let at = self.best.partition_point(|kept| self.order(kept.view(), value) != Ordering::Greater);
        if at == self.count {
            return Ok(());
        }
        if self.best.len() == self.count {
            self.held -= self.best.pop().map_or(0, |last| last.bytes().len());
        }
        let value = value.to_owned();
        self.held += value.bytes().len();
        self.best.insert(at, value);
        check_memory(self.name, self.memory(), self.limit)
    }

    fn finish(&self) -> Result<ValueBuf> {
        Ok(array(self.best.iter().map(ValueBuf::view)))
    }

    fn save(&self) -> ValueBuf {
        array(self.best.iter().map(ValueBuf::view))
    }

    fn absorb(&mut self, saved: Value<'_>) -> Result<()> {
        absorb_each(self, saved)
    }

    fn folding(&self) -> Folding {
        if self.count <= FEW { Folding::Joins } else { Folding::Anew }
    }

    fn memory(&self) -> usize {
        size_of::<ExtremeN>() + self.held + self.best.len() * size_of::<ValueBuf>()
    }
}

#[cfg(test)]
mod tests {
    use crate::accumulator::testing::{folds, refuses};

    #[test]
    fn keeps_the_best_in_order() {
        folds("{$minN: {input: '$a', n: 2}}", "[3, null, 1, 2]", "[1, 2]");
        folds("{$maxN: {input: '$a', n: 2}}", "[3, null, 1, 2]", "[3, 2]");
        folds("{$maxN: {input: '$a', n: 5}}", "[1]", "[1]");
    }

    #[test]
    fn refuses_bad_counts() {
        refuses("{$minN: 1}", 5787900, "specification must be an object");
        refuses("{$minN: {input: '$a'}}", 5787906, "Missing value for 'n'");
        refuses("{$minN: {n: 1}}", 5787907, "Missing value for 'input'");
        refuses("{$minN: {n: 0, input: 1}}", 5787908, "'n' must be greater than 0, found 0");
        refuses("{$minN: {n: 'x', input: 1}}", 5787902, "must be of integral type");
        refuses("{$minN: {n: 1.5, input: 1}}", 5787903, "must be of integral type");
        refuses("{$minN: {n: 1, input: 1, x: 1}}", 5787901, "Unknown argument for 'n' operator: x");
    }
}
