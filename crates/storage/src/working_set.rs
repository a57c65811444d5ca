//! Hit rates of caches by size, as estimated by an engine with a limited cache.

use crate::Ident;

/// Least gain of the hit rate by a larger cache that is reported.
const GAIN: f64 = 0.005;

/// Page reads, and the hit rates of caches with other sizes.
#[derive(Debug, Clone, Default)]
pub struct WorkingSet {
    /// Size of the present cache.
    pub cache_bytes: u64,
    /// Sampling rate: one of this number of pages is sampled.
    pub sampled: u64,
    /// Length of the latest hour in seconds: shorter after the start, and a few minutes shorter
    /// later.
    pub hour_seconds: u64,
    /// Seconds since counting began.
    pub seconds: u64,
    /// All trees.
    pub all: Reads,
    /// Single trees, each with the other trees that share its pages.
    pub trees: Vec<(Vec<Ident>, Reads)>,
    /// Trees without separate counts: dropped trees, and trees beyond the limit.
    pub others: Reads,
}

/// Reads in the latest hour and since the start.
#[derive(Debug, Clone, Default)]
pub struct Reads {
    /// The latest hour, approximately.
    pub hour: Span,
    /// Since the engine was opened.
    pub start: Span,
}

/// Reads in a span of time.
#[derive(Debug, Clone, Default)]
pub struct Span {
    /// Number of page reads.
    pub reads: u64,
    /// Number of page reads from the file.
    pub misses: u64,
    /// Hit rates of caches.
    pub curve: Curve,
}

impl Span {
    /// Returns the hit rate.
    pub fn hit_rate(&self) -> Option<f64> {
        (self.reads > 0).then(|| 1.0 - self.misses as f64 / self.reads as f64)
    }
}

/// Hit rates of caches with growing sizes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Curve {
    /// Sizes in bytes, growing, each with its hit rate.
    points: Vec<(u64, f64)>,
}

impl Curve {
    /// Returns a curve through points with growing sizes.
    pub fn new(points: Vec<(u64, f64)>) -> Self {
        debug_assert!(points.is_sorted_by(|(a, _), (b, _)| a < b), "sizes are out of order");
        debug_assert!(points.iter().all(|(_, rate)| (0.0..1.000_001).contains(rate)), "a rate is above 1");
        Curve { points }
    }

    /// Returns the points of the curve.
    pub fn points(&self) -> &[(u64, f64)] {
        &self.points
    }

    /// Returns true if the curve has no points.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// Returns the hit rate of a cache with this size.
    pub fn hit_rate(&self, bytes: u64) -> f64 {
        let after = self.points.partition_point(|(size, _)| *size <= bytes);
        let before = after.checked_sub(1).and_then(|at| self.points.get(at)).copied().unwrap_or((0, 0.0));
        let Some(&(size, rate)) = self.points.get(after) else { return before.1 };
        debug_assert!(before.0 <= bytes && bytes < size, "{bytes} is not between {} and {size}", before.0);
        before.1 + (rate - before.1) * (bytes - before.0) as f64 / (size - before.0).max(1) as f64
    }

    /// Returns the highest hit rate of any size.
    pub fn best(&self) -> f64 {
        self.points.last().map_or(0.0, |(_, rate)| *rate)
    }

    /// Returns the size beyond which the hit rate gains at most half a point.
    pub fn enough(&self) -> Option<u64> {
        self.first_with(self.best() - GAIN)
    }

    /// Returns the least size, among the points, with at least this hit rate.
    pub fn first_with(&self, rate: f64) -> Option<u64> {
        self.points.iter().find(|(_, found)| *found > 0.0 && *found >= rate).map(|(size, _)| *size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_straight_between_its_corners() {
        let curve = Curve::new(vec![(100, 0.5), (200, 0.9), (400, 0.902)]);
        assert_eq!([0, 50, 100, 150, 1000].map(|size| curve.hit_rate(size)), [0.0, 0.25, 0.5, 0.7, 0.902]);
        assert_eq!(curve.enough(), Some(200));
        assert_eq!(Curve::default().enough(), None);
        assert_eq!(Curve::new(vec![(64, 0.0)]).enough(), None);
    }
}
