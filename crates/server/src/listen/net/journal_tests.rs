//! Tests of replies that wait for the journal, over real sockets. The disk is slow, fails, or loses
//! unsynced data.

use super::tests::Running;
use crate::commands::table;
use crate::state::settings::Settings;
use base::bson::{Document, DocumentBuf, extended_json::parse};
use std::io::{Read, Write};
use std::net::TcpStream as Socket;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use storage::testing::{FaultyFiles, Loss};
use storage::{DiskEngine, DiskOptions, Durability};
use wire::message;

const CLIENTS: i32 = 6;
const EACH: i32 = 15;

fn engine(files: &FaultyFiles) -> Arc<DiskEngine> {
    let options = DiskOptions { durability: Durability::Journaled, ..DiskOptions::new("/data") };
    Arc::new(DiskEngine::open_on(Arc::new(files.clone()), &options).unwrap())
}

fn start(files: &FaultyFiles) -> Running {
    Running::on(engine(files), Settings { ephemeral: false, syncs: true, ..Settings::default() })
}

fn ask(socket: &mut Socket, command: &str) -> DocumentBuf {
    let command = parse(command).unwrap();
    socket.write_all(&message::encode(1, 0, command.view())).unwrap();
    read_reply(socket).1
}

fn insert(id: i32) -> String {
    format!("{{insert: 'c', documents: [{{_id: {id}}}], $db: 'test'}}")
}

fn number(document: Document<'_>, name: &str) -> i64 {
    document.get(name).and_then(|value| value.as_i64()).unwrap_or_else(|| panic!("{name} in {document}"))
}

#[test]
fn group_commits_survive_a_crash() {
    let files = FaultyFiles::new();
    let running = start(&files);
    files.slow_syncs(Duration::from_millis(2));
    let (_, before) = files.counts();
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let mut socket = running.connect();
            scope.spawn(move || {
                for id in 0..EACH {
                    let reply = ask(&mut socket, &insert(client * EACH + id));
                    assert_eq!((number(reply.view(), "ok"), number(reply.view(), "n")), (1, 1));
                }
            });
        }
    });
    // Acknowledged writes are on the disk, and concurrent writes share a sync.
    let survived = files.restart(Loss::Everything);
    let (_, after) = files.counts();
    let syncs = after - before;
    assert!(syncs < (CLIENTS * EACH) as u64, "{syncs} syncs");
    let status = ask(&mut running.connect(), "{serverStatus: 1, $db: 'admin'}");
    let commands = status.view().get("metrics").and_then(|metrics| metrics.as_document()?.get("commands"));
    let inserts = commands.and_then(|commands| commands.as_document()?.get("insert")).unwrap();
    assert_eq!(number(inserts.as_document().unwrap(), "total"), i64::from(CLIENTS * EACH));
    assert_eq!(number(inserts.as_document().unwrap(), "failed"), 0);
    drop(running);
    let running = start(&survived);
    let counted = ask(&mut running.connect(), "{count: 'c', query: {_id: {$gte: 0}}, $db: 'test'}");
    assert_eq!(number(counted.view(), "n"), i64::from(CLIENTS * EACH));
}

/// Reads a reply. Returns the id of its request and the reply.
fn read_reply(socket: &mut Socket) -> (i32, DocumentBuf) {
    let mut reply = vec![0; 4];
    socket.read_exact(&mut reply).unwrap();
    reply.resize(u32::from_le_bytes(reply[..4].try_into().unwrap()) as usize, 0);
    socket.read_exact(&mut reply[4..]).unwrap();
    (i32::from_le_bytes(reply[8..12].try_into().unwrap()), message::document(&reply).unwrap())
}

#[test]
fn requests_that_arrive_early_are_answered_in_order() {
    let files = FaultyFiles::new();
    let running = start(&files);
    ask(&mut running.connect(), &insert(-1));
    files.slow_syncs(Duration::from_millis(3));
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let mut socket = running.connect();
            scope.spawn(move || {
                for from in (0..EACH).step_by(5) {
                    let mut requests = Vec::new();
                    for id in from..from + 5 {
                        let command = parse(&insert(client * EACH + id)).unwrap();
                        requests.extend(message::encode(id, 0, command.view()));
                    }
                    // The last request arrives in two parts, while others wait for the journal.
                    let (now, later) = requests.split_at(requests.len() - 20);
                    socket.write_all(now).unwrap();
                    std::thread::sleep(Duration::from_millis(1));
                    socket.write_all(later).unwrap();
                    for id in from..from + 5 {
                        let (answered, reply) = read_reply(&mut socket);
                        assert_eq!((answered, number(reply.view(), "n")), (id, 1));
                    }
                }
            });
        }
    });
}

