//! Workers run a load until it ends, is stopped, or the target fails.
//!
//! The module also records operations, and collects them at each step of time.
//!
//! Workers share a few recorders. A sampler empties the recorders at each step and adds them to the total. One
//! histogram therefore yields both total and timeline, and a worker that hangs loses no recorded data.

use super::schedule::{Schedule, ScheduledOperation};
use super::warnings::Shares;
use super::{Load, Worker};
use crate::histogram::{Latencies, Summary};
use crate::progress::Progress;
use crate::report::figures;
use crate::result::TimelineStep;
use crate::target::machine::clocks;
use crate::{Error, Result};
use parking_lot::{Mutex, MutexGuard};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Result of a load.
#[derive(Debug)]
pub(crate) struct LoadResult {
    /// All operations.
    total: Recorder,
    /// Seconds from the start to the last answer.
    pub(crate) seconds: f64,
    /// Open loop: operations that fell due and never began.
    pub(crate) unserved: u64,
    pub(crate) timeline: Vec<TimelineStep>,
    /// Shares of processor time during the load.
    pub(crate) shares: Shares,
    pub(crate) ended: EndReason,
}

impl LoadResult {
    /// Number of successful operations.
    pub(crate) fn operations(&self) -> u64 {
        self.latency.count()
    }
}

impl Deref for LoadResult {
    type Target = Recorder;

    fn deref(&self) -> &Recorder {
        &self.total
    }
}

/// Reasons for the end of a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum EndReason {
    /// All operations were done.
    Done,
    /// A stop was requested.
    Stopped,
    /// Every recent operation failed.
    Broken,
    /// No answer arrived.
    Hung,
    /// The target fell hopelessly behind the schedule.
    Behind,
}

/// Delay beyond which an operation counts as late.
const LATE_MIN: Duration = Duration::from_millis(1);
/// Number of failures in a row, or time of failures alone, after which the target counts as broken.
const FAILURES_IN_A_ROW: u64 = 20;
const FAILURE_TIME_MAX: Duration = Duration::from_secs(3);
/// Time limit for the last operation of each worker at the end.
const FINISH_TIMEOUT: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(100);

/// State shared by the workers of a load.
struct Shared {
    schedule: Arc<Schedule>,
    recorders: Recorders,
    silence_max: Duration,
    in_a_row: AtomicU64,
    /// Nanoseconds from the start to the last answer, and to the last success.
    answered: AtomicU64,
    succeeded: AtomicU64,
}

/// Runs a load. Returns the workers in their order, except workers that had to be aborted during an operation.
pub(crate) async fn run_load<W: Worker>(workers: &mut Vec<W>, load: Load, progress: &Progress) -> LoadResult {
    let before = clocks();
    let schedule = Arc::new(Schedule::new(load));
    let shared = Arc::new(Shared {
        schedule,
        recorders: Recorders::new(workers.len()),
        silence_max: W::SILENCE_MAX,
        in_a_row: AtomicU64::new(0),
        answered: AtomicU64::new(0),
        succeeded: AtomicU64::new(0),
    });
    let mut tasks = JoinSet::new();
    let count = workers.len();
    for (index, worker) in workers.drain(..).enumerate() {
        tasks.spawn(work(worker, index, Arc::clone(&shared)));
    }
    let released = shared.schedule.release(count);
    if released.is_err() {
        shared.schedule.halt();
    }
    let mut supervisor = Supervisor { shared, progress, sampler: Sampler::new(STEP), ended: EndReason::Done };
    let mut back = supervisor.wait(tasks).await;
    back.sort_by_key(|(index, _)| *index);
    workers.extend(back.into_iter().map(|(_, worker)| worker));
    let mut result = supervisor.finish(load.rate.is_some());
    result.shares = Shares::since(before);
    if let Err(error) = released {
        result.total.first_error = Some(Error::Input(format!("no thread for the schedule: {error}")));
        result.ended = EndReason::Broken;
    }
    result
}

/// Runs operations of one worker until the schedule ends.
async fn work<W: Worker>(mut worker: W, index: usize, shared: Arc<Shared>) -> (usize, W) {
    while let Some(operation) = shared.schedule.next().await {
        let began = Instant::now();
        let result = worker.operation(operation.number).await;
        shared.record(index, &operation, began, result);
    }
    (index, worker)
}

