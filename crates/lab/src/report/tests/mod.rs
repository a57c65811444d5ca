//! A report with all cases that an output may meet: stalls, notes, refusals, partial rows, every kind of section, and
//! text that looks like markup.

use crate::histogram::Latencies;
use crate::result::{
    DurabilityGuarantee, FORMAT, Fingerprint, Kind, Report, Round, Row, Section, TargetInfo, TimelineStep,
};
use std::sync::OnceLock;
use std::time::Duration;

/// Reproducible pseudo-random numbers.
struct Rng(u64);

impl Rng {
    /// Returns a number from 0 up to 1, excluded.
    fn roll(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a latency from a distribution with this median and a long tail.
    fn latency(&mut self, median: f64) -> f64 {
        let tail = (1.0 - self.roll()).powf(-0.35);
        median * (0.72 + 0.12 * self.roll()) * tail
    }
}

fn target(name: &str, server: &str, promise: DurabilityGuarantee, sync: Option<f64>) -> TargetInfo {
    let fingerprint = Fingerprint {
        server: server.to_string(),
        engine: if promise == DurabilityGuarantee::Memory { "memory" } else { "disk" }.to_string(),
        promise,
        details: vec![("writeConcern".to_string(), "w 1, j false".to_string())],
        sync_microseconds: sync,
    };
    TargetInfo { name: name.to_string(), uri: "mongodb://127.0.0.1:27017/".to_string(), fingerprint }
}

/// Adds one round to a row: `seconds` of time with as many operations as fit.
fn round(row: &mut Row, median: f64, seconds: f64, rng: &mut Rng) {
    let mut latency = Latencies::default();
    let operations = (seconds * 1e6 / median * f64::from(row.connections)).min(600.0) as u64;
    let drift = 0.94 + 0.12 * rng.roll();
    for _ in 0..operations {
        latency.record(Duration::from_nanos((rng.latency(median * drift) * 1000.0) as u64));
    }
    let seconds = operations as f64 * median * drift / 1e6 / f64::from(row.connections);
    let cpu = Some(median * 0.4 * drift);
    row.latency.merge(&latency);
    let (latency, shortened) = (latency.summary(), false);
    row.rounds.push(Round { operations, seconds, latency, cpu_microseconds: cpu, shortened });
    row.operations += operations;
    row.seconds += seconds;
    row.cpu_microseconds = cpu;
    row.resident_bytes = Some(64_000_000);
}

/// Returns a row of three rounds around a median latency in microseconds.
pub(crate) fn row(target: &str, case: &str, connections: u32, median: f64, seed: u64) -> Row {
    let mut row = Row::new(target, case, connections);
    let mut rng = Rng(seed * 77 + median as u64);
    for _ in 0..3 {
        round(&mut row, median, 1.0, &mut rng);
    }
    for step in 0..40 {
        let p50 = median * (0.9 + 0.2 * rng.roll());
        let (at, seconds, operations) = (f64::from(step) * 0.25, 0.25, 500);
        let (p99, max) = (p50 * 2.5, p50 * 4.0);
        row.timeline.push(TimelineStep { at, seconds, operations, p50, p99, max });
    }
    row
}

fn section(id: &str, title: &str, kind: Kind, base: Option<&str>, rows: Vec<Row>) -> Section {
    let about = "An operation is one insert_one of a document of 200 bytes.".to_string();
    Section {
        id: id.to_string(),
        experiment: String::new(),
        title: title.to_string(),
        about,
        kind,
        base: base.map(str::to_string),
        rows,
    }
}

const NAMES: [(&str, f64); 5] =
    [("memory", 70.0), ("none", 95.0), ("relaxed", 110.0), ("journaled", 1400.0), ("null-server", 45.0)];

fn inserts() -> Section {
    let mut rows = Vec::new();
    for (connections, slower) in [(1, 1.0), (8, 2.4)] {
        for (name, median) in NAMES {
            rows.push(row(name, "insert", connections, median * slower, u64::from(connections)));
        }
        let mut refused = Row::new("<b>peer & co</b>", "insert", connections);
        refused.note = Some("refused: 'insert' with code 13 <script>alert(1)</script>".to_string());
        rows.push(refused);
    }
    if let Some(stalled) = rows[3].timeline.get_mut(17) {
        (stalled.max, stalled.p99, stalled.operations) = (1_200_000.0, 900_000.0, 2);
    }
    rows[2].partial = true;
    rows[2].note = Some("the server closed the connection after 2 rounds".to_string());
    section("inserts", "Single inserts", Kind::Bars, Some("memory"), rows)
}

fn growth() -> Section {
    let mut rows = Vec::new();
    for block in 1..=8_u32 {
        for (name, median) in NAMES {
            let growing = if name == "journaled" { 1.0 + 0.5 * f64::from(block) } else { 1.0 };
            let mut row = row(name, &format!("create, block {block}"), 8, median * growing, block.into());
            row.x = Some(f64::from(block) * 1000.0);
            row.timeline.clear();
            row.extra.insert("storage MB".to_string(), f64::from(block) * median / 40.0);
            rows.push(row);
        }
    }
    section("creates", "Creates as the data grows", Kind::Growth, Some("memory"), rows)
}

fn rates() -> Section {
    let mut rows = Vec::new();
    for (name, median) in NAMES.into_iter().take(3) {
        for step in 1..=7_u32 {
            let offered = f64::from(step) * 2000.0;
            let full = offered * median / 1e6;
            let slow = median * (1.0 + 1.0 / (1.15 - full).max(0.02));
            let mut row = row(name, "insert", 4, slow, step.into());
            row.x = Some(offered);
            row.timeline.clear();
            row.seconds = row.operations as f64 / offered.min(900_000.0 / median);
            row.service = Some(row.latency.clone());
            row.late = u64::from(step) * 3;
            rows.push(row);
        }
    }
    section("rates", "Latency against throughput", Kind::Rates, None, rows)
}

/// Returns the report.
pub(crate) fn report() -> Report {
    static REPORT: OnceLock<Report> = OnceLock::new();
    REPORT.get_or_init(make).clone()
}

fn make() -> Report {
    Report {
        format: FORMAT,
        id: "20261120-141500-abcd".to_string(),
        experiment: "inserts".to_string(),
        title: "Single inserts".to_string(),
        about: "Cost of one insert at each durability level, on one connection and on eight.".to_string(),
        started: "2026-11-20T14:15:00Z".to_string(),
        seconds: 83.2,
        command: "vellum lab inserts --seed 42 --target '<b>peer & co</b>=mongodb://h/'".to_string(),
        seed: 42,
        scale: 1.0,
        environment: vec![
            ("processors".to_string(), "2 × Some CPU @ 2.60GHz".to_string()),
            ("memory".to_string(), "7.7 GB".to_string()),
            ("kernel".to_string(), "Linux 6.1.0".to_string()),
            ("file system".to_string(), "ext4 on /dev/vda1".to_string()),
        ],
        targets: vec![
            target("memory", "Vellum 0.1.0", DurabilityGuarantee::Memory, None),
            target("none", "Vellum 0.1.0", DurabilityGuarantee::Process, Some(811.0)),
            target("relaxed", "Vellum 0.1.0", DurabilityGuarantee::Interval, Some(805.0)),
            target("journaled", "Vellum 0.1.0", DurabilityGuarantee::Journaled, Some(820.0)),
            target("null-server", "null server", DurabilityGuarantee::Nothing, None),
            target("<b>peer & co</b>", "Peer \"9\"", DurabilityGuarantee::Unknown, None),
        ],
        sections: vec![inserts(), growth(), rates()],
        parts: Vec::new(),
        warnings: vec!["the lab itself was busy for 96 % of its time".to_string()],
        errors: vec!["target <b>peer & co</b>: not authorised".to_string()],
    }
}
