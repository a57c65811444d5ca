//! The log window: errors for streams that start earlier, and the growth of terms.

use crate::change_streams::Stream;
use crate::client::Client;
use crate::requests::{code, run, succeed};
use crate::server::{Scratch, Server};
use base::bson::{DocumentBuf, Value};
use std::thread;

/// Options of a set with the smallest possible log.
const SMALL: [&str; 4] = ["--replset", "rs0", "--oplog-size", "16M"];

const TOO_OLD: i64 = 286;
/// QueryRejectedBySettings.
const REJECTED: i64 = 411;

fn is_remote() -> bool {
    std::env::var_os("VELLUM_SERVER").is_some()
}

/// Opens a stream and returns its error code.
fn code_of(client: &mut Client, spec: &str) -> Option<i64> {
    let command =
        format!("{{aggregate: 'c', pipeline: [{{$changeStream: {{{spec}}}}}], cursor: {{}}, $db: 'test'}}");
    let reply = run(client, &command);
    if let Some(labels) = reply.view().get("errorLabels").and_then(|labels| labels.as_array()) {
        let label = labels.iter().next().and_then(|label| label.as_str());
        assert_eq!(label, Some("NonResumableChangeStreamError"));
    }
    reply.view().get("code").and_then(|code| code.as_i64())
}

/// Writes more than a small log keeps.
fn fill_log(client: &mut Client) {
    let filling = "x".repeat(1 << 20);
    for number in 0..40 {
        succeed(
            client,
            &format!("{{insert: 'filling', documents: [{{n: {number}, t: '{filling}'}}], $db: 'test'}}"),
        );
    }
    succeed(client, "{drop: 'filling', $db: 'test'}");
}

fn operation_time(reply: &DocumentBuf) -> String {
    match reply.view().get("operationTime") {
        Some(Value::Timestamp(time)) => format!("Timestamp({}, {})", time >> 32, time as u32),
        other => panic!("operationTime: {other:?}"),
    }
}

#[test]
fn streams_before_the_oplog_window_are_refused() {
    if is_remote() {
        return;
    }
    let Some(server) = Server::start_with(&SMALL) else { return };
    let mut client = server.connect().unwrap();
    // Any start time is valid before the log is first trimmed.
    assert_eq!(code_of(&mut client, "startAtOperationTime: Timestamp(1, 1)"), None);
    succeed(&mut client, "{create: 'c', changeStreamPreAndPostImages: {enabled: true}, $db: 'test'}");
    let mut slow = Stream::open(&mut client, "fullDocumentBeforeChange: 'required'");
    let started = operation_time(&succeed(&mut client, "{insert: 'c', documents: [{_id: 1}], $db: 'test'}"));
    let mut stream = Stream::open(&mut client, &format!("startAtOperationTime: {started}"));
    assert_eq!(stream.read(&mut client, 10, 1000), 1);
    let token = stream.token.clone();
    succeed(&mut client, "{update: 'c', updates: [{q: {_id: 1}, u: {$set: {a: 1}}}], $db: 'test'}");
    fill_log(&mut client);
    for spec in [
        format!("resumeAfter: {{_data: '{token}'}}"),
        format!("startAfter: {{_data: '{token}'}}"),
        format!("startAtOperationTime: {started}"),
        "startAtOperationTime: Timestamp(1, 1)".to_string(),
    ] {
        assert_eq!(code_of(&mut client, &spec), Some(TOO_OLD), "{spec}");
    }
    // An outdated stream gets the error at its next getMore; pre-images were removed with their entries.
    let reply =
        run(&mut client, &format!("{{getMore: NumberLong({}), collection: 'c', $db: 'test'}}", slow.cursor));
    assert_eq!(reply.view().get("code").and_then(|code| code.as_i64()), Some(TOO_OLD), "{reply:?}");
    slow = Stream::open(&mut client, "fullDocumentBeforeChange: 'required'");
    succeed(&mut client, "{delete: 'c', deletes: [{q: {_id: 1}, limit: 1}], $db: 'test'}");
    assert_eq!(slow.read(&mut client, 10, 1000), 1);
}

#[test]
fn a_waiting_stream_returns_writes_of_other_clients() {
    if is_remote() {
        return;
    }
    let Some(server) = Server::start_with(&SMALL) else { return };
    let mut client = server.connect().unwrap();
    let mut stream = Stream::open(&mut client, "");
    thread::scope(|scope| {
        let mut own = server.connect().unwrap();
        let waiting = scope.spawn(move || {
            let read = stream.read(&mut own, 10, 600_000);
            (stream, read)
        });
        fill_log(&mut client);
        succeed(&mut client, "{insert: 'c', documents: [{_id: 1}], $db: 'test'}");
        let (stream, read) = waiting.join().unwrap();
        assert_eq!((stream.events.len(), read), (1, 1));
    });
}

