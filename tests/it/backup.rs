//! Backups of a server under load. Restores to random points in time are compared with the server's log. Interrupted,
//! missing, damaged and forbidden backups are tested too.
//!
//! `VELLUM_BACKUP_WRITES` is the number of writes by each of eight writers, `VELLUM_BACKUP_MOMENTS` the number of
//! points in time.

use crate::client::Client;
use crate::requests::until;
use crate::server::{Scratch, Server};
use base::bson::extended_json::parse;
use base::bson::{Document, DocumentBuf, Value};
use base::random::Random;
use server::{LocalConnection, Settings};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use storage::{DiskOptions, ReadOnlyEngine};

const WRITERS: u64 = 8;

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

fn vellum<S: AsRef<std::ffi::OsStr>>(words: &[S]) -> (Output, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_vellum")).args(words).output().unwrap();
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    (output, String::from_utf8_lossy(&text).into_owned())
}

fn succeeds(words: &[&str]) -> String {
    let (output, text) = vellum(words);
    assert!(output.status.success(), "{words:?}: {text}");
    text
}

fn fails(words: &[&str], code: i32) -> String {
    let (output, text) = vellum(words);
    assert_eq!(output.status.code(), Some(code), "{words:?}: {text}");
    text
}

fn run(client: &mut Client, command: &str) -> DocumentBuf {
    let reply = client.command(&parse(command).unwrap()).unwrap();
    assert_eq!(reply.view().get("ok").and_then(|ok| ok.as_i64()), Some(1), "{command}: {reply:?}");
    reply
}

/// The documents of `test.c` by `_id`.
type Contents = BTreeMap<i64, Vec<u8>>;

fn id(document: Document<'_>) -> i64 {
    document.get("_id").and_then(|id| id.as_i64()).unwrap()
}

fn time(value: Option<Value<'_>>) -> u64 {
    match value {
        Some(Value::Timestamp(time)) => {
            // The text is as a driver shows it.
            let text = format!("{time:?}");
            let numbers: Vec<u64> =
                text.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect();
            match numbers.as_slice() {
                [seconds, increment] => seconds << 32 | increment,
                [timestamp] => *timestamp,
                _ => panic!("{text}"),
            }
        }
        other => panic!("no time: {other:?}"),
    }
}

/// Returns all documents of `test.c` in a data directory, after validating each collection.
fn contents(data: &Path) -> Contents {
    let still = ReadOnlyEngine::open(&DiskOptions::new(data)).unwrap();
    let database = database::Database::open(Arc::new(still), Arc::new(database::SystemClock), 1).unwrap();
    let server = Arc::new(server::Server::new(Settings::default(), database).unwrap());
    let mut local = LocalConnection::of_server(&server);
    let mut ask = |command: &str| local.command(parse(command).unwrap().view()).unwrap();
    let valid = ask("{validate: 'c', full: true, $db: 'test'}");
    assert_eq!(valid.view().get("valid").and_then(|valid| valid.as_bool()), Some(true), "{valid:?}");
    let found = ask("{find: 'c', batchSize: 1000000, $db: 'test'}");
    let cursor = found.view().get("cursor").and_then(|cursor| cursor.as_document()).unwrap();
    assert_eq!(cursor.get("id").and_then(|id| id.as_i64()), Some(0));
    let batch = cursor.get("firstBatch").and_then(|batch| batch.as_array()).unwrap();
    batch
        .iter()
        .filter_map(|value| value.as_document())
        .map(|found| (id(found), found.bytes().to_vec()))
        .collect()
}

