//! One running operation: when it must stop, what it may hold, and how long work gives way to other clients.

use crate::history::View;
use crate::index::Index;
use crate::memory::{Account, Shared};
use crate::open_transaction::OpenTransaction;
use base::{Error, ErrorCode, Result, err};
use parking_lot::Mutex;
use query::Interrupt;
#[cfg(debug_assertions)]
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
#[cfg(debug_assertions)]
use storage::cpu_slice::{self, CpuSlice};

/// Runs a piece of work that may take long, so that the thread it runs on is not missed by
/// others. Set by whoever owns the threads.
pub type BlockingHook = fn(&mut dyn FnMut());

/// What a command carries through all layers. Asked in every loop whether to stop.
pub struct Operation {
    /// What `currentOp` shows and `killOp` takes.
    pub id: u64,
    /// Microseconds after [`epoch`] at which maxTimeMS runs out; zero is never.
    deadline: AtomicU64,
    /// The code that it ends with, where it has been told to; zero while it hasn't.
    killed: AtomicI32,
    /// What all operations of its database share.
    shared: Arc<Shared>,
    memory: Account,
    /// The bytes that commits had replaced when it began.
    replaced_at: u64,
    blocking: BlockingHook,
    /// Whether its plan reads much.
    long: AtomicBool,
    /// Whether it changes something, so that its client isn't the only one to miss it.
    writes: AtomicBool,
    /// How often [`check`](Interrupt::check) was asked, to look at the clock now and then.
    checks: AtomicU32,
    /// Microseconds after [`epoch`] at which it gives way next, and for how long it hasn't.
    way_due: AtomicU64,
    way_interval: AtomicU64,
    /// Whether plans that scan whole collections are refused.
    pub no_table_scan: bool,
    /// Keys and documents examined so far, as explain and the profiler report them.
    pub keys_examined: AtomicI64,
    /// Documents examined so far.
    pub docs_examined: AtomicI64,
    /// How it found documents, latest plan last.
    plans: Mutex<Vec<PlanUse>>,
    /// Whether it found a document by its `_id`, past all plans.
    by_id: AtomicBool,
    /// Whether its plan is run to be explained.
    explained: AtomicBool,
    /// What a snapshot read sees, and its cluster time.
    snapshot: OnceLock<(u64, View)>,
    /// What it reads on a member that doesn't take the writes.
    elsewhere: OnceLock<View>,
    /// The transaction that it is a statement of.
    transaction: OnceLock<Arc<OpenTransaction>>,
    /// Tells it from all other operations of this process.
    #[cfg(debug_assertions)]
    serial: u64,
    /// How far long work has come.
    progress: Mutex<Option<Arc<Progress>>>,
}

/// What a plan reads, as `planSummary` shows it.
#[derive(Clone)]
pub(crate) enum PlanUse {
    /// A stage that reads no index.
    Stage(&'static str),
    /// A stage that reads an index.
    Index(&'static str, Arc<Index>),
}

/// How far a piece of long work has come, as `currentOp` shows it.
pub struct Progress {
    /// What is being done.
    pub message: &'static str,
    /// Of how many steps, about.
    pub total: u64,
    done: AtomicU64,
}

impl Progress {
    /// Notes one more step.
    pub(crate) fn advance(&self) {
        self.done.fetch_add(1, Relaxed);
    }

    /// How many steps are done.
    pub fn done(&self) -> u64 {
        self.done.load(Relaxed)
    }
}

/// The instant that deadlines count from.
fn epoch() -> Instant {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    *EPOCH.get_or_init(Instant::now)
}

fn micros_now() -> u64 {
    epoch().elapsed().as_micros() as u64
}

/// A number that no other operation has.
#[cfg(debug_assertions)]
fn next_serial() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Relaxed)
}

/// How long an operation that nobody thought long runs before it gives way for the first time, and
/// how long at most between one time and the next, in microseconds.
const WAY_FIRST_MICROS: u64 = 4_000;
const WAY_MOST_MICROS: u64 = 64_000;
/// Another thread has taken the clients over by then, most times; if not, next time.
const WAY_PAUSE: Duration = Duration::from_micros(300);
/// Plans noted of one operation, which may run one for each document that `$lookup` joins.
const PLANS_MAX: usize = 32;
/// Checks between two looks at the clock.
const CHECKS_PER_LOOK: u32 = 16;

impl Drop for Operation {
    /// What it has examined counts from now on, and what it held no longer.
    fn drop(&mut self) {
        self.memory.end(&self.shared);
        for (mine, all) in [
            (&self.keys_examined, &self.shared.keys_examined),
            (&self.docs_examined, &self.shared.docs_examined),
        ] {
            let examined = u64::try_from(mine.load(Relaxed)).unwrap_or(0);
            if examined > 0 {
                all.fetch_add(examined, Relaxed);
            }
        }
    }
}

