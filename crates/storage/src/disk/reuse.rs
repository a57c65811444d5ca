//! Estimates for caches of other sizes, from a sketch of reuse distances of the base's pages.
//!
//! A read is one visit of a leaf page, by a lookup or by a cursor that reaches it. A read is a miss if the page came
//! from the file. Visits of inner pages, about one page in a hundred, are not counted, since nearly all are hits. The
//! sample includes inner pages, because they use space in the cache.
//!
//! The sample has one page in 2^n, chosen by a hash of its place in the file (SHARDS: Waldspurger et al., FAST 2015).
//! The number of sampled pages visited since the page's last visit, times 2^n, is the cache size that would have kept
//! it. When the sample exceeds its limit, n is raised. Memory is therefore constant, and most reads cost one hash.
//!
//! The sample is a stack of pages in the order of their latest visits (Mattson's stack algorithm).

mod tally;

use crate::{Reads, WorkingSet};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;
use tally::{Count, Tallies};

/// Unit of page sizes.
const UNIT_BYTES: u64 = 512;
/// Maximum number of sampled pages.
const SAMPLE_MAX: usize = 8192;
/// Initial sampling: one page in 2^this.
const FIRST_SHIFT: u32 = 0;
/// Number of tables with their own counters. Further tables share one set.
const TABLES_MAX: usize = 1024;
/// Number of sampled visits between two reads of the clock.
const CLOCK_INTERVAL: u32 = 64;

/// A visited page.
#[derive(Debug, Clone, Copy)]
pub(super) struct Visited {
    /// Unique number of the page.
    pub(super) number: u64,
    /// Memory of the page.
    pub(super) bytes: u64,
    /// True for a leaf, false for an inner page.
    pub(super) is_leaf: bool,
    /// True if the page was read from the file.
    pub(super) is_miss: bool,
}

/// The sketch of one base.
pub(super) struct Reuse {
    /// Sampling: one page in 2^this.
    shift: AtomicU32,
    sketch: Mutex<Sketch>,
    tables: Mutex<HashMap<u64, Arc<TableReads>>>,
    /// Shared counters for further tables.
    others: Arc<TableReads>,
    /// Origin of the time spans.
    start: Instant,
}

/// Fields that change together.
struct Sketch {
    stack: Stack,
    tallies: Tallies,
    /// Number of visits until the clock is read again.
    until_clock: u32,
}

/// Counters of a table.
#[derive(Default)]
pub(super) struct TableReads {
    /// 0 for shared counters.
    number: u64,
    reads: AtomicU64,
    misses: AtomicU64,
}

impl TableReads {
    /// Returns the present counts.
    fn count(&self) -> Count {
        Count { reads: self.reads.load(Ordering::Relaxed), misses: self.misses.load(Ordering::Relaxed) }
    }
}

impl Default for Reuse {
    fn default() -> Self {
        Reuse {
            shift: AtomicU32::new(FIRST_SHIFT),
            sketch: Mutex::new(Sketch {
                stack: Stack::new(SAMPLE_MAX, FIRST_SHIFT),
                tallies: Tallies::default(),
                until_clock: CLOCK_INTERVAL,
            }),
            tables: Mutex::default(),
            others: Arc::default(),
            start: Instant::now(),
        }
    }
}

impl Reuse {
    /// Returns the counters of a table.
    pub(super) fn uses(&self, number: u64) -> Arc<TableReads> {
        let mut tables = self.tables.lock();
        if let Some(uses) = tables.get(&number) {
            return Arc::clone(uses);
        }
        if tables.len() >= TABLES_MAX {
            tables.retain(|_, uses| {
                let retained = Arc::strong_count(uses) > 1;
                if !retained {
                    let count = uses.count();
                    self.others.reads.fetch_add(count.reads, Ordering::Relaxed);
                    self.others.misses.fetch_add(count.misses, Ordering::Relaxed);
                }
                retained
            });
        }
        if tables.len() >= TABLES_MAX {
            return Arc::clone(&self.others);
        }
        let uses = Arc::new(TableReads { number, ..TableReads::default() });
        tables.insert(number, Arc::clone(&uses));
        uses
    }

    /// Records a visit of a page for a table.
    #[inline]
    pub(super) fn visit(&self, uses: &TableReads, page: Visited) {
        if page.is_leaf {
            uses.reads.fetch_add(1, Ordering::Relaxed);
            if page.is_miss {
                uses.misses.fetch_add(1, Ordering::Relaxed);
            }
        }
        let hash = mix(page.number);
        if is_sampled(hash, self.shift.load(Ordering::Relaxed)) {
            self.visit_sampled(uses, hash, page);
        }
    }

