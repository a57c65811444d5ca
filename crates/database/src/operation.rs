//! A running operation (MongoDB's OperationContext): its termination, its memory limit, and yielding of long work to
//! other clients. Its waits are in `suspension.rs`, its plans in `plans.rs`.
//!
//! Every loop calls [`Interrupt::check`] of the operation. A new reason for termination is a case there and in
//! [`Operation::kill_reason`].

mod plans;
mod query_settings;
mod suspension;

use crate::catalog::history::View;
use crate::changes::open_transaction::OpenTransaction;
use crate::memory::{self, OperationMemory, Shared};
use base::bson::DocumentBuf;
use base::{Error, ErrorCode, Result, bail, err};
use parking_lot::Mutex;
pub(crate) use plans::PlanUse;
use plans::Plans;
use query::Interrupt;
pub use query::context::Ready;
pub use query_settings::{IndexHint, QuerySettings};
#[cfg(debug_assertions)]
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
#[cfg(debug_assertions)]
use storage::cpu_slice::{self, CpuSlice};
use storage::time;
pub(crate) use suspension::NeverWaits;
use suspension::Waits;
pub use suspension::{RecordTicket, Suspension};

/// Runs work that may take long, without blocking other users of the thread. Set by the owner of
/// the threads.
pub type BlockingHook = fn(&mut dyn FnMut());

/// State of a command for all layers. Every loop checks it for termination.
pub struct Operation {
    /// Id in `currentOp` and `killOp`.
    pub id: u64,
    /// Deadline of maxTimeMS in microseconds after [`epoch`]; zero is none.
    deadline: AtomicU64,
    /// Error code that ends it; zero while it runs.
    killed: AtomicI32,
    /// State shared by all operations of its database.
    shared: Arc<Shared>,
    memory: OperationMemory,
    /// Bytes replaced by commits when it began.
    replaced_at: u64,
    blocking: BlockingHook,
    /// True if its plan reads much.
    long: AtomicBool,
    /// True while its thread has no other clients: they have another thread.
    alone: AtomicBool,
    /// True if it writes, so that its delay affects other clients too.
    writes: AtomicBool,
    /// Number of calls of [`check`](Interrupt::check), to read the clock only sometimes.
    checks: AtomicU32,
    /// Time of the next yield and the interval before it, in microseconds after [`epoch`].
    yield_due: AtomicU64,
    yield_interval: AtomicU64,
    /// True if plans that scan whole collections are refused.
    pub no_table_scan: bool,
    /// The settings of its query shape.
    pub query_settings: Option<Arc<QuerySettings>>,
    /// Keys examined so far, for explain and the profiler.
    pub keys_examined: AtomicI64,
    /// Documents examined so far.
    pub docs_examined: AtomicI64,
    plans: Plans,
    /// The command that opened the cursor of the operation, without secrets.
    originating_command: OnceLock<Arc<DocumentBuf>>,
    /// View of a snapshot read, and its cluster time.
    snapshot: OnceLock<(u64, View)>,
    /// View of a secondary.
    standby_view: OnceLock<View>,
    /// The transaction of the statement.
    transaction: OnceLock<Arc<OpenTransaction>>,
    waits: Waits,
    /// Unique number among the operations of this process.
    #[cfg(debug_assertions)]
    serial: u64,
    /// Progress of long work.
    progress: Mutex<Option<Arc<Progress>>>,
    /// The operation that it helps.
    helped: Option<Arc<Operation>>,
}

/// Progress of long work for `currentOp`.
pub struct Progress {
    /// Description of the work.
    pub message: &'static str,
    /// Approximate number of steps.
    pub total: u64,
    done: AtomicU64,
}

impl Progress {
    /// Counts one more step.
    pub(crate) fn advance(&self) {
        self.done.fetch_add(1, Relaxed);
    }

    /// Returns the number of completed steps.
    pub fn done(&self) -> u64 {
        self.done.load(Relaxed)
    }
}

/// Returns the start of the time scale for deadlines.
fn epoch() -> Instant {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    *EPOCH.get_or_init(Instant::now)
}

