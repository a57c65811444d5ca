//! How often reads would be answered by a cache, by its size: what an engine with a bounded cache can tell.

use crate::Ident;

/// The share of hits, in points, that a larger cache has to gain to be worth mentioning.
const GAIN: f64 = 0.005;

/// Reads of pages, and how many of them caches of other sizes would answer.
#[derive(Debug, Clone, Default)]
pub struct WorkingSet {
    /// The size of the cache that there is.
    pub cache_bytes: u64,
    /// How many of the pages are looked at: one of so many.
    pub sampled: u64,
    /// How many seconds the latest hour covers: fewer after the start, and a few minutes fewer later.
    pub hour_seconds: u64,
    /// How many seconds ago counting began.
    pub seconds: u64,
    /// Everything.
    pub all: Reads,
    /// Trees, each with the others that share its pages.
    pub trees: Vec<(Vec<Ident>, Reads)>,
    /// What isn't told apart: trees that are gone, and those that were one too many.
    pub others: Reads,
}

/// What was read in the latest hour and since the start.
#[derive(Debug, Clone, Default)]
pub struct Reads {
    /// About the latest hour.
    pub hour: Span,
    /// Since the engine was opened.
    pub start: Span,
}

/// What was read in a span of time.
#[derive(Debug, Clone, Default)]
pub struct Span {
    /// Pages of entries that were read.
    pub reads: u64,
    /// How many of them came out of the file.
    pub misses: u64,
    /// How many of the reads caches would have answered.
    pub curve: Curve,
}

impl Span {
    /// The share of reads that were hits.
    pub fn hit_rate(&self) -> Option<f64> {
        (self.reads > 0).then(|| 1.0 - self.misses as f64 / self.reads as f64)
    }
}

/// The share of reads that caches of growing sizes would answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Curve {
    /// Sizes in bytes, growing, each with the share of hits that it would have.
    points: Vec<(u64, f64)>,
}

impl Curve {
    /// A curve through points with growing sizes.
    pub fn new(points: Vec<(u64, f64)>) -> Self {
        Curve { points }
    }

    /// The corners of the curve.
    pub fn points(&self) -> &[(u64, f64)] {
        &self.points
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// The share of reads that a cache of a size would answer.
    pub fn hit_rate(&self, bytes: u64) -> f64 {
        let after = self.points.partition_point(|(size, _)| *size <= bytes);
        let before = after.checked_sub(1).and_then(|at| self.points.get(at)).copied().unwrap_or((0, 0.0));
        let Some(&(size, rate)) = self.points.get(after) else { return before.1 };
        before.1 + (rate - before.1) * (bytes - before.0) as f64 / (size - before.0).max(1) as f64
    }

    /// The largest share of hits that any size has.
    pub fn best(&self) -> f64 {
        self.points.last().map_or(0.0, |(_, rate)| *rate)
    }

    /// The size beyond which nothing more is gained: half a point at most.
    pub fn enough(&self) -> Option<u64> {
        self.first_with(self.best() - GAIN)
    }

    /// The least size, among the corners, that has a share of hits.
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