    /// Records a visit of a sampled page with its reuse distance.
    #[cold]
    fn visit_sampled(&self, uses: &TableReads, hash: u64, page: Visited) {
        let mut sketch = self.sketch.lock();
        let distance = sketch.stack.touch(hash, page.bytes.div_ceil(UNIT_BYTES) as u32);
        self.shift.store(sketch.stack.shift(), Ordering::Relaxed);
        if page.is_leaf {
            self.record(&mut sketch, uses, distance);
        }
    }

    /// Records that a written page is in the cache.
    pub(super) fn written(&self, number: u64, bytes: u64) {
        let hash = mix(number);
        if is_sampled(hash, self.shift.load(Ordering::Relaxed)) {
            self.sketch.lock().stack.touch(hash, bytes.div_ceil(UNIT_BYTES) as u32);
        }
    }

    /// Records that a page is no longer needed and uses no space.
    pub(super) fn freed(&self, number: u64) {
        let hash = mix(number);
        if is_sampled(hash, self.shift.load(Ordering::Relaxed)) {
            self.sketch.lock().stack.forget(hash);
        }
    }

    /// Adds a distance to the tallies, weighted by the sampling. Reads the clock at intervals.
    fn record(&self, sketch: &mut Sketch, uses: &TableReads, distance: Option<u64>) {
        let shift = sketch.stack.shift();
        sketch.tallies.record(uses.number, distance, 1 << shift);
        sketch.until_clock = sketch.until_clock.saturating_sub(1);
        if sketch.until_clock == 0 {
            sketch.until_clock = CLOCK_INTERVAL;
            self.rotate_if_due(sketch);
        }
    }

    /// Starts another time span if due.
    fn rotate_if_due(&self, sketch: &mut Sketch) {
        let seconds = self.start.elapsed().as_secs();
        if sketch.tallies.is_due(seconds) {
            let counts = self.counts();
            sketch.tallies.rotate(seconds, &counts);
        }
    }

    /// Returns the number of leaf reads, and of leaf reads from the file.
    pub(super) fn reads(&self) -> (u64, u64) {
        let tables = self.tables.lock();
        let counts = tables.values().chain([&self.others]).map(|uses| uses.count());
        counts.fold((0, 0), |sum, count| (sum.0 + count.reads, sum.1 + count.misses))
    }

    /// Returns the exact counts of every table.
    fn counts(&self) -> HashMap<u64, Count> {
        let tables = self.tables.lock();
        let all = tables.values().chain([&self.others]);
        all.map(|uses| (uses.number, uses.count())).collect()
    }

    /// Removes all pages after a change of the file, and keeps the counts.
    pub(super) fn forget_pages(&self) {
        self.sketch.lock().stack.clear();
    }

    /// Returns the estimates by table. Sizes are those of the page cache.
    pub(super) fn report(&self, by_table: &mut dyn FnMut(u64, Reads)) -> WorkingSet {
        let seconds = self.start.elapsed().as_secs();
        let mut sketch = self.sketch.lock();
        let counts = self.counts();
        if sketch.tallies.is_due(seconds) {
            sketch.tallies.rotate(seconds, &counts);
        }
        let sampled = 1 << sketch.stack.shift();
        let (all, others) = sketch.tallies.report(&counts, by_table);
        let hour_seconds = sketch.tallies.hour_seconds(seconds);
        WorkingSet { sampled, seconds, hour_seconds, all, others, ..WorkingSet::default() }
    }
}

/// Maps places in the file to distinct hashes.
fn mix(number: u64) -> u64 {
    let mut hash = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// The latest visit of a page.
struct Visit {
    /// Time of the visit: a running number.
    at: u32,
    /// Size of the page.
    units: u32,
}

/// Returns true if a page is in the sample of one in 2^`shift`.
fn is_sampled(hash: u64, shift: u32) -> bool {
    hash.leading_zeros() >= shift
}

/// Pages by their latest visit.
struct Stack {
    /// Maximum number of sampled pages.
    limit: usize,
    shift: u32,
    /// Visits by the hash of the page.
    visits: HashMap<u64, Visit, BuildHasherDefault<IdentityHasher>>,
    /// Sizes of pages by the time of their visit.
    sizes: FenwickTree,
    /// Time of the next visit.
    now: u32,
}

/// A hasher for keys that are hashes already.
#[derive(Default)]
struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        // The upper bits of all sampled hashes are equal, and the table distinguishes entries by these bits.
        self.0 = hash.rotate_left(32);
    }
}