impl Operation {
    /// Counts a sort that no index has done.
    pub(crate) fn note_sort(&self) {
        self.shared.sorts.fetch_add(1, Relaxed);
    }

    /// An operation without a deadline that runs long work in place.
    pub fn new(id: u64) -> Operation {
        Operation::of_database(id, |work| work(), Arc::default())
    }

    /// One that ends when its database stops, long work going through `blocking`.
    pub(crate) fn of_database(id: u64, blocking: BlockingHook, shared: Arc<Shared>) -> Operation {
        Operation {
            id,
            deadline: AtomicU64::new(0),
            killed: AtomicI32::new(0),
            replaced_at: shared.replaced.load(Relaxed),
            shared,
            memory: Account::new(),
            blocking,
            long: AtomicBool::new(false),
            writes: AtomicBool::new(false),
            checks: AtomicU32::new(0),
            way_due: AtomicU64::new(micros_now() + WAY_FIRST_MICROS),
            way_interval: AtomicU64::new(WAY_FIRST_MICROS),
            no_table_scan: false,
            keys_examined: AtomicI64::new(0),
            docs_examined: AtomicI64::new(0),
            plans: Mutex::default(),
            by_id: AtomicBool::new(false),
            explained: AtomicBool::new(false),
            snapshot: OnceLock::new(),
            elsewhere: OnceLock::new(),
            transaction: OnceLock::new(),
            #[cfg(debug_assertions)]
            serial: next_serial(),
            progress: Mutex::default(),
        }
    }

    /// The same, long work going through `hook`.
    pub fn with_blocking(id: u64, hook: BlockingHook) -> Operation {
        let mut operation = Operation::new(id);
        operation.blocking = hook;
        operation
    }

    /// Sets maxTimeMS, counted from now; zero takes the limit away. A cursor's operation is set
    /// again at each getMore.
    pub fn set_max_time(&self, millis: u64) {
        let deadline = match millis {
            0 => 0,
            _ => micros_now() + Duration::from_millis(millis).as_micros() as u64,
        };
        self.deadline.store(deadline, Relaxed);
    }

    /// What is left of maxTimeMS in milliseconds, zero where there is no limit: a cursor's later
    /// batches share the time its first was given.
    pub fn remaining_millis(&self) -> u64 {
        match self.deadline.load(Relaxed) {
            0 => 0,
            deadline => (deadline.saturating_sub(micros_now()) / 1000).max(1),
        }
    }

    /// Bounds what it may hold in memory, in bytes; said once, where it begins.
    pub fn limit_memory(&mut self, bytes: usize) {
        self.memory.limit(bytes);
    }

    /// Bytes of memory that it held when that was last looked at.
    pub fn held(&self) -> u64 {
        self.memory.held()
    }

    /// Goes on with what a cursor holds, perhaps on another thread.
    pub(crate) fn resume_memory(&self) {
        self.memory.resume();
    }

    /// Notes what a cursor holds that nobody reads for now.
    pub(crate) fn rest_memory(&self) {
        self.memory.rest(&self.shared);
    }

    /// Leaves so many bytes to somebody else, such as a reply.
    pub(crate) fn leave_memory(&self, bytes: usize) {
        self.memory.leave(bytes);
    }

    /// Makes it read from one view, that of a cluster time; said once, before it reads.
    pub fn read_from(&self, time: u64, view: View) {
        let _ = self.snapshot.set((time, view));
    }

    /// The view it was told to read from, with its cluster time.
    pub fn snapshot(&self) -> Option<&(u64, View)> {
        self.snapshot.get()
    }

    /// Makes it read on a member that doesn't take the writes; said once, before it reads.
    pub(crate) fn read_elsewhere(&self, view: View) {
        let _ = self.elsewhere.set(view);
    }

    /// What it reads there.
    pub(crate) fn elsewhere(&self) -> Option<&View> {
        self.elsewhere.get()
    }

    /// Makes it a statement of a transaction; said once, before it reads.
    pub fn join(&self, transaction: Arc<OpenTransaction>) {
        let _ = self.transaction.set(transaction);
    }

    /// The transaction that it is a statement of.
    pub fn transaction(&self) -> Option<&Arc<OpenTransaction>> {
        self.transaction.get()
    }

    /// The bytes that commits had replaced when the snapshot was taken that it reads.
    pub(crate) fn pinned_at(&self) -> u64 {
        match (self.transaction(), self.snapshot()) {
            (Some(transaction), _) => transaction.replaced_at,
            (None, Some((_, view))) => view.replaced_at,
            (None, None) => self.replaced_at,
        }
    }

