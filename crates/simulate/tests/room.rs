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

/// A server over such an engine.
fn start() -> (Arc<Lagging>, Arc<Server>) {
    let (lag, progress, commits_left) = (Mutex::new(Lag::None), Arc::default(), AtomicUsize::new(0));
    let engine = Arc::new(Lagging { engine: MemoryEngine::new(), lag, progress, commits_left });
    let clock = Arc::new(ManualClock::new(1_000_000));
    let log = Some(LogOptions { bytes: 1 << 20 });
    let database = Database::open_with(engine.clone(), clock, 7, log).unwrap();
    let settings = Settings { replica_set: Some("rs".to_string()), ..Settings::default() };
    (engine, Arc::new(Server::with_seed(settings, database, 7)))
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
