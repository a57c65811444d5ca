//! Behaviour at the memory limit: data stops growing, and reads and deletes continue. Operations of disconnected
//! clients hold no memory.

use crate::client::Client;
use crate::requests::{number, until};
use crate::server::{Scratch, Server};
use base::bson::extended_json::parse;
use base::bson::{Builder, DocumentBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Address space of servers in kilobytes.
const SPACE: u64 = 8 << 20;
/// Timeout on a busy machine for events that normally take a second or two.
const TIMEOUT: Duration = Duration::from_secs(20);

fn command(client: &mut Client, text: &str) -> DocumentBuf {
    let mut sent = Builder::new();
    sent.append_all(parse(text).unwrap().view());
    sent.append(c"$db", if text.contains("currentOp") { "admin" } else { "test" });
    client.command(&sent.finish()).unwrap()
}

/// Inserts two megabytes and returns the code of the write error, zero for success.
fn insert(client: &mut Client) -> i64 {
    let mut sent = Builder::new();
    sent.append(c"insert", "c").begin_array(c"documents");
    for _ in 0..20 {
        sent.push_document().append(c"text", "x".repeat(100_000).as_str()).end();
    }
    sent.end().append(c"$db", "test");
    let reply = client.command(&sent.finish()).unwrap();
    let first = reply.view().get("writeErrors").and_then(|errors| errors.as_array()?.get(0)?.as_document());
    let text = first.and_then(|error| error.get("errmsg")?.as_str()).unwrap_or("--memory-limit");
    assert!(text.contains("--memory-limit"), "{text}");
    first.and_then(|error| error.get("code")?.as_i64()).unwrap_or(0)
}

#[test]
fn data_stops_growing_and_can_be_deleted() {
    let Some(server) = Server::start_bounded(SPACE, &["--memory-limit", "128M"]) else { return };
    assert!(server.log().contains("Memory limit of this process"), "{}", server.log());
    let mut client = server.connect().unwrap();
    let inserted = (0..200).take_while(|_| insert(&mut client) == 0).count();
    assert!((20..90).contains(&inserted), "{inserted} times two megabytes went into 128");
    let found = command(&mut client, "{count: 'c', query: {text: /^x/}}");
    assert!(number(&found, "n") >= 20 * inserted as i64, "{found}");
    let same = command(&mut client, "{update: 'c', updates: [{q: {}, u: {$unset: {text: 1}}}]}");
    assert_eq!((number(&same, "n"), number(&same, "ok")), (1, 1), "{same}");
    let status = command(&mut client, "{serverStatus: 1}");
    let memory = status.view().get("vellum").and_then(|section| section.as_document()?.get("memory"));
    let refuses = memory.and_then(|memory| memory.as_document()?.get("refusesGrowth")?.as_bool());
    assert_eq!(refuses, Some(true), "{status}");
    let deleted = command(&mut client, "{delete: 'c', deletes: [{q: {}, limit: 0}]}");
    assert!(number(&deleted, "n") >= 20 * inserted as i64, "{deleted}");
    until("memory comes back", || insert(&mut client) == 0);
}

fn resident_megabytes(client: &mut Client) -> i64 {
    let status = command(client, "{serverStatus: 1}");
    let memory = status.view().get("mem").and_then(|memory| memory.as_document());
    memory.and_then(|memory| memory.get("resident")?.as_i64()).unwrap_or(-1)
}

/// Only if the allocator returns single pages.
#[test]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn dropped_memory_is_freed_between_remaining_data() {
    let Some(server) = Server::start() else { return };
    let mut client = server.connect().unwrap();
    let before = resident_megabytes(&mut client);
    for id in 0..100 {
        let mut sent = Builder::new();
        sent.append(c"insert", "c").begin_array(c"documents");
        for length in 0..1000 {
            sent.push_document().append(c"text", "x".repeat(length % 400).as_str()).end();
        }
        sent.end().append(c"$db", "test");
        assert_eq!(number(&client.command(&sent.finish()).unwrap(), "n"), 1000);
        command(&mut client, &format!("{{insert: 'kept', documents: [{{_id: {id}}}]}}"));
    }
    let full = resident_megabytes(&mut client);
    assert!(full > before + 20, "{before} and {full} MB");
    command(&mut client, "{drop: 'c'}");
    let started = Instant::now();
    let mut now = full;
    while now > before + 12 {
        assert!(
            started.elapsed() < TIMEOUT,
            "{before} MB at the beginning, {full} with the data, {now} without"
        );
        thread::sleep(Duration::from_millis(200));
        now = resident_megabytes(&mut client);
    }
    assert_eq!(number(&command(&mut client, "{count: 'kept'}"), "n"), 100);
}

