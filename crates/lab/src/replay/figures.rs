//! What was observed, as rows of the lab's report.

use crate::histogram::Latencies;
use crate::result::{Kind, Round, Row, Section};
use replay::{Grouping, Observation, Tally};
use std::time::Duration;

/// The name under which the recorded server's own times stand beside the targets'.
pub(super) const RECORDED: &str = "recorded";

/// One round's circumstances.
#[derive(Clone, Copy, Default)]
pub(super) struct Around {
    pub(super) connections: u32,
    pub(super) took: Duration,
    pub(super) cpu: Option<Duration>,
    pub(super) resident_bytes: Option<u64>,
    /// Whether it was ended before everything was sent.
    pub(super) cut: bool,
    /// Whether outcomes were compared, and answers.
    pub(super) judged: bool,
    pub(super) check: bool,
}

/// The sections, with no rows yet.
pub(super) fn sections() -> Vec<Section> {
    let sections = [
        (
            "all",
            "Everything",
            "An operation is one recorded request, timed from sending it until its answer is there. Rates at a given pace are \
             that pace.",
        ),
        ("commands", "By command", "The same requests by command, those that took the longest in all first."),
        (
            "shapes",
            "By shape",
            "The same requests by what they look like without their values, those that took the longest in all first.",
        ),
    ];
    let section = |(id, title, about): (&str, &str, &str)| Section {
        id: id.to_string(),
        experiment: String::new(),
        title: title.to_string(),
        about: about.to_string(),
        kind: Kind::Bars,
        base: Some(RECORDED.to_string()),
        rows: Vec::new(),
    };
    sections.map(section).into()
}

/// Adds rows for a target, or a round to those that are there.
pub(super) fn add(
    sections: &mut [Section],
    grouping: &Grouping,
    target: &str,
    observations: &[Observation],
    around: Around,
) {
    for (way, section) in sections.iter_mut().enumerate().take(3) {
        for (name, tally) in grouping.names[way].iter().zip(grouping.count(way, observations)) {
            let found = section.rows.iter().position(|row| row.target == target && row.case == *name);
            let at = found.unwrap_or_else(|| {
                section.rows.push(Row::new(target, name, around.connections));
                section.rows.len() - 1
            });
            add_to(&mut section.rows[at], tally, around, way == 0);
        }
    }
}

fn add_to(row: &mut Row, tally: Tally, around: Around, whole: bool) {
    let mut latency = Latencies::new();
    tally.latencies.iter().for_each(|each| latency.record(*each));
    let operations = latency.count();
    if operations == 0 && tally.failures == 0 {
        row.note.get_or_insert_with(|| "not measured: it was ended before".to_string());
        return;
    }
    let seconds = around.took.as_secs_f64();
    // The server's time can't be told apart by request.
    let cpu = around.cpu.filter(|_| whole).map(|cpu| cpu.as_secs_f64() * 1e6 / operations.max(1) as f64);
    row.failures += tally.failures;
    row.first_error = row.first_error.take().or(tally.first_error);
    row.late += tally.late;
    row.add(
        &latency,
        Round {
            operations,
            seconds,
            latency: latency.summary(),
            cpu_microseconds: cpu,
            shortened: around.cut,
        },
    );
    row.resident_bytes = around.resident_bytes.filter(|_| whole).or(row.resident_bytes);
    for (name, number, shown) in [
        ("errors differ", tally.errors, around.judged),
        ("answers differ", tally.answers, around.check),
        // Differences that an order explains which the recording doesn't tell.
        ("depend on an order", tally.depending, tally.depending != 0),
    ] {
        if shown {
            *row.extra.entry(name.to_string()).or_default() += number as f64;
        }
    }
    if around.cut {
        row.partial = true;
        row.note.get_or_insert_with(|| "the run was ended early".to_string());
    }
}
