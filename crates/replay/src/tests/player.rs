//! Recordings as scripts, and scripts played against a server of canned replies.

use super::serve;
use crate::format::{Event, EventKind, encode, encode_start};
use crate::mapping::Mapping;
use crate::order::Order;
use crate::player::{Observation, Player, Ranks, Speed};
use crate::redact::Redactor;
use crate::script::Script;
use base::bson::DocumentBuf;
use base::bson::extended_json::parse;
use std::time::Duration;
use wire::uri::ConnectionString;

const SESSION: &str = "lsid: {id: UUID('00000000-0000-4000-8000-000000000001')}";

fn section(text: &str) -> Vec<u8> {
    [vec![0], parse(text).unwrap().bytes().to_vec()].concat()
}

/// A file of these events: connection, microseconds, kind.
fn file(events: Vec<(u32, u64, EventKind)>) -> Vec<u8> {
    let mut out = encode_start(&DocumentBuf::empty());
    for (connection, at, kind) in events {
        encode(&Event { connection, at, kind }, &mut out);
    }
    out
}

fn request(id: i32, flags: u32, text: &str) -> EventKind {
    EventKind::Request { id, flags, sections: section(text) }
}

fn reply(id: i32, to: i32, flags: u32, text: &str) -> EventKind {
    EventKind::Reply { id, to, flags, sections: section(text) }
}

fn script() -> Script {
    let find = format!("{{find: 'c', {SESSION}, $db: 'shop'}}");
    let more = format!("{{getMore: NumberLong(9), collection: 'c', {SESSION}, $db: 'shop'}}");
    Script::read(
        file(vec![
            (1, 0, EventKind::Opened),
            (1, 1, EventKind::Withheld("hello".to_string())),
            (1, 10, request(1, 0, &find)),
            (1, 30, reply(50, 1, 0, "{cursor: {id: NumberLong(9), firstBatch: []}, ok: 1.0}")),
            (2, 31, EventKind::Opened),
            // Asked once, answered twice.
            (2, 40, request(1, 1 << 16, &more)),
            (2, 50, reply(60, 1, 2, "{cursor: {id: NumberLong(9), nextBatch: []}, ok: 1.0}")),
            (2, 60, reply(61, 60, 0, "{cursor: {id: NumberLong(0), nextBatch: []}, ok: 1.0}")),
            (2, 61, request(2, 2, "{insert: 'c', documents: [{a: 1}], $db: 'shop'}")),
            (2, 62, request(3, 0, "{shutdown: 1, $db: 'admin'}")),
            (1, 70, request(2, 0, "{ping: 1, $db: 'admin'}")),
            (1, 90, EventKind::Closed),
        ])
        .as_slice(),
        false,
    )
    .unwrap()
}

#[test]
fn recordings_become_exchanges_with_their_predecessors() {
    let script = script();
    let commands: Vec<&str> = script.exchanges.iter().map(|each| each.command.as_str()).collect();
    assert_eq!(commands, ["find", "getMore", "getMore", "insert", "ping"]);
    let connections: Vec<&[usize]> =
        script.connections.iter().map(|each| each.exchanges.as_slice()).collect();
    assert_eq!(connections, [&[0][..], &[1, 2, 3]]);
    assert_eq!(script.exchanges[1].requires, [0, 0], "the session's and the cursor's");
    assert!(script.exchanges[3].reply.is_none());
    assert_eq!(script.databases.iter().collect::<Vec<_>>(), ["shop"]);
    let skipped: Vec<&str> = script.skipped.keys().map(|(command, _)| command.as_str()).collect();
    assert_eq!(skipped, ["hello", "ping", "shutdown"]);
    assert!(script.warnings[0].contains("incomplete"), "{:?}", script.warnings);
}

