//! Abandoned operations over PostgreSQL: their statements are cancelled at the server. A server that accepts no
//! connections delays a client only up to the client's limit.

use crate::authority::{Authority, Files};
use crate::client::Client;
use crate::print_line;
use crate::requests::code;
use crate::server::Server;
use base::bson::DocumentBuf;
use base::bson::extended_json::parse;
use postgres::testing::Cluster;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longer than every cancelled operation here, and shorter than every uncancelled one.
const SOON: Duration = Duration::from_secs(6);

/// Run time of a statement that is not cancelled.
const LONG: &str = "300";

fn run(client: &mut Client, command: &str) -> DocumentBuf {
    client.command(&parse(&format!("{{{command}}}")).unwrap()).unwrap()
}

fn skipped(what: &str) {
    print_line(&format!("{what} over PostgreSQL skipped: it isn't installed (apt-get install postgresql)"));
}

/// Waits until this number of statements sleep at the server.
#[track_caller]
fn sleeping(cluster: &Cluster, expected: i64) {
    let count = "select count(*) from pg_stat_activity where wait_event = 'PgSleep'";
    let begin = Instant::now();
    loop {
        let sleep = cluster.run(&[count]).unwrap().unwrap();
        if sleep == expected {
            return;
        }
        assert!(begin.elapsed() < SOON, "{sleep} statements run, and not {expected}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Makes the server slow for long documents, on a condition in SQL.
fn slow_down(cluster: &Cluster, schema: &str, condition: &str) {
    let view = format!(
        "create view {schema}.kv as select * from {schema}.kept where \
         case when octet_length(value) > 90000 and {condition} then pg_sleep({LONG})::text is not null else true end"
    );
    cluster.run(&[&format!("alter table {schema}.kv rename to kept"), &view]).unwrap();
}

/// Ends connections whose statements sleep.
const END_SLEEPING: &str =
    "select count(pg_terminate_backend(pid, 5000)) from pg_stat_activity where wait_event = 'PgSleep'";

/// Ends the connection whose statement sleeps.
fn terminate(cluster: &Cluster) {
    sleeping(cluster, 1);
    let end =
        "select count(pg_terminate_backend(pid, 5000)) from pg_stat_activity where wait_event = 'PgSleep'";
    assert_eq!(cluster.run(&[end]).unwrap(), Some(1));
}

/// Kills the operation found by a filter.
fn kill(client: &mut Client, filter: &str) {
    let find = format!(
        "aggregate: 1, pipeline: [{{$currentOp: {{}}}}, {{$match: {{'command.filter': {filter}}}}}], \
         cursor: {{}}, $db: 'admin'"
    );
    let found = run(client, &find);
    let cursor = found.view().get("cursor").and_then(|cursor| cursor.as_document()?.get("firstBatch"));
    for operation in cursor.and_then(|batch| batch.as_array()).into_iter().flat_map(|batch| batch.iter()) {
        let id = operation.as_document().and_then(|one| one.get("opid")?.as_i64()).unwrap();
        run(client, &format!("killOp: 1, op: NumberLong('{id}'), $db: 'admin'"));
    }
}

#[test]
fn statements_are_cancelled_with_their_clients() {
    let (files, ours) = (Files::new("given-up"), Authority::new("Ours"));
    files.write("server.pem", &ours.certificate("server").pem);
    let settings = ["ssl=on", "ssl_cert_file=../server.pem", "ssl_key_file=../server.pem"];
    let Some(cluster) = Cluster::start_with(Some(&files), &settings).unwrap() else {
        return skipped("ended statements");
    };
    for mode in ["disable", "require"] {
        let schema = format!("given_up_{mode}");
        let connection = format!("{} sslmode={mode}", cluster.connection_string());
        let Some(server) = Server::on_schema(&connection, &schema) else { return };
        let mut client = server.connect().unwrap();
        let long = "x".repeat(100_000);
        run(&mut client, &format!("insert: 'slow', documents: [{{_id: 1, long: '{long}'}}], $db: 'test'"));
        run(&mut client, "insert: 'quick', documents: [{_id: 1}], $db: 'test'");
        slow_down(&cluster, &schema, "true");

        let late = run(&mut client, "find: 'slow', maxTimeMS: 300, $db: 'test'");
        assert_eq!(code(&late), 50, "{}", late.view());
        sleeping(&cluster, 0);

        std::thread::scope(|scope| {
            let mut other = server.connect().unwrap();
            let waiting = scope.spawn(move || run(&mut other, "find: 'slow', filter: {a: 7}, $db: 'test'"));
            sleeping(&cluster, 1);
            kill(&mut client, "{a: 7}");
            assert_eq!(code(&waiting.join().unwrap()), 11_601);
        });
        sleeping(&cluster, 0);

        // In a transaction, which ends with the statement: its write intents are released.
        let of_it = "lsid: {id: UUID('01234567-89ab-cdef-0123-000000000001')}, \
                     txnNumber: NumberLong(1), autocommit: false, $db: 'test'";
        let claim = "insert: 'quick', documents: [{_id: 2}]";
        assert_eq!(code(&run(&mut client, &format!("{claim}, startTransaction: true, {of_it}"))), 0);
        std::thread::scope(|scope| {
            let mut other = server.connect().unwrap();
            let read = format!("find: 'slow', filter: {{a: 8}}, {of_it}");
            let waiting = scope.spawn(move || run(&mut other, &read));
            sleeping(&cluster, 1);
            kill(&mut client, "{a: 8}");
            let killed = waiting.join().unwrap();
            assert_eq!(code(&killed), 11_601, "{}", killed.view());
        });
        sleeping(&cluster, 0);
        let commit = run(&mut client, &format!("commitTransaction: 1, {of_it}").replace("'test'", "'admin'"));
        assert_eq!(code(&commit), 251, "{}", commit.view());
        assert_eq!(code(&run(&mut client, &format!("{claim}, $db: 'test'"))), 0);

        // A client that disconnects.
        let mut leaving = server.connect_for(Duration::from_millis(500)).unwrap();
        leaving.command(&parse("{find: 'slow', $db: 'test'}").unwrap()).unwrap_err();
        sleeping(&cluster, 1);
        drop(leaving);
        sleeping(&cluster, 0);

        // Concurrent statements on connections of the same pool are not affected, and the server has no more backends
        // than the pool has connections.
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let (mut others, server) = (server.connect().unwrap(), &server);
                scope.spawn(move || {
                    let mut late = server.connect().unwrap();
                    for _ in 0..40 {
                        let late = run(&mut late, "find: 'slow', maxTimeMS: 10, $db: 'test'");
                        assert_eq!(code(&late), 50, "{}", late.view());
                    }
                });
                scope.spawn(move || {
                    for _ in 0..400 {
                        let found = run(&mut others, "find: 'quick', filter: {a: null}, $db: 'test'");
                        assert_eq!(code(&found), 0, "{}", found.view());
                    }
                });
            }
        });
        sleeping(&cluster, 0);
        let all = "select count(*) from pg_stat_activity where application_name = 'vellum'";
        let backends = cluster.run(&[all]).unwrap().unwrap();
        assert!(backends < 30, "{backends}");
    }
}