fn micros_now() -> u64 {
    time::since(epoch()).as_micros() as u64
}

#[cfg(debug_assertions)]
thread_local! {
    /// Number of the operation that this thread has checked last, and the CPU time since.
    static LAST_CHECK: Cell<(u64, CpuSlice)> = Cell::default();
}

/// Returns a number that no other operation has.
#[cfg(debug_assertions)]
fn next_serial() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Relaxed)
}

/// Size up to which values are not reserved, in bytes. Replies that wait for their client count with its connection.
const UNRESERVED_MAX: usize = 2 << 20;

/// Time before the first yield of an operation that was not expected to be long, and longest
/// interval between yields, in microseconds.
const YIELD_FIRST_MICROS: u64 = 4_000;
const YIELD_MAX_MICROS: u64 = 64_000;
/// Another thread has usually taken the clients over by then; if not, it does so at the next yield.
const YIELD_PAUSE: Duration = Duration::from_micros(300);
/// Number of checks between two reads of the clock.
const CHECKS_PER_CLOCK_READ: u32 = 16;

impl Drop for Operation {
    /// Adds its examined counts to the totals and releases its memory.
    fn drop(&mut self) {
        self.memory.end(&self.shared);
        for (count, total) in [
            (&self.keys_examined, &self.shared.keys_examined),
            (&self.docs_examined, &self.shared.docs_examined),
        ] {
            let examined = u64::try_from(count.load(Relaxed)).unwrap_or(0);
            if examined > 0 {
                total.fetch_add(examined, Relaxed);
            }
        }
    }
}

impl Operation {
    /// Returns an operation without a deadline that runs long work in place.
    pub fn new(id: u64) -> Operation {
        Operation::of_database(id, |work| work(), Arc::default())
    }

    /// Returns an operation that ends with its database and runs long work through `blocking`.
    #[inline]
    pub(crate) fn of_database(id: u64, blocking: BlockingHook, shared: Arc<Shared>) -> Operation {
        Operation {
            id,
            deadline: AtomicU64::new(0),
            killed: AtomicI32::new(0),
            replaced_at: shared.replaced.load(Relaxed),
            shared,
            memory: OperationMemory::new(),
            blocking,
            long: AtomicBool::new(false),
            alone: AtomicBool::new(false),
            writes: AtomicBool::new(false),
            checks: AtomicU32::new(0),
            yield_due: AtomicU64::new(micros_now() + YIELD_FIRST_MICROS),
            yield_interval: AtomicU64::new(YIELD_FIRST_MICROS),
            no_table_scan: false,
            query_settings: None,
            keys_examined: AtomicI64::new(0),
            docs_examined: AtomicI64::new(0),
            plans: Plans::default(),
            originating_command: OnceLock::new(),
            snapshot: OnceLock::new(),
            standby_view: OnceLock::new(),
            transaction: OnceLock::new(),
            waits: Waits::default(),
            #[cfg(debug_assertions)]
            serial: next_serial(),
            progress: Mutex::default(),
            helped: None,
        }
    }

    /// Returns the operation of a thread that helps another operation. It ends with the other.
    pub(crate) fn helping(operation: &Arc<Operation>) -> Operation {
        let operation = operation.helped.as_ref().unwrap_or(operation);
        operation.no_restart();
        let mut helping = Operation::of_database(operation.id, |work| work(), operation.shared.clone());
        helping.deadline = AtomicU64::new(operation.deadline.load(Relaxed));
        // The thread has no other clients.
        helping.alone = AtomicBool::new(true);
        helping.memory.share_limit(&operation.memory);
        helping.helped = Some(operation.clone());
        helping
    }

    /// Returns true if its thread helps another operation.
    pub(crate) fn helps(&self) -> bool {
        self.helped.is_some()
    }

    /// Notes that this thread runs it now, if it helps another operation.
    pub(crate) fn follow_thread(&self) {
        if self.helps() {
            self.memory.follow_thread();
        }
    }

