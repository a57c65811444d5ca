//! The sampled pages in the order of their latest visits, and where they are in memory.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

/// Inner pages are at most one in so many.
const INNER_SHARE: u64 = 8;

/// A page of the sample.
#[derive(Debug, Clone, Copy)]
pub(super) struct Page {
    /// The hash of its place in the file, which no other page has.
    pub(super) hash: u64,
    /// Its size.
    pub(super) units: u32,
    /// Where it begins in memory.
    pub(super) address: usize,
    /// Whether it is one above those that have entries.
    pub(super) is_inner: bool,
}

/// A page's latest visit.
struct Visit {
    at: u32,
    units: u32,
    /// Where the page is, as far as is known.
    address: usize,
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
    /// Pages by their addresses, each with its length.
    memory: BTreeMap<usize, (usize, Page)>,
    /// How many of these are inner pages, about.
    inner: u64,
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
        let (visits, memory) = (HashMap::default(), BTreeMap::new());
        Stack { limit, shift, visits, sizes: Sums::new(limit * 4), now: 0, memory, inner: 0 }
    }

    /// One page in 2^this is in the sample.
    pub(super) fn shift(&self) -> u32 {
        self.shift
    }

    /// The page that was last put at an address.
    pub(super) fn page_at(&self, address: usize) -> Option<Page> {
        let (start, (len, page)) = self.memory.range(..=address).next_back()?;
        (address - start < *len && is_sampled(page.hash, self.shift)).then_some(*page)
    }

    /// Notes where a page is. Tells whether the memory of many others has been forgotten.
    pub(super) fn place(&mut self, page: Page, len: usize) -> bool {
        if let Some(visit) = self.visits.get_mut(&page.hash) {
            let before = std::mem::replace(&mut visit.address, page.address);
            if self.memory.get(&before).is_some_and(|(_, there)| there.hash == page.hash) {
                self.memory.remove(&before);
            }
        }
        let is_full = self.memory.len() >= self.limit * 2;
        if is_full {
            // Where pages were that have gone from the sample; and inner pages, where they are very many.
            let (visits, keep_inner) = (&self.visits, self.inner < self.limit as u64 / 2);
            self.memory.retain(|address, (_, page)| match page.is_inner {
                true => keep_inner,
                false => visits.get(&page.hash).is_some_and(|visit| visit.address == *address),
            });
            self.count_inner();
        }
        self.inner += u64::from(page.is_inner);
        self.memory.insert(page.address, (len, page));
        is_full
    }

    /// Forgets which pages were in a piece of memory.
    pub(super) fn forget_memory(&mut self, address: usize, len: usize) {
        let end = address.saturating_add(len);
        while let Some((&start, &(len, _))) = self.memory.range(..end).next_back()
            && start + len > address
        {
            if self.memory.remove(&start).is_some_and(|(_, page)| page.is_inner) {
                self.inner = self.inner.saturating_sub(1);
            }
        }
    }

    /// Goes through the memory of all pages.
    pub(super) fn each_memory(&self, mut each: impl FnMut(usize, usize)) {
        for (address, (len, _)) in &self.memory {
            each(*address, *len);
        }
    }

    /// Visits a page: the size of all pages that a cache needs room for to have it still, itself included; `None`
    /// for the first visit.
    pub(super) fn touch(&mut self, page: Page) -> Option<u64> {
        if page.is_inner || !is_sampled(page.hash, self.shift) {
            return None;
        }
        if self.now as usize >= self.sizes.len() {
            self.renumber();
        }
        let now = self.now;
        self.now += 1;
        let visit = Visit { at: now, units: page.units, address: page.address };
        let before = self.visits.insert(page.hash, visit);
        self.sizes.add(now, page.units);
        let Some(Visit { at: then, units, .. }) = before else {
            self.raise();
            return None;
        };
        self.sizes.subtract(then, units);
        let newer = self.sizes.total() - self.sizes.up_to(then) - u64::from(page.units);
        let distance = (newer << self.shift) + u64::from(page.units);
        // Inner pages are visited all the time; those above few pages are few.
        Some(distance + (self.inner << self.shift).min(distance / INNER_SHARE))
    }

    fn count_inner(&mut self) {
        self.inner = self.memory.values().filter(|(_, page)| page.is_inner).count() as u64;
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
            self.memory.retain(|_, (_, page)| is_sampled(page.hash, shift));
            self.count_inner();
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
        self.memory.clear();
        self.inner = 0;
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

    fn page(hash: u64) -> Page {
        Page { hash, units: 1, address: hash as usize, is_inner: false }
    }

    #[test]
    fn distances_are_those_of_a_list_that_is_kept_in_order() {
        let mut stack = Stack::new(64, 0);
        let mut list: Vec<Page> = Vec::new();
        let mut random = 1u64;
        for _ in 0..5000 {
            random = super::super::mix(random);
            let chosen = Page { units: 1 + (random % 50 % 3) as u32, ..page(random % 50) };
            let at = list.iter().position(|page| page.hash == chosen.hash);
            let expected =
                at.map(|at| list.iter().take(at + 1).map(|page| u64::from(page.units)).sum::<u64>());
            if let Some(at) = at {
                list.remove(at);
            }
            list.insert(0, chosen);
            assert_eq!(stack.touch(chosen), expected);
        }
    }

    #[test]
    fn the_sample_stays_within_its_bound() {
        let mut stack = Stack::new(64, 0);
        for at in 0..10_000 {
            let page = Page { address: at as usize * 8192, ..page(super::super::mix(at)) };
            stack.touch(page);
            stack.place(page, 4096);
            assert!(stack.visits.len() <= 64 && stack.memory.len() <= 129);
        }
        assert!((7..10).contains(&stack.shift()), "{}", stack.shift());
        // Coming round, each page needs all of them.
        let mut sum = (0, 0);
        for at in 0..10_000 {
            if let Some(distance) = stack.touch(page(super::super::mix(at))) {
                sum = (sum.0 + distance, sum.1 + 1);
            }
        }
        assert!((7_000..13_000).contains(&(sum.0 / sum.1)), "{sum:?}");
    }

    #[test]
    fn memory_means_the_page_that_was_put_there_last() {
        let mut stack = Stack::new(64, 0);
        stack.place(Page { address: 1000, ..page(1) }, 4096);
        stack.place(Page { address: 6000, ..page(2) }, 4096);
        assert_eq!(stack.page_at(1000).map(|page| page.hash), Some(1));
        assert_eq!(stack.page_at(5096).map(|page| page.hash), None);
        stack.forget_memory(5000, 4096);
        assert_eq!(stack.page_at(1000).map(|page| page.hash), None);
        assert_eq!(stack.page_at(7000).map(|page| page.hash), None);
    }
}
