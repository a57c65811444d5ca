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
    /// What data goes into.
    engine: Option<Arc<dyn Engine>>,
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
        if taken <= self.look_at.load(Relaxed) {
            return Ok(());
        }
        self.look(taken, shared)
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
        self.publish();
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
}