#[test]
fn changes_of_system_databases_users_and_settings_are_skipped() {
    let insert = "{op: 'i', ns: 'admin.c', o: {_id: 1}}";
    let system = [
        "{insert: 'c', documents: [{a: 1}], $db: 'config'}".to_string(),
        "{dropDatabase: 1, $db: 'local'}".to_string(),
        "{aggregate: 'c', pipeline: [{$out: {db: 'admin', coll: 'c'}}], $db: 'shop'}".to_string(),
        "{aggregate: 'c', pipeline: [{$out: 'd'}], $db: 'admin'}".to_string(),
        "{renameCollection: 'shop.c', to: 'admin.c', $db: 'admin'}".to_string(),
        "{bulkWrite: 1, ops: [], nsInfo: [{ns: 'shop.c'}, {ns: 'admin.c'}], $db: 'admin'}".to_string(),
        format!("{{applyOps: [{insert}], $db: 'admin'}}"),
        format!("{{applyOps: [{{op: 'c', ns: 'shop.$cmd', o: {{applyOps: [{insert}]}}}}], $db: 'admin'}}"),
        "{dropAllUsersFromDatabase: 1, $db: 'shop'}".to_string(),
        "{grantRolesToUser: 'u', roles: ['root'], $db: 'shop'}".to_string(),
        "{setParameter: 1, logLevel: 0, $db: 'admin'}".to_string(),
        "{setFeatureCompatibilityVersion: '7.0', $db: 'admin'}".to_string(),
        "{fsync: 1, lock: true, $db: 'admin'}".to_string(),
    ];
    let others = [
        "{find: 'c', $db: 'admin'}",
        "{aggregate: 1, pipeline: [{$currentOp: {}}], $db: 'admin'}",
        "{commitTransaction: 1, $db: 'admin'}",
        "{usersInfo: 1, $db: 'admin'}",
        "{insert: 'c', documents: [{to: 'admin.c'}], $db: 'shop'}",
        "{bulkWrite: 1, ops: [], nsInfo: [{ns: 'bulk.c'}], $db: 'admin'}",
        "{renameCollection: 'old.c', to: 'new.c', $db: 'admin'}",
        "{applyOps: [{op: 'd', ns: 'first.c', o: {_id: 1}}, {op: 'c', ns: 'second.$cmd', o: {applyOps: [\
         {op: 'c', ns: 'third.$cmd', o: {renameCollection: 'third.c', to: 'fourth.c'}}]}}], $db: 'admin'}",
    ];
    let texts = system.iter().map(String::as_str).chain(others);
    let events = texts.enumerate().flat_map(|(at, text)| {
        let (id, at) = (at as i32, at as u64 * 10);
        [(1, at, request(id, 0, text)), (1, at + 5, reply(100 + id, id, 0, "{ok: 1.0}"))]
    });
    let file = file(events.collect());
    let read = |spares_system| Script::read(file.as_slice(), spares_system).unwrap();
    let spared = read(true);
    assert_eq!(spared.requests(), others.len() as u64, "{:?}", spared.skipped);
    assert_eq!(spared.skipped.values().sum::<u64>(), system.len() as u64);
    let databases = ["bulk", "first", "fourth", "new", "old", "second", "shop", "third"];
    assert_eq!(spared.databases.iter().collect::<Vec<_>>(), databases);
    assert_eq!(read(false).requests(), (system.len() + others.len()) as u64);
}

/// Plays a script on the null server.
fn played(script: &Script, speed: Speed, check: bool) -> (Vec<Observation>, Duration) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let host = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || serve(&listener));
    let uri = ConnectionString::parse(&host).unwrap();
    let (redactor, ranks) = (Redactor::new(&[]), Ranks::of(script));
    let (mapping, order) =
        (Mapping::new([7; 16], &script.server_generated), Order::new(script.exchanges.len()));
    let player = Player {
        script,
        uri: &uri,
        host: &host,
        speed,
        check,
        check_outcomes: true,
        mapping: &mapping,
        redactor: &redactor,
        order: &order,
        ranks: &ranks,
    };
    player.run()
}

#[test]
fn a_script_is_played_to_its_end_at_every_pace() {
    let script = script();
    for (speed, check) in [(Speed::Max, false), (Speed::Max, true), (Speed::Times(0.001), true)] {
        let (found, took) = played(&script, speed, check);
        assert_eq!(found.len(), 4, "{speed:?}");
        assert!(found.iter().all(|each| each.result.is_ok() && each.error_differs.is_none()));
        // The null server's cursors return a document.
        let differs = found.iter().any(|each| each.reply_differs.is_some());
        assert_eq!(differs, check, "{speed:?}");
        // The other pace depends on the machine.
        let slow = matches!(speed, Speed::Times(_));
        assert!(!slow || took >= Duration::from_millis(60), "{speed:?} took {took:?}");
    }
}

#[test]
fn requests_without_a_reply_delay_no_request() {
    let ping = "{ping: 1, $db: 'admin'}";
    let events = vec![
        (1, 0, EventKind::Opened),
        (1, 10, request(1, 0, ping)),
        (2, 15, EventKind::Opened),
        (2, 20, request(1, 0, ping)),
        (2, 30, reply(50, 1, 0, "{ok: 1.0}")),
    ];
    let script = Script::read(file(events).as_slice(), false).unwrap();
    let (found, _) = played(&script, Speed::Max, true);
    assert_eq!(found.len(), 1);
    assert!(found.iter().all(|each| each.result.is_ok()));
}

#[test]
fn other_files_are_refused() {
    assert!(Script::read(b"VELLUMRC\x01\0\0\0".as_slice(), false).is_err());
    let nonsense = file(vec![(1, 0, EventKind::Request { id: 1, flags: 0, sections: vec![9, 9] })]);
    assert!(Script::read(nonsense.as_slice(), false).map(drop).unwrap_err().contains("invalid"));
}
