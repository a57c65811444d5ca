//! Samples of all operations since the start: the page draws them, also for the time before it was opened.
//!
//! The memory is bounded. Once the ring is full, pairs of samples are merged, and each sample covers twice the time.

use super::users::Guest;
use super::{Answer, Peer, Request, commands, users};
use crate::access::{self, Action, Resource};
use crate::command::COMMANDS;
use crate::http::Response;
use crate::operations::{FIRST_BOUND, SPANS};
use crate::server::Server;
use base::bson::{Builder, Value};
use parking_lot::Mutex;
use std::time::Duration;

/// Interval between two samples of the counters.
pub(crate) const INTERVAL: Duration = Duration::from_secs(2);

/// Maximum number of samples.
const SAMPLES_MAX: usize = 300;

/// Commands of drivers and monitors. The page leaves them out, so that it does not show itself.
const MONITORING: [&str; 9] = [
    "hello",
    "isMaster",
    "ping",
    "serverStatus",
    "currentOp",
    "top",
    "replSetGetStatus",
    "vellumSlowQueries",
    "vellumWorkingSet",
];

/// Commands that count as writes.
const WRITES: [&str; 5] = ["insert", "update", "delete", "findAndModify", "bulkWrite"];

/// Operations in a span of time, or since the start.
#[derive(Clone, Copy, Default)]
struct Counts {
    writes: u64,
    /// Operations by duration.
    durations: [u64; SPANS],
}

impl Counts {
    /// Returns all operations since the start.
    fn now(server: &Server) -> Counts {
        let mut found = Counts::default();
        for database in server.counters.operations.all() {
            for (at, one) in database.commands() {
                let name = COMMANDS.get(at).map_or("", |command| command.name);
                if MONITORING.contains(&name) {
                    continue;
                }
                let times = one.times.so_far();
                found.writes += if WRITES.contains(&name) { times.count() } else { 0 };
                found.durations.iter_mut().zip(times.counts).for_each(|(sum, count)| *sum += count);
            }
        }
        found
    }

    fn combine(&self, other: &Counts, with: impl Fn(u64, u64) -> u64) -> Counts {
        let mut out = Counts { writes: with(self.writes, other.writes), ..*self };
        out.durations.iter_mut().zip(other.durations).for_each(|(one, other)| *one = with(*one, other));
        out
    }

    fn operations(&self) -> u64 {
        self.durations.iter().sum()
    }

    /// Returns the upper bound of this percentile in microseconds.
    fn percentile(&self, percent: u64) -> Option<i64> {
        let all = self.operations();
        let mut seen = 0;
        let reached = self.durations.iter().position(|count| {
            seen += count;
            all > 0 && seen * 100 >= all * percent
        });
        reached.map(|at| 1 << (FIRST_BOUND as usize + at))
    }
}

/// Samples of a server.
#[derive(Default)]
pub(crate) struct History(Mutex<Samples>);

#[derive(Default)]
struct Samples {
    /// Sums at the last sample.
    last: Counts,
    /// The sample in progress and its number of intervals.
    open: (Counts, u32),
    /// The logarithm of the number of intervals in a sample.
    doublings: u32,
    closed: Vec<Counts>,
}

impl Samples {
    fn add(&mut self, now: Counts) {
        let since = now.combine(&self.last, u64::saturating_sub);
        self.last = now;
        self.open = (self.open.0.combine(&since, u64::saturating_add), self.open.1 + 1);
        if self.open.1 < 1 << self.doublings {
            return;
        }
        self.closed.push(std::mem::take(&mut self.open).0);
        if self.closed.len() == SAMPLES_MAX {
            let pairs = self.closed.chunks_exact(2);
            self.closed = pairs
                .map(|pair| {
                    pair.iter().fold(Counts::default(), |sum, one| sum.combine(one, u64::saturating_add))
                })
                .collect();
            self.doublings += 1;
        }
    }

    fn seconds(&self) -> f64 {
        INTERVAL.as_secs_f64() * f64::from(1u32 << self.doublings)
    }
}

impl History {
    /// Takes a sample. The caller does so every [`INTERVAL`].
    pub(crate) fn sample(&self, server: &Server) {
        self.0.lock().add(Counts::now(server));
    }
}

/// Returns all samples to a user with the serverStatus privilege.
pub(super) fn answer(server: &Server, request: &Request<'_>, peer: Peer) -> Answer {
    let guest: Guest<'_> = match users::guest(server, request, peer) {
        Ok(guest) => guest,
        Err(answer) => return answer,
    };
    if !access::may(server, &guest.state, Resource::Cluster, Action::ServerStatus) {
        return Response::text(403, "that takes the right to serverStatus, which clusterMonitor has").into();
    }
    let samples = server.http.history.0.lock();
    let mut out = Builder::new();
    out.append(c"seconds", samples.seconds());
    type Column = fn(&Counts) -> Option<i64>;
    let columns: [(&str, Column); 4] = [
        ("operations", |counts| Some(counts.operations() as i64)),
        ("writes", |counts| Some(counts.writes as i64)),
        ("p50", |counts| counts.percentile(50)),
        ("p99", |counts| counts.percentile(99)),
    ];
    for (name, column) in columns {
        out.begin_array(base::bson::FieldName::literal(name));
        for counts in &samples.closed {
            out.push(column(counts).map_or(Value::Null, Value::Int64));
        }
        out.end();
    }
    drop(samples);
    out.begin_array(c"monitoring");
    for name in MONITORING {
        out.push(name);
    }
    out.end();
    commands::json(out.finish().view())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(operations: u64, writes: u64, at: usize) -> Counts {
        let mut counts = Counts { writes, ..Counts::default() };
        counts.durations[at] = operations;
        counts
    }

    #[test]
    fn samples_are_differences_and_merge_once_there_are_many() {
        let mut samples = Samples::default();
        for number in 1..=1000 {
            samples.add(counts(number * 10, number, 0));
        }
        // 300 samples of one interval became 150 of two, 300 of these 150 of four, …
        assert!(samples.closed.len() < SAMPLES_MAX, "{}", samples.closed.len());
        assert_eq!(samples.doublings, 2);
        assert_eq!(samples.seconds(), 8.0);
        assert!(samples.closed.iter().all(|one| one.operations() == 40 && one.writes == 4));
        let sum: u64 = samples.closed.iter().map(Counts::operations).sum();
        assert_eq!(sum + samples.open.0.operations(), 10_000);
    }

    #[test]
    fn percentiles_are_upper_bounds() {
        assert_eq!(Counts::default().percentile(50), None);
        let both = counts(98, 0, 0).combine(&counts(2, 0, 3), |one, other| one + other);
        assert_eq!(both.percentile(50), Some(16));
        assert_eq!(both.percentile(98), Some(16));
        assert_eq!(both.percentile(99), Some(128));
    }

    #[test]
    fn the_names_exist() {
        for name in MONITORING.iter().chain(&WRITES) {
            assert!(COMMANDS.iter().any(|command| command.name == *name), "{name}");
        }
    }
}
