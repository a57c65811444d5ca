//! The order and due times of operations.
//!
//! In an open loop, a thread releases operations at their due times. Timers of an asynchronous runtime have a
//! resolution of a millisecond, longer than most operations take.

use super::{Load, LoadEnd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// The next operation of a worker.
pub(super) struct ScheduledOperation {
    pub(super) number: u64,
    /// Open loop: its due time, and whether the worker was free by then.
    pub(super) due: Option<(Instant, bool)>,
}

/// The order of the operations of one load.
pub(super) struct Schedule {
    pub(super) start: Instant,
    first: u64,
    rate: Option<f64>,
    /// Total number of operations; the maximum if time limits the load.
    total: u64,
    deadline: Option<Instant>,
    taken: AtomicU64,
    /// Open loop: operations that are due and not taken.
    due: Semaphore,
    halted: AtomicBool,
}

impl Schedule {
    /// Creates the schedule of a load that begins now.
    pub(super) fn new(load: Load) -> Schedule {
        let start = Instant::now();
        let (rate, total, deadline) = match (load.rate, load.until) {
            (rate, LoadEnd::Operations(operations)) => (rate, operations, None),
            (None, LoadEnd::Seconds(seconds)) => (None, u64::MAX, Some(start + duration(seconds))),
            (Some(rate), LoadEnd::Seconds(seconds)) => {
                (Some(rate), ((rate * seconds).round() as u64).max(1), None)
            }
        };
        let (taken, due, halted) = (AtomicU64::new(0), Semaphore::new(0), AtomicBool::new(false));
        Schedule { start, first: load.first, rate, total, deadline, taken, due, halted }
    }

    /// Returns the next operation of a free worker; `None` at the end.
    pub(super) async fn next(&self) -> Option<ScheduledOperation> {
        let free = Instant::now();
        // On a busy machine a short round may end before its first operation. One operation is always allowed.
        let started = self.taken.load(Relaxed) > 0;
        let over = started && self.deadline.is_some_and(|deadline| free >= deadline);
        if self.halted.load(Relaxed) || over {
            return None;
        }
        if self.rate.is_some() {
            self.due.acquire().await.ok()?.forget();
        }
        let number = self.taken.fetch_add(1, Relaxed);
        if number >= self.total {
            return None;
        }
        let due = self.due_at(number).map(|due| (due, free <= due));
        Some(ScheduledOperation { number: self.first + number, due })
    }

    /// Open loop: returns the due time of the operation at this position.
    fn due_at(&self, number: u64) -> Option<Instant> {
        Some(self.start + duration(number as f64 / self.rate?))
    }

    /// Stops the schedule. Each worker ends after its current operation.
    pub(super) fn halt(&self) {
        self.halted.store(true, Relaxed);
        self.due.close();
    }

    /// Returns the number of operations, if fixed.
    pub(super) fn total(&self) -> Option<u64> {
        (self.total < u64::MAX).then_some(self.total)
    }

    /// Returns the duration, if fixed by a rate or a deadline.
    pub(super) fn length(&self) -> Option<Duration> {
        let scheduled = self.rate.map(|rate| duration(self.total as f64 / rate));
        scheduled.or_else(|| self.deadline.map(|deadline| deadline.duration_since(self.start)))
    }

    /// Open loop: returns the number of operations that fell due and never began.
    pub(super) fn unserved(&self) -> u64 {
        self.rate.map_or(0, |_| self.total.saturating_sub(self.taken.load(Relaxed)))
    }

    /// Open loop: starts the thread that releases operations to the workers.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub(super) fn release(self: &Arc<Self>, workers: usize) -> std::io::Result<()> {
        let Some(rate) = self.rate else { return Ok(()) };
        let schedule = Arc::clone(self);
        let body = move || schedule.release_all(rate, workers);
        std::thread::Builder::new().name("lab-schedule".to_string()).spawn(body).map(drop)
    }

    /// Releases operations at their due times until the end or a halt.
    fn release_all(&self, rate: f64, workers: usize) {
        let mut released = 0;
        while released < self.total && !self.halted.load(Relaxed) {
            let elapsed = self.start.elapsed().as_secs_f64();
            let due = ((elapsed * rate) as u64).saturating_add(1).min(self.total);
            self.due.add_permits((due - released) as usize);
            released = due;
            if let Some(next) = self.due_at(released) {
                // Short sleeps, to notice a halt.
                let sleep = next.saturating_duration_since(Instant::now());
                std::thread::sleep(sleep.min(Duration::from_millis(50)));
            }
        }
        // Wakes each waiting worker, which then ends.
        self.due.add_permits(workers);
    }
}

/// Converts seconds into a duration; impossible values become a year.
pub(super) fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::from_secs(31_536_000))
}