#[test]
fn a_start_as_a_standalone_ends_all_streams() {
    if is_remote() {
        return;
    }
    let data = Scratch::new("standalone-stretch");
    let set = || Server::start_on(&data, &["--replset", "rs0"]).unwrap();
    let server = set();
    let mut client = server.connect().unwrap();
    let stream = Stream::open(&mut client, "");
    let started = operation_time(&succeed(&mut client, "{insert: 'c', documents: [{_id: 1}], $db: 'test'}"));
    drop(server);
    let server = Server::start_on(&data, &[]).unwrap();
    succeed(&mut server.connect().unwrap(), "{insert: 'c', documents: [{_id: 2}], $db: 'test'}");
    drop(server);
    let server = set();
    let mut client = server.connect().unwrap();
    let resumed = format!("resumeAfter: {{_data: '{}'}}", stream.token);
    assert_eq!(code_of(&mut client, &resumed), Some(TOO_OLD));
    assert_eq!(code_of(&mut client, &format!("startAtOperationTime: {started}")), Some(TOO_OLD));
    let mut stream = Stream::open(&mut client, "");
    succeed(&mut client, "{insert: 'c', documents: [{_id: 3}], $db: 'test'}");
    assert_eq!(stream.read(&mut client, 10, 10_000), 1);
}

/// Returns the term of the log's latest entry, of hello's election, and of the set's status.
fn terms(client: &mut Client) -> [i64; 3] {
    let found = succeed(client, "{find: 'oplog.rs', sort: {$natural: -1}, limit: 1, $db: 'local'}");
    let batch = found.view().get("cursor").unwrap().as_document().unwrap().get("firstBatch").unwrap();
    let latest = batch.as_array().unwrap().iter().next().unwrap().as_document().unwrap();
    let logged = latest.get("t").unwrap().as_i64().unwrap();
    let hello = succeed(client, "{hello: 1, $db: 'admin'}");
    let election = match hello.view().get("electionId") {
        Some(Value::ObjectId(id)) => i64::from(*id.0.last().unwrap()),
        other => panic!("electionId: {other:?}"),
    };
    let status = succeed(client, "{replSetGetStatus: 1, $db: 'admin'}");
    [logged, election, status.view().get("term").unwrap().as_i64().unwrap()]
}

#[test]
fn each_election_begins_a_term() {
    if is_remote() {
        return;
    }
    let data = Scratch::new("terms");
    let start = || Server::start_on(&data, &["--replset", "rs0"]).unwrap();
    let server = start();
    let mut client = server.connect().unwrap();
    assert_eq!(terms(&mut client), [1; 3]);
    succeed(&mut client, "{replSetStepDown: 60, force: true, $db: 'admin'}");
    succeed(&mut client, "{replSetFreeze: 0, $db: 'admin'}");
    assert_eq!(terms(&mut client), [2; 3]);
    succeed(&mut client, "{insert: 'c', documents: [{_id: 1}], $db: 'test'}");
    drop(server);
    for term in [3, 4] {
        let server = start();
        let mut client = server.connect().unwrap();
        assert_eq!(terms(&mut client), [term; 3]);
        succeed(&mut client, &format!("{{insert: 'c', documents: [{{_id: 't{term}'}}], $db: 'test'}}"));
        assert_eq!(terms(&mut client), [term; 3]);
    }
}

#[test]
fn cluster_parameters_survive_a_restart() {
    if is_remote() {
        return;
    }
    let data = Scratch::new("image-expiry");
    let start = || Server::start_on(&data, &["--replset", "rs0"]).unwrap();
    let server = start();
    let set = "{setClusterParameter: {changeStreamOptions: {preAndPostImages: {expireAfterSeconds: 77}}}, $db: 'admin'}";
    succeed(&mut server.connect().unwrap(), set);
    let set = "{setQuerySettings: {find: 'c', filter: {a: 1}, $db: 'test'}, settings: {reject: true}, $db: 'admin'}";
    succeed(&mut server.connect().unwrap(), set);
    drop(server);
    let server = start();
    let mut client = server.connect().unwrap();
    let reply = succeed(&mut client, "{getClusterParameter: 'changeStreamOptions', $db: 'admin'}");
    assert!(reply.view().to_string().contains("expireAfterSeconds: 77"), "{reply:?}");
    assert_eq!(code(&run(&mut client, "{find: 'c', filter: {a: 5}, $db: 'test'}")), REJECTED);
}
