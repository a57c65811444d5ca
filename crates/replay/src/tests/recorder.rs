//! The recorder between a client and a server of canned replies.

use super::{Scratch, serve};
use crate::format::{EventKind, Reader};
use crate::proxy::{Shared, serve_connection};
use crate::record::Sink;
use crate::redact::Redactor;
use base::bson::DocumentBuf;
use base::bson::extended_json::parse;
use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use wire::client::Client;
use wire::uri::ConnectionString;

/// Sends commands through a recorder that redacts `pin`, and returns the file.
async fn record(path: &Path, commands: &'static [&'static str]) -> Vec<u8> {
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let host = server.local_addr().unwrap().to_string();
    std::thread::spawn(move || serve(&server));
    let sink = Sink::create(path, &DocumentBuf::empty(), 1 << 20).unwrap();
    let (redactor, withheld_cursors) = (Redactor::new(&["pin".to_string()]), Mutex::new(HashSet::new()));
    let shared = Arc::new(Shared { sink, redactor, host, tls: None, withheld_cursors });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let client = tokio::task::spawn_blocking(move || {
        let uri = ConnectionString::parse(&address).unwrap();
        let mut client = Client::connect(&address, &uri, Instant::now() + Duration::from_secs(20)).unwrap();
        for command in commands {
            client.command(&parse(command).unwrap()).unwrap();
        }
    });
    let (stream, _) = listener.accept().await.unwrap();
    serve_connection(stream, 1, &shared).await.unwrap();
    client.await.unwrap();
    shared.sink.finish();
    std::fs::read(path).unwrap()
}

fn kinds_of(file: &[u8]) -> Vec<EventKind> {
    let mut reader = Reader::open(file).unwrap();
    std::iter::from_fn(|| reader.next_event().unwrap()).map(|event| event.kind).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn traffic_is_recorded_without_secrets() {
    let scratch = Scratch::new("passes");
    let file = record(
        &scratch.path().join("r"),
        &[
            "{hello: 1, speculativeAuthenticate: {payload: 'hidden'}, $db: 'admin'}",
            "{saslStart: 1, payload: 'hidden', $db: 'admin'}",
            "{insert: 'c', documents: [{a: 1, pin: 'hidden'}], $db: 'd'}",
            "{aggregate: 'c', pipeline: [{$group: {_id: '$pin', hidden: {$sum: 1}}}], $db: 'd'}",
            "{find: 'c', filter: {name: 'seen'}, $db: 'd'}",
        ],
    )
    .await;
    let text = String::from_utf8_lossy(&file);
    assert!(!text.contains("hidden") && text.contains("seen"));
    let kinds: Vec<String> = kinds_of(&file)
        .into_iter()
        .map(|kind| match kind {
            EventKind::Request { .. } => "request".to_string(),
            EventKind::Reply { .. } => "reply".to_string(),
            EventKind::Withheld(command) => command,
            other => format!("{other:?}"),
        })
        .collect();
    let expected = [
        "Opened",
        "hello",
        "saslStart",
        "request",
        "reply",
        "aggregate",
        "request",
        "reply",
        "Closed",
        "End(\"\")",
    ];
    assert_eq!(kinds, expected);
}
