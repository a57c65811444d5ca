//! Accumulators: fold many documents into one value for `$group`, `$bucket` and `$setWindowFields`.
//!
//! An [`Accumulation`] is the parsed part (`{$sum: "$a"}`): it computes one argument per document. An [`Accumulator`]
//! is the state of one group: it takes arguments and returns the result. The argument is a plain value, so a group can
//! be spilled and replayed.
//!
//! The module also has the table of accumulators, sorted by name.

mod collect;
mod extreme;
mod parse;
mod percentile;
mod sum;
#[cfg(test)]
pub(crate) mod testing;
mod top;

pub(crate) use parse::{Accumulation, Argument, count_value, parse_field};
pub(crate) use percentile::Ranked;
pub(crate) use sum::{Deviation, Total};

use crate::Context;
use base::bson::{Builder, Element, Value, ValueBuf};
use base::{Result, err};

/// Method of folding an accumulator over sliding windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Folding {
    /// Each window from scratch, because the result is about as long as the window.
    Anew,
    /// By joining states, which stay small.
    Joins,
    /// By removing arguments.
    Removes,
    /// Each window from scratch; only this number of documents at its start matters.
    First(usize),
    /// Each window from scratch; only this number of documents at its end matters.
    Last(usize),
}

/// Maximum number of values in a small state.
const FEW: usize = 16;

/// The state of an accumulator for one group.
pub(crate) trait Accumulator: Send {
    /// Adds the argument of one document; `None` means missing.
    fn add(&mut self, argument: Option<Value<'_>>) -> Result<()>;

    /// Returns the result so far.
    fn finish(&self) -> Result<ValueBuf>;

    /// Returns the state as a value for [`absorb`](Self::absorb), to spill groups and to join partial results.
    fn save(&self) -> ValueBuf;

    /// Adds a saved state, as if its arguments had been added after the present ones.
    fn absorb(&mut self, saved: Value<'_>) -> Result<()>;

    /// Announces, before any argument is added, that arguments will be removed and intermediate results read. Only for
    /// accumulators that [fold](Self::folding) by removing.
    fn expect_removals(&mut self) {}

    /// Removes the oldest argument. Only for accumulators that [fold](Self::folding) by removing.
    fn remove(&mut self, _argument: Option<Value<'_>>) {}

    /// The best method of folding over a sliding window.
    fn folding(&self) -> Folding {
        Folding::Anew
    }

    /// Approximate memory in bytes.
    fn memory(&self) -> usize;

    /// Whether adding may increase the memory.
    fn grows(&self) -> bool {
        true
    }
}

/// Returns the names of all accumulators, sorted.
pub fn accumulators() -> impl Iterator<Item = &'static str> {
    ACCUMULATORS.iter().map(|entry| entry.name)
}

/// Returns an array of these values.
pub(crate) fn array<'v>(values: impl IntoIterator<Item = Value<'v>>) -> ValueBuf {
    let mut builder = Builder::new();
    builder.begin_array(c"");
    for value in values {
        builder.push(value);
    }
    only_value(builder)
}

/// Returns the value of the only field in a builder.
pub(crate) fn only_value(builder: Builder) -> ValueBuf {
    let document = builder.finish();
    document.view().first().map_or_else(ValueBuf::null, |element| element.value().to_owned())
}

/// Adds each element of a saved array.
pub(crate) fn absorb_each(accumulator: &mut dyn Accumulator, saved: Value<'_>) -> Result<()> {
    let Value::Array(arguments) = saved else { return Ok(()) };
    arguments.iter().try_for_each(|argument| accumulator.add(Some(argument)))
}

/// Checks the memory limit of an accumulator. Errors: ExceededMemoryLimit.
pub(crate) fn check_memory(name: &str, held: usize, limit: usize) -> Result<()> {
    if held <= limit {
        return Ok(());
    }
    Err(err!(
        ExceededMemoryLimit,
        "{name} used too much memory and spilling to disk cannot reduce memory consumption any further. \
         Memory limit: {limit} bytes"
    ))
}

/// An entry of the table of accumulators.
pub(crate) struct Entry {
    /// The name, including `$`.
    pub(crate) name: &'static str,
    pub(crate) parse: fn(&'static str, &Element<'_>, &Context) -> Result<Accumulation>,
}

const fn entry(
    name: &'static str,
    parse: fn(&'static str, &Element<'_>, &Context) -> Result<Accumulation>,
) -> Entry {
    Entry { name, parse }
}

/// Every accumulator.
pub(crate) const ACCUMULATORS: &[Entry] = &[
    entry("$accumulator", refuse),
    entry("$addToSet", collect::parse_add_to_set),
    entry("$avg", sum::parse_avg),
    entry("$bottom", top::parse),
    entry("$bottomN", top::parse),
    entry("$concatArrays", collect::parse_array_join),
    entry("$count", sum::parse_count),
    entry("$first", extreme::parse_first_last),
    entry("$firstN", extreme::parse_first_last_n),
    entry("$last", extreme::parse_first_last),
    entry("$lastN", extreme::parse_first_last_n),
    entry("$max", extreme::parse_extreme),
    entry("$maxN", extreme::parse_extreme_n),
    entry("$median", percentile::parse),
    entry("$mergeObjects", collect::parse_merge_objects),
    entry("$min", extreme::parse_extreme),
    entry("$minN", extreme::parse_extreme_n),
    entry("$percentile", percentile::parse),
    entry("$push", collect::parse_push),
    entry("$setUnion", collect::parse_set_union),
    entry("$stdDevPop", sum::parse_std_dev),
    entry("$stdDevSamp", sum::parse_std_dev),
    entry("$sum", sum::parse_sum),
    entry("$top", top::parse),
    entry("$topN", top::parse),
];

fn refuse(name: &'static str, _spec: &Element<'_>, _context: &Context) -> Result<Accumulation> {
    Err(err!(NotImplemented, "{name} is not implemented: there is no server-side JavaScript"))
}

/// Returns the accumulator with this name.
pub(crate) fn find(name: &str) -> Option<&'static Entry> {
    let at = ACCUMULATORS.binary_search_by_key(&name, |entry| entry.name).ok()?;
    ACCUMULATORS.get(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted() {
        assert!(ACCUMULATORS.windows(2).all(|pair| pair[0].name < pair[1].name));
        assert!(find("$sum").is_some() && find("$nope").is_none());
    }
}
