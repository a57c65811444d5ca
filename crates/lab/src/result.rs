//! The result of a run: one model, filled by experiments and read by every output (table, HTML, Markdown, JSON,
//! `compare`). JSON is its serialized form. A new figure is a field of [`Row`] and a column in `report/grid.rs`.

use crate::histogram::{Latencies, Summary};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Version of the JSON. It is raised when a reader of the older version would misread the newer one.
pub(crate) const FORMAT: u32 = 1;

/// One run of one experiment.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Report {
    /// Version of this model, [`FORMAT`].
    pub(crate) format: u32,
    /// Id of the run; also part of the name of its database.
    pub(crate) id: String,
    /// Name of the experiment, as on the command line.
    pub(crate) experiment: String,
    /// Title and description of the experiment.
    pub(crate) title: String,
    pub(crate) about: String,
    /// Start time, RFC 3339.
    pub(crate) started: String,
    /// Duration in seconds.
    pub(crate) seconds: f64,
    /// The command that repeats the run, with its seed.
    pub(crate) command: String,
    pub(crate) seed: u64,
    /// Multiplier of the experiment's own sizes.
    #[serde(default = "one")]
    pub(crate) scale: f64,
    /// The machine: kernel, processors, memory, file system, as name and value.
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) targets: Vec<TargetInfo>,
    /// Tables in the order of their measurement.
    pub(crate) sections: Vec<Section>,
    /// The experiments of a report with several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) parts: Vec<Part>,
    /// Reasons to doubt figures.
    pub(crate) warnings: Vec<String>,
    /// Errors. Earlier figures are kept.
    pub(crate) errors: Vec<String>,
}

/// An experiment. In a report with several, its sections have its name.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Part {
    /// Name of the experiment, as on the command line.
    pub(crate) experiment: String,
    pub(crate) title: String,
    pub(crate) about: String,
}

impl Part {
    pub(crate) fn new(experiment: &str, title: impl Into<String>, about: impl Into<String>) -> Part {
        Part { experiment: experiment.to_string(), title: title.into(), about: about.into() }
    }
}

fn one() -> f64 {
    1.0
}

/// Scale below which a run is a functional test only, and its speed means nothing.
const SMOKE: f64 = 0.2;

impl Report {
    /// Returns a warning if the run is too small to measure anything.
    pub(crate) fn smoke_test(&self) -> Option<String> {
        (self.scale < SMOKE).then(|| {
            format!(
                "This is a smoke test (--scale {}): its figures say nothing about performance.",
                self.scale
            )
        })
    }
}

/// A target and its durability guarantees.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct TargetInfo {
    pub(crate) name: String,
    /// Connection string without user and password.
    pub(crate) uri: String,
    pub(crate) fingerprint: Fingerprint,
}

/// The reported and measured properties of a target, taken before the experiment.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Fingerprint {
    /// "Vellum 0.1.0", "MongoDB 4.2.0", "PostgreSQL 15.18", "null server".
    pub(crate) server: String,
    pub(crate) engine: String,
    /// Durability of an acknowledged write by default, for comparison between targets.
    pub(crate) promise: DurabilityGuarantee,
    /// Evidence for the durability, and further settings: name and value.
    pub(crate) details: Vec<(String, String)>,
    /// Median time of fdatasync after a small append in the data directory, in microseconds; `None` if the lab cannot
    /// access the directory.
    pub(crate) sync_microseconds: Option<f64>,
}

/// Durability of an acknowledged write.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum DurabilityGuarantee {
    /// Unknown.
    #[default]
    Unknown,
    /// The target stores nothing (the null server).
    Nothing,
    /// Lost at the end of the process.
    Memory,
    /// Survives the end of the process or of the machine only after a delay: the journal is written later, or only
    /// checkpoints are.
    Delayed,
    /// Survives the end of the process. The end of the machine may lose any age of write.
    Process,
    /// Survives the end of the process, and the end of the machine after a delay.
    Interval,
    /// Survives the end of the machine.
    Journaled,
}

impl DurabilityGuarantee {
    /// Returns a short name for tables.
    pub(crate) fn label(self) -> &'static str {
        self.describe().0
    }

    /// Returns the loss that the target does not exclude.
    pub(crate) fn possible_loss(self) -> &'static str {
        self.describe().1
    }

    fn describe(self) -> (&'static str, &'static str) {
        match self {
            DurabilityGuarantee::Unknown => ("unknown", "not reported"),
            DurabilityGuarantee::Nothing => ("stores nothing", "all writes"),
            DurabilityGuarantee::Memory => ("in memory", "all writes at the end of the process"),
            DurabilityGuarantee::Delayed => {
                ("journaled later", "the latest writes in a crash of the process or of the machine")
            }
            DurabilityGuarantee::Process => {
                ("survives a process crash", "any write in a crash of the machine")
            }
            DurabilityGuarantee::Interval => {
                ("survives a machine crash after a delay", "the latest writes in a crash of the machine")
            }
            DurabilityGuarantee::Journaled => ("survives a machine crash", "none in a crash"),
        }
    }
}

/// Comparable figures: one table and one group of charts.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Section {
    /// Short id without spaces, unique in the report.
    pub(crate) id: String,
    /// Name of its experiment, in a report with several.
    #[serde(default)]
    pub(crate) experiment: String,
    pub(crate) title: String,
    /// Description of an operation in this section.
    pub(crate) about: String,
    pub(crate) kind: Kind,
    /// Name of the target that ratios refer to.
    pub(crate) base: Option<String>,
    pub(crate) rows: Vec<Row>,
}

