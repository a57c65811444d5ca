//! What would a cache of another size do? A sketch of how soon pages of the base are read again.
//!
//! redb caches the base's pages, and says nothing of who reads which. But a page is known by where it lies in
//! memory: our backend is given the memory that a page is read into or written from (`backend.rs`), which the
//! cache keeps and lends to readers, and whoever has looked up an entry holds a piece of it (`base.rs`). No such
//! memory is looked into, addresses are compared, and an address means the page that was last put there.
//!
//! A read is one visit of a page of entries: by a lookup that finds something, or by a cursor that comes to it.
//! It is a miss if that page had to be read from the file. Visits of the pages above those, one in a hundred or so,
//! aren't counted: nearly always they are hits. A cache has to have room for them, though (`stack.rs`).
//!
//! Of the pages one in 2^n is looked at, chosen by a hash of its place in the file (SHARDS: Waldspurger et al.,
//! FAST 2015): how many other pages of the sample have been visited since it was visited last, times 2^n, is the
//! size of the cache that would still have had it. As the sample grows beyond its bound n is raised. So memory is
//! fixed, and most reads cost a look into a small table of bits (`frames.rs`).

mod frames;
mod stack;
mod tally;

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use crate::{Reads, WorkingSet};
use frames::Frames;
use stack::Stack;
use tally::{Count, Tallies};

/// The unit in which pages are counted.
const PAGE_BYTES: u64 = 4096;
/// The most pages that are looked at.
const SAMPLE: usize = 4096;
/// One page in 2^this is looked at to begin with.
const FIRST_SHIFT: u32 = 2;
/// What redb's inner pages begin with.
const INNER: u8 = 2;
/// How many tables have counters of their own; others share theirs.
const TABLES_MAX: usize = 1024;
/// After so many visits of sampled pages the clock is looked at.
const LOOK_EVERY: u32 = 64;

/// The page that a thread has read from the file last, and where it is in memory.
#[derive(Clone, Copy)]
struct Placed {
    address: usize,
    len: usize,
    /// If it is one of the sample: what it had been away for.
    sampled: Option<Option<u64>>,
}

impl Placed {
    const NONE: Placed = Placed { address: 0, len: 0, sampled: None };
}

thread_local! {
    static LAST: Cell<Placed> = const { Cell::new(Placed::NONE) };
}

/// The sketch of one base.
pub(super) struct Reuse {
    frames: Frames,
    /// One page in 2^this is looked at.
    shift: AtomicU32,
    sketch: Mutex<Sketch>,
    tables: Mutex<HashMap<u64, Arc<Uses>>>,
    others: Arc<Uses>,
    start: Instant,
}

/// What has to be changed together.
struct Sketch {
    stack: Stack,
    tallies: Tallies,
    until_look: u32,
}

/// What is counted of one table.
#[derive(Default)]
pub(super) struct Uses {
    /// 0 where tables share it.
    number: u64,
    reads: AtomicU64,
    misses: AtomicU64,
}

impl Uses {
    fn count(&self) -> Count {
        Count { reads: self.reads.load(Ordering::Relaxed), misses: self.misses.load(Ordering::Relaxed) }
    }
}

impl Default for Reuse {
    fn default() -> Self {
        Reuse {
            frames: Frames::default(),
            shift: AtomicU32::new(FIRST_SHIFT),
            sketch: Mutex::new(Sketch {
                stack: Stack::new(SAMPLE, FIRST_SHIFT),
                tallies: Tallies::default(),
                until_look: LOOK_EVERY,
            }),
            tables: Mutex::default(),
            others: Arc::default(),
            start: Instant::now(),
        }
    }
}

impl Reuse {
    /// The counters of a table.
    pub(super) fn uses(&self, number: u64) -> Arc<Uses> {
        let mut tables = self.tables.lock();
        if let Some(uses) = tables.get(&number) {
            return Arc::clone(uses);
        }
        if tables.len() >= TABLES_MAX {
            tables.retain(|_, uses| {
                let stays = Arc::strong_count(uses) > 1;
                if !stays {
                    let count = uses.count();
                    self.others.reads.fetch_add(count.reads, Ordering::Relaxed);
                    self.others.misses.fetch_add(count.misses, Ordering::Relaxed);
                }
                stays
            });
        }
        if tables.len() >= TABLES_MAX {
            return Arc::clone(&self.others);
        }
        let uses = Arc::new(Uses { number, ..Uses::default() });
        tables.insert(number, Arc::clone(&uses));
        uses
    }

