//! The memory limit under bursts: many operations that begin together, and many replies that no client reads.

use crate::client::Client;
use crate::print_line;
use crate::server::Server;
use base::bson::extended_json::parse;
use base::bson::{Builder, DocumentBuf};
use std::path::PathBuf;
use std::sync::Barrier;

/// The limit in MB, and the tolerance of resident memory for a moment.
const LIMIT: u64 = 300;
const BEYOND: u64 = 100;

fn command(client: &mut Client, text: &str) -> DocumentBuf {
    client.command(&with_database(text)).unwrap()
}

fn with_database(text: &str) -> DocumentBuf {
    let mut sent = Builder::new();
    sent.append_all(parse(text).unwrap().view()).append(c"$db", "test");
    sent.finish()
}

fn number(reply: &DocumentBuf, name: &str) -> i64 {
    reply.view().get(name).and_then(|value| value.as_i64()).unwrap_or(-1)
}

/// Returns the peak resident memory of a server in MB; `None` if the system does not report it.
fn peak(server: &Server) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? / 1024)
}

fn assert_within(server: &Server) {
    if let Some(peak) = peak(server) {
        assert!(
            peak <= LIMIT + BEYOND,
            "{peak} MB were resident, with a limit of {LIMIT}\n{}",
            server.log_tail()
        );
        print_line(&format!("a burst took {peak} MB of {LIMIT}"));
    }
}

#[test]
fn aggregates_that_begin_at_once_stay_within_the_limit() {
    const CLIENTS: usize = 100;
    let Some(server) = Server::start_with(&["--memory-limit", &format!("{LIMIT}M")]) else { return };
    let begin = Barrier::new(CLIENTS);
    let large = "{aggregate: 1, cursor: {}, pipeline: [{$documents: [{}]}, {$set: {x: {$range: [0, 200000]}}}, {$set: {n: {$size: {$concatArrays: ['$x', '$x']}}}}, {$project: {n: 1}}]}";
    let run = || {
        let mut client = server.connect().unwrap();
        begin.wait();
        let reply = command(&mut client, large);
        (number(&reply, "ok"), number(&reply, "code"))
    };
    let replies: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(run)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let answered = replies.iter().filter(|(ok, _)| *ok == 1).count();
    assert!(replies.iter().all(|(ok, code)| *ok == 1 || *code == 146), "{replies:?}");
    assert!(answered >= CLIENTS / 2, "{answered} were answered");
    assert_within(&server);
}

/// Makes many clients request a large batch each. They read the replies only after all requests.
fn read_slowly(server: &Server) {
    const CLIENTS: usize = 30;
    const DOCUMENTS: i64 = 14;
    let mut client = server.connect().unwrap();
    for id in 0..DOCUMENTS {
        let mut sent = Builder::new();
        sent.append(c"insert", "c").begin_array(c"documents").push_document();
        sent.append(c"_id", id)
            .append(c"text", "x".repeat(1_000_000).as_str())
            .end()
            .end()
            .append(c"$db", "test");
        assert_eq!(number(&client.command(&sent.finish()).unwrap(), "n"), 1);
    }
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.connect().unwrap()).collect();
    let find = with_database("{find: 'c', batchSize: 100}");
    clients.iter_mut().for_each(|client| client.send_command(&find).unwrap());
    // The replies have begun and wait for their readers.
    std::thread::sleep(std::time::Duration::from_secs(1));
    for client in &mut clients {
        let mut found = 0;
        let ended = |error| panic!("the server ended a connection: {error}\n{}", server.log_tail());
        let mut reply = client.reply().unwrap_or_else(ended);
        loop {
            let cursor = reply.view().get("cursor").and_then(|cursor| cursor.as_document());
            let Some(cursor) = cursor else { panic!("{:.300}", reply.view().to_string()) };
            let batch = cursor.get("firstBatch").or_else(|| cursor.get("nextBatch"));
            found += batch.and_then(|batch| batch.as_array()).map_or(0, |batch| batch.iter().count() as i64);
            match cursor.get("id").and_then(|id| id.as_i64()) {
                Some(id) if id != 0 => {
                    let next = format!("{{getMore: NumberLong('{id}'), collection: 'c'}}");
                    reply = client.command(&with_database(&next)).unwrap_or_else(ended);
                }
                _ => break,
            }
        }
        assert_eq!(found, DOCUMENTS);
    }
}

