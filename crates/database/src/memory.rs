//! What an operation holds of the process's memory, held against its bound.
//!
//! The allocator counts what each thread takes ([`base::memory`]). An operation remembers how much its thread had
//! taken when it began, so that a look costs a subtraction. What the engine keeps, because the operation writes or
//! fills the cache, is no longer the operation's: that is found out by looking at how much the engine has grown,
//! once the operation seems to hold a share of what it may.

use base::memory;
use base::{Result, err};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use storage::Engine;

/// The server parameter that bounds one operation's memory.
pub const OPERATION_MEMORY: &str = "internalQueryMaxOperationMemoryBytes";

/// What all operations of a database share.
#[derive(Default)]
pub(crate) struct Shared {
    /// Set once the database stops.
    pub(crate) stopping: AtomicBool,
    /// Set while the process has no memory left for more data.
    pub(crate) full: AtomicBool,
    /// Keys and documents that operations have examined, and sorts without an index, since the start.
    pub(crate) keys_examined: AtomicU64,
    pub(crate) docs_examined: AtomicU64,
    pub(crate) sorts: AtomicU64,
    /// Bytes of documents that commits have replaced or removed since the start, about: old snapshots keep them.
    pub(crate) replaced: AtomicU64,
    /// What data goes into.
    engine: Option<Arc<dyn Engine>>,
    /// What all operations hold together.
    pub(crate) ledger: Ledger,
}

/// What operations, open cursors and waiting messages hold together, and what they may hold.
#[derive(Default)]
pub(crate) struct Ledger {
    /// In bytes, as of the last look at each operation.
    held: AtomicI64,
    /// In bytes; zero without a limit.
    room: AtomicI64,
    /// How many operations are running that hold much.
    large: AtomicUsize,
}

/// An operation is entered in the ledger again whenever it holds so many bytes more or less.
const ENTRY: i64 = 256 << 10;

/// The shares of the room beyond which operations wait before they become large, and batches end early.
const BUSY_SHARE: i64 = 2;
const BATCH_SHARE: i64 = 4;

/// What a large operation is expected to take at least, in bytes: so many begin at once that half of the room would do.
const EXPECTED: i64 = 16 << 20;

/// How long an operation waits for room, and how often it looks.
const WAIT: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(2);

impl Ledger {
    /// Enters a change, in bytes.
    pub(crate) fn add(&self, bytes: i64) {
        self.held.fetch_add(bytes, Relaxed);
    }

    /// The sum, in bytes.
    pub(crate) fn held(&self) -> u64 {
        self.held.load(Relaxed).max(0).unsigned_abs()
    }

    /// Sets how much there is room for, in bytes.
    pub(crate) fn set_room(&self, bytes: u64) {
        self.room.store(i64::try_from(bytes).unwrap_or(i64::MAX), Relaxed);
    }

    /// Whether more than this share of the room is taken.
    fn exceeds(&self, share: i64) -> bool {
        let room = self.room.load(Relaxed);
        room > 0 && self.held.load(Relaxed) > room / share
    }

    /// Whether one more large operation had better wait.
    fn is_busy(&self) -> bool {
        let (room, large) = (self.room.load(Relaxed), self.large.load(Relaxed));
        let expected = EXPECTED.saturating_mul(i64::try_from(large).unwrap_or(i64::MAX).saturating_add(1));
        // One may always go on: what is taken then may be replies and cursors at rest.
        room > 0 && large > 0 && self.held.load(Relaxed).max(expected) > room / BUSY_SHARE
    }
}

/// The engine's counts are of keys and values; its trees, and what one allocation costs beside its bytes, come to at
/// most so many times as much for the smallest documents.
const ENGINE_SHARE: u64 = 4;

/// The share of its bound after which an operation is looked at more closely, and each time again.
const STEP: i64 = 8;

/// What a cursor takes for less than so many bytes is its own.
const NOTEWORTHY: i64 = 256 << 10;

impl Shared {
    /// For operations on an engine.
    pub(crate) fn of_engine(engine: Arc<dyn Engine>) -> Shared {
        Shared { engine: Some(engine), ..Shared::default() }
    }

    /// Bytes that the engine keeps in memory, about.
    fn engine_bytes(&self) -> u64 {
        let Some(engine) = &self.engine else { return 0 };
        let counted = engine.statistics();
        let data = if engine.has_journal() { 0 } else { counted.bytes };
        (data + counted.cache_bytes + counted.changed_bytes).saturating_mul(ENGINE_SHARE)
    }

