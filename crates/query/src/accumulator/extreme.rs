//! `$min` and `$max`: the least and greatest value in MongoDB's order, ignoring null and missing.
//!
//! `$minN` and `$maxN`: the n least or greatest values, best first, ignoring null and missing.
//!
//! `$first` and `$last`: the value of the first or last document; null if missing.
//!
//! `$firstN` and `$lastN`: the values of the first or last n documents; missing counts as null.
//!
//! ```text
//! {$min: <expression>}    {$minN: {input: <expression>, n: <expression>}}
//! ```

use super::parse::input_and_count;
use super::top::{Best, Ranked};
use super::{Accumulation, Argument};
use crate::accumulator_state::{Accumulator, FEW, WindowMethod, array, check_memory, merge_each, only_value};
use crate::{Collation, Context};
use base::Result;
use base::bson::{Builder, Element, Value, ValueBuf};
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;

/// Parses `$min` and `$max`.
pub(super) fn parse_extreme(
    name: &'static str,
    spec: &Element<'_>,
    context: &Context,
) -> Result<Accumulation> {
    let better_order = if name == "$min" { Ordering::Less } else { Ordering::Greater };
    let collation = context.collation.clone();
    Accumulation::unary(name, spec, context, move || {
        Box::new(Extreme { better_order, best: None, collation: collation.clone() })
    })
}

/// The state of `$min` and `$max`. `better_order` is the order of a better value to the best so
/// far.
struct Extreme {
    better_order: Ordering,
    best: Option<ValueBuf>,
    collation: Collation,
}

impl Accumulator for Extreme {
    fn add(&mut self, argument: Option<Value<'_>>) -> Result<()> {
        let Some(value) = argument.filter(|value| !value.is_nullish()) else { return Ok(()) };
        let order = |best: &ValueBuf| self.collation.compare(value, best.view());
        let better = self.best.as_ref().is_none_or(|best| order(best) == self.better_order);
        if better {
            self.best = Some(value.to_owned());
        }
        Ok(())
    }

    fn save(&self) -> ValueBuf {
        self.best.clone().unwrap_or_else(ValueBuf::null)
    }

    fn window_method(&self) -> WindowMethod {
        WindowMethod::Merge
    }

    fn memory(&self) -> usize {
        size_of::<Extreme>() + self.best.as_ref().map_or(0, |best| best.bytes().len())
    }
}

/// Parses `$minN` and `$maxN`. Errors: the errors of [`input_and_count`].
pub(super) fn parse_extreme_n(
    name: &'static str,
    spec: &Element<'_>,
    context: &Context,
) -> Result<Accumulation> {
    let (input, count) = input_and_count(spec, context)?;
    let greatest = name == "$maxN";
    let collation = context.collation.clone();
    let limit = context.limits.several;
    let make = move |count| -> Box<dyn Accumulator> {
        let collation = collation.clone();
        Box::new(ExtremeN { name, greatest, count, collation, best: Best::new(count, false), held: 0, limit })
    };
    Ok(Accumulation::of(Argument::Value(input), Arc::new(make)).with_count(Some(count)))
}

/// The state of `$minN` and `$maxN`.
struct ExtremeN {
    name: &'static str,
    greatest: bool,
    count: usize,
    collation: Collation,
    best: Best<Candidate>,
    held: usize,
    limit: usize,
}

/// A value in the order of the result.
struct Candidate {
    value: ValueBuf,
    greatest: bool,
    collation: Collation,
}

impl Candidate {
    fn order(&self, other: Value<'_>) -> Ordering {
        let order = self.collation.compare(self.value.view(), other);
        if self.greatest { order.reverse() } else { order }
    }
}

impl Ranked for Candidate {
    fn rank(&self, other: &Candidate) -> Ordering {
        self.order(other.value.view())
    }
}

impl Accumulator for ExtremeN {
    fn add(&mut self, argument: Option<Value<'_>>) -> Result<()> {
        let Some(value) = argument.filter(|value| !value.is_nullish()) else { return Ok(()) };
        if self.best.worst().is_some_and(|worst| worst.order(value).is_le()) {
            return Ok(());
        }
        let value = value.to_owned();
        self.held += value.bytes().len();
        let candidate = Candidate { value, greatest: self.greatest, collation: self.collation.clone() };
        self.held -= self.best.add(candidate).map_or(0, |last| last.value.bytes().len());
        check_memory(self.name, self.memory(), self.limit)
    }

