//! Memory use of an operation, and its limit.
//!
//! The allocator counts the memory allocated by each thread ([`base::memory`]). An operation stores its thread's count
//! at its beginning, so a check costs one subtraction. Memory of the engine for writes and for the cache does not
//! belong to the operation. A closer check subtracts the growth of the engine. It runs after each eighth of the limit.
//!
//! [`OperationMemory`] belongs to one operation, [`MemoryTracker`] to all operations together.
//! Waiting and shorter batches come before errors: see [`OperationMemory::must_wait`] and
//! [`OperationMemory::reserve`]. A read is suspended while it waits, and begins again with a [`LargePlace`].

use base::memory;
use base::{Error, Result, bail, err};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst, fence,
};
use std::task::Waker;
use std::time::{Duration, Instant};
use storage::time;
use storage::{Engine, EventCount};

/// Server parameter with the memory limit of one operation.
pub const OPERATION_MEMORY: &str = "internalQueryMaxOperationMemoryBytes";

/// State shared by all operations of a database.
#[derive(Default)]
pub(crate) struct Shared {
    /// True once the database stops.
    pub(crate) stopping: AtomicBool,
    /// True while the process has no memory for more data.
    pub(crate) refuses_growth: AtomicBool,
    /// Keys and documents examined by operations, and sorts without an index, since the start.
    pub(crate) keys_examined: AtomicU64,
    pub(crate) docs_examined: AtomicU64,
    pub(crate) sorts: AtomicU64,
    /// Write conflicts since the start.
    pub(crate) write_conflicts: AtomicU64,
    /// Approximate bytes of documents that commits have replaced or removed since the start. Old
    /// snapshots keep them.
    pub(crate) replaced: AtomicU64,
    /// The engine that stores the data.
    engine: Option<Arc<dyn Engine>>,
    /// Memory of all operations together.
    pub(crate) tracker: MemoryTracker,
}

/// Memory of operations, open cursors and waiting messages together, and its limit.
#[derive(Default)]
pub(crate) struct MemoryTracker {
    /// In bytes, as of the latest check of each operation.
    used: AtomicI64,
    /// In bytes; zero is unlimited.
    limit: AtomicI64,
    /// Number of running operations that hold much memory.
    large: AtomicUsize,
    /// Number of places that suspended operations wait for, or have and do not use yet.
    waiting: AtomicUsize,
    /// Number of times that memory or a place became free while operations waited.
    freed: EventCount,
}

/// Change of an operation's memory in bytes after which the tracker is updated.
const TRACKER_STEP: i64 = 256 << 10;

/// Divisors of the limit: operations wait before they become large beyond the first, and batches
/// end early beyond the second.
const BUSY_SHARE: i64 = 2;
const BATCH_SHARE: i64 = 4;

/// Expected memory of a large operation in bytes. It limits the number of large operations that begin at the same time
/// to half of the limit.
const LARGE_BYTES: i64 = 16 << 20;

/// Maximum wait of an operation for memory, and the interval between its checks.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(30);
const WAIT_INTERVAL: Duration = Duration::from_millis(2);

impl MemoryTracker {
    /// Adds a change in bytes.
    pub(crate) fn add(&self, bytes: i64) {
        self.used.fetch_add(bytes, Relaxed);
        if bytes < 0 {
            self.wake();
        }
    }

    /// Wakes the suspended operations if memory or a place became free for one of them.
    fn wake(&self) {
        // The counterpart is in `LargePlace::new`: either this thread sees the wait, or the wait sees the free memory.
        fence(SeqCst);
        if self.waiting.load(Relaxed) > 0 && !self.is_busy(self.large.load(Relaxed)) {
            self.freed.advance();
        }
    }

    fn end_large(&self) {
        self.large.fetch_sub(1, Relaxed);
        self.wake();
    }