/// Returns the changes of `test.c` in the server's log with their times.
fn log(client: &mut Client) -> Vec<(u64, i64, Option<Vec<u8>>)> {
    let mut changes = Vec::new();
    let mut reply =
        run(client, "{find: 'oplog.rs', filter: {ns: 'test.c', op: {$in: ['i', 'u', 'd']}}, $db: 'local'}");
    let mut name = "firstBatch";
    loop {
        let cursor = reply.view().get("cursor").and_then(|cursor| cursor.as_document()).unwrap();
        for entry in cursor.get(name).and_then(|batch| batch.as_array()).unwrap().iter() {
            let entry = entry.as_document().unwrap();
            let object = entry.get("o").and_then(|object| object.as_document()).unwrap();
            let (which, after) = match entry.get("op").and_then(|op| op.as_str()).unwrap() {
                "d" => (object, None),
                _ => (object, Some(object.bytes().to_vec())),
            };
            changes.push((time(entry.get("ts")), id(which), after));
        }
        let more = cursor.get("id").and_then(|id| id.as_i64()).unwrap();
        if more == 0 {
            return changes;
        }
        reply = run(
            client,
            &format!("{{getMore: {{$numberLong: '{more}'}}, collection: 'oplog.rs', $db: 'local'}}"),
        );
        name = "nextBatch";
    }
}

/// Inserts, replaces and deletes the writer's own documents.
fn write(client: &mut Client, writer: u64, writes: u64) {
    let random = Random::new(writer * 977 + 5);
    let mut there = BTreeMap::new();
    for at in 0..writes {
        let id = writer * 1_000_000 + random.below(60);
        let pad = "x".repeat(random.below(200) as usize);
        let document = format!("{{_id: {id}, w: {writer}, n: {at}, pad: '{pad}'}}");
        let reply = match there.contains_key(&id) {
            false => run(client, &format!("{{insert: 'c', documents: [{document}], $db: 'test'}}")),
            true if random.below(4) == 0 => {
                there.remove(&id);
                let reply = run(
                    client,
                    &format!("{{delete: 'c', deletes: [{{q: {{_id: {id}}}, limit: 1}}], $db: 'test'}}"),
                );
                assert_eq!(reply.view().get("n").and_then(|n| n.as_i64()), Some(1));
                continue;
            }
            true => run(
                client,
                &format!("{{update: 'c', updates: [{{q: {{_id: {id}}}, u: {document}}}], $db: 'test'}}"),
            ),
        };
        assert_eq!(reply.view().get("n").and_then(|n| n.as_i64()), Some(1));
        there.insert(id, at);
    }
}

