//! `$top`, `$topN`, `$bottom`, `$bottomN`: outputs of the first or last documents in a sort order.
//!
//! ```text
//! {$top: {sortBy: <sort pattern>, output: <expression>}}
//! {$topN: {n: <expression>, sortBy: <sort pattern>, output: <expression>}}
//! ```
//!
//! [`Best`] keeps the first or last values in an order, for these operators and for `$minN` and `$maxN`.

use super::parse::parse_count;
use super::{Accumulation, Argument};
use crate::accumulator_state::{Accumulator, FEW, WindowMethod, array, check_memory, merge_each, only_value};
use crate::expression::Expression;
use crate::{Context, SortPattern};
use base::bson::{Builder, Element, Value, ValueBuf};
use base::{Result, bail, err, ordered_by};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// Parses the accumulators. Errors: 5788001 to 5788005 as in MongoDB.
pub(super) fn parse(name: &'static str, spec: &Element<'_>, context: &Context) -> Result<Accumulation> {
    let Value::Document(fields) = spec.value() else {
        bail!(5788001, "specification must be an object; found {spec}");
    };
    let many = name.ends_with('N');
    let (mut count, mut output, mut pattern) = (None, None, None);
    for field in fields {
        match field.name() {
            "n" if many => count = Some(parse_count(field.value(), context)?),
            "output" => output = Some(Expression::parse(field.value(), context)?),
            "sortBy" => {
                pattern = Some(sort_by(&field)?.require_metadata(context).collated(&context.collation))
            }
            other => bail!(5788002, "Unknown argument to {name} '{other}'"),
        }
    }
    if many && count.is_none() {
        bail!(5788003, "Missing value for 'n'");
    }
    let output = output.ok_or_else(|| err!(5788004, "Missing value for 'output'"))?;
    let pattern = pattern.ok_or_else(|| err!(5788005, "Missing value for 'sortBy'"))?;
    let bottom = name.starts_with("$bottom");
    let limit = context.limits.several;
    let make = move |count| -> Box<dyn Accumulator> {
        Box::new(Top { name, bottom, many, count, best: Best::new(count, bottom), bytes: 0, limit })
    };
    Ok(Accumulation::of(Argument::Sorted(pattern, output), Arc::new(make)).with_count(count))
}

/// Parses the sort pattern. An array counts as a document, as in MongoDB.
///
/// Errors: 10065 for other values, 5788604 for no field.
fn sort_by(field: &Element<'_>) -> Result<SortPattern> {
    let spec = match field.value() {
        Value::Document(spec) => spec,
        Value::Array(spec) => spec.as_document(),
        _ => bail!(10065, "invalid parameter: expected an object (sortBy)"),
    };
    if spec.is_empty() {
        bail!(5788604, "expected 'sortBy' to be an object with at least one field, found {field}");
    }
    SortPattern::parse(spec)
}

/// The state of all four accumulators. `many` is true for `$topN` and `$bottomN`.
struct Top {
    name: &'static str,
    bottom: bool,
    many: bool,
    count: usize,
    best: Best<Keyed>,
    bytes: usize,
    limit: usize,
}

/// An output and its sort key.
struct Keyed {
    key: Vec<u8>,
    value: ValueBuf,
}

impl Keyed {
    fn bytes(&self) -> usize {
        self.key.len() + self.value.bytes().len()
    }
}

impl Ranked for Keyed {
    fn rank(&self, other: &Keyed) -> Ordering {
        self.key.cmp(&other.key)
    }
}

impl Accumulator for Top {
    /// Takes `{k: sort key, v: output}`.
    fn add(&mut self, argument: Option<Value<'_>>) -> Result<()> {
        let Some(Value::Document(argument)) = argument else { return Ok(()) };
        let (Some(Value::Binary { bytes: key, .. }), Some(value)) = (argument.get("k"), argument.get("v"))
        else {
            return Ok(());
        };
        if self.best.worst().map(|worst| key.cmp(&worst.key)).is_some_and(|order| match self.bottom {
            true => order.is_lt(),
            false => order.is_ge(),
        }) {
            return Ok(());
        }
        let keyed = Keyed { key: key.to_vec(), value: value.to_owned() };
        self.bytes += keyed.bytes();
        self.bytes -= self.best.add(keyed).as_ref().map_or(0, Keyed::bytes);
        check_memory(self.name, self.memory(), self.limit)
    }

    fn finish(&self) -> Result<ValueBuf> {
        if self.many {
            return Ok(array(self.best.sorted().map(|keyed| keyed.value.view())));
        }
        Ok(self.best.sorted().next().map_or_else(ValueBuf::null, |keyed| keyed.value.clone()))
    }

    fn save(&self) -> ValueBuf {
        let mut builder = Builder::new();
        builder.begin_array(c"");
        for keyed in self.best.sorted() {
            let key = Value::Binary { subtype: 0, bytes: &keyed.key };
            builder.push_document().append(c"k", key).append(c"v", &keyed.value).end();
        }
        only_value(builder)
    }

