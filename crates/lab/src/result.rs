//! What a run found: the one model that experiments fill and every output (table, HTML, Markdown,
//! JSON, `compare`) reads. JSON is this model as it stands.

use crate::histogram::{Latencies, Summary};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The version of the JSON; raised when a reader of the older one would misread the newer one.
pub(crate) const FORMAT: u32 = 1;

/// One run of one experiment.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Report {
    /// The version of this model, [`FORMAT`].
    pub(crate) format: u32,
    /// The run's id, which also names the database it worked in.
    pub(crate) id: String,
    /// The experiment's name, as on the command line.
    pub(crate) experiment: String,
    /// The experiment's title and what it is about, for people.
    pub(crate) title: String,
    pub(crate) about: String,
    /// When it began, RFC 3339.
    pub(crate) started: String,
    /// How long it took, seconds.
    pub(crate) seconds: f64,
    /// The command that replays it, with the seed.
    pub(crate) command: String,
    pub(crate) seed: u64,
    /// What the experiment's own sizes were multiplied by.
    #[serde(default = "one")]
    pub(crate) scale: f64,
    /// The machine: kernel, processors, memory, file system, as name and value.
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) targets: Vec<TargetInfo>,
    /// Tables, in the order they were measured.
    pub(crate) sections: Vec<Section>,
    /// Where it is of several experiments: what each is about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) parts: Vec<Part>,
    /// What a reader must know before believing a figure.
    pub(crate) warnings: Vec<String>,
    /// What went wrong; figures of before are kept.
    pub(crate) errors: Vec<String>,
}

/// One of several experiments of a report; its sections carry its name.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Part {
    /// Its name, as on the command line.
    pub(crate) experiment: String,
    pub(crate) title: String,
    pub(crate) about: String,
}

fn one() -> f64 {
    1.0
}

/// Below this scale a run shows that everything works, and not how fast it is.
const SMOKE: f64 = 0.2;

impl Report {
    /// What a reader of a run too small to measure anything must know, if it is one.
    pub(crate) fn smoke_test(&self) -> Option<String> {
        (self.scale < SMOKE).then(|| {
            format!(
                "This is a smoke test (--scale {}): its figures do not show how fast anything is.",
                self.scale
            )
        })
    }
}

/// A target, and what it promises.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct TargetInfo {
    pub(crate) name: String,
    /// Without user and password.
    pub(crate) uri: String,
    pub(crate) fingerprint: Fingerprint,
}

/// What a target says of itself, and what was probed, before anything is measured.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Fingerprint {
    /// "Vellum 0.1.0", "MongoDB 4.2.0", "PostgreSQL 15.18", "floor".
    pub(crate) server: String,
    pub(crate) engine: String,
    /// What an acknowledged write survives unless it asks for more, in the words that two targets
    /// are compared by.
    pub(crate) promise: Promise,
    /// Why the lab thinks so, and further settings: name and value.
    pub(crate) details: Vec<(String, String)>,
    /// Median of fdatasync after a small append where its data lies, microseconds; `None` if the
    /// lab can't see that place.
    pub(crate) sync_microseconds: Option<f64>,
}

/// What an acknowledged write survives.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Promise {
    /// Nothing can be said.
    #[default]
    Unknown,
    /// Nothing is stored at all (the floor).
    Nothing,
    /// Nothing: it is gone with the process.
    Memory,
    /// The end of the process, and that of the machine, each only after a while: what is journaled
    /// later, or checkpointed only, is gone with the process until then.
    Delayed,
    /// The end of the process, not that of the machine, however long ago it was.
    Process,
    /// The end of the process, and that of the machine after a while.
    Interval,
    /// The end of the machine.
    Journaled,
}

impl Promise {
    /// A short name for tables.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Promise::Unknown => "unknown",
            Promise::Nothing => "stores nothing",
            Promise::Memory => "in memory",
            Promise::Delayed => "journaled later",
            Promise::Process => "survives the process",
            Promise::Interval => "survives the machine, after a while",
            Promise::Journaled => "survives the machine",
        }
    }
}

