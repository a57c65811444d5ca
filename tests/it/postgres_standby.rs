//! Reads from a standby of a PostgreSQL server by read preference: its data, waits for it, and fallbacks to the
//! primary.

use crate::client::Client;
use crate::print_line;
use crate::requests::until;
use crate::server::Server;
use base::bson::extended_json::parse;
use base::bson::{DocumentBuf, Value};
use postgres::testing::Cluster;
use std::time::{Duration, Instant};

/// Runs a command on the database `test`.
fn run(client: &mut Client, command: &str) -> DocumentBuf {
    client.command(&parse(&format!("{{{command}, $db: 'test'}}")).unwrap()).unwrap()
}

/// Runs a command with a read preference and a read concern.
fn read(client: &mut Client, command: &str, mode: &str, concern: &str) -> DocumentBuf {
    run(client, &format!("{command}, $readPreference: {{mode: '{mode}'}}, readConcern: {{{concern}}}"))
}

/// Returns the error code, or the number of documents, values or matches.
fn result(reply: &DocumentBuf) -> Result<i64, i64> {
    let reply = reply.view();
    let integer = |name| reply.get(name).and_then(|value| value.as_i64());
    if integer("ok") != Some(1) {
        return Err(integer("code").unwrap_or(0));
    }
    let batch = reply.get("cursor").and_then(|cursor| cursor.as_document()?.get("firstBatch"));
    let list = batch.or(reply.get("values")).and_then(|list| list.as_array());
    Ok(list.map_or_else(|| integer("n").unwrap_or(-1), |list| list.iter().count() as i64))
}

/// Returns the read concern of a causal read after a reply.
fn after(reply: &DocumentBuf) -> String {
    match reply.view().get("operationTime") {
        Some(Value::Timestamp(time)) => {
            format!("afterClusterTime: Timestamp({}, {})", time >> 32, time & 0xFFFF_FFFF)
        }
        other => panic!("no operationTime, but {other:?}"),
    }
}

fn insert(client: &mut Client, collection: &str, id: i32) -> DocumentBuf {
    let reply = run(
        client,
        &format!("insert: '{collection}', documents: [{{_id: {id}, a: {id}}}], writeConcern: {{w: 1}}"),
    );
    assert_eq!(result(&reply), Ok(1), "{}", reply.view());
    reply
}

/// Every command that reads from standbys; each returns the number of documents in `c`.
const READS: [&str; 5] = [
    "find: 'c'",
    "count: 'c'",
    "count: 'c', query: {a: {$gte: 0}}",
    "distinct: 'c', key: 'a'",
    "aggregate: 'c', pipeline: [{$match: {a: {$gte: 0}}}], cursor: {}",
];

