//! Accumulators that collect values. Their states grow with the input, up to a memory limit.
//!
//! - `$push`: all values in an array; missing values are ignored.
//! - `$addToSet` and `$setUnion`: each distinct value once, in the order of first occurrence.
//! - `$concatArrays`: the elements of all arrays in sequence.
//! - `$mergeObjects`: the fields of all documents; later values win, in the position of the first.
//!
//! A new accumulator of this kind is a parser here, an [`Accumulator`] and a row of the table of accumulators.

use super::Accumulation;
use crate::accumulator_state::{Accumulator, check_memory, merge_each, only_value};
use crate::interrupt_check::InterruptCheck;
use crate::{Collation, Context};
use base::bson::{Builder, Element, FieldNameBuf, Value, ValueBuf};
use base::{Result, err};
use std::collections::{HashMap, HashSet};

pub(super) fn parse_push(name: &'static str, spec: &Element<'_>, context: &Context) -> Result<Accumulation> {
    let limit = context.limits.push;
    Accumulation::unary(name, spec, context, move || Box::new(Push { values: ArrayBuilder::new(), limit }))
}

/// A growing array in its final encoding.
#[derive(Clone)]
pub(super) struct ArrayBuilder {
    builder: Builder,
}

impl ArrayBuilder {
    pub(super) fn new() -> ArrayBuilder {
        let mut builder = Builder::new();
        builder.begin_array(c"");
        ArrayBuilder { builder }
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

/// The state of `$push`.
struct Push {
    values: ArrayBuilder,
    limit: usize,
}

impl Accumulator for Push {
    fn add(&mut self, argument: Option<Value<'_>>) -> Result<()> {
        if let Some(value) = argument {
            self.values.push(value);
        }
        check_memory("$push", self.values.len(), self.limit)
    }

    fn save(&self) -> ValueBuf {
        self.values.array()
    }

    fn merge(&mut self, saved: Value<'_>) -> Result<()> {
        merge_each(self, saved)
    }

    fn memory(&self) -> usize {
        size_of::<Push>() + self.values.len()
    }
}

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

/// Distinct values; equal values have equal keys.
#[derive(Clone)]
struct Distinct {
    seen: HashSet<Box<[u8]>, foldhash::fast::RandomState>,
    values: ArrayBuilder,
    collation: Collation,
    interrupts: InterruptCheck,
    /// Memory of the keys in bytes.
    key_bytes: usize,
    limit: usize,
}

impl Distinct {
    fn new(context: &Context) -> Distinct {
        Distinct {
            seen: HashSet::default(),
            values: ArrayBuilder::new(),
            collation: context.collation.clone(),
            interrupts: InterruptCheck::new(context),
            key_bytes: 0,
            limit: context.limits.add_to_set,
        }
    }

    /// Adds a value. Errors: interruption.
    fn add(&mut self, value: Value<'_>) -> Result<()> {
        let mut key = Vec::new();
        self.collation.append_large_key(value, true, self.interrupts.interrupt(), &mut key)?;
        self.interrupts.check_bytes(key.len())?;
        if !self.seen.contains(key.as_slice()) {
            self.key_bytes += key.len() + 32;
            self.seen.insert(key.into_boxed_slice());
            self.values.push(value);
        }
        Ok(())
    }

    fn memory(&self) -> usize {
        self.key_bytes + self.values.len()
    }
}

/// The state of `$addToSet`.
struct AddToSet(Distinct);

impl Accumulator for AddToSet {
    fn add(&mut self, argument: Option<Value<'_>>) -> Result<()> {
        if let Some(value) = argument {
            self.0.add(value)?;
        }
        check_memory("$addToSet", self.0.memory(), self.0.limit)
    }

    fn save(&self) -> ValueBuf {
        self.0.values.array()
    }

    fn merge(&mut self, saved: Value<'_>) -> Result<()> {
        merge_each(self, saved)
    }

    fn memory(&self) -> usize {
        self.0.memory()
    }
}

/// The state of `$setUnion`, whose arguments are arrays.
struct SetUnion(Distinct);

impl Accumulator for SetUnion {
    /// Adds an argument. Errors: TypeMismatch for a value that is neither an array nor missing.
    fn add(&mut self, argument: Option<Value<'_>>) -> Result<()> {
        match argument {
            None => return Ok(()),
            Some(Value::Array(array)) => array.iter().try_for_each(|value| self.0.add(value))?,
            Some(other) => return Err(not_an_array("$setUnion", other)),
        }
        check_memory("$setUnion", self.0.memory(), self.0.limit)
    }

    fn save(&self) -> ValueBuf {
        self.0.values.array()
    }

    fn memory(&self) -> usize {
        self.0.memory()
    }
}

pub(super) fn parse_concat_arrays(
    name: &'static str,
    spec: &Element<'_>,
    context: &Context,
) -> Result<Accumulation> {
    let limit = context.limits.push;
    Accumulation::unary(name, spec, context, move || Box::new(Concat { values: ArrayBuilder::new(), limit }))
}

/// The state of `$concatArrays`.
struct Concat {
    values: ArrayBuilder,
    limit: usize,
}

impl Accumulator for Concat {
    /// Adds an argument. Errors: TypeMismatch for a value that is neither an array nor missing.
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

    fn save(&self) -> ValueBuf {
        self.values.array()
    }

    fn memory(&self) -> usize {
        size_of::<Concat>() + self.values.len()
    }
}

/// Returns the error of accumulators that take arrays.
pub(super) fn not_an_array(name: &str, found: Value<'_>) -> base::Error {
    err!(TypeMismatch, "{name} requires array inputs, but input {found} is of type {}", found.kind().alias())
}

pub(super) fn parse_merge_objects(
    name: &'static str,
    spec: &Element<'_>,
    context: &Context,
) -> Result<Accumulation> {
    let limit = context.limits.push;
    Accumulation::unary(name, spec, context, move || Box::new(Merged { limit, ..Merged::default() }))
}

/// The state of `$mergeObjects`: the merged fields so far.
#[derive(Default)]
struct Merged {
    fields: Vec<(FieldNameBuf, ValueBuf)>,
    positions: HashMap<FieldNameBuf, usize, foldhash::fast::RandomState>,
    /// Bytes of names and values.
    bytes: usize,
    limit: usize,
}

impl Merged {
    fn set(&mut self, field: &Element<'_>) {
        let value = field.value().to_owned();
        self.bytes += field.value_bytes().len();
        match self.positions.get(field.name()).and_then(|position| self.fields.get_mut(*position)) {
            Some((_, old)) => {
                self.bytes -= old.bytes().len();
                *old = value;
            }
            None => {
                let name = field.field_name().to_owned();
                self.bytes += 2 + name.len();
                self.positions.insert(name.clone(), self.fields.len());
                self.fields.push((name, value));
            }
        }
    }

    fn document(&self) -> ValueBuf {
        let mut builder = Builder::new();
        builder.begin_document(c"");
        for (name, value) in &self.fields {
            builder.append(name, value);
        }
        only_value(builder)
    }
}

impl Accumulator for Merged {
    /// Adds an argument. Errors: 5911200 for a value that is neither a document nor null or missing.
    fn add(&mut self, argument: Option<Value<'_>>) -> Result<()> {
        match argument {
            None | Some(Value::Null | Value::Undefined) => Ok(()),
            Some(Value::Document(document)) => {
                document.iter().for_each(|field| self.set(&field));
                check_memory("$mergeObjects", self.memory(), self.limit)
            }
            Some(other) => Err(err!(
                5911200,
                "$mergeObjects requires object inputs, but input {other} is of type {}",
                other.kind().alias()
            )),
        }
    }

    fn save(&self) -> ValueBuf {
        self.document()
    }

    fn memory(&self) -> usize {
        size_of::<Merged>() + self.bytes
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

#[cfg(test)]
mod set_tests {
    use crate::accumulator::testing::{folding_fails, folds};

    #[test]
    fn equal_values_of_different_types_count_once() {
        folds("{$addToSet: '$a'}", "[3, 3.0, null, 'x', [1], [1.0], NumberLong(3)]", "[3, null, 'x', [1]]");
        folds("{$addToSet: '$missing'}", "[3]", "[]");
        folds("{$setUnion: '$a'}", "[[1, 2], [2.0, 3]]", "[1, 2, 3]");
        folding_fails("{$setUnion: '$a'}", "[1]", 14);
    }
}

#[cfg(test)]
mod concat_arrays_tests {
    use crate::accumulator::testing::{folding_fails, folds};

    #[test]
    fn joins_arrays() {
        folds("{$concatArrays: '$a'}", "[[1], [], [[2], 3]]", "[1, [2], 3]");
        folds("{$concatArrays: '$missing'}", "[[1]]", "[]");
        folding_fails("{$concatArrays: '$a'}", "[1]", 14);
    }
}

#[cfg(test)]
mod merge_objects_tests {
    use crate::accumulator::testing::{folding_fails, folds};

    #[test]
    fn later_documents_win_in_the_earlier_place() {
        folds("{$mergeObjects: '$a'}", "[{x: 1, y: 2}, null, {z: 3, x: 4}]", "{x: 4, y: 2, z: 3}");
        folds("{$mergeObjects: '$a'}", "[]", "{}");
        folds(
            "{$mergeObjects: '$a'}",
            "[{x: 1, y: 'long'}, {y: null, z: {}}, {x: [1]}]",
            "{x: [1], y: null, z: {}}",
        );
        folding_fails("{$mergeObjects: '$a'}", "[1]", 5911200);
    }
}
