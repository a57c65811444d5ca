//! Writes that wait for a lagging checkpoint hold no thread: the server answers each client on the test's thread.

#![allow(clippy::unwrap_used)]

use base::bson::{DocumentBuf, extended_json};
use database::{Database, ManualClock};
use server::{Advance, Server, Settings, SimulatedConnection};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use storage::store::LogOptions;
use storage::{Batch, Engine, EventCount, MemoryEngine, Position, Result, Room, Wrapper};

/// How far checkpoints lag.
#[derive(Clone, Copy)]
enum Lag {
    None,
    Little,
    Much,
}

/// An engine whose checkpoints lag as a test requires.
struct Lagging {
    engine: MemoryEngine,
    lag: Mutex<Lag>,
    progress: Arc<EventCount>,
    /// Number of commits before checkpoints lag much; zero is never.
    commits_left: AtomicUsize,
}

impl Wrapper for Lagging {
    type Wrapped = MemoryEngine;

    fn wrapped(&self) -> &MemoryEngine {
        &self.engine
    }

    fn commit(&self, batch: Batch) -> Result<Position> {
        let left = self.commits_left.load(Relaxed);
        self.commits_left.store(left.saturating_sub(1), Relaxed);
        if left == 1 {
            self.set(Lag::Much);
        }
        self.engine.commit(batch)
    }

    fn room(&self) -> Result<Room> {
        Ok(match *self.lag.lock().unwrap() {
            Lag::None => Room::Free,
            Lag::Little => Room::After(Duration::from_millis(5)),
            Lag::Much => Room::Checkpoint(self.progress.listen(self.progress.read())),
        })
    }
}

impl Lagging {
    fn set(&self, lag: Lag) {
        *self.lag.lock().unwrap() = lag;
        self.progress.advance();
    }
}

/// A member of a replica set over such an engine.
fn start() -> (Arc<Lagging>, Arc<Server>) {
    start_as(Some("rs"))
}

/// A server over such an engine; a standalone without the name of a set.
fn start_as(replica_set: Option<&str>) -> (Arc<Lagging>, Arc<Server>) {
    let (lag, progress, commits_left) = (Mutex::new(Lag::None), Arc::default(), AtomicUsize::new(0));
    let engine = Arc::new(Lagging { engine: MemoryEngine::new(), lag, progress, commits_left });
    let clock = Arc::new(ManualClock::new(1_000_000));
    let log = replica_set.map(|_| LogOptions { bytes: 1 << 20 });
    let database = Database::open_with(engine.clone(), clock, 7, log).unwrap();
    let settings = Settings { replica_set: replica_set.map(str::to_string), ..Settings::default() };
    (engine, Arc::new(Server::with_seed(settings, database, 7).unwrap()))
}

/// Sends a command.
fn send(server: &Arc<Server>, command: &str) -> SimulatedConnection {
    let mut connection = SimulatedConnection::new(server);
    let command = extended_json::parse(command).unwrap();
    connection.receive(&wire::message::encode(1, 0, command.view()));
    connection
}

