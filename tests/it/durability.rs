//! Guarantees of a server with a data directory. A write repeated after `kill -9` takes effect once. Files copied under
//! `fsync {lock: true}` are complete. Temporary collections do not survive.

use crate::requests::{number, run_on, running, until};
use crate::server::{Scratch, Server};
use base::bson::{DocumentBuf, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Only members of a set take retryable writes.
const SET: [&str; 2] = ["--replset", "rs0"];

/// Returns the reply without the fields that differ for a recorded answer.
fn plain(reply: &DocumentBuf) -> String {
    let mut out = base::bson::Builder::new();
    let differs = ["retriedStmtId", "retriedStmtIds", "$clusterTime", "operationTime"];
    for element in reply.view().iter().filter(|element| !differs.contains(&element.name())) {
        out.append_element(&element);
    }
    format!("{:?}", out.finish())
}

/// Retryable writes of every kind.
const WRITES: [&str; 8] = [
    "{insert: 'c', documents: [{_id: 1, n: 0}, {_id: 2, n: 0}, {n: 7}], NUMBER, $db: 'test'}",
    "{update: 'c', updates: [{q: {_id: 1}, u: {$inc: {n: 1}}}, {q: {_id: 2}, u: {$inc: {n: 10}}}], NUMBER, $db: 'test'}",
    "{update: 'c', updates: [{q: {k: 'new'}, u: {$set: {n: 3}}, upsert: true}], NUMBER, $db: 'test'}",
    "{findAndModify: 'c', query: {_id: 1}, update: {$inc: {n: 1}}, new: true, NUMBER, $db: 'test'}",
    "{findAndModify: 'c', query: {k: 'fresh'}, update: {$inc: {n: 1}}, fields: {_id: 0}, upsert: true, new: true, NUMBER, $db: 'test'}",
    "{findAndModify: 'c', query: {n: 7}, remove: true, NUMBER, $db: 'test'}",
    "{delete: 'c', deletes: [{q: {n: 10}, limit: 1}], NUMBER, $db: 'test'}",
    "{bulkWrite: 1, ops: [{insert: 0, document: {_id: 9}}, {update: 0, filter: {_id: 9}, updateMods: {$inc: {n: 1}}}, {delete: 0, filter: {_id: 1}}], nsInfo: [{ns: 'test.c'}], NUMBER, $db: 'admin'}",
];

/// Returns the nth write, in the nth session or, as a driver does, all in one session.
fn write(at: usize, one_session: bool) -> String {
    let session = if one_session { 200 } else { at };
    let id = format!("{session:08}-0000-4000-8000-000000000000");
    let number = format!("lsid: {{id: UUID('{id}')}}, txnNumber: {{$numberLong: '{}'}}", at + 5);
    WRITES[at].replace("NUMBER", &number)
}

fn contents(server: &Server) -> String {
    let found = run_on(server, "{find: 'c', sort: {n: 1, _id: 1}, $db: 'test'}");
    let batch = found.view().get("cursor").and_then(|cursor| cursor.as_document()).map(|c| format!("{c:?}"));
    batch.unwrap()
}

/// After each write and its answer, kills and restarts the server, and repeats the write.
fn killed_between(one_session: bool) {
    let data = Scratch::new("retries");
    let mut server = Server::start_on(&data, &SET).unwrap();
    for at in 0..WRITES.len() {
        let command = write(at, one_session);
        let first = run_on(&server, &command);
        assert_eq!(number(&first, "ok"), 1, "{command}: {first:?}");
        assert!(first.view().find("writeErrors").is_none(), "{command}: {first:?}");
        let before = contents(&server);
        drop(server);
        server = Server::start_on(&data, &SET).unwrap();
        let again = run_on(&server, &command);
        assert_eq!(plain(&again), plain(&first), "{command}");
        let is_retried =
            ["retriedStmtId", "retriedStmtIds"].iter().any(|name| again.view().find(name).is_some());
        assert!(is_retried, "{command}: {again:?}");
        assert_eq!(contents(&server), before, "{command} was carried out twice");
    }
    // In one session, older numbers are known to be older.
    let old = run_on(&server, &write(0, one_session));
    let code = old.view().get("code").and_then(|code| code.as_i64());
    assert_eq!(code, one_session.then_some(225), "{old:?}");
}

#[test]
fn a_write_repeated_after_a_kill_is_applied_once() {
    killed_between(false);
    killed_between(true);
}

#[test]
fn a_lost_statement_is_applied_when_repeated() {
    let data = Scratch::new("unfinished");
    let server = Server::start_on(&data, &SET).unwrap();
    let session = "lsid: {id: UUID('00000001-0000-4000-8000-000000000000')}, txnNumber: {$numberLong: '1'}";
    let one = format!("{{insert: 'c', documents: [{{_id: 1}}], {session}, $db: 'test'}}");
    assert_eq!(number(&run_on(&server, &one), "n"), 1);
    drop(server);
    let server = Server::start_on(&data, &SET).unwrap();
    let both = format!("{{insert: 'c', documents: [{{_id: 1}}, {{_id: 2}}], {session}, $db: 'test'}}");
    let reply = run_on(&server, &both);
    assert_eq!(number(&reply, "n"), 2, "{reply:?}");
    let retried = reply.view().get("retriedStmtIds").and_then(|ids| ids.as_array()).unwrap();
    assert_eq!(retried.iter().count(), 1);
    let counted = run_on(&server, "{count: 'c', $db: 'test'}");
    assert_eq!(number(&counted, "n"), 2);
}

const TRANSACTION: &str = "lsid: {id: UUID('00000009-0000-4000-8000-000000000000')}, autocommit: false";

/// Returns a command of the session's transaction of this number.
fn within(number: i64, command: &str) -> String {
    format!("{{{command}, {TRANSACTION}, txnNumber: {{$numberLong: '{number}'}}}}")
}

fn commit(server: &Server, number: i64) -> DocumentBuf {
    run_on(server, &within(number, "commitTransaction: 1, $db: 'admin'"))
}

/// Returns the only document of `config.transactions`.
fn record(server: &Server) -> DocumentBuf {
    let found = run_on(server, "{find: 'transactions', sort: {_id: 1}, $db: 'config'}");
    let cursor = found.view().get("cursor").and_then(|cursor| cursor.as_document()).unwrap();
    let batch = cursor.get("firstBatch").and_then(|batch| batch.as_array()).unwrap();
    assert_eq!(batch.iter().count(), 1, "{found:?}");
    batch.iter().next().and_then(|document| document.as_document()).unwrap().to_owned()
}

/// The outcome of a committed transaction is known after a kill, as in MongoDB's `config.transactions`.
fn repeat_commit_after_a_kill(durability: &str) {
    let data = Scratch::new("transactions");
    let options = [&SET[..], &["--durability", durability]].concat();
    let start = || Server::start_on(&data, &options).unwrap();
    let server = start();
    assert_eq!(number(&run_on(&server, "{insert: 'c', documents: [{_id: 1, n: 0}], $db: 'test'}"), "ok"), 1);
    let update = |server: &Server, of: i64| {
        let update =
            "update: 'c', updates: [{q: {_id: 1}, u: {$inc: {n: 1}}}], startTransaction: true, $db: 'test'";
        assert_eq!(number(&run_on(server, &within(of, update)), "ok"), 1);
    };
    update(&server, 3);
    assert_eq!(number(&commit(&server, 3), "ok"), 1);
    drop(server);
    let server = start();
    assert_eq!(number(&commit(&server, 3), "ok"), 1);
    let abort = run_on(&server, &within(3, "abortTransaction: 1, $db: 'admin'"));
    assert_eq!(number(&abort, "code"), 256, "{abort:?}");
    assert_eq!(number(&commit(&server, 2), "code"), 225);
    let shown = record(&server);
    let shown = shown.view();
    let names: Vec<_> = shown.iter().map(|element| element.name().to_string()).collect();
    assert_eq!(names, ["_id", "txnNum", "lastWriteOpTime", "lastWriteDate", "state"]);
    assert_eq!(shown.get("txnNum").and_then(|number| number.as_i64()), Some(3));
    assert_eq!(shown.get("state").and_then(|state| state.as_str()), Some("committed"));
    let time = shown.get("lastWriteOpTime").and_then(|time| time.as_document()).unwrap().get("ts");
    let logged = "{find: 'oplog.rs', filter: {txnNumber: 3}, $db: 'local'}";
    assert!(format!("{:?}", run_on(&server, logged)).contains(&format!("{:?}", time.unwrap())));
    // An uncommitted transaction is unknown. The next number works.
    update(&server, 4);
    drop(server);
    let server = start();
    let lost = commit(&server, 4);
    assert_eq!(number(&lost, "code"), 251, "{lost:?}");
    assert!(format!("{lost:?}").contains("TransientTransactionError"), "{lost:?}");
    update(&server, 5);
    assert_eq!(number(&commit(&server, 5), "ok"), 1);
    let found = run_on(&server, "{find: 'c', $db: 'test'}");
    assert!(format!("{found:?}").contains("\"n\": Int32(2)"), "{found:?}");
    for (refused, of) in [
        ("{insert: 'transactions', documents: [{}], $db: 'config'}", 20),
        ("{count: 'transactions', $db: 'config'}", -1),
    ] {
        assert_eq!(number(&run_on(&server, refused), "code"), of, "{refused}");
    }
}

#[test]
fn a_commit_repeated_after_a_kill_succeeds() {
    repeat_commit_after_a_kill("relaxed");
    repeat_commit_after_a_kill("journaled");
}

/// Returns the files below a directory with their contents.
fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
        match entry.path().is_dir() {
            true => found.extend(files(&entry.path())),
            false => drop(found.insert(entry.path(), std::fs::read(entry.path()).unwrap())),
        }
    }
    found
}