#[test]
fn a_backup_under_eight_writers_restores_to_any_time() {
    let (writes, moments) = (setting("VELLUM_BACKUP_WRITES", 150), setting("VELLUM_BACKUP_MOMENTS", 20));
    let scratch = Scratch::new("backup");
    let path = |name: &str| scratch.join(name).to_string_lossy().into_owned();
    let (data, archive, to) = (path("data"), path("archive"), path("backup"));
    let options = ["--replset", "rs0", "--journal-archive", &archive, "--journal-archive-keep", "7d"];
    let server = Server::start_on(Path::new(&data), &options).unwrap();
    let uri = format!("mongodb://{}/", server.address());
    let mut client = server.connect().unwrap();
    run(&mut client, "{createIndexes: 'c', indexes: [{key: {w: 1, n: 1}, name: 'w_n'}], $db: 'test'}");
    run(&mut client, "{insert: 'c', documents: [{_id: {$numberLong: '-1'}, w: -1}], $db: 'test'}");
    let first = succeeds(&["backup", &uri, &to]);
    assert!(first.contains("000001.full: everything"), "{first}");
    // Ensures that the second of every later change begins after the backup.
    let second = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let taken = second();
    until("the next second begins", || second() > taken);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                scope.spawn({
                    let mut client = server.connect().unwrap();
                    move || write(&mut client, writer, writes)
                })
            })
            .collect();
        // Checkpoints remove the journal and archive it.
        scope.spawn(|| {
            let mut client = server.connect().unwrap();
            while !stop.load(Ordering::Relaxed) {
                run(&mut client, "{fsync: 1, $db: 'admin'}");
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let mut backups = 0;
        while writers.iter().any(|writer| !writer.is_finished()) || backups < 2 {
            let printed = match backups {
                1 => succeeds(&["backup", "--full", &uri, &to]),
                _ => succeeds(&["backup", &uri, &to]),
            };
            let expected =
                if backups == 1 { ".full: everything" } else { "commits since the previous backup" };
            assert!(printed.contains(expected), "{printed}");
            backups += 1;
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        stop.store(true, Ordering::Relaxed);
    });
    run(&mut client, "{fsync: 1, $db: 'admin'}");
    let changes = log(&mut client);
    assert_eq!(changes.len() as u64, WRITERS * writes + 1);
    let at_moment = |until: u64| {
        let mut model = Contents::new();
        for (time, id, after) in changes.iter().filter(|(time, ..)| *time <= until) {
            assert!(*time > 0);
            match after {
                Some(document) => _ = model.insert(*id, document.clone()),
                None => _ = model.remove(id),
            }
        }
        model
    };
    let random = Random::new(moments);
    for number in 0..moments {
        let until = changes[random.below(changes.len() as u64) as usize].0;
        let target = path(&format!("to-{number}"));
        let (seconds, increment) = (until >> 32, until & 0xFFFF_FFFF);
        let at = format!("{seconds},{increment}");
        succeeds(&["restore", &to, "--data", &target, "--at", &at, "--journal-archive", &archive]);
        assert!(contents(Path::new(&target)) == at_moment(until), "as of {at}");
        std::fs::remove_dir_all(&target).unwrap();
    }
    // A full second: it includes commits before its start.
    let second = changes[changes.len() / 2].0 >> 32;
    let clock = jiff::Timestamp::from_second(second as i64).unwrap().to_string();
    let target = path("second");
    succeeds(&["restore", &to, "--data", &target, "--at", &clock, "--journal-archive", &archive]);
    assert!(contents(Path::new(&target)) == at_moment((second << 32) - 1), "as of {clock}");
    // The restored data is served again. A backup of it starts anew, since its history is different.
    let last = path("last");
    succeeds(&["restore", &to, "--data", &last, "--journal-archive", &archive]);
    assert!(contents(Path::new(&last)) == at_moment(u64::MAX));
    let text = succeeds(&["verify", &to, "--journal-archive", &archive, "--scratch", &path("")]);
    assert!(text.contains("test.c:") && text.contains("2 indexes"), "{text}");
    let again = Server::start_on(Path::new(&last), &["--replset", "rs0"]).unwrap();
    run(&mut again.connect().unwrap(), "{insert: 'c', documents: [{w: 99}], $db: 'test'}");
    let printed = succeeds(&["backup", &format!("mongodb://{}/", again.address()), &to]);
    assert!(printed.contains("everything (the earlier backup is of another data directory)"), "{printed}");
    // A directory that cannot be read leaves no file in the target.
    let (missing, empty) = (path("missing"), path("empty"));
    let printed = fails(&["backup", "--data", &missing, &empty, "--quiet"], 1);
    assert!(printed.contains("missing does not exist") && !Path::new(&empty).exists(), "{printed}");
    // A directory in use by a server is not read.
    let printed = fails(&["backup", "--data", &last, &to], 1);
    assert!(printed.contains("connection string"), "{printed}");
    assert!(fails(&["verify", &last], 2).contains("another Vellum"));
    assert!(fails(&["restore", &to, "--data", &last], 1).contains("isn't empty"));
    drop(again);
    let printed = succeeds(&["backup", "--data", &last, &to]);
    assert!(printed.contains("0 commits since"), "{printed}");
    assert!(fails(&["restore", &to, "--data", &last], 1).contains("isn't empty"));
    succeeds(&["verify", &last]);
}

/// Creates a data directory with an index, and stops its server.
fn filled(data: &Path) -> Contents {
    let mut server = Server::start_on(data, &[]).unwrap();
    let mut client = server.connect().unwrap();
    run(&mut client, "{createIndexes: 'c', indexes: [{key: {n: 1}, name: 'n'}], $db: 'test'}");
    for batch in 0..20 {
        let documents: Vec<String> = (batch * 500..batch * 500 + 500)
            .map(|id| {
                format!("{{_id: {id}, n: {}, pad: '{}'}}", id * 7 % 1000, "y".repeat(id as usize % 300))
            })
            .collect();
        run(&mut client, &format!("{{insert: 'c', documents: [{}], $db: 'test'}}", documents.join(", ")));
    }
    drop(client);
    server.end();
    contents(data)
}

#[test]
fn a_killed_backup_is_incomplete() {
    let scratch = Scratch::new("killed");
    let path = |name: &str| scratch.join(name).to_string_lossy().into_owned();
    let (data, to, target) = (path("data"), path("backup"), path("target"));
    let expected = filled(Path::new(&data));
    let mut killed = [0; 2];
    let began = Instant::now();
    succeeds(&["backup", "--data", &data, &path("whole")]);
    let duration = began.elapsed().as_micros() as u64;
    for round in 0..12 {
        let mut child = Command::new(env!("CARGO_BIN_EXE_vellum"))
            .args(["backup", "--data", &data, &to])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_micros(duration * (round + 1) / 13));
        child.kill().unwrap();
        child.wait().unwrap();
        let (output, text) = vellum(&["restore", &to, "--data", &target]);
        match output.status.success() {
            true => {
                assert!(contents(Path::new(&target)) == expected);
                std::fs::remove_dir_all(&target).unwrap();
            }
            false => {
                let known =
                    ["is incomplete", "it contains no full backup", "is not a backup", "does not exist"];
                assert!(known.iter().any(|why| text.contains(why)), "{text}");
            }
        }
        killed[usize::from(output.status.success())] += 1;
        if output.status.success() {
            std::fs::remove_dir_all(&to).unwrap();
        }
    }
    assert!(killed[0] > 0, "none was killed in time: {killed:?}");
    // An uninterrupted backup completes, whatever remains of earlier ones.
    succeeds(&["backup", "--data", &data, &to]);
    succeeds(&["restore", &to, "--data", &target]);
    assert!(contents(Path::new(&target)) == expected);
    std::fs::remove_dir_all(&target).unwrap();
    // A killed restore leaves nothing that a server opens.
    let began = Instant::now();
    succeeds(&["restore", &to, "--data", &target]);
    let duration = began.elapsed().as_micros() as u64;
    for round in 0..8 {
        let target = path(&format!("target-{round}"));
        let mut child = Command::new(env!("CARGO_BIN_EXE_vellum"))
            .args(["restore", &to, "--data", &target])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_micros(duration * (round + 1) / 9));
        child.kill().unwrap();
        child.wait().unwrap();
        if Path::new(&target).join("vellum.format").exists() {
            let (output, text) = vellum(&["verify", &target]);
            match output.status.code() {
                Some(0) => assert!(contents(Path::new(&target)) == expected),
                _ => assert!(
                    text.contains("an interrupted restore") || text.contains("another Vellum"),
                    "{text}"
                ),
            }
        }
    }
}

