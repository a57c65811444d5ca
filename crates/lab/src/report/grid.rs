//! A section as a table of text: what the terminal, Markdown and the page show.
//!
//! Columns come by themselves: one that no row has anything for is left out.

use super::{figures, groups};
use crate::result::{Kind, Ratio, Report, Row, Section};
use std::collections::BTreeSet;

/// What stands for "not measured".
pub(crate) const NOTHING: &str = "–";

/// A table whose first two columns are the case and the target.
pub(crate) struct Grid {
    /// Headings of the columns after case and target.
    pub(crate) heads: Vec<String>,
    pub(crate) lines: Vec<Line>,
    /// Notes that lines refer to by number, from 1.
    pub(crate) notes: Vec<String>,
}

/// A row of the table.
pub(crate) struct Line {
    pub(crate) case: String,
    /// Whether it is the first line of its case, the only one that need name it.
    pub(crate) opens: bool,
    pub(crate) target: String,
    /// As many as [`Grid::heads`].
    pub(crate) cells: Vec<String>,
    /// The number of its note, from 1.
    pub(crate) note: Option<usize>,
}

/// How much of a row is wanted.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Detail {
    /// What a person compares by.
    Brief,
    /// All that was measured.
    Full,
}

/// A column: its heading and what it has of a row; empty where a row has nothing.
struct Column<'a> {
    head: String,
    cell: Box<dyn Fn(&Row) -> String + 'a>,
}

impl Grid {
    /// The table of a section.
    pub(crate) fn new(report: &Report, section: &Section, detail: Detail) -> Grid {
        let floor = groups::floor(report);
        let columns = columns(section, floor, detail);
        let used = columns.into_iter().filter(|column| {
            section.rows.iter().any(|row| row.operations > 0 && !(column.cell)(row).is_empty())
        });
        let columns: Vec<Column> = used.collect();
        let mut grid =
            Grid { heads: columns.iter().map(|c| c.head.clone()).collect(), lines: vec![], notes: vec![] };
        for group in groups::groups(section) {
            for (at, row) in group.rows.iter().enumerate() {
                let cell = |column: &Column| match (column.cell)(row) {
                    text if text.is_empty() || row.operations == 0 => NOTHING.to_string(),
                    text => text,
                };
                let line = Line {
                    case: group.label.clone(),
                    opens: at == 0,
                    target: groups::marked(report, section, row),
                    cells: columns.iter().map(cell).collect(),
                    note: grid.note(row, groups::noise(report, section, row)),
                };
                grid.lines.push(line);
            }
        }
        grid
    }

    /// The number of the row's note, which is listed once however many rows carry it.
    fn note(&mut self, row: &Row, noise: Option<&str>) -> Option<usize> {
        let text = match (&row.note, row.partial) {
            (Some(note), true) => format!("partial: {note}"),
            (Some(note), false) => note.clone(),
            (None, true) => "partial: the measurement was cut short".to_string(),
            (None, false) if row.is_shortened() => {
                "shortened: it fell so far behind its schedule that the rest was never sent".to_string()
            }
            (None, false) => format!("noise: faster than {}, which keeps less", noise?),
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

/// A column of what only some rows have.
fn some<'a, T: 'a>(
    head: impl Into<String>,
    value: impl Fn(&Row) -> Option<T> + 'a,
    text: fn(T) -> String,
) -> Column<'a> {
    column(head, move |row| value(row).map(text).unwrap_or_default())
}

/// Those that are wanted, whether rows have something for them or not.
fn columns<'a>(section: &'a Section, floor: Option<&'a str>, detail: Detail) -> Vec<Column<'a>> {
    let (full, rates) = (detail == Detail::Full, section.kind == Kind::Rates);
    let percentile =
        |head: &str, share| column(head, move |row| figures::latency(row.latency.quantile(share)));
    let service = |head: &str, share| {
        some(head, move |row| Some(row.service.as_ref()?.quantile(share)), figures::latency)
    };
    let base = section.base.as_deref().unwrap_or_default();
    let ratio = move |row: &Row| section.rate_ratio(row).filter(|_| row.target != base);
    let over = move |row: &Row| groups::over_floor(section, row, floor);
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
        (true, some(format!("p50 ÷ {}", floor.unwrap_or_default()), over, figures::times)),
        (true, some("CPU/op", |row| row.cpu_microseconds, figures::latency)),
        (true, some("memory", |row| row.resident_bytes, figures::bytes)),
        (true, some("failed", move |row| not_zero(row.failures), figures::count)),
        (true, service("service p50", 0.5)),
        (true, service("service p99", 0.99)),
        (true, some("late", move |row| not_zero(row.late), figures::count)),
    ];
    all.into_iter().filter(|(wanted, _)| *wanted).map(|(_, column)| column).chain(extras(section)).collect()
}

/// "0.43× (0.41–0.45)"; without the brackets where rounds didn't differ.
pub(crate) fn ratio_text(ratio: Ratio) -> String {
    let value = figures::times(ratio.value);
    let (low, high) = (figures::number(ratio.low), figures::number(ratio.high));
    if low == high { value } else { format!("{value} ({low}–{high})") }
}

fn extras<'a>(section: &Section) -> Vec<Column<'a>> {
    let names: BTreeSet<String> = section.rows.iter().flat_map(|row| row.extra.keys().cloned()).collect();
    let extra =
        |name: String| some(name.clone(), move |row: &Row| row.extra.get(&name).copied(), figures::number);
    names.into_iter().map(extra).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests as testing;

    fn grid(section: usize, detail: Detail) -> Grid {
        {
            let report = testing::report();
            Grid::new(&report, &report.sections[section], detail)
        }
    }

    fn cell<'a>(grid: &'a Grid, line: usize, head: &str) -> &'a str {
        &grid.lines[line].cells[grid.heads.iter().position(|known| known == head).unwrap()]
    }

    #[test]
    fn columns_nobody_has_anything_for_are_left_out() {
        let grid = grid(0, Detail::Brief);
        assert!(!grid.heads.iter().any(|head| head == "late" || head == "failed"), "{:?}", grid.heads);
        assert!(grid.lines.iter().all(|line| line.cells.len() == grid.heads.len()));
    }

    #[test]
    fn the_base_and_the_floor_are_not_compared_with_themselves() {
        let grid = grid(0, Detail::Brief);
        assert_eq!(cell(&grid, 0, "rate ÷ memory"), NOTHING);
        assert!(cell(&grid, 3, "rate ÷ memory").starts_with("0.0"), "{}", cell(&grid, 3, "rate ÷ memory"));
        assert_eq!(cell(&grid, 4, "p50 ÷ floor"), NOTHING);
        assert!(cell(&grid, 3, "p50 ÷ floor").ends_with('×'));
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