/// Figures that are compared with one another: one table, one group of charts.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Section {
    /// A short id without spaces, unique within the report.
    pub(crate) id: String,
    /// The experiment that it is of, where a report has several.
    #[serde(default)]
    pub(crate) experiment: String,
    pub(crate) title: String,
    /// What an operation is here.
    pub(crate) about: String,
    pub(crate) kind: Kind,
    /// The target that ratios are told against; a target's name.
    pub(crate) base: Option<String>,
    pub(crate) rows: Vec<Row>,
}

/// How a section is best shown.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// Cases beside one another: bars with ratios, percentile curves.
    #[default]
    Bars,
    /// Cases in order along a number, [`Row::x`]: lines (blocks of an error tracker, sizes of a collection).
    Growth,
    /// Rates offered and the latency found: [`Row::x`] is the rate.
    Rates,
    /// Cases of few, long operations: how long one takes.
    Times,
    /// As `Bars`, with cases named "ROW, COLUMN": all of a target beside one another, in one scale.
    Matrix,
}

/// One target doing one thing: merged over the rounds, which are kept beside.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Row {
    pub(crate) target: String,
    /// What was done: "w 1, j true", "focus 10 %"; the same words for each target.
    pub(crate) case: String,
    /// The number this case stands for in a [`Kind::Growth`] or [`Kind::Rates`] section.
    pub(crate) x: Option<f64>,
    pub(crate) connections: u32,
    /// Why nothing was measured (a target refused it, can't do it, or claimed what it can't have
    /// done), or why what was measured is partial.
    pub(crate) note: Option<String>,
    /// Figures stand here, but the measurement was cut short.
    pub(crate) partial: bool,
    /// Operations that succeeded, and that failed.
    pub(crate) operations: u64,
    pub(crate) failures: u64,
    /// What the first failure was.
    #[serde(default)]
    pub(crate) first_error: Option<String>,
    /// The time all rounds took together, seconds.
    pub(crate) seconds: f64,
    /// Time of each operation: from its intended start where a rate was given.
    pub(crate) latency: Latencies,
    /// With a rate: time from the actual start.
    pub(crate) service: Option<Latencies>,
    /// With a rate: operations that began later than intended by more than a millisecond.
    pub(crate) late: u64,
    /// Each round by itself, for the spread of ratios.
    pub(crate) rounds: Vec<Round>,
    /// Each second (or shorter step) of the last round.
    pub(crate) timeline: Vec<Moment>,
    /// The server's processor time per operation, microseconds, where it runs on this machine.
    pub(crate) cpu_microseconds: Option<f64>,
    /// The server's resident memory at the end, bytes, where it runs on this machine.
    pub(crate) resident_bytes: Option<u64>,
    /// More figures, by name with unit: "storage MB", "cache hits %".
    pub(crate) extra: BTreeMap<String, f64>,
}

/// One round of a row.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Round {
    pub(crate) operations: u64,
    pub(crate) seconds: f64,
    /// Microseconds of operation, of this round alone.
    pub(crate) latency: Summary,
    pub(crate) cpu_microseconds: Option<f64>,
    /// It is of less than was asked: it was ended early, or fell too far behind its schedule.
    #[serde(default)]
    pub(crate) shortened: bool,
}

/// A step of a timeline.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Moment {
    /// Seconds since the round began.
    pub(crate) at: f64,
    /// How long this step is, seconds.
    pub(crate) seconds: f64,
    pub(crate) operations: u64,
    /// Microseconds.
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

impl Row {
    /// A row that nothing has been measured for yet.
    pub(crate) fn new(target: &str, case: &str, connections: u32) -> Row {
        Row { target: target.to_string(), case: case.to_string(), connections, ..Row::default() }
    }