impl Shared {
    /// Records the result of one operation. Latency counts from the due time in an open loop.
    fn record(&self, index: usize, operation: &ScheduledOperation, began: Instant, result: Result<()>) {
        let now = Instant::now();
        let nanos = now.duration_since(self.schedule.start).as_nanos() as u64;
        self.answered.store(nanos, Relaxed);
        let mut recorder = self.recorders.of(index);
        match result {
            Ok(()) => {
                self.in_a_row.store(0, Relaxed);
                self.succeeded.store(nanos, Relaxed);
                let from = operation.due.map_or(began, |(due, _)| due);
                recorder.latency.record(now.duration_since(from));
                if operation.due.is_some() {
                    recorder.service.record(now.duration_since(began));
                }
            }
            Err(error) => {
                self.in_a_row.fetch_add(1, Relaxed);
                recorder.fail(error);
            }
        }
        if let Some((due, was_free)) = operation.due
            && began.saturating_duration_since(due) > LATE_MIN
        {
            recorder.late += 1;
            recorder.lagging += u64::from(was_free);
        }
    }

    /// Returns the reason why the load cannot continue, if any.
    fn failure(&self, elapsed: Duration) -> Option<EndReason> {
        let since = |nanos: &AtomicU64| elapsed.saturating_sub(Duration::from_nanos(nanos.load(Relaxed)));
        let failing = self.in_a_row.load(Relaxed);
        if failing >= FAILURES_IN_A_ROW || (failing > 0 && since(&self.succeeded) > FAILURE_TIME_MAX) {
            return Some(EndReason::Broken);
        }
        if since(&self.answered) > self.silence_max {
            return Some(EndReason::Hung);
        }
        let behind = self.schedule.unserved() > 0
            && self.schedule.length().is_some_and(|length| elapsed > length + length / 2 + FINISH_TIMEOUT);
        behind.then_some(EndReason::Behind)
    }
}

/// Waits for the workers, keeps the timeline, and detects failures.
struct Supervisor<'a> {
    shared: Arc<Shared>,
    progress: &'a Progress,
    sampler: Sampler,
    ended: EndReason,
}

impl Supervisor<'_> {
    /// Waits for all workers, with a check at each step. Aborts workers that do not end in time.
    async fn wait<W: Worker>(&mut self, mut tasks: JoinSet<(usize, W)>) -> Vec<(usize, W)> {
        let mut back = Vec::new();
        let mut ticks = tokio::time::interval(STEP);
        let mut stopped_at: Option<Instant> = None;
        loop {
            tokio::select! {
                joined = tasks.join_next() => match joined {
                    Some(Ok(one)) => back.push(one),
                    Some(Err(_)) => {} // aborted during an operation
                    None => return back,
                },
                _ = ticks.tick() => self.tick(),
                () = self.progress.until_stopped(), if stopped_at.is_none() => self.halt(EndReason::Stopped),
            }
            if self.ended != EndReason::Done
                && *stopped_at.get_or_insert_with(Instant::now) + FINISH_TIMEOUT < Instant::now()
            {
                tasks.abort_all();
            }
        }
    }

    /// Stops the schedule for a reason.
    fn halt(&mut self, why: EndReason) {
        self.ended = why;
        self.shared.schedule.halt();
    }

    /// Collects the recorders, shows progress, and checks for trouble.
    fn tick(&mut self) {
        let elapsed = self.shared.schedule.start.elapsed();
        self.sampler.take(&self.shared.recorders, elapsed, false);
        if self.ended == EndReason::Done
            && let Some(failure) = self.shared.failure(elapsed)
        {
            self.halt(failure);
        }
        let done = self.sampler.total.latency.count() + self.sampler.step.latency.count();
        let p99 = self.sampler.timeline.last().map_or(0.0, |step| step.p99);
        let of = self.shared.schedule.total().map_or(String::new(), |total| format!(" of {total}"));
        let rate = figures::number(done as f64 / elapsed.as_secs_f64().max(1e-9));
        self.progress.show(&format!("{rate}/s, {done}{of}, p99 {}", figures::latency(p99)));
    }

    /// Returns the result of the load.
    fn finish(mut self, open: bool) -> LoadResult {
        self.shared.schedule.halt();
        let elapsed = self.shared.schedule.start.elapsed();
        self.sampler.take(&self.shared.recorders, elapsed, true);
        let answered = Duration::from_nanos(self.shared.answered.load(Relaxed));
        let total = self.sampler.total;
        // A load ends with its last answer. The wait for a silent target counts as its time.
        let ended_well = matches!(self.ended, EndReason::Done | EndReason::Behind);
        let seconds = if ended_well { answered } else { elapsed }.as_secs_f64();
        let unserved = if open { self.shared.schedule.unserved() } else { 0 };
        let (timeline, shares) = (self.sampler.timeline, Shares::default());
        LoadResult { total, seconds, unserved, timeline, shares, ended: self.ended }
    }
}

