//! Accumulators: fold many documents into one value for `$group`, `$bucket` and `$setWindowFields`.
//!
//! An [`Accumulation`] is the parsed part (`{$sum: "$a"}`): it computes one argument per document. An
//! [`Accumulator`](crate::accumulator_state::Accumulator) is the state of one group: it takes arguments and returns the
//! result. The argument is a plain value, so a group can be spilled and replayed.
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

use crate::Context;
use base::bson::Element;
use base::{Result, err};

/// Returns the names of all accumulators, sorted.
pub fn accumulators() -> impl Iterator<Item = &'static str> {
    ACCUMULATORS.iter().map(|entry| entry.name)
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
    entry("$concatArrays", collect::parse_concat_arrays),
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
    Err(err!(NotImplemented, "{name} is not implemented: server-side JavaScript is not supported"))
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
