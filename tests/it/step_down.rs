//! A stepDown interrupts running writes, and completed writes stay.

use crate::requests::{run, succeed, until};
use crate::server::Server;
use base::bson::DocumentBuf;
use std::thread;
use std::time::{Duration, Instant};

fn labels(reply: &DocumentBuf) -> Vec<&str> {
    let labels = reply.view().get("errorLabels").and_then(|labels| labels.as_array());
    labels.map(|labels| labels.iter().filter_map(|label| label.as_str()).collect()).unwrap_or_default()
}

fn code(reply: &DocumentBuf) -> Option<i64> {
    reply.view().get("code").and_then(|code| code.as_i64())
}

/// Runs a write, steps down meanwhile, and returns the reply of the write.
fn interrupted(server: &Server, command: &str) -> DocumentBuf {
    thread::scope(|scope| {
        let mut own = server.connect().unwrap();
        let write = scope.spawn(move || run(&mut own, command));
        let mut client = server.connect().unwrap();
        let started = Instant::now();
        let name = &command[1..command.find(':').unwrap()];
        let current = format!("{{currentOp: 1, 'command.{name}': {{$exists: true}}, $db: 'admin'}}");
        loop {
            let found = run(&mut client, &current);
            if found
                .view()
                .get("inprog")
                .and_then(|list| list.as_array())
                .is_some_and(|list| !list.is_empty())
            {
                break;
            }
            assert!(started.elapsed() < Duration::from_secs(60), "{found:?}");
            thread::sleep(Duration::from_millis(5));
        }
        succeed(&mut client, "{replSetStepDown: 60, force: true, $db: 'admin'}");
        write.join().unwrap()
    })
}

fn again(server: &Server) {
    succeed(&mut server.connect().unwrap(), "{replSetFreeze: 0, $db: 'admin'}");
}

#[test]
fn a_step_down_interrupts_running_writes() {
    if std::env::var_os("VELLUM_SERVER").is_some() {
        return;
    }
    let Some(server) = Server::start_with(&["--replset", "rs0"]) else { return };
    let mut client = server.connect().unwrap();
    succeed(&mut client, "{insert: 'c', documents: [{_id: 1}, {_id: 2}], $db: 'test'}");

    // A write that computes.
    let heavy = "{update: 'c', updates: [{q: {}, u: [{$set: {x: {$sum: {$map: {input: {$range: ['$_id', 50000000]}, \
                 in: {$multiply: ['$$this', 2]}}}}}}], multi: true}], $db: 'test'}";
    let reply = interrupted(&server, heavy);
    assert_eq!((code(&reply), labels(&reply).is_empty()), (Some(11602), true), "{reply:?}");
    again(&server);

    // A write that waits and may be retried: it has changed nothing.
    succeed(&mut client, "{fsync: 1, lock: true, $db: 'admin'}");
    let waiting = "{insert: 'c', documents: [{_id: 3}], lsid: {id: UUID('00000000-0000-4000-8000-000000000001')}, \
                   txnNumber: NumberLong(1), $db: 'test'}";
    let reply = interrupted(&server, waiting);
    assert_eq!(code(&reply), Some(11602), "{reply:?}");
    assert_eq!(labels(&reply), ["RetryableWriteError", "NoWritesPerformed"]);
    succeed(&mut client, "{fsyncUnlock: 1, $db: 'admin'}");
    // A member that is not primary refuses the write with the same reply.
    let refused = run(&mut client, waiting);
    assert_eq!(code(&refused), Some(10107));
    assert_eq!(labels(&refused), ["RetryableWriteError", "NoWritesPerformed"]);
    again(&server);
    succeed(&mut client, waiting);
    let count = succeed(&mut client, "{count: 'c', $db: 'test'}");
    assert_eq!(count.view().get("n").and_then(|n| n.as_i64()), Some(3));
}

#[test]
fn a_write_that_has_changed_something_before_its_wait_is_labeled_so() {
    if std::env::var_os("VELLUM_SERVER").is_some() {
        return;
    }
    let Some(server) = Server::start_with(&["--replset", "rs0"]) else { return };
    let mut client = server.connect().unwrap();
    succeed(&mut client, "{insert: 'c', documents: [{_id: 1}, {_id: 2}], $db: 'test'}");
    let session = |uuid: u8| {
        format!(
            "lsid: {{id: UUID('00000000-0000-4000-8000-0000000000{uuid:02}')}}, txnNumber: NumberLong(1), $db: 'test'"
        )
    };
    let set = |id: u8| format!("{{q: {{_id: {id}}}, u: {{$set: {{n: 1}}}}}}");
    let holding = "autocommit: false, startTransaction: true";
    succeed(&mut client, &format!("{{update: 'c', updates: [{}], {holding}, {}}}", set(2), session(1)));
    let update = format!("{{update: 'c', updates: [{}, {}], {}}}", set(1), set(2), session(2));
    let reply = thread::scope(|scope| {
        let write = scope.spawn(|| run(&mut server.connect().unwrap(), &update));
        let changed = "{count: 'c', query: {n: 1}, $db: 'test'}";
        until("it has changed a document", || {
            run(&mut client, changed).view().get("n").and_then(|n| n.as_i64()) == Some(1)
        });
        succeed(&mut client, "{replSetStepDown: 60, force: true, $db: 'admin'}");
        write.join().unwrap()
    });
    assert!(matches!(code(&reply), Some(11602 | 10107)), "{reply:?}");
    assert_eq!(labels(&reply), ["RetryableWriteError"]);
}