#[test]
fn commits_may_be_larger_than_a_document() {
    let scratch = Scratch::new("large");
    let path = |name: &str| scratch.join(name).to_string_lossy().into_owned();
    let (data, to) = (path("data"), path("backup"));
    let mut server = Server::start_on(Path::new(&data), &[]).unwrap();
    let mut client = server.connect().unwrap();
    let uri = format!("mongodb://{}/", server.address());
    let mut insert = |id: usize, length: usize| {
        let document = format!("{{_id: {id}, pad: '{}'}}", "z".repeat(length));
        run(&mut client, &format!("{{insert: 'c', documents: [{document}], $db: 'test'}}"));
    };
    insert(0, 200_000);
    insert(1, 16_777_000);
    assert!(succeeds(&["backup", &uri, &to]).contains("everything"));
    [10_000_000, 15_000_000, 16_777_000].into_iter().zip(2..).for_each(|(length, id)| insert(id, length));
    assert!(!succeeds(&["backup", &uri, &to]).contains("everything"));
    server.end();
    // The journal of a stopped server is that of the backup, and has no commits.
    let journal = path("data/journal");
    succeeds(&["restore", &to, "--data", &path("target"), "--journal-archive", &journal]);
    assert!(succeeds(&["verify", &path("target")]).contains("test.c: 5 documents"));
    // A server that stops moves later commits out of its journal. A restore does not leave them out.
    let mut server = Server::start_on(Path::new(&data), &[]).unwrap();
    run(&mut server.connect().unwrap(), "{insert: 'c', documents: [{_id: 9}], $db: 'test'}");
    server.end();
    let refused = fails(&["restore", &to, "--data", &path("other"), "--journal-archive", &journal], 1);
    assert!(refused.contains("no longer in its journal"), "{refused}");
}