impl Stack {
    fn new(limit: usize, shift: u32) -> Self {
        Stack { limit, shift, visits: HashMap::default(), sizes: FenwickTree::new(limit * 4), now: 0 }
    }

    /// Returns the sampling exponent.
    fn shift(&self) -> u32 {
        self.shift
    }

    /// Records a visit. Returns the total size of the pages that a cache must hold to keep this page, itself included;
    /// `None` for the first visit.
    fn touch(&mut self, hash: u64, units: u32) -> Option<u64> {
        if !is_sampled(hash, self.shift) {
            return None;
        }
        if self.now as usize >= self.sizes.len() {
            self.renumber();
        }
        debug_assert!(self.visits.len() <= self.limit, "{} sampled pages", self.visits.len());
        let now = self.now;
        self.now += 1;
        let before = self.visits.insert(hash, Visit { at: now, units });
        self.sizes.add(now, units);
        let Some(Visit { at: then, units: before }) = before else {
            self.raise_shift();
            return None;
        };
        debug_assert!(then < now, "a visit at {then} before that at {now}");
        self.sizes.subtract(then, before);
        let newer = self.sizes.total() - self.sizes.up_to(then) - u64::from(units);
        Some((newer << self.shift) + u64::from(units))
    }

    /// Removes a page.
    fn forget(&mut self, hash: u64) {
        if let Some(Visit { at, units }) = self.visits.remove(&hash) {
            self.sizes.subtract(at, units);
        }
    }

    /// Raises the sampling exponent if the sample has too many pages.
    fn raise_shift(&mut self) {
        while self.visits.len() > self.limit {
            self.shift += 1;
            debug_assert!(self.shift < u64::BITS, "no hash has so many zeros");
            let (shift, sizes) = (self.shift, &mut self.sizes);
            self.visits.retain(|hash, visit| {
                let retained = is_sampled(*hash, shift);
                if !retained {
                    sizes.subtract(visit.at, visit.units);
                }
                retained
            });
        }
    }

    /// Renumbers the visits without gaps.
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
        debug_assert_eq!(self.now as usize, self.visits.len(), "the numbers have gaps");
        debug_assert!((self.now as usize) < self.sizes.len(), "no number is free");
    }

    /// Removes all pages.
    fn clear(&mut self) {
        self.visits.clear();
        self.sizes.clear();
        self.now = 0;
    }
}

/// Numbers with prefix sums and updates in logarithmic time.
struct FenwickTree {
    tree: Vec<u32>,
    total: u64,
}

impl FenwickTree {
    fn new(len: usize) -> Self {
        FenwickTree { tree: vec![0; len], total: 0 }
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
        debug_assert!(self.total >= u64::from(units), "{units} units of {}", self.total);
        self.total -= u64::from(units);
        self.change(at, |sum| sum.wrapping_sub(units));
    }

    fn change(&mut self, at: u32, change: impl Fn(u32) -> u32) {
        debug_assert!((at as usize) < self.tree.len(), "no sum has number {at}");
        let mut at = at as usize;
        while let Some(sum) = self.tree.get_mut(at) {
            *sum = change(*sum);
            at |= at + 1;
        }
    }

    /// Returns the sum up to a place, included.
    fn up_to(&self, at: u32) -> u64 {
        let mut end = at as usize + 1;
        let mut sum = 0;
        while let Some(part) = end.checked_sub(1).and_then(|at| self.tree.get(at)) {
            sum += u64::from(*part);
            end &= end - 1;
        }
        debug_assert!(sum <= self.total, "a part is larger than the whole");
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
    fn distances_equal_an_ordered_list() {
        let mut stack = Stack::new(64, 0);
        let mut list: Vec<(u64, u32)> = Vec::new();
        let mut random = 1u64;
        for _ in 0..5000 {
            random = super::mix(random);
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
                let removed = random / 7 % 50;
                stack.forget(removed);
                list.retain(|(hash, _)| *hash != removed);
            }
        }
    }

    #[test]
    fn the_sample_stays_within_its_bound() {
        let mut stack = Stack::new(64, 0);
        for at in 0..10_000 {
            stack.touch(super::mix(at), 1);
            assert!(stack.visits.len() <= 64);
        }
        assert!((7..10).contains(&stack.shift()), "{}", stack.shift());
        // In a cyclic scan, each page needs space for all.
        let mut sum = (0, 0);
        for at in 0..10_000 {
            if let Some(distance) = stack.touch(super::mix(at), 1) {
                sum = (sum.0 + distance, sum.1 + 1);
            }
        }
        assert!((7_000..13_000).contains(&(sum.0 / sum.1)), "{sum:?}");
    }
}