fn copy(from: &Path, to: &Path) {
    for (path, bytes) in files(from) {
        let path = to.join(path.strip_prefix(from).unwrap());
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}

#[test]
fn files_copied_under_a_write_lock_open_unchanged() {
    let (data, journal) = (Scratch::new("locked"), Scratch::new("locked-journal"));
    let server = Server::start_on(&data, &["--journal-dir", journal.to_str().unwrap()]).unwrap();
    let insert = |id: i32| format!("{{insert: 'c', documents: [{{_id: {id}}}], $db: 'test'}}");
    for id in 0..50 {
        run_on(&server, &insert(id));
    }
    let locked = run_on(&server, "{fsync: 1, lock: true, $db: 'admin'}");
    assert_eq!(number(&locked, "lockCount"), 1, "{locked:?}");
    let (ahead, later) = std::thread::scope(|scope| {
        let writers: Vec<_> = (50..58)
            .map(|id| {
                scope.spawn({
                    let server = &server;
                    move || run_on(server, &insert(id))
                })
            })
            .collect();
        let mut client = server.connect().unwrap();
        until("all inserts wait", || running(&mut client, "insert") == 8);
        let before = (files(&data), files(&journal));
        let counted = run_on(&server, "{count: 'c', $db: 'test'}");
        assert_eq!(number(&counted, "n"), 50, "reads go on, writes don't");
        let shown = run_on(&server, "{currentOp: 1, $db: 'admin'}");
        assert!(matches!(shown.view().get("fsyncLock"), Some(Value::Boolean(true))));
        // Longer than the journal's interval: the background writes nothing either.
        std::thread::sleep(Duration::from_millis(300));
        assert!(before == (files(&data), files(&journal)), "files changed under the lock");
        let copies = (Scratch::new("copy"), Scratch::new("copy-journal"));
        copy(&data, &copies.0);
        copy(&journal, &copies.1);
        let unlocked = run_on(&server, "{fsyncUnlock: 1, $db: 'admin'}");
        assert_eq!(number(&unlocked, "lockCount"), 0, "{unlocked:?}");
        for writer in writers {
            assert_eq!(number(&writer.join().unwrap(), "n"), 1);
        }
        copies
    });
    assert_eq!(number(&run_on(&server, "{count: 'c', $db: 'test'}"), "n"), 58);
    let shown = run_on(&server, "{currentOp: 1, $db: 'admin'}");
    assert!(shown.view().find("fsyncLock").is_none());
    let copied = Server::start_on(&ahead, &["--journal-dir", later.to_str().unwrap()]).unwrap();
    assert_eq!(number(&run_on(&copied, "{count: 'c', $db: 'test'}"), "n"), 50);
    let valid = run_on(&copied, "{validate: 'c', full: true, $db: 'test'}");
    assert!(matches!(valid.view().get("valid"), Some(Value::Boolean(true))), "{valid:?}");
}

#[test]
fn server_status_has_journal_and_cache() {
    let data = Scratch::new("status");
    let server = Server::start_on(&data, &["--durability", "journaled"]).unwrap();
    for id in 0..5 {
        run_on(&server, &format!("{{insert: 'c', documents: [{{_id: {id}}}], $db: 'test'}}"));
    }
    run_on(&server, "{fsync: 1, $db: 'admin'}");
    run_on(&server, "{find: 'c', $db: 'test'}");
    let status = run_on(&server, "{serverStatus: 1, $db: 'admin'}");
    let value = |path: &str| {
        let mut found = Some(Value::Document(status.view()));
        for name in path.split('.') {
            found = found.and_then(|value| value.as_document()?.get(name));
        }
        match found {
            Some(Value::Double(number)) => number,
            Some(other) => other.as_i64().unwrap() as f64,
            None => panic!("no {path} in {status:?}"),
        }
    };
    assert!(value("vellum.journal.commits") >= 5.0);
    assert!((5.0..=value("vellum.journal.commits")).contains(&value("vellum.journal.syncs")));
    assert!(value("vellum.journal.commitsPerSync") >= 1.0);
    let percentiles = ["p50", "p95", "p99"].map(|name| value(&format!("vellum.journal.syncMicros.{name}")));
    assert!(percentiles.is_sorted() && percentiles[0] > 0.0, "{percentiles:?}");
    assert!(value("vellum.journal.checkpoints") >= 1.0);
    assert!(value("vellum.cache.bytes") > 0.0 && value("vellum.cache.hits") > 0.0);
    assert!(value("vellum.cache.misses") >= 0.0 && value("vellum.cache.evictions") >= 0.0);
    assert!(value("vellum.fileBytes") > 0.0 && value("vellum.dataBytes") > 0.0);
}

#[test]
fn a_set_keeps_its_configuration_and_its_defaults() {
    let data = Scratch::new("set");
    let options = ["--replset", "rs0"];
    let server = Server::start_on(&data, &options).unwrap();
    let configure = |server: &Server| {
        let hello = run_on(server, "{hello: 1, $db: 'admin'}");
        let host = hello.view().get("me").and_then(|me| me.as_str()).unwrap();
        let member = format!("{{_id: 0, host: '{host}', priority: 3}}");
        let config = format!("{{_id: 'rs0', version: 7, protocolVersion: 1, members: [{member}]}}");
        run_on(server, &format!("{{replSetReconfig: {config}, $db: 'admin'}}"))
    };
    assert_eq!(number(&configure(&server), "ok"), 1);
    let set = "{setDefaultRWConcern: 1, defaultWriteConcern: {w: 1}, $db: 'admin'}";
    assert_eq!(number(&run_on(&server, set), "ok"), 1);
    let id = |server: &Server| {
        let reply = run_on(server, "{replSetGetConfig: 1, $db: 'admin'}");
        let config = reply.view().get("config").and_then(|config| config.as_document()).unwrap();
        let number = |name| config.get(name).and_then(|value| value.as_i64()).unwrap();
        let settings = config.get("settings").and_then(|settings| settings.as_document()).unwrap();
        let id = settings.get("replicaSetId").map(|id| id.to_owned());
        (number("version"), number("term"), id)
    };
    let (version, term, before) = id(&server);
    assert_eq!((version, term), (7, 1));
    drop(server);
    let server = Server::start_on(&data, &options).unwrap();
    assert_eq!(id(&server), (7, 2, before), "the same set, in another term");
    assert_eq!(number(&configure(&server), "code"), 103);
    let defaults = run_on(&server, "{getDefaultRWConcern: 1, $db: 'admin'}");
    let source = defaults.view().get("defaultWriteConcernSource").and_then(|source| source.as_str());
    assert_eq!(source, Some("global"));
}

#[test]
fn a_start_drops_temporary_collections() {
    let data = Scratch::new("temporary");
    let server = Server::start_on(&data, &[]).unwrap();
    // The name that `$out` chooses, and a name that is only similar.
    let names = ["tmp.agg_out.0123456789abcdef01234567", "tmp.agg_out.mine"];
    for name in names {
        run_on(&server, &format!("{{insert: '{name}', documents: [{{_id: 1}}], $db: 'test'}}"));
    }
    drop(server);
    let server = Server::start_on(&data, &[]).unwrap();
    let counts =
        names.map(|name| number(&run_on(&server, &format!("{{count: '{name}', $db: 'test'}}")), "n"));
    assert_eq!(counts, [0, 1]);
}
