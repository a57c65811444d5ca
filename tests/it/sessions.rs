//! Statements of one session run in sequence, and a waiting statement blocks no other client.

use crate::client::Client;
use crate::server::Server;
use base::bson::extended_json::parse;
use base::bson::{Builder, DocumentBuf, Value};
use std::time::{Duration, Instant};

const SESSION: &str = "lsid: {id: UUID('00000000-0000-4000-8000-0000000000aa')}";

fn code(reply: &DocumentBuf) -> Option<i64> {
    number(reply, "code")
}

fn number(reply: &DocumentBuf, name: &str) -> Option<i64> {
    reply.view().get(name).and_then(|number| number.as_i64())
}

/// Runs a command, given without `$db`, on `test`.
fn run(client: &mut Client, command: &str) -> DocumentBuf {
    client.command(&on("test", command)).unwrap()
}

fn on(database: &str, command: &str) -> DocumentBuf {
    let mut out = Builder::new();
    out.append_all(parse(command).unwrap().view()).append(c"$db", database);
    out.finish()
}

/// Returns a slow update of the only document in `c`.
fn slow(number: i32) -> String {
    let work = "{$size: {$map: {input: {$range: [0, 60000]}, in: {$multiply: ['$$this', 3]}}}}";
    format!(
        "{{update: 'c', updates: [{{q: {{_id: 1}}, u: [{{$set: {{n: {{$add: ['$n', 1]}}, w: {work}}}}}]}}],
          txnNumber: NumberLong({number}), {SESSION}}}"
    )
}

#[test]
fn a_write_sent_twice_concurrently_is_applied_once() {
    let Some(server) = Server::start_with(&["--replset", "rs0"]) else { return };
    let mut clients = [server.connect().unwrap(), server.connect().unwrap()];
    run(&mut clients[0], "{insert: 'c', documents: [{_id: 1, n: 0}]}");
    for round in 1..=10 {
        let command = slow(round);
        let replies: Vec<_> = std::thread::scope(|scope| {
            let send = |client| scope.spawn(|| run(client, &command));
            let sent: Vec<_> = clients.iter_mut().map(send).collect();
            sent.into_iter().map(|sent| sent.join().unwrap()).collect()
        });
        let retried = |reply: &&DocumentBuf| reply.view().find("retriedStmtIds").is_some();
        assert_eq!(replies.iter().filter(retried).count(), 1, "{replies:?}");
        for reply in &replies {
            assert_eq!(number(reply, "nModified"), Some(1), "{reply:?}");
        }
    }
    let found = run(&mut clients[0], "{find: 'c', projection: {n: 1, _id: 0}}");
    assert!(format!("{found:?}").contains("\"n\": Int32(10)"), "{found:?}");
    let status = clients[0].command(&on("admin", "{serverStatus: 1}")).unwrap();
    let counts = status.view().get("transactions").and_then(|counts| counts.as_document()).unwrap();
    for name in ["retriedCommandsCount", "retriedStatementsCount"] {
        assert_eq!(counts.get(name).and_then(|count| count.as_i64()), Some(10), "{counts}");
    }
}

/// Returns the numbers of the running operations in `test.c`.
fn running(client: &mut Client) -> Vec<i64> {
    let reply = client.command(&on("admin", "{currentOp: 1, ns: 'test.c'}")).unwrap();
    let list = reply.view().get("inprog").and_then(|list| list.as_array()).unwrap();
    let number = |entry: Value<'_>| entry.as_document()?.get("opid")?.as_i64();
    list.iter().filter_map(number).collect()
}

/// Waits until this number of operations run.
fn until_running(client: &mut Client, count: usize) -> Vec<i64> {
    let began = Instant::now();
    loop {
        let running = running(client);
        if running.len() == count {
            return running;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{running:?} instead of {count}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn waiting_for_a_session_ends_in_every_way() {
    let Some(server) = Server::start_with(&["--replset", "rs0"]) else { return };
    let mut admin = server.connect().unwrap();
    let mut lock = |command: &str| assert_eq!(code(&admin.command(&on("admin", command)).unwrap()), None);
    let write = |number: i32, more: &str| {
        on(
            "test",
            &format!("{{insert: 'c', documents: [{{}}], txnNumber: NumberLong({number}), {SESSION}{more}}}"),
        )
    };
    // The first statement waits for fsyncUnlock and occupies the session meanwhile.
    lock("{fsync: 1, lock: true}");
    let mut clients: Vec<_> = (0..4).map(|_| server.connect().unwrap()).collect();
    let mut watch = server.connect().unwrap();
    let mut gone = server.connect().unwrap();
    std::thread::scope(|scope| {
        let mut send = |command: DocumentBuf| {
            let mut client = clients.pop().unwrap();
            scope.spawn(move || code(&client.command(&command).unwrap()))
        };
        let first = send(write(1, ""));
        let first_number = until_running(&mut watch, 1)[0];
        // maxTimeMS.
        assert_eq!(send(write(1, ", maxTimeMS: 30")).join().unwrap(), Some(50));
        // killOp of a waiting statement.
        let second = send(write(1, ""));
        let numbers = until_running(&mut watch, 2);
        let waiting = numbers.into_iter().find(|number| *number != first_number).unwrap();
        watch.command(&on("admin", &format!("{{killOp: 1, op: NumberLong({waiting})}}"))).unwrap();
        assert_eq!(second.join().unwrap(), Some(11_601));
        // A client that disconnects.
        gone.send_command(&write(2, "")).unwrap();
        until_running(&mut watch, 2);
        drop(gone);
        until_running(&mut watch, 1);
        // A command without a transaction number does not wait.
        assert_eq!(code(&run(&mut watch, &format!("{{find: 'c', {SESSION}}}"))), None);
        // killSessions ends the session's running statement, though it waits for another reason.
        let last = send(write(3, ""));
        until_running(&mut watch, 2);
        let kill = format!("{{killSessions: [{}]}}", SESSION.strip_prefix("lsid: ").unwrap());
        assert_eq!(code(&run(&mut watch, &kill)), None);
        assert_eq!((first.join().unwrap(), last.join().unwrap()), (Some(11_601), Some(11_601)));
    });
    lock("{fsyncUnlock: 1}");
    assert_eq!(code(&watch.command(&write(4, "")).unwrap()), None);
    let count = run(&mut watch, "{count: 'c'}");
    assert_eq!(number(&count, "n"), Some(1), "{count:?}");
}