    /// Notes a plan that it runs.
    pub(crate) fn note_plan(&self, uses: impl Iterator<Item = PlanUse>) {
        let mut plans = self.plans.lock();
        if plans.len() < PLANS_MAX {
            plans.extend(uses);
        }
    }

    /// Notes that its plan is run to be explained.
    pub(crate) fn note_explained(&self) {
        self.explained.store(true, Relaxed);
    }

    /// Whether its plan is run to be explained.
    pub(crate) fn is_explained(&self) -> bool {
        self.explained.load(Relaxed)
    }

    /// Notes that it finds a document by its `_id`.
    pub(crate) fn note_by_id(&self) {
        self.by_id.store(true, Relaxed);
    }

    /// How it has found documents so far, in the words of MongoDB's `planSummary`; `None` where it hasn't looked
    /// for any.
    pub fn plan_summary(&self) -> Option<String> {
        let by_id = self.by_id.load(Relaxed).then(|| "EXPRESS_IXSCAN { _id: 1 }".to_string());
        let mut parts: Vec<String> = by_id.into_iter().collect();
        for used in self.plans.lock().iter() {
            let part = match used {
                PlanUse::Stage(stage) => stage.to_string(),
                PlanUse::Index(stage, index) => format!("{stage} {}", index.spec.key),
            };
            if !parts.contains(&part) {
                parts.push(part);
            }
        }
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    /// Forgets how it has found documents: what follows is another statement.
    pub fn forget_plans(&self) {
        self.by_id.store(false, Relaxed);
        self.plans.lock().clear();
    }

    /// Begins to count the steps of a piece of long work.
    pub(crate) fn begin_progress(&self, message: &'static str, total: u64) -> Arc<Progress> {
        let progress = Arc::new(Progress { message, total, done: AtomicU64::new(0) });
        *self.progress.lock() = Some(progress.clone());
        progress
    }

    /// How far its long work has come, where it has any.
    pub fn progress(&self) -> Option<Arc<Progress>> {
        self.progress.lock().clone()
    }

    /// Ends the operation at its next check, as `killOp` does.
    pub fn kill(&self) {
        self.kill_with(ErrorCode::Interrupted);
    }

    /// The same with the code of another reason.
    pub fn kill_with(&self, reason: ErrorCode) {
        self.killed.store(reason.number(), Relaxed);
    }

    /// Why it is to end, if it is, for whoever waits: its checks look at more.
    pub fn ending(&self) -> Option<ErrorCode> {
        let deadline = self.deadline.load(Relaxed);
        match self.killed.load(Relaxed) {
            0 if self.shared.stopping.load(Relaxed) => Some(ErrorCode::InterruptedAtShutdown),
            0 if deadline != 0 && micros_now() >= deadline => Some(ErrorCode::MaxTimeMSExpired),
            0 => None,
            reason => Some(ErrorCode::from_number(reason)),
        }
    }

    /// Says that what it does from now on may take long.
    pub fn expect_long(&self) {
        self.long.store(true, Relaxed);
    }

    /// Says that it changes something, though its command is one that reads.
    pub(crate) fn expect_writes(&self) {
        self.writes.store(true, Relaxed);
    }

    /// Whether it changes something, though its command is one that reads.
    pub fn writes(&self) -> bool {
        self.writes.load(Relaxed)
    }

    /// Runs the reading part of an operation: in place where its plan is short, else without
    /// starving other clients of the thread.
    ///
    /// Errors: those of the work.
    pub fn run<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        if !self.long.load(Relaxed) {
            return work();
        }
        self.blocking(work).unwrap_or_else(|| Err(err!(InternalError, "the thread's owner ran no work")))
    }

