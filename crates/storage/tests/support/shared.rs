//! A store with round trips: every call is counted and takes a while.
//!
//! Several of them may share one [`Local`], each with a database of its own, as several processes share a
//! remote store: nothing that the databases must agree on may then lie in one of them. What others have done to
//! the catalog a user finds out when it reads, and not before.

use crate::store::{
    Build, Change, ChangeLog, CommitError, CommitResult, Commits, Counters, Counts, Exclusive, Expect,
    IndexBuilds, Intents, Local, ReadView, ReadViews, Replication, Store, TransactionId, WriteIntent,
};
use crate::{
    Cursor, Direction, Engine, Error, Hints, Ident, Position, Range, RemoteHints, Result, Room, Snapshot,
    Value, ValueRef, mutant,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Number of entries in one page of a scan.
const PAGE: usize = 100;

/// A store with counted calls.
pub struct Shared {
    store: Arc<Local>,
    calls: Arc<Calls>,
}

/// Number of calls, their delay, and their results.
struct Calls {
    count: AtomicU64,
    delay: Duration,
    /// Latest catalog generation known to this user.
    known: AtomicU64,
}

impl Calls {
    fn call(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
        if !self.delay.is_zero() {
            std::thread::sleep(self.delay);
        }
    }

    fn observe(&self, generation: u64) {
        self.known.fetch_max(generation, Ordering::AcqRel);
    }
}

impl Shared {
    /// Returns another user of a store, with this delay of each call.
    pub fn new(store: &Arc<Local>, delay: Duration) -> Shared {
        Shared {
            store: store.clone(),
            calls: Arc::new(Calls { count: AtomicU64::new(0), delay, known: AtomicU64::new(0) }),
        }
    }

    /// Returns the number of calls so far.
    pub fn calls(&self) -> u64 {
        self.calls.count.load(Ordering::Relaxed)
    }

    /// Returns a view received by a call.
    fn counted(&self, read_view: ReadView) -> ReadView {
        self.calls.observe(read_view.generation);
        let ReadView { snapshot, generation } = read_view;
        ReadView { snapshot: Arc::new(self.snapshot(Some(snapshot), generation)), generation }
    }

    fn snapshot(&self, inner: Option<Arc<dyn Snapshot>>, generation: u64) -> CountedSnapshot {
        let seen = inner.map_or_else(OnceLock::new, |inner| OnceLock::from(Some(inner)));
        CountedSnapshot { store: self.store.clone(), calls: self.calls.clone(), generation, seen }
    }
}

impl Store for Shared {
    fn engine(&self) -> &Arc<dyn Engine> {
        self.store.engine()
    }
}

impl ReadViews for Shared {
    fn read_view(&self) -> ReadView {
        let generation = self.calls.known.load(Ordering::Acquire);
        ReadView { snapshot: Arc::new(self.snapshot(None, generation)), generation }
    }

    fn generation(&self) -> u64 {
        self.calls.call();
        let generation = self.store.generation();
        self.calls.observe(generation);
        generation
    }

    fn known_generation(&self) -> Option<u64> {
        Some(self.calls.known.load(Ordering::Acquire))
    }

    fn read_view_with_time(&self, earliest: u64) -> (ReadView, u64) {
        self.calls.call();
        let (read_view, time) = self.store.read_view_with_time(earliest);
        (self.counted(read_view), time)
    }
}

impl Commits for Shared {
    fn commit(&self, change: &mut Change) -> Result<CommitResult> {
        self.calls.call();
        let outcome = self.store.commit(change)?;
        if let Err(CommitError::Expectation(number)) = &outcome
            && matches!(change.expect.get(*number), Some(Expect::Generation { .. }))
        {
            self.calls.observe(self.store.generation());
        }
        Ok(outcome)
    }

    fn lock<'a>(
        &'a self,
        should_continue: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Box<dyn Exclusive + 'a>>> {
        self.calls.call();
        let lock = self.store.lock(should_continue)?;
        Ok(lock.map(|lock| Box::new(HeardExclusive { lock, shared: self }) as Box<dyn Exclusive + 'a>))
    }

    fn room(&self) -> Result<Room> {
        self.store.room()
    }

    fn wait_for_space(&self, should_continue: &mut dyn FnMut() -> bool) -> Result<()> {
        self.store.wait_for_space(should_continue)
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
}

impl Intents for Shared {
    fn begin(&self, earliest: u64) -> (TransactionId, ReadView, u64) {
        self.calls.call();
        let (owner, read_view, time) = self.store.begin(earliest);
        (owner, self.counted(read_view), time)
    }

    fn acquire_intents(
        &self,
        owner: TransactionId,
        keys: &[WriteIntent],
        collections: &[(Ident, u64)],
        read_view: &dyn Snapshot,
    ) -> Result<std::result::Result<(), CommitError>> {
        self.calls.call();
        self.store.acquire_intents(owner, keys, collections, read_view)
    }

    fn release(&self, owner: TransactionId) {
        self.calls.call();
        self.store.release(owner);
    }

    fn wait_released(&self, owner: TransactionId, should_continue: &mut dyn FnMut() -> bool) {
        self.store.wait_released(owner, should_continue);
    }
}

impl Replication for Shared {
    fn latest_position(&self) -> Position {
        self.store.latest_position()
    }

    fn time(&self, earliest: u64) -> u64 {
        self.store.time(earliest)
    }

    fn wait_journaled(&self, position: Position) -> Result<()> {
        self.calls.call();
        self.store.wait_journaled(position)
    }
}

impl Counters for Shared {
    fn new_ident(&self) -> Ident {
        self.store.new_ident()
    }

    fn counts(&self, ident: Ident, read: &mut dyn FnMut(&Counts) -> Result<()>) -> Result<Arc<Counts>> {
        self.store.counts(ident, read)
    }
}

impl IndexBuilds for Shared {
    fn build(&self, ident: Ident) -> Option<Arc<Build>> {
        self.store.build(ident)
    }

    fn begin_build(&self, ident: Ident, greatest: u64) -> Arc<Build> {
        self.store.begin_build(ident, greatest)
    }

    fn end_build(&self, ident: Ident) {
        self.store.end_build(ident);
    }
}

impl ChangeLog for Shared {
    fn log_read_view(&self, earliest: u64) -> (ReadView, u64) {
        self.calls.call();
        let (read_view, end) = self.store.log_read_view(earliest);
        (self.counted(read_view), end)
    }

    fn log_begin(&self) -> Result<Option<u64>> {
        self.store.log_begin()
    }

    fn log_limit(&self) -> Option<u64> {
        self.store.log_limit()
    }

    fn set_log_limit(&self, bytes: u64) -> bool {
        self.store.set_log_limit(bytes)
    }

    fn log_steps(&self) -> u64 {
        self.store.log_steps()
    }

    fn log_bytes(&self) -> Option<u64> {
        self.store.log_bytes()
    }
}

/// The commit lock. Its holder knows the catalog changes made under it.
struct HeardExclusive<'a> {
    lock: Box<dyn Exclusive + 'a>,
    shared: &'a Shared,
}

impl Exclusive for HeardExclusive<'_> {
    fn read_view(&self) -> ReadView {
        self.shared.counted(self.lock.read_view())
    }

    fn transaction_relying_on(&self, ident: Ident, except: Option<TransactionId>) -> Option<TransactionId> {
        self.lock.transaction_relying_on(ident, except)
    }

    fn set_generation(&mut self, ident: Option<Ident>, generation: u64) {
        self.lock.set_generation(ident, generation);
    }

    fn reserve(&mut self, next: Ident) {
        self.lock.reserve(next);
    }

    fn commit(
        self: Box<Self>,
        change: Change,
        changes_catalog: bool,
        applied: &mut dyn FnMut(u64),
    ) -> Result<CommitResult> {
        let calls = &self.shared.calls;
        self.lock.commit(change, changes_catalog, &mut |generation| {
            calls.observe(generation);
            applied(generation);
        })
    }
}

/// A snapshot with counted reads, taken at the first read.
struct CountedSnapshot {
    store: Arc<Local>,
    calls: Arc<Calls>,
    /// Catalog generation returned with it.
    generation: u64,
    /// The state after the first read; `None` if its catalog is another one.
    seen: OnceLock<Option<Arc<dyn Snapshot>>>,
}

impl CountedSnapshot {
    /// Returns the state, which is received with the first answer.
    fn seen(&self) -> Result<&Arc<dyn Snapshot>> {
        let seen = self.seen.get_or_init(|| {
            let ReadView { snapshot, generation } = self.store.read_view();
            self.calls.observe(generation);
            let same = generation == self.generation || mutant!("reads overlook a newer catalog");
            same.then_some(snapshot)
        });
        seen.as_ref().ok_or(Error::CatalogChanged)
    }

    fn ask(&self) -> Result<&Arc<dyn Snapshot>> {
        self.calls.call();
        self.seen()
    }
}

impl Snapshot for CountedSnapshot {
    fn get(&self, ident: Ident, key: &[u8]) -> Result<Option<Value>> {
        self.ask()?.get(ident, key)
    }

    fn lookup(&self, index: Ident, key: &[u8], records: Ident) -> Result<Option<(Value, Value)>> {
        self.ask()?.lookup(index, key, records)
    }

    fn scan(&self, ident: Ident, range: Range, direction: Direction) -> Result<Box<dyn Cursor>> {
        let inner = self.seen()?.scan(ident, range, direction)?;
        Ok(Box::new(CountedCursor { inner, calls: self.calls.clone(), read: 0 }))
    }

    fn entries(&self, ident: Ident) -> Result<u64> {
        self.ask()?.entries(ident)
    }

    fn bytes(&self, ident: Ident) -> Result<u64> {
        self.ask()?.bytes(ident)
    }

    fn contains(&self, ident: Ident) -> Result<bool> {
        self.ask()?.contains(ident)
    }

    fn remote(&self) -> Option<&dyn RemoteHints> {
        Some(self)
    }
}

impl RemoteHints for CountedSnapshot {
    fn get_alone(&self, ident: Ident, key: &[u8]) -> Result<Option<Value>> {
        self.get(ident, key)
    }

    fn scan_hinted(
        &self,
        ident: Ident,
        range: Range,
        _: Hints,
        direction: Direction,
    ) -> Result<Box<dyn Cursor>> {
        self.scan(ident, range, direction)
    }

    fn confirm(&self) -> Result<()> {
        match self.seen.get() {
            Some(_) => self.seen().map(drop),
            None => self.ask().map(drop),
        }
    }
}

/// A cursor with counted pages.
struct CountedCursor {
    inner: Box<dyn Cursor>,
    calls: Arc<Calls>,
    read: usize,
}

impl Cursor for CountedCursor {
    fn next(&mut self) -> Result<Option<(&[u8], ValueRef<'_>)>> {
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