    /// Returns the sum in bytes.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Relaxed).max(0).unsigned_abs()
    }

    /// Sets the limit in bytes.
    pub(crate) fn set_limit(&self, bytes: u64) {
        self.limit.store(i64::try_from(bytes).unwrap_or(i64::MAX), Relaxed);
        self.wake();
    }

    /// Returns true if the sum exceeds the limit divided by `share`.
    fn exceeds(&self, share: i64) -> bool {
        let limit = self.limit.load(Relaxed);
        limit > 0 && self.used.load(Relaxed) > limit / share
    }

    /// Returns true if another operation should wait before it becomes large, beside this number.
    fn is_busy(&self, large: usize) -> bool {
        let limit = self.limit.load(Relaxed);
        let expected = LARGE_BYTES.saturating_mul(i64::try_from(large).unwrap_or(i64::MAX).saturating_add(1));
        // One operation may always continue. The memory may then belong to replies and idle
        // cursors.
        limit > 0 && large > 0 && self.used.load(Relaxed).max(expected) > limit / BUSY_SHARE
    }

    /// Counts one more large operation. Returns false if it should wait.
    fn begin_large(&self) -> bool {
        let begin = |large| (!self.is_busy(large)).then_some(large + 1);
        self.large.fetch_update(Relaxed, Relaxed, begin).is_ok()
    }
}

/// A place among the large operations, which a suspended operation waits for. It is free again when dropped.
pub struct LargePlace {
    shared: Arc<Shared>,
    /// Start of the wait.
    since: Instant,
    is_taken: AtomicBool,
}

impl LargePlace {
    /// Begins to wait for a place.
    pub(crate) fn new(shared: &Arc<Shared>) -> LargePlace {
        shared.tracker.waiting.fetch_add(1, Relaxed);
        fence(SeqCst);
        LargePlace { shared: shared.clone(), since: time::now(), is_taken: AtomicBool::new(false) }
    }

    /// Returns the latest end of the wait.
    pub(crate) fn until(&self) -> Instant {
        self.since + WAIT_MAX
    }

    /// Takes the place if the limit allows one more large operation. Otherwise registers the waker.
    pub(crate) fn take(&self, waker: &Waker) -> bool {
        let tracker = &self.shared.tracker;
        loop {
            let seen = tracker.freed.read();
            if tracker.begin_large() {
                self.is_taken.store(true, Relaxed);
                return true;
            }
            if !tracker.freed.has_reached(seen + 1, waker) {
                return false;
            }
        }
    }
}

impl Drop for LargePlace {
    fn drop(&mut self) {
        if self.shared.tracker.waiting.fetch_sub(1, Relaxed) == 1 {
            // The wakers belong to ended waits, or to a wait that has just begun.
            self.shared.tracker.freed.interrupt().into_iter().for_each(Waker::wake);
        }
        if self.is_taken.load(Relaxed) {
            self.shared.tracker.end_large();
        }
    }
}

/// Upper bound of the ratio of the engine's memory to its counted keys and values. For the smallest
/// documents, trees and allocation overhead reach it.
const ENGINE_SHARE: u64 = 4;

/// Number of closer checks up to the limit: one after each such fraction of the limit.
const CHECKS_PER_LIMIT: i64 = 8;

/// Minimum growth in bytes for a closer check when a cursor becomes idle.
const PAUSE_CHECK_MIN: i64 = 256 << 10;

impl Shared {
    /// Returns the state for operations on an engine.
    pub(crate) fn of_engine(engine: Arc<dyn Engine>) -> Shared {
        Shared { engine: Some(engine), ..Shared::default() }
    }

    /// Returns the approximate memory of the engine in bytes.
    fn engine_bytes(&self) -> u64 {
        let Some(engine) = &self.engine else { return 0 };
        let counted = engine.statistics();
        let data = if engine.has_journal() { 0 } else { counted.bytes };
        (data + counted.cache_bytes + counted.changed_bytes).saturating_mul(ENGINE_SHARE)
    }

    /// Errors: ExceededMemoryLimit if no memory is left for more data.
    pub(crate) fn check_growth(&self) -> Result<()> {
        if !self.refuses_growth.load(Relaxed) {
            return Ok(());
        }
        Err(err!(
            ExceededMemoryLimit,
            "the data has reached the memory limit (--memory-limit): only reads, deletes and updates that do not \
             enlarge a document are allowed"
        ))
    }
}

/// Returns the error of an operation beyond the limit of all operations together.
fn limit_reached() -> Error {
    err!(
        ExceededMemoryLimit,
        "operations and replies have reached the memory limit (--memory-limit): this operation would exceed it"
    )
}

