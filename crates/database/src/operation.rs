//! One running operation: when it must stop, and how long work gives way to other clients.

use crate::database::View;
use base::{Result, err};
use query::Interrupt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Runs a piece of work that may take long, so that the thread it runs on is not missed by
/// others. Set by whoever owns the threads.
pub type BlockingHook = fn(&mut dyn FnMut());

/// What a command carries through all layers. Asked in every loop whether to stop.
pub struct Operation {
    /// What `currentOp` shows and `killOp` takes.
    pub id: u64,
    /// Microseconds after [`epoch`] at which maxTimeMS runs out; zero is never.
    deadline: AtomicU64,
    killed: AtomicBool,
    stopping: &'static AtomicBool,
    blocking: BlockingHook,
    /// Whether its plan reads much.
    long: AtomicBool,
    /// Whether plans that scan whole collections are refused.
    pub no_table_scan: bool,
    /// Keys and documents examined so far, as explain and the profiler report them.
    pub keys_examined: AtomicI64,
    /// Documents examined so far.
    pub docs_examined: AtomicI64,
    /// What a snapshot read sees, and its cluster time.
    snapshot: OnceLock<(u64, View)>,
}

/// Set once the process shuts down: every operation ends with InterruptedAtShutdown.
static STOPPING: AtomicBool = AtomicBool::new(false);

/// The instant that deadlines count from.
fn epoch() -> Instant {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    *EPOCH.get_or_init(Instant::now)
}

impl Operation {
    /// An operation without a deadline that runs long work in place.
    pub fn new(id: u64) -> Operation {
        Operation {
            id,
            deadline: AtomicU64::new(0),
            killed: AtomicBool::new(false),
            stopping: &STOPPING,
            blocking: |work| work(),
            long: AtomicBool::new(false),
            no_table_scan: false,
            keys_examined: AtomicI64::new(0),
            docs_examined: AtomicI64::new(0),
            snapshot: OnceLock::new(),
        }
    }

    /// The same, long work going through `hook`.
    pub fn with_blocking(id: u64, hook: BlockingHook) -> Operation {
        Operation { blocking: hook, ..Operation::new(id) }
    }

    /// Sets maxTimeMS, counted from now; zero takes the limit away. A cursor's operation is set
    /// again at each getMore.
    pub fn set_max_time(&self, millis: u64) {
        let deadline = match millis {
            0 => 0,
            _ => (epoch().elapsed() + Duration::from_millis(millis)).as_micros() as u64,
        };
        self.deadline.store(deadline, Relaxed);
    }

    /// What is left of maxTimeMS in milliseconds, zero where there is no limit: a cursor's later
    /// batches share the time its first was given.
    pub fn remaining_millis(&self) -> u64 {
        match self.deadline.load(Relaxed) {
            0 => 0,
            deadline => (deadline.saturating_sub(epoch().elapsed().as_micros() as u64) / 1000).max(1),
        }
    }

    /// Makes it read from one view, that of a cluster time; said once, before it reads.
    pub fn read_from(&self, time: u64, view: View) {
        let _ = self.snapshot.set((time, view));
    }

    /// The view it was told to read from, with its cluster time.
    pub fn snapshot(&self) -> Option<&(u64, View)> {
        self.snapshot.get()
    }

    /// Ends the operation at its next check, as `killOp` does.
    pub fn kill(&self) {
        self.killed.store(true, Relaxed);
    }

    /// Ends every operation of the process at its next check.
    pub fn stop_all() {
        STOPPING.store(true, Relaxed);
    }

    /// Says that what it does from now on may take long.
    pub fn expect_long(&self) {
        self.long.store(true, Relaxed);
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

impl Interrupt for Operation {
    fn check(&self) -> Result<()> {
        if self.killed.load(Relaxed) {
            return Err(err!(Interrupted, "operation was interrupted"));
        }
        if self.stopping.load(Relaxed) {
            return Err(err!(InterruptedAtShutdown, "interrupted at shutdown"));
        }
        let deadline = self.deadline.load(Relaxed);
        if deadline != 0 && epoch().elapsed().as_micros() as u64 >= deadline {
            return Err(err!(MaxTimeMSExpired, "operation exceeded time limit"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::ErrorCode;

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