#[test]
fn damage_and_missing_files_are_reported() {
    let scratch = Scratch::new("damaged");
    let path = |name: &str| scratch.join(name).to_string_lossy().into_owned();
    let (data, to) = (path("data"), path("backup"));
    filled(Path::new(&data));
    assert!(succeeds(&["verify", &data]).contains("test.c: 10000 documents, 2 indexes"));
    succeeds(&["backup", "--data", &data, &to, "--quiet"]);
    succeeds(&["verify", &to]);
    let damage = |path: &Path, at: usize| {
        let mut bytes = std::fs::read(path).unwrap();
        let at = at.min(bytes.len() - 1);
        bytes[at] ^= 0x10;
        std::fs::write(path, bytes).unwrap();
    };
    damage(&Path::new(&to).join("000001.full"), 100_000);
    let text = fails(&["verify", &to], 1);
    assert!(text.contains("damaged:") && text.contains("000001.full"), "{text}");
    assert!(fails(&["restore", &to, "--data", &path("target")], 1).contains("000001.full"));
    // Some of these bytes belong to a page, not to its padding.
    let base = Path::new(&data).join("base.vellum");
    let middle = std::fs::metadata(&base).unwrap().len() as usize / 2;
    (0..20).for_each(|at| damage(&base, middle + at * 100));
    let text = fails(&["verify", &data], 1);
    assert!(text.contains("damaged:"), "{text}");
    assert!(fails(&["backup", "--data", &data, &path("other")], 1).contains("damaged"));
    assert!(fails(&["verify", &path("nowhere")], 2).contains("nowhere"));
    assert!(fails(&["backup", "--data", &path("nowhere"), &path("third")], 1).contains("nowhere"));
}

#[test]
fn the_memory_engine_is_backed_up_and_users_need_the_role() {
    let scratch = Scratch::new("memory");
    let path = |name: &str| scratch.join(name).to_string_lossy().into_owned();
    let server = Server::start_with(&["--auth", "--test-commands"]).unwrap();
    let mut client = server.connect().unwrap();
    run(&mut client, "{createUser: 'root', pwd: 'secret', roles: ['root'], $db: 'admin'}");
    client.login(("root", "admin"), "secret", wire::scram::Mechanism::Sha256).unwrap();
    run(&mut client, "{createUser: 'saver', pwd: 'secret', roles: ['backup'], $db: 'admin'}");
    run(&mut client, "{createUser: 'reader', pwd: 'secret', roles: ['readAnyDatabase'], $db: 'admin'}");
    run(&mut client, "{insert: 'c', documents: [{_id: 1}, {_id: 2}], $db: 'test'}");
    let uri = |user: &str| format!("mongodb://{user}{}/", server.address());
    let to = path("backup");
    for user in ["", "reader:secret@"] {
        let text = fails(&["backup", &uri(user), &to], 1);
        assert!(text.contains("auth"), "{text}");
    }
    let printed = succeeds(&["backup", &uri("saver:secret@"), &to]);
    assert!(printed.contains("everything"), "{printed}");
    let target = path("target");
    succeeds(&["restore", &to, "--data", &target]);
    assert_eq!(contents(Path::new(&target)).len(), 2);
    let restored = Server::start_on(Path::new(&target), &["--auth"]).unwrap();
    let mut client = restored.connect().unwrap();
    client.login(("root", "admin"), "secret", wire::scram::Mechanism::Sha256).unwrap();
    run(&mut client, "{count: 'c', $db: 'test'}");
}