/// Memory of one operation.
pub(crate) struct OperationMemory {
    /// Limit of the operation, in bytes.
    limit: i64,
    /// The thread that runs it.
    thread: AtomicUsize,
    /// The thread's count minus the operation's memory, in bytes. All counts of this type are in bytes.
    base: AtomicI64,
    /// The thread's count at which the next closer check is due.
    next_check: AtomicI64,
    /// The thread's count at the last closer check, or when the operation resumed.
    checked_at: AtomicI64,
    /// Bytes used at the latest check.
    used: AtomicI64,
    /// The engine's bytes at the last closer check; the greatest number before the first.
    engine: AtomicU64,
    /// The thread's count at the last update of the tracker.
    tracked_at: AtomicI64,
    /// The bytes recorded in the tracker.
    tracked_bytes: AtomicI64,
    /// True if the tracker counts it as a large operation.
    is_large: AtomicBool,
    /// The place that the operation waits for, or has waited for.
    place: Mutex<Option<Arc<LargePlace>>>,
}

impl OperationMemory {
    /// Returns the operation of an operation that begins now, without a limit.
    pub(crate) fn new() -> OperationMemory {
        OperationMemory {
            limit: i64::MAX,
            thread: AtomicUsize::new(memory::thread_id()),
            base: AtomicI64::new(memory::allocated()),
            next_check: AtomicI64::new(i64::MAX),
            checked_at: AtomicI64::new(memory::allocated()),
            used: AtomicI64::new(0),
            engine: AtomicU64::new(u64::MAX),
            tracked_at: AtomicI64::new(memory::allocated()),
            tracked_bytes: AtomicI64::new(0),
            is_large: AtomicBool::new(false),
            place: Mutex::default(),
        }
    }

    /// Sets its limit in bytes.
    pub(crate) fn limit(&mut self, bytes: usize) {
        self.limit = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.postpone_check(self.base.load(Relaxed));
    }

    /// Postpones the next closer check until the thread has taken another fraction of the limit.
    fn postpone_check(&self, allocated: i64) {
        self.next_check.store(allocated.saturating_add(self.limit / CHECKS_PER_LIMIT), Relaxed);
    }

    /// Errors: ExceededMemoryLimit beyond the limit.
    #[inline]
    pub(crate) fn check(&self, shared: &Shared) -> Result<()> {
        let allocated = memory::allocated();
        let change = allocated.wrapping_sub(self.tracked_at.load(Relaxed));
        if (-TRACKER_STEP..=TRACKER_STEP).contains(&change) && allocated <= self.next_check.load(Relaxed) {
            return Ok(());
        }
        self.check_tracker(shared)?;
        if allocated <= self.next_check.load(Relaxed) {
            return Ok(());
        }
        self.check_limit(allocated, shared)
    }

    /// Updates the tracker.
    ///
    /// Errors: ExceededMemoryLimit if all operations together exceed their limit.
    #[cold]
    fn check_tracker(&self, shared: &Shared) -> Result<()> {
        // The count of another thread. The closer check detects it.
        if self.thread.load(Relaxed) != memory::thread_id() {
            return Ok(());
        }
        let grows = self.update_tracker(shared) > 0;
        if !grows || self.limit == i64::MAX || !shared.tracker.exceeds(1) {
            return Ok(());
        }
        // A part of the memory may belong to the engine.
        self.exclude_engine(memory::allocated(), shared);
        self.update_tracker(shared);
        match shared.tracker.exceeds(1) && self.used() > TRACKER_STEP.unsigned_abs() {
            true => Err(limit_reached()),
            false => Ok(()),
        }
    }

    /// Updates the tracker. Returns the change in bytes.
    fn update_tracker(&self, shared: &Shared) -> i64 {
        self.tracked_at.store(memory::allocated(), Relaxed);
        let used = self.publish();
        let more = used - self.tracked_bytes.swap(used, Relaxed);
        shared.tracker.add(more);
        more
    }

    /// Returns true if the operation has just become large while other operations hold much of the
    /// limit. It then waits once.
    #[inline]
    pub(crate) fn must_wait(&self, shared: &Shared) -> bool {
        self.must_wait_for(0, shared)
    }

    /// Returns true if another number of bytes makes the operation large: see [`must_wait`](Self::must_wait).
    #[inline]
    pub(crate) fn must_wait_for(&self, bytes: usize, shared: &Shared) -> bool {
        let used = self.tracked_bytes.load(Relaxed).saturating_add(bytes as i64);
        let becomes_large = used > TRACKER_STEP && !self.is_large.load(Relaxed);
        becomes_large && self.limit != i64::MAX && self.begins_large(shared)
    }

    /// Counts the operation as large unless other operations use much of the limit. Returns true if it must wait.
    #[cold]
    fn begins_large(&self, shared: &Shared) -> bool {
        let place = self.leave_place();
        // The tracker already counts an operation that has a place.
        let is_counted = place.as_ref().is_some_and(|place| place.is_taken.swap(false, Relaxed));
        let begins = is_counted || shared.tracker.begin_large();
        if begins {
            self.is_large.store(true, Relaxed);
        } else {
            *self.place.lock() = place;
        }
        !begins
    }