    /// Notes that an address in a page was read for a table.
    pub(super) fn visit(&self, uses: &Uses, address: usize) {
        uses.reads.fetch_add(1, Ordering::Relaxed);
        let last = LAST.get();
        if address.wrapping_sub(last.address) < last.len {
            LAST.set(Placed::NONE);
            uses.misses.fetch_add(1, Ordering::Relaxed);
            if let Some(distance) = last.sampled {
                self.note(&mut self.sketch.lock(), uses, distance);
            }
            return;
        }
        if self.frames.may_hold(address) {
            self.visit_sampled(uses, address);
        }
    }

    /// Notes that a lookup found nothing: which page it looked at isn't known.
    pub(super) fn visit_in_vain() {
        LAST.set(Placed::NONE);
    }

    #[cold]
    fn visit_sampled(&self, uses: &Uses, address: usize) {
        let mut sketch = self.sketch.lock();
        let Some(page) = sketch.stack.page_at(address) else { return };
        let distance = sketch.stack.touch(page);
        self.note(&mut sketch, uses, distance);
    }

    fn note(&self, sketch: &mut Sketch, uses: &Uses, distance: Option<u64>) {
        let shift = sketch.stack.shift();
        sketch.tallies.note(uses.number, distance, 1 << shift);
        self.shift.store(shift, Ordering::Relaxed);
        sketch.until_look = sketch.until_look.saturating_sub(1);
        if sketch.until_look == 0 {
            sketch.until_look = LOOK_EVERY;
            self.keep_time(sketch);
        }
    }

    /// Begins another span of time where it is time for it.
    fn keep_time(&self, sketch: &mut Sketch) {
        let seconds = self.start.elapsed().as_secs();
        if sketch.tallies.is_due(seconds) {
            let counts = self.counts();
            sketch.tallies.turn(seconds, &counts);
        }
    }

    /// How often a page of entries was read, and how often from the file.
    pub(super) fn reads(&self) -> (u64, u64) {
        let tables = self.tables.lock();
        let counts = tables.values().chain([&self.others]).map(|uses| uses.count());
        counts.fold((0, 0), |sum, count| (sum.0 + count.reads, sum.1 + count.misses))
    }

    fn counts(&self) -> HashMap<u64, Count> {
        let tables = self.tables.lock();
        let all = tables.values().chain([&self.others]);
        all.map(|uses| (uses.number, uses.count())).collect()
    }

    /// Notes that a page of the file has been read into memory at an address.
    pub(super) fn loaded(&self, place: u64, memory: &[u8]) {
        let sampled = self.placed(place, memory);
        LAST.set(Placed { address: memory.as_ptr() as usize, len: memory.len(), sampled });
    }

    /// Notes that a page has been written from memory that the cache may keep.
    pub(super) fn written(&self, place: u64, memory: &[u8]) {
        self.placed(place, memory);
    }

    /// Takes a page into the sample, if it belongs there. Returns what it had been away for.
    fn placed(&self, place: u64, memory: &[u8]) -> Option<Option<u64>> {
        let address = memory.as_ptr() as usize;
        let hash = mix(place);
        let is_sampled = stack::is_sampled(hash, self.shift.load(Ordering::Relaxed));
        if !is_sampled && !self.frames.may_hold_any(address, memory.len()) {
            return None;
        }
        let mut sketch = self.sketch.lock();
        sketch.stack.forget_memory(address, memory.len());
        if !is_sampled {
            return None;
        }
        let units = (memory.len() as u64).div_ceil(PAGE_BYTES) as u32;
        let is_inner = memory.first() == Some(&INNER);
        let page = stack::Page { hash, units, address, is_inner };
        if sketch.stack.place(page, memory.len()) {
            self.frames.clear();
            sketch.stack.each_memory(|address, len| self.frames.note(address, len));
        }
        self.frames.note(address, memory.len());
        let distance = sketch.stack.touch(page);
        self.shift.store(sketch.stack.shift(), Ordering::Relaxed);
        Some(distance)
    }

    /// Forgets all pages, of which another file has others, but not what has been counted.
    pub(super) fn forget_pages(&self) {
        self.sketch.lock().stack.clear();
        self.frames.clear();
    }

    /// What there is to tell, by table; the sizes are those of the cache of pages.
    pub(super) fn report(&self, by_table: &mut dyn FnMut(u64, Reads)) -> WorkingSet {
        let seconds = self.start.elapsed().as_secs();
        let mut sketch = self.sketch.lock();
        let counts = self.counts();
        if sketch.tallies.is_due(seconds) {
            sketch.tallies.turn(seconds, &counts);
        }
        let sampled = 1 << sketch.stack.shift();
        let (all, others) = sketch.tallies.report(&counts, by_table);
        let hour_seconds = sketch.tallies.hour_seconds(seconds);
        WorkingSet { sampled, seconds, hour_seconds, all, others, ..WorkingSet::default() }
    }
}

/// Spreads places in the file over all numbers; no two come to the same.
fn mix(place: u64) -> u64 {
    let mut hash = place.wrapping_add(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}
