//! What servers of the protocol tell of themselves, and what has happened between two times of asking. What a server
//! doesn't tell is `None`, never 0.

use base::bson::Document;
use std::collections::BTreeMap;
use std::time::Instant;

/// The kinds of operations that `opcounters` has.
pub(super) const KINDS: [&str; 6] = ["insert", "query", "update", "delete", "getmore", "command"];
/// The kinds that `opLatencies` has.
pub(super) const LATENCIES: [&str; 3] = ["reads", "writes", "commands"];
/// What `top` tells of a collection that is shown.
const LOCKS: [&str; 3] = ["total", "readLock", "writeLock"];

/// Microseconds and operations.
type Spent = (f64, f64);

/// What a server told at a time.
#[derive(Debug, Clone)]
pub(super) struct Figures {
    at: Instant,
    operations: [Option<f64>; KINDS.len()],
    latencies: [Option<Spent>; LATENCIES.len()],
    network: [Option<f64>; 2],
    pub(super) connections: Option<f64>,
    pub(super) cursors: Option<f64>,
    /// In megabytes.
    pub(super) resident: Option<f64>,
    pub(super) uptime: Option<f64>,
    pub(super) version: String,
    pub(super) engine: String,
    namespaces: BTreeMap<String, [Spent; LOCKS.len()]>,
}

/// What happened in between, by the second.
#[derive(Debug, Clone)]
pub(super) struct Rates {
    pub(super) operations: [Option<f64>; KINDS.len()],
    /// Microseconds that one took on average; none if there was none.
    pub(super) latencies: [Option<f64>; LATENCIES.len()],
    /// Bytes in and out.
    pub(super) network: [Option<f64>; 2],
    /// Collections with what was spent in them, those most busy first.
    pub(super) namespaces: Vec<Namespace>,
}

/// What was spent in a collection each second.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Namespace {
    pub(super) name: String,
    /// Milliseconds in all, for reads, for writes.
    pub(super) millis: [f64; LOCKS.len()],
    pub(super) operations: f64,
}

/// The number that a path of names leads to.
fn number(document: Document<'_>, path: &[&str]) -> Option<f64> {
    let (last, way) = path.split_last()?;
    let mut inner = document;
    for name in way {
        inner = inner.get(name)?.as_document()?;
    }
    inner.get(last)?.as_number().map(|number| number.to_f64())
}

impl Figures {
    /// Reads `serverStatus` and, where there is one, `top`.
    pub(super) fn read(status: Document<'_>, top: Option<Document<'_>>, at: Instant) -> Figures {
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
        Figures {
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

    /// What has happened since an earlier time.
    pub(super) fn since(&self, before: &Figures) -> Rates {
        let seconds = self.at.duration_since(before.at).as_secs_f64().max(1e-3);
        // Counters that have gone back are those of a server started anew.
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
    use std::time::Duration;

    #[test]
    fn rates_are_by_the_second_and_what_is_not_told_is_none() {
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
        let before = Figures::read(first.view(), Some(early.view()), start);
        let now = Figures::read(second.view(), Some(late.view()), start + Duration::from_secs(2));
        let rates = now.since(&before);
        assert_eq!(rates.operations[..2], [Some(10.0), None]);
        assert_eq!(rates.latencies, [None, Some(100.0), None]);
        assert_eq!((rates.network, now.connections, now.cursors), ([None, None], Some(3.0), None));
        let busy = Namespace { name: "a.b".to_string(), millis: [4.0, 0.0, 4.0], operations: 2.0 };
        assert_eq!(rates.namespaces, [busy]);
        // Started anew.
        let anew = Figures::read(first.view(), None, start + Duration::from_secs(3)).since(&now);
        assert_eq!((anew.operations[0], anew.latencies[1], anew.namespaces.len()), (Some(0.0), None, 0));
    }
}