    /// Records the growth of a reply by this number of bytes. Returns `false` if memory is scarce.
    pub(crate) fn reserve(&self, bytes: usize, shared: &Shared) -> bool {
        self.reserve_if(bytes, shared, |_, after, limit| after <= limit / BATCH_SHARE)
    }

    /// Records the growth of a value that cannot be shorter. One value is possible under every limit.
    ///
    /// Errors: ExceededMemoryLimit if all operations together exceed their limit.
    pub(crate) fn reserve_required(&self, bytes: usize, shared: &Shared) -> Result<()> {
        let fits = |others, after, limit| after <= limit || others <= limit / BUSY_SHARE;
        match self.limit == i64::MAX || self.reserve_if(bytes, shared, fits) {
            true => Ok(()),
            false => Err(limit_reached()),
        }
    }

    /// Records a growth if three numbers allow it: the memory of other operations, that of all after the growth, and
    /// their limit.
    fn reserve_if(&self, bytes: usize, shared: &Shared, fits: impl Fn(i64, i64, i64) -> bool) -> bool {
        let limit = shared.tracker.limit.load(Relaxed);
        if bytes == 0 || limit == 0 || self.thread.load(Relaxed) != memory::thread_id() {
            return true;
        }
        self.update_tracker(shared);
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        // Recorded before the check, so that concurrent requests do not all succeed.
        let before = shared.tracker.used.fetch_add(bytes, Relaxed);
        let others = before.saturating_sub(self.tracked_bytes.load(Relaxed));
        if !fits(others, before.saturating_add(bytes), limit) {
            shared.tracker.add(-bytes);
            return false;
        }
        self.tracked_bytes.fetch_add(bytes, Relaxed);
        true
    }

    /// Returns the place that the operation waits for from now on.
    pub(crate) fn await_place(&self, shared: &Arc<Shared>) -> Arc<LargePlace> {
        self.place.lock().get_or_insert_with(|| Arc::new(LargePlace::new(shared))).clone()
    }

    /// Returns the place that a suspended operation waits for, for the operation that continues.
    pub(crate) fn leave_place(&self) -> Option<Arc<LargePlace>> {
        self.place.lock().take()
    }

    /// Sets the place for which an earlier operation of the command has waited.
    pub(crate) fn set_place(&self, place: Arc<LargePlace>) {
        *self.place.lock() = Some(place);
    }

    /// Waits until the limit allows one more large operation, until `end`, or until `should_continue` returns false.
    ///
    /// Errors: ExceededMemoryLimit after `end`.
    pub(crate) fn wait(
        &self,
        shared: &Shared,
        end: Instant,
        should_continue: &dyn Fn() -> bool,
    ) -> Result<()> {
        while self.begins_large(shared) && should_continue() {
            if time::now() >= end {
                if !shared.tracker.exceeds(BUSY_SHARE) {
                    shared.tracker.large.fetch_add(1, Relaxed);
                    self.is_large.store(true, Relaxed);
                    return Ok(());
                }
                bail!(
                    ExceededMemoryLimit,
                    "other operations and replies used most of the memory limit (--memory-limit) for {} \
                     seconds",
                    WAIT_MAX.as_secs()
                );
            }
            time::sleep(WAIT_INTERVAL);
        }
        Ok(())
    }

    /// Ends the state of a large operation.
    fn end_large(&self, shared: &Shared) {
        if self.is_large.swap(false, Relaxed) {
            shared.tracker.end_large();
        }
    }

    /// Removes the operation from the tracker.
    pub(crate) fn end(&self, shared: &Shared) {
        shared.tracker.add(-self.tracked_bytes.swap(0, Relaxed));
        self.end_large(shared);
    }

    /// Checks the operation's limit without the engine's memory. Errors: ExceededMemoryLimit.
    #[cold]
    fn check_limit(&self, allocated: i64, shared: &Shared) -> Result<()> {
        if self.thread.load(Relaxed) != memory::thread_id() {
            self.resume();
            return Ok(());
        }
        self.exclude_engine(allocated, shared);
        let used = self.publish();
        self.postpone_check(allocated);
        if used <= self.limit {
            return Ok(());
        }
        // A repeated check fails again.
        self.next_check.store(allocated.saturating_sub(1), Relaxed);
        Err(err!(
            ExceededMemoryLimit,
            "the operation used over {} bytes of memory, which is the limit of an operation (--memory-limit \
             and the \
             parameter {OPERATION_MEMORY})",
            self.limit
        ))
    }

