//! Latency of syncs: a concurrent histogram with percentiles.

use crate::SYNC_SPANS;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Four buckets per doubling from one microsecond on: percentiles are accurate within a fifth.
const BUCKETS: usize = 4 * 32;

/// A histogram of durations.
pub(super) struct Latency {
    /// Number of durations by bucket.
    counts: [AtomicU64; BUCKETS],
    total: AtomicU64,
    /// Sum of the durations in microseconds.
    micros: AtomicU64,
}

impl Default for Latency {
    fn default() -> Self {
        let counts = [const { AtomicU64::new(0) }; BUCKETS];
        Latency { counts, total: AtomicU64::new(0), micros: AtomicU64::new(0) }
    }
}

/// Returns the bucket of a number of microseconds.
fn bucket(micros: u64) -> usize {
    let micros = micros.max(4);
    let doubling = micros.ilog2();
    let quarter = (micros >> (doubling - 2)) & 3;
    ((doubling as usize - 2) * 4 + quarter as usize).min(BUCKETS - 1)
}

/// Returns the greatest number of microseconds in a bucket.
fn greatest(bucket: usize) -> u64 {
    debug_assert!(bucket < BUCKETS, "no bucket {bucket}");
    let (doubling, quarter) = (bucket / 4, bucket as u64 % 4);
    ((5 + quarter) << doubling) - 1
}

impl Latency {
    /// Adds a duration.
    pub(super) fn note(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        debug_assert!(bucket(micros) < BUCKETS, "{micros} microseconds are not counted");
        if let Some(count) = self.counts.get(bucket(micros)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.total.fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Returns the sum in microseconds.
    pub(super) fn sum(&self) -> u64 {
        self.micros.load(Ordering::Relaxed)
    }

    /// Returns counts by duration: below 16 microseconds, below each doubling of it, and longer.
    pub(super) fn by_doublings(&self) -> [u64; SYNC_SPANS] {
        let mut counts = [0; SYNC_SPANS];
        for (at, count) in self.counts.iter().enumerate() {
            // The first four buckets begin at 4 microseconds, the next four at 8.
            let span = (at / 4).saturating_sub(1).min(SYNC_SPANS - 1);
            if let Some(sum) = counts.get_mut(span) {
                *sum += count.load(Ordering::Relaxed);
            }
        }
        counts
    }

    /// Returns the number of durations.
    pub(super) fn count(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Returns a percentile in microseconds; 0 without durations.
    pub(super) fn percentile(&self, percent: u64) -> u64 {
        debug_assert!(percent <= 100, "{percent} percent");
        let rank = (self.count() * percent).div_ceil(100);
        let mut seen = 0;
        for (at, count) in self.counts.iter().enumerate() {
            seen += count.load(Ordering::Relaxed);
            if seen >= rank && seen > 0 {
                return greatest(at);
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_in_order_and_narrow() {
        for micros in (4..5000).chain([1 << 20, (1 << 33) + 12345]) {
            let greatest = greatest(bucket(micros));
            assert!(micros <= greatest && greatest * 4 < micros * 5, "{micros} {greatest}");
            assert!(bucket(micros) <= bucket(micros + 1));
        }
    }

    #[test]
    fn doublings_begin_at_sixteen_microseconds() {
        let latency = Latency::default();
        for micros in [0, 15, 16, 31, 32, 1 << 23, (1 << 24) - 1, 1 << 24, 1 << 40] {
            latency.note(Duration::from_micros(micros));
        }
        let counts = latency.by_doublings();
        assert_eq!((counts[0], counts[1], counts[2]), (2, 2, 1));
        assert_eq!((counts[SYNC_SPANS - 2], counts[SYNC_SPANS - 1]), (2, 2));
        assert_eq!(counts.iter().sum::<u64>(), latency.count());
        assert_eq!(latency.sum(), 15 + 16 + 31 + 32 + (1 << 23) + (1 << 24) - 1 + (1 << 24) + (1 << 40));
    }

    #[test]
    fn percentiles_separate_usual_from_rare_values() {
        let latency = Latency::default();
        assert_eq!(latency.percentile(50), 0);
        for micros in 1..=100 {
            latency.note(Duration::from_micros(if micros > 98 { 10_000 } else { 100 }));
        }
        assert_eq!(latency.count(), 100);
        assert!((100..125).contains(&latency.percentile(50)));
        assert!((100..125).contains(&latency.percentile(95)));
        assert!((10_000..12_500).contains(&latency.percentile(99)));
    }
}
