//! Differences between two reports, row by row. Rows are matched by section, case, target, connections and position on
//! the axis.
//!
//! The confidence of a difference comes from the rounds, without an assumption about their distribution. It is the
//! Hodges-Lehmann interval of the ratio. All quotients of a round after and a round before are sorted. The Mann-Whitney
//! distribution gives the number of quotients to drop at each end. Three rounds on each side are the minimum for 90 %.
//! With three, the interval spans all quotients, so a difference is certain exactly if the rounds do not overlap.

use super::Metric;
use crate::report::{figures, grid};
use crate::result::{Report, Row, Section};
use parking_lot::Mutex;
use serde::Serialize;
use std::collections::BTreeMap;

/// One figure of one row, before and after.
pub(crate) struct Difference {
    pub(crate) metric: Metric,
    pub(crate) before: f64,
    pub(crate) after: f64,
    /// Interval of the ratio; `None` with too few rounds.
    pub(crate) interval: Option<Interval>,
}

/// Judgement of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    Better,
    Worse,
    /// The rounds do not prove a difference.
    #[serde(rename = "not sure")]
    Unsure,
}

impl Difference {
    /// Compares one figure of two rows; `None` if either row lacks it.
    fn new(metric: Metric, before: &Row, after: &Row) -> Option<Difference> {
        let rounds =
            |row: &Row| row.rounds.iter().filter_map(|round| metric.of_round(round)).collect::<Vec<f64>>();
        let interval = Interval::of_ratio(&rounds(before), &rounds(after));
        Some(Difference { metric, before: metric.of(before)?, after: metric.of(after)?, interval })
    }

    /// Returns the ratio of after to before.
    pub(crate) fn ratio(&self) -> f64 {
        self.after / self.before
    }

    /// Returns the judgement: better, worse or uncertain.
    pub(crate) fn verdict(&self) -> Verdict {
        match self.interval.filter(Interval::is_significant) {
            None => Verdict::Unsure,
            // A larger value is worse, except for the rate.
            Some(interval) if (interval.low > 1.0) != (self.metric == Metric::RATE) => Verdict::Worse,
            Some(_) => Verdict::Better,
        }
    }

    /// Returns "+12 % (+8.1 to +17 %, 90 % sure)".
    pub(crate) fn describe(&self) -> String {
        let change = figures::change(self.ratio());
        match self.interval {
            Some(interval) => format!(
                "{change} ({} to {}, {:.0} % sure)",
                figures::change(interval.low),
                figures::change(interval.high),
                interval.confidence * 100.0
            ),
            None => format!("{change} (too few rounds)"),
        }
    }
}

/// A row of both reports.
pub(crate) struct Pair {
    pub(crate) label: String,
    pub(crate) target: String,
    pub(crate) differences: Vec<Difference>,
}

impl Pair {
    pub(crate) fn difference(&self, metric: Metric) -> Option<&Difference> {
        self.differences.iter().find(|difference| difference.metric == metric)
    }
}

/// The rows of a section in both reports.
pub(crate) struct Compared {
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) pairs: Vec<Pair>,
}

/// Rows in both reports, and a description of rows in only one.
pub(crate) struct Comparison {
    pub(crate) sections: Vec<Compared>,
    /// Rows that were measured only before.
    pub(crate) missing: Vec<String>,
    /// Rows that were measured only after.
    pub(crate) new: Vec<String>,
    /// Name of the null server in the later run.
    pub(crate) baseline: Option<String>,
}

impl Comparison {
    /// Compares two reports.
    pub(crate) fn new(before: &Report, after: &Report) -> Comparison {
        let compared = |section: &Section| {
            let other = after.sections.iter().find(|other| other.id == section.id)?;
            let pairs: Vec<Pair> = section.rows.iter().filter_map(|row| pair(section, row, other)).collect();
            let (id, title) = (section.id.clone(), section.title.clone());
            (!pairs.is_empty()).then_some(Compared { id, title, pairs })
        };
        let sections = before.sections.iter().filter_map(compared).collect();
        let baseline = grid::baseline(after).map(str::to_string);
        Comparison { sections, missing: unmatched(before, after), new: unmatched(after, before), baseline }
    }

    /// Returns the differences of a figure, without the null server's.
    pub(crate) fn of(&self, metric: Metric) -> impl Iterator<Item = (&Compared, &Pair, &Difference)> {
        let is_server = |pair: &Pair| Some(&pair.target) != self.baseline.as_ref();
        self.all().filter(move |(_, pair, each)| each.metric == metric && is_server(pair))
    }

    /// Returns every difference with its section and row.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&Compared, &Pair, &Difference)> {
        let pairs =
            self.sections.iter().flat_map(|section| section.pairs.iter().map(move |pair| (section, pair)));
        pairs.flat_map(|(section, pair)| pair.differences.iter().map(move |each| (section, pair, each)))
    }
}

