//! Reuse distances of pages by table, for the latest hour and since the start.

use std::collections::HashMap;

use super::UNIT_BYTES;
use crate::{Curve, Reads, Span};

/// Number of spans in the latest hour.
const SPANS: usize = 6;
const SPAN_SECONDS: u64 = 600;
/// Number of tables with their own tally.
const TABLES_MAX: usize = 48;
/// Steps per doubling of size, as a power of two. More steps need more memory.
const STEPS_ALL: u32 = 4;
const STEPS_TABLE: u32 = 3;
/// Distances from 2^this units on share one bucket: 4 TiB.
const DOUBLINGS: u32 = 33;

/// Exact counts of reads.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Count {
    pub(super) reads: u64,
    pub(super) misses: u64,
}

impl Count {
    fn plus(self, other: Count) -> Count {
        Count { reads: self.reads + other.reads, misses: self.misses + other.misses }
    }

    fn minus(self, other: Count) -> Count {
        Count {
            reads: self.reads.saturating_sub(other.reads),
            misses: self.misses.saturating_sub(other.misses),
        }
    }
}

/// Visits by the cache size that would have kept the page.
struct Tally {
    /// Steps per doubling, as a power of two.
    steps: u32,
    /// Visits by bucket since the start.
    start: Vec<u64>,
    /// Visits by bucket in each span of the latest hour.
    spans: [Vec<u32>; SPANS],
    /// First visits, which miss in any cache.
    cold: u64,
    /// First visits in each span.
    cold_spans: [u32; SPANS],
    /// Counts at the start of each span.
    counts: [Count; SPANS],
    /// Number of spans without a visit.
    idle_rotations: usize,
}

impl Tally {
    fn new(steps: u32, count: Count) -> Self {
        let spans = std::array::from_fn(|_| Vec::new());
        let (start, cold_spans) = (Vec::new(), [0; SPANS]);
        Tally { steps, start, spans, cold: 0, cold_spans, counts: [count; SPANS], idle_rotations: 0 }
    }

    /// Adds a visit at a distance, or a first visit. `weight` corrects for the sampling.
    fn record(&mut self, span: usize, distance: Option<u64>, weight: u32) {
        self.idle_rotations = 0;
        let Some(distance) = distance else {
            self.cold += u64::from(weight);
            if let Some(cold) = self.cold_spans.get_mut(span) {
                *cold = cold.saturating_add(weight);
            }
            return;
        };
        debug_assert!(weight > 0, "a visit that does not count");
        let at = bucket(distance, self.steps);
        if self.start.len() <= at {
            self.start.resize(at + 1, 0);
        }
        if let Some(count) = self.start.get_mut(at) {
            *count += u64::from(weight);
        }
        if let Some(span) = self.spans.get_mut(span) {
            if span.len() <= at {
                span.resize(at + 1, 0);
            }
            if let Some(count) = span.get_mut(at) {
                *count = count.saturating_add(weight);
            }
        }
    }

    /// Starts a span, and clears the data of an hour ago.
    fn rotate(&mut self, span: usize, count: Count) {
        if let Some(span) = self.spans.get_mut(span) {
            span.clear();
        }
        if let Some(cold) = self.cold_spans.get_mut(span) {
            *cold = 0;
        }
        if let Some(started) = self.counts.get_mut(span) {
            *started = count;
        }
        self.idle_rotations += 1;
    }

    /// Adds the tally of a table that has lost its own place.
    fn absorb(&mut self, other: &Tally) {
        debug_assert_eq!(self.steps, other.steps, "the buckets have other sizes");
        self.cold += other.cold;
        self.start.resize(self.start.len().max(other.start.len()), 0);
        for (count, more) in self.start.iter_mut().zip(&other.start) {
            *count += more;
        }
    }

