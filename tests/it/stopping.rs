//! SIGTERM while eight clients write: later commands are refused, acknowledged writes are kept, and the server ends
//! soon. A second signal ends it at once.

use crate::client::Client;
use crate::print_line;
use crate::requests::{code, until};
use crate::server::{Scratch, Server};
use base::bson::extended_json::parse;
use base::bson::{Builder, DocumentBuf};
use nix::sys::signal::Signal;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const WRITERS: usize = 8;
/// Timeout for the end of an idle server, on a busy machine with an unoptimized build. The goal is one second.
const SOON: Duration = Duration::from_secs(10);
/// An endless command.
const ENDLESS: &str = "{aggregate: 1, cursor: {}, pipeline: [{$documents: [{}]}, {$set: {n: {$reduce: {input: {$range: [0, 1000000]}, initialValue: 0, in: {$size: {$range: ['$$this', 1100000]}}}}}}], $db: 'test'}";

/// Results of a client until its connection closed.
#[derive(Default)]
struct Seen {
    acknowledged: Vec<i64>,
    /// Codes of refused writes.
    refused: Vec<i64>,
}

/// Inserts numbered documents of this writer until the server closes the connection.
fn write(client: &mut Client, writer: usize, written: &AtomicUsize) -> Seen {
    let mut seen = Seen::default();
    for number in 0.. {
        let id = (number * WRITERS + writer) as i64;
        let mut insert = Builder::new();
        insert.append(c"insert", "c").begin_array(c"documents");
        insert.push_document().append(c"_id", id).append(c"pad", "x".repeat(200).as_str()).end().end();
        insert.append(c"$db", "test");
        match client.command(&insert.finish()) {
            Ok(reply) if code(&reply) == 0 => {
                seen.acknowledged.push(id);
                written.fetch_add(1, Ordering::Relaxed);
            }
            Ok(reply) => seen.refused.push(code(&reply)),
            Err(_) => return seen,
        }
    }
    seen
}

fn endless(server: &Server) -> thread::JoinHandle<io::Result<DocumentBuf>> {
    let (mut client, mut other) = (server.connect().unwrap(), server.connect().unwrap());
    let current = parse(&format!("{{currentOp: 1, client: '{}', $db: 'admin'}}", client.address())).unwrap();
    let running = thread::spawn(move || client.command(&parse(ENDLESS).unwrap()));
    let started = Instant::now();
    loop {
        let reply = other.command(&current).unwrap();
        if reply.view().get("inprog").and_then(|list| list.as_array()?.get(0)).is_some() {
            return running;
        }
        assert!(started.elapsed() < SOON, "it never began");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Sends signals to a server under load. Returns the time to its end, its exit status, the reply of the endless
/// command, and the results of an idle client and of all writers.
fn stopped(
    server: &mut Server,
    signals: &[Signal],
) -> (Duration, Option<i32>, io::Result<DocumentBuf>, Vec<i64>, Vec<Seen>) {
    let written = AtomicUsize::new(0);
    thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let mut client = server.connect().unwrap();
                let written = &written;
                scope.spawn(move || write(&mut client, writer, written))
            })
            .collect();
        let mut idle = server.connect().unwrap();
        let running = endless(server);
        until("each writer has written", || written.load(Ordering::Relaxed) >= 50 * WRITERS);
        signals.iter().for_each(|signal| server.signal(*signal));
        let signaled = Instant::now();
        // When the first writer's connection is closed, the server takes no new work, and the endless command runs for
        // another half second. The idle client sends its command then.
        while !writers.iter().any(|writer| writer.is_finished()) && signaled.elapsed() < SOON {
            thread::sleep(Duration::from_millis(1));
        }
        let mut codes = Vec::new();
        let ping = parse("{ping: 1, $db: 'admin'}").unwrap();
        while let Ok(reply) = idle.command(&ping) {
            codes.push(code(&reply));
        }
        let ended = server.exit_code();
        let took = signaled.elapsed();
        let seen = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        (took, ended, running.join().unwrap(), codes, seen)
    })
}

/// Checks that all acknowledged writes are present.
fn check(data: &Scratch, seen: &[Seen]) {
    let server = Server::start_on(data, &[]).unwrap();
    let mut client = server.connect().unwrap();
    for writer in seen {
        let mut count = Builder::new();
        count.append(c"count", "c").begin_document(c"query").begin_document(c"_id").begin_array(c"$in");
        writer.acknowledged.iter().for_each(|id| _ = count.push(*id));
        count.end().end().end().append(c"$db", "test");
        let reply = client.command(&count.finish()).unwrap();
        let found = reply.view().get("n").and_then(|n| n.as_i64());
        assert_eq!(found, Some(writer.acknowledged.len() as i64), "{reply}");
    }
}

#[test]
fn new_work_is_refused_and_the_server_ends_soon() {
    let data = Scratch::new("stopping");
    let Some(mut server) = Server::start_on(&data, &[]) else { return };
    let (took, ended, endless, idle, seen) = stopped(&mut server, &[Signal::SIGTERM]);
    let acknowledged: usize = seen.iter().map(|seen| seen.acknowledged.len()).sum();
    print_line(&format!("SIGTERM under load: ended after {took:.0?}, {acknowledged} documents acknowledged"));
    assert_eq!(ended, Some(0), "{}", server.log_tail());
    assert!(took < SOON, "{took:?}");
    // One refusal, and the connection is closed.
    assert_eq!(idle, [91]);
    assert_eq!(endless.map(|reply| code(&reply)).ok(), Some(11600), "it is interrupted");
    for writer in &seen {
        assert!(writer.refused.iter().all(|code| matches!(code, 91 | 11600)), "{:?}", writer.refused);
        assert!(writer.refused.len() <= 1, "{:?}", writer.refused);
    }
    check(&data, &seen);
}

#[test]
fn a_second_signal_under_load_skips_the_checkpoint() {
    let data = Scratch::new("stopping-twice");
    let Some(mut server) = Server::start_on(&data, &[]) else { return };
    // Two kinds, since a second signal of one kind may be merged with the first.
    let (took, ended, endless, _, seen) = stopped(&mut server, &[Signal::SIGTERM, Signal::SIGINT]);
    print_line(&format!("two signals under load: ended after {took:.0?}"));
    assert!(matches!(ended, Some(130 | 143)), "{ended:?}: {}", server.log_tail());
    assert!(endless.is_err(), "nobody has waited for it");
    check(&data, &seen);
    let mut again = Server::start_on(&data, &[]).unwrap();
    again.end();
}