#[test]
fn one_operation_stays_within_its_memory_limit() {
    let Some(server) = Server::start() else { return };
    let mut client = server.connect().unwrap();
    let set = |client: &mut Client, bytes: i64| {
        let mut sent = Builder::new();
        sent.append(c"setParameter", 1).append(c"internalQueryMaxOperationMemoryBytes", bytes);
        sent.append(c"$db", "admin");
        number(&client.command(&sent.finish()).unwrap(), "was")
    };
    let was = set(&mut client, 5_000_000);
    assert!(was >= 5_000_000, "{was}");
    let large = "{aggregate: 1, cursor: {}, pipeline: [{$documents: [{}]}, {$set: {x: {$range: [0, 400000]}}}, {$set: {n: {$size: {$concatArrays: ['$x', '$x']}}}}, {$project: {n: 1}}]}";
    let refused = command(&mut client, large);
    assert_eq!(number(&refused, "code"), 146, "{refused}");
    assert_eq!(number(&command(&mut client, "{insert: 'c', documents: [{_id: 1, l: [1]}]}"), "n"), 1);
    let padded = command(&mut client, "{update: 'c', updates: [{q: {_id: 1}, u: {$set: {'l.1400000': 1}}}]}");
    assert!(padded.to_string().contains("code: 146"), "{padded:.500}");
    assert_eq!(set(&mut client, was), 5_000_000);
    let executed = command(&mut client, large);
    assert_eq!(number(&executed, "ok"), 1, "{executed}");
}

#[test]
fn reads_end_with_their_client() {
    let Some(server) = Server::start() else { return };
    let mut second = server.connect().unwrap();
    let endless = "{$documents: [{}]}, {$set: {n: {$reduce: {input: {$range: [0, 1000000]}, initialValue: 0, in: {$size: {$range: ['$$this', 1100000]}}}}}}";
    let mut leaving = Client::connect(server.address(), Duration::from_millis(500)).unwrap();
    let mut sent = Builder::new();
    let text = format!("{{aggregate: 1, cursor: {{}}, pipeline: [{endless}]}}");
    sent.append_all(parse(&text).unwrap().view()).append(c"$db", "test");
    let address = leaving.address();
    assert!(leaving.command(&sent.finish()).is_err(), "that takes longer");
    let runs = |second: &mut Client| {
        let current = command(second, &format!("{{currentOp: 1, client: '{address}'}}"));
        current
            .view()
            .get("inprog")
            .and_then(|list| list.as_array())
            .is_some_and(|list| list.get(0).is_some())
    };
    // On a busy machine it may not have begun.
    until("it begins, and goes on with its client still there", || runs(&mut second));
    drop(leaving);
    until("it ends with its client", || !runs(&mut second));
}

/// Each waiting insert may need a thread. With address space for few threads, all inserts must still succeed.
#[test]
fn waiting_inserts_hold_no_threads() {
    const CLIENTS: usize = 2000;
    let data = Scratch::new("threads");
    let Some(server) = Server::start_bounded_on(&data, SPACE / 8, &["--durability", "journaled"]) else {
        return;
    };
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.connect().unwrap()).collect();
    for concern in ["{w: 1, j: true}", "{w: 1, j: true, wtimeout: 60000}"] {
        let text = format!("{{insert: 'c', documents: [{{a: 1}}], writeConcern: {concern}}}");
        let mut sent = Builder::new();
        sent.append_all(parse(&text).unwrap().view()).append(c"$db", "test");
        let insert = sent.finish();
        clients.iter_mut().for_each(|client| client.send_command(&insert).unwrap());
        for client in &mut clients {
            let reply = client.reply().unwrap();
            assert_eq!((number(&reply, "ok"), number(&reply, "n")), (1, 1), "{reply} {}", server.log_tail());
        }
    }
    assert_eq!(number(&command(&mut clients[0], "{count: 'c'}"), "n"), 2 * CLIENTS as i64);
    assert!(!server.log().contains("panicked"), "{}", server.log());
}