#[test]
fn a_standby_serves_reads_that_prefer_it() {
    let Some(primary) = Cluster::start().unwrap() else {
        return print_line(
            "reads from standbys skipped: PostgreSQL isn't installed (apt-get install postgresql)",
        );
    };
    let standby = primary.start_standby().unwrap();
    let both = format!(
        "host=127.0.0.1,127.0.0.1 port={},{} user=postgres dbname=postgres connect_timeout=2",
        primary.port(),
        standby.port()
    );
    let start = || Server::on_schema(&both, "standbys");
    let (Some(first), Some(second)) = (start(), start()) else { return };
    let (mut a, mut b) = (first.connect().unwrap(), second.connect().unwrap());

    // A session reads its own writes on the standby, through either front.
    for number in 0..20 {
        let written = insert(&mut a, "c", number);
        let client = if number % 2 == 0 { &mut a } else { &mut b };
        for command in READS {
            let found = read(client, command, "secondary", &after(&written));
            assert_eq!(result(&found), Ok(i64::from(number) + 1), "{command}: {}", found.view());
        }
    }
    let majority = read(&mut b, READS[0], "secondary", "level: 'majority'");
    assert_eq!(result(&majority), Ok(20), "{}", majority.view());

    // The standby stops replay: its data and its catalog are old.
    insert(&mut a, "dropped", 1);
    let seen = insert(&mut a, "c", 20);
    assert_eq!(result(&read(&mut a, READS[0], "secondary", &after(&seen))), Ok(21));
    standby.run(&["select count(pg_wal_replay_pause())"]).unwrap();
    let state = "select (pg_get_wal_replay_pause_state() = 'paused')::int4";
    until("the standby is paused", || standby.run(&[state]).unwrap() == Some(1));
    run(&mut a, "drop: 'dropped'");
    run(&mut a, "createIndexes: 'c', indexes: [{key: {a: 1}, name: 'a'}]");
    let unseen = insert(&mut a, "c", 21);
    for command in READS {
        assert_eq!(result(&read(&mut a, command, "secondary", "")), Ok(21), "{command}");
        assert_eq!(result(&read(&mut b, command, "secondaryPreferred", "")), Ok(21), "{command}");
        for mode in ["primary", "primaryPreferred"] {
            assert_eq!(result(&read(&mut b, command, mode, &after(&unseen))), Ok(22), "{command} {mode}");
        }
    }
    assert_eq!(result(&read(&mut b, "find: 'dropped'", "secondary", "")), Ok(1));
    assert_eq!(result(&read(&mut b, "find: 'dropped'", "primary", "")), Ok(0));
    let other = "aggregate: 'c', pipeline: [{$limit: 1}, {$lookup: {from: 'dropped', pipeline: [], as: 'd'}}, \
                 {$unwind: '$d'}], cursor: {}";
    assert_eq!(result(&read(&mut b, other, "secondary", "")), Ok(1));

    // Both are nearest, and answer in turn.
    let mut seen = [false; 2];
    until("both answer", || {
        let found = result(&read(&mut a, READS[0], "nearest", "")).unwrap() - 21;
        seen[usize::try_from(found).unwrap()] = true;
        seen == [true; 2]
    });

    for command in READS {
        assert_eq!(result(&read(&mut b, command, "nearest", &after(&unseen))), Ok(22), "{command}");
    }

    // A causal read waits, or the primary answers it if allowed.
    let begin = Instant::now();
    let late = read(&mut a, "find: 'c', maxTimeMS: 400", "secondary", &after(&unseen));
    assert_eq!(result(&late), Err(50), "{}", late.view());
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    let preferred = read(&mut a, READS[0], "secondaryPreferred", &after(&unseen));
    assert_eq!(result(&preferred), Ok(22), "{}", preferred.view());
    let cursor = read(&mut b, "find: 'c', batchSize: 2", "secondary", "");
    let id = cursor.view().get("cursor").unwrap().as_document().unwrap().get("id").unwrap().as_i64().unwrap();

    standby.run(&["select count(pg_wal_replay_resume())"]).unwrap();
    for command in READS {
        assert_eq!(result(&read(&mut a, command, "secondary", &after(&unseen))), Ok(22), "{command}");
    }
    let rest = run(&mut b, &format!("getMore: NumberLong('{id}'), collection: 'c'"));
    let rest = rest.view().get("cursor").unwrap().as_document().unwrap().get("nextBatch").unwrap();
    assert!(rest.as_array().unwrap().iter().count() >= 19);

    // Unsupported requests.
    let refused =
        |client: &mut Client, what: &str| result(&run(client, &format!("find: 'c', {what}"))).unwrap_err();
    let secondary = "$readPreference: {mode: 'secondary'";
    assert_eq!(refused(&mut a, &format!("{secondary}, tags: [{{dc: 'x'}}]}}")), 133);
    for mode in ["secondary", "secondaryPreferred", "primaryPreferred", "nearest"] {
        let stale =
            |seconds: i32| format!("$readPreference: {{mode: '{mode}', maxStalenessSeconds: {seconds}}}");
        assert_eq!(refused(&mut a, &stale(89)), 160);
        assert_eq!(refused(&mut a, &stale(-1)), 2);
        for seconds in [0, 90, 3600] {
            assert_eq!(
                result(&run(&mut a, &format!("find: 'c', {}", stale(seconds)))),
                Ok(22),
                "{mode} {seconds}"
            );
        }
    }
    let tagged = "tags: [{dc: 'x'}]}";
    assert_eq!(refused(&mut a, &format!("$readPreference: {{mode: 'nearest', {tagged}")), 133);
    for mode in ["primaryPreferred", "secondaryPreferred"] {
        let found = run(&mut a, &format!("find: 'c', $readPreference: {{mode: '{mode}', {tagged}"));
        assert_eq!(result(&found), Ok(22), "{}", found.view());
    }
    assert_eq!(refused(&mut a, &format!("{secondary}}}, readConcern: {{level: 'linearizable'}}")), 10_107);
    assert_eq!(refused(&mut a, &format!("{secondary}}}, readConcern: {{level: 'snapshot'}}")), 133);
    let statement = "lsid: {id: UUID('01234567-89ab-cdef-0123-456789abcdef')}, txnNumber: NumberLong(1), \
                     autocommit: false, startTransaction: true";
    assert_eq!(refused(&mut a, &format!("{secondary}}}, {statement}")), 72);
    let enough = format!("find: 'c', {secondary}, tags: [{{dc: 'x'}}, {{}}], maxStalenessSeconds: 90}}");
    assert_eq!(result(&run(&mut a, &enough)), Ok(22));
    let tailed = read(&mut a, "aggregate: 'c', pipeline: [{$merge: 'merged'}], cursor: {}", "secondary", "");
    assert_eq!(result(&tailed), Ok(0), "{}", tailed.view());

    // The standby dies.
    drop(standby);
    assert_eq!(result(&read(&mut a, READS[0], "secondaryPreferred", &after(&unseen))), Ok(22));
    let begin = Instant::now();
    let gone = read(&mut b, READS[0], "secondary", "");
    assert!(matches!(result(&gone), Err(133)), "{}", gone.view());
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    insert(&mut b, "c", 22);

    // Another standby replaces it.
    let again = format!("{both} application_name=again");
    let other = primary.start_standby().unwrap();
    let again = again.replace(&format!(",{} ", standby_port(&both)), &format!(",{} ", other.port()));
    let Some(third) = Server::on_schema(&again, "standbys") else { return };
    let mut third = (third.connect().unwrap(), third);
    assert_eq!(result(&read(&mut third.0, READS[0], "secondary", &after(&unseen))), Ok(23));

    // With a single host, no other host can be preferred.
    let Some(alone) = Server::on_schema(&primary.connection_string(), "standbys") else { return };
    let mut alone = alone.connect().unwrap();
    assert_eq!(result(&read(&mut alone, READS[0], "secondary", "")), Err(133));
    assert_eq!(result(&read(&mut alone, READS[0], "secondaryPreferred", "")), Ok(23));

    // A front may see a change of the catalog on the standby first.
    insert(&mut alone, "fresh", 1);
    let generation = ["select generation::int4 from standbys.catalog"];
    let latest = primary.run(&generation).unwrap();
    until("the standby has the new collection", || other.run(&generation).unwrap() == latest);

    // Without a primary, the standby's data is readable for a while.
    drop(primary);
    for mode in ["secondary", "secondaryPreferred"] {
        assert_eq!(result(&read(&mut third.0, READS[0], mode, "")), Ok(23), "{mode}");
        assert_eq!(result(&read(&mut third.0, "find: 'fresh'", mode, "")), Ok(1), "{mode}");
    }
    // Once the primary is known to be gone, reads that prefer it are answered too.
    for mode in ["primaryPreferred", "nearest"] {
        let begin = Instant::now();
        while result(&read(&mut third.0, "find: 'c', maxTimeMS: 1000", mode, "")) != Ok(23) {
            assert!(begin.elapsed() < Duration::from_secs(30), "{mode}");
        }
    }
    let gone = read(
        &mut third.0,
        "find: 'c', maxTimeMS: 300",
        "secondary",
        "afterClusterTime: Timestamp(4000000000, 1)",
    );
    assert_eq!(result(&gone), Err(50), "{}", gone.view());
}

/// Returns the second port of a connection string.
fn standby_port(connection: &str) -> &str {
    let ports = connection.split_once("port=").map_or("", |(_, rest)| rest);
    ports.split([',', ' ']).nth(1).unwrap_or("")
}
