//! Trees by their numbers, positions of commits, and ranges of keys.

use crate::Key;
use std::cmp::Ordering;
use std::ops::Bound;

/// Number of an ordered tree: MongoDB's ident of a collection or an index. It does not change when
/// the collection is renamed. It has no other meaning for the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ident(pub u64);

/// Position in the order of commits, returned by [`Engine::commit`]. A later commit has a greater
/// position.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

/// Direction of a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the lower bound upwards.
    Forward,
    /// From the upper bound downwards.
    Backward,
}

impl Direction {
    /// Compares two keys in scan order.
    #[inline]
    pub fn order(self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            Direction::Forward => a.cmp(b),
            Direction::Backward => b.cmp(a),
        }
    }

    /// Returns true if a scan reaches `a` before `b`.
    #[inline]
    pub fn is_before(self, a: &[u8], b: &[u8]) -> bool {
        self.order(a, b) == Ordering::Less
    }
}

/// The keys between two bounds. `lower` is the smaller bound in both directions. A range with
/// crossed bounds is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// The lower bound.
    pub lower: Bound<Key>,
    /// The upper bound.
    pub upper: Bound<Key>,
}

impl Range {
    /// Returns the range of all keys.
    pub const fn all() -> Self {
        Range { lower: Bound::Unbounded, upper: Bound::Unbounded }
    }

    /// Returns the range from `lower` (included) to `upper` (excluded).
    pub fn half_open(lower: impl Into<Key>, upper: impl Into<Key>) -> Self {
        Range { lower: Bound::Included(lower.into()), upper: Bound::Excluded(upper.into()) }
    }

    /// Returns the range of keys with the given prefix.
    pub fn prefix(prefix: &[u8]) -> Self {
        let upper = match prefix.iter().rposition(|byte| *byte != u8::MAX) {
            None => Bound::Unbounded,
            Some(last) => {
                let mut after: Vec<u8> = prefix.iter().take(last + 1).copied().collect();
                if let Some(byte) = after.last_mut() {
                    *byte += 1;
                }
                debug_assert!(*prefix < *after, "{prefix:?} is not before the end of its range");
                Bound::Excluded(after.into())
            }
        };
        Range { lower: Bound::Included(prefix.into()), upper }
    }

    /// Returns the intersection of two ranges.
    pub fn intersection(&self, other: &Range) -> Range {
        let order = |a: &Bound<Key>, b: &Bound<Key>| match (a, b) {
            (Bound::Unbounded, Bound::Unbounded) => Ordering::Equal,
            (Bound::Unbounded, _) => Ordering::Less,
            (_, Bound::Unbounded) => Ordering::Greater,
            (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => a.cmp(b),
        };
        // Of two bounds at one key, the excluded one is narrower.
        let is_out = |bound: &Bound<Key>| matches!(bound, Bound::Excluded(_));
        let lower = match order(&self.lower, &other.lower) {
            Ordering::Greater => &self.lower,
            Ordering::Equal if is_out(&self.lower) => &self.lower,
            _ => &other.lower,
        };
        let upper = match (&self.upper, &other.upper) {
            (Bound::Unbounded, upper) | (upper, Bound::Unbounded) => upper,
            (own, their) => match order(own, their) {
                Ordering::Less => own,
                Ordering::Equal if is_out(own) => own,
                _ => their,
            },
        };
        let both = Range { lower: lower.clone(), upper: upper.clone() };
        debug_assert!(
            both.is_empty() || !self.is_empty() && !other.is_empty(),
            "{self:?} {other:?} {both:?}"
        );
        both
    }

    /// Returns true if no key can be in the range.
    pub fn is_empty(&self) -> bool {
        match (&self.lower, &self.upper) {
            (Bound::Unbounded, Bound::Excluded(upper)) => upper.is_empty(),
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(lower), Bound::Included(upper)) => lower > upper,
            (
                Bound::Included(lower) | Bound::Excluded(lower),
                Bound::Included(upper) | Bound::Excluded(upper),
            ) => lower >= upper,
        }
    }

    /// Returns true if a key is within both bounds.
    pub fn contains(&self, key: &[u8]) -> bool {
        let above = match &self.lower {
            Bound::Included(lower) => key >= &**lower,
            Bound::Excluded(lower) => key > &**lower,
            Bound::Unbounded => true,
        };
        let below = match &self.upper {
            Bound::Included(upper) => key <= &**upper,
            Bound::Excluded(upper) => key < &**upper,
            Bound::Unbounded => true,
        };
        above && below
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_range_ends_where_the_prefix_does() {
        let range = Range::prefix(b"ab");
        assert!(range.contains(b"ab") && range.contains(b"ab\xff\xff"));
        assert!(!range.contains(b"aa\xff") && !range.contains(b"ac"));
        assert_eq!(Range::prefix(b"a\xff").upper, Bound::Excluded(Key::from(b"b")));
        assert_eq!(Range::prefix(b"\xff").upper, Bound::Unbounded);
        assert_eq!(Range::prefix(b"").upper, Bound::Unbounded);
    }

    #[test]
    fn an_intersection_contains_common_keys() {
        let key = |byte: u8| Key::from([byte]);
        let bounds = || {
            let at = |byte| [Bound::Included(key(byte)), Bound::Excluded(key(byte))];
            [1, 3].into_iter().flat_map(at).chain([Bound::Unbounded])
        };
        let ranges: Vec<Range> = bounds()
            .flat_map(|lower| bounds().map(move |upper| Range { lower: lower.clone(), upper }))
            .collect();
        for (a, b) in ranges.iter().flat_map(|a| ranges.iter().map(move |b| (a, b))) {
            let both = a.intersection(b);
            for byte in 0..5 {
                assert_eq!(both.contains(&[byte]), a.contains(&[byte]) && b.contains(&[byte]), "{a:?} {b:?}");
                assert!(!both.is_empty() || !both.contains(&[byte]));
            }
        }
    }

    #[test]
    fn a_half_open_range_holds_its_lower_bound_only() {
        let range = Range::half_open(b"a", b"c");
        assert!(range.contains(b"a") && range.contains(b"b") && !range.contains(b"c"));
    }
}
