//! Waiting commands (during an fsync lock, during an index build) block no other client and can be ended, whatever
//! their number.

use crate::client::Client;
use crate::requests::{run, running, succeed, until};
use crate::server::Server;
use base::bson::DocumentBuf;
use base::bson::extended_json::parse;
use std::thread;
use std::time::{Duration, Instant};

/// More than tokio's default number of blocking threads.
const WAITING: usize = 600;

fn number(reply: &DocumentBuf, name: &str) -> Option<i64> {
    reply.view().get(name).and_then(|value| value.as_i64())
}

#[test]
fn six_hundred_aggregates_wait_for_fsync_unlock_and_the_server_stops() {
    let Some(mut server) = Server::start() else { return };
    let mut client = server.connect().unwrap();
    run(&mut client, "{insert: 'c', documents: [{_id: 1}], $db: 'test'}");
    assert_eq!(number(&run(&mut client, "{fsync: 1, lock: true, $db: 'admin'}"), "lockCount"), Some(1));
    let aggregate = |number: usize| {
        let stage = if (number / 2).is_multiple_of(2) { "$merge: 'd'" } else { "$out: 'e'" };
        let limit = if number.is_multiple_of(2) { "" } else { "maxTimeMS: 300, " };
        format!("{{aggregate: 'c', pipeline: [{{{stage}}}], {limit}cursor: {{}}, $db: 'test'}}")
    };
    thread::scope(|scope| {
        let waiting: Vec<_> = (0..WAITING)
            .map(|number| {
                let mut own = server.connect().unwrap();
                let aggregate = aggregate(number);
                scope.spawn(move || own.command(&parse(&aggregate).unwrap()))
            })
            .collect();
        // Commands with a time limit end; others continue to wait, and no client is blocked.
        until("half of them wait", || running(&mut client, "aggregate") == WAITING / 2);
        let requested = Instant::now();
        assert_eq!(number(&run(&mut server.connect().unwrap(), "{ping: 1, $db: 'admin'}"), "ok"), Some(1));
        assert!(requested.elapsed() < Duration::from_secs(10));
        if cfg!(target_os = "linux") {
            until("no thread waits", || threads_of(server.pid()) < WAITING / 4);
        }
        server_ends(&mut server, client);
        for (number_of, waited) in waiting.into_iter().enumerate() {
            let reply = waited.join().unwrap();
            let code = reply.as_ref().ok().and_then(|reply| number(reply, "code"));
            match number_of % 2 {
                1 => assert_eq!(code, Some(50), "{reply:?}"),
                // Interrupted at shutdown, unless its connection was closed first, or released by then.
                _ => assert!(matches!(code, None | Some(11600 | 91)), "{reply:?}"),
            }
        }
    });
}

fn server_ends(server: &mut Server, client: Client) {
    drop(client);
    let started = Instant::now();
    server.end();
    assert!(started.elapsed() < Duration::from_secs(30), "it took {:?} to stop", started.elapsed());
}

/// Number of statements that wait after their first change.
const WAITING_STATEMENTS: usize = 100;

/// Returns the number of threads of a process.
fn threads_of(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count)
}

