//! Small parts of the sentences that experiments make of their figures.

use crate::report::figures;
use crate::result::{Round, Row, Section};

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

/// The fewest rounds whose difference is sure by 90 %, as `compare` has it.
const SURE_ROUNDS: usize = 3;

/// How far a difference between two rows can be believed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Apart {
    /// Rounds of one lie among those of the other.
    No,
    /// They don't, but there are so few of them.
    Perhaps(usize),
    /// They don't, and there are enough of them.
    Sure,
}

/// Whether every round of one row had less than every round of the other.
pub(super) fn apart(less: &Row, more: &Row, value: impl Fn(&Round) -> f64) -> Apart {
    let of = |row: &Row| row.rounds.iter().map(&value).collect::<Vec<f64>>();
    let (less, more) = (of(less), of(more));
    let rounds = less.len().min(more.len());
    match more.iter().all(|more| less.iter().all(|less| less < more)) {
        false => Apart::No,
        true if rounds < SURE_ROUNDS => Apart::Perhaps(rounds),
        true => Apart::Sure,
    }
}

impl Apart {
    /// What has to be said behind a difference.
    pub(super) fn caveat(self) -> String {
        match self {
            Apart::Perhaps(rounds) => {
                format!("; by {}, too few to be sure", figures::plural(rounds as u64, "round"))
            }
            Apart::No | Apart::Sure => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::Summary;

    fn row(medians: &[f64]) -> Row {
        let mut row = Row::new("a", "b", 1);
        let round = |p50: &f64| Round {
            operations: 1,
            seconds: 1.0,
            latency: Summary { p50: *p50, ..Summary::default() },
            cpu_microseconds: None,
            shortened: false,
        };
        row.rounds = medians.iter().map(round).collect();
        row
    }

    #[test]
    fn a_difference_is_sure_from_three_rounds_on() {
        let of = |less: &[f64], more: &[f64]| apart(&row(less), &row(more), |round| round.latency.p50);
        assert_eq!(of(&[1.0], &[2.0]), Apart::Perhaps(1));
        assert_eq!(of(&[1.0, 1.1, 1.2], &[2.0, 2.1]), Apart::Perhaps(2));
        assert_eq!(of(&[1.0, 1.1, 1.2], &[2.0, 2.1, 2.2]), Apart::Sure);
        assert_eq!(of(&[1.0, 1.1, 2.05], &[2.0, 2.1, 2.2]), Apart::No);
        assert_eq!(of(&[1.0], &[1.0]), Apart::No);
        assert_eq!(Apart::Perhaps(1).caveat(), "; by 1 round, too few to be sure");
        assert_eq!(Apart::Sure.caveat(), "");
    }
}