/// Each pattern and thread used to have a megabyte of stack, and a thread panicked when 20,000 of these did not fit. In
/// much less space all patterns must be evaluated now, and their memory belongs to the operation.
#[test]
fn patterns_count_as_memory_of_the_operation() {
    let Some(server) = Server::start_bounded(SPACE / 4, &[]) else { return };
    let mut client = server.connect().unwrap();
    command(&mut client, "{insert: 'c', documents: [{_id: 1, s: 'a19999 x'}, {_id: 2, s: 'b'}]}");
    let patterns: Vec<String> = (0..20_000).map(|number| format!("/(a|b){number}+.*[xyz]/")).collect();
    let find = format!("{{find: 'c', filter: {{s: {{$in: [{}]}}}}}}", patterns.join(", "));
    let found = command(&mut client, &find);
    let batch =
        found.view().get("cursor").and_then(|cursor| cursor.as_document()?.get("firstBatch")?.as_array());
    let ids =
        batch.map(|batch| batch.iter().filter_map(|each| each.as_document()?.get("_id")?.as_i64()).collect());
    // The other document matches no pattern.
    assert_eq!(ids, Some(vec![1]), "{found:.300}");
    let set = |client: &mut Client, bytes: i64| {
        let mut sent = Builder::new();
        sent.append(c"setParameter", 1)
            .append(c"internalQueryMaxOperationMemoryBytes", bytes)
            .append(c"$db", "admin");
        number(&client.command(&sent.finish()).unwrap(), "was")
    };
    let was = set(&mut client, 20_000_000);
    let refused = command(&mut client, &find);
    assert_eq!(number(&refused, "code"), 146, "{refused:.300}");
    assert_eq!(set(&mut client, was), 20_000_000);
    let again = command(&mut client, &find);
    assert_eq!(number(&again, "ok"), 1, "{again:.300}");
    assert!(!server.log().contains("panicked"), "{}", server.log());
}

/// A transaction holds the keys of the documents that it deletes, not the documents.
#[test]
fn a_transaction_may_delete_many_bytes() {
    let data = Scratch::new("deleting");
    let options = ["--replset", "rs0", "--cache-size", "16M"];
    let start = || Server::start_bounded_on(&data, SPACE, &options);
    let Some(server) = start() else { return };
    let mut client = server.connect().unwrap();
    for id in 0..150 {
        let mut sent = Builder::new();
        sent.append(c"insert", "c").begin_array(c"documents").push_document().append(c"_id", id);
        sent.append(c"text", "x".repeat(2_000_000).as_str()).end().end().append(c"$db", "test");
        assert_eq!(number(&client.command(&sent.finish()).unwrap(), "n"), 1);
    }
    // A new process has none of the documents in memory.
    drop((client, server));
    let Some(server) = start() else { return };
    let mut client = server.connect().unwrap();
    let before = resident_megabytes(&mut client);
    let deleted = command(
        &mut client,
        "{delete: 'c', deletes: [{q: {}, limit: 0}], lsid: {id: UUID('00000000-0000-4000-8000-000000000001')},
          txnNumber: {$numberLong: '1'}, autocommit: false, startTransaction: true}",
    );
    assert_eq!(number(&deleted, "n"), 150, "{deleted}");
    let more = resident_megabytes(&mut client) - before;
    assert!(more < 150, "{more} MB for 150 keys of documents with 300 MB");
}