#[test]
fn statements_that_wait_after_their_first_change_hold_no_thread() {
    if !cfg!(target_os = "linux") {
        return println!("skipped: the system does not list the threads of a process");
    }
    let Some(server) = Server::start_with(&["--replset", "rs"]) else { return };
    let mut client = server.connect().unwrap();
    let documents: Vec<String> = (0..10).map(|id| format!("{{_id: {id}, n: 0}}")).collect();
    run(&mut client, &format!("{{insert: 'c', documents: [{}], $db: 'test'}}", documents.join(",")));
    let transaction = "lsid: {id: {$uuid: '00000000-0000-4000-8000-000000000001'}}, \
                       txnNumber: {$numberLong: '1'}, autocommit: false";
    let held = format!(
        "{{update: 'c', updates: [{{q: {{_id: 5}}, u: {{$inc: {{n: 1}}}}}}], {transaction}, startTransaction: true, \
         $db: 'test'}}"
    );
    assert_eq!(number(&run(&mut client, &held), "nModified"), Some(1));
    let list = "{q: {_id: 1}, u: {$inc: {n: 1}}}, {q: {_id: 5}, u: {$inc: {n: 1}}}";
    let statements = [
        "update: 'c', updates: [{q: {}, u: {$inc: {n: 1}}, multi: true}], $db: 'test'".to_string(),
        format!("update: 'c', updates: [{list}], $db: 'test'"),
    ];
    thread::scope(|scope| {
        let waiting: Vec<_> = (0..WAITING_STATEMENTS)
            .map(|number| {
                let mut own = server.connect().unwrap();
                let statement = format!("{{{}}}", statements[number % 2]);
                scope.spawn(move || run(&mut own, &statement))
            })
            .collect();
        until("all of them wait", || running(&mut client, "update") == WAITING_STATEMENTS);
        let ping = run(&mut server.connect().unwrap(), "{ping: 1, $db: 'admin'}");
        assert_eq!(number(&ping, "ok"), Some(1));
        until("no thread waits", || threads_of(server.pid()) < WAITING_STATEMENTS / 2);
        run(&mut client, &format!("{{commitTransaction: 1, {transaction}, $db: 'admin'}}"));
        for (at, waited) in waiting.into_iter().enumerate() {
            let modified = if at % 2 == 0 { 10 } else { 2 };
            assert_eq!(number(&waited.join().unwrap(), "nModified"), Some(modified));
        }
    });
    // Each statement has changed each of its documents once.
    let half = WAITING_STATEMENTS as i64 / 2;
    for (id, n) in [(0, half), (1, 2 * half), (5, 2 * half + 1), (9, half)] {
        let count = format!("{{count: 'c', query: {{_id: {id}, n: {n}}}, $db: 'test'}}");
        assert_eq!(number(&run(&mut client, &count), "n"), Some(1), "{count}");
    }
}

/// Number of aggregates that wait for a transaction, for each way to end them.
const WAITING_AGGREGATES: usize = 40;

