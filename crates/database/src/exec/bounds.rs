//! Bounds of an index scan in the bytes of its keys: the matching keys, and the next position after
//! a key outside.
//!
//! Each part has ranges of bytes, from `low` (included) to `high` (excluded), in the order of the
//! index. No component of a key is a prefix of another component. A comparison of the rest of a key
//! with a range's ends therefore compares its first component.
//!
//! [`Access`] has the bounds as values; this module encodes them. A scan seeks as MongoDB's IndexBoundsChecker does.

use crate::access::{Access, Interval};
use crate::index::KeyKind;
use base::key_string::{component_length, successor};
use std::ops::Bound;
use std::sync::Arc;
use storage::{Key, Range, Ranges};

/// Bounds on the leading parts of a key.
pub(crate) struct KeyBounds {
    parts: Arc<Vec<Part>>,
    /// Seek position after a key outside of the bounds; reused.
    target: Vec<u8>,
}

/// The ranges of a part of a key in the index's format, in order.
pub(super) struct Part {
    pub(super) ranges: Vec<ByteRange>,
    pub(super) ascending: bool,
}

#[derive(Clone)]
pub(super) struct ByteRange {
    pub(super) low: Vec<u8>,
    /// `None` is unbounded.
    pub(super) high: Option<Vec<u8>>,
    /// True if `low` is a whole component and the only one in the range.
    pub(super) point: bool,
}

/// Position of a key relative to the bounds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum KeyPosition {
    /// Within all bounds.
    Inside,
    /// Before a range: the next key within the bounds is at or after [`KeyBounds::target`].
    Before,
    /// After all ranges, as all later keys.
    After,
}

impl KeyBounds {
    /// Returns the bounds in the index's format. Parts after the last bounded part need no ranges.
    pub(crate) fn new(access: &Access) -> KeyBounds {
        let mut parts: Vec<Part> = access
            .parts
            .iter()
            .zip(&access.index.spec.parts)
            .map(|(intervals, part)| Part::new(intervals.as_slice(), part.kind != KeyKind::Descending))
            .collect();
        let used = access.parts.iter().rposition(|intervals| !intervals.is_all()).map_or(0, |last| last + 1);
        parts.truncate(used);
        KeyBounds { parts: Arc::new(parts), target: Vec::new() }
    }

    /// Returns the same bounds for another scan.
    pub(crate) fn clone_for_scan(&self) -> KeyBounds {
        KeyBounds { parts: self.parts.clone(), target: Vec::new() }
    }

    /// Returns all ranges of keys in this direction, for a store that reads many of them in one request. `None` if the
    /// next position depends on the keys.
    pub(crate) fn ranges(&self, forward: bool) -> Option<Box<dyn Ranges>> {
        RangeSequence::new(&self.parts, forward).map(|sequence| Box::new(sequence) as Box<dyn Ranges>)
    }

    /// Returns one set of bounds for each combination of values of the first `split` parts.
    pub(crate) fn split(access: &Access, split: usize) -> Vec<KeyBounds> {
        let mut all = vec![KeyBounds::new(access)];
        for part in 0..split {
            all = all.iter().flat_map(|bounds| bounds.split_part(part)).collect();
        }
        all
    }

    fn split_part(&self, part: usize) -> Vec<KeyBounds> {
        let Some(split) = self.parts.get(part) else { return vec![self.with(part, None)] };
        split.ranges.iter().map(|range| self.with(part, Some(range))).collect()
    }

    fn with(&self, part: usize, range: Option<&ByteRange>) -> KeyBounds {
        let copy = |(position, own): (usize, &Part)| match range {
            Some(range) if position == part => Part { ranges: vec![range.clone()], ..*own },
            _ => Part { ranges: own.ranges.clone(), ..*own },
        };
        KeyBounds { parts: Arc::new(self.parts.iter().enumerate().map(copy).collect()), target: Vec::new() }
    }

    /// Returns the length in bytes of the first `parts`, which have a single value each.
    pub(crate) fn prefix_of(&self, parts: usize) -> usize {
        let ranges = self.parts.iter().take(parts).filter_map(|part| part.ranges.first());
        ranges.map(|range| range.low.len()).sum()
    }

    /// Returns the range that contains all keys within the bounds.
    pub(crate) fn range(&self) -> Range {
        let mut low = Vec::new();
        for range in self.parts.iter().map_while(|part| part.ranges.first()) {
            low.extend_from_slice(&range.low);
            if !range.point {
                break;
            }
        }
        let lower = if low.is_empty() { Bound::Unbounded } else { Bound::Included(Key::from(low)) };
        Range { lower, upper: self.upper() }
    }

