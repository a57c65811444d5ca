//! Metrics as text: a screen for people, lines for a pipe.
//!
//! Contains the parser of servers' metrics and the differences between two samples. A missing
//! metric is `None`, never 0.
//!
//! A new column is a row of [`COLUMNS`] and a value in `View::cells`.

use base::bson::Document;
use std::collections::BTreeMap;
use std::time::Instant;

/// Columns of a line, each with its width.
const COLUMNS: [(&str, usize); 15] = [
    ("insert", 8),
    ("query", 8),
    ("update", 8),
    ("delete", 8),
    ("getmore", 8),
    ("command", 8),
    ("read", 8),
    ("write", 8),
    ("cmd", 8),
    ("active", 7),
    ("conn", 6),
    ("curs", 6),
    ("res", 7),
    ("in", 8),
    ("out", 8),
];

/// Maximum number of running operations with their own lines.
const RUNNING: usize = 5;

pub(super) struct Running {
    pub(super) seconds: f64,
    pub(super) description: String,
}

/// All values of one output.
pub(super) struct View<'a> {
    pub(super) host: &'a str,
    pub(super) sample: &'a Sample,
    pub(super) rates: &'a Rates,
    /// Running operations, longest first, or the reason why they are missing.
    pub(super) running: &'a Result<Vec<Running>, String>,
    /// Reason why times by collection are missing.
    pub(super) no_top: Option<&'a str>,
    pub(super) rows: usize,
}

/// Returns the headings of [`line`].
pub(super) fn head() -> String {
    COLUMNS.map(|(name, width)| format!("{name:>width$}")).concat()
}

impl View<'_> {
    fn active(&self) -> Option<f64> {
        self.running.as_ref().ok().map(|running| running.len() as f64)
    }

    fn cells(&self) -> [String; COLUMNS.len()] {
        let (sample, rates) = (self.sample, self.rates);
        let mut cells = std::array::from_fn(|_| String::new());
        let values = rates.operations.map(count).into_iter().chain(rates.latencies.map(time)).chain([
            count(self.active()),
            count(sample.connections),
            count(sample.cursors),
            size(sample.resident.map(|megabytes| megabytes * 1048576.0)),
            size(rates.network[0]),
            size(rates.network[1]),
        ]);
        for (cell, value) in cells.iter_mut().zip(values) {
            *cell = value;
        }
        cells
    }

    /// Returns a line, followed by the collections with the most time.
    pub(super) fn line(&self) -> String {
        let cells = self.cells();
        let mut line: String =
            COLUMNS.iter().zip(&cells).map(|((_, width), cell)| format!("{cell:>width$}")).collect();
        for namespace in self.rates.namespaces.iter().take(self.rows) {
            let [total, read, write] = namespace.millis.map(millis);
            line.push_str(&format!(
                "\n  {} {total} ms, reads {read}, writes {write}, {} operations a second",
                namespace.name,
                count(Some(namespace.operations))
            ));
        }
        if let (true, Some(why)) = (self.rows > 0, self.no_top) {
            line.push_str(&format!("\n  times by collection: {why}"));
        }
        line
    }

    /// Returns a screen of this size.
    pub(super) fn screen(&self, width: usize, height: usize) -> Vec<String> {
        let sample = self.sample;
        let cells = self.cells();
        let mut lines = Vec::new();
        let mut about = vec![self.host.to_string()];
        about.extend([&sample.version, &sample.engine].into_iter().filter(|word| !word.is_empty()).cloned());
        about.extend(sample.uptime.map(|seconds| format!("up {}", uptime(seconds))));
        lines.push(about.join(", "));
        lines.push(String::new());
        let mut group = |title: &str, names: &[&str], from: usize| {
            let column = |text: &str| format!("{text:>10}");
            lines.push(format!("{title:<12}{}", names.iter().map(|name| column(name)).collect::<String>()));
            let values = cells.iter().skip(from).take(names.len());
            lines.push(format!("{:<12}{}", "", values.map(|cell| column(cell)).collect::<String>()));
        };
        group("ops/s", &KINDS, 0);
        group("mean latency", &LATENCIES, KINDS.len());
        group(
            "now",
            &["active", "conn", "cursors", "resident", "net in/s", "net out/s"],
            KINDS.len() + LATENCIES.len(),
        );
        lines.push(String::new());
        let name_width = width.saturating_sub(42).clamp(20, 60);
        lines.push(format!(
            "{:<name_width$}{:>10}{:>10}{:>10}{:>10}",
            "collection, ms/s", "total", "read", "write", "ops"
        ));
        match self.no_top {
            Some(why) => lines.push(format!("  unavailable: {why}")),
            None if self.rates.namespaces.is_empty() => lines.push("  none in use".to_string()),
            None => {}
        }
        for namespace in self.rates.namespaces.iter().take(self.rows) {
            let [total, read, write] = namespace.millis.map(millis);
            let name: String = namespace.name.chars().take(name_width - 1).collect();
            let operations = count(Some(namespace.operations));
            lines.push(format!("{name:<name_width$}{total:>10}{read:>10}{write:>10}{operations:>10}"));
        }
        lines.push(String::new());
        match self.running {
            Ok(running) => {
                lines.push(format!("{:>8}  running for, operation", "seconds"));
                lines.extend(
                    running
                        .iter()
                        .take(RUNNING)
                        .map(|one| format!("{:>8.1}  {}", one.seconds, one.description)),
                );
            }
            Err(why) => lines.push(format!("running operations: unavailable: {why}")),
        }
        lines.truncate(height.saturating_sub(1));
        lines.push("q quits".to_string());
        lines.iter().map(|line| printable(line).chars().take(width).collect()).collect()
    }
}

