//! What was observed, as rows of the lab's report.

use crate::histogram::Latencies;
use crate::result::{Kind, Round, Row, Section};
use replay::{Exchange, Observation, Script};
use std::collections::BTreeMap;
use std::time::Duration;

/// The name under which the recorded server's own times stand beside the targets'.
pub(super) const RECORDED: &str = "recorded";

/// The figure of differences that an order explains which the recording doesn't tell.
const DEPENDING: &str = "depend on an order";

/// Shapes that have a row of their own; the others share one.
const SHAPES_MAX: usize = 16;
const OTHERS: &str = "all others";
const EVERYTHING: &str = "everything";

/// How exchanges are counted together: a section each.
pub(super) struct Grouping {
    sections: [Vec<String>; 3],
    /// For each exchange, its group in each section.
    groups: Vec<[usize; 3]>,
    /// For each, whether its answer depends on an order that the recording doesn't tell.
    overlaps: Vec<bool>,
    connections: u32,
}

/// What one round on one target came to.
struct Sum {
    latency: Latencies,
    failures: u64,
    first_error: Option<String>,
    late: u64,
    errors: u64,
    answers: u64,
    /// Either, of requests that overlapped.
    depending: u64,
}

impl Default for Sum {
    fn default() -> Sum {
        Sum {
            latency: Latencies::new(),
            failures: 0,
            first_error: None,
            late: 0,
            errors: 0,
            answers: 0,
            depending: 0,
        }
    }
}

/// One round's circumstances.
#[derive(Clone, Copy)]
pub(super) struct Around {
    pub(super) took: Duration,
    pub(super) cpu: Option<Duration>,
    pub(super) resident_bytes: Option<u64>,
    /// Whether it was ended before everything was sent.
    pub(super) cut: bool,
    /// Whether outcomes were compared, and answers.
    pub(super) judged: bool,
    pub(super) check: bool,
}

impl Grouping {
    pub(super) fn of(script: &Script) -> Grouping {
        let commands =
            names(script.exchanges.iter().map(|exchange| (exchange.command.as_str(), time_of(exchange))));
        let mut shapes =
            names(script.exchanges.iter().map(|exchange| (exchange.shape.as_str(), time_of(exchange))));
        if shapes.len() > SHAPES_MAX + 1 {
            shapes.truncate(SHAPES_MAX);
            shapes.push(OTHERS.to_string());
        }
        let place = |names: &[String], name: &str| {
            names.iter().position(|known| known == name).unwrap_or_else(|| names.len().saturating_sub(1))
        };
        let groups = script.exchanges.iter();
        let groups =
            groups.map(|each| [0, place(&commands, &each.command), place(&shapes, &each.shape)]).collect();
        let overlaps = script.exchanges.iter().map(|exchange| exchange.overlaps).collect();
        let connections = script.connections.len() as u32;
        Grouping { sections: [vec![EVERYTHING.to_string()], commands, shapes], groups, overlaps, connections }
    }

    /// The sections, with no rows yet.
    pub(super) fn sections() -> Vec<Section> {
        let section = |id: &str, title: &str, about: &str| Section {
            id: id.to_string(),
            experiment: String::new(),
            title: title.to_string(),
            about: about.to_string(),
            kind: Kind::Bars,
            base: Some(RECORDED.to_string()),
            rows: Vec::new(),
        };
        vec![
            section(
                "all",
                "Everything",
                "An operation is one recorded request, timed from sending it until its answer is there. Rates at a given \
                 pace are that pace.",
            ),
            section(
                "commands",
                "By command",
                "The same requests by command, those that took the longest in all first.",
            ),
            section(
                "shapes",
                "By shape",
                "The same requests by what they look like without their values, those that took the longest in all \
                 first.",
            ),
        ]
    }

    /// Adds rows for a target, or a round to those that are there.
    pub(super) fn add(
        &self,
        sections: &mut [Section],
        target: &str,
        observations: &[Observation],
        around: Around,
    ) {
        for (at, section) in sections.iter_mut().enumerate().take(3) {
            let mut sums: BTreeMap<usize, Sum> = BTreeMap::new();
            for observation in observations {
                let Some(groups) = self.groups.get(observation.exchange) else { continue };
                let overlaps = self.overlaps.get(observation.exchange).copied().unwrap_or(false);
                sums.entry(groups[at]).or_default().count(observation, overlaps);
            }
            for (group, name) in self.sections[at].iter().enumerate() {
                let row = row(section, target, name, self.connections);
                sums.remove(&group).unwrap_or_default().add_to(row, around, at == 0);
            }
        }
    }

