//! Trees by their numbers, positions of commits, and ranges of keys.

use crate::Key;
use std::cmp::Ordering;
use std::ops::Bound;

/// The number of an ordered tree, which is what MongoDB calls the ident of a collection or an index: it
/// stays the same when the collection is renamed, and the engine gives it no other meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ident(pub u64);

/// A place in the order of commits, handed out by [`Engine::commit`]: a later commit has a greater one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

/// Which way a cursor walks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the lower bound upwards.
    Forward,
    /// From the upper bound downwards.
    Backward,
}

impl Direction {
    /// Which of two keys a walk comes to first.
    #[inline]
    pub fn order(self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            Direction::Forward => a.cmp(b),
            Direction::Backward => b.cmp(a),
        }
    }

    /// Whether a walk comes to `a` before `b`.
    #[inline]
    pub fn is_before(self, a: &[u8], b: &[u8]) -> bool {
        self.order(a, b) == Ordering::Less
    }
}

/// The keys between two bounds. `lower` is the smaller one whichever way the cursor walks; a range whose
/// bounds cross is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// Where the range begins.
    pub lower: Bound<Key>,
    /// Where the range ends.
    pub upper: Bound<Key>,
}

impl Range {
    /// Every key of a tree.
    pub const fn all() -> Self {
        Range { lower: Bound::Unbounded, upper: Bound::Unbounded }
    }

    /// The keys from `lower` (included) up to `upper` (excluded).
    pub fn half_open(lower: impl Into<Key>, upper: impl Into<Key>) -> Self {
        Range { lower: Bound::Included(lower.into()), upper: Bound::Excluded(upper.into()) }
    }

    /// The keys that begin with the given bytes.
    pub fn prefix(prefix: &[u8]) -> Self {
        let upper = match prefix.iter().rposition(|byte| *byte != u8::MAX) {
            None => Bound::Unbounded,
            Some(last) => {
                let mut after: Vec<u8> = prefix.iter().take(last + 1).copied().collect();
                if let Some(byte) = after.last_mut() {
                    *byte += 1;
                }
                Bound::Excluded(after.into())
            }
        };
        Range { lower: Bound::Included(prefix.into()), upper }
    }

    /// The keys that lie in both.
    pub fn intersection(&self, other: &Range) -> Range {
        let order = |a: &Bound<Key>, b: &Bound<Key>| match (a, b) {
            (Bound::Unbounded, Bound::Unbounded) => Ordering::Equal,
            (Bound::Unbounded, _) => Ordering::Less,
            (_, Bound::Unbounded) => Ordering::Greater,
            (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => a.cmp(b),
        };
        // Of two ends at one key that without it is the narrower.
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
        Range { lower: lower.clone(), upper: upper.clone() }
    }

    /// Whether no key can lie within.
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

    /// Whether a key lies within both bounds.
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
    fn an_intersection_holds_what_both_do() {
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