/// Preferred presentation of a section.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// Cases side by side: bars with ratios, percentile curves.
    #[default]
    Bars,
    /// Cases in order of a number, [`Row::x`]: lines (blocks of an error tracker, sizes of a collection).
    Growth,
    /// Offered rates and their latency: [`Row::x`] is the rate.
    Rates,
    /// Cases of few, long operations: their duration.
    Times,
    /// As `Bars`, with cases named "ROW, COLUMN": all cases of a target side by side on one scale.
    Matrix,
}

/// One case on one target, merged over its rounds. The rounds are kept too.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Row {
    pub(crate) target: String,
    /// Name of the case: "w 1, j true", "focus 10 %"; equal for all targets.
    pub(crate) case: String,
    /// Position of the case in a [`Kind::Growth`] or [`Kind::Rates`] section.
    pub(crate) x: Option<f64>,
    pub(crate) connections: u32,
    /// Reason for a missing or partial measurement: the target refused it, cannot do it, or acknowledged an impossible
    /// write.
    pub(crate) note: Option<String>,
    /// True if the measurement was cut short but has figures.
    pub(crate) partial: bool,
    /// Numbers of operations that succeeded and failed.
    pub(crate) operations: u64,
    pub(crate) failures: u64,
    /// Error of the first failure.
    #[serde(default)]
    pub(crate) first_error: Option<String>,
    /// Total time of all rounds in seconds.
    pub(crate) seconds: f64,
    /// Latency of each operation, from its intended start if a rate was given.
    pub(crate) latency: Latencies,
    /// With a rate: latency from the actual start.
    pub(crate) service: Option<Latencies>,
    /// With a rate: number of operations that began more than a millisecond late.
    pub(crate) late: u64,
    /// The single rounds, for the spread of ratios.
    pub(crate) rounds: Vec<Round>,
    /// Each second (or shorter step) of the last round.
    pub(crate) timeline: Vec<TimelineStep>,
    /// Processor time of the server per operation in microseconds, if it runs on this machine.
    pub(crate) cpu_microseconds: Option<f64>,
    /// Resident memory of the server at the end in bytes, if it runs on this machine.
    pub(crate) resident_bytes: Option<u64>,
    /// Further figures by name with unit: "storage MB", "cache hits %".
    pub(crate) extra: BTreeMap<String, f64>,
}

/// One round of a row.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Round {
    pub(crate) operations: u64,
    pub(crate) seconds: f64,
    /// Latency of this round in microseconds.
    pub(crate) latency: Summary,
    pub(crate) cpu_microseconds: Option<f64>,
    /// True if the round ended early, or fell too far behind its schedule.
    #[serde(default)]
    pub(crate) shortened: bool,
}

/// A step of a timeline.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct TimelineStep {
    /// Seconds since the start of the round.
    pub(crate) at: f64,
    /// Length of the step in seconds.
    pub(crate) seconds: f64,
    pub(crate) operations: u64,
    /// Median in microseconds.
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

impl Row {
    /// Creates an empty row.
    pub(crate) fn new(target: &str, case: &str, connections: u32) -> Row {
        Row { target: target.to_string(), case: case.to_string(), connections, ..Row::default() }
    }

    /// Adds a round: the latencies, and the processor time of the server for all operations.
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

    /// Returns true if any round was shortened.
    pub(crate) fn is_shortened(&self) -> bool {
        self.partial || self.rounds.iter().any(|round| round.shortened)
    }

    /// Returns the operations per second over all rounds; zero without rounds.
    pub(crate) fn rate(&self) -> f64 {
        self.totals().rate()
    }

    /// Returns all rounds merged into one.
    pub(crate) fn totals(&self) -> Round {
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
    /// Returns the operations per second.
    pub(crate) fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.operations as f64 / self.seconds } else { 0.0 }
    }
}

/// Relative speed of two targets, with the spread over rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ratio {
    /// Ratio over all rounds.
    pub(crate) value: f64,
    /// Smallest and largest ratio of a single round.
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Section {
    /// Returns the row of a target and a case.
    pub(crate) fn row(&self, target: &str, case: &str, connections: u32) -> Option<&Row> {
        self.rows
            .iter()
            .find(|row| row.target == target && row.case == case && row.connections == connections)
    }

    /// Returns a row's rate as a multiple of the base target's rate in the same case. Rounds are compared pairwise,
    /// since they were interleaved. `None` without a base or its figures.
    pub(crate) fn rate_ratio(&self, row: &Row) -> Option<Ratio> {
        let base = self.row(self.base.as_deref()?, &row.case, row.connections)?;
        let value = quotient(row.rate(), base.rate())?;
        let pairs = row.rounds.iter().zip(&base.rounds);
        let mut each: Vec<f64> =
            pairs.filter_map(|(round, base_round)| quotient(round.rate(), base_round.rate())).collect();
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
        Section {
            id,
            experiment,
            title,
            about,
            kind: Kind::Bars,
            base: Some("null-server".to_string()),
            rows,
        }
    }

    #[test]
    fn ratios_carry_the_spread_of_paired_rounds() {
        let section =
            section(vec![row("null-server", &[(100, 1.0), (100, 3.0)]), row("a", &[(200, 1.0), (50, 3.0)])]);
        let ratio = section.rate_ratio(&section.rows[1]).unwrap();
        assert_eq!(ratio, Ratio { value: 1.25, low: 0.5, high: 2.0 });
    }

    #[test]
    fn nothing_measured_has_no_ratio() {
        let section = section(vec![row("null-server", &[(100, 1.0)]), row("a", &[])]);
        assert_eq!(section.rate_ratio(&section.rows[1]), None);
    }
}