/// Idle cursors between updates of 10 MB, in memory and on disk.
#[test]
fn idle_cursors_keep_a_limited_history() {
    let data = crate::root().join("target/tmp/idle_cursors");
    _ = std::fs::remove_dir_all(&data);
    let disk = ["--data", data.to_str().unwrap(), "--cache-size", "64M"];
    for options in [&[][..], &disk[..]] {
        let Some(server) = Server::start_bounded(SPACE, options) else { return };
        let mut client = server.connect().unwrap();
        let bound = parse("{setParameter: 1, maxSnapshotHistoryBytes: 64000000, $db: 'admin'}").unwrap();
        client.command(&bound).unwrap();
        command(&mut client, "{insert: 'c', documents: [{_id: 0}, {_id: 1}, {_id: 2}, {_id: 3}]}");
        let cursor = |reply: &DocumentBuf| {
            let cursor =
                reply.view().get("cursor").and_then(|cursor| cursor.as_document()?.get("id")?.as_i64());
            cursor.unwrap_or_else(|| panic!("{reply}"))
        };
        let mut cursors = Vec::new();
        for turn in 0..60 {
            let mut sent = Builder::new();
            sent.append(c"update", "c").begin_array(c"updates").push_document();
            sent.begin_document(c"q").append(c"_id", 3).end().begin_document(c"u").append(c"turn", turn);
            sent.append(c"text", "x".repeat(10_000_000).as_str()).end().end().end().append(c"$db", "test");
            let updated = client.command(&sent.finish()).unwrap();
            assert_eq!(number(&updated, "n"), 1, "{updated}");
            cursors.push(cursor(&command(&mut client, "{find: 'c', batchSize: 1, sort: {_id: 1}}")));
        }
        let mut more = |id: i64| {
            let next = format!("{{getMore: {{$numberLong: '{id}'}}, collection: 'c', batchSize: 1}}");
            command(&mut client, &next)
        };
        let first = more(cursors[0]);
        assert_eq!(number(&first, "code"), 175, "{options:?}: {first}");
        assert_eq!(number(&more(cursors[59]), "ok"), 1, "{options:?}");
        let resident = resident_megabytes(&mut client);
        // 600 MB have been replaced. A debug build uses about 100 MB for the last updates and the replies.
        assert!(resident < 400, "{options:?}: {resident} MB");
    }
    _ = std::fs::remove_dir_all(&data);
}

/// Idle cursors on disk between inserts of 15 MB, which checkpoints write.
#[test]
fn idle_cursors_keep_limited_changes_in_memory() {
    let data = Scratch::new("idle_cursors_inserts");
    let Some(server) = Server::start_on(&data, &["--cache-size", "64M"]) else { return };
    let mut client = server.connect().unwrap();
    command(&mut client, "{insert: 'c', documents: [{_id: 0}, {_id: 1}, {_id: 2}]}");
    let mut cursors = Vec::new();
    for turn in 0..40 {
        let mut sent = Builder::new();
        sent.append(c"insert", "d").begin_array(c"documents");
        for _ in 0..15 {
            sent.push_document().append(c"text", "x".repeat(1_000_000).as_str()).end();
        }
        sent.end().append(c"$db", "test");
        assert_eq!(number(&client.command(&sent.finish()).unwrap(), "n"), 15, "{turn}");
        let found = command(&mut client, "{find: 'c', batchSize: 1}");
        let cursor = found.view().get("cursor").and_then(|cursor| cursor.as_document()?.get("id")?.as_i64());
        cursors.push(cursor.unwrap_or_else(|| panic!("{found}")));
        // The server limits the changes once a second.
        thread::sleep(Duration::from_millis(250));
    }
    let mut more = |id: i64| {
        let next = format!("{{getMore: {{$numberLong: '{id}'}}, collection: 'c', batchSize: 1}}");
        command(&mut client, &next)
    };
    let (first, last) = (more(cursors[0]), more(cursors[39]));
    let resident = resident_megabytes(&mut client);
    assert_eq!((number(&first, "code"), number(&last, "ok")), (175, 1), "{resident} MB");
    // 600 MB were inserted.
    assert!(resident < 400, "{resident} MB");
}
