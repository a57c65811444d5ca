//! Accumulators: what `$group`, `$bucket` and `$setWindowFields` fold many documents into one
//! value with.
//!
//! An [`Accumulation`] is the parsed half (`{$sum: "$a"}`): it computes one argument for each
//! document. An [`Accumulator`] is the running half, one for each group: it takes arguments and
//! gives the result. The argument is a plain value, so a group can be spilled and replayed.
//!
//! The table of accumulators, sorted by name.

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

/// How an accumulator is folded over windows that slide over many documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Folding {
    /// Each window by itself: the result is about as long as the window anyway.
    Anew,
    /// By joining states, which stay small.
    Joins,
    /// By taking arguments back.
    Removes,
    /// Each by itself, of which only so many documents at the start matter.
    First(usize),
    /// Each by itself, of which only so many documents at the end matter.
    Last(usize),
}

/// The most values of a state that is small.
const FEW: usize = 16;

/// The running half of an accumulator: the state of one group.
pub(crate) trait Accumulator: Send {
    /// Takes the argument of one more document; `None` is missing.
    fn add(&mut self, argument: Option<Value<'_>>) -> Result<()>;

    /// The result so far.
    fn finish(&self) -> Result<ValueBuf>;

    /// The state as a value that [`absorb`](Self::absorb) takes: for spilling, and for joining what
    /// was folded piece by piece.
    fn save(&self) -> ValueBuf;

    /// Goes on as if it had also been given, after its own, the arguments that a saved state was
    /// made of.
    fn absorb(&mut self, saved: Value<'_>) -> Result<()>;

    /// Says, before anything is added, that arguments will be taken back, and the result asked for in between.
    /// Only for those that [fold](Self::folding) by removing.
    fn expect_removals(&mut self) {}

    /// Takes an argument back that was added before all others that are left. Only for those that
    /// [fold](Self::folding) by removing.
    fn remove(&mut self, _argument: Option<Value<'_>>) {}

    /// How it is best folded over a window that slides.
    fn folding(&self) -> Folding {
        Folding::Anew
    }

    /// Bytes held, roughly.
    fn memory(&self) -> usize;

    /// Whether adding may hold more bytes than before.
    fn grows(&self) -> bool {
        true
    }
}

/// The names of all accumulators, sorted.
pub fn accumulators() -> impl Iterator<Item = &'static str> {
    ACCUMULATORS.iter().map(|entry| entry.name)
}

/// An array of these values.
pub(crate) fn array<'v>(values: impl IntoIterator<Item = Value<'v>>) -> ValueBuf {
    let mut builder = Builder::new();
    builder.begin_array(c"");
    for value in values {
        builder.push(value);
    }
    only_value(builder)
}

/// The value of the only field of what is being built.
pub(crate) fn only_value(builder: Builder) -> ValueBuf {
    let document = builder.finish();
    document.view().first().map_or_else(ValueBuf::null, |element| element.value().to_owned())
}

/// Adds each element of a saved array.
pub(crate) fn absorb_each(accumulator: &mut dyn Accumulator, saved: Value<'_>) -> Result<()> {
    let Value::Array(arguments) = saved else { return Ok(()) };
    arguments.iter().try_for_each(|argument| accumulator.add(Some(argument)))
}

/// Errors: ExceededMemoryLimit beyond what one accumulator may hold.
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

/// One accumulator of the table.
pub(crate) struct Entry {
    /// The name, `$` included.
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

/// The accumulator with this name.
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