#[test]
fn replies_that_wait_stay_within_the_limit() {
    let Some(server) = Server::start_with(&["--memory-limit", &format!("{LIMIT}M")]) else { return };
    read_slowly(&server);
    assert_within(&server);
}

/// Clients that request one document of 15 MB and never read it.
#[test]
fn replies_of_one_document_stay_within_the_limit() {
    const CLIENTS: usize = 30;
    let Some(server) = Server::start_with(&["--memory-limit", &format!("{LIMIT}M")]) else { return };
    let mut client = server.connect().unwrap();
    let mut sent = Builder::new();
    sent.append(c"insert", "c").begin_array(c"documents").push_document();
    sent.append(c"text", "x".repeat(15 << 20).as_str()).end().end().append(c"$db", "test");
    assert_eq!(number(&client.command(&sent.finish()).unwrap(), "n"), 1);
    for text in [
        "{find: 'c'}",
        "{distinct: 'c', key: 'text'}",
        "{findAndModify: 'c', update: {$set: {a: 1}}, new: true}",
    ] {
        let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.connect().unwrap()).collect();
        clients.iter_mut().for_each(|client| client.send_command(&with_database(text)).unwrap());
        std::thread::sleep(std::time::Duration::from_secs(1));
        assert_eq!(number(&command(&mut client, "{ping: 1}"), "ok"), 1);
        drop(clients);
        assert_within(&server);
    }
}

/// Requests with large messages that wait without an operation.
#[test]
fn requests_that_wait_stay_within_the_limit() {
    const CLIENTS: i64 = 60;
    let Some(server) = Server::start_with(&["--memory-limit", &format!("{LIMIT}M")]) else { return };
    let hello = command(&mut server.connect().unwrap(), "{hello: 1}");
    let mut sent = Builder::new();
    sent.append(c"hello", 1).append(c"maxAwaitTimeMS", 600_000);
    sent.append(c"topologyVersion", hello.view().get("topologyVersion").unwrap());
    sent.append(c"comment", "x".repeat(8 << 20).as_str()).append(c"$db", "admin");
    let sent = sent.finish();
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.connect().unwrap()).collect();
    for client in &mut clients {
        // The server may cut it meanwhile.
        let _ = client.send_command(&sent);
        // Near the limit, the server checks its memory every 10 ms.
        std::thread::sleep(std::time::Duration::from_millis(30));
        let answer = command(&mut server.connect().unwrap(), "{insert: 'c', documents: [{}]}");
        assert_eq!(number(&answer, "ok"), 1, "{}", answer.view());
    }
    let status = command(&mut server.connect().unwrap(), "{serverStatus: 1}");
    let open = status.view().get("connections").and_then(|open| open.as_document()?.get("current")?.as_i64());
    assert!(open.unwrap() < CLIENTS, "{open:?} connections remain\n{}", server.log_tail());
    drop(clients);
    assert_within(&server);
}

/// A control group for a process, with a memory limit, if the machine allows it.
struct Group(PathBuf);

impl Group {
    fn new(pid: u32, megabytes: u64) -> Option<Group> {
        let bases = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        bases.into_iter().find_map(|(base, limit)| {
            let path = PathBuf::from(base).join(format!("vellum-test-{}", std::process::id()));
            std::fs::create_dir(&path).ok()?;
            let group = Group(path);
            // On an ordinary file system, the writes would create files without effect.
            let set = |name: &str, text: String| {
                let path = group.0.join(name);
                path.exists().then(|| std::fs::write(path, text).ok()).flatten()
            };
            set(limit, (megabytes << 20).to_string())?;
            set("cgroup.procs", pid.to_string())?;
            Some(group)
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A process that is still ending keeps the directory.
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn a_server_in_a_control_group_outlives_slow_readers() {
    let Some(server) = Server::start_with(&["--memory-limit", "540M"]) else { return };
    let Some(_group) = Group::new(server.pid(), 600) else {
        return print_line("the memory limit in a control group skipped: none can be made here");
    };
    read_slowly(&server);
    assert_eq!(number(&command(&mut server.connect().unwrap(), "{ping: 1}"), "ok"), 1);
    drop(server);
}