    /// Returns the counts and curves for the hour and since the start.
    fn reads(&self, oldest: usize, now: Count) -> Reads {
        let len = self.spans.iter().map(Vec::len).max().unwrap_or_default();
        let mut hour = vec![0u64; len];
        for span in &self.spans {
            for (sum, count) in hour.iter_mut().zip(span) {
                *sum += u64::from(*count);
            }
        }
        let cold = self.cold_spans.iter().map(|cold| u64::from(*cold)).sum();
        let in_hour = now.minus(self.counts.get(oldest).copied().unwrap_or_default());
        let span = |count: Count, buckets: &[u64], cold| Span {
            reads: count.reads,
            misses: count.misses,
            curve: curve(self.steps, buckets, cold, count.reads),
        };
        Reads { hour: span(in_hour, &hour, cold), start: span(now, &self.start, self.cold) }
    }
}

/// Returns the bucket of a distance in units. Distances up to 2^`steps` have a bucket each, then each doubling has as
/// many buckets.
fn bucket(distance: u64, steps: u32) -> usize {
    let distance = distance.clamp(1, (1 << DOUBLINGS) - 1);
    let doubling = distance.ilog2();
    let bucket = match doubling.checked_sub(steps) {
        None => distance as usize,
        Some(over) => ((over as usize) << steps) + (distance >> over) as usize,
    };
    debug_assert!(end_of(bucket, steps) >= distance, "{distance} is behind bucket {bucket}");
    bucket
}

/// Returns the distance in units at which a bucket ends.
fn end_of(bucket: usize, steps: u32) -> u64 {
    let over = (bucket >> steps).saturating_sub(1);
    let within = (bucket - (over << steps)) as u64;
    ((within + 1) << over) - 1
}

/// Returns the curve of a tally. A sample with a hot page has too many visits, and a sample without it too few. A hot
/// page hits in any cache, so the difference is added to the smallest distances (SHARDS-adj).
fn curve(steps: u32, buckets: &[u64], cold: u64, reads: u64) -> Curve {
    debug_assert!(buckets.first().is_none_or(|count| *count == 0), "a visit has no distance");
    let again: u64 = buckets.iter().sum();
    if again + cold == 0 || reads == 0 {
        return Curve::default();
    }
    let mut difference = reads as f64 - (again + cold) as f64;
    let mut sum = difference.max(0.0);
    let mut points = Vec::new();
    if sum > 0.0 {
        points.push((UNIT_BYTES, sum / reads as f64));
    }
    for (at, count) in buckets.iter().enumerate().skip(1) {
        let mut count = *count as f64;
        if difference < 0.0 {
            let taken = count.min(-difference);
            count -= taken;
            difference += taken;
        }
        let rate = sum / reads as f64;
        let begin = end_of(at - 1, steps).max(1) * UNIT_BYTES;
        if count > 0.0 && points.last().is_none_or(|(size, _)| *size < begin) {
            points.push((begin, rate));
        }
        sum += count;
        if count > 0.0 {
            let end = end_of(at, steps) * UNIT_BYTES;
            points.retain(|(size, _)| *size < end);
            points.push((end, (sum / reads as f64).min(1.0)));
        }
    }
    Curve::new(points)
}

/// The tallies of all tables.
pub(super) struct Tallies {
    all: Tally,
    tables: HashMap<u64, Tally>,
    /// Tally of tables without their own.
    others: Tally,
    /// Number of the present span since the start.
    span: u64,
}

impl Default for Tallies {
    fn default() -> Self {
        let nothing = Count::default();
        let (all, others) = (Tally::new(STEPS_ALL, nothing), Tally::new(STEPS_TABLE, nothing));
        Tallies { all, tables: HashMap::new(), others, span: 0 }
    }
}

impl Tallies {
    fn span(&self) -> usize {
        (self.span % SPANS as u64) as usize
    }

    /// Returns the first span of the hour.
    fn oldest(&self) -> usize {
        match self.span < SPANS as u64 {
            true => 0,
            false => ((self.span + 1) % SPANS as u64) as usize,
        }
    }

    /// Returns the number of seconds that the latest hour covers.
    pub(super) fn hour_seconds(&self, seconds: u64) -> u64 {
        let started = self.span.saturating_sub(SPANS as u64 - 1) * SPAN_SECONDS;
        seconds.saturating_sub(started)
    }

    pub(super) fn record(&mut self, table: u64, distance: Option<u64>, weight: u32) {
        let span = self.span();
        self.all.record(span, distance, weight);
        self.tally(table).record(span, distance, weight);
    }

