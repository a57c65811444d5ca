//! Constants in order: the elements of an array for `$in` and `$setIsSubset`, the boundaries of a `$switch` over
//! ranges.

use crate::interrupt_check::sort_in_runs;
use crate::{Collation, Context};
use base::Result;
use base::bson::{Array, Value, ValueBuf};

/// Number of elements from which a binary search is faster than a scan.
const MANY: usize = 16;

/// Constants in the order of a collation.
#[derive(Debug)]
pub(crate) struct Members {
    sorted: Vec<ValueBuf>,
    collation: Collation,
}

impl Members {
    /// Sorts the elements; `None` for a short array. Errors: interruption.
    pub(super) fn new(array: Array<'_>, context: &Context) -> Result<Option<Members>> {
        if array.iter().nth(MANY - 1).is_none() {
            return Ok(None);
        }
        let collation = context.collation.clone();
        let mut sorted: Vec<ValueBuf> = array.iter().map(|element| element.to_owned()).collect();
        sort_in_runs(&mut sorted, &*context.interrupt, |a, b| collation.compare(a.view(), b.view()))?;
        Ok(Some(Members { sorted, collation }))
    }

    /// Takes boundaries; `None` unless they ascend.
    pub(super) fn of_ranges(boundaries: Vec<&ValueBuf>, collation: &Collation) -> Option<Members> {
        let ascend = |(a, b): (&&ValueBuf, &&ValueBuf)| collation.compare(a.view(), b.view()).is_lt();
        let are_sorted = boundaries.iter().zip(boundaries.iter().skip(1)).all(ascend);
        let sorted = || boundaries.into_iter().cloned().collect();
        are_sorted.then(|| Members { sorted: sorted(), collation: collation.clone() })
    }

    /// Returns the range of a value, `Some(None)` if it is outside; `None` if the boundaries are sorted for another
    /// collation.
    pub(super) fn range_of(&self, value: Option<Value<'_>>, collation: &Collation) -> Option<Option<usize>> {
        let is_above = |boundary: &ValueBuf| collation.compare_optional(Some(boundary.view()), value).is_le();
        let boundaries = || self.sorted.partition_point(is_above);
        let is_inside = |at: &usize| *at < self.sorted.len();
        (self.collation == *collation).then(|| Some(boundaries()).filter(is_inside)?.checked_sub(1))
    }

    /// Whether the array contains a value; `None` if the members are sorted for another collation.
    pub(super) fn contains(&self, value: Value<'_>, collation: &Collation) -> Option<bool> {
        let found = || self.sorted.binary_search_by(|member| collation.compare(member.view(), value)).is_ok();
        (self.collation == *collation).then(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::bson::extended_json::parse;
    use proptest::prelude::*;

    /// Values that compare equal across types, and neighbours of them.
    const VALUES: [&str; 18] = [
        "null",
        "1",
        "1.0",
        "NumberLong(1)",
        "NumberDecimal('1.0')",
        "2",
        "NaN",
        "'a'",
        "'A'",
        "''",
        "[]",
        "[1]",
        "[1.0]",
        "{a: 1}",
        "{a: 1.0}",
        "{b: 1}",
        "true",
        "/a/",
    ];

    proptest! {
        #[test]
        fn a_search_equals_a_scan(members in prop::collection::vec(0..VALUES.len(), 16..60), search_value in 0..VALUES.len()) {
            let list: Vec<&str> = members.iter().map(|at| VALUES[*at]).collect();
            let document = parse(&format!("{{w: {}, m: [{}]}}", VALUES[search_value], list.join(", "))).unwrap();
            let (search_value, array) = (document.view().get("w").unwrap(), document.view().get("m").unwrap());
            let Value::Array(array) = array else { panic!("no array") };
            let context = Context::for_tests();
            let members = Members::new(array, &context).unwrap().unwrap();
            let scanned = array.iter().any(|element| context.collation.equal(element, search_value));
            prop_assert_eq!(members.contains(search_value, &context.collation), Some(scanned));
        }
    }
}
