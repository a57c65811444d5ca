//! Differences between two reports, row by row. Rows are matched by section, case, target, connections and position on
//! the axis.

use super::limit::Metric;
use super::statistics::Interval;
use crate::report::{figures, grid};
use crate::result::{Report, Row, Section};
use serde::Serialize;

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
    let mut found = Vec::new();
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
            found.push(format!("{}, {label}, {}{why}", section.title, row.target));
        }
    }
    found
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
