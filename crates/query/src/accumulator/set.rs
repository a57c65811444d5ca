//! `$addToSet` and `$setUnion`: each distinct value once, in the order first seen.

use super::array_join::not_an_array;
use super::push::Pushed;
use super::{Accumulation, Accumulator, absorb_each, check_memory};
use crate::tick::Tick;
use crate::{Collation, Context};
use base::Result;
use base::bson::{Element, Value, ValueBuf};
use std::collections::HashSet;

pub(super) fn parse_add_to_set(
    name: &'static str,
    spec: &Element<'_>,
    context: &Context,
) -> Result<Accumulation> {
    let empty = Distinct::new(context);
    Accumulation::unary(name, spec, context, move || Box::new(AddToSet(empty.clone())))
}

pub(super) fn parse_set_union(
    name: &'static str,
    spec: &Element<'_>,
    context: &Context,
) -> Result<Accumulation> {
    let empty = Distinct::new(context);
    Accumulation::unary(name, spec, context, move || Box::new(SetUnion(empty.clone())))
}

/// Distinct values: equal ones have equal keys.
#[derive(Clone)]
struct Distinct {
    seen: HashSet<Box<[u8]>, foldhash::fast::RandomState>,
    values: Pushed,
    collation: Collation,
    tick: Tick,
    held: usize,
    limit: usize,
}

impl Distinct {
    fn new(context: &Context) -> Distinct {
        Distinct {
            seen: HashSet::default(),
            values: Pushed::new(),
            collation: context.collation.clone(),
            tick: Tick::new(context),
            held: 0,
            limit: context.limits.add_to_set,
        }
    }

    /// Errors: what interrupts it.
    fn add(&mut self, value: Value<'_>) -> Result<()> {
        let mut key = Vec::new();
        self.collation.append_large_key(value, true, self.tick.interrupt(), &mut key)?;
        self.tick.weigh(key.len())?;
        if !self.seen.contains(key.as_slice()) {
            self.held += key.len() + 32;
            self.seen.insert(key.into_boxed_slice());
            self.values.push(value);
        }
        Ok(())
    }

    fn memory(&self) -> usize {
        self.held + self.values.len()
    }
}

struct AddToSet(Distinct);

impl Accumulator for AddToSet {
    fn add(&mut self, argument: Option<Value<'_>>) -> Result<()> {
        if let Some(value) = argument {
            self.0.add(value)?;
        }
        check_memory("$addToSet", self.0.memory(), self.0.limit)
    }

    fn finish(&self) -> Result<ValueBuf> {
        Ok(self.0.values.array())
    }

    fn save(&self) -> ValueBuf {
        self.0.values.array()
    }

    fn absorb(&mut self, saved: Value<'_>) -> Result<()> {
        absorb_each(self, saved)
    }

    fn memory(&self) -> usize {
        self.0.memory()
    }
}

struct SetUnion(Distinct);

impl Accumulator for SetUnion {
    /// Errors: TypeMismatch for what is neither an array nor missing.
    fn add(&mut self, argument: Option<Value<'_>>) -> Result<()> {
        match argument {
            None => return Ok(()),
            Some(Value::Array(array)) => array.iter().try_for_each(|value| self.0.add(value))?,
            Some(other) => return Err(not_an_array("$setUnion", other)),
        }
        check_memory("$setUnion", self.0.memory(), self.0.limit)
    }

    fn finish(&self) -> Result<ValueBuf> {
        Ok(self.0.values.array())
    }

    fn save(&self) -> ValueBuf {
        self.0.values.array()
    }

    fn absorb(&mut self, saved: Value<'_>) -> Result<()> {
        self.add(Some(saved))
    }

    fn memory(&self) -> usize {
        self.0.memory()
    }
}

#[cfg(test)]
mod tests {
    use crate::accumulator::testing::{folding_fails, folds};

    #[test]
    fn equal_values_count_once_whatever_their_type() {
        folds("{$addToSet: '$a'}", "[3, 3.0, null, 'x', [1], [1.0], NumberLong(3)]", "[3, null, 'x', [1]]");
        folds("{$addToSet: '$missing'}", "[3]", "[]");
        folds("{$setUnion: '$a'}", "[[1, 2], [2.0, 3]]", "[1, 2, 3]");
        folding_fails("{$setUnion: '$a'}", "[1]", 14);
    }
}
