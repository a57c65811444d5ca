//! Common steps of tests: run a command, read its reply, wait for a state.

use crate::client::Client;
use crate::server::Server;
use base::bson::DocumentBuf;
use base::bson::extended_json::parse;
use std::thread;
use std::time::{Duration, Instant};

/// Timeout for a state on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Runs a command in the shell's form, with its `$db`, and returns the reply.
pub(crate) fn run(client: &mut Client, command: &str) -> DocumentBuf {
    client.command(&parse(command).unwrap()).unwrap()
}

/// Runs a command on a new connection.
pub(crate) fn run_on(server: &Server, command: &str) -> DocumentBuf {
    run(&mut server.connect().unwrap(), command)
}

/// Runs a command that must succeed, also in each of its writes.
pub(crate) fn succeed(client: &mut Client, command: &str) -> DocumentBuf {
    let reply = run(client, command);
    let ok = reply.view().get("ok").and_then(|ok| ok.as_i64());
    assert_eq!((ok, reply.view().find("writeErrors").is_none()), (Some(1), true), "{command}: {reply:?}");
    reply
}

/// Returns an integer in a reply; -1 without the field.
pub(crate) fn number(reply: &DocumentBuf, name: &str) -> i64 {
    reply.view().get(name).and_then(|value| value.as_i64()).unwrap_or(-1)
}

/// Returns the error code of a reply or of its first write error; 0 without an error.
pub(crate) fn code(reply: &DocumentBuf) -> i64 {
    let first = reply.view().get("writeErrors").and_then(|errors| errors.as_array()?.get(0)?.as_document());
    let code = reply.view().get("code").or_else(|| first?.get("code"));
    code.and_then(|code| code.as_i64()).unwrap_or(0)
}

/// Returns the number of running operations of this command.
pub(crate) fn running(client: &mut Client, command: &str) -> usize {
    let current =
        run(client, &format!("{{currentOp: 1, $db: 'admin', 'command.{command}': {{$exists: true}}}}"));
    current.view().get("inprog").and_then(|list| list.as_array()).map_or(0, |list| list.len())
}

/// Waits until a condition holds. Tests wait for states in this way, never for a time.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < TIMEOUT, "not within {TIMEOUT:?}: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}