    /// Moves its counts and its memory to the operation that it has helped. Called on the thread of that operation.
    pub(crate) fn end_help(&self) {
        let Some(helped) = &self.helped else { return };
        let examined = helped.docs_examined.load(Relaxed) + self.docs_examined.swap(0, Relaxed);
        helped.docs_examined.store(examined, Relaxed);
        helped.memory.adopt(&self.memory);
    }

    /// Returns an operation that runs long work through `hook`.
    pub fn with_blocking(id: u64, hook: BlockingHook) -> Operation {
        let mut operation = Operation::new(id);
        operation.blocking = hook;
        operation
    }

    /// Sets maxTimeMS from now; zero removes the limit.
    pub fn set_max_time(&self, millis: u64) {
        self.set_remaining_time((millis != 0).then(|| Duration::from_millis(millis)));
    }

    /// Returns the rest of maxTimeMS, at least a microsecond; `None` if unlimited. A cursor's later batches share the
    /// time of the first.
    pub fn remaining_time(&self) -> Option<Duration> {
        let deadline = Some(self.deadline.load(Relaxed)).filter(|deadline| *deadline != 0)?;
        Some(Duration::from_micros(deadline.saturating_sub(micros_now()).max(1)))
    }

    /// Sets the rest of maxTimeMS from now, or removes the limit.
    pub(crate) fn set_remaining_time(&self, left: Option<Duration>) {
        let deadline = left.map_or(0, |left| micros_now() + left.as_micros() as u64);
        self.deadline.store(deadline, Relaxed);
    }

    /// Sets its memory limit in bytes. Called once, at the beginning.
    pub fn set_memory_limit(&mut self, bytes: usize) {
        self.memory.limit(bytes);
    }

    /// Returns the memory of the operation at the latest check, in bytes.
    pub fn memory_used(&self) -> u64 {
        self.memory.used()
    }

    /// Resumes its memory account, possibly on another thread.
    pub(crate) fn resume_memory(&self) {
        self.memory.resume();
    }

    /// Records its memory when it leaves its thread: a cursor becomes idle, or a statement is suspended.
    pub(crate) fn pause_memory(&self) {
        self.memory.pause(&self.shared);
        #[cfg(debug_assertions)]
        LAST_CHECK.set(Default::default());
    }

    /// Transfers this number of bytes from the operation to another owner, such as a reply.
    pub(crate) fn transfer_memory(&self, bytes: usize) {
        self.memory.transfer(bytes);
    }

    /// Sets the view and its cluster time. Called once, before the first read.
    pub fn set_snapshot(&self, time: u64, view: View) {
        let _ = self.snapshot.set((time, view));
    }

    /// Returns the view set by [`set_snapshot`](Self::set_snapshot), with its cluster time.
    pub fn snapshot(&self) -> Option<&(u64, View)> {
        self.snapshot.get()
    }

    /// Sets the command that opened its cursor. Called once, before the cursor is registered.
    pub fn set_originating_command(&self, command: DocumentBuf) {
        let _ = self.originating_command.set(Arc::new(command));
    }

    /// Returns the command that opened its cursor, if the cursor stayed open.
    pub fn originating_command(&self) -> Option<&Arc<DocumentBuf>> {
        self.originating_command.get()
    }

    /// Sets a view of a secondary. Called once, before the first read.
    pub(crate) fn set_standby(&self, view: View) {
        let _ = self.standby_view.set(view);
    }

    /// Returns the view of a secondary.
    pub(crate) fn standby_view(&self) -> Option<&View> {
        self.standby_view.get()
    }

    /// Sets the transaction of the statement. Called once, before the first read.
    pub fn set_transaction(&self, transaction: Arc<OpenTransaction>) {
        let _ = self.transaction.set(transaction);
    }

    /// Returns the transaction of the statement.
    pub fn transaction(&self) -> Option<&Arc<OpenTransaction>> {
        self.transaction.get()
    }

    /// Returns the bytes replaced by commits when its snapshot was taken.
    pub(crate) fn replaced_at(&self) -> u64 {
        match (self.transaction(), self.snapshot()) {
            (Some(transaction), _) => transaction.replaced_at,
            (None, Some((_, view))) => view.replaced_at,
            (None, None) => self.replaced_at,
        }
    }