    /// Goes on with work that has turned out to be long: from here on as [`run`](Self::run) does
    /// where that was expected, unless it was.
    ///
    /// Errors: those of the work.
    pub(crate) fn at_length<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        match self.long.swap(true, Relaxed) {
            true => work(),
            false => self.run(work),
        }
    }

    /// Panics where this thread has worked too long on this operation since it last asked. What it did for others in
    /// between isn't counted, nor what came before the first question.
    #[cfg(debug_assertions)]
    fn assert_asked_often(&self) {
        thread_local! {
            static LAST: Cell<(u64, CpuSlice)> = Cell::default();
        }
        let (serial, last) = LAST.get();
        if serial == self.serial {
            last.assert_within(cpu_slice::BETWEEN_CHECKS, "between two checks of an operation");
        }
        LAST.set((self.serial, CpuSlice::begin()));
    }

    /// Gives the thread's other clients away in the middle of work that nobody thought long: the
    /// thread itself goes on with the work.
    fn give_way(&self, now: u64) {
        let interval = (2 * self.way_interval.load(Relaxed)).min(WAY_MOST_MICROS);
        self.way_interval.store(interval, Relaxed);
        self.way_due.store(now + interval, Relaxed);
        (self.blocking)(&mut || std::thread::sleep(WAY_PAUSE));
    }

    /// Errors: MaxTimeMSExpired.
    fn look_at_clock(&self, deadline: u64, give_way: bool) -> Result<()> {
        let now = micros_now();
        self.memory.publish();
        if deadline != 0 && now >= deadline {
            return Err(err!(MaxTimeMSExpired, "operation exceeded time limit"));
        }
        if (give_way || now >= self.way_due.load(Relaxed)) && !self.long.load(Relaxed) {
            self.give_way(now);
        }
        Ok(())
    }

    /// Waits, before it takes much, while others hold much of the memory.
    ///
    /// Errors: those of whatever ends it; ExceededMemoryLimit after too long.
    #[cold]
    fn wait_for_memory(&self) -> Result<()> {
        let go_on = || self.ending().is_none();
        self.blocking(|| self.memory.wait(&self.shared, &go_on)).unwrap_or(Ok(()))?;
        self.ending().map_or(Ok(()), |reason| Err(ended(reason)))
    }

    /// Takes room for so many bytes more of a reply; `false` if memory is scarce, so that the batch had better end.
    pub(crate) fn reserve_memory(&self, bytes: usize) -> bool {
        self.memory.reserve(bytes, &self.shared)
    }

    /// Runs work that may take long without starving other clients of the thread.
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

/// What is told of an operation whose time is over, or that was ended for a reason.
pub(crate) fn ended(reason: ErrorCode) -> Error {
    match reason {
        ErrorCode::MaxTimeMSExpired => err!(MaxTimeMSExpired, "operation exceeded time limit"),
        ErrorCode::InterruptedAtShutdown => err!(InterruptedAtShutdown, "interrupted at shutdown"),
        reason => interrupted(reason),
    }
}

/// What is told of an operation that was ended for a reason.
fn interrupted(reason: ErrorCode) -> Error {
    match reason {
        ErrorCode::ExceededMemoryLimit => err!(
            ExceededMemoryLimit,
            "the process is at its limit of memory (--memory-limit), and this operation held the most"
        ),
        reason => Error::new(reason, "operation was interrupted"),
    }
}

/// Runs something that may wait long, where it holds up no network thread.
///
/// Errors: what interrupts it.
pub(crate) fn wait_through<T>(
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
        self.assert_asked_often();
        let killed = self.killed.load(Relaxed);
        if killed != 0 {
            return Err(interrupted(ErrorCode::from_number(killed)));
        }
        if self.shared.stopping.load(Relaxed) {
            return Err(err!(InterruptedAtShutdown, "interrupted at shutdown"));
        }
        self.memory.check(&self.shared)?;
        if self.memory.must_wait(&self.shared) {
            self.wait_for_memory()?;
        }
        let deadline = self.deadline.load(Relaxed);
        // Only the thread that runs the operation counts; where two do, a lost count delays a look at the clock.
        let checks = self.checks.load(Relaxed).wrapping_add(1);
        self.checks.store(checks, Relaxed);
        if deadline == 0 && !checks.is_multiple_of(CHECKS_PER_LOOK) {
            return Ok(());
        }
        self.look_at_clock(deadline, false)
    }

    fn check_now(&self, may_take_long: bool) -> Result<()> {
        self.check()?;
        let held_others_so_far = self.way_interval.load(Relaxed) == WAY_FIRST_MICROS;
        self.look_at_clock(self.deadline.load(Relaxed), may_take_long && held_others_so_far)
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
    fn work_that_turns_out_to_be_long_gives_way() {
        static GIVEN: AtomicU32 = AtomicU32::new(0);
        let operation = Operation::with_blocking(1, |work| {
            GIVEN.fetch_add(1, Relaxed);
            work();
        });
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(100) {
            operation.check().unwrap();
        }
        // After 4, 12, 28, 60 milliseconds.
        assert!((1..=5).contains(&GIVEN.load(Relaxed)), "{GIVEN:?}");
    }

    #[test]
    fn long_work_runs_once_through_the_hook() {
        let operation = Operation::with_blocking(1, |work| {
            work();
            work();
        });
        operation.expect_long();
        assert_eq!(operation.run(|| Ok(7)).unwrap(), 7);
    }
}