#[test]
fn aggregates_that_write_wait_for_a_transaction_without_threads_and_can_be_ended() {
    if !cfg!(target_os = "linux") {
        return println!("skipped: the system does not list the threads of a process");
    }
    let Some(server) = Server::start_with(&["--replset", "rs"]) else { return };
    let mut client = server.connect().unwrap();
    for collection in ["from", "to", "out"] {
        let documents: Vec<String> = (0..10).map(|id| format!("{{_id: {id}, n: 0}}")).collect();
        run(
            &mut client,
            &format!("{{insert: '{collection}', documents: [{}], $db: 'test'}}", documents.join(",")),
        );
    }
    let transaction = "lsid: {id: {$uuid: '00000000-0000-4000-8000-000000000001'}}, \
                       txnNumber: {$numberLong: '1'}, autocommit: false";
    for (collection, starts) in [("to", "startTransaction: true, "), ("out", "")] {
        let held = format!(
            "{{update: '{collection}', updates: [{{q: {{_id: 5}}, u: {{$inc: {{n: 1}}}}}}], {transaction}, {starts}\
             $db: 'test'}}"
        );
        assert_eq!(number(&run(&mut client, &held), "nModified"), Some(1));
    }
    let merge = "{$merge: {into: 'to', whenMatched: [{$set: {n: {$add: ['$n', 1]}}}]}}";
    let aggregate =
        |stage: &str, rest: &str| format!("{{aggregate: 'from', pipeline: [{stage}], {rest}, $db: 'test'}}");
    thread::scope(|scope| {
        let start = |command: String| {
            let mut own = server.connect().unwrap();
            scope.spawn(move || run(&mut own, &command))
        };
        let mut waiting = Vec::new();
        let mut cursors = Vec::new();
        for _ in 0..WAITING_AGGREGATES {
            waiting.push(start(aggregate(merge, "cursor: {}")));
            waiting.push(start(aggregate("{$out: 'out'}", "cursor: {}")));
            let opened = run(&mut client, &aggregate(merge, "cursor: {batchSize: 0}"));
            let cursor = opened.view().get("cursor").and_then(|cursor| cursor.as_document()).unwrap();
            let id = cursor.get("id").and_then(|id| id.as_i64()).unwrap();
            cursors.push((
                id,
                start(format!("{{getMore: {{$numberLong: '{id}'}}, collection: 'from', $db: 'test'}}")),
            ));
        }
        until("all of them wait", || {
            running(&mut client, "aggregate") == 2 * WAITING_AGGREGATES
                && running(&mut client, "getMore") == WAITING_AGGREGATES
        });
        until("no thread waits", || threads_of(server.pid()) < WAITING_AGGREGATES);
        let limited = start(aggregate(merge, "maxTimeMS: 2000, cursor: {}"));
        assert_eq!(number(&limited.join().unwrap(), "code"), Some(50));
        let (id, killed) = cursors.pop().unwrap();
        run(
            &mut client,
            &format!("{{killCursors: 'from', cursors: [{{$numberLong: '{id}'}}], $db: 'test'}}"),
        );
        assert_eq!(number(&killed.join().unwrap(), "code"), Some(11601));
        let current = run(&mut client, "{currentOp: 1, $db: 'admin', 'command.getMore': {$exists: true}}");
        let list = current.view().get("inprog").and_then(|list| list.as_array()).unwrap();
        let operation = list.iter().next().and_then(|entry| entry.as_document()).unwrap();
        let id = operation.get("opid").and_then(|id| id.as_i64()).unwrap();
        run(&mut client, &format!("{{killOp: 1, op: {id}, $db: 'admin'}}"));
        until("killOp ends one", || running(&mut client, "getMore") == WAITING_AGGREGATES - 2);
        run(&mut client, &format!("{{commitTransaction: 1, {transaction}, $db: 'admin'}}"));
        let is_done = |reply: DocumentBuf| usize::from(number(&reply, "ok") == Some(1));
        let aggregates: usize = waiting.into_iter().map(|waited| is_done(waited.join().unwrap())).sum();
        assert_eq!(aggregates, 2 * WAITING_AGGREGATES);
        let batches: usize = cursors.into_iter().map(|(_, waited)| is_done(waited.join().unwrap())).sum();
        assert_eq!(batches, WAITING_AGGREGATES - 2);
    });
    // Each of them has changed each document once, except that the three ended ones have not changed the held one.
    let all = 2 * WAITING_AGGREGATES as i64;
    for (collection, id, n) in [("to", 4, all + 1), ("to", 5, all - 1), ("to", 6, all - 2), ("out", 5, 0)] {
        let count = format!("{{count: '{collection}', query: {{_id: {id}, n: {n}}}, $db: 'test'}}");
        assert_eq!(number(&run(&mut client, &count), "n"), Some(1), "{count}");
    }
    let left = "{listCollections: 1, filter: {name: /tmp/}, $db: 'test'}";
    assert!(!format!("{:?}", run(&mut client, left)).contains("tmp"));
}

/// Number of commands of each kind that wait for a transaction.
const WAITING_CHANGES: usize = 40;

#[test]
fn changes_of_collections_wait_for_a_transaction_without_threads() {
    if !cfg!(target_os = "linux") {
        return println!("skipped: the system does not list the threads of a process");
    }
    let Some(server) = Server::start_with(&["--replset", "rs"]) else { return };
    let mut client = server.connect().unwrap();
    let transaction = "lsid: {id: {$uuid: '00000000-0000-4000-8000-000000000001'}}, \
                       txnNumber: {$numberLong: '1'}, autocommit: false";
    succeed(
        &mut client,
        "{createIndexes: 'c', indexes: [{key: {n: 1}, name: 'n', prepareUnique: true}], $db: 'test'}",
    );
    let held = format!(
        "{{insert: 'c', documents: [{{_id: 1, n: 1}}, {{_id: 2, n: 2}}], {transaction}, startTransaction: true, \
         $db: 'test'}}"
    );
    succeed(&mut client, &held);
    let entry = "{op: 'c', ns: 'test.$cmd', o: {collMod: 'c', index: {name: 'n', hidden: true}}}";
    let apply = format!("applyOps: [{entry}], $db: 'admin'");
    let changes = [
        "collMod: 'c', validationAction: 'warn', changeStreamPreAndPostImages: {enabled: true}, index: {name: 'n', \
         unique: true, hidden: true}, $db: 'test'",
        "convertToCapped: 'c', size: 4096, $db: 'test'",
        &apply,
    ];
    let names = ["collMod", "convertToCapped", "applyOps"];
    thread::scope(|scope| {
        let waiting: Vec<_> = (0..WAITING_CHANGES * changes.len())
            .map(|number| {
                let mut own = server.connect().unwrap();
                let change = format!("{{{}}}", changes[number % changes.len()]);
                scope.spawn(move || run(&mut own, &change))
            })
            .collect();
        until("all of them wait", || names.iter().all(|name| running(&mut client, name) == WAITING_CHANGES));
        until("no thread waits", || threads_of(server.pid()) < WAITING_CHANGES);
        succeed(&mut client, &format!("{{commitTransaction: 1, {transaction}, $db: 'admin'}}"));
        for waited in waiting {
            let reply = waited.join().unwrap();
            // The conversion to a capped collection drops the index, also while another command builds it again.
            let code = number(&reply, "code");
            assert!(matches!(code, None | Some(27 | 276)), "{reply}");
        }
    });
    let valid = run(&mut client, "{validate: 'c', full: true, $db: 'test'}");
    assert_eq!(valid.view().get("valid").and_then(|valid| valid.as_bool()), Some(true), "{valid}");
}

