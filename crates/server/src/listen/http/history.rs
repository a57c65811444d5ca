//! History of operation counts and latencies, as the page requests it.

use super::{Answer, Exchange, Response, commands, users};
use crate::access::{Action, Resource};
use crate::auth;
use crate::commands::table;
use crate::observe::counters::Counters;
use crate::server::Server;
use crate::state::http::Counts;
use base::bson::{Builder, Value};

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

/// Takes a sample. The caller calls it once per [`INTERVAL`](crate::state::http::INTERVAL).
pub(crate) fn sample(server: &Server) {
    server.http.history.sample(operations_since_start(&server.counters));
}

/// Returns all operations since the start.
fn operations_since_start(counters: &Counters) -> Counts {
    let mut counts = Counts::default();
    for database in counters.operations.all() {
        for (at, one) in database.commands() {
            let name = table::name_at(at);
            if MONITORING.contains(&name) {
                continue;
            }
            let times = one.times.snapshot();
            counts.writes += if WRITES.contains(&name) { times.count() } else { 0 };
            counts.durations.iter_mut().zip(times.counts).for_each(|(sum, count)| *sum += count);
        }
    }
    counts
}

/// Returns all samples to a user with the serverStatus privilege.
pub(super) fn answer(exchange: Exchange<'_>) -> Result<Response, Answer> {
    let client = users::client(exchange)?;
    let server = exchange.server;
    if !auth::is_authorized(&server.auth, &client.state, Resource::Cluster, Action::ServerStatus) {
        return Ok(Response::text(403, "this requires the privilege serverStatus (role clusterMonitor)"));
    }
    let (seconds, samples) = server.http.history.samples();
    let mut out = Builder::new();
    out.append(c"seconds", seconds);
    type Column = fn(&Counts) -> Option<i64>;
    let columns: [(&str, Column); 4] = [
        ("operations", |counts| Some(counts.operations() as i64)),
        ("writes", |counts| Some(counts.writes as i64)),
        ("p50", |counts| counts.percentile(50)),
        ("p99", |counts| counts.percentile(99)),
    ];
    for (name, column) in columns {
        out.begin_array(base::bson::FieldName::literal(name));
        for counts in &samples {
            out.push(column(counts).map_or(Value::Null, Value::Int64));
        }
        out.end();
    }
    out.begin_array(c"monitoring");
    for name in MONITORING {
        out.push(name);
    }
    out.end();
    Ok(commands::json(out.finish().view()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_exist() {
        for name in MONITORING.iter().chain(&WRITES) {
            assert!(table::find(name).is_some(), "{name}");
        }
    }
}