/// Control characters in names and messages of a server must not move the cursor.
fn printable(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

fn count(value: Option<f64>) -> String {
    match value {
        None => "-".to_string(),
        Some(value) if value >= 1e6 => format!("{:.1}M", value / 1e6),
        Some(value) if value >= 1e5 => format!("{:.0}k", value / 1e3),
        Some(value) if value > 0.0 && value < 10.0 && value.fract() > 0.05 => format!("{value:.1}"),
        Some(value) => format!("{value:.0}"),
    }
}

/// Formats microseconds.
fn time(value: Option<f64>) -> String {
    match value {
        None => "-".to_string(),
        Some(value) if value >= 1e6 => format!("{:.1}s", value / 1e6),
        Some(value) if value >= 1e3 => format!("{:.1}ms", value / 1e3),
        Some(value) => format!("{value:.0}us"),
    }
}

fn millis(value: f64) -> String {
    format!("{value:.1}")
}

fn size(value: Option<f64>) -> String {
    match value {
        None => "-".to_string(),
        Some(value) if value >= 1e9 => format!("{:.1}G", value / 1e9),
        Some(value) if value >= 1e6 => format!("{:.0}M", value / 1e6),
        Some(value) if value >= 1e3 => format!("{:.0}k", value / 1e3),
        Some(value) => format!("{value:.0}"),
    }
}

fn uptime(seconds: f64) -> String {
    let minutes = (seconds / 60.0) as u64;
    match minutes {
        0 => format!("{seconds:.0} s"),
        1..120 => format!("{minutes} min"),
        120..2880 => format!("{} h", minutes / 60),
        _ => format!("{} days", minutes / 1440),
    }
}

/// Kinds of operations in `opcounters`.
pub(super) const KINDS: [&str; 6] = ["insert", "query", "update", "delete", "getmore", "command"];
/// Kinds of operations in `opLatencies`.
pub(super) const LATENCIES: [&str; 3] = ["reads", "writes", "commands"];
/// Parts of `top` for each collection.
const LOCKS: [&str; 3] = ["total", "readLock", "writeLock"];

/// Microseconds and operations.
type TimeAndCount = (f64, f64);

/// Metrics of a server at one time.
#[derive(Debug, Clone)]
pub(super) struct Sample {
    at: Instant,
    operations: [Option<f64>; KINDS.len()],
    latencies: [Option<TimeAndCount>; LATENCIES.len()],
    network: [Option<f64>; 2],
    pub(super) connections: Option<f64>,
    pub(super) cursors: Option<f64>,
    /// Resident memory in megabytes.
    pub(super) resident: Option<f64>,
    pub(super) uptime: Option<f64>,
    pub(super) version: String,
    pub(super) engine: String,
    namespaces: BTreeMap<String, [TimeAndCount; LOCKS.len()]>,
}

/// Changes between two samples for each second.
#[derive(Debug, Clone)]
pub(super) struct Rates {
    pub(super) operations: [Option<f64>; KINDS.len()],
    /// Average duration in microseconds; `None` without operations.
    pub(super) latencies: [Option<f64>; LATENCIES.len()],
    /// Bytes in and out.
    pub(super) network: [Option<f64>; 2],
    /// Time by collection, busiest first.
    pub(super) namespaces: Vec<Namespace>,
}

/// Time of a collection in each second.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Namespace {
    pub(super) name: String,
    /// Milliseconds in total, for reads, for writes.
    pub(super) millis: [f64; LOCKS.len()],
    pub(super) operations: f64,
}