    fn save(&self) -> ValueBuf {
        array(self.best.sorted().map(|candidate| candidate.value.view()))
    }

    fn merge(&mut self, saved: Value<'_>) -> Result<()> {
        merge_each(self, saved)
    }

    fn window_method(&self) -> WindowMethod {
        if self.count <= FEW { WindowMethod::Merge } else { WindowMethod::Recompute }
    }

    fn memory(&self) -> usize {
        size_of::<ExtremeN>() + self.held + self.best.len() * size_of::<ValueBuf>()
    }
}

/// Parses `$first` and `$last`.
pub(super) fn parse_first_last(
    name: &'static str,
    spec: &Element<'_>,
    context: &Context,
) -> Result<Accumulation> {
    let last = name == "$last";
    Accumulation::unary(name, spec, context, move || Box::new(End { last, seen: false, value: None }))
}

/// The state of `$first` and `$last`. `seen` distinguishes a missing value from no document.
struct End {
    last: bool,
    seen: bool,
    value: Option<ValueBuf>,
}

impl Accumulator for End {
    fn add(&mut self, argument: Option<Value<'_>>) -> Result<()> {
        if self.last || !self.seen {
            self.value = argument.map(|value| value.to_owned());
            self.seen = true;
        }
        Ok(())
    }

    fn finish(&self) -> Result<ValueBuf> {
        Ok(self.value.clone().unwrap_or_else(ValueBuf::null))
    }

    /// Saves the state: `{}` is a missing value, null means no document.
    fn save(&self) -> ValueBuf {
        if !self.seen {
            return ValueBuf::null();
        }
        let mut builder = Builder::new();
        builder.begin_document(c"").append_optional(c"v", self.value.as_ref());
        only_value(builder)
    }

    fn merge(&mut self, saved: Value<'_>) -> Result<()> {
        match saved {
            Value::Document(end) => self.add(end.get("v")),
            _ => Ok(()),
        }
    }

    fn window_method(&self) -> WindowMethod {
        if self.last { WindowMethod::LastN(1) } else { WindowMethod::FirstN(1) }
    }

    fn memory(&self) -> usize {
        size_of::<End>() + self.value.as_ref().map_or(0, |value| value.bytes().len())
    }
}

/// Parses `$firstN` and `$lastN`. Errors: the errors of [`input_and_count`].
pub(super) fn parse_first_last_n(
    name: &'static str,
    spec: &Element<'_>,
    context: &Context,
) -> Result<Accumulation> {
    let (input, count) = input_and_count(spec, context)?;
    let last = name == "$lastN";
    let limit = context.limits.several;
    let make = move |count| -> Box<dyn Accumulator> {
        Box::new(EndN { name, last, count, values: VecDeque::new(), held: 0, limit })
    };
    Ok(Accumulation::of(Argument::Value(input), Arc::new(make)).with_count(Some(count)))
}

/// The state of `$firstN` and `$lastN`.
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

    fn save(&self) -> ValueBuf {
        array(self.values.iter().map(ValueBuf::view))
    }

    fn merge(&mut self, saved: Value<'_>) -> Result<()> {
        merge_each(self, saved)
    }

    fn window_method(&self) -> WindowMethod {
        if self.last { WindowMethod::LastN(self.count) } else { WindowMethod::FirstN(self.count) }
    }

    fn memory(&self) -> usize {
        size_of::<EndN>() + self.held + self.values.len() * size_of::<ValueBuf>()
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

#[cfg(test)]
mod extreme_n_tests {
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

#[cfg(test)]
mod first_last_tests {
    use crate::accumulator::testing::folds;

    #[test]
    fn takes_the_first_and_the_last() {
        folds("{$first: '$a'}", "[3, 1, 2]", "3");
        folds("{$last: '$a'}", "[3, 1, 2]", "2");
        folds("{$first: '$missing'}", "[3]", "null");
    }
}

#[cfg(test)]
mod first_last_n_tests {
    use crate::accumulator::testing::folds;

    #[test]
    fn takes_both_ends() {
        folds("{$firstN: {input: '$a', n: 2}}", "[3, null, 1]", "[3, null]");
        folds("{$lastN: {input: '$a', n: 2}}", "[3, null, 1]", "[null, 1]");
        folds("{$firstN: {input: '$missing', n: 2}}", "[3]", "[null]");
    }
}