    /// Subtracts the growth of the engine's memory since the last closer check.
    fn exclude_engine(&self, allocated: i64, shared: &Shared) {
        let now = shared.engine_bytes();
        let before = self.engine.swap(now, Relaxed);
        let since = allocated.saturating_sub(self.checked_at.swap(allocated, Relaxed)).max(0);
        let growth = i64::try_from(now.saturating_sub(before)).unwrap_or(i64::MAX).min(since);
        let base = self.base.load(Relaxed).saturating_add(growth).min(allocated);
        self.base.store(base, Relaxed);
    }

    /// Records the memory of an operation that pauses between two batches. Its reads may have filled the engine's
    /// cache.
    pub(crate) fn pause(&self, shared: &Shared) {
        let allocated = memory::allocated();
        if allocated.saturating_sub(self.checked_at.load(Relaxed)) > PAUSE_CHECK_MIN {
            self.exclude_engine(allocated, shared);
        }
        self.update_tracker(shared);
        self.end_large(shared);
    }

    /// Records the memory for [`used`](Self::used). Must run on the operation's thread.
    pub(crate) fn publish(&self) -> i64 {
        let used = memory::allocated().saturating_sub(self.base.load(Relaxed)).max(0);
        self.used.store(used, Relaxed);
        used
    }

