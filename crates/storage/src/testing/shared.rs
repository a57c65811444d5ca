//! A store as one that is far away would be: every call is counted and takes a while.
//!
//! Several of them may share one [`Local`], each with a database of its own, as several processes share a
//! remote store: nothing that the databases must agree on may then lie in one of them.

use crate::store::{Build, Change, Claim, Counts, Exclusive, Local, Outcome, Owner, Refusal, Sight, Store};
use crate::{Cursor, Direction, Engine, Ident, Position, Range, Result, Snapshot, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How many entries come with one call of a scan.
const PAGE: usize = 100;

/// A store whose calls are counted.
pub struct Shared {
    store: Arc<Local>,
    calls: Arc<Calls>,
}

/// How many calls there were, and how long each takes.
struct Calls {
    count: AtomicU64,
    delay: Duration,
}

impl Calls {
    fn call(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
        if !self.delay.is_zero() {
            std::thread::sleep(self.delay);
        }
    }
}

impl Shared {
    /// One more user of a store; each call takes so long.
    pub fn new(store: &Arc<Local>, delay: Duration) -> Shared {
        Shared { store: store.clone(), calls: Arc::new(Calls { count: AtomicU64::new(0), delay }) }
    }

    /// How many calls there have been so far.
    pub fn calls(&self) -> u64 {
        self.calls.count.load(Ordering::Relaxed)
    }

    fn counted(&self, sight: Sight) -> Sight {
        let snapshot = Arc::new(CountedSnapshot { inner: sight.snapshot, calls: self.calls.clone() });
        Sight { snapshot, ..sight }
    }
}

impl Store for Shared {
    fn engine(&self) -> &Arc<dyn Engine> {
        self.store.engine()
    }

    fn sight(&self) -> Sight {
        self.counted(self.store.sight())
    }

    fn generation(&self) -> u64 {
        self.store.generation()
    }

    fn sight_with_time(&self, earliest: u64) -> (Sight, u64) {
        self.calls.call();
        let (sight, time) = self.store.sight_with_time(earliest);
        (self.counted(sight), time)
    }

    fn commit(&self, change: Change) -> Result<Outcome> {
        self.calls.call();
        self.store.commit(change)
    }

    fn lock<'a>(&'a self, go_on: &mut dyn FnMut() -> bool) -> Result<Option<Box<dyn Exclusive + 'a>>> {
        self.calls.call();
        self.store.lock(go_on)
    }

    fn claim(
        &self,
        owner: Owner,
        keys: &[Claim],
        held: &[(Ident, u64)],
        sight: &dyn Snapshot,
    ) -> Result<std::result::Result<(), Refusal>> {
        self.calls.call();
        self.store.claim(owner, keys, held, sight)
    }

    fn release(&self, owner: Owner) {
        self.calls.call();
        self.store.release(owner);
    }

    fn wait_released(&self, owner: Owner, go_on: &mut dyn FnMut() -> bool) {
        self.store.wait_released(owner, go_on);
    }

    fn must_wait(&self) -> Result<bool> {
        self.store.must_wait()
    }

    fn wait_for_room(&self, go_on: &mut dyn FnMut() -> bool) -> Result<()> {
        self.store.wait_for_room(go_on)
    }

    fn wait_journaled(&self, position: Position) -> Result<()> {
        self.calls.call();
        self.store.wait_journaled(position)
    }

    fn latest_position(&self) -> Position {
        self.store.latest_position()
    }

    fn time(&self, earliest: u64) -> u64 {
        self.store.time(earliest)
    }

    fn freeze(&self) -> u64 {
        self.store.freeze()
    }

    fn thaw(&self) -> Option<u64> {
        self.store.thaw()
    }

    fn frozen(&self) -> u64 {
        self.store.frozen()
    }

    fn new_ident(&self) -> Ident {
        self.store.new_ident()
    }

    fn begin(&self, earliest: u64) -> (Owner, Sight, u64) {
        self.calls.call();
        let (owner, sight, time) = self.store.begin(earliest);
        (owner, self.counted(sight), time)
    }

    fn counts(&self, ident: Ident, read: &mut dyn FnMut(&Counts) -> Result<()>) -> Result<Arc<Counts>> {
        self.store.counts(ident, read)
    }

    fn build(&self, ident: Ident) -> Option<Arc<Build>> {
        self.store.build(ident)
    }

    fn begin_build(&self, ident: Ident, greatest: u64) -> Arc<Build> {
        self.store.begin_build(ident, greatest)
    }

    fn end_build(&self, ident: Ident) {
        self.store.end_build(ident);
    }

    fn log_sight(&self, earliest: u64) -> (Sight, u64) {
        self.calls.call();
        let (sight, end) = self.store.log_sight(earliest);
        (self.counted(sight), end)
    }

    fn log_begin(&self) -> Result<Option<u64>> {
        self.store.log_begin()
    }

    fn log_limit(&self) -> Option<u64> {
        self.store.log_limit()
    }

    fn log_bytes(&self) -> Option<u64> {
        self.store.log_bytes()
    }
}

/// A snapshot whose reads are counted.
struct CountedSnapshot {
    inner: Arc<dyn Snapshot>,
    calls: Arc<Calls>,
}

impl Snapshot for CountedSnapshot {
    fn get(&self, ident: Ident, key: &[u8]) -> Result<Option<Value>> {
        self.calls.call();
        self.inner.get(ident, key)
    }

    fn lookup(&self, index: Ident, key: &[u8], records: Ident) -> Result<Option<(Value, Value)>> {
        self.calls.call();
        self.inner.lookup(index, key, records)
    }

    fn scan(&self, ident: Ident, range: Range, direction: Direction) -> Result<Box<dyn Cursor>> {
        let inner = self.inner.scan(ident, range, direction)?;
        Ok(Box::new(CountedCursor { inner, calls: self.calls.clone(), read: 0 }))
    }

    fn entries(&self, ident: Ident) -> Result<u64> {
        self.calls.call();
        self.inner.entries(ident)
    }

    fn bytes(&self, ident: Ident) -> Result<u64> {
        self.calls.call();
        self.inner.bytes(ident)
    }

    fn contains(&self, ident: Ident) -> Result<bool> {
        self.calls.call();
        self.inner.contains(ident)
    }
}

/// A cursor whose pages are counted.
struct CountedCursor {
    inner: Box<dyn Cursor>,
    calls: Arc<Calls>,
    read: usize,
}

impl Cursor for CountedCursor {
    fn next(&mut self) -> Result<Option<(&[u8], &Value)>> {
        if self.read.is_multiple_of(PAGE) {
            self.calls.call();
        }
        self.read += 1;
        self.inner.next()
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.read = 0;
        self.inner.seek(key)
    }
}