    /// Errors: ExceededMemoryLimit where there is no memory for more data.
    pub(crate) fn check_room(&self) -> Result<()> {
        if !self.full.load(Relaxed) {
            return Ok(());
        }
        Err(err!(
            ExceededMemoryLimit,
            "the data takes all the memory that it may (--memory-limit): only deletes and reads are carried out"
        ))
    }
}

/// The memory of one operation.
pub(crate) struct Account {
    /// What the operation may hold, in bytes.
    limit: i64,
    /// The thread it runs on.
    thread: AtomicUsize,
    /// What that had taken when the operation held nothing.
    base: AtomicI64,
    /// What that may have taken until the operation is looked at more closely.
    look_at: AtomicI64,
    /// What that had taken at the last closer look, or when the operation went on.
    seen: AtomicI64,
    /// Bytes held when it was last asked.
    held: AtomicI64,
    /// Bytes of the engine at the last closer look; the greatest number before the first.
    engine: AtomicU64,
    /// What that had taken at the last entry in the ledger.
    entered_at: AtomicI64,
    /// The bytes that are entered there.
    entered: AtomicI64,
    /// Whether it is one of the large ones there.
    is_large: AtomicBool,
}

impl Account {
    /// One of an operation that begins now and has no bound.
    pub(crate) fn new() -> Account {
        Account {
            limit: i64::MAX,
            thread: AtomicUsize::new(memory::thread()),
            base: AtomicI64::new(memory::taken()),
            look_at: AtomicI64::new(i64::MAX),
            seen: AtomicI64::new(memory::taken()),
            held: AtomicI64::new(0),
            engine: AtomicU64::new(u64::MAX),
            entered_at: AtomicI64::new(memory::taken()),
            entered: AtomicI64::new(0),
            is_large: AtomicBool::new(false),
        }
    }

    /// Bounds what it may hold, in bytes.
    pub(crate) fn limit(&mut self, bytes: usize) {
        self.limit = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.look_later(self.base.load(Relaxed));
    }

    /// Puts the next closer look off until the thread has taken a share of the bound more.
    fn look_later(&self, taken: i64) {
        self.look_at.store(taken.saturating_add(self.limit / STEP), Relaxed);
    }

    /// Errors: ExceededMemoryLimit beyond the bound.
    #[inline]
    pub(crate) fn check(&self, shared: &Shared) -> Result<()> {
        let taken = memory::taken();
        let change = taken.wrapping_sub(self.entered_at.load(Relaxed));
        if (-ENTRY..=ENTRY).contains(&change) && taken <= self.look_at.load(Relaxed) {
            return Ok(());
        }
        self.enter(shared)?;
        if taken <= self.look_at.load(Relaxed) {
            return Ok(());
        }
        self.look(taken, shared)
    }

    /// Enters what is held in the ledger.
    ///
    /// Errors: ExceededMemoryLimit where all operations together hold more than they may.
    #[cold]
    fn enter(&self, shared: &Shared) -> Result<()> {
        // Another thread's: the closer look finds that out.
        if self.thread.load(Relaxed) != memory::thread() {
            return Ok(());
        }
        let grows = self.note_entry(shared) > 0;
        if !grows || self.limit == i64::MAX || !shared.ledger.exceeds(1) {
            return Ok(());
        }
        // The engine may have kept some of it.
        self.leave_to_engine(memory::taken(), shared);
        self.note_entry(shared);
        match shared.ledger.exceeds(1) && self.held() > ENTRY.unsigned_abs() {
            true => Err(err!(
                ExceededMemoryLimit,
                "operations and replies hold all the memory that they may (--memory-limit): this operation would take \
                 more"
            )),
            false => Ok(()),
        }
    }

    /// Enters what is held, and returns by how many bytes that is more than before.
    fn note_entry(&self, shared: &Shared) -> i64 {
        self.entered_at.store(memory::taken(), Relaxed);
        let held = self.publish();
        let more = held - self.entered.swap(held, Relaxed);
        shared.ledger.add(more);
        more
    }

    /// Whether it has just become large while others hold much of the room: it waits then, once.
    #[inline]
    pub(crate) fn must_wait(&self, shared: &Shared) -> bool {
        let becomes_large = self.entered.load(Relaxed) > ENTRY && !self.is_large.load(Relaxed);
        becomes_large && self.limit != i64::MAX && self.begins_large(shared)
    }

