//! A section as a table of text, for the terminal, Markdown and the page.
//!
//! Columns without any value are omitted.
//!
//! The module also groups the rows of a section and finds the null server. Tables and charts share these functions and
//! therefore their groups and names.
//!
//! A new column is a row of [`columns`].

use super::figures;
use crate::result::{DurabilityGuarantee, Kind, Ratio, Report, Row, Section};
use std::collections::BTreeSet;

/// Text for "not measured".
pub(crate) const NOTHING: &str = "–";

/// A table whose first two columns are the case and the target.
pub(crate) struct Grid {
    /// Headings of the columns after case and target.
    pub(crate) heads: Vec<String>,
    pub(crate) lines: Vec<Line>,
    /// Notes, referred to by number from 1.
    pub(crate) notes: Vec<String>,
}

/// A row of the table.
pub(crate) struct Line {
    pub(crate) case: String,
    /// True for the first line of its case, the only line that needs the name of the case.
    pub(crate) starts_case: bool,
    pub(crate) target: String,
    /// One cell for each of [`Grid::heads`].
    pub(crate) cells: Vec<String>,
    /// Number of its note, from 1.
    pub(crate) note: Option<usize>,
}

/// Amount of detail in a row.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Detail {
    /// The figures that readers compare.
    Brief,
    /// All figures.
    Full,
}

/// A column: its heading, and its text for a row, which may be empty.
struct Column<'a> {
    head: String,
    cell: Box<dyn Fn(&Row) -> String + 'a>,
}

impl Line {
    /// Returns the target with the number of its note.
    pub(crate) fn name(&self) -> String {
        let note = self.note.map(|note| format!(" [{note}]")).unwrap_or_default();
        format!("{}{note}", self.target)
    }
}

impl Grid {
    /// Creates a table without lines.
    pub(crate) fn new(heads: impl Iterator<Item = String>) -> Grid {
        Grid { heads: heads.collect(), lines: Vec::new(), notes: Vec::new() }
    }

    /// Adds a line.
    pub(crate) fn push(&mut self, case: String, target: String, cells: Vec<String>, note: Option<usize>) {
        let starts_case = self.lines.last().is_none_or(|last| last.case != case);
        self.lines.push(Line { case, starts_case, target, cells, note });
    }

    /// Creates the table of a section.
    pub(crate) fn of_section(report: &Report, section: &Section, detail: Detail) -> Grid {
        let mut columns = columns(section, baseline(report), detail);
        columns.retain(|column| {
            section.rows.iter().any(|row| row.operations > 0 && !(column.cell)(row).is_empty())
        });
        let mut grid = Grid::new(columns.iter().map(|column| column.head.clone()));
        for group in groups(section) {
            for row in &group.rows {
                let cell = |column: &Column| match (column.cell)(row) {
                    text if text.is_empty() || row.operations == 0 => NOTHING.to_string(),
                    text => text,
                };
                let note = grid.note(row, noise(report, section, row));
                let cells = columns.iter().map(cell).collect();
                grid.push(group.label.clone(), marked(report, section, row), cells, note);
            }
        }
        grid
    }

    /// Returns the number of the row's note. Equal notes are listed once.
    fn note(&mut self, row: &Row, noise: Option<&str>) -> Option<usize> {
        let text = match (&row.note, row.partial) {
            (Some(note), true) => format!("partial: {note}"),
            (Some(note), false) => note.clone(),
            (None, true) => "partial: the measurement was stopped early".to_string(),
            (None, false) if row.is_shortened() => {
                "shortened: the run fell behind its schedule, and later operations were never sent"
                    .to_string()
            }
            (None, false) => format!("noise: faster than {}, which is less durable", noise?),
        };
        if let Some(at) = self.notes.iter().position(|known| *known == text) {
            return Some(at + 1);
        }
        self.notes.push(text);
        Some(self.notes.len())
    }
}

fn column<'a>(head: impl Into<String>, cell: impl Fn(&Row) -> String + 'a) -> Column<'a> {
    Column { head: head.into(), cell: Box::new(cell) }
}

/// Returns a column whose value only some rows have.
fn some<'a, T: 'a>(
    head: impl Into<String>,
    value: impl Fn(&Row) -> Option<T> + 'a,
    text: fn(T) -> String,
) -> Column<'a> {
    column(head, move |row| value(row).map(text).unwrap_or_default())
}

