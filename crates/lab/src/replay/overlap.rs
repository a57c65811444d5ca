//! Requests whose answers depend on an order that a recording doesn't tell.
//!
//! Of two requests on two connections that were under way at the same time nobody knows which the server carried out
//! first. Where one of them may write, the other's answer can be another when both are sent again.

use super::script::Exchange;
use crate::recording::message::Parts;

/// Commands that change nothing which another request's answer tells of; all others may.
// tidy: sorted
const READS: &[&str] = &[
    "buildInfo",
    "collStats",
    "connectionStatus",
    "count",
    "currentOp",
    "dbHash",
    "dbStats",
    "distinct",
    "endSessions",
    "explain",
    "find",
    "getCmdLineOpts",
    "getLog",
    "getMore",
    "getParameter",
    "hello",
    "hostInfo",
    "isMaster",
    "ismaster",
    "killCursors",
    "listCollections",
    "listCommands",
    "listDatabases",
    "listIndexes",
    "ping",
    "refreshSessions",
    "replSetGetStatus",
    "serverStatus",
    "startSession",
    "top",
    "validate",
];

/// Where a request works, and whether it may write there.
struct Work {
    exchange: usize,
    connection: usize,
    ended: u64,
    database: String,
    writes: bool,
}

impl Work {
    fn of(exchange: usize, connection: usize, what: &Exchange) -> Option<Work> {
        let parts = Parts::read(&what.sections)?;
        let database = parts.body.get("$db").and_then(|name| name.as_str()).unwrap_or_default().to_string();
        Some(Work { exchange, connection, ended: what.ended(), database, writes: may_write(&parts) })
    }

    /// Whether it may change what the other one's answer tells. What is asked of `admin` may concern any database, as
    /// the end of a transaction does.
    fn may_change(&self, other: &Work) -> bool {
        let meets = self.database == other.database
            || [&self.database, &other.database].iter().any(|name| *name == "admin");
        self.writes && meets && self.connection != other.connection
    }
}

fn may_write(parts: &Parts<'_>) -> bool {
    match parts.command() {
        "aggregate" => {
            let stages = parts.body.get("pipeline").and_then(|stages| stages.as_array());
            let last = stages.and_then(|stages| stages.iter().last()?.as_document());
            last.is_some_and(|last| last.iter().any(|stage| matches!(stage.name(), "$out" | "$merge")))
        }
        command => !READS.contains(&command),
    }
}

/// The exchanges, of these connections, that were under way while one of another connection was that may have changed
/// what they were answered.
pub(super) fn overlapping<'a>(
    exchanges: &[Exchange],
    connections: impl Iterator<Item = &'a [usize]>,
) -> Vec<usize> {
    let mut sent: Vec<(u64, usize, usize)> = connections
        .enumerate()
        .flat_map(|(connection, sent)| {
            sent.iter().map(move |exchange| (exchanges[*exchange].at, *exchange, connection))
        })
        .collect();
    sent.sort_unstable();
    let mut found = Vec::new();
    let mut under_way: Vec<Work> = Vec::new();
    for (at, exchange, connection) in sent {
        under_way.retain(|other| other.ended >= at);
        let Some(work) = Work::of(exchange, connection, &exchanges[exchange]) else { continue };
        for other in &under_way {
            if other.may_change(&work) {
                found.push(work.exchange);
            }
            if work.may_change(other) {
                found.push(other.exchange);
            }
        }
        under_way.push(work);
    }
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::script::Reply;
    use base::bson::DocumentBuf;
    use base::bson::extended_json::parse;

    /// Which of these, each of a connection, overlap: command, when it was sent, when it was answered.
    fn found(each: &[(&str, u64, u64)]) -> Vec<usize> {
        let exchange = |(command, at, ended): &(&str, u64, u64)| Exchange {
            at: *at,
            flags: 0,
            sections: [vec![0], parse(command).unwrap().bytes().to_vec()].concat(),
            command: String::new(),
            shape: String::new(),
            reply: Some(Reply { at: *ended, document: DocumentBuf::empty() }),
            requires: Vec::new(),
            overlaps: false,
        };
        let exchanges: Vec<Exchange> = each.iter().map(exchange).collect();
        let numbers: Vec<usize> = (0..exchanges.len()).collect();
        overlapping(&exchanges, numbers.chunks(1))
    }

    #[test]
    fn answers_depend_on_writes_under_way() {
        let (find, insert) = ("{find: 'c', $db: 'a'}", "{insert: 'c', $db: 'a'}");
        assert_eq!(found(&[(insert, 10, 20), (find, 15, 30)]), [1]);
        assert_eq!(found(&[(find, 10, 20), (insert, 15, 30)]), [0]);
        assert_eq!(found(&[(insert, 10, 20), (insert, 15, 30)]), [0, 1]);
        assert_eq!(found(&[(insert, 10, 20), (find, 21, 30)]), [0; 0]);
        assert_eq!(found(&[(find, 10, 20), (find, 15, 30)]), [0; 0]);
        assert_eq!(found(&[("{insert: 'c', $db: 'b'}", 10, 20), (find, 15, 30)]), [0; 0]);
        assert_eq!(found(&[("{commitTransaction: 1, $db: 'admin'}", 10, 20), (find, 15, 30)]), [1]);
        let out = "{aggregate: 'c', pipeline: [{$match: {}}, {$out: 'd'}], $db: 'a'}";
        assert_eq!(found(&[(out, 10, 20), (find, 15, 30)]), [1]);
        let reads = "{aggregate: 'c', pipeline: [{$match: {}}], $db: 'a'}";
        assert_eq!(found(&[(reads, 10, 20), (find, 15, 30)]), [0; 0]);
    }

    #[test]
    fn one_connection_has_an_order() {
        let insert = "{insert: 'c', $db: 'a'}";
        let section = [vec![0], parse(insert).unwrap().bytes().to_vec()].concat();
        let unanswered = || Exchange {
            at: 10,
            flags: 2,
            sections: section.clone(),
            command: String::new(),
            shape: String::new(),
            reply: None,
            requires: Vec::new(),
            overlaps: false,
        };
        assert_eq!(overlapping(&[unanswered(), unanswered()], [&[0, 1][..]].into_iter()), [0; 0]);
    }
}