    #[cold]
    fn begins_large(&self, shared: &Shared) -> bool {
        let is_busy = shared.ledger.is_busy();
        if !is_busy {
            self.become_large(shared);
        }
        is_busy
    }

    fn become_large(&self, shared: &Shared) {
        if !self.is_large.swap(true, Relaxed) {
            shared.ledger.large.fetch_add(1, Relaxed);
        }
    }

    /// Enters that a reply is about to grow by so many bytes; `false` if it had better not, as memory is scarce.
    pub(crate) fn reserve(&self, bytes: usize, shared: &Shared) -> bool {
        let room = shared.ledger.room.load(Relaxed);
        if bytes == 0 || room == 0 || self.thread.load(Relaxed) != memory::thread() {
            return true;
        }
        self.note_entry(shared);
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        // Entered before it is looked at, so that of many at once not all find room.
        let all = shared.ledger.held.fetch_add(bytes, Relaxed).saturating_add(bytes);
        if all > room / BATCH_SHARE {
            shared.ledger.add(-bytes);
            return false;
        }
        self.entered.fetch_add(bytes, Relaxed);
        true
    }

    /// Waits until there is room for one more large operation; `go_on` says whether the operation goes on.
    ///
    /// Errors: ExceededMemoryLimit after too long.
    pub(crate) fn wait(&self, shared: &Shared, go_on: &dyn Fn() -> bool) -> Result<()> {
        let end = Instant::now() + WAIT;
        while self.begins_large(shared) && go_on() {
            if Instant::now() >= end {
                if !shared.ledger.exceeds(BUSY_SHARE) {
                    self.become_large(shared);
                    return Ok(());
                }
                return Err(err!(
                    ExceededMemoryLimit,
                    "other operations and replies hold much of the memory that they may (--memory-limit), and still do \
                     after {} seconds",
                    WAIT.as_secs()
                ));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Ends being one of the large operations.
    fn rest_large(&self, shared: &Shared) {
        if self.is_large.swap(false, Relaxed) {
            shared.ledger.large.fetch_sub(1, Relaxed);
        }
    }

    /// Takes it out of the ledger.
    pub(crate) fn end(&self, shared: &Shared) {
        shared.ledger.add(-self.entered.swap(0, Relaxed));
        self.rest_large(shared);
    }

    #[cold]
    fn look(&self, taken: i64, shared: &Shared) -> Result<()> {
        if self.thread.load(Relaxed) != memory::thread() {
            self.resume();
            return Ok(());
        }
        self.leave_to_engine(taken, shared);
        let held = self.publish();
        self.look_later(taken);
        if held <= self.limit {
            return Ok(());
        }
        // Whoever asks again is told again.
        self.look_at.store(taken.saturating_sub(1), Relaxed);
        Err(err!(
            ExceededMemoryLimit,
            "the operation used over {} bytes of memory, which is the limit of one (--memory-limit and the \
             parameter {OPERATION_MEMORY})",
            self.limit
        ))
    }

    /// Takes off what the engine has kept of what was taken since the last closer look.
    fn leave_to_engine(&self, taken: i64, shared: &Shared) {
        let now = shared.engine_bytes();
        let before = self.engine.swap(now, Relaxed);
        let since = taken.saturating_sub(self.seen.swap(taken, Relaxed)).max(0);
        let kept = i64::try_from(now.saturating_sub(before)).unwrap_or(i64::MAX).min(since);
        let base = self.base.load(Relaxed).saturating_add(kept).min(taken);
        self.base.store(base, Relaxed);
    }

    /// Notes what is held while nobody goes on with the operation: what it has read may have filled the cache.
    pub(crate) fn rest(&self, shared: &Shared) {
        let taken = memory::taken();
        if taken.saturating_sub(self.seen.load(Relaxed)) > NOTEWORTHY {
            self.leave_to_engine(taken, shared);
        }
        self.note_entry(shared);
        self.rest_large(shared);
    }

    /// Notes what is held, for [`held`](Self::held); called on the operation's thread.
    pub(crate) fn publish(&self) -> i64 {
        let held = memory::taken().saturating_sub(self.base.load(Relaxed)).max(0);
        self.held.store(held, Relaxed);
        held
    }

    /// What was held when the operation was last looked at, in bytes.
    pub(crate) fn held(&self) -> u64 {
        self.held.load(Relaxed).unsigned_abs()
    }

    /// Goes on, perhaps on another thread, with what was held when it was last looked at.
    pub(crate) fn resume(&self) {
        let taken = memory::taken();
        let held = self.held.load(Relaxed);
        self.thread.store(memory::thread(), Relaxed);
        self.base.store(taken.saturating_sub(held), Relaxed);
        self.seen.store(taken, Relaxed);
        self.entered_at.store(taken, Relaxed);
        self.look_later(taken);
    }

    /// Leaves so many bytes to somebody else: they no longer count.
    pub(crate) fn leave(&self, bytes: usize) {
        self.base.fetch_add(i64::try_from(bytes).unwrap_or(0), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::ErrorCode;
    use base::memory::Counting;
    use std::alloc::System;

    #[global_allocator]
    static HEAP: Counting = Counting(System);

    #[test]
    fn what_is_held_beyond_the_bound_is_an_error() {
        let shared = Shared::default();
        let mut account = Account::new();
        account.check(&shared).unwrap();
        account.limit(1 << 20);
        let small: Vec<u8> = vec![1; 900_000];
        account.check(&shared).unwrap();
        assert!((900_000..910_000).contains(&account.held()), "{}", account.held());
        let more: Vec<u8> = vec![1; 300_000];
        assert_eq!(account.check(&shared).unwrap_err().code(), ErrorCode::ExceededMemoryLimit);
        assert_eq!(account.check(&shared).unwrap_err().code(), ErrorCode::ExceededMemoryLimit);
        drop(small);
        account.check(&shared).unwrap();
        account.publish();
        // What a cursor holds counts on the thread that goes on with it.
        std::thread::scope(|scope| {
            let elsewhere = scope.spawn(|| {
                account.resume();
                let _more: Vec<u8> = vec![1; 800_000];
                account.check(&shared).unwrap_err()
            });
            assert_eq!(elsewhere.join().unwrap().code(), ErrorCode::ExceededMemoryLimit);
        });
        account.resume();
        account.leave(more.capacity());
        account.publish();
        assert!(account.held() < 900_000, "{}", account.held());
    }

    #[test]
    fn what_the_engine_keeps_is_not_the_operations() {
        let engine = Arc::new(storage::MemoryEngine::new());
        let shared = Shared::of_engine(engine.clone());
        shared.ledger.set_room(3 << 20);
        let mut account = Account::new();
        account.limit(4 << 20);
        for number in 0..100_000u64 {
            let mut batch = storage::Batch::new();
            if number == 0 {
                batch.create(storage::Ident(7));
            }
            batch.put(storage::Ident(7), number.to_be_bytes().to_vec(), vec![7u8; 100]);
            engine.commit(batch).unwrap();
            account.check(&shared).unwrap();
        }
        shared.full.store(true, Relaxed);
        assert_eq!(shared.check_room().unwrap_err().code(), ErrorCode::ExceededMemoryLimit);
    }

    #[test]
    fn together_operations_hold_no_more_than_there_is_room_for() {
        let shared = Shared::default();
        shared.ledger.set_room(8 << 20);
        let account = || {
            let mut account = Account::new();
            account.limit(64 << 20);
            account
        };
        // What one thread takes counts for each of its accounts.
        let (one, other) = (account(), account());
        let held: Vec<u8> = vec![1; 3 << 20];
        one.check(&shared).unwrap();
        assert!(!one.must_wait(&shared) && !one.reserve(1, &shared) && one.reserve(0, &shared));
        other.check(&shared).unwrap();
        // More than half is taken, and one is large.
        assert!(other.must_wait(&shared));
        let asked = std::cell::Cell::new(0);
        let go_on = || asked.replace(asked.get() + 1) < 3;
        other.wait(&shared, &go_on).unwrap();
        assert_eq!(asked.get(), 4);
        one.rest(&shared);
        assert!(!other.must_wait(&shared) && other.is_large.load(Relaxed));
        let more: Vec<u8> = vec![1; 3 << 20];
        assert_eq!(other.check(&shared).unwrap_err().code(), ErrorCode::ExceededMemoryLimit);
        drop((held, more));
        other.check(&shared).unwrap();
        one.end(&shared);
        other.end(&shared);
        assert_eq!((shared.ledger.held(), shared.ledger.large.load(Relaxed)), (0, 0));
    }
}
