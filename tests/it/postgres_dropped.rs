//! Drops of large collections over PostgreSQL: the collection disappears at once for all fronts, and any living front
//! deletes its rows later.

use crate::client::Client;
use crate::print_line;
use crate::server::Server;
use base::bson::DocumentBuf;
use base::bson::extended_json::parse;
use postgres::testing::Cluster;
use std::time::{Duration, Instant};

/// Number of rows of a collection in addition to its documents.
const ROWS: i64 = 20_000;

fn run(client: &mut Client, command: &str) -> DocumentBuf {
    client.command(&parse(&format!("{{{command}, $db: 'test'}}")).unwrap()).unwrap()
}

/// Runs a command that must succeed.
fn done(client: &mut Client, command: &str) -> DocumentBuf {
    let reply = run(client, command);
    assert_eq!(reply.view().get("ok").and_then(|ok| ok.as_i64()), Some(1), "{command}: {}", reply.view());
    reply
}

fn count(client: &mut Client, collection: &str) -> Option<i64> {
    done(client, &format!("count: '{collection}'")).view().get("n").and_then(|n| n.as_i64())
}

/// Returns the documents of a reply's batch, and its cursor.
fn batch(reply: &DocumentBuf) -> (String, i64) {
    let cursor = reply.view().get("cursor").and_then(|cursor| cursor.as_document()).unwrap();
    let batch = cursor.get("firstBatch").or(cursor.get("nextBatch")).and_then(|batch| batch.as_array());
    (batch.unwrap().to_string(), cursor.get("id").and_then(|id| id.as_i64()).unwrap())
}

fn number(cluster: &Cluster, sql: &str) -> i64 {
    cluster.run(&[sql]).unwrap().unwrap()
}

/// Adds rows to the newest tree: an index whose entries no test reads.
fn swell(cluster: &Cluster) -> i64 {
    let tree = number(cluster, "select max(ident) from big.trees");
    let rows = format!(
        "insert into big.kv select {tree}, int8send(n), null, '' from generate_series(1::int8, {ROWS}) n"
    );
    cluster.run(&[&rows]).unwrap();
    tree
}