/// A proxy between a front and its server that can let new connections hang.
struct Wire {
    port: u16,
    hangs: Arc<AtomicBool>,
}

impl Wire {
    fn to(port: u16) -> Wire {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let wire = Wire { port: listener.local_addr().unwrap().port(), hangs: Arc::default() };
        let hangs = wire.hangs.clone();
        std::thread::spawn(move || {
            let mut stalled = Vec::new();
            for client in listener.incoming().map_while(Result::ok) {
                if hangs.load(Ordering::Acquire) {
                    stalled.push(client);
                    continue;
                }
                let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    std::thread::spawn(move || pass(from, to));
                }
            }
        });
        wire
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream) {
    let mut bytes = [0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        if to.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    // A connection that has already closed needs no shutdown.
    let _ = to.shutdown(std::net::Shutdown::Both);
}

/// Returns the code of a reply's write concern error.
fn concern(reply: &DocumentBuf) -> i64 {
    let error = reply.view().get("writeConcernError").and_then(|error| error.as_document());
    error.and_then(|error| error.get("code")?.as_i64()).unwrap_or(0)
}

#[test]
fn wtimeout_limits_the_wait_for_a_connection() {
    let Some(cluster) = Cluster::start().unwrap() else { return skipped("barriers that can't connect") };
    let wire = Wire::to(cluster.port());
    // With several hosts, a failover wait would last this long.
    let connection =
        format!("host=127.0.0.1 port={} user=postgres dbname=postgres connect_timeout=20", wire.port);
    let Some(server) = Server::on_schema(&connection, "hanging") else { return };
    let mut client = server.connect().unwrap();
    let insert = |id: i32, concern: &str| {
        format!("insert: 'c', documents: [{{_id: {id}}}], writeConcern: {concern}, $db: 'test'")
    };
    run(&mut client, "create: 'c', writeConcern: {w: 1}, $db: 'test'");
    run(&mut client, &insert(1, "{w: 1}"));

    wire.hangs.store(true, Ordering::Release);
    let begin = Instant::now();
    for (id, requested, expected) in [
        (2, "{w: 'majority'}, maxTimeMS: 300", 50),
        (3, "{w: 'majority', wtimeout: 300}", 64),
        (4, "{w: 1, j: true, wtimeout: 300}", 64),
        (5, "{w: 1, j: true}, maxTimeMS: 300", 50),
    ] {
        let reported = run(&mut client, &insert(id, requested));
        assert_eq!((code(&reported), concern(&reported)), (0, expected), "{requested}: {}", reported.view());
    }
    std::thread::scope(|scope| {
        let mut other = server.connect().unwrap();
        let waiting = scope.spawn(move || run(&mut other, &insert(6, "{w: 'majority'}, comment: 'killed'")));
        while !waiting.is_finished() {
            assert!(begin.elapsed() < 2 * SOON, "it goes on");
            std::thread::sleep(Duration::from_millis(50));
            let inserts = "aggregate: 1, pipeline: [{$currentOp: {}}, {$match: {'command.comment': 'killed'}}], \
                           cursor: {}, $db: 'admin'";
            let found = run(&mut client, inserts);
            let cursor =
                found.view().get("cursor").and_then(|cursor| cursor.as_document()?.get("firstBatch"));
            let first = cursor.and_then(|batch| batch.as_array()?.iter().next());
            if let Some(id) = first.and_then(|first| first.as_document()?.get("opid")?.as_i64()) {
                run(&mut client, &format!("killOp: 1, op: NumberLong('{id}'), $db: 'admin'"));
            }
        }
        let killed = waiting.join().unwrap();
        assert_eq!((code(&killed), concern(&killed)), (0, 11_601), "{}", killed.view());
    });
    assert!(begin.elapsed() < 2 * SOON, "{:?}", begin.elapsed());

    // All writes are present.
    wire.hangs.store(false, Ordering::Release);
    assert!(run(&mut client, "count: 'c', $db: 'test'").view().to_string().contains("n: 6"));
}

/// A write whose connection ends before it has written anything fails as a whole command, which drivers retry.
#[test]
fn a_write_whose_connection_ends_can_be_retried() {
    let Some(cluster) = Cluster::start().unwrap() else { return skipped("ended connections") };
    let Some(server) = Server::on_schema(&cluster.connection_string(), "ended") else { return };
    let (mut client, mut other) = (server.connect().unwrap(), server.connect().unwrap());
    let long = "x".repeat(100_000);
    run(&mut client, &format!("insert: 'slow', documents: [{{_id: 1, long: '{long}'}}], $db: 'test'"));
    slow_down(&cluster, "ended", "true");
    let session = "lsid: {id: UUID('01234567-89ab-cdef-0123-000000000001')}";
    let writes = [
        "update: 'slow', updates: [{q: {a: 1}, u: {$set: {b: 1}}}], $db: 'test'",
        "delete: 'slow', deletes: [{q: {a: 1}, limit: 1}], $db: 'test'",
        "bulkWrite: 1, ops: [{delete: 0, filter: {a: 1}}], nsInfo: [{ns: 'test.slow'}], $db: 'admin'",
    ];
    for (number, write) in writes.iter().enumerate() {
        let retryable = format!("{write}, txnNumber: NumberLong({number}), {session}");
        for (command, ok, labels) in [(retryable.as_str(), 0, 2), (write, 1, 0)] {
            let reply = std::thread::scope(|scope| {
                let waiting = scope.spawn(|| run(&mut other, command));
                // A front repeats the first statement of a connection that had ended before.
                while !waiting.is_finished() {
                    cluster.run(&[END_SLEEPING]).unwrap();
                    std::thread::sleep(Duration::from_millis(20));
                }
                waiting.join().unwrap()
            });
            let field = |name: &str| reply.view().get(name);
            assert_eq!(field("ok").and_then(|ok| ok.as_i64()), Some(ok), "{}", reply.view());
            let found =
                field("errorLabels").and_then(|labels| labels.as_array()).map_or(0, |all| all.iter().count());
            assert_eq!(found, labels, "{}", reply.view());
        }
    }
}

/// A change of the catalog whose connection ends before its commit was not applied, and is made again.
#[test]
fn a_change_of_the_catalog_outlives_its_connection() {
    let Some(cluster) = Cluster::start().unwrap() else { return skipped("ended changes of the catalog") };
    let Some(server) = Server::on_schema(&cluster.connection_string(), "again") else { return };
    let mut client = server.connect().unwrap();
    let sleep = "create function again.sleep() returns trigger language plpgsql as $$ begin \
                 perform pg_sleep(case nextval('again.changes') when 1 then 300 else 0 end); return new; end $$";
    let trigger =
        "create trigger sleep before update on again.catalog for each row execute function again.sleep()";
    cluster.run(&["create sequence again.changes", sleep, trigger]).unwrap();
    let created = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| run(&mut client, "create: 'c', $db: 'test'"));
        terminate(&cluster);
        waiting.join().unwrap()
    });
    assert_eq!(code(&created), 0, "{}", created.view());
    assert_eq!(code(&run(&mut client, "create: 'c', validator: {a: 1}, $db: 'test'")), 48);
}