    /// Starts counting the steps of long work.
    pub(crate) fn begin_progress(&self, message: &'static str, total: u64) -> Arc<Progress> {
        let progress = Arc::new(Progress { message, total, done: AtomicU64::new(0) });
        *self.progress.lock() = Some(progress.clone());
        progress
    }

    /// Returns the progress of its long work, if any.
    pub fn progress(&self) -> Option<Arc<Progress>> {
        self.progress.lock().clone()
    }

    /// Ends the operation at its next check, as `killOp` does.
    pub fn kill(&self) {
        self.kill_with(ErrorCode::Interrupted);
    }

    /// Ends the operation at its next check with another error code.
    pub fn kill_with(&self, reason: ErrorCode) {
        self.killed.store(reason.number(), Relaxed);
        self.waits.wake();
    }

    /// Returns the reason of the operation's termination, for waits. [`check`](Interrupt::check) tests further
    /// conditions.
    pub fn kill_reason(&self) -> Option<ErrorCode> {
        let deadline = self.deadline.load(Relaxed);
        match self.helped.as_deref().unwrap_or(self).killed.load(Relaxed) {
            0 if self.shared.stopping.load(Relaxed) => Some(ErrorCode::InterruptedAtShutdown),
            0 if deadline != 0 && micros_now() >= deadline => Some(ErrorCode::MaxTimeMSExpired),
            0 => None,
            reason => Some(ErrorCode::from_number(reason)),
        }
    }

    /// Marks the following work as long, so that [`run`](Self::run) does not block other clients.
    pub fn mark_long(&self) {
        self.long.store(true, Relaxed);
    }

    /// Marks the operation as a write, although its command is a read (`$out`, `$merge`).
    pub(crate) fn mark_writes(&self) {
        self.writes.store(true, Relaxed);
    }

    /// Returns true if it writes, although its command is a read.
    pub fn writes(&self) -> bool {
        self.writes.load(Relaxed)
    }

