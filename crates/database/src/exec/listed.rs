//! The ranges of keys that bounds come to, one after the other, for a store that reads many of them at a time.

use super::bounds::{Found, Part};
use base::key_string::successor;
use std::ops::Bound;
use std::sync::Arc;
use storage::{Key, Range, Ranges};

/// Counts through the ranges of each part in the direction of a walk, the last part's fastest.
pub(super) struct Listed {
    parts: Arc<Vec<Part>>,
    forward: bool,
    /// Which range of each part comes next; `None` at the end.
    next: Option<Vec<usize>>,
}

impl Listed {
    /// All ranges; `None` where there is no list of them, since keys decide where to go on.
    pub(super) fn new(parts: &Arc<Vec<Part>>, forward: bool) -> Option<Listed> {
        let (_, leading) = parts.split_last()?;
        let are_points = |part: &Part| part.ranges.iter().all(|range| range.point);
        let mut listed = Listed { parts: parts.clone(), forward, next: None };
        listed.next = listed.filled(Vec::new());
        leading.iter().all(are_points).then_some(listed)
    }

    /// The first combination that begins so; `None` where a part has no range.
    fn filled(&self, mut at: Vec<usize>) -> Option<Vec<usize>> {
        for part in self.parts.get(at.len()..)? {
            let last = part.ranges.len().checked_sub(1)?;
            at.push(if self.forward { 0 } else { last });
        }
        Some(at)
    }

    /// The first combination behind all that begin so.
    fn behind(&self, mut at: Vec<usize>) -> Option<Vec<usize>> {
        while let Some(last) = at.pop() {
            let ranges = self.parts.get(at.len()).map_or(0, |part| part.ranges.len());
            let next = if self.forward { Some(last + 1) } else { last.checked_sub(1) };
            if let Some(next) = next.filter(|next| *next < ranges) {
                at.push(next);
                return self.filled(at);
            }
        }
        None
    }

    /// The first combination that isn't passed by a walk which goes on at a key.
    fn first_at(&self, key: &[u8]) -> Option<Vec<usize>> {
        let mut at = Vec::with_capacity(self.parts.len());
        let mut rest = key;
        for part in self.parts.iter() {
            let found = if self.forward { part.find_forward(rest) } else { part.find_backward(rest) };
            match found {
                Found::Within(range) => {
                    at.push(range);
                    let length = part.ranges.get(range).map_or(0, |range| range.low.len());
                    rest = rest.get(length..).unwrap_or_default();
                }
                Found::Gap(range) => {
                    at.push(range);
                    return self.filled(at);
                }
                Found::Behind => return self.behind(at),
            }
        }
        Some(at)
    }

    fn range(&self, at: &[usize]) -> Option<Range> {
        let mut prefix = Vec::new();
        let (last, leading) = at.split_last()?;
        for (part, range) in self.parts.iter().zip(leading) {
            prefix.extend_from_slice(&part.ranges.get(*range)?.low);
        }
        let range = self.parts.get(leading.len())?.ranges.get(*last)?;
        let lower = [&prefix, &range.low[..]].concat();
        let upper = match (&range.high, range.point) {
            (_, true) => successor(&lower),
            (Some(high), false) => Some([&prefix, &high[..]].concat()),
            (None, false) => successor(&prefix),
        };
        let lower = if lower.is_empty() { Bound::Unbounded } else { Bound::Included(Key::from(lower)) };
        Some(Range {
            lower,
            upper: upper.map_or(Bound::Unbounded, |upper| Bound::Excluded(Key::from(upper))),
        })
    }
}

impl Ranges for Listed {
    fn go_to(&mut self, key: &[u8]) {
        self.next = self.first_at(key);
    }

    fn next_range(&mut self) -> Option<Range> {
        let at = self.next.take()?;
        let range = self.range(&at);
        self.next = self.behind(at);
        range
    }
}

#[cfg(test)]
mod tests {
    use super::super::bounds::ByteRange;
    use super::*;
    use std::collections::BTreeSet;

    /// Numbers that look like chance, the same in every run.
    struct Draw(u64);

    impl Draw {
        fn below(&mut self, bound: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % bound
        }

        fn bytes(&mut self, most: usize) -> Vec<u8> {
            (0..self.below(most + 1)).map(|_| self.below(12) as u8).collect()
        }

        fn set(&mut self, below: usize, most: usize) -> Vec<u8> {
            let set: BTreeSet<u8> = (0..=self.below(most)).map(|_| 1 + self.below(below) as u8).collect();
            set.into_iter().collect()
        }

        /// Values of some leading parts, and spans of the last one.
        fn parts(&mut self) -> Vec<Part> {
            let part = |ranges| Part { ranges, ascending: true };
            let point = |byte| ByteRange { low: vec![byte], high: Some(vec![byte + 1]), point: true };
            let span = |ends: &[u8]| ByteRange {
                low: vec![ends[0]],
                high: ends.get(1).map(|high| vec![*high]),
                point: false,
            };
            let mut parts: Vec<Part> =
                (0..self.below(3)).map(|_| part(self.set(8, 3).into_iter().map(point).collect())).collect();
            parts.push(part(self.set(11, 6).chunks(2).map(span).collect()));
            parts
        }
    }

    fn is_within(parts: &[Part], key: &[u8]) -> bool {
        parts.iter().enumerate().all(|(at, part)| {
            let rest = key.get(at..).unwrap_or_default();
            let holds = |range: &ByteRange| {
                rest >= &range.low[..] && range.high.as_ref().is_none_or(|high| rest < &high[..])
            };
            part.ranges.iter().any(holds)
        })
    }

    /// Whatever key a walk goes on at, the ranges to come hold exactly the keys within the bounds that aren't passed.
    #[test]
    fn ranges_hold_what_bounds_do() {
        let mut draw = Draw(7);
        for case in 0..2000 {
            let (parts, from, forward) = (Arc::new(draw.parts()), draw.bytes(4), case % 2 == 0);
            let mut listed = Listed::new(&parts, forward).unwrap();
            listed.go_to(&from);
            let ranges: Vec<Range> = std::iter::from_fn(|| listed.next_range()).collect();
            for _ in 0..40 {
                let key = draw.bytes(5);
                if if forward { key < from } else { key > from } {
                    continue;
                }
                let holding = ranges.iter().filter(|range| range.contains(&key)).count();
                assert_eq!(holding, usize::from(is_within(&parts, &key)), "{key:?} in {ranges:?}");
            }
            let ordered = ranges.windows(2).all(|pair| match (&pair[0].lower, &pair[1].lower) {
                (Bound::Included(a), Bound::Included(b)) => (a < b) == forward,
                _ => false,
            });
            assert!(ordered, "{ranges:?}");
        }
    }
}
