//! Order of requests: a request waits until its required predecessors have finished.
//!
//! The module also finds requests whose replies depend on an order that a recording does not contain.
//!
//! For two overlapping requests on two connections, the recording does not show which the server executed first. If one
//! of them may write, a replay may change the reply of the other. The same holds for two requests on one cursor:
//! `killCursors` ends a waiting `getMore` with another error than a later one. All later requests on such a cursor
//! depend on the order too.

use super::script::{Exchange, cursor_of, cursors};
use crate::message::Sections;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

/// Interval at which a waiting thread checks whether the replay was stopped.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Wakes threads once the items that they wait for have finished. Items are numbered by their end in the recording.
pub struct Order {
    state: Mutex<State>,
}

/// Finished items, and the threads that wait for others.
struct State {
    finished: Vec<bool>,
    /// All items before this one have finished.
    frontier: usize,
    /// Threads that wait for one item, and threads that wait for all items before one.
    item_waiters: HashMap<usize, Vec<Thread>>,
    prefix_waiters: BTreeMap<usize, Vec<Thread>>,
    stopped: bool,
}

impl Order {
    /// Creates the order of `count` items.
    pub fn new(count: usize) -> Order {
        let (item_waiters, prefix_waiters) = (HashMap::new(), BTreeMap::new());
        Order {
            state: Mutex::new(State {
                finished: vec![false; count],
                frontier: 0,
                item_waiters,
                prefix_waiters,
                stopped: false,
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks an item as finished.
    pub(super) fn finish(&self, item: usize) {
        let mut state = self.state();
        if let Some(finished) = state.finished.get_mut(item) {
            *finished = true;
        }
        while state.finished.get(state.frontier) == Some(&true) {
            state.frontier += 1;
        }
        let next = state.frontier + 1;
        let later = state.prefix_waiters.split_off(&next);
        let prefix = std::mem::replace(&mut state.prefix_waiters, later);
        let waiting = state.item_waiters.remove(&item).into_iter().chain(prefix.into_values());
        waiting.flatten().for_each(|thread| thread.unpark());
    }

    /// Ends all waits.
    pub fn stop(&self) {
        self.state().stopped = true;
    }

    /// Returns true if the replay is to end.
    pub(super) fn is_stopped(&self) -> bool {
        self.state().stopped
    }

    /// Waits until an item has finished. Returns false if the replay is to end.
    pub(super) fn wait_for(&self, item: usize) -> bool {
        self.wait(|state| {
            if state.finished.get(item) != Some(&false) {
                return true;
            }
            state.item_waiters.entry(item).or_default().push(thread::current());
            false
        })
    }

    /// Waits until all items before this one have finished. Returns false if the replay is to end.
    pub(super) fn wait_for_all_before(&self, item: usize) -> bool {
        self.wait(|state| {
            if state.frontier >= item {
                return true;
            }
            state.prefix_waiters.entry(item).or_default().push(thread::current());
            false
        })
    }

    /// Waits until `is_ready` returns true. When it returns false, it registers the thread to be woken.
    fn wait(&self, mut is_ready: impl FnMut(&mut State) -> bool) -> bool {
        loop {
            {
                let mut state = self.state();
                if state.stopped {
                    return false;
                }
                if is_ready(&mut state) {
                    return true;
                }
            }
            thread::park_timeout(POLL_INTERVAL);
        }
    }
}

/// Commands without effect on the replies of other requests. All other commands may have one.
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

/// The namespace and cursors of a request, and whether it may write.
struct Footprint {
    exchange: usize,
    connection: usize,
    ended: u64,
    database: String,
    cursors: Vec<i64>,
    writes: bool,
}

impl Footprint {
    /// Extracts namespace, cursors and kind of a request; `None` for invalid sections.
    fn of(exchange: usize, connection: usize, recorded: &Exchange) -> Option<Footprint> {
        let parts = Sections::parse(&recorded.sections)?;
        let database = parts.body.get("$db").and_then(|name| name.as_str()).unwrap_or_default().to_string();
        let (cursors, writes) = (cursors(&parts), may_write(&parts));
        Some(Footprint { exchange, connection, ended: recorded.ended(), database, cursors, writes })
    }

    /// Returns true if this request may change the other's reply. A request to `admin` may concern any database, as
    /// the end of a transaction does.
    fn may_change(&self, other: &Footprint) -> bool {
        let same_database = self.database == other.database
            || [&self.database, &other.database].iter().any(|name| *name == "admin");
        let shares_cursor = self.cursors.iter().any(|cursor| other.cursors.contains(cursor));
        self.connection != other.connection && (self.writes && same_database || shares_cursor)
    }
}

/// Returns true if a request may write. Of aggregations, only those with `$out` or `$merge` do.
pub(super) fn may_write(parts: &Sections<'_>) -> bool {
    match parts.command() {
        "aggregate" => {
            let stages = parts.body.get("pipeline").and_then(|stages| stages.as_array());
            let last = stages.and_then(|stages| stages.iter().last()?.as_document());
            last.is_some_and(|last| last.iter().any(|stage| matches!(stage.name(), "$out" | "$merge")))
        }
        command => !READS.contains(&command),
    }
}

/// Returns the exchanges that overlapped with a request of another connection which may have changed their replies.
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
    let mut overlapping = HashSet::new();
    let mut in_flight: Vec<Footprint> = Vec::new();
    for &(at, exchange, connection) in &sent {
        in_flight.retain(|other| other.ended >= at);
        let Some(footprint) = Footprint::of(exchange, connection, &exchanges[exchange]) else { continue };
        for other in &in_flight {
            if other.may_change(&footprint) {
                overlapping.insert(footprint.exchange);
            }
            if footprint.may_change(other) {
                overlapping.insert(other.exchange);
            }
        }
        in_flight.push(footprint);
    }
    add_dependents(exchanges, sent.iter().map(|(_, exchange, _)| *exchange), &mut overlapping);
    let mut overlapping: Vec<usize> = overlapping.into_iter().collect();
    overlapping.sort_unstable();
    overlapping
}

/// Adds later requests on cursors of the overlapping requests. `sent` is in order of time.
fn add_dependents(
    exchanges: &[Exchange],
    sent: impl Iterator<Item = usize>,
    overlapping: &mut HashSet<usize>,
) {
    let mut uncertain: HashSet<i64> = HashSet::new();
    for exchange in sent {
        let recorded = &exchanges[exchange];
        let mut cursors = Sections::parse(&recorded.sections).map_or_else(Vec::new, |parts| cursors(&parts));
        if cursors.iter().any(|cursor| uncertain.contains(cursor)) {
            overlapping.insert(exchange);
        }
        if overlapping.contains(&exchange) {
            cursors.extend(recorded.reply.as_ref().and_then(|reply| cursor_of(&reply.document)));
            uncertain.extend(cursors.into_iter().filter(|cursor| *cursor != 0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    #[test]
    fn dependent_requests_wait() {
        let order = Arc::new(Order::new(3));
        let seen = Arc::new(AtomicUsize::new(0));
        let spawn = |wait: fn(&Order) -> bool| {
            let (order, seen) = (Arc::clone(&order), Arc::clone(&seen));
            thread::spawn(move || {
                assert!(wait(&order));
                seen.fetch_add(1, SeqCst)
            })
        };
        let one = spawn(|order| order.wait_for(1));
        let all = spawn(|order| order.wait_for_all_before(2));
        assert!(order.wait_for_all_before(0));
        order.finish(1);
        one.join().unwrap();
        assert_eq!(seen.load(SeqCst), 1, "the other waits for the first, too");
        order.finish(0);
        all.join().unwrap();
    }

    #[test]
    fn a_stop_ends_all_waiting() {
        let order = Arc::new(Order::new(1));
        let waiting = Arc::clone(&order);
        let thread = thread::spawn(move || waiting.wait_for(0));
        order.stop();
        assert!(!thread.join().unwrap());
    }
}

#[cfg(test)]
mod overlap_tests {
    use super::*;
    use crate::script::Reply;
    use base::bson::DocumentBuf;
    use base::bson::extended_json::parse;

    /// Returns the overlapping ones of these requests, each on its own connection: command, time sent, time answered.
    fn found(each: &[(&str, u64, u64)]) -> Vec<usize> {
        let numbers: Vec<usize> = (0..each.len()).collect();
        found_of(each, numbers.chunks(1))
    }

    fn found_of<'a>(each: &[(&str, u64, u64)], connections: impl Iterator<Item = &'a [usize]>) -> Vec<usize> {
        let opened = parse("{cursor: {id: NumberLong(5), firstBatch: []}, ok: 1}").unwrap();
        let exchange = |(command, at, ended): &(&str, u64, u64)| Exchange {
            at: *at,
            flags: 0,
            sections: [vec![0], parse(command).unwrap().bytes().to_vec()].concat(),
            command: String::new(),
            shape: String::new(),
            reply: Some(Reply {
                at: *ended,
                document: if command.contains("find") { opened.clone() } else { DocumentBuf::empty() },
            }),
            requires: Vec::new(),
            overlaps: false,
        };
        let exchanges: Vec<Exchange> = each.iter().map(exchange).collect();
        overlapping(&exchanges, connections)
    }

    #[test]
    fn answers_depend_on_requests_on_the_same_cursor() {
        let (more, kill) =
            ("{getMore: NumberLong(5), $db: 'a'}", "{killCursors: 'c', cursors: [NumberLong(5)], $db: 'a'}");
        let of_another = "{killCursors: 'c', cursors: [NumberLong(6)], $db: 'a'}";
        assert_eq!(found(&[(more, 10, 20), (kill, 15, 30)]), [0, 1]);
        assert_eq!(found(&[(kill, 10, 20), (more, 15, 16)]), [0, 1]);
        assert_eq!(found(&[(more, 10, 20), (of_another, 15, 30)]), [0; 0]);
        assert_eq!(found(&[(kill, 10, 20), (more, 21, 30)]), [0; 0]);
    }

    #[test]
    fn later_requests_of_a_cursor_depend_on_earlier_requests() {
        let (find, insert) = ("{find: 'c', $db: 'a'}", "{insert: 'c', $db: 'a'}");
        let (more, others) = ("{getMore: NumberLong(5), $db: 'a'}", "{getMore: NumberLong(6), $db: 'a'}");
        let all = [(find, 10, 20), (insert, 15, 16), (others, 25, 30), (more, 40, 50)];
        assert_eq!(found_of(&all, [&[0, 2, 3][..], &[1][..]].into_iter()), [0, 3]);
    }

    #[test]
    fn replies_depend_on_concurrent_writes() {
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
