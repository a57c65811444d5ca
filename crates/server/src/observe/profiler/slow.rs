//! Slow operations: threshold and sample rate, as the command `profile` sets them.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Threshold and sample rate of slow operations.
pub(crate) struct SlowOperations {
    /// Threshold in milliseconds. Longer operations are slow.
    threshold: AtomicI64,
    /// Share of slow operations in the log, between zero and one, as the bits of a double.
    sample_rate: AtomicU64,
}

impl Default for SlowOperations {
    /// Returns MongoDB's defaults: all operations over 100 milliseconds.
    fn default() -> SlowOperations {
        SlowOperations { threshold: AtomicI64::new(100), sample_rate: AtomicU64::new(1f64.to_bits()) }
    }
}

impl SlowOperations {
    /// Returns the threshold in milliseconds.
    pub(crate) fn threshold(&self) -> i64 {
        self.threshold.load(Relaxed)
    }

    /// Returns the share of slow operations that is logged.
    pub(crate) fn sample_rate(&self) -> f64 {
        f64::from_bits(self.sample_rate.load(Relaxed))
    }

    /// Changes threshold and sample rate, if given.
    pub(crate) fn set(&self, threshold: Option<i64>, sample_rate: Option<f64>) {
        if let Some(threshold) = threshold {
            self.threshold.store(threshold, Relaxed);
        }
        if let Some(rate) = sample_rate {
            self.sample_rate.store(rate.to_bits(), Relaxed);
        }
    }

    /// Returns true if an operation of this duration is slow.
    pub(crate) fn is_slow(&self, took: Duration) -> bool {
        i64::try_from(took.as_millis()).unwrap_or(i64::MAX) > self.threshold()
    }

    /// Returns true if an operation of this duration is logged. `random` returns any number.
    pub(crate) fn logs(&self, took: Duration, random: impl FnOnce() -> u64) -> bool {
        let unit = || (random() >> 11) as f64 / (1u64 << 53) as f64;
        self.is_slow(took) && unit() < self.sample_rate()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_sampled_operations_are_logged() {
        let slow = SlowOperations::default();
        let logs = |millis, random| slow.logs(Duration::from_millis(millis), || random);
        assert!(!logs(100, 0) && logs(101, u64::MAX));
        slow.set(Some(-1), Some(0.5));
        assert!(logs(0, 0) && !logs(0, u64::MAX));
        slow.set(None, Some(0.0));
        assert!(!logs(1000, 0));
        assert_eq!((slow.threshold(), slow.sample_rate()), (-1, 0.0));
    }
}
