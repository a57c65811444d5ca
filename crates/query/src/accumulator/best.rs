//! The first or last values in an order.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A value and its place in an order.
pub(super) trait Ranked {
    /// Compares the places of two values.
    fn rank(&self, other: &Self) -> Ordering;
}

/// At most `count` values. Equal values are in order of arrival.
pub(super) struct Best<T> {
    count: usize,
    bottom: bool,
    /// The value that another one would replace is at the top.
    heap: BinaryHeap<Entry<T>>,
    arrived: u64,
}

impl<T: Ranked> Best<T> {
    /// Creates an empty heap, which keeps the last values if `bottom`, otherwise the first ones.
    pub(super) fn new(count: usize, bottom: bool) -> Best<T> {
        Best { count, bottom, heap: BinaryHeap::new(), arrived: 0 }
    }

    /// Returns the value that another one would replace; `None` if there is room.
    pub(super) fn worst(&self) -> Option<&T> {
        self.heap.peek().filter(|_| self.heap.len() >= self.count).map(|entry| &entry.value)
    }

    /// Adds a value. Returns the value that is too many, which may be the new one.
    pub(super) fn add(&mut self, value: T) -> Option<T> {
        self.arrived += 1;
        self.heap.push(Entry { value, arrived: self.arrived, bottom: self.bottom });
        if self.heap.len() > self.count { self.heap.pop().map(|entry| entry.value) } else { None }
    }

    /// Returns the values in order.
    pub(super) fn sorted(&self) -> impl Iterator<Item = &T> {
        let mut entries: Vec<_> = self.heap.iter().collect();
        entries.sort_unstable_by(|a, b| a.order(b));
        entries.into_iter().map(|entry| &entry.value)
    }

    /// Returns the number of values.
    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }
}

struct Entry<T> {
    value: T,
    arrived: u64,
    bottom: bool,
}

impl<T: Ranked> Entry<T> {
    fn order(&self, other: &Entry<T>) -> Ordering {
        self.value.rank(&other.value).then(self.arrived.cmp(&other.arrived))
    }
}

impl<T: Ranked> Ord for Entry<T> {
    fn cmp(&self, other: &Entry<T>) -> Ordering {
        if self.bottom { other.order(self) } else { self.order(other) }
    }
}

impl<T: Ranked> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Entry<T>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T: Ranked> PartialEq for Entry<T> {
    fn eq(&self, other: &Entry<T>) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T: Ranked> Eq for Entry<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    impl Ranked for (&str, i32) {
        fn rank(&self, other: &(&str, i32)) -> Ordering {
            self.0.cmp(other.0)
        }
    }

    #[test]
    fn equal_values_are_in_order_of_arrival() {
        let kept = |bottom| {
            let mut best = Best::new(3, bottom);
            for value in [("b", 0), ("a", 1), ("b", 2), ("c", 3), ("a", 4), ("b", 5)] {
                best.add(value);
            }
            best.sorted().map(|(_, at)| *at).collect::<Vec<_>>()
        };
        assert_eq!(kept(false), [1, 4, 0]);
        assert_eq!(kept(true), [2, 5, 3]);
    }
}