#[test]
fn a_write_that_waits_in_its_middle_ends_without_its_client() {
    let Some(server) = Server::start_with(&["--replset", "rs"]) else { return };
    let mut client = server.connect().unwrap();
    run(
        &mut client,
        "{insert: 'c', documents: [{_id: 0, n: 0}, {_id: 1, n: 0}, {_id: 2, n: 0}], $db: 'test'}",
    );
    let transaction = "lsid: {id: {$uuid: '00000000-0000-4000-8000-000000000001'}}, \
                       txnNumber: {$numberLong: '1'}, autocommit: false";
    let held = format!(
        "{{update: 'c', updates: [{{q: {{_id: 1}}, u: {{$inc: {{n: 1}}}}}}], {transaction}, startTransaction: true, \
         $db: 'test'}}"
    );
    assert_eq!(number(&run(&mut client, &held), "nModified"), Some(1));
    let updates = [0, 1, 2].map(|id| format!("{{q: {{_id: {id}}}, u: {{$inc: {{n: 10}}}}}}")).join(",");
    let update = format!("{{update: 'c', updates: [{updates}], writeConcern: {{w: 0}}, $db: 'test'}}");
    let mut other = server.connect().unwrap();
    other.command_unacknowledged(&parse(&update).unwrap()).unwrap();
    until("it waits", || running(&mut client, "update") == 1);
    drop(other);
    run(&mut client, &format!("{{commitTransaction: 1, {transaction}, $db: 'admin'}}"));
    let mut count =
        |query: &str| number(&run(&mut client, &format!("{{count: 'c', query: {query}, $db: 'test'}}")), "n");
    until("it ends", || count("{_id: 2, n: 10}") == Some(1));
    assert_eq!(count("{_id: 0, n: 10}"), Some(1));
    assert_eq!(count("{_id: 1, n: 11}"), Some(1));
}

#[test]
fn the_profiler_has_all_statements_of_a_write_that_waits_in_its_middle() {
    let Some(server) = Server::start_with(&["--replset", "rs"]) else { return };
    let (mut client, mut own) = (server.connect().unwrap(), server.connect().unwrap());
    succeed(&mut client, "{insert: 'c', documents: [{_id: 0, n: 0}, {_id: 1, n: 0}], $db: 'test'}");
    let session = "{id: {$uuid: '00000000-0000-4000-8000-000000000001'}}";
    succeed(
        &mut client,
        &format!(
            "{{update: 'c', updates: [{{q: {{_id: 1}}, u: {{$inc: {{n: 1}}}}}}], lsid: {session}, \
             txnNumber: {{$numberLong: '1'}}, autocommit: false, startTransaction: true, $db: 'test'}}"
        ),
    );
    succeed(&mut client, "{profile: 2, $db: 'test'}");
    let updates = [0, 1].map(|id| format!("{{q: {{_id: {id}}}, u: {{$inc: {{n: 10}}}}}}")).join(",");
    thread::scope(|scope| {
        let update = format!("{{update: 'c', updates: [{updates}], $db: 'test'}}");
        let update = scope.spawn(move || succeed(&mut own, &update));
        let changed = "{count: 'c', query: {n: 10}, $db: 'test'}";
        until("it waits in its middle", || number(&run(&mut client, changed), "n") == Some(1));
        succeed(&mut client, "{fsync: 1, lock: true, $db: 'admin'}");
        // The transaction ends. The update goes on and waits for the unlock.
        succeed(&mut client, &format!("{{killSessions: [{session}], $db: 'admin'}}"));
        succeed(&mut client, "{ping: 1, $db: 'admin'}");
        succeed(&mut client, "{fsyncUnlock: 1, $db: 'admin'}");
        assert_eq!(number(&update.join().unwrap(), "nModified"), Some(2));
    });
    let entries = "{count: 'system.profile', query: {op: 'update'}, $db: 'test'}";
    until("both statements have entries", || number(&run(&mut client, entries), "n") == Some(2));
}

