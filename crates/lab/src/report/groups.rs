//! Which rows of a section belong beside one another, and which target is the floor.
//!
//! Tables and charts go through here, so that they group and name alike.

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

/// What stands behind the name of a target whose figures are of less than was asked.
const SHORTENED: &str = "†";

/// What stands behind the name of a target whose figures contradict another's.
const NOISY: &str = "~";

/// The target of a row, with marks behind it if its figures are doubtful.
pub(crate) fn marked(report: &Report, section: &Section, row: &Row) -> String {
    let shortened = row.is_shortened().then_some(SHORTENED);
    let noisy = noise(report, section, row).map(|_| NOISY);
    [Some(row.target.as_str()), shortened, noisy].into_iter().flatten().collect::<Vec<_>>().join(" ")
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

/// The target that a row contradicts: one of the same server that keeps less when the machine fails, and yet is slower in
/// every round. The machine was busy with something else in either.
pub(crate) fn noise<'a>(report: &'a Report, section: &Section, row: &Row) -> Option<&'a str> {
    let info = |name: &str| report.targets.iter().find(|target| target.name == name);
    let own = &info(&row.target)?.fingerprint;
    let same = section.rows.iter().filter(|other| {
        (&other.case, other.connections, other.x) == (&row.case, row.connections, row.x)
            && other.operations > 0
    });
    let contradicts = |other: &&Row| {
        let Some(print) = info(&other.target).map(|info| &info.fingerprint) else { return false };
        let (mine, theirs) = (row.rounds.iter(), other.rounds.iter());
        let slowest = mine.map(|round| round.rate()).fold(f64::INFINITY, f64::min);
        let fastest = theirs.map(|round| round.rate()).fold(0.0, f64::max);
        let kept = (Promise::Memory..own.promise).contains(&print.promise) && print.server == own.server;
        kept && row.operations > 0 && slowest > fastest * NOISE
    };
    let found = same.into_iter().find(contradicts)?;
    info(&found.target).map(|info| info.name.as_str())
}

/// A target that keeps more may be so much faster by chance.
const NOISE: f64 = 1.1;

#[cfg(test)]
mod tests {
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
    fn the_floor_is_the_unit_of_the_others() {
        let report = testing::report();
        let section = &report.sections[0];
        assert_eq!(floor(&report), Some("floor"));
        let of = |target| over_floor(section, section.row(target, "insert", 1).unwrap(), floor(&report));
        assert_eq!(of("floor"), None);
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
        // A slow round among them leaves it open.
        report.sections[0].rows[3].rounds[0].seconds *= 9.0;
        assert_eq!(of(&report, 3), None);
    }
}