/// Returns the selected columns, with or without values.
fn columns<'a>(section: &'a Section, baseline: Option<&'a str>, detail: Detail) -> Vec<Column<'a>> {
    let (full, rates) = (detail == Detail::Full, section.kind == Kind::Rates);
    let percentile =
        |head: &str, share| column(head, move |row| figures::latency(row.latency.quantile(share)));
    let service = |head: &str, share| {
        some(head, move |row| Some(row.service.as_ref()?.quantile(share)), figures::latency)
    };
    let base = section.base.as_deref().unwrap_or_default();
    let ratio = move |row: &Row| section.rate_ratio(row).filter(|_| row.target != base);
    let over = move |row: &Row| over_baseline(section, row, baseline);
    let not_zero = |number: u64| (number > 0).then_some(number);
    let all = [
        (rates, some("offered/s", |row| row.x, figures::number)),
        (full, column("operations", |row| figures::count(row.operations))),
        (full, column("seconds", |row| figures::number(row.seconds))),
        (full, column("rounds", |row| row.rounds.len().to_string())),
        (true, column("ops/s", |row| figures::number(row.rate()))),
        (full, column("min", |row| figures::latency(row.latency.summary().min))),
        (true, percentile("p50", 0.5)),
        (full, percentile("p90", 0.9)),
        (true, percentile("p95", 0.95)),
        (true, percentile("p99", 0.99)),
        (full, percentile("p99.9", 0.999)),
        (true, column("max", |row| figures::latency(row.latency.summary().max))),
        (!rates, some(format!("rate ÷ {base}"), ratio, ratio_text)),
        (true, some(format!("p50 ÷ {}", baseline.unwrap_or_default()), over, figures::times)),
        (true, some("CPU/op", |row| row.cpu_microseconds, figures::latency)),
        (true, some("memory", |row| row.resident_bytes, figures::bytes)),
        (true, some("failed", move |row| not_zero(row.failures), figures::count)),
        (true, service("service p50", 0.5)),
        (true, service("service p99", 0.99)),
        (true, some("late", move |row| not_zero(row.late), figures::count)),
    ];
    let names: BTreeSet<_> = section.rows.iter().flat_map(|row| row.extra.keys()).collect();
    let extra = |name: &'a String| some(name, move |row| row.extra.get(name).copied(), figures::number);
    let shown = all.into_iter().filter(|(is_shown, _)| *is_shown).map(|(_, column)| column);
    shown.chain(names.into_iter().map(extra)).collect()
}

/// Formats "0.43× (0.41–0.45)", without parentheses if all rounds agree.
pub(crate) fn ratio_text(ratio: Ratio) -> String {
    let value = figures::times(ratio.value);
    let (low, high) = (figures::number(ratio.low), figures::number(ratio.high));
    if low == high { value } else { format!("{value} ({low}–{high})") }
}

/// One case on one number of connections, with a row for each target.
pub(crate) struct Group<'a> {
    /// The case. Includes the connections if the section has several numbers of them.
    pub(crate) label: String,
    pub(crate) rows: Vec<&'a Row>,
}

/// Returns the groups of a section in the order of measurement.
pub(crate) fn groups(section: &Section) -> Vec<Group<'_>> {
    let mut groups: Vec<Group> = Vec::new();
    for row in &section.rows {
        let label = label(section, row);
        match groups.iter_mut().find(|group| group.label == label) {
            Some(group) => group.rows.push(row),
            None => groups.push(Group { label, rows: vec![row] }),
        }
    }
    groups
}

/// Mark after the name of a target whose measurement was cut short.
const SHORTENED: &str = "†";

/// Mark after the name of a target whose figures contradict another target's.
const NOISY: &str = "~";

/// Returns the target of a row, with marks if its figures are doubtful.
pub(crate) fn marked(report: &Report, section: &Section, row: &Row) -> String {
    let shortened = row.is_shortened().then_some(SHORTENED);
    let noisy = noise(report, section, row).map(|_| NOISY);
    [Some(row.target.as_str()), shortened, noisy].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// Returns the name of a row without its target.
pub(crate) fn label(section: &Section, row: &Row) -> String {
    let side_by_side = section.rows.iter().any(|other| other.connections != row.connections);
    match side_by_side {
        true => format!("{}, {}", row.case, figures::plural(row.connections.into(), "connection")),
        false => row.case.clone(),
    }
}

/// Returns the name of the null server, if the run had one.
pub(crate) fn baseline(report: &Report) -> Option<&str> {
    let is_null_server = |promise| promise == DurabilityGuarantee::Nothing;
    report.targets.iter().find(|target| is_null_server(target.fingerprint.promise)).map(|t| t.name.as_str())
}

/// Returns a row's median as a multiple of the null server's: the cost of the server relative to client and kernel.
/// `None` for the null server itself, and if either has no figures.
pub(crate) fn over_baseline(section: &Section, row: &Row, baseline: Option<&str>) -> Option<f64> {
    let baseline = baseline.filter(|name| *name != row.target)?;
    let baseline = section.row(baseline, &row.case, row.connections)?;
    let (p50, base_p50) = (row.latency.quantile(0.5), baseline.latency.quantile(0.5));
    (row.latency.count() > 0 && base_p50 > 0.0).then(|| p50 / base_p50)
}

/// Returns the target that a row contradicts. That target is of the same server, is less durable, and is slower in
/// every round. The machine was then busy during one of the measurements.
pub(crate) fn noise<'a>(report: &'a Report, section: &Section, row: &Row) -> Option<&'a str> {
    let info = |name: &str| report.targets.iter().find(|target| target.name == name);
    let own = &info(&row.target)?.fingerprint;
    let same = section.rows.iter().filter(|other| {
        (&other.case, other.connections, other.x) == (&row.case, row.connections, row.x)
            && other.operations > 0
    });
    let contradicts = |other: &&Row| {
        let Some(print) = info(&other.target).map(|info| &info.fingerprint) else { return false };
        let (rounds, other_rounds) = (row.rounds.iter(), other.rounds.iter());
        let slowest = rounds.map(|round| round.rate()).fold(f64::INFINITY, f64::min);
        let fastest = other_rounds.map(|round| round.rate()).fold(0.0, f64::max);
        let is_weaker =
            (DurabilityGuarantee::Memory..own.promise).contains(&print.promise) && print.server == own.server;
        is_weaker && row.operations > 0 && slowest > fastest * NOISE
    };
    let found = same.into_iter().find(contradicts)?;
    info(&found.target).map(|info| info.name.as_str())
}