/// Compares all figures of a row with its counterpart.
fn pair(section: &Section, row: &Row, other: &Section) -> Option<Pair> {
    let after = measured(other, row)?;
    let differences: Vec<_> =
        Metric::all().filter_map(|metric| Difference::new(metric, row, after)).collect();
    let label = grid::label(section, row);
    let pair = Pair { label: label_at(label, row), target: row.target.clone(), differences };
    (!pair.differences.is_empty()).then_some(pair)
}

/// Adds the position on the axis to a label that lacks it.
pub(super) fn label_at(label: String, row: &Row) -> String {
    match row.x.map(figures::number).filter(|x| !label.contains(x)) {
        Some(x) => format!("{label} at {x}"),
        None => label,
    }
}

/// Returns the same row of another report, if measured.
pub(super) fn measured<'a>(section: &'a Section, row: &Row) -> Option<&'a Row> {
    let key = |row: &Row| (row.target.clone(), row.case.clone(), row.connections);
    let mut rows = section.rows.iter().filter(|other| key(other) == key(row) && other.operations > 0);
    rows.find(|other| other.x == row.x)
}

/// Returns the rows of one report without figures in the other, with the reason if known.
fn unmatched(of: &Report, by: &Report) -> Vec<String> {
    let mut unmatched = Vec::new();
    for section in &of.sections {
        let other = by.sections.iter().find(|other| other.id == section.id);
        for row in section.rows.iter().filter(|row| row.operations > 0) {
            if other.is_some_and(|other| measured(other, row).is_some()) {
                continue;
            }
            let same = other.and_then(|other| other.row(&row.target, &row.case, row.connections));
            let why =
                same.and_then(|row| row.note.as_ref()).map(|note| format!(": {note}")).unwrap_or_default();
            let label = label_at(grid::label(section, row), row);
            unmatched.push(format!("{}, {label}, {}{why}", section.title, row.target));
        }
    }
    unmatched
}

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

/// Returns the number of quotients to drop at each end, and the resulting confidence. Rows of a run have equal numbers
/// of rounds, so a number is computed once.
fn dropped_count(before: usize, after: usize) -> Option<Dropped> {
    static KNOWN: Mutex<BTreeMap<(usize, usize), Option<Dropped>>> = Mutex::new(BTreeMap::new());
    *KNOWN.lock().entry((before, after)).or_insert_with(|| count_dropped(before, after))
}

fn count_dropped(before: usize, after: usize) -> Option<Dropped> {
    let mann_whitney_counts = mann_whitney_counts(before, after);
    let all: f64 = mann_whitney_counts.iter().sum();
    let mut below = 0.0;
    let mut dropped = None;
    for (at, count) in mann_whitney_counts.iter().enumerate() {
        below += count / all;
        if 2.0 * below > 1.0 - CONFIDENCE + 1e-9 {
            break;
        }
        dropped = Some((at, 1.0 - 2.0 * below));
    }
    dropped
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
    use crate::report::tests as testing;

    /// Returns the report with every latency of a target multiplied by a factor.
    fn slower(target: &str, factor: f64) -> Report {
        let mut report = testing::report();
        for row in report.sections.iter_mut().flat_map(|section| &mut section.rows) {
            if row.target == target && row.operations > 0 {
                let x = row.x;
                let median = row.latency.quantile(0.5) * factor;
                *row = testing::row(target, &row.case, row.connections, median, 9);
                row.x = x;
            }
        }
        report
    }

    #[test]
    fn only_a_slower_target_is_reported() {
        let comparison = Comparison::new(&testing::report(), &slower("journaled", 2.0));
        assert!(comparison.missing.is_empty() && comparison.new.is_empty());
        for (_, pair, difference) in comparison.all() {
            let rate = difference.metric == Metric::RATE && pair.target == "journaled";
            if rate || difference.metric == Metric::P50 && pair.target == "journaled" {
                assert_eq!(difference.verdict(), Verdict::Worse, "{}", difference.describe());
            } else if pair.target != "journaled" {
                assert_eq!(difference.verdict(), Verdict::Unsure, "{}", difference.describe());
            }
        }
    }

    #[test]
    fn rows_of_one_report_alone_are_listed_with_the_reason() {
        let mut after = testing::report();
        after.sections[0].rows[1] = Row::new("none", "insert", 1);
        after.sections[0].rows[1].note = Some("it was down".to_string());
        after.sections.truncate(2);
        let comparison = Comparison::new(&testing::report(), &after);
        assert_eq!(comparison.missing[0], "Single inserts, insert, 1 connection, none: it was down");
        assert_eq!(comparison.missing.len(), 1 + 3 * 7);
        assert!(comparison.missing[1].contains("insert at 2,000"), "{:?}", comparison.missing);
        assert!(comparison.new.is_empty());
    }

    #[test]
    fn too_few_rounds_say_so() {
        let mut after = slower("memory", 3.0);
        after.sections[0].rows[0].rounds.truncate(1);
        let comparison = Comparison::new(&testing::report(), &after);
        let difference = comparison.sections[0].pairs[0].difference(Metric::RATE).unwrap();
        assert_eq!(difference.verdict(), Verdict::Unsure);
        assert!(difference.describe().contains("too few rounds"), "{}", difference.describe());
    }
}

#[cfg(test)]
mod statistics_tests {
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