    /// Runs the reading part of an operation: in place for a short plan, otherwise without blocking
    /// other clients of the thread.
    ///
    /// Errors: errors of the work.
    pub fn run<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        if !self.long.load(Relaxed) || self.alone.load(Relaxed) {
            return work();
        }
        self.alone.store(true, Relaxed);
        let mut work = Some(work);
        let outcome = self.blocking(|| work.take().map(|work| work()));
        let outcome = match (outcome.flatten(), work) {
            (Some(outcome), _) => outcome,
            // A simulation runs no waits inside of other requests. This work does not wait.
            (None, Some(work)) => work(),
            (None, None) => Err(err!(InternalError, "the thread's owner ran no work")),
        };
        self.alone.store(false, Relaxed);
        outcome
    }

    /// Runs work that has become long, as [`run`](Self::run) runs long work.
    ///
    /// Errors: errors of the work.
    pub(crate) fn run_long<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.mark_long();
        self.run(work)
    }

    /// Panics if this thread has worked too long on this operation since its latest check. Work for
    /// other operations, and work before the first check, does not count.
    #[cfg(debug_assertions)]
    fn assert_checked_often(&self) {
        let (serial, last) = LAST_CHECK.get();
        if serial == self.serial {
            last.assert_within(cpu_slice::BETWEEN_CHECKS, "between two checks of an operation");
        }
        LAST_CHECK.set((self.serial, CpuSlice::begin()));
    }

    /// Hands the thread's other clients to another thread in the middle of unexpectedly long work.
    /// This thread continues the work.
    fn yield_thread(&self, now: u64) {
        let interval = (2 * self.yield_interval.load(Relaxed)).min(YIELD_MAX_MICROS);
        self.yield_interval.store(interval, Relaxed);
        self.yield_due.store(now + interval, Relaxed);
        (self.blocking)(&mut || time::sleep(YIELD_PAUSE));
    }

    /// Errors: MaxTimeMSExpired.
    fn check_clock(&self, deadline: u64, yield_thread: bool) -> Result<()> {
        let now = micros_now();
        self.memory.publish();
        if deadline != 0 && now >= deadline {
            bail!(MaxTimeMSExpired, "operation exceeded time limit");
        }
        if (yield_thread || now >= self.yield_due.load(Relaxed)) && !self.alone.load(Relaxed) {
            self.yield_thread(now);
        }
        Ok(())
    }

    /// Waits while other operations hold much of the memory, before it takes much.
    ///
    /// Errors: termination; ExceededMemoryLimit after a timeout; LockBusy for a read that its caller suspends.
    #[cold]
    fn wait_for_memory(&self) -> Result<()> {
        let mut end = time::now() + memory::WAIT_MAX;
        if self.waits.restarts() {
            let place = self.memory.await_place(&self.shared);
            end = place.until();
            if time::now() < end {
                return Err(self.waits.suspend_until(Box::new(move |waker| place.take(waker)), end));
            }
        }
        let should_continue = || self.kill_reason().is_none();
        self.blocking(|| self.memory.wait(&self.shared, end, &should_continue)).unwrap_or(Ok(()))?;
        self.kill_reason().map_or(Ok(()), |reason| Err(kill_error(reason)))
    }

    /// Reserves this number of bytes for a reply. Returns `false` if memory is scarce and the batch
    /// should end.
    pub(crate) fn reserve_memory(&self, bytes: usize) -> bool {
        self.memory.reserve(bytes, &self.shared)
    }

    /// Reserves this number of bytes for a value that cannot be shorter, unless it is small. Waits while memory is
    /// scarce.
    ///
    /// Errors: as of a check; ExceededMemoryLimit if all operations together exceed their limit.
    pub(crate) fn reserve_required(&self, bytes: usize) -> Result<()> {
        if bytes <= UNRESERVED_MAX {
            return Ok(());
        }
        if self.memory.must_wait_for(bytes, &self.shared) {
            self.wait_for_memory()?;
        }
        self.memory.reserve_required(bytes, &self.shared)
    }

    /// Runs work that may take long, without blocking other clients of the thread.
    fn blocking<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        let mut work = Some(work);
        let mut outcome = None;
        (self.blocking)(&mut || {
            if let Some(work) = work.take() {
                outcome = Some(work());
            }
        });
        outcome
    }
}

/// Returns the error of an operation that exceeded its time limit or was ended for another reason.
pub(crate) fn kill_error(reason: ErrorCode) -> Error {
    match reason {
        ErrorCode::MaxTimeMSExpired => err!(MaxTimeMSExpired, "operation exceeded time limit"),
        ErrorCode::InterruptedAtShutdown => err!(InterruptedAtShutdown, "interrupted at shutdown"),
        reason => interrupted(reason),
    }
}

/// Returns the error of an operation that was ended for a reason.
fn interrupted(reason: ErrorCode) -> Error {
    match reason {
        ErrorCode::ExceededMemoryLimit => err!(
            ExceededMemoryLimit,
            "the process reached its memory limit (--memory-limit), and this operation held the most memory"
        ),
        reason => Error::new(reason, "operation was interrupted"),
    }
}

/// Runs a function that may wait long, without blocking a network thread.
///
/// Errors: interruption.
pub(crate) fn wait_interruptibly<T>(
    hook: BlockingHook,
    interrupt: &dyn Interrupt,
    wait: impl FnOnce(&mut dyn FnMut() -> bool) -> T,
) -> Result<T> {
    let mut interrupted = None;
    let (mut wait, mut outcome) = (Some(wait), None);
    hook(&mut || {
        if let Some(wait) = wait.take() {
            outcome = Some(wait(&mut || {
                interrupted = interrupt.check_now(false).err();
                interrupted.is_none()
            }));
        }
    });
    match (interrupted, outcome) {
        (Some(error), _) => Err(error),
        (None, Some(outcome)) => Ok(outcome),
        (None, None) => Err(err!(InternalError, "the thread's owner ran no work")),
    }
}