    /// Returns the tally of a table. If all are taken, replaces that of an idle table; without an idle table, returns
    /// the shared tally.
    fn tally(&mut self, table: u64) -> &mut Tally {
        if !self.tables.contains_key(&table) && self.tables.len() >= TABLES_MAX {
            let idle = self.tables.iter().find(|(_, tally)| tally.idle_rotations >= SPANS);
            let Some(removed) =
                idle.map(|(number, _)| *number).and_then(|number| self.tables.remove(&number))
            else {
                return &mut self.others;
            };
            self.others.absorb(&removed);
        }
        match table {
            0 => &mut self.others,
            // A table's counters begin at its opening, so its hour begins with zero.
            _ => self.tables.entry(table).or_insert_with(|| Tally::new(STEPS_TABLE, Count::default())),
        }
    }

    /// Returns true if another span has begun.
    pub(super) fn is_due(&self, seconds: u64) -> bool {
        seconds / SPAN_SECONDS > self.span
    }

    /// Starts the present span.
    pub(super) fn rotate(&mut self, seconds: u64, counts: &HashMap<u64, Count>) {
        let now = seconds / SPAN_SECONDS;
        self.span = self.span.max(now.saturating_sub(SPANS as u64));
        while self.span < now {
            self.span += 1;
            debug_assert!(self.span * SPAN_SECONDS <= seconds, "a span begins in the future");
            let span = self.span();
            let mut sum = Count::default();
            let mut untold = Count::default();
            for (number, count) in counts {
                sum = sum.plus(*count);
                match self.tables.get_mut(number) {
                    Some(tally) => tally.rotate(span, *count),
                    None => untold = untold.plus(*count),
                }
            }
            self.others.rotate(span, untold);
            self.all.rotate(span, sum);
        }
    }

    /// Returns the totals, including tables without a tally, and calls a function for each table.
    pub(super) fn report(
        &self,
        counts: &HashMap<u64, Count>,
        by_table: &mut dyn FnMut(u64, Reads),
    ) -> (Reads, Reads) {
        let oldest = self.oldest();
        let mut sum = Count::default();
        let mut untold = Count::default();
        for (number, count) in counts {
            sum = sum.plus(*count);
            match self.tables.get(number) {
                Some(tally) => by_table(*number, tally.reads(oldest, *count)),
                None => untold = untold.plus(*count),
            }
        }
        (self.all.reads(oldest, sum), self.others.reads(oldest, untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_one_another() {
        for steps in [STEPS_TABLE, STEPS_ALL] {
            let mut last = 0;
            for distance in 1..100_000 {
                let at = bucket(distance, steps);
                assert!(at == last || at == last + 1, "{distance}");
                assert!(end_of(at, steps) >= distance && (at == 0 || end_of(at - 1, steps) < distance));
                last = at;
            }
        }
    }

    #[test]
    fn an_hour_excludes_earlier_reads() {
        let mut tallies = Tallies::default();
        let counts = |reads| HashMap::from([(1, Count { reads, misses: reads / 2 })]);
        tallies.record(1, Some(10), 100);
        let report = |tallies: &Tallies, reads| {
            let mut found = Reads::default();
            tallies.report(&counts(reads), &mut |_, reads| found = reads);
            found
        };
        assert_eq!(report(&tallies, 100).hour.reads, 100);
        for span in 1..6 {
            tallies.rotate(span * SPAN_SECONDS, &counts(100));
        }
        let still = report(&tallies, 100);
        assert_eq!((still.hour.reads, still.hour.misses, still.hour.curve.best()), (100, 50, 1.0));
        tallies.rotate(6 * SPAN_SECONDS, &counts(100));
        let gone = report(&tallies, 100);
        assert_eq!((gone.hour.reads, gone.hour.curve.is_empty()), (0, true));
        assert_eq!((gone.start.reads, gone.start.curve.best()), (100, 1.0));
        // After a long idle time no data is left either.
        tallies.record(1, Some(10), 100);
        tallies.rotate(100 * SPAN_SECONDS, &counts(200));
        assert!(report(&tallies, 200).hour.curve.is_empty());
        assert_eq!(tallies.hour_seconds(100 * SPAN_SECONDS), 3000);
    }
}