#[test]
fn all_users_are_counted_if_their_drop_waits_in_its_middle() {
    const USERS: i64 = 500;
    let Some(server) = Server::start() else { return };
    let mut client = server.connect().unwrap();
    for user in 0..USERS {
        succeed(&mut client, &format!("{{createUser: 'u{user}', roles: [], $db: '$external'}}"));
    }
    thread::scope(|scope| {
        let mut own = server.connect().unwrap();
        let drop = scope.spawn(move || succeed(&mut own, "{dropAllUsersFromDatabase: 1, $db: '$external'}"));
        let left = "{count: 'system.users', $db: 'admin'}";
        until("users are dropped", || number(&run(&mut client, left), "n") < Some(USERS));
        succeed(&mut client, "{fsync: 1, lock: true, $db: 'admin'}");
        thread::sleep(Duration::from_millis(20));
        succeed(&mut client, "{fsyncUnlock: 1, $db: 'admin'}");
        assert_eq!(number(&drop.join().unwrap(), "n"), Some(USERS));
    });
}

#[test]
fn writes_and_reads_go_on_while_an_index_is_built_and_killop_ends_it() {
    let Some(server) = Server::start() else { return };
    let mut client = server.connect().unwrap();
    for batch in 0..30 {
        let documents: Vec<String> =
            (0..1000).map(|n| format!("{{_id: {}, a: {}}}", batch * 1000 + n, (n * 7919) % 1000)).collect();
        let insert = format!("{{insert: 'c', documents: [{}], $db: 'test'}}", documents.join(","));
        assert_eq!(number(&run(&mut client, &insert), "n"), Some(1000));
    }
    let create = "{createIndexes: 'c', indexes: [{key: {a: 1}, name: 'a_1'}], $db: 'test'}";
    thread::scope(|scope| {
        let mut builder = server.connect().unwrap();
        let build = scope.spawn(move || run(&mut builder, create));
        let mut written = 0;
        let mut progress = false;
        while !build.is_finished() {
            let next = 100_000 + written;
            let insert = format!("{{insert: 'c', documents: [{{_id: {next}, a: {next}}}], $db: 'test'}}");
            assert_eq!(number(&run(&mut client, &insert), "n"), Some(1));
            let update = format!(
                "{{update: 'c', updates: [{{q: {{_id: {written}}}, u: {{$set: {{a: -1}}}}}}], $db: 'test'}}"
            );
            assert_eq!(number(&run(&mut client, &update), "nModified"), Some(1));
            let current = run(&mut client, "{currentOp: 1, $db: 'admin', 'command.createIndexes': 'c'}");
            progress |= format!("{current:?}").contains("Index Build");
            written += 1;
        }
        assert_eq!(number(&build.join().unwrap(), "numIndexesAfter"), Some(2));
        assert!(written > 3, "only {written} writes got through");
        assert!(progress, "currentOp never showed the build");
        let found = run(
            &mut client,
            "{aggregate: 'c', pipeline: [{$match: {a: -1}}, {$count: 'n'}], hint: 'a_1', cursor: {}, $db: 'test'}",
        );
        assert!(format!("{found:?}").contains(&format!("\"n\": Int32({written})")), "{written} {found:?}");
        let valid = run(&mut client, "{validate: 'c', full: true, $db: 'test'}");
        assert_eq!(valid.view().get("valid").and_then(|valid| valid.as_bool()), Some(true), "{valid}");
    });
    run(&mut client, "{dropIndexes: 'c', index: '*', $db: 'test'}");
    thread::scope(|scope| {
        let mut builder = server.connect().unwrap();
        let build = scope.spawn(move || run(&mut builder, create));
        let killed = loop {
            let current = run(&mut client, "{currentOp: 1, $db: 'admin', 'command.createIndexes': 'c'}");
            let list = current.view().get("inprog").and_then(|list| list.as_array());
            let first = list.and_then(|list| list.iter().next()).and_then(|entry| entry.as_document());
            if let Some(id) = first.and_then(|entry| entry.get("opid")).and_then(|id| id.as_i64()) {
                run(&mut client, &format!("{{killOp: 1, op: {id}, $db: 'admin'}}"));
                break true;
            }
            if build.is_finished() {
                break false;
            }
        };
        let reply = build.join().unwrap();
        assert!(killed && number(&reply, "code") == Some(11601), "{reply}");
        let list = run(&mut client, "{listIndexes: 'c', $db: 'test'}");
        assert!(!format!("{list:?}").contains("a_1"), "{list:?}");
        let valid = run(&mut client, "{validate: 'c', full: true, $db: 'test'}");
        assert_eq!(valid.view().get("valid").and_then(|valid| valid.as_bool()), Some(true), "{valid}");
    });
}

