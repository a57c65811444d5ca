//! Confidence of a difference: an interval from rounds, without an assumption about their distribution.
//!
//! The interval is the Hodges-Lehmann interval of the ratio. All quotients of a round after and a round before are
//! sorted. The Mann-Whitney distribution gives the number of quotients to drop at each end. Three rounds on each side
//! are the minimum for 90 %. With three, the interval spans all quotients, so a difference is certain exactly if the
//! rounds do not overlap.

use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Minimum confidence of a reported interval.
const CONFIDENCE: f64 = 0.9;

/// Interval of the ratio of after to before, with its confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Interval {
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// Confidence, 0.9 to 1.
    pub(crate) confidence: f64,
}

impl Interval {
    /// Returns the interval for the values of rounds; `None` with too few rounds.
    pub(crate) fn of_ratio(before: &[f64], after: &[f64]) -> Option<Interval> {
        let mut quotients: Vec<f64> =
            after.iter().flat_map(|after| before.iter().map(move |before| after / before)).collect();
        if quotients.iter().any(|quotient| !quotient.is_finite()) {
            return None;
        }
        quotients.sort_by(f64::total_cmp);
        let (dropped_count, confidence) = dropped_count(before.len(), after.len())?;
        let last = quotients.len().checked_sub(1 + dropped_count)?;
        Some(Interval { low: *quotients.get(dropped_count)?, high: *quotients.get(last)?, confidence })
    }

    /// Returns true if the interval excludes "no difference".
    pub(crate) fn is_significant(&self) -> bool {
        self.low > 1.0 || self.high < 1.0
    }
}

/// A number of quotients, and a confidence.
type Dropped = (usize, f64);

/// Returns the number of quotients to drop at each end, and the resulting confidence. Rows of a run have equal numbers of
/// rounds, so a number is computed once.
fn dropped_count(before: usize, after: usize) -> Option<Dropped> {
    static KNOWN: Mutex<BTreeMap<(usize, usize), Option<Dropped>>> = Mutex::new(BTreeMap::new());
    *KNOWN.lock().entry((before, after)).or_insert_with(|| count_dropped(before, after))
}

fn count_dropped(before: usize, after: usize) -> Option<Dropped> {
    let mann_whitney_counts = mann_whitney_counts(before, after);
    let all: f64 = mann_whitney_counts.iter().sum();
    let mut below = 0.0;
    let mut found = None;
    for (at, count) in mann_whitney_counts.iter().enumerate() {
        below += count / all;
        if 2.0 * below > 1.0 - CONFIDENCE + 1e-9 {
            break;
        }
        found = Some((at, 1.0 - 2.0 * below));
    }
    found
}

/// Returns the number of orders of all rounds with 0, 1, 2 … pairs in which the later run is below the earlier one.
fn mann_whitney_counts(before: usize, after: usize) -> Vec<f64> {
    let most = before * after;
    // Indexed by the number of `after` values placed; each `before` value adds the number placed so far.
    let mut placed = vec![vec![0.0; most + 1]; after + 1];
    for row in &mut placed {
        row[0] = 1.0;
    }
    for _ in 0..before {
        for count in 0..=after {
            // From the top, so that lower entries still exclude this round.
            for pairs in (0..=most).rev() {
                let from_less = if count > 0 { placed[count - 1][pairs] } else { 0.0 };
                let shifted = if pairs >= count { placed[count][pairs - count] } else { 0.0 };
                placed[count][pairs] = from_less + shifted;
            }
        }
    }
    placed.pop().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_counted() {
        assert_eq!(mann_whitney_counts(1, 1), [1.0, 1.0]);
        assert_eq!(mann_whitney_counts(2, 2), [1.0, 1.0, 2.0, 1.0, 1.0]);
        assert_eq!(mann_whitney_counts(3, 3).iter().sum::<f64>(), 20.0);
        assert_eq!(mann_whitney_counts(5, 4).iter().sum::<f64>(), 126.0);
    }

    #[test]
    fn fewer_than_three_rounds_are_uncertain() {
        assert_eq!(Interval::of_ratio(&[1.0], &[9.0]), None);
        assert_eq!(Interval::of_ratio(&[1.0, 1.0], &[9.0, 9.0]), None);
        assert_eq!(Interval::of_ratio(&[], &[]), None);
    }

    #[test]
    fn three_rounds_without_overlap_are_certain() {
        let apart = Interval::of_ratio(&[100.0, 101.0, 99.0], &[110.0, 112.0, 108.0]).unwrap();
        assert!(apart.is_significant() && (apart.confidence - 0.9).abs() < 1e-9, "{apart:?}");
        assert_eq!((apart.low, apart.high), (108.0 / 101.0, 112.0 / 99.0));
        assert!(!Interval::of_ratio(&[100.0, 111.0, 99.0], &[110.0, 112.0, 108.0]).unwrap().is_significant());
    }

    #[test]
    fn one_odd_round_of_many_does_not_hide_a_difference() {
        let before = [100.0, 101.0, 99.0, 100.5, 99.5, 150.0, 100.2, 99.8];
        let after = before.map(|value| value * 1.2);
        let interval = Interval::of_ratio(&before, &after).unwrap();
        assert!(interval.is_significant() && interval.low < 1.2 && interval.high > 1.2, "{interval:?}");
        let many = [1.0; 40].map(|one: f64| one * 2.0);
        assert!(Interval::of_ratio(&[1.0; 40], &many).unwrap().is_significant());
    }

    #[test]
    fn rounds_of_nothing_give_no_interval() {
        assert_eq!(Interval::of_ratio(&[0.0, 0.0, 0.0], &[1.0, 1.0, 1.0]), None);
    }
}