/// Waits until all rows of a tree are deleted, and of every other dropped tree.
fn swept(cluster: &Cluster, tree: i64) {
    let begin = Instant::now();
    let left = format!("select count(*) from big.kv where ident = {tree}");
    while number(cluster, &left) > 0 || number(cluster, "select count(*) from big.dropped") > 0 {
        assert!(begin.elapsed() < Duration::from_secs(120), "{} rows are left", number(cluster, &left));
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_dropped_collection_disappears_at_once_and_is_deleted_later() {
    let Some(cluster) = Cluster::start().unwrap() else {
        return print_line("drops over PostgreSQL skipped: it isn't installed (apt-get install postgresql)");
    };
    let start = || Server::on_schema(&cluster.connection_string(), "big");
    let (Some(first), Some(second)) = (start(), start()) else { return };
    let (mut a, mut b) = (first.connect().unwrap(), second.connect().unwrap());
    let documents: Vec<String> = (0..300).map(|n| format!("{{_id: {n}, a: {n}}}")).collect();
    let insert = format!("insert: 'c', documents: [{}]", documents.join(", "));
    done(&mut a, &insert);
    done(&mut a, "createIndexes: 'c', indexes: [{key: {a: 1}, name: 'a'}]");
    let tree = swell(&cluster);
    let stream = done(&mut b, "aggregate: 'c', pipeline: [{$changeStream: {}}], cursor: {}");
    let (_, stream) = batch(&stream);
    let (_, open) = batch(&done(&mut b, "find: 'c', batchSize: 2"));

    // No front can delete them.
    cluster.run(&["alter function big.sweep(int8) rename to resting"]).unwrap();
    done(&mut a, "drop: 'c'");
    let left = format!("select count(*) from big.kv where ident = {tree}");
    assert_eq!(number(&cluster, &left), ROWS + 300);
    for client in [&mut a, &mut b] {
        assert_eq!(count(client, "c"), Some(0));
    }
    done(&mut b, "insert: 'c', documents: [{_id: 1, a: 'new'}]");
    for client in [&mut a, &mut b] {
        assert_eq!(batch(&done(client, "find: 'c'")).0, "[ { _id: 1, a: \"new\" } ]");
    }
    // An earlier reader continues in its state, or gets an error that the state is gone.
    let more = run(&mut b, &format!("getMore: NumberLong('{open}'), collection: 'c', batchSize: 1000"));
    match more.view().get("code").and_then(|code| code.as_i64()) {
        None => assert!(!batch(&more).0.contains("new"), "{}", more.view()),
        reported => assert_eq!(reported, Some(175), "{}", more.view()),
    }
    let event = done(&mut b, &format!("getMore: NumberLong('{stream}'), collection: 'c', maxTimeMS: 2000"));
    assert!(batch(&event).0.contains("\"drop\""), "{}", event.view());

    // Both fronts die before the end, and the next one continues.
    drop((first, second));
    assert_eq!(number(&cluster, &left), ROWS + 300);
    cluster.run(&["alter function big.resting(int8) rename to sweep"]).unwrap();
    let Some(third) = start() else { return };
    let mut c = third.connect().unwrap();
    assert_eq!(count(&mut c, "c"), Some(1));
    swept(&cluster, tree);
    let valid = done(&mut c, "validate: 'c'");
    assert_eq!(valid.view().get("valid").and_then(|valid| valid.as_bool()), Some(true), "{}", valid.view());

    // An index has its own rows.
    let trees = "select count(*) from big.trees";
    let before = number(&cluster, trees);
    done(&mut c, &insert.replace("'c'", "'indexed'"));
    done(&mut c, "createIndexes: 'indexed', indexes: [{key: {a: 1}, name: 'a'}]");
    done(&mut c, "dropIndexes: 'indexed', index: 'a'");
    assert_eq!(number(&cluster, trees), before + 2);
    swept(&cluster, tree);

    // A large emptied collection gets new trees. A concurrent reader keeps its state or gets an error.
    let thousands: Vec<String> = (0..1500).map(|n| format!("{{_id: {n}, a: [{n}]}}")).collect();
    done(&mut c, &format!("insert: 'emptied', documents: [{}]", thousands.join(", ")));
    done(&mut c, "createIndexes: 'emptied', indexes: [{key: {a: 1}, name: 'a', unique: true}]");
    let tree = swell(&cluster);
    let (_, open) = batch(&done(&mut c, "find: 'emptied', batchSize: 2"));
    assert_eq!(number(&cluster, trees), before + 5);
    let reset = c.command(&parse("{resetDatabase: 'test', $db: 'admin'}").unwrap()).unwrap();
    assert!(reset.view().to_string().contains("ok: 1"), "{}", reset.view());
    assert_eq!(number(&cluster, trees), before + 5);
    assert!(number(&cluster, &format!("select count(*) from big.kv where ident = {tree}")) > 0);
    for collection in ["emptied", "indexed", "c"] {
        assert_eq!(count(&mut c, collection), Some(0));
    }
    let more = run(&mut c, &format!("getMore: NumberLong('{open}'), collection: 'emptied'"));
    match more.view().get("code").and_then(|code| code.as_i64()) {
        None => assert!(batch(&more).0.contains("1499"), "{}", more.view()),
        reported => assert_eq!(reported, Some(175), "{}", more.view()),
    }
    for id in [1, 2] {
        done(&mut c, &format!("insert: 'emptied', documents: [{{_id: {id}, a: [{id}]}}]"));
    }
    let twice = run(&mut c, "insert: 'emptied', documents: [{_id: 3, a: [2]}]").view().to_string();
    assert!(twice.contains("11000"), "the unique index is there: {twice}");
    swept(&cluster, tree);
    assert_eq!(batch(&done(&mut c, "find: 'emptied', filter: {a: 2}")).0, "[ { _id: 2, a: [ 2 ] } ]");
    let valid = done(&mut c, "validate: 'emptied'");
    assert_eq!(valid.view().get("valid").and_then(|valid| valid.as_bool()), Some(true), "{}", valid.view());
    done(&mut c, "drop: 'emptied'");

    // A drop of a database with many collections is one change.
    for n in 0..20 {
        done(&mut c, &format!("insert: 'c{n}', documents: [{{_id: 1}}]"));
    }
    assert_eq!(number(&cluster, trees), before + 2 + 2 * 20);
    done(&mut c, "dropDatabase: 1");
    assert_eq!(number(&cluster, trees), before - 2);
    assert_eq!(count(&mut c, "c3"), Some(0));
    done(&mut c, "insert: 'c3', documents: [{_id: 7}]");
    swept(&cluster, tree);
    assert_eq!(batch(&done(&mut c, "find: 'c3'")).0, "[ { _id: 7 } ]");
}