impl Interrupt for Operation {
    fn check(&self) -> Result<()> {
        #[cfg(debug_assertions)]
        self.assert_checked_often();
        let killed = self.helped.as_deref().unwrap_or(self).killed.load(Relaxed);
        if killed != 0 {
            return Err(interrupted(ErrorCode::from_number(killed)));
        }
        if self.shared.stopping.load(Relaxed) {
            bail!(InterruptedAtShutdown, "interrupted at shutdown");
        }
        self.memory.check(&self.shared)?;
        if self.memory.must_wait(&self.shared) {
            self.wait_for_memory()?;
        }
        let deadline = self.deadline.load(Relaxed);
        // Only the operation's thread counts checks. With two threads, a lost count delays a read
        // of the clock.
        let checks = self.checks.load(Relaxed).wrapping_add(1);
        self.checks.store(checks, Relaxed);
        if deadline == 0 && !checks.is_multiple_of(CHECKS_PER_CLOCK_READ) {
            return Ok(());
        }
        self.check_clock(deadline, false)
    }

    fn check_now(&self, may_take_long: bool) -> Result<()> {
        self.check()?;
        let has_not_yielded = self.yield_interval.load(Relaxed) == YIELD_FIRST_MICROS;
        self.check_clock(self.deadline.load(Relaxed), may_take_long && has_not_yielded)
    }

    fn suspend_until(&self, ready: &mut dyn FnMut() -> Option<Ready>) -> Option<Error> {
        let ready = if self.suspends() { ready() } else { None };
        Some(self.suspend(ready?, None))
    }

    fn suspend_for(&self, delay: Duration) -> Option<Result<()>> {
        self.waits.suspend_for(delay)
    }

    fn note_change(&self) {
        self.waits.note_change();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_ends_when_killed_or_late() {
        let operation = Operation::new(1);
        operation.check().unwrap();
        operation.set_max_time(1);
        std::thread::sleep(Duration::from_millis(3));
        assert_eq!(operation.check().unwrap_err().code(), ErrorCode::MaxTimeMSExpired);
        operation.set_max_time(0);
        operation.check().unwrap();
        operation.kill();
        assert_eq!(operation.check().unwrap_err().code(), ErrorCode::Interrupted);
        operation.kill_with(ErrorCode::InterruptedDueToReplStateChange);
        assert_eq!(operation.check().unwrap_err().code().number(), 11602);
    }

    #[test]
    fn long_operations_yield() {
        static YIELDS: AtomicU32 = AtomicU32::new(0);
        let operation = Operation::with_blocking(1, |work| {
            YIELDS.fetch_add(1, Relaxed);
            work();
        });
        let started = Instant::now();
        while started.elapsed() < Duration::from_millis(100) {
            operation.check().unwrap();
        }
        // After 4, 12, 28, 60 milliseconds.
        assert!((1..=5).contains(&YIELDS.load(Relaxed)), "{YIELDS:?}");
    }

    #[test]
    fn work_that_becomes_long_yields_too() {
        static CALLS: AtomicU32 = AtomicU32::new(0);
        let operation = Operation::with_blocking(1, |work| {
            CALLS.fetch_add(1, Relaxed);
            work();
        });
        let check_until_a_call = || {
            let (calls, started) = (CALLS.load(Relaxed), Instant::now());
            while CALLS.load(Relaxed) == calls {
                operation.check().unwrap();
                assert!(started.elapsed() < Duration::from_secs(60), "the thread is not yielded");
            }
            Ok(())
        };
        // A first batch whose stage opens a long scan.
        let batch = operation.run(|| {
            operation.mark_long();
            check_until_a_call()
        });
        batch.unwrap();
        operation.run_long(|| Ok(())).unwrap();
        check_until_a_call().unwrap();
        let calls = CALLS.load(Relaxed);
        operation.run_long(|| operation.run_long(|| Ok(()))).unwrap();
        assert_eq!(CALLS.load(Relaxed), calls + 1, "long work within long work is in place");
    }

    #[test]
    fn long_work_runs_once_through_the_hook() {
        let operation = Operation::with_blocking(1, |work| {
            work();
            work();
        });
        operation.mark_long();
        assert_eq!(operation.run(|| Ok(7)).unwrap(), 7);
    }
}
