//! Which rows of a section belong beside one another, and which target is the floor.
//!
//! Tables, charts and sentences all go through here, so that they group and name alike.

use super::figures;
use crate::result::{Promise, Report, Row, Section};

/// One case on one number of connections: a row for each target.
pub(crate) struct Group<'a> {
    /// The case, and the connections where the section has several numbers of them.
    pub(crate) label: String,
    pub(crate) rows: Vec<&'a Row>,
}

/// The groups of a section, in the order in which they were measured.
pub(crate) fn groups(section: &Section) -> Vec<Group<'_>> {
    let mut found: Vec<Group> = Vec::new();
    for row in &section.rows {
        let label = label(section, row);
        match found.iter_mut().find(|group| group.label == label) {
            Some(group) => group.rows.push(row),
            None => found.push(Group { label, rows: vec![row] }),
        }
    }
    found
}

/// The target of a row, with a mark behind it if its figures are of less than was asked.
pub(crate) fn marked(row: &Row) -> String {
    if row.is_shortened() { format!("{} {}", row.target, super::SHORTENED) } else { row.target.clone() }
}

/// What a row is about, without its target.
pub(crate) fn label(section: &Section, row: &Row) -> String {
    let several = section.rows.iter().any(|other| other.connections != row.connections);
    match several {
        true => format!("{}, {}", row.case, figures::plural(row.connections.into(), "connection")),
        false => row.case.clone(),
    }
}

/// The name of the target that only answers, if the run had one.
pub(crate) fn floor(report: &Report) -> Option<&str> {
    let is_floor = |promise| promise == Promise::Nothing;
    report.targets.iter().find(|target| is_floor(target.fingerprint.promise)).map(|t| t.name.as_str())
}

/// How many times as long as the floor's median a row's is: what the server adds to what client
/// and kernel cost. `None` for the floor itself and where either has no figures.
pub(crate) fn over_floor(section: &Section, row: &Row, floor: Option<&str>) -> Option<f64> {
    let floor = floor.filter(|name| *name != row.target)?;
    let floor = section.row(floor, &row.case, row.connections)?;
    let (mine, theirs) = (row.latency.quantile(0.5), floor.latency.quantile(0.5));
    (row.latency.count() > 0 && theirs > 0.0).then(|| mine / theirs)
}

/// The smallest and largest of what the rounds of a row had.
pub(crate) fn spread(row: &Row, of: impl Fn(&crate::result::Round) -> f64) -> Option<(f64, f64)> {
    let values: Vec<f64> = row.rounds.iter().map(of).collect();
    let low = values.iter().copied().min_by(f64::total_cmp)?;
    let high = values.iter().copied().max_by(f64::total_cmp)?;
    Some((low, high))
}

/// A line of a chart: a target's rows along [`Row::x`].
pub(crate) struct Series<'a> {
    pub(crate) target: &'a str,
    /// Rows with an x and figures, by x.
    pub(crate) rows: Vec<&'a Row>,
}

/// The charts of a section whose rows stand along a number: each with a caption and its lines.
///
/// Where a case is found at several x, each case is a chart; where each x is a case of its own
/// ("1,000 documents"), all are one.
pub(crate) fn along_x(section: &Section) -> Vec<(String, Vec<Series<'_>>)> {
    let recurring = section.rows.iter().any(|row| {
        section.rows.iter().any(|other| {
            (&other.target, &other.case, other.connections) == (&row.target, &row.case, row.connections)
                && other.x != row.x
        })
    });
    let caption = |row: &Row| match (recurring, section.rows.iter().any(|o| o.connections != row.connections))
    {
        (true, _) => label(section, row),
        (false, true) => figures::plural(row.connections.into(), "connection"),
        (false, false) => String::new(),
    };
    let mut charts: Vec<(String, Vec<Series>)> = Vec::new();
    for row in section.rows.iter().filter(|row| row.x.is_some() && row.operations > 0) {
        let caption = caption(row);
        let at = charts.iter().position(|(known, _)| *known == caption).unwrap_or_else(|| {
            charts.push((caption, Vec::new()));
            charts.len() - 1
        });
        let lines = &mut charts[at].1;
        match lines.iter_mut().find(|line| line.target == row.target) {
            Some(line) => line.rows.push(row),
            None => lines.push(Series { target: &row.target, rows: vec![row] }),
        }
    }
    for series in charts.iter_mut().flat_map(|(_, lines)| lines) {
        series.rows.sort_by(|a, b| a.x.unwrap_or(0.0).total_cmp(&b.x.unwrap_or(0.0)));
    }
    charts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing;

    #[test]
    fn connections_are_named_where_they_differ() {
        let report = testing::report();
        let labels: Vec<_> = groups(&report.sections[0]).into_iter().map(|group| group.label).collect();
        assert_eq!(labels, ["insert, 1 connection", "insert, 8 connections"]);
        let labels: Vec<_> = groups(&report.sections[1]).into_iter().map(|group| group.label).collect();
        assert_eq!(labels[0], "create, block 1");
    }

    #[test]
    fn the_floor_is_the_unit_of_the_others() {
        let report = testing::report();
        let section = &report.sections[0];
        assert_eq!(floor(&report), Some("floor"));
        let of = |target| over_floor(section, section.row(target, "insert", 1).unwrap(), floor(&report));
        assert_eq!(of("floor"), None);
        assert!(of("memory").unwrap() > 1.0);
    }

    #[test]
    fn cases_that_differ_in_x_alone_make_one_chart() {
        let report = testing::report();
        let charts = along_x(&report.sections[1]);
        assert_eq!(charts.len(), 1);
        let x: Vec<_> = charts[0].1[0].rows.iter().filter_map(|row| row.x).collect();
        assert!(x.len() > 3 && x.is_sorted(), "{x:?}");
    }
}
