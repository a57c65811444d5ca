//! Small parts of the sentences that experiments make of their figures.

use crate::result::{Row, Section};

/// The targets of a section that have figures, in order; without the one that ratios are told
/// against if it is the floor, whose figures say nothing about a database.
pub(super) fn targets(section: &Section) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for row in section.rows.iter().filter(|row| row.operations > 0 && row.target != "floor") {
        if !names.contains(&row.target.as_str()) {
            names.push(&row.target);
        }
    }
    names
}

/// The 99th percentile in microseconds, of a row that has figures.
pub(super) fn p99(row: &Row) -> Option<f64> {
    (row.operations > 0).then(|| row.latency.quantile(0.99))
}
