//! Samples of all operations since the start: the page draws them, also for the time before it was opened.
//!
//! The memory is bounded. Once the ring is full, pairs of samples are merged, and each sample covers twice the time.

use crate::observe::operations::{BUCKETS, FIRST_BOUND};
use parking_lot::Mutex;
use std::time::Duration;

/// Interval between two samples of the counters.
pub(crate) const INTERVAL: Duration = Duration::from_secs(2);

/// Maximum number of samples.
const SAMPLES_MAX: usize = 300;

/// Operations in a span of time, or since the start.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) writes: u64,
    /// Operations by duration.
    pub(crate) durations: [u64; BUCKETS],
}

impl Counts {
    fn combine(&self, other: &Counts, with: impl Fn(u64, u64) -> u64) -> Counts {
        let mut out = Counts { writes: with(self.writes, other.writes), ..*self };
        out.durations.iter_mut().zip(other.durations).for_each(|(one, other)| *one = with(*one, other));
        out
    }

    pub(crate) fn operations(&self) -> u64 {
        self.durations.iter().sum()
    }

    /// Returns the upper bound of this percentile in microseconds.
    pub(crate) fn percentile(&self, percent: u64) -> Option<i64> {
        let all = self.operations();
        let mut seen = 0;
        let reached = self.durations.iter().position(|count| {
            seen += count;
            all > 0 && seen * 100 >= all * percent
        });
        reached.map(|at| 1 << (FIRST_BOUND as usize + at))
    }
}

/// Samples of a server.
#[derive(Default)]
pub(crate) struct History(Mutex<Samples>);

#[derive(Default)]
struct Samples {
    /// Sums at the last sample.
    last: Counts,
    /// The sample in progress and its number of intervals.
    open: (Counts, u32),
    /// The logarithm of the number of intervals in a sample.
    doublings: u32,
    closed: Vec<Counts>,
}

impl Samples {
    fn add(&mut self, now: Counts) {
        let since = now.combine(&self.last, u64::saturating_sub);
        self.last = now;
        self.open = (self.open.0.combine(&since, u64::saturating_add), self.open.1 + 1);
        if self.open.1 < 1 << self.doublings {
            return;
        }
        self.closed.push(std::mem::take(&mut self.open).0);
        if self.closed.len() == SAMPLES_MAX {
            let pairs = self.closed.chunks_exact(2);
            self.closed = pairs
                .map(|pair| {
                    pair.iter().fold(Counts::default(), |sum, one| sum.combine(one, u64::saturating_add))
                })
                .collect();
            self.doublings += 1;
        }
    }

    fn seconds(&self) -> f64 {
        INTERVAL.as_secs_f64() * f64::from(1u32 << self.doublings)
    }
}

impl History {
    /// Adds a sample: the counts since the start. The caller calls it once per [`INTERVAL`].
    pub(crate) fn sample(&self, now: Counts) {
        self.0.lock().add(now);
    }

    /// Returns the seconds that each sample covers, and the samples.
    pub(crate) fn samples(&self) -> (f64, Vec<Counts>) {
        let samples = self.0.lock();
        (samples.seconds(), samples.closed.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(operations: u64, writes: u64, at: usize) -> Counts {
        let mut counts = Counts { writes, ..Counts::default() };
        counts.durations[at] = operations;
        counts
    }

    #[test]
    fn samples_are_differences_and_merge_once_there_are_many() {
        let mut samples = Samples::default();
        for number in 1..=1000 {
            samples.add(counts(number * 10, number, 0));
        }
        // 300 samples of one interval became 150 of two, 300 of these 150 of four, …
        assert!(samples.closed.len() < SAMPLES_MAX, "{}", samples.closed.len());
        assert_eq!(samples.doublings, 2);
        assert_eq!(samples.seconds(), 8.0);
        assert!(samples.closed.iter().all(|one| one.operations() == 40 && one.writes == 4));
        let sum: u64 = samples.closed.iter().map(Counts::operations).sum();
        assert_eq!(sum + samples.open.0.operations(), 10_000);
    }

    #[test]
    fn percentiles_are_upper_bounds() {
        assert_eq!(Counts::default().percentile(50), None);
        let both = counts(98, 0, 0).combine(&counts(2, 0, 3), |one, other| one + other);
        assert_eq!(both.percentile(50), Some(16));
        assert_eq!(both.percentile(98), Some(16));
        assert_eq!(both.percentile(99), Some(128));
    }
}