    fn merge(&mut self, saved: Value<'_>) -> Result<()> {
        merge_each(self, saved)
    }

    fn window_method(&self) -> WindowMethod {
        if self.count <= FEW { WindowMethod::Merge } else { WindowMethod::Recompute }
    }

    fn memory(&self) -> usize {
        size_of::<Top>() + self.bytes + self.best.len() * size_of::<Keyed>()
    }
}

/// A value and its place in an order.
pub(super) trait Ranked {
    /// Compares the places of two values.
    fn rank(&self, other: &Self) -> Ordering;
}

/// At most `count` values. Equal values are in order of arrival.
pub(super) struct Best<T> {
    count: usize,
    bottom: bool,
    /// The value that another one would replace is at the top.
    heap: BinaryHeap<Entry<T>>,
    arrived: u64,
}

impl<T: Ranked> Best<T> {
    /// Creates an empty heap, which keeps the last values if `bottom`, otherwise the first ones.
    pub(super) fn new(count: usize, bottom: bool) -> Best<T> {
        Best { count, bottom, heap: BinaryHeap::new(), arrived: 0 }
    }

    /// Returns the value that another one would replace; `None` if there is room.
    pub(super) fn worst(&self) -> Option<&T> {
        self.heap.peek().filter(|_| self.heap.len() >= self.count).map(|entry| &entry.value)
    }

    /// Adds a value. Returns the value that is too many, which may be the new one.
    pub(super) fn add(&mut self, value: T) -> Option<T> {
        self.arrived += 1;
        self.heap.push(Entry { value, arrived: self.arrived, bottom: self.bottom });
        if self.heap.len() > self.count { self.heap.pop().map(|entry| entry.value) } else { None }
    }

    /// Returns the values in order.
    pub(super) fn sorted(&self) -> impl Iterator<Item = &T> {
        let mut entries: Vec<_> = self.heap.iter().collect();
        entries.sort_unstable_by(|a, b| a.order(b));
        entries.into_iter().map(|entry| &entry.value)
    }

    /// Returns the number of values.
    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }
}

struct Entry<T> {
    value: T,
    arrived: u64,
    bottom: bool,
}

impl<T: Ranked> Entry<T> {
    fn order(&self, other: &Entry<T>) -> Ordering {
        self.value.rank(&other.value).then(self.arrived.cmp(&other.arrived))
    }
}

ordered_by!([T: Ranked] Entry<T>, |one, other| if one.bottom { other.order(one) } else { one.order(other) });

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accumulator::testing::{folds, refuses};

    #[test]
    fn sorts_and_takes_an_end() {
        folds("{$top: {sortBy: {a: 1}, output: '$a'}}", "[3, 1, 2]", "1");
        folds("{$bottom: {sortBy: {a: 1}, output: '$a'}}", "[3, 1, 2]", "3");
        folds("{$topN: {n: 2, sortBy: {a: -1}, output: '$a'}}", "[3, 1, 2]", "[3, 2]");
        folds("{$bottomN: {n: 2, sortBy: {a: -1}, output: '$a'}}", "[3, 1, 2]", "[2, 1]");
        folds("{$topN: {n: 2, sortBy: {a: 1}, output: '$missing'}}", "[3]", "[null]");
        folds("{$top: {sortBy: [1], output: '$a'}}", "[3, 1]", "3");
    }

    #[test]
    fn refuses_incomplete_specifications() {
        refuses("{$top: 1}", 5788001, "specification must be an object");
        refuses("{$top: {n: 1, sortBy: {a: 1}, output: 1}}", 5788002, "Unknown argument to $top 'n'");
        refuses("{$topN: {sortBy: {a: 1}, output: 1}}", 5788003, "Missing value for 'n'");
        refuses("{$top: {sortBy: {a: 1}}}", 5788004, "Missing value for 'output'");
        refuses("{$top: {output: 1}}", 5788005, "Missing value for 'sortBy'");
        refuses("{$top: {sortBy: 'a', output: 1}}", 10065, "expected an object (sortBy)");
        refuses("{$top: {sortBy: {}, output: 1}}", 5788604, "at least one field");
    }

    impl Ranked for (&str, i32) {
        fn rank(&self, other: &(&str, i32)) -> Ordering {
            self.0.cmp(other.0)
        }
    }

    #[test]
    fn equal_values_are_in_order_of_arrival() {
        let kept = |bottom| {
            let mut best = Best::new(3, bottom);
            for value in [("b", 0), ("a", 1), ("b", 2), ("c", 3), ("a", 4), ("b", 5)] {
                best.add(value);
            }
            best.sorted().map(|(_, at)| *at).collect::<Vec<_>>()
        };
        assert_eq!(kept(false), [1, 4, 0]);
        assert_eq!(kept(true), [2, 5, 3]);
    }
}