    fn upper(&self) -> Bound<Key> {
        let mut high = Vec::new();
        for range in self.parts.iter().map_while(|part| part.ranges.last()) {
            if range.point {
                high.extend_from_slice(&range.low);
                continue;
            }
            return match (&range.high, successor(&high)) {
                (Some(end), _) => {
                    high.extend_from_slice(end);
                    Bound::Excluded(Key::from(high))
                }
                (None, Some(end)) => Bound::Excluded(Key::from(end)),
                (None, None) => Bound::Unbounded,
            };
        }
        successor(&high).map_or(Bound::Unbounded, |end| Bound::Excluded(Key::from(end)))
    }

    /// Returns true if all keys of the range are within the bounds and need no check.
    pub(crate) fn is_contiguous(&self) -> bool {
        let Some((last, leading)) = self.parts.split_last() else { return true };
        leading.iter().all(|part| matches!(part.ranges.as_slice(), [only] if only.point))
            && last.ranges.len() == 1
    }

    /// Returns the seek position after a key that is [`KeyPosition::Before`].
    pub(crate) fn target(&self) -> &[u8] {
        &self.target
    }

    /// Returns the position of a key in a scan in this direction. Asserts that a seek to the target never goes back.
    pub(crate) fn position(&mut self, key: &[u8], forward: bool) -> KeyPosition {
        let position = self.find(key, forward);
        debug_assert!(
            position != KeyPosition::Before
                || if forward { *self.target > *key } else { *self.target <= *key },
            "a scan would return to {:?} after {key:?}",
            self.target
        );
        position
    }

    fn find(&mut self, key: &[u8], forward: bool) -> KeyPosition {
        let mut offset = 0;
        for position in 0..self.parts.len() {
            let (Some(part), Some(rest)) = (self.parts.get(position), key.get(offset..)) else { break };
            let place = if forward { part.find_forward(rest) } else { part.find_backward(rest) };
            match place {
                RangePosition::Within(range) => {
                    if position + 1 == self.parts.len() {
                        return KeyPosition::Inside;
                    }
                    let length = match part.ranges.get(range) {
                        Some(range) if range.point => Some(range.low.len()),
                        _ => component_length(rest, part.ascending),
                    };
                    offset += length.unwrap_or(rest.len());
                }
                RangePosition::Before(range) => {
                    self.target_range(key, offset, position, range, forward);
                    return KeyPosition::Before;
                }
                RangePosition::After if position == 0 => return KeyPosition::After,
                RangePosition::After => return self.target_after_prefix(key, offset, forward),
            }
        }
        KeyPosition::Inside
    }

    /// Sets the target to the first keys of `range` of a part, with the key's earlier parts.
    fn target_range(&mut self, key: &[u8], offset: usize, position: usize, range: usize, forward: bool) {
        self.target.clear();
        self.target.extend_from_slice(key.get(..offset).unwrap_or(key));
        let Some(mut range) = self.parts.get(position).and_then(|part| part.ranges.get(range)) else {
            return;
        };
        if !forward {
            self.target.extend_from_slice(range.high.as_deref().unwrap_or(&[0xFF]));
            return;
        }
        let mut following = self.parts.iter().skip(position + 1);
        loop {
            self.target.extend_from_slice(&range.low);
            match following.next().and_then(|part| part.ranges.first()) {
                Some(next) if range.point => range = next,
                _ => return,
            }
        }
    }

    /// Sets the target after all keys with the same prefix as this key.
    fn target_after_prefix(&mut self, key: &[u8], offset: usize, forward: bool) -> KeyPosition {
        let prefix = key.get(..offset).unwrap_or(key);
        self.target.clear();
        if !forward {
            self.target.extend_from_slice(prefix);
            return KeyPosition::Before;
        }
        match successor(prefix) {
            Some(target) => {
                self.target = target;
                KeyPosition::Before
            }
            None => KeyPosition::After,
        }
    }
}

/// Position of a component among a part's ranges, by the number of a range.
pub(super) enum RangePosition {
    Within(usize),
    /// Before this range, which is the next in the scan.
    Before(usize),
    /// After the last range.
    After,
}

impl Part {
    fn new(intervals: &[Interval], ascending: bool) -> Part {
        let mut ranges: Vec<ByteRange> =
            intervals.iter().map(|interval| ByteRange::new(interval, ascending)).collect();
        if !ascending {
            ranges.reverse();
        }
        debug_assert!(
            ranges.is_sorted_by(|a, b| a.high.as_ref().is_some_and(|high| *high <= b.low)),
            "the ranges of a part overlap"
        );
        Part { ranges, ascending }
    }

    /// Finds the rest of a key, from this part on, in a forward scan.
    fn find_forward(&self, rest: &[u8]) -> RangePosition {
        let next = self.ranges.partition_point(|range| range.ends_before(rest));
        match self.ranges.get(next) {
            None => RangePosition::After,
            Some(range) if rest < range.low.as_slice() => RangePosition::Before(next),
            Some(_) => RangePosition::Within(next),
        }
    }