/// The lease of a killed front keeps its index builds. Nothing reports the end of the lease to a client that waits.
#[test]
fn an_index_build_of_a_killed_front_ends_with_its_lease() {
    let Some(cluster) = Cluster::start().unwrap() else { return skipped("builds of a killed front") };
    let connection = cluster.connection_string();
    let start = || Server::on_schema(&connection, "killed");
    let (Some(first), Some(second)) = (start(), start()) else { return };
    let (mut killed, mut client) = (first.connect().unwrap(), second.connect().unwrap());
    let long = "x".repeat(100_000);
    run(&mut client, &format!("insert: 'slow', documents: [{{}}, {{long: '{long}'}}], $db: 'test'"));
    // Only the build is slow, and not its registration, which reads the collection too.
    slow_down(&cluster, "killed", "exists (select from killed.builds)");
    let create = "createIndexes: 'slow', indexes: [{key: {a: 1}, name: 'a'}], $db: 'test'";
    std::thread::scope(|scope| {
        let building = scope.spawn(|| killed.command(&parse(&format!("{{{create}}}")).unwrap()));
        sleeping(&cluster, 1);
        first.signal(nix::sys::signal::Signal::SIGKILL);
        building.join().unwrap().unwrap_err();
    });
    terminate(&cluster);
    cluster.run(&["drop view killed.kv", "alter table killed.kept rename to kv"]).unwrap();
    assert_eq!(cluster.run(&["select count(*) from killed.builds"]).unwrap(), Some(1));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| run(&mut client, create));
        // The command waits for the build of the killed front.
        std::thread::sleep(Duration::from_millis(500));
        assert!(!waiting.is_finished());
        let expire = "with expired as (update killed.fronts set until = now() - interval '1 s' \
                      where front in (select front from killed.builds) returning 1) select count(*) from expired";
        assert_eq!(cluster.run(&[expire]).unwrap(), Some(1));
        let created = waiting.join().unwrap();
        assert_eq!(code(&created), 0, "{}", created.view());
    });
}