#[test]
fn clients_that_disconnect_leave_no_wait() {
    let files = FaultyFiles::new();
    let running = start(&files);
    let mut stays = running.connect();
    ask(&mut stays, &insert(-1));
    files.slow_syncs(Duration::from_millis(20));
    for id in 0..20 {
        let command = parse(&insert(id)).unwrap();
        running.connect().write_all(&message::encode(1, 0, command.view())).unwrap();
    }
    assert_eq!(number(ask(&mut stays, &insert(20)).view(), "n"), 1);
    let began = Instant::now();
    let network = &running.server.network;
    let waiting = || network.active_requests.load(Ordering::Relaxed);
    while waiting() > 0 || running.server.activities.counts().0 > 1 {
        assert!(began.elapsed() < Duration::from_secs(20), "{} requests wait", waiting());
        std::thread::sleep(Duration::from_millis(5));
    }
    let counted = ask(&mut stays, "{count: 'c', query: {_id: {$gte: 0}}, $db: 'test'}");
    assert_eq!(number(counted.view(), "n"), 21);
}

#[test]
fn a_stopping_server_sends_the_replies_that_wait() {
    let files = FaultyFiles::new();
    let running = start(&files);
    let mut sockets: Vec<_> = (0..CLIENTS).map(|_| running.connect()).collect();
    sockets.iter_mut().enumerate().for_each(|(id, socket)| drop(ask(socket, &insert(id as i32))));
    files.slow_syncs(Duration::from_millis(100));
    for (id, socket) in sockets.iter_mut().enumerate() {
        let command = parse(&insert(id as i32 + CLIENTS)).unwrap();
        socket.write_all(&message::encode(1, 0, command.view())).unwrap();
    }
    std::thread::sleep(Duration::from_millis(50));
    running.server.stop();
    for socket in &mut sockets {
        assert_eq!(number(read_reply(socket).1.view(), "n"), 1);
        assert_eq!(socket.read(&mut [0]).unwrap(), 0, "the connection stays open");
    }
}

#[test]
fn a_failed_sync_fails_all_its_waiters() {
    let files = FaultyFiles::new();
    let running = start(&files);
    let mut socket = running.connect();
    assert_eq!(number(ask(&mut socket, &insert(0)).view(), "ok"), 1);
    files.slow_syncs(Duration::from_millis(50));
    files.fail_syncs(1);
    let failed = std::thread::scope(|scope| {
        let clients = (1..4).map(|id| {
            let mut socket = running.connect();
            scope.spawn(move || ask(&mut socket, &insert(id)))
        });
        let replies: Vec<_> =
            clients.collect::<Vec<_>>().into_iter().map(|one| one.join().unwrap()).collect();
        for reply in &replies {
            let text = reply.view().to_string();
            assert!(number(reply.view(), "ok") == 1 || text.contains("syncing the journal"), "{text}");
        }
        replies.iter().filter(|reply| number(reply.view(), "ok") == 0).count()
    });
    assert!(failed > 0);
    // A checkpoint repairs the journal.
    files.slow_syncs(Duration::ZERO);
    let began = Instant::now();
    let mut id = 10;
    while number(ask(&mut socket, &insert(id)).view(), "ok") == 0 {
        assert!(began.elapsed() < Duration::from_secs(20), "the journal takes no commits");
        std::thread::sleep(Duration::from_millis(5));
        id += 1;
    }
}

#[test]
fn the_wait_for_a_sync_counts_as_latency() {
    let files = FaultyFiles::new();
    let running = start(&files);
    let mut socket = running.connect();
    ask(&mut socket, &insert(0));
    files.slow_syncs(Duration::from_millis(30));
    ask(&mut socket, &insert(1));
    let at = table::position("insert").unwrap();
    let took = running.server.counters.operations.sums()[at].micros;
    assert!(took >= 30_000, "{took}");
    // Slow enough for an entry of the slow query, which parses the request once more.
    files.slow_syncs(Duration::from_millis(120));
    assert_eq!(number(ask(&mut socket, &insert(2)).view(), "ok"), 1);
    let reported = ask(&mut socket, "{vellumSlowQueries: 1, $db: 'admin'}");
    assert!(reported.view().to_string().contains("test.c"), "{}", reported.view());
}

#[test]
fn a_wait_for_another_sync_ends_at_wtimeout() {
    let files = FaultyFiles::new();
    let running = start(&files);
    let (mut first, mut second) = (running.connect(), running.connect());
    ask(&mut first, &insert(0));
    files.slow_syncs(Duration::from_millis(200));
    let began = Instant::now();
    for id in (1..).step_by(2) {
        let reply = std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(number(ask(&mut first, &insert(id)).view(), "ok"), 1));
            let late = insert(id + 1).replace("$db", "writeConcern: {j: true, wtimeout: 5}, $db");
            ask(&mut second, &late)
        });
        // The write stays committed in spite of the reply. The request that runs the sync gets no
        // error.
        let fields: Vec<&str> = reply.view().iter().map(|field| field.name()).collect();
        if fields == ["n", "writeConcernError", "ok"] {
            break;
        }
        assert_eq!(fields, ["n", "ok"], "{}", reply.view());
        assert!(began.elapsed() < Duration::from_secs(20), "nobody waits for another one's sync");
    }
}