    /// Finds the rest of a key in a backward scan.
    fn find_backward(&self, rest: &[u8]) -> RangePosition {
        let after = self.ranges.partition_point(|range| range.low.as_slice() <= rest);
        match after.checked_sub(1).map(|last| (last, self.ranges.get(last))) {
            Some((last, Some(range))) if range.ends_before(rest) => RangePosition::Before(last),
            Some((last, Some(_))) => RangePosition::Within(last),
            _ => RangePosition::After,
        }
    }
}

impl ByteRange {
    fn new(interval: &Interval, ascending: bool) -> ByteRange {
        let stored = |key: &[u8]| match ascending {
            true => key.to_vec(),
            false => key.iter().map(|byte| !byte).collect(),
        };
        let (from, to) = match ascending {
            true => (&interval.low, &interval.high),
            false => (&interval.high, &interval.low),
        };
        let (low, high) = (stored(&from.key), stored(&to.key));
        ByteRange {
            low: if from.inclusive { low } else { successor(&low).unwrap_or(low) },
            high: if to.inclusive { successor(&high) } else { Some(high) },
            point: interval.is_point(),
        }
    }

    fn ends_before(&self, rest: &[u8]) -> bool {
        self.high.as_deref().is_some_and(|high| high <= rest)
    }
}

/// Enumerates the ranges of all parts in scan direction. The last part varies fastest.
struct RangeSequence {
    parts: Arc<Vec<Part>>,
    forward: bool,
    /// Index of the next range of each part; `None` at the end.
    next: Option<Vec<usize>>,
}

impl RangeSequence {
    /// Returns all ranges; `None` if the next position depends on the keys.
    pub(super) fn new(parts: &Arc<Vec<Part>>, forward: bool) -> Option<RangeSequence> {
        let (_, leading) = parts.split_last()?;
        let are_points = |part: &Part| part.ranges.iter().all(|range| range.point);
        let mut sequence = RangeSequence { parts: parts.clone(), forward, next: None };
        sequence.next = sequence.first_with_prefix(Vec::new());
        leading.iter().all(are_points).then_some(sequence)
    }

    /// Returns the first combination with this prefix; `None` if a part has no range.
    fn first_with_prefix(&self, mut at: Vec<usize>) -> Option<Vec<usize>> {
        for part in self.parts.get(at.len()..)? {
            let last = part.ranges.len().checked_sub(1)?;
            at.push(if self.forward { 0 } else { last });
        }
        Some(at)
    }

    /// Returns the first combination after all combinations with this prefix.
    fn first_after_prefix(&self, mut at: Vec<usize>) -> Option<Vec<usize>> {
        while let Some(last) = at.pop() {
            let ranges = self.parts.get(at.len()).map_or(0, |part| part.ranges.len());
            let next = if self.forward { Some(last + 1) } else { last.checked_sub(1) };
            if let Some(next) = next.filter(|next| *next < ranges) {
                at.push(next);
                return self.first_with_prefix(at);
            }
        }
        None
    }

    /// Returns the first combination that a scan continuing at a key has not passed.
    fn first_at(&self, key: &[u8]) -> Option<Vec<usize>> {
        let mut at = Vec::with_capacity(self.parts.len());
        let mut rest = key;
        for part in self.parts.iter() {
            let place = if self.forward { part.find_forward(rest) } else { part.find_backward(rest) };
            match place {
                RangePosition::Within(range) => {
                    at.push(range);
                    let length = part.ranges.get(range).map_or(0, |range| range.low.len());
                    rest = rest.get(length..).unwrap_or_default();
                }
                RangePosition::Before(range) => {
                    at.push(range);
                    return self.first_with_prefix(at);
                }
                RangePosition::After => return self.first_after_prefix(at),
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
        debug_assert!(upper.as_ref().is_none_or(|upper| lower <= *upper), "{lower:?} to {upper:?}");
        let lower = if lower.is_empty() { Bound::Unbounded } else { Bound::Included(Key::from(lower)) };
        Some(Range {
            lower,
            upper: upper.map_or(Bound::Unbounded, |upper| Bound::Excluded(Key::from(upper))),
        })
    }
}

impl Ranges for RangeSequence {
    fn go_to(&mut self, key: &[u8]) {
        self.next = self.first_at(key);
    }

    fn next_range(&mut self) -> Option<Range> {
        let at = self.next.take()?;
        let range = self.range(&at);
        self.next = self.first_after_prefix(at);
        range
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Pseudo-random numbers, equal in every run.
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

        /// Returns values of some leading parts, and spans of the last part.
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

    /// For any key, the remaining ranges contain exactly the unpassed keys within the bounds.
    #[test]
    fn ranges_equal_bounds() {
        let mut draw = Draw(7);
        for case in 0..2000 {
            let (parts, from, forward) = (Arc::new(draw.parts()), draw.bytes(4), case % 2 == 0);
            let mut sequence = RangeSequence::new(&parts, forward).unwrap();
            sequence.go_to(&from);
            let ranges: Vec<Range> = std::iter::from_fn(|| sequence.next_range()).collect();
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