/// Returns the number at a path of field names.
fn number(document: Document<'_>, path: &[&str]) -> Option<f64> {
    let (last, way) = path.split_last()?;
    let mut inner = document;
    for name in way {
        inner = inner.get(name)?.as_document()?;
    }
    inner.get(last)?.as_number().map(|number| number.to_f64())
}

impl Sample {
    /// Parses `serverStatus` and, if available, `top`.
    pub(super) fn read(status: Document<'_>, top: Option<Document<'_>>, at: Instant) -> Sample {
        let spent = |document: Document<'_>, name: &str, sum: &str, count: &str| {
            Some((number(document, &[name, sum])?, number(document, &[name, count])?))
        };
        let latencies = status.get("opLatencies").and_then(|value| value.as_document());
        let mut namespaces = BTreeMap::new();
        let totals = top.and_then(|top| top.get("totals")?.as_document());
        for element in totals.into_iter().flat_map(|totals| totals.iter()) {
            if let Some(of) = element.value().as_document() {
                let sums = LOCKS.map(|lock| spent(of, lock, "time", "count").unwrap_or_default());
                namespaces.insert(element.name().to_string(), sums);
            }
        }
        let text = |value: Option<&str>| value.unwrap_or_default().to_string();
        let engine = status.get("storageEngine").and_then(|engine| engine.as_document());
        Sample {
            at,
            operations: KINDS.map(|kind| number(status, &["opcounters", kind])),
            latencies: LATENCIES.map(|kind| spent(latencies?, kind, "latency", "ops")),
            network: ["bytesIn", "bytesOut"].map(|way| number(status, &["network", way])),
            connections: number(status, &["connections", "current"]),
            cursors: number(status, &["metrics", "cursor", "open", "total"]),
            resident: number(status, &["mem", "resident"]),
            uptime: number(status, &["uptime"]),
            version: text(status.get("version").and_then(|version| version.as_str())),
            engine: text(engine.and_then(|engine| engine.get("name")).and_then(|name| name.as_str())),
            namespaces,
        }
    }

    /// Returns the changes since an earlier sample.
    pub(super) fn since(&self, before: &Sample) -> Rates {
        let seconds = self.at.duration_since(before.at).as_secs_f64().max(1e-3);
        // A lower counter means that the server has restarted.
        let rate = |now: Option<f64>, then: Option<f64>| Some((now? - then?).max(0.0) / seconds);
        let rates = |now: &[Option<f64>], then: &[Option<f64>], at: usize| {
            rate(now.get(at).copied().flatten(), then.get(at).copied().flatten())
        };
        let latency = |at: usize| {
            let (now, then) = ((*self.latencies.get(at)?)?, (*before.latencies.get(at)?)?);
            let count = now.1 - then.1;
            (count > 0.0).then(|| (now.0 - then.0).max(0.0) / count)
        };
        let mut namespaces: Vec<Namespace> = Vec::new();
        for (name, now) in &self.namespaces {
            let then = before.namespaces.get(name).copied().unwrap_or_default();
            let mut millis = [0.0; LOCKS.len()];
            for ((sum, now), then) in millis.iter_mut().zip(now).zip(&then) {
                *sum = (now.0 - then.0).max(0.0) / seconds / 1000.0;
            }
            let operations = (now[0].1 - then[0].1).max(0.0) / seconds;
            if operations > 0.0 {
                namespaces.push(Namespace { name: name.clone(), millis, operations });
            }
        }
        namespaces.sort_by(|a, b| b.millis[0].total_cmp(&a.millis[0]).then_with(|| a.name.cmp(&b.name)));
        Rates {
            operations: std::array::from_fn(|at| rates(&self.operations, &before.operations, at)),
            latencies: std::array::from_fn(latency),
            network: std::array::from_fn(|at| rates(&self.network, &before.network, at)),
            namespaces,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::bson::extended_json::parse;
    use std::time::{Duration, Instant};

    #[test]
    fn a_screen_fits_and_nothing_in_it_moves_the_cursor() {
        let start = Instant::now();
        let status =
            parse("{version: '8.0', uptime: 90, opcounters: {insert: 5, query: 7}, mem: {resident: 12}}")
                .unwrap();
        let top = |time: i32| {
            parse(&format!("{{totals: {{'a.\\u001b[2Jb': {{total: {{time: {time}, count: {time}}}}}}}}}"))
                .unwrap()
        };
        let (early, late) = (top(0), top(9000));
        let before = Sample::read(status.view(), Some(early.view()), start);
        let sample = Sample::read(status.view(), Some(late.view()), start + Duration::from_secs(1));
        let rates = sample.since(&before);
        let running = Ok(vec![Running { seconds: 2.5, description: "find a.b".to_string() }]);
        let view =
            View { host: "h:1", sample: &sample, rates: &rates, running: &running, no_top: None, rows: 5 };
        let screen = view.screen(80, 24);
        assert!(screen.len() <= 24 && screen.iter().all(|line| line.chars().count() <= 80));
        let text = screen.join("\n");
        assert!(!text.contains('\u{1b}') && text.contains("a.?[2Jb") && text.contains("find a.b"), "{text}");
        assert!(text.contains("h:1, 8.0, up 1 min") && text.contains("9.0"), "{text}");
        assert_eq!(view.screen(30, 8).len(), 8);
        assert_eq!(
            head().split_whitespace().count(),
            view.line().lines().next().unwrap().split_whitespace().count()
        );
        let refused =
            View { no_top: Some("no such command: 'top'"), running: &Err("no".to_string()), ..view };
        assert!(refused.screen(80, 24).join("\n").contains("no such command: 'top'"));
        assert!(refused.line().contains("no such command"));
    }
}

#[cfg(test)]
mod figures_tests {
    use super::*;
    use base::bson::extended_json::parse;
    use std::time::Duration;

    #[test]
    fn rates_are_per_second_and_missing_counters_are_none() {
        let start = Instant::now();
        let status = |insert: i32, micros: i32, count: i32| {
            parse(&format!(
                "{{version: '8', opcounters: {{insert: {insert}}}, connections: {{current: 3}},
                  opLatencies: {{writes: {{latency: {micros}, ops: {count}}}}}}}"
            ))
            .unwrap()
        };
        let top = |micros: i32, count: i32| {
            let sum = format!("{{time: {micros}, count: {count}}}");
            parse(&format!(
                "{{totals: {{note: 'all times in microseconds', 'a.b': {{total: {sum}, writeLock: {sum}}},
                  'a.idle': {{total: {{time: 5, count: 5}}}}}}}}"
            ))
            .unwrap()
        };
        let (first, second) = (status(10, 100, 1), status(30, 500, 5));
        let (early, late) = (top(1000, 2), top(9000, 6));
        let before = Sample::read(first.view(), Some(early.view()), start);
        let now = Sample::read(second.view(), Some(late.view()), start + Duration::from_secs(2));
        let rates = now.since(&before);
        assert_eq!(rates.operations[..2], [Some(10.0), None]);
        assert_eq!(rates.latencies, [None, Some(100.0), None]);
        assert_eq!((rates.network, now.connections, now.cursors), ([None, None], Some(3.0), None));
        let busy = Namespace { name: "a.b".to_string(), millis: [4.0, 0.0, 4.0], operations: 2.0 };
        assert_eq!(rates.namespaces, [busy]);
        // The server has restarted.
        let restarted = Sample::read(first.view(), None, start + Duration::from_secs(3)).since(&now);
        assert_eq!(
            (restarted.operations[0], restarted.latencies[1], restarted.namespaces.len()),
            (Some(0.0), None, 0)
        );
    }
}
