//! The table of accumulators, sorted by name.

use super::parse::Accumulation;
use super::*;
use crate::Context;
use base::bson::Element;

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
    entry("$addToSet", set::parse_add_to_set),
    entry("$avg", avg::parse),
    entry("$bottom", top::parse),
    entry("$bottomN", top::parse),
    entry("$concatArrays", array_join::parse),
    entry("$count", count::parse),
    entry("$first", first_last::parse),
    entry("$firstN", first_last_n::parse),
    entry("$last", first_last::parse),
    entry("$lastN", first_last_n::parse),
    entry("$max", extreme::parse),
    entry("$maxN", extreme_n::parse),
    entry("$median", percentile::parse),
    entry("$mergeObjects", merge_objects::parse),
    entry("$min", extreme::parse),
    entry("$minN", extreme_n::parse),
    entry("$percentile", percentile::parse),
    entry("$push", push::parse),
    entry("$setUnion", set::parse_set_union),
    entry("$stdDevPop", std_dev::parse),
    entry("$stdDevSamp", std_dev::parse),
    entry("$sum", sum::parse),
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