    /// Adds a round: the time of each operation, and the server's processor time for all of them.
    pub(crate) fn add(&mut self, latency: &Latencies, seconds: f64, cpu: Option<Duration>, shortened: bool) {
        let operations = latency.count();
        let cpu_microseconds = cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / operations.max(1) as f64);
        self.operations += operations;
        self.seconds += seconds;
        self.latency.merge(latency);
        let latency = latency.summary();
        self.rounds.push(Round { operations, seconds, latency, cpu_microseconds, shortened });
        let each = self.rounds.iter().map(|round| Some(round.cpu_microseconds? * round.operations as f64));
        let all = each.sum::<Option<f64>>().filter(|_| self.operations > 0);
        self.cpu_microseconds = all.map(|all| all / self.operations as f64);
    }

    /// Whether its figures are of less than was asked.
    pub(crate) fn is_shortened(&self) -> bool {
        self.partial || self.rounds.iter().any(|round| round.shortened)
    }

    /// Operations per second, over all rounds; zero if there were none.
    pub(crate) fn rate(&self) -> f64 {
        self.whole().rate()
    }

    /// All rounds as if they were one.
    pub(crate) fn whole(&self) -> Round {
        Round {
            operations: self.operations,
            seconds: self.seconds,
            latency: self.latency.summary(),
            cpu_microseconds: self.cpu_microseconds,
            shortened: self.is_shortened(),
        }
    }
}

impl Round {
    /// Operations per second.
    pub(crate) fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.operations as f64 / self.seconds } else { 0.0 }
    }
}

/// How much faster or slower one target is than another, with the spread over rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ratio {
    /// Of all rounds together.
    pub(crate) value: f64,
    /// The smallest and the largest of any round's.
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Section {
    /// The row of a target and a case.
    pub(crate) fn row(&self, target: &str, case: &str, connections: u32) -> Option<&Row> {
        self.rows
            .iter()
            .find(|row| row.target == target && row.case == case && row.connections == connections)
    }

    /// A row's rate as a multiple of that of the section's base in the same case; rounds are
    /// compared pairwise, since they were interleaved. `None` without a base or its figures.
    pub(crate) fn rate_ratio(&self, row: &Row) -> Option<Ratio> {
        let base = self.row(self.base.as_deref()?, &row.case, row.connections)?;
        let value = quotient(row.rate(), base.rate())?;
        let pairs = row.rounds.iter().zip(&base.rounds);
        let mut each: Vec<f64> =
            pairs.filter_map(|(mine, theirs)| quotient(mine.rate(), theirs.rate())).collect();
        each.sort_by(f64::total_cmp);
        let low = each.first().copied().unwrap_or(value);
        Some(Ratio { value, low, high: each.last().copied().unwrap_or(value) })
    }
}

fn quotient(of: f64, by: f64) -> Option<f64> {
    (of > 0.0 && by > 0.0).then(|| of / by)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(target: &str, rounds: &[(u64, f64)]) -> Row {
        let mut row = Row::new(target, "insert", 1);
        for &(operations, seconds) in rounds {
            row.operations += operations;
            row.seconds += seconds;
            row.rounds.push(Round {
                operations,
                seconds,
                latency: Summary::default(),
                cpu_microseconds: None,
                shortened: false,
            });
        }
        row
    }

    fn section(rows: Vec<Row>) -> Section {
        let (id, title, about) = ("s".to_string(), String::new(), String::new());
        let experiment = String::new();
        Section { id, experiment, title, about, kind: Kind::Bars, base: Some("floor".to_string()), rows }
    }

    #[test]
    fn ratios_carry_the_spread_of_paired_rounds() {
        let section =
            section(vec![row("floor", &[(100, 1.0), (100, 3.0)]), row("a", &[(200, 1.0), (50, 3.0)])]);
        let ratio = section.rate_ratio(&section.rows[1]).unwrap();
        assert_eq!(ratio, Ratio { value: 1.25, low: 0.5, high: 2.0 });
    }

    #[test]
    fn nothing_measured_has_no_ratio() {
        let section = section(vec![row("floor", &[(100, 1.0)]), row("a", &[])]);
        assert_eq!(section.rate_ratio(&section.rows[1]), None);
    }
}
