//! Commands that wait for PostgreSQL, no longer than their clients do.

use crate::client::Client;
use crate::print_line;
use crate::requests::code;
use crate::server::Server;
use base::bson::DocumentBuf;
use base::bson::extended_json::parse;
use postgres::testing::Cluster;
use std::process::Command;
use std::time::{Duration, Instant};

/// Maximum number of open transactions of a front.
const TRANSACTIONS: usize = 12;

/// Longer than every limited wait here, and shorter than every unlimited one.
const SOON: Duration = Duration::from_secs(6);

fn run(client: &mut Client, command: &str) -> DocumentBuf {
    client.command(&parse(&format!("{{{command}}}")).unwrap()).unwrap()
}

/// Returns the first statement of a transaction in a new session.
fn statement(number: usize) -> String {
    format!(
        "find: 'c', filter: {{_id: {number}}}, lsid: {{id: UUID('01234567-89ab-cdef-0123-{number:012}')}}, \
         txnNumber: NumberLong(1), autocommit: false, startTransaction: true, $db: 'test'"
    )
}

#[test]
fn waits_end_at_max_time() {
    let Some(cluster) = Cluster::start().unwrap() else {
        return print_line("waits for PostgreSQL skipped: it isn't installed (apt-get install postgresql)");
    };
    // With several hosts, a front waits until one takes writes.
    let connection = format!(
        "host=127.0.0.1,127.0.0.1 port={0},{0} user=postgres dbname=postgres connect_timeout=2",
        cluster.port()
    );
    let Some(server) = Server::on_schema(&connection, "waits") else { return };
    let mut client = server.connect().unwrap();
    run(&mut client, "create: 'c', $db: 'test'");
    for number in 0..TRANSACTIONS {
        assert_eq!(code(&run(&mut client, &statement(number))), 0);
    }

    let begin = Instant::now();
    let late = run(&mut client, &format!("{}, maxTimeMS: 300", statement(100)));
    assert_eq!(code(&late), 50, "{}", late.view());
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());

    let begin = Instant::now();
    let mut other = server.connect().unwrap();
    let killed = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| run(&mut other, &statement(101)));
        while !waiting.is_finished() {
            std::thread::sleep(Duration::from_millis(100));
            let find = "aggregate: 1, pipeline: [{$currentOp: {}}, {$match: {'command.filter._id': 101}}], \
                        cursor: {}, $db: 'admin'";
            let found = run(&mut client, find);
            let cursor =
                found.view().get("cursor").and_then(|cursor| cursor.as_document()?.get("firstBatch"));
            for operation in
                cursor.and_then(|batch| batch.as_array()).into_iter().flat_map(|batch| batch.iter())
            {
                let id = operation.as_document().and_then(|one| one.get("opid")?.as_i64()).unwrap();
                run(&mut client, &format!("killOp: 1, op: NumberLong('{id}'), $db: 'admin'"));
            }
            assert!(begin.elapsed() < SOON, "it goes on");
        }
        waiting.join().unwrap()
    });
    assert_eq!(code(&killed), 11_601, "{}", killed.view());

    // Once free, the awaited connection serves other transactions.
    let end = "abortTransaction: 1, lsid: {id: UUID('01234567-89ab-cdef-0123-000000000000')}, \
               txnNumber: NumberLong(1), autocommit: false, $db: 'admin'";
    assert_eq!(code(&run(&mut client, end)), 0);
    assert_eq!(code(&run(&mut client, &statement(102))), 0);

    // Past states are readable only through a snapshot time that was returned before.
    let snapshot = |at: &str| format!("find: 'c', readConcern: {{level: 'snapshot'{at}}}, $db: 'test'");
    let past = run(&mut client, &snapshot(", atClusterTime: Timestamp(1000, 1)"));
    assert_eq!(code(&past), 239, "{}", past.view());
    let present = run(&mut client, &snapshot(""));
    let time = present.view().get("cursor").and_then(|cursor| cursor.as_document()?.get("atClusterTime"));
    let Some(base::bson::Value::Timestamp(time)) = time else { panic!("{}", present.view()) };
    run(&mut client, "insert: 'c', documents: [{_id: 'later'}], $db: 'test'");
    let named = format!(", atClusterTime: Timestamp({}, {})", time >> 32, time & 0xFFFF_FFFF);
    let again = run(&mut client, &snapshot(&named));
    assert_eq!(code(&again), 0, "{}", again.view());
    assert!(!again.view().to_string().contains("later"), "{}", again.view());

    // The server no longer answers on any connection.
    let pid = "select pid::int8 from pg_stat_activity where application_name = 'vellum' \
               and backend_start < now() - interval '1 s' order by 1";
    std::thread::sleep(Duration::from_millis(1100));
    let nth = |number: i32| cluster.run(&[&format!("{pid} offset {number} limit 1")]).unwrap();
    let pids: Vec<i64> = (0..40).filter_map(nth).collect();
    assert!(pids.len() > 2, "{pids:?}");
    let signal = |name: &str| {
        // A process that has ended needs no signal.
        Command::new("kill").arg(name).args(pids.iter().map(|pid| pid.to_string())).status().unwrap()
    };
    signal("-STOP");
    let begin = Instant::now();
    let silent = run(&mut client, "find: 'c', maxTimeMS: 300, $db: 'test'");
    signal("-CONT");
    assert_eq!(code(&silent), 50, "{}", silent.view());
    assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
    assert_eq!(code(&run(&mut client, "find: 'c', $db: 'test'")), 0);

    // The server is gone.
    drop(cluster);
    let begin = Instant::now();
    let gone = run(&mut client, "find: 'c', maxTimeMS: 700, $db: 'test'");
    assert_eq!(code(&gone), 50, "{}", gone.view());
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
}