    /// Returns the memory at the latest check, in bytes.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Relaxed).unsigned_abs()
    }

    /// Resumes the operation, possibly on another thread, with the memory of the latest check.
    pub(crate) fn resume(&self) {
        let allocated = memory::allocated();
        let used = self.used.load(Relaxed);
        self.thread.store(memory::thread_id(), Relaxed);
        self.base.store(allocated.saturating_sub(used), Relaxed);
        self.checked_at.store(allocated, Relaxed);
        self.tracked_at.store(allocated, Relaxed);
        self.postpone_check(allocated);
    }

    /// Takes over the memory of an operation that another thread has run.
    pub(crate) fn adopt(&self, other: &OperationMemory) {
        if other.thread.load(Relaxed) != memory::thread_id() {
            self.base.fetch_sub(other.used.load(Relaxed), Relaxed);
        }
    }

    /// Publishes the memory, or resumes the operation on another thread.
    pub(crate) fn follow_thread(&self) {
        if self.thread.load(Relaxed) == memory::thread_id() {
            self.publish();
        } else {
            self.resume();
        }
    }

    /// Sets the limit of another operation, for a thread that helps its operation.
    pub(crate) fn share_limit(&mut self, other: &OperationMemory) {
        self.limit = other.limit;
        self.postpone_check(self.base.load(Relaxed));
    }

    /// Transfers this number of bytes to another owner. They no longer count.
    pub(crate) fn transfer(&self, bytes: usize) {
        self.base.fetch_add(i64::try_from(bytes).unwrap_or(0), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::ErrorCode;
    use base::memory::CountingAllocator;
    use std::alloc::System;

    #[global_allocator]
    static HEAP: CountingAllocator = CountingAllocator(System);

    #[test]
    fn memory_above_the_limit_is_an_error() {
        let shared = Shared::default();
        let mut operation = OperationMemory::new();
        operation.check(&shared).unwrap();
        operation.limit(1 << 20);
        let small: Vec<u8> = vec![1; 900_000];
        operation.check(&shared).unwrap();
        assert!((900_000..910_000).contains(&operation.used()), "{}", operation.used());
        let more: Vec<u8> = vec![1; 300_000];
        assert_eq!(operation.check(&shared).unwrap_err().code(), ErrorCode::ExceededMemoryLimit);
        assert_eq!(operation.check(&shared).unwrap_err().code(), ErrorCode::ExceededMemoryLimit);
        drop(small);
        operation.check(&shared).unwrap();
        operation.publish();
        // A cursor's memory counts on the thread that resumes it.
        std::thread::scope(|scope| {
            let elsewhere = scope.spawn(|| {
                operation.resume();
                let _more: Vec<u8> = vec![1; 800_000];
                operation.check(&shared).unwrap_err()
            });
            assert_eq!(elsewhere.join().unwrap().code(), ErrorCode::ExceededMemoryLimit);
        });
        operation.resume();
        operation.transfer(more.capacity());
        operation.publish();
        assert!(operation.used() < 900_000, "{}", operation.used());
    }

    #[test]
    fn memory_of_the_engine_does_not_count() {
        let engine = Arc::new(storage::MemoryEngine::new());
        let shared = Shared::of_engine(engine.clone());
        shared.tracker.set_limit(3 << 20);
        let mut operation = OperationMemory::new();
        operation.limit(4 << 20);
        for number in 0..100_000u64 {
            let mut batch = storage::Batch::new();
            if number == 0 {
                batch.create(storage::Ident(7));
            }
            batch.put(storage::Ident(7), number.to_be_bytes().to_vec(), vec![7u8; 100]);
            engine.commit(batch).unwrap();
            operation.check(&shared).unwrap();
        }
        shared.refuses_growth.store(true, Relaxed);
        assert_eq!(shared.check_growth().unwrap_err().code(), ErrorCode::ExceededMemoryLimit);
    }

    #[test]
    fn together_operations_hold_no_more_than_there_is_room_for() {
        let shared = Shared::default();
        shared.tracker.set_limit(8 << 20);
        let operation = || {
            let mut operation = OperationMemory::new();
            operation.limit(64 << 20);
            operation
        };
        // The memory of a thread counts for each of its accounts.
        let (one, other) = (operation(), operation());
        let used: Vec<u8> = vec![1; 3 << 20];
        one.check(&shared).unwrap();
        assert!(!one.must_wait(&shared) && !one.reserve(1, &shared) && one.reserve(0, &shared));
        other.check(&shared).unwrap();
        // More than half of the limit is taken, and one operation is large.
        assert!(other.must_wait(&shared));
        let requested = std::cell::Cell::new(0);
        let should_continue = || requested.replace(requested.get() + 1) < 3;
        other.wait(&shared, time::now() + WAIT_MAX, &should_continue).unwrap();
        assert_eq!(requested.get(), 4);
        // A value that cannot be shorter may use the rest, or more if others use little.
        assert!(one.reserve_required(6 << 20, &shared).is_ok());
        assert!(other.reserve_required(6 << 20, &shared).is_err());
        one.pause(&shared);
        assert!(!other.must_wait(&shared) && other.is_large.load(Relaxed));
        let more: Vec<u8> = vec![1; 3 << 20];
        assert_eq!(other.check(&shared).unwrap_err().code(), ErrorCode::ExceededMemoryLimit);
        drop((used, more));
        other.check(&shared).unwrap();
        one.end(&shared);
        other.end(&shared);
        assert_eq!((shared.tracker.used(), shared.tracker.large.load(Relaxed)), (0, 0));
    }

    #[test]
    fn a_place_is_taken_when_a_large_operation_ends_and_passes_to_the_next_run() {
        let shared = Arc::new(Shared::default());
        shared.tracker.set_limit(8 << 20);
        let operation = || {
            let mut operation = OperationMemory::new();
            operation.limit(64 << 20);
            operation
        };
        let large = || shared.tracker.large.load(Relaxed);
        let (one, suspended) = (operation(), operation());
        let _used: Vec<u8> = vec![1; 1 << 20];
        one.check(&shared).unwrap();
        suspended.check(&shared).unwrap();
        assert!(!one.must_wait(&shared) && suspended.must_wait(&shared));
        let (place, other) = (suspended.await_place(&shared), LargePlace::new(&shared));
        assert!(!place.take(Waker::noop()) && !other.take(Waker::noop()));
        assert!(shared.tracker.freed.is_awaited() && Arc::ptr_eq(&place, &suspended.await_place(&shared)));
        one.end(&shared);
        // One of both takes the place.
        assert!(!shared.tracker.freed.is_awaited());
        assert!(place.take(Waker::noop()) && !other.take(Waker::noop()) && large() == 1);
        let again = operation();
        again.set_place(suspended.leave_place().unwrap());
        drop((suspended, place));
        let _more: Vec<u8> = vec![1; 1 << 20];
        again.check(&shared).unwrap();
        assert!(!again.must_wait(&shared) && again.is_large.load(Relaxed) && large() == 1);
        assert_eq!(shared.tracker.waiting.load(Relaxed), 1);
        again.end(&shared);
        assert!(large() == 0 && other.take(Waker::noop()));
        // A place that is not needed becomes free.
        drop((again, other));
        assert_eq!((large(), shared.tracker.waiting.load(Relaxed)), (0, 0));
    }
}
