//! Latencies: an HdrHistogram of nanoseconds with three significant digits.
//!
//! Histograms can be merged and percentiles cannot. Files and rounds therefore exchange histograms. JSON holds
//! HdrHistogram's V2 encoding in base 64.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer as Decoder, Serializer as Encoder, V2Serializer};
use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::time::Duration;

/// Latencies of operations.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Latencies(Histogram<u64>);

/// The figures of a row in microseconds.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Summary {
    pub(crate) min: f64,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p95: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) max: f64,
}

impl Default for Latencies {
    /// Creates an empty histogram. It grows as needed: no latency is too long.
    #[allow(clippy::expect_used)] // three digits are within the one to five that are possible
    fn default() -> Latencies {
        Latencies(Histogram::new(3).expect("three digits are possible"))
    }
}

impl Latencies {
    /// Counts one operation.
    pub(crate) fn record(&mut self, latency: Duration) {
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX / 4);
        // Fails only for a value that no histogram can hold.
        let _ = self.0.record(nanoseconds.max(1));
    }

    /// Adds the counts of another histogram.
    pub(crate) fn merge(&mut self, other: &Latencies) {
        // Cannot fail: both have three digits and grow.
        let _ = self.0.add(&other.0);
    }

    /// Moves all counts into another histogram.
    pub(crate) fn drain_into(&mut self, other: &mut Latencies) {
        if self.count() > 0 {
            other.merge(self);
            self.0.reset();
        }
    }

    /// Returns the number of operations.
    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }

    /// Returns a quantile in microseconds. `share` is from 0 to 1.
    pub(crate) fn quantile(&self, share: f64) -> f64 {
        microseconds(self.0.value_at_quantile(share))
    }

    /// Returns the figures of reports.
    pub(crate) fn summary(&self) -> Summary {
        Summary {
            min: if self.count() == 0 { 0.0 } else { microseconds(self.0.min()) },
            p50: self.quantile(0.5),
            p90: self.quantile(0.9),
            p95: self.quantile(0.95),
            p99: self.quantile(0.99),
            p999: self.quantile(0.999),
            max: microseconds(self.0.max()),
        }
    }

    /// Returns points of the percentile curve: share of operations (0 to 1) and latency in microseconds. The points are
    /// dense at the slow end, for an axis of 1 / (1 - share).
    pub(crate) fn curve(&self) -> Vec<(f64, f64)> {
        let points = self.0.iter_quantiles(4);
        points.map(|point| (point.quantile_iterated_to(), microseconds(point.value_iterated_to()))).collect()
    }
}

impl FromIterator<Duration> for Latencies {
    fn from_iter<I: IntoIterator<Item = Duration>>(each: I) -> Latencies {
        let mut latencies = Latencies::default();
        each.into_iter().for_each(|latency| latencies.record(latency));
        latencies
    }
}

fn microseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1000.0
}

impl Serialize for Latencies {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut bytes = Vec::new();
        let mut encoder = V2Serializer::new();
        encoder.serialize(&self.0, &mut bytes).map_err(|error| S::Error::custom(format!("{error:?}")))?;
        serializer.serialize_str(&STANDARD.encode(bytes))
    }
}

impl<'de> Deserialize<'de> for Latencies {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = STANDARD.decode(text).map_err(D::Error::custom)?;
        let histogram = Decoder::new().deserialize(&mut bytes.as_slice());
        histogram.map(Latencies).map_err(|error| D::Error::custom(format!("not a histogram: {error:?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(milliseconds: impl IntoIterator<Item = u64>) -> Latencies {
        milliseconds.into_iter().map(Duration::from_millis).collect()
    }

    #[test]
    fn merged_percentiles_cover_all_operations() {
        let mut fast = of(1..=90);
        fast.merge(&of(91..=100));
        assert_eq!(fast.summary(), of(1..=100).summary());
        assert!((fast.quantile(0.99) / 99_000.0 - 1.0).abs() < 0.002);
    }

    #[test]
    fn json_keeps_every_count() {
        let before = of([1, 5, 5, 2000]);
        let text = serde_json::to_string(&before).unwrap();
        let after: Latencies = serde_json::from_str(&text).unwrap();
        assert_eq!(after.summary(), before.summary());
        assert_eq!(after.count(), 4);
    }

    #[test]
    fn text_that_is_no_histogram_is_refused() {
        assert!(serde_json::from_str::<Latencies>("\"AAAA\"").is_err());
        assert!(serde_json::from_str::<Latencies>("\"?\"").is_err());
    }
}