/// A more durable target may be faster by this factor by chance.
const NOISE: f64 = 1.1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests as testing;

    fn grid(section: usize, detail: Detail) -> Grid {
        {
            let report = testing::report();
            Grid::of_section(&report, &report.sections[section], detail)
        }
    }

    fn cell<'a>(grid: &'a Grid, line: usize, head: &str) -> &'a str {
        &grid.lines[line].cells[grid.heads.iter().position(|known| known == head).unwrap()]
    }

    #[test]
    fn empty_columns_are_omitted() {
        let grid = grid(0, Detail::Brief);
        assert!(!grid.heads.iter().any(|head| head == "late" || head == "failed"), "{:?}", grid.heads);
        assert!(grid.lines.iter().all(|line| line.cells.len() == grid.heads.len()));
    }

    #[test]
    fn the_base_and_the_null_server_are_not_compared_with_themselves() {
        let grid = grid(0, Detail::Brief);
        assert_eq!(cell(&grid, 0, "rate ÷ memory"), NOTHING);
        assert!(cell(&grid, 3, "rate ÷ memory").starts_with("0.0"), "{}", cell(&grid, 3, "rate ÷ memory"));
        assert_eq!(cell(&grid, 4, "p50 ÷ null-server"), NOTHING);
        assert!(cell(&grid, 3, "p50 ÷ null-server").ends_with('×'));
    }

    #[test]
    fn a_note_of_many_rows_is_listed_once() {
        let grid = grid(0, Detail::Brief);
        assert_eq!(grid.notes.len(), 2);
        assert!(grid.notes[0].starts_with("partial: the server closed"), "{:?}", grid.notes);
        assert_eq!((grid.lines[5].note, grid.lines[11].note), (Some(2), Some(2)));
        assert!(grid.lines[5].cells.iter().all(|cell| cell == NOTHING));
    }

    #[test]
    fn all_that_was_measured_is_there_in_full() {
        let heads = grid(2, Detail::Full).heads;
        for head in ["offered/s", "operations", "min", "p99.9", "max", "service p99", "late"] {
            assert!(heads.iter().any(|known| known == head), "{head} in {heads:?}");
        }
        assert!(grid(1, Detail::Full).heads.iter().any(|head| head == "storage MB"));
    }
}

#[cfg(test)]
mod groups_tests {
    use super::*;
    use crate::report::tests as testing;

    #[test]
    fn connections_are_named_where_they_differ() {
        let report = testing::report();
        let labels: Vec<_> = groups(&report.sections[0]).into_iter().map(|group| group.label).collect();
        assert_eq!(labels, ["insert, 1 connection", "insert, 8 connections"]);
        let labels: Vec<_> = groups(&report.sections[1]).into_iter().map(|group| group.label).collect();
        assert_eq!(labels[0], "create, block 1");
    }

    #[test]
    fn the_null_server_is_the_baseline_of_other_targets() {
        let report = testing::report();
        let section = &report.sections[0];
        assert_eq!(baseline(&report), Some("null-server"));
        let of =
            |target| over_baseline(section, section.row(target, "insert", 1).unwrap(), baseline(&report));
        assert_eq!(of("null-server"), None);
        assert!(of("memory").unwrap() > 1.0);
    }

    #[test]
    fn a_target_that_keeps_more_and_is_faster_is_noise() {
        let mut report = testing::report();
        let of = |report: &Report, at: usize| {
            let section = &report.sections[0];
            noise(report, section, &section.rows[at]).map(str::to_string)
        };
        assert_eq!((of(&report, 0), of(&report, 3)), (None, None));
        report.sections[0].rows[3] = testing::row("journaled", "insert", 1, 40.0, 3);
        assert_eq!(of(&report, 3).as_deref(), Some("memory"));
        let section = &report.sections[0];
        assert_eq!(marked(&report, section, &section.rows[3]), "journaled ~");
        // With a slow round the contradiction is not certain.
        report.sections[0].rows[3].rounds[0].seconds *= 9.0;
        assert_eq!(of(&report, 3), None);
    }
}
