//! `$firstN` and `$lastN`: the values of the first or last n documents; missing counts as null.

use super::parse::input_and_count;
use super::{Accumulation, Accumulator, Argument, Folding, absorb_each, array, check_memory};
use crate::Context;
use base::Result;
use base::bson::{Element, Value, ValueBuf};
use std::collections::VecDeque;
use std::sync::Arc;

pub(super) fn parse(name: &'static str, spec: &Element<'_>, context: &Context) -> Result<Accumulation> {
    let (input, count) = input_and_count(spec, context)?;
    let last = name == "$lastN";
    let limit = context.limits.several;
    let make = move |count| -> Box<dyn Accumulator> {
        Box::new(EndN { name, last, count, values: VecDeque::new(), held: 0, limit })
    };
    Ok(Accumulation::of(Argument::Value(input), Arc::new(make)).with_count(Some(count)))
}

struct EndN {
    name: &'static str,
    last: bool,
    count: usize,
    values: VecDeque<ValueBuf>,
    held: usize,
    limit: usize,
}

impl Accumulator for EndN {
    fn add(&mut self, argument: Option<Value<'_>>) -> Result<()> {
        if self.values.len() == self.count {
            if !self.last {
                return Ok(());
            }
            self.held -= self.values.pop_front().map_or(0, |first| first.bytes().len());
        }
        let value = argument.unwrap_or(Value::Null).to_owned();
        self.held += value.bytes().len();
        self.values.push_back(value);
        check_memory(self.name, self.memory(), self.limit)
    }

    fn finish(&self) -> Result<ValueBuf> {
        Ok(array(self.values.iter().map(ValueBuf::view)))
    }

    fn save(&self) -> ValueBuf {
        array(self.values.iter().map(ValueBuf::view))
    }

    fn absorb(&mut self, saved: Value<'_>) -> Result<()> {
        absorb_each(self, saved)
    }

    fn folding(&self) -> Folding {
        if self.last { Folding::Last(self.count) } else { Folding::First(self.count) }
    }

    fn memory(&self) -> usize {
        size_of::<EndN>() + self.held + self.values.len() * size_of::<ValueBuf>()
    }
}

#[cfg(test)]
mod tests {
    use crate::accumulator::testing::folds;

    #[test]
    fn takes_both_ends() {
        folds("{$firstN: {input: '$a', n: 2}}", "[3, null, 1]", "[3, null]");
        folds("{$lastN: {input: '$a', n: 2}}", "[3, null, 1]", "[null, 1]");
        folds("{$firstN: {input: '$missing', n: 2}}", "[3]", "[null]");
    }
}