#[test]
fn an_ended_transaction_has_released_its_documents() {
    let Some(cluster) = Cluster::start().unwrap() else {
        return print_line(
            "ends of transactions skipped: PostgreSQL isn't installed (apt-get install postgresql)",
        );
    };
    let Some(server) = Server::on_schema(&cluster.connection_string(), "ended") else { return };
    let mut client = server.connect().unwrap();
    run(&mut client, "insert: 'c', documents: [{_id: 1, n: 0}], $db: 'test'");
    let of = |session: usize| {
        format!(
            "lsid: {{id: UUID('01234567-89ab-cdef-0123-{session:012}')}}, txnNumber: NumberLong(1), \
             autocommit: false"
        )
    };
    let update = |session| {
        format!(
            "update: 'c', updates: [{{q: {{_id: 1}}, u: {{$inc: {{n: 1}}}}}}], {}, $db: 'test'",
            of(session)
        )
    };
    let end = |command: &str, session| format!("{command}: 1, {}, $db: 'admin'", of(session));
    let mut succeed = |command: &str| {
        let reply = run(&mut client, command);
        assert_eq!(code(&reply), 0, "{command}: {}", reply.view());
    };

    succeed(&statement(1));
    succeed(&statement(2));
    succeed(&update(1));
    // The process that has the intents stops for a moment.
    let pid = "select pid::int8 from pg_stat_activity where state = 'idle in transaction' and backend_xid is not null";
    let pid = cluster.run(&[pid]).unwrap().expect("a process has intents").to_string();
    let signal = |name: &str| assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    signal("-STOP");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(300));
            signal("-CONT");
        });
        succeed(&end("abortTransaction", 1));
        succeed(&update(2));
    });
    succeed(&end("commitTransaction", 2));
}

/// Number of clients, each on a thread of the test. A read that has returned its ticket keeps its thread for a moment.
/// The limit of threads is therefore far above the 128 tickets.
const CLIENTS: usize = 600;

#[test]
fn reads_of_many_clients_share_the_threads_of_a_front() {
    if !cfg!(target_os = "linux") {
        return print_line(
            "threads over PostgreSQL skipped: the system does not list the threads of a process",
        );
    }
    let Some(cluster) = Cluster::start().unwrap() else {
        return print_line(
            "threads over PostgreSQL skipped: it isn't installed (apt-get install postgresql)",
        );
    };
    let Some(server) = Server::on_schema(&cluster.connection_string(), "queued") else { return };
    let mut client = server.connect().unwrap();
    run(&mut client, "insert: 'c', documents: [{_id: 1}], $db: 'test'");
    let threads = || std::fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap().count();
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.connect().unwrap()).collect();
    std::thread::scope(|scope| {
        let finds = clients.iter_mut().map(|client| {
            scope.spawn(|| {
                (0..2).all(|_| code(&run(client, "find: 'c', filter: {n: null}, $db: 'test'")) == 0)
            })
        });
        for find in finds.collect::<Vec<_>>() {
            while !find.is_finished() {
                assert!(threads() < CLIENTS / 2, "{} threads", threads());
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(find.join().unwrap());
        }
    });
    let status = run(&mut client, "serverStatus: 1, $db: 'admin'").view().to_string();
    assert!(status.contains(
        "queues: { execution: { write: { out: 0, available: 128, totalTickets: 128, normalPriority: { queueLength: 0 } }"
    ));
}