    /// Adds the times that the recorded server took.
    pub(super) fn add_recorded(&self, sections: &mut [Section], script: &Script) {
        let mut observations = Vec::new();
        let exchanges = script.connections.iter().flat_map(|connection| &connection.exchanges);
        for &exchange in exchanges {
            observations.push(Observation {
                exchange,
                latency: Duration::from_micros(time_of(&script.exchanges[exchange]).max(1)),
                late: false,
                result: Ok(()),
                error_differs: None,
                answer_differs: None,
            });
        }
        let took = Duration::from_micros(script.length.max(1));
        let around =
            Around { took, cpu: None, resident_bytes: None, cut: false, judged: false, check: false };
        self.add(sections, RECORDED, &observations, around);
    }
}

/// How long an answer took, microseconds.
fn time_of(exchange: &Exchange) -> u64 {
    exchange.ended().saturating_sub(exchange.at)
}

/// Each name once, those with the most time first.
fn names<'a>(each: impl Iterator<Item = (&'a str, u64)>) -> Vec<String> {
    let mut times: BTreeMap<&str, u64> = BTreeMap::new();
    each.for_each(|(name, time)| *times.entry(name).or_default() += time);
    let mut names: Vec<(&str, u64)> = times.into_iter().collect();
    names.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
    names.into_iter().map(|(name, _)| name.to_string()).collect()
}

fn row<'a>(section: &'a mut Section, target: &str, case: &str, connections: u32) -> &'a mut Row {
    let found = section.rows.iter().position(|row| row.target == target && row.case == case);
    let at = found.unwrap_or_else(|| {
        section.rows.push(Row::new(target, case, connections));
        section.rows.len() - 1
    });
    &mut section.rows[at]
}

impl Sum {
    fn count(&mut self, observation: &Observation, overlaps: bool) {
        match &observation.result {
            Ok(()) => self.latency.record(observation.latency),
            Err(why) => {
                self.failures += 1;
                self.first_error.get_or_insert_with(|| why.clone());
            }
        }
        self.late += u64::from(observation.late);
        let errors = u64::from(observation.error_differs.is_some());
        let answers = u64::from(observation.answer_differs.is_some());
        if overlaps {
            self.depending += errors + answers;
        } else {
            self.errors += errors;
            self.answers += answers;
        }
    }

    fn add_to(self, row: &mut Row, around: Around, whole: bool) {
        let operations = self.latency.count();
        if operations == 0 && self.failures == 0 {
            row.note.get_or_insert_with(|| "not measured: it was ended before".to_string());
            return;
        }
        let seconds = around.took.as_secs_f64();
        let per_operation = |cpu: Duration| cpu.as_secs_f64() * 1e6 / operations.max(1) as f64;
        // The server's time can't be told apart by request.
        let cpu = around.cpu.filter(|_| whole).map(per_operation);
        row.operations += operations;
        row.failures += self.failures;
        row.first_error = row.first_error.take().or(self.first_error);
        row.late += self.late;
        row.seconds += seconds;
        row.latency.merge(&self.latency);
        row.rounds.push(Round {
            operations,
            seconds,
            latency: self.latency.summary(),
            cpu_microseconds: cpu,
            shortened: around.cut,
        });
        row.cpu_microseconds = cpu.or(row.cpu_microseconds);
        row.resident_bytes = around.resident_bytes.filter(|_| whole).or(row.resident_bytes);
        if around.judged {
            *row.extra.entry("errors differ".to_string()).or_default() += self.errors as f64;
        }
        if around.check {
            *row.extra.entry("answers differ".to_string()).or_default() += self.answers as f64;
        }
        if self.depending != 0 {
            *row.extra.entry(DEPENDING.to_string()).or_default() += self.depending as f64;
        }
        if around.cut {
            row.partial = true;
            row.note.get_or_insert_with(|| "the run was ended early".to_string());
        }
    }
}
