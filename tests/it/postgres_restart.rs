//! A restart of PostgreSQL, with a single host in the connection string, under clients that retry once as drivers do.

use crate::client::Client;
use crate::print_line;
use crate::requests::until;
use crate::server::Server;
use base::bson::DocumentBuf;
use base::bson::extended_json::parse;
use postgres::testing::Cluster;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const CLIENTS: usize = 8;

fn is_ok(reply: &DocumentBuf) -> bool {
    let field = |name: &str| reply.view().get(name).and_then(|value| value.as_i64());
    field("ok") == Some(1) && reply.view().get("writeErrors").is_none()
}

/// Runs a command, with one retry after HostUnreachable. Returns the number of attempts.
fn run(client: &mut Client, command: &str) -> usize {
    let command = parse(command).unwrap();
    let first = client.command(&command).unwrap();
    if is_ok(&first) {
        return 1;
    }
    assert_eq!(first.view().get("code").and_then(|code| code.as_i64()), Some(6), "{}", first.view());
    let again = client.command(&command).unwrap();
    assert!(is_ok(&again), "{} and then {}", first.view(), again.view());
    2
}

#[test]
fn a_restart_of_one_host_needs_one_retry() {
    let Some(mut cluster) = Cluster::start().unwrap() else {
        return print_line(
            "a restart of PostgreSQL skipped: it isn't installed (apt-get install postgresql)",
        );
    };
    let Some(server) = Server::on_schema(&cluster.connection_string(), "restart") else { return };
    run(&mut server.connect().unwrap(), "{create: 'c', $db: 'test'}");
    let (is_over, inserted) = (AtomicBool::new(false), AtomicUsize::new(0));
    let work = |number: usize| {
        let mut client = server.connect().unwrap();
        let mut count = 0;
        while !is_over.load(Ordering::Relaxed) {
            count += 1;
            let session = format!("lsid: {{id: UUID('01234567-89ab-cdef-0123-{number:012}')}}");
            let insert = format!("documents: [{{_id: '{number}-{count}'}}], txnNumber: NumberLong({count})");
            run(&mut client, &format!("{{insert: 'c', {insert}, {session}, $db: 'test'}}"));
            run(&mut client, &format!("{{find: 'c', filter: {{_id: '{number}-{count}'}}, $db: 'test'}}"));
            inserted.fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        let work = &work;
        (0..CLIENTS).for_each(|number| _ = scope.spawn(move || work(number)));
        // Ends all clients after any failure.
        struct End<'a>(&'a AtomicBool);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let _end = End(&is_over);
        for _ in 0..2 {
            let before = inserted.load(Ordering::Relaxed);
            cluster.restart().unwrap();
            until("the clients go on", || inserted.load(Ordering::Relaxed) >= before + 4 * CLIENTS);
        }
    });
    let count = "{count: 'c', $db: 'test'}";
    let counted = server.connect().unwrap().command(&parse(count).unwrap()).unwrap();
    let counted = counted.view().get("n").and_then(|n| n.as_i64());
    assert_eq!(counted, i64::try_from(inserted.load(Ordering::Relaxed)).ok());
}

/// Monitors read serverStatus at intervals, also while PostgreSQL is down.
#[test]
fn server_status_does_not_wait_for_a_lost_server() {
    let Some(cluster) = Cluster::start().unwrap() else {
        return print_line("serverStatus without PostgreSQL skipped: it isn't installed");
    };
    let Some(server) = Server::on_schema(&cluster.connection_string(), "lost") else { return };
    let mut client = server.connect().unwrap();
    let status = parse("{serverStatus: 1, oplog: 1, $db: 'admin'}").unwrap();
    let error = |reply: &DocumentBuf| {
        let section = reply.view().get("vellum").and_then(|section| section.as_document()).unwrap();
        section.get("membersError").and_then(|text| text.as_str()).map(str::to_string)
    };
    assert_eq!(error(&client.command(&status).unwrap()), None);
    drop(cluster);
    let began = Instant::now();
    let reply = client.command(&status).unwrap();
    assert!(is_ok(&reply) && error(&reply).is_some(), "{}", reply.view());
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
}