/// Operations of the last step, or of the whole load.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    /// Latency of successful operations, from the intended start in an open loop.
    pub(crate) latency: Latencies,
    /// Open loop: latency from the actual start.
    pub(crate) service: Latencies,
    pub(crate) failures: u64,
    /// Open loop: operations that began more than a millisecond late.
    pub(crate) late: u64,
    /// Late operations for which a connection was free: the generator caused the delay.
    pub(crate) lagging: u64,
    pub(crate) first_error: Option<Error>,
}

impl Recorder {
    /// Counts a failure, and keeps the first error.
    pub(super) fn fail(&mut self, error: Error) {
        self.failures += 1;
        self.first_error.get_or_insert(error);
    }

    /// Moves all data into another recorder.
    fn drain_into(&mut self, total: &mut Recorder) {
        self.latency.drain_into(&mut total.latency);
        self.service.drain_into(&mut total.service);
        total.failures += std::mem::take(&mut self.failures);
        total.late += std::mem::take(&mut self.late);
        total.lagging += std::mem::take(&mut self.lagging);
        if let Some(error) = self.first_error.take() {
            total.first_error.get_or_insert(error);
        }
    }
}

/// Recorders, shared by workers by index.
pub(super) struct Recorders(Vec<Mutex<Recorder>>);

impl Recorders {
    pub(super) fn new(workers: usize) -> Recorders {
        Recorders((0..workers.clamp(1, 16)).map(|_| Mutex::default()).collect())
    }

    /// Returns the recorder of the worker at this index.
    pub(super) fn of(&self, index: usize) -> MutexGuard<'_, Recorder> {
        self.0[index % self.0.len()].lock()
    }
}

/// Collects the recorders step by step.
#[derive(Default)]
pub(super) struct Sampler {
    pub(super) total: Recorder,
    pub(super) timeline: Vec<TimelineStep>,
    step: Recorder,
    step_length: Duration,
    step_began: Duration,
}

/// Number of steps after which further steps are twice as long. A chart needs no more.
const STEPS_MAX: usize = 300;

impl Sampler {
    /// Creates a sampler with the length of the first steps.
    pub(super) fn new(step_length: Duration) -> Sampler {
        Sampler { step_length, ..Sampler::default() }
    }

    /// Collects the recorders. Ends the step if its time is over, or at the end of the load.
    pub(super) fn take(&mut self, recorders: &Recorders, elapsed: Duration, end: bool) {
        for recorder in &recorders.0 {
            recorder.lock().drain_into(&mut self.step);
        }
        let length = elapsed.saturating_sub(self.step_began);
        if length < self.step_length && !end {
            return;
        }
        if length > Duration::ZERO {
            let Summary { p50, p99, max, .. } = self.step.latency.summary();
            let (at, seconds) = (self.step_began.as_secs_f64(), length.as_secs_f64());
            let operations = self.step.latency.count();
            self.timeline.push(TimelineStep { at, seconds, operations, p50, p99, max });
            if self.timeline.len().is_multiple_of(STEPS_MAX) {
                self.step_length *= 2;
            }
        }
        self.step.drain_into(&mut self.total);
        self.step_began = elapsed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_add_up_to_the_whole() {
        let recorders = Recorders::new(2);
        let mut sampler = Sampler::new(Duration::from_secs(1));
        let ms = Duration::from_millis;
        recorders.of(0).latency.record(ms(1));
        sampler.take(&recorders, ms(500), false);
        recorders.of(1).latency.record(ms(3));
        sampler.take(&recorders, ms(1000), false);
        recorders.of(1).latency.record(ms(5));
        recorders.of(1).fail(Error::Input("first".to_string()));
        recorders.of(0).fail(Error::Input("second".to_string()));
        sampler.take(&recorders, ms(1200), true);
        let counts: Vec<u64> = sampler.timeline.iter().map(|moment| moment.operations).collect();
        assert_eq!(counts, [2, 1]);
        assert_eq!(sampler.total.latency.count(), 3);
        assert_eq!(sampler.total.failures, 2);
        assert!((sampler.timeline[1].seconds - 0.2).abs() < 1e-9);
    }

    #[test]
    fn a_long_run_has_few_steps() {
        let recorders = Recorders::new(1);
        let mut sampler = Sampler::new(Duration::from_millis(100));
        for step in 1..=36_000 {
            sampler.take(&recorders, Duration::from_millis(100 * step), false);
        }
        assert!(sampler.timeline.len() < 3000, "{}", sampler.timeline.len());
    }
}