#[test]
fn a_running_get_more_shows_the_command_that_opened_its_cursor() {
    let Some(server) = Server::start() else { return };
    let mut client = server.connect().unwrap();
    succeed(&mut client, "{create: 'c', capped: true, size: 4096, $db: 'test'}");
    succeed(&mut client, "{insert: 'c', documents: [{_id: 1}], $db: 'test'}");
    let find = "{find: 'c', tailable: true, awaitData: true, $db: 'test'}";
    let opened = succeed(&mut client, find);
    let cursor =
        opened.view().get("cursor").unwrap().as_document().unwrap().get("id").unwrap().as_i64().unwrap();
    let more = format!("{{getMore: NumberLong({cursor}), collection: 'c', maxTimeMS: 60000, $db: 'test'}}");
    thread::scope(|scope| {
        let mut own = server.connect().unwrap();
        let waiting = scope.spawn(move || own.command(&parse(&more).unwrap()));
        until("the getMore waits", || running(&mut client, "getMore") == 1);
        let current = run(&mut client, "{currentOp: 1, 'command.getMore': {$exists: true}, $db: 'admin'}");
        let shown =
            current.view().get("inprog").unwrap().as_array().unwrap().get(0).unwrap().as_document().unwrap();
        let shown = shown.get("cursor").unwrap().as_document().unwrap();
        let names: Vec<&str> = shown.iter().map(|field| field.name()).collect();
        assert_eq!(names, ["cursorId", "originatingCommand"]);
        let command = shown.get("originatingCommand").unwrap().to_string();
        assert_eq!(command, "{ find: \"c\", tailable: true, awaitData: true, $db: \"test\" }");
        succeed(&mut client, "{insert: 'c', documents: [{_id: 2}], $db: 'test'}");
        waiting.join().unwrap().unwrap();
    });
}

/// A driver may close its connection directly behind writes without replies.
#[test]
fn unacknowledged_writes_that_wait_outlive_their_connection() {
    const WRITES: i64 = 5;
    let Some(server) = Server::start() else { return };
    let (mut client, mut leaving) = (server.connect().unwrap(), server.connect().unwrap());
    run(&mut client, "{insert: 'source', documents: [{_id: 1}], $db: 'test'}");
    run(&mut client, "{fsync: 1, lock: true, $db: 'admin'}");
    let out =
        "{aggregate: 'source', pipeline: [{$out: 'copy'}], cursor: {}, writeConcern: {w: 0}, $db: 'test'}";
    let insert = |number| {
        format!("{{insert: 'c', documents: [{{_id: {number}}}], writeConcern: {{w: 0}}, $db: 'test'}}")
    };
    for write in (0..WRITES).map(insert).chain([out.to_string()]) {
        leaving.command_unacknowledged(&parse(&write).unwrap()).unwrap();
        thread::sleep(Duration::from_millis(20));
    }
    drop(leaving);
    // Longer than the interval of the checks for disconnected clients.
    thread::sleep(Duration::from_secs(1));
    run(&mut client, "{fsyncUnlock: 1, $db: 'admin'}");
    until("all have run", || {
        let mut count = |name| number(&run(&mut client, &format!("{{count: '{name}', $db: 'test'}}")), "n");
        count("c") == Some(WRITES) && count("copy") == Some(1)
    });
}
