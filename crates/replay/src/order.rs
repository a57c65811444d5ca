//! Order of requests: a request waits until its required predecessors have finished.
//!
//! The module also finds requests whose answers depend on an order that a recording does not contain.
//!
//! For two overlapping requests on two connections, the recording does not show which the server executed first. If one
//! of them may write, a replay may change the answer of the other. The same holds for two requests on one cursor:
//! `killCursors` ends a waiting `getMore` with another error than a later one. All later requests on such a cursor
//! depend on the order too.

use super::script::{Exchange, cursor_of, cursors};
use crate::message::Parts;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

/// Interval at which a waiting thread checks for the end.
const LOOK: Duration = Duration::from_millis(200);

/// Wakes threads once the items that they wait for have finished. Items are numbered by their end in the recording.
pub struct Order {
    state: Mutex<State>,
}

/// Finished items, and the threads that wait for others.
struct State {
    over: Vec<bool>,
    /// All items before this one have finished.
    frontier: usize,
    /// Threads that wait for one item, and threads that wait for all items before one.
    for_one: HashMap<usize, Vec<Thread>>,
    for_all: BTreeMap<usize, Vec<Thread>>,
    stopped: bool,
}

impl Order {
    /// Creates the order of `count` items.
    pub fn new(count: usize) -> Order {
        let (for_one, for_all) = (HashMap::new(), BTreeMap::new());
        Order {
            state: Mutex::new(State {
                over: vec![false; count],
                frontier: 0,
                for_one,
                for_all,
                stopped: false,
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks an item as finished.
    pub(super) fn end(&self, which: usize) {
        let mut state = self.state();
        if let Some(over) = state.over.get_mut(which) {
            *over = true;
        }
        while state.over.get(state.frontier) == Some(&true) {
            state.frontier += 1;
        }
        let next = state.frontier + 1;
        let behind = state.for_all.split_off(&next);
        let reached = std::mem::replace(&mut state.for_all, behind);
        let waiting = state.for_one.remove(&which).into_iter().chain(reached.into_values());
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
    pub(super) fn after(&self, which: usize) -> bool {
        self.wait(|state| {
            if state.over.get(which) != Some(&false) {
                return true;
            }
            state.for_one.entry(which).or_default().push(thread::current());
            false
        })
    }

    /// Waits until all items before this one have finished. Returns false if the replay is to end.
    pub(super) fn after_all_before(&self, which: usize) -> bool {
        self.wait(|state| {
            if state.frontier >= which {
                return true;
            }
            state.for_all.entry(which).or_default().push(thread::current());
            false
        })
    }

    /// Waits until `is_over` returns true. When it returns false, it registers the thread to be woken.
    fn wait(&self, mut is_over: impl FnMut(&mut State) -> bool) -> bool {
        loop {
            {
                let mut state = self.state();
                if state.stopped {
                    return false;
                }
                if is_over(&mut state) {
                    return true;
                }
            }
            thread::park_timeout(LOOK);
        }
    }
}

/// Commands without effect on the answers of other requests. All other commands may have one.
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
struct Work {
    exchange: usize,
    connection: usize,
    ended: u64,
    database: String,
    cursors: Vec<i64>,
    writes: bool,
}

impl Work {
    /// Extracts namespace, cursors and kind of a request; `None` for invalid sections.
    fn of(exchange: usize, connection: usize, what: &Exchange) -> Option<Work> {
        let parts = Parts::read(&what.sections)?;
        let database = parts.body.get("$db").and_then(|name| name.as_str()).unwrap_or_default().to_string();
        let (cursors, writes) = (cursors(&parts), may_write(&parts));
        Some(Work { exchange, connection, ended: what.ended(), database, cursors, writes })
    }

    /// Returns true if this request may change the other's answer. A request to `admin` may concern any database, as
    /// the end of a transaction does.
    fn may_change(&self, other: &Work) -> bool {
        let meets = self.database == other.database
            || [&self.database, &other.database].iter().any(|name| *name == "admin");
        let shares_cursor = self.cursors.iter().any(|cursor| other.cursors.contains(cursor));
        self.connection != other.connection && (self.writes && meets || shares_cursor)
    }
}

/// Returns true if a request may write. Of aggregations, only those with `$out` or `$merge` do.
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

/// Returns the exchanges that overlapped with a request of another connection which may have changed their answers.
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
    let mut found = HashSet::new();
    let mut under_way: Vec<Work> = Vec::new();
    for &(at, exchange, connection) in &sent {
        under_way.retain(|other| other.ended >= at);
        let Some(work) = Work::of(exchange, connection, &exchanges[exchange]) else { continue };
        for other in &under_way {
            if other.may_change(&work) {
                found.insert(work.exchange);
            }
            if work.may_change(other) {
                found.insert(other.exchange);
            }
        }
        under_way.push(work);
    }
    add_later_on_cursors(exchanges, sent.iter().map(|(_, exchange, _)| *exchange), &mut found);
    let mut found: Vec<usize> = found.into_iter().collect();
    found.sort_unstable();
    found
}

/// Adds later requests on cursors of the requests found. `sent` is in order of time.
fn add_later_on_cursors(
    exchanges: &[Exchange],
    sent: impl Iterator<Item = usize>,
    found: &mut HashSet<usize>,
) {
    let mut unsure: HashSet<i64> = HashSet::new();
    for exchange in sent {
        let what = &exchanges[exchange];
        let mut named = Parts::read(&what.sections).map_or_else(Vec::new, |parts| cursors(&parts));
        if named.iter().any(|cursor| unsure.contains(cursor)) {
            found.insert(exchange);
        }
        if found.contains(&exchange) {
            named.extend(what.reply.as_ref().and_then(|reply| cursor_of(&reply.document)));
            unsure.extend(named.into_iter().filter(|cursor| *cursor != 0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    #[test]
    fn what_must_come_after_comes_after() {
        let order = Arc::new(Order::new(3));
        let seen = Arc::new(AtomicUsize::new(0));
        let spawn = |wait: fn(&Order) -> bool| {
            let (order, seen) = (Arc::clone(&order), Arc::clone(&seen));
            thread::spawn(move || {
                assert!(wait(&order));
                seen.fetch_add(1, SeqCst)
            })
        };
        let one = spawn(|order| order.after(1));
        let all = spawn(|order| order.after_all_before(2));
        assert!(order.after_all_before(0));
        order.end(1);
        one.join().unwrap();
        assert_eq!(seen.load(SeqCst), 1, "the other waits for the first, too");
        order.end(0);
        all.join().unwrap();
    }

    #[test]
    fn a_stop_ends_all_waiting() {
        let order = Arc::new(Order::new(1));
        let waiting = Arc::clone(&order);
        let thread = thread::spawn(move || waiting.after(0));
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
    fn later_requests_on_a_cursor_depend_on_what_its_earlier_ones_do() {
        let (find, insert) = ("{find: 'c', $db: 'a'}", "{insert: 'c', $db: 'a'}");
        let (more, others) = ("{getMore: NumberLong(5), $db: 'a'}", "{getMore: NumberLong(6), $db: 'a'}");
        let all = [(find, 10, 20), (insert, 15, 16), (others, 25, 30), (more, 40, 50)];
        assert_eq!(found_of(&all, [&[0, 2, 3][..], &[1][..]].into_iter()), [0, 3]);
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