/// Returns the reply of a command that does not wait any longer.
fn reply(connection: &mut SimulatedConnection) -> DocumentBuf {
    match connection.advance() {
        Advance::Reply(bytes) => wire::message::document(&bytes).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn number(reply: &DocumentBuf, name: &str) -> Option<i64> {
    reply.view().get(name).and_then(|value| value.as_i64())
}

/// Kills the running command of a name.
fn kill(server: &Arc<Server>, name: &str) {
    let current = format!("{{currentOp: 1, $db: 'admin', 'command.{name}': 'c'}}");
    let current = reply(&mut send(server, &current));
    let operations = current.view().get("inprog").and_then(|list| list.as_array()).unwrap();
    let operation = operations.iter().next().and_then(|operation| operation.as_document()).unwrap();
    let id = operation.get("opid").and_then(|id| id.as_i64()).unwrap();
    reply(&mut send(server, &format!("{{killOp: 1, op: {id}, $db: 'admin'}}")));
}

#[test]
fn writes_wait_for_a_checkpoint_without_a_thread() {
    let (engine, server) = start();
    let documents: Vec<String> = (0..5).map(|id| format!("{{_id: {id}}}")).collect();
    let insert = format!("{{insert: 'c', documents: [{}], $db: 'd'}}", documents.join(","));
    assert_eq!(number(&reply(&mut send(&server, &insert)), "n"), Some(5));
    let transaction = "lsid: {id: {$uuid: '00000000-0000-4000-8000-000000000001'}}, \
                       txnNumber: {$numberLong: '1'}, autocommit: false";
    let insert =
        format!("{{insert: 'c', documents: [{{_id: 7}}], {transaction}, startTransaction: true, $db: 'd'}}");
    assert_eq!(number(&reply(&mut send(&server, &insert)), "n"), Some(1));
    let commit = format!("{{commitTransaction: 1, {transaction}, $db: 'admin'}}");
    engine.set(Lag::Much);
    let commands = [
        (commit.as_str(), "ok", 1),
        ("{insert: 'c', documents: [{_id: 9}], $db: 'd'}", "n", 1),
        ("{update: 'c', updates: [{q: {}, u: {$set: {a: 1}}, multi: true}], $db: 'd'}", "nModified", 5),
        ("{create: 'e', $db: 'd'}", "ok", 1),
        ("{aggregate: 'c', pipeline: [{$match: {_id: 1}}, {$merge: 'f'}], cursor: {}, $db: 'd'}", "ok", 1),
        ("{aggregate: 'c', pipeline: [{$match: {_id: 1}}, {$out: 'g'}], cursor: {}, $db: 'd'}", "ok", 1),
    ];
    let mut waiting: Vec<_> = commands.iter().map(|(command, _, _)| send(&server, command)).collect();
    assert!(waiting.iter_mut().all(|connection| connection.advance() == Advance::Waiting));
    // A checkpoint ends, and the engine has no room yet.
    engine.set(Lag::Much);
    assert!(waiting.iter_mut().all(|connection| connection.advance() == Advance::Waiting));
    // A busy machine begins the wait before the limit.
    let mut limited = send(&server, "{insert: 'c', documents: [{_id: 8}], maxTimeMS: 1000, $db: 'd'}");
    let begun = Instant::now();
    assert_eq!(limited.advance(), Advance::Waiting);
    thread::sleep(Duration::from_millis(1001).saturating_sub(begun.elapsed()));
    assert_eq!(number(&reply(&mut limited), "code"), Some(50));
    let mut killed = send(&server, "{delete: 'c', deletes: [{q: {_id: 1}, limit: 1}], $db: 'd'}");
    assert_eq!(killed.advance(), Advance::Waiting);
    kill(&server, "delete");
    assert_eq!(number(&reply(&mut killed), "code"), Some(11601));
    engine.set(Lag::None);
    for (connection, (command, field, expected)) in waiting.iter_mut().zip(commands) {
        assert_eq!(number(&reply(connection), field), Some(expected), "{command}");
    }
    assert_eq!(number(&reply(&mut send(&server, "{count: 'c', $db: 'd'}")), "n"), Some(7));
}

#[test]
fn each_commit_is_delayed_once_while_checkpoints_lag_a_little() {
    let (engine, server) = start();
    let create = "{insert: 'c', documents: [{_id: 1}, {_id: 2}], $db: 'd'}";
    assert_eq!(number(&reply(&mut send(&server, create)), "n"), Some(2));
    engine.set(Lag::Little);
    let updates = "{q: {_id: 1}, u: {$set: {a: 1}}}, {q: {_id: 2}, u: {$set: {a: 1}}}";
    let mut update = send(&server, &format!("{{update: 'c', updates: [{updates}], $db: 'd'}}"));
    for _ in 0..2 {
        assert_eq!(update.advance(), Advance::Waiting);
        thread::sleep(Duration::from_millis(6));
    }
    assert_eq!(number(&reply(&mut update), "nModified"), Some(2));
    // A command that begins again after its delay.
    let mut create = send(&server, "{create: 'e', $db: 'd'}");
    assert_eq!(create.advance(), Advance::Waiting);
    thread::sleep(Duration::from_millis(6));
    assert_eq!(number(&reply(&mut create), "ok"), Some(1));
}

#[test]
fn an_index_build_waits_in_its_middle_without_a_thread() {
    let (engine, server) = start();
    let documents: Vec<String> = (0..20).map(|id| format!("{{_id: {id}, a: {}}}", 100 - id)).collect();
    let insert = format!("{{insert: 'c', documents: [{}], $db: 'd'}}", documents.join(","));
    assert_eq!(number(&reply(&mut send(&server, &insert)), "n"), Some(20));
    let create = "{createIndexes: 'c', indexes: [{key: {a: 1}, name: 'a', unique: true}, {key: {b: 1}, name: 'b'}], $db: 'd'}";
    // A build loads three entries in a commit.
    engine.commits_left.store(9, Relaxed);
    let mut build = send(&server, create);
    assert_eq!(build.advance(), Advance::Waiting);
    let transaction = "lsid: {id: {$uuid: '00000000-0000-4000-8000-000000000001'}}, \
                       txnNumber: {$numberLong: '1'}, autocommit: false";
    let insert = format!(
        "{{insert: 'c', documents: [{{_id: 30, a: 30}}], {transaction}, startTransaction: true, $db: 'd'}}"
    );
    assert_eq!(number(&reply(&mut send(&server, &insert)), "n"), Some(1));
    engine.set(Lag::None);
    // Now it waits for the transaction.
    assert_eq!(build.advance(), Advance::Waiting);
    let commit = format!("{{commitTransaction: 1, {transaction}, $db: 'admin'}}");
    assert_eq!(number(&reply(&mut send(&server, &commit)), "ok"), Some(1));
    assert_eq!(number(&reply(&mut build), "numIndexesAfter"), Some(3));
    let valid = reply(&mut send(&server, "{validate: 'c', full: true, $db: 'd'}"));
    assert_eq!(valid.view().get("valid").and_then(|valid| valid.as_bool()), Some(true), "{valid}");
    // A build that is killed while it waits leaves nothing.
    reply(&mut send(&server, "{dropIndexes: 'c', index: '*', $db: 'd'}"));
    engine.commits_left.store(4, Relaxed);
    let mut build = send(&server, create);
    assert_eq!(build.advance(), Advance::Waiting);
    engine.set(Lag::None);
    kill(&server, "createIndexes");
    assert_eq!(number(&reply(&mut build), "code"), Some(11601));
    let mut again = send(&server, create);
    assert_eq!(number(&reply(&mut again), "numIndexesBefore"), Some(1));
}

/// Inserts documents with different values of `a`, and creates an index.
fn insert(server: &Arc<Server>, index: &str) {
    let documents: Vec<String> = (0..20).map(|id| format!("{{_id: {id}, a: {}}}", 100 - id)).collect();
    let insert = format!("{{insert: 'c', documents: [{}], $db: 'd'}}", documents.join(","));
    assert_eq!(number(&reply(&mut send(server, &insert)), "n"), Some(20));
    let create = format!("{{createIndexes: 'c', indexes: [{index}], $db: 'd'}}");
    assert_eq!(number(&reply(&mut send(server, &create)), "numIndexesAfter"), Some(2));
}

/// Lists the collections and the indexes of `c`.
fn listed(server: &Arc<Server>) -> String {
    let commands = [
        "{listCollections: 1, nameOnly: true, $db: 'd'}",
        "{listIndexes: 'c', $db: 'd'}",
        "{validate: 'c', $db: 'd'}",
    ];
    let texts = commands.map(|command| {
        let text = reply(&mut send(server, command)).to_string();
        text.split(", $clusterTime").next().unwrap_or_default().to_string()
    });
    texts.join(" ")
}

#[test]
fn coll_mod_commits_all_its_options_at_once() {
    let (engine, server) = start();
    insert(&server, "{key: {a: 1}, name: 'a', prepareUnique: true}");
    let change = "{collMod: 'c', validator: {a: {$gt: 0}}, validationAction: 'warn', \
                  changeStreamPreAndPostImages: {enabled: true}, index: {name: 'a', hidden: true, \
                  expireAfterSeconds: 9}, $db: 'd'}";
    engine.commits_left.store(1, Relaxed);
    let changed = reply(&mut send(&server, change));
    assert_eq!(number(&changed, "expireAfterSeconds_new"), Some(9), "{changed}");
    engine.set(Lag::None);
    // An invalid option changes nothing.
    let change = "{collMod: 'c', validationAction: 'error', index: {name: 'a', hidden: false}, cappedSize: 9, $db: 'd'}";
    assert_eq!(number(&reply(&mut send(&server, change)), "code"), Some(72));
    let kept = listed(&server);
    assert!(kept.contains("hidden"), "{kept}");
}

#[test]
fn a_conversion_to_unique_waits_in_its_middle_without_a_thread() {
    let (engine, server) = start();
    insert(&server, "{key: {a: 1}, name: 'a', prepareUnique: true}");
    let convert = "{collMod: 'c', index: {name: 'a', unique: true, hidden: true}, $db: 'd'}";
    let before = listed(&server);
    engine.commits_left.store(3, Relaxed);
    let mut waiting = send(&server, convert);
    assert_eq!(waiting.advance(), Advance::Waiting);
    kill(&server, "collMod");
    engine.set(Lag::None);
    assert_eq!(number(&reply(&mut waiting), "code"), Some(11601));
    assert_eq!(listed(&server), before);
    engine.commits_left.store(3, Relaxed);
    let mut waiting = send(&server, convert);
    assert_eq!(waiting.advance(), Advance::Waiting);
    // The same conversion waits for the first.
    let mut second = send(&server, "{collMod: 'c', index: {name: 'a', unique: true}, $db: 'd'}");
    assert_eq!(second.advance(), Advance::Waiting);
    engine.set(Lag::None);
    let converted = reply(&mut waiting);
    assert!(converted.to_string().contains("unique_new"), "{converted}");
    let second = reply(&mut second);
    assert!(!second.to_string().contains("unique_new"), "{second}");
    let after = listed(&server);
    assert!(
        after.contains("unique") && after.contains("hidden") && !after.contains("prepareUnique"),
        "{after}"
    );
}

#[test]
fn re_index_waits_in_its_middle_without_a_thread_and_keeps_the_indexes() {
    let (engine, server) = start_as(None);
    insert(&server, "{key: {a: 1}, name: 'a', unique: true}");
    let before = listed(&server);
    for is_killed in [true, false] {
        engine.commits_left.store(3, Relaxed);
        let mut waiting = send(&server, "{reIndex: 'c', $db: 'd'}");
        assert_eq!(waiting.advance(), Advance::Waiting);
        let hinted = reply(&mut send(&server, "{count: 'c', query: {a: {$gt: 90}}, hint: 'a', $db: 'd'}"));
        assert_eq!(number(&hinted, "n"), Some(10));
        if is_killed {
            kill(&server, "reIndex");
        }
        engine.set(Lag::None);
        let expected = if is_killed { Some(11601) } else { None };
        assert_eq!(number(&reply(&mut waiting), "code"), expected);
        assert_eq!(listed(&server), before);
    }
}

#[test]
fn conversions_to_capped_collections_wait_in_their_middle_without_a_thread() {
    let (engine, server) = start();
    insert(&server, "{key: {a: 1}, name: 'a'}");
    let before = listed(&server);
    let clone = "{cloneCollectionAsCapped: 'c', toCollection: 'e', size: 256, $db: 'd'}";
    for is_killed in [true, false] {
        engine.commits_left.store(4, Relaxed);
        let mut waiting = send(&server, clone);
        assert_eq!(waiting.advance(), Advance::Waiting);
        let kept = reply(&mut send(&server, "{count: 'e', $db: 'd'}"));
        assert_eq!(number(&kept, "n"), Some(0));
        if is_killed {
            kill(&server, "cloneCollectionAsCapped");
        }
        engine.set(Lag::None);
        let expected = if is_killed { Some(11601) } else { None };
        assert_eq!(number(&reply(&mut waiting), "code"), expected);
        if is_killed {
            assert_eq!(listed(&server), before);
        }
    }
    let kept = reply(&mut send(&server, "{count: 'e', query: {_id: 19}, $db: 'd'}"));
    assert_eq!(number(&kept, "n"), Some(1));
    engine.commits_left.store(1, Relaxed);
    let mut waiting = send(&server, "{convertToCapped: 'c', size: 256, $db: 'd'}");
    assert_eq!(waiting.advance(), Advance::Waiting);
    engine.set(Lag::None);
    assert_eq!(number(&reply(&mut waiting), "ok"), Some(1));
    let [copied, kept] = ["e", "c"]
        .map(|name| number(&reply(&mut send(&server, &format!("{{count: '{name}', $db: 'd'}}"))), "n"));
    assert!(copied == kept && kept < Some(20), "{copied:?} {kept:?}");
}

#[test]
fn apply_ops_continues_after_a_wait_with_the_operation_that_waited() {
    let (engine, server) = start();
    insert(&server, "{key: {b: 1}, name: 'b'}");
    let insert_of = |id: usize| format!("{{op: 'i', ns: 'd.c', o: {{_id: {id}}}, o2: {{_id: {id}}}}}");
    let index = "{op: 'c', ns: 'd.$cmd', o: {createIndexes: 'c', v: 2, key: {a: 1}, name: 'a'}}";
    let nested = format!(
        "{{op: 'c', ns: 'd.$cmd', o: {{applyOps: [{}, {index}, {}]}}}}",
        insert_of(31),
        insert_of(32)
    );
    let apply = format!("{{applyOps: [{}, {nested}, {}], $db: 'admin'}}", insert_of(30), insert_of(33));
    let mut waiting = send(&server, &apply);
    for commits in [1, 3, 4] {
        engine.commits_left.store(commits, Relaxed);
        engine.set(Lag::None);
        assert_eq!(waiting.advance(), Advance::Waiting, "{commits}");
    }
    engine.set(Lag::None);
    assert_eq!(number(&reply(&mut waiting), "applied"), Some(3));
    let count = "{count: 'c', query: {_id: {$gte: 30}}, $db: 'd'}";
    assert_eq!(number(&reply(&mut send(&server, count)), "n"), Some(4));
    assert!(listed(&server).contains("name: \"a\""), "{}", listed(&server));
}
