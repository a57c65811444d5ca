//! The sampled pages in the order of their latest visits.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A page's latest visit.
struct Visit {
    at: u32,
    units: u32,
}

/// Whether a page is one of the sample that has one in 2^`shift`.
pub(super) fn is_sampled(hash: u64, shift: u32) -> bool {
    hash.leading_zeros() >= shift
}

/// Pages by their latest visit.
pub(super) struct Stack {
    limit: usize,
    shift: u32,
    visits: HashMap<u64, Visit, BuildHasherDefault<Hashed>>,
    /// The sizes of pages by the time of their visit.
    sizes: Sums,
    /// The time of the next visit.
    now: u32,
}

/// Keys are hashes already.
#[derive(Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        // The upper bits of a sample are all alike, and it is those that the table tells entries apart by.
        self.0 = hash.rotate_left(32);
    }
}

impl Stack {
    pub(super) fn new(limit: usize, shift: u32) -> Self {
        Stack { limit, shift, visits: HashMap::default(), sizes: Sums::new(limit * 4), now: 0 }
    }

    /// One page in 2^this is in the sample.
    pub(super) fn shift(&self) -> u32 {
        self.shift
    }

    /// Visits a page: the size of all pages that a cache needs room for to have it still, itself included; `None`
    /// for the first visit.
    pub(super) fn touch(&mut self, hash: u64, units: u32) -> Option<u64> {
        if !is_sampled(hash, self.shift) {
            return None;
        }
        if self.now as usize >= self.sizes.len() {
            self.renumber();
        }
        let now = self.now;
        self.now += 1;
        let before = self.visits.insert(hash, Visit { at: now, units });
        self.sizes.add(now, units);
        let Some(Visit { at: then, units: before }) = before else {
            self.raise();
            return None;
        };
        self.sizes.subtract(then, before);
        let newer = self.sizes.total() - self.sizes.up_to(then) - u64::from(units);
        Some((newer << self.shift) + u64::from(units))
    }

    /// Forgets a page.
    pub(super) fn forget(&mut self, hash: u64) {
        if let Some(Visit { at, units }) = self.visits.remove(&hash) {
            self.sizes.subtract(at, units);
        }
    }

    /// Looks at fewer pages where they have become too many.
    fn raise(&mut self) {
        while self.visits.len() > self.limit {
            self.shift += 1;
            let (shift, sizes) = (self.shift, &mut self.sizes);
            self.visits.retain(|hash, visit| {
                let stays = is_sampled(*hash, shift);
                if !stays {
                    sizes.subtract(visit.at, visit.units);
                }
                stays
            });
        }
    }

    /// Numbers the visits anew, closely.
    fn renumber(&mut self) {
        let mut order: Vec<&mut Visit> = self.visits.values_mut().collect();
        order.sort_unstable_by_key(|visit| visit.at);
        self.sizes.clear();
        self.now = 0;
        for visit in order {
            visit.at = self.now;
            self.sizes.add(self.now, visit.units);
            self.now += 1;
        }
    }

    /// Forgets all pages.
    pub(super) fn clear(&mut self) {
        self.visits.clear();
        self.sizes.clear();
        self.now = 0;
    }
}

/// Numbers whose sums up to any place can be told and changed in a few steps: a Fenwick tree.
struct Sums {
    tree: Vec<u32>,
    total: u64,
}

impl Sums {
    fn new(len: usize) -> Self {
        Sums { tree: vec![0; len], total: 0 }
    }

    fn len(&self) -> usize {
        self.tree.len()
    }

    fn total(&self) -> u64 {
        self.total
    }

    fn add(&mut self, at: u32, units: u32) {
        self.total += u64::from(units);
        self.change(at, |sum| sum.wrapping_add(units));
    }

    fn subtract(&mut self, at: u32, units: u32) {
        self.total -= u64::from(units);
        self.change(at, |sum| sum.wrapping_sub(units));
    }

    fn change(&mut self, at: u32, change: impl Fn(u32) -> u32) {
        let mut at = at as usize;
        while let Some(sum) = self.tree.get_mut(at) {
            *sum = change(*sum);
            at |= at + 1;
        }
    }

    /// The sum up to a place, that included.
    fn up_to(&self, at: u32) -> u64 {
        let mut end = at as usize + 1;
        let mut sum = 0;
        while let Some(part) = end.checked_sub(1).and_then(|at| self.tree.get(at)) {
            sum += u64::from(*part);
            end &= end - 1;
        }
        sum
    }

    fn clear(&mut self) {
        self.tree.fill(0);
        self.total = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_those_of_a_list_that_is_kept_in_order() {
        let mut stack = Stack::new(64, 0);
        let mut list: Vec<(u64, u32)> = Vec::new();
        let mut random = 1u64;
        for _ in 0..5000 {
            random = super::super::mix(random);
            let (hash, units) = (random % 50, 1 + (random % 50 % 3) as u32);
            let at = list.iter().position(|(other, _)| *other == hash);
            let expected =
                at.map(|at| list.iter().take(at + 1).map(|(_, units)| u64::from(*units)).sum::<u64>());
            if let Some(at) = at {
                list.remove(at);
            }
            list.insert(0, (hash, units));
            assert_eq!(stack.touch(hash, units), expected);
            if random.is_multiple_of(7) {
                let gone = random / 7 % 50;
                stack.forget(gone);
                list.retain(|(hash, _)| *hash != gone);
            }
        }
    }

    #[test]
    fn the_sample_stays_within_its_bound() {
        let mut stack = Stack::new(64, 0);
        for at in 0..10_000 {
            stack.touch(super::super::mix(at), 1);
            assert!(stack.visits.len() <= 64);
        }
        assert!((7..10).contains(&stack.shift()), "{}", stack.shift());
        // Coming round, each page needs all of them.
        let mut sum = (0, 0);
        for at in 0..10_000 {
            if let Some(distance) = stack.touch(super::super::mix(at), 1) {
                sum = (sum.0 + distance, sum.1 + 1);
            }
        }
        assert!((7_000..13_000).contains(&(sum.0 / sum.1)), "{sum:?}");
    }
}
