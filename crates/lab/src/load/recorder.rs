//! What workers write down while they run, and what is made of it at each step of time.
//!
//! Workers share a few recorders; a sampler empties these at each step into the whole, so that one
//! histogram makes both the total and the timeline, and a worker that never comes back leaves all
//! that it had written down.

use crate::error::Error;
use crate::histogram::Latencies;
use crate::result::Moment;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Operations since the last step, or all of them.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    /// Of those that succeeded: from the intended start in an open loop.
    pub(crate) latency: Latencies,
    /// Open loop: from the actual start.
    pub(crate) service: Latencies,
    pub(crate) failures: u64,
    /// Open loop: operations that began more than a millisecond after they were due.
    pub(crate) late: u64,
    /// Those of them for which a connection was free: the generator's own fault.
    pub(crate) lagging: u64,
    pub(crate) first_error: Option<Error>,
}

impl Recorder {
    /// Counts a failure, and keeps what the first one was.
    pub(super) fn fail(&mut self, error: Error) {
        self.failures += 1;
        self.first_error.get_or_insert(error);
    }

    fn drain_into(&mut self, whole: &mut Recorder) {
        self.latency.drain_into(&mut whole.latency);
        self.service.drain_into(&mut whole.service);
        for (from, into) in [
            (&mut self.failures, &mut whole.failures),
            (&mut self.late, &mut whole.late),
            (&mut self.lagging, &mut whole.lagging),
        ] {
            *into += std::mem::take(from);
        }
        if let Some(error) = self.first_error.take() {
            whole.first_error.get_or_insert(error);
        }
    }
}

/// Recorders that workers share by their place.
pub(super) struct Recorders(Vec<Mutex<Recorder>>);

impl Recorders {
    pub(super) fn new(workers: usize) -> Recorders {
        Recorders((0..workers.clamp(1, 16)).map(|_| Mutex::default()).collect())
    }

    /// The recorder of the worker at this place.
    pub(super) fn of(&self, place: usize) -> MutexGuard<'_, Recorder> {
        lock(&self.0[place % self.0.len()])
    }
}

fn lock(recorder: &Mutex<Recorder>) -> MutexGuard<'_, Recorder> {
    recorder.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Collects what is in the recorders, step by step.
#[derive(Default)]
pub(super) struct Sampler {
    pub(super) whole: Recorder,
    pub(super) timeline: Vec<Moment>,
    step: Recorder,
    step_length: Duration,
    step_began: Duration,
}

/// With more steps than this, further ones are twice as long: a chart needs no more.
const STEPS_MAX: usize = 300;

impl Sampler {
    /// One whose first steps are this long.
    pub(super) fn new(step_length: Duration) -> Sampler {
        Sampler { step_length, ..Sampler::default() }
    }

    /// Takes what is there; ends the step if its time is over, or if this is the end.
    pub(super) fn take(&mut self, recorders: &Recorders, elapsed: Duration, end: bool) {
        for recorder in &recorders.0 {
            lock(recorder).drain_into(&mut self.step);
        }
        let length = elapsed.saturating_sub(self.step_began);
        if length < self.step_length && !end {
            return;
        }
        if length > Duration::ZERO {
            self.timeline.push(moment(&self.step.latency, self.step_began, length));
            if self.timeline.len().is_multiple_of(STEPS_MAX) {
                self.step_length *= 2;
            }
        }
        self.step.drain_into(&mut self.whole);
        self.step_began = elapsed;
    }

    /// Operations up to now, and the 99th percentile of the current step in microseconds.
    pub(super) fn glance(&self) -> (u64, f64) {
        let done = self.whole.latency.count() + self.step.latency.count();
        (done, self.timeline.last().map_or(0.0, |moment| moment.p99))
    }
}

fn moment(latency: &Latencies, began: Duration, length: Duration) -> Moment {
    let summary = latency.summary();
    Moment {
        at: began.as_secs_f64(),
        seconds: length.as_secs_f64(),
        operations: latency.count(),
        p50: summary.p50,
        p99: summary.p99,
        max: summary.max,
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
        assert_eq!(sampler.whole.latency.count(), 3);
        assert_eq!(sampler.whole.failures, 2);
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
