//! Change streams over PostgreSQL: writers at two fronts, streams at both, resumed at random positions, and a killed
//! front. Each commit appears exactly once, in one order.

use crate::client::Client;
use crate::print_line;
use crate::requests::{succeed, until};
use crate::server::Server;
use base::bson::extended_json::parse;
use base::bson::{Document, DocumentBuf};
use postgres::testing::Cluster;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Number of writers of each front, and of commits of each writer.
const WRITERS: usize = 3;
const COMMITS: usize = 40;

/// Opens a stream and returns its first resume token.
fn begin(client: &mut Client) -> String {
    let opened =
        succeed(client, "{aggregate: 'c', pipeline: [{$changeStream: {}}], cursor: {}, $db: 'test'}");
    let cursor = opened.view().get("cursor").and_then(|cursor| cursor.as_document()).unwrap();
    Stream::token_of(cursor, "postBatchResumeToken").unwrap()
}

/// One event: its token and its content.
type Seen = (String, String);

/// A stream that resumes after its last event, at either front.
struct Stream {
    token: String,
    cursor: Option<i64>,
    seen: Vec<Seen>,
}

impl Stream {
    fn token_of(document: Document<'_>, name: &str) -> Option<String> {
        let token = document.get(name)?.as_document()?.get("_data")?.as_str()?;
        Some(token.to_string())
    }

    /// Takes the events of a reply.
    fn take(&mut self, reply: &DocumentBuf, batch: &str) {
        let cursor = reply.view().get("cursor").and_then(|cursor| cursor.as_document()).unwrap();
        self.cursor = cursor.get("id").and_then(|id| id.as_i64());
        let events = cursor.get(batch).and_then(|batch| batch.as_array()).unwrap();
        for event in events.iter().filter_map(|event| event.as_document()) {
            let token = Stream::token_of(event, "_id").unwrap();
            let key = event.get("documentKey").and_then(|key| key.as_document()).unwrap();
            let kind = event.get("operationType").and_then(|kind| kind.as_str()).unwrap();
            let reported = match event.get("updateDescription").and_then(|reported| reported.as_document()) {
                Some(description) => {
                    description.get("updatedFields").unwrap().as_document().unwrap().to_string()
                }
                None => String::new(),
            };
            self.seen.push((token.clone(), format!("{kind} {key} {reported}")));
            self.token = token;
        }
    }

    fn open(&mut self, client: &mut Client, size: usize) {
        let spec = format!("{{$changeStream: {{resumeAfter: {{_data: '{}'}}}}}}", self.token);
        let command =
            format!("{{aggregate: 'c', pipeline: [{spec}], cursor: {{batchSize: {size}}}, $db: 'test'}}");
        let reply = succeed(client, &command);
        self.take(&reply, "firstBatch");
    }

    /// Reads further events, with a wait.
    fn more(&mut self, client: &mut Client, size: usize) {
        let Some(cursor) = self.cursor else { return };
        let command = format!(
            "{{getMore: NumberLong('{cursor}'), collection: 'c', batchSize: {size}, maxTimeMS: 200, $db: 'test'}}"
        );
        let reply = succeed(client, &command);
        self.take(&reply, "nextBatch");
    }
}

/// A writer: inserts, conflicting updates, and transactions of two writes.
fn write(server: &Server, name: &str, stop: &AtomicBool) -> usize {
    let Ok(mut client) = server.connect() else { return 0 };
    let mut commit = |command: &str| {
        let reply = client.command(&parse(command).unwrap());
        reply.is_ok_and(|reply| reply.view().get("ok").and_then(|ok| ok.as_i64()) == Some(1))
    };
    let mut done = 0;
    while done < COMMITS && !stop.load(Ordering::Relaxed) {
        let insert = format!("{{insert: 'c', documents: [{{_id: '{name}-{done}'}}], $db: 'test'}}");
        let update = "{update: 'c', updates: [{q: {_id: 0}, u: {$inc: {n: 1}}}], $db: 'test'}";
        if !commit(&insert) || !commit(update) {
            return done;
        }
        done += 1;
    }
    done
}

#[test]
fn streams_of_all_fronts_show_one_order() {
    let Some(cluster) = Cluster::start().unwrap() else {
        return print_line(
            "streams over PostgreSQL skipped: it isn't installed (apt-get install postgresql)",
        );
    };
    let connection = cluster.connection_string();
    let start = || Server::on_schema(&connection, "streams");
    let (Some(first), Some(second), Some(third)) = (start(), start(), start()) else { return };
    let mut clients = [first.connect().unwrap(), second.connect().unwrap()];
    succeed(&mut clients[0], "{insert: 'c', documents: [{_id: 0, n: 0}], $db: 'test'}");
    let token = begin(&mut clients[1]);
    let mut streams = [0, 1].map(|_| Stream { token: token.clone(), cursor: None, seen: Vec::new() });

    let (stop, never) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut third = Some(third);
    let expected = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2 * WRITERS)
            .map(|number| {
                let (server, never) = ([&first, &second][number % 2], &never);
                scope.spawn(move || write(server, &format!("w{number}"), never))
            })
            .collect();
        let (dying, stop) = (third.as_ref().unwrap().connect(), &stop);
        // A front killed during its writes: streams show its committed writes once.
        let killed = scope.spawn(move || {
            let Ok(mut client) = dying else { return };
            for number in 0.. {
                let insert = format!("{{insert: 'c', documents: [{{_id: 'k-{number}'}}], $db: 'test'}}");
                if stop.load(Ordering::Relaxed) || client.command(&parse(&insert).unwrap()).is_err() {
                    return;
                }
            }
        });
        let mut round = 0usize;
        let end = Instant::now() + Duration::from_secs(120);
        loop {
            let ended = writers.iter().all(|writer| writer.is_finished());
            for (number, stream) in streams.iter_mut().enumerate() {
                // A position without relation to the writes: sometimes at the other front.
                let at = (number + round / 3) % 2;
                if round.is_multiple_of(3) {
                    stream.open(&mut clients[at], round % 7);
                } else {
                    stream.more(&mut clients[at], 1 + round % 11 * 9);
                }
            }
            round += 1;
            if round == 5 {
                // Its process is killed, as its closed connections show.
                drop(third.take());
                stop.store(true, Ordering::Relaxed);
            }
            if ended && round > 8 || Instant::now() > end {
                break;
            }
        }
        killed.join().unwrap();
        writers.into_iter().map(|writer| writer.join().unwrap()).sum::<usize>()
    });
    assert_eq!(expected, 2 * WRITERS * COMMITS);
    // A last commit marks the end of the events.
    succeed(&mut clients[0], "{insert: 'c', documents: [{_id: 'last'}], $db: 'test'}");
    for (number, stream) in streams.iter_mut().enumerate() {
        stream.open(&mut clients[number], 0);
        let end = Instant::now() + Duration::from_secs(30);
        while !stream.seen.last().is_some_and(|seen| seen.1.contains("last")) && Instant::now() < end {
            stream.more(&mut clients[number], 1000);
        }
    }
    let [a, b] = &streams;
    assert!(a.seen.is_sorted_by(|x, y| x.0 < y.0), "no event comes twice, and none too late");
    assert!(a.seen == b.seen, "{} and {} events", a.seen.len(), b.seen.len());
    let mut kinds: HashMap<bool, Vec<&str>> = HashMap::new();
    for (_, reported) in &a.seen {
        kinds.entry(reported.starts_with("insert")).or_default().push(reported);
    }
    // Each update has the number after the previous one.
    let updates: Vec<String> = (1..=expected).map(|n| format!("update {{ _id: 0 }} {{ n: {n} }}")).collect();
    assert_eq!(kinds.remove(&false).unwrap_or_default(), updates);
    let count = "{count: 'c', $db: 'test'}";
    let documents = succeed(&mut clients[1], count).view().get("n").and_then(|n| n.as_i64());
    assert_eq!(kinds.remove(&true).map(|all| all.len() as i64 + 1), documents);
}

#[test]
fn a_stream_before_the_log_gets_an_error() {
    let Some(cluster) = Cluster::start().unwrap() else {
        return print_line(
            "the log over PostgreSQL skipped: it isn't installed (apt-get install postgresql)",
        );
    };
    let connection = cluster.connection_string();
    let start = || Server::on_schema_with(&connection, "trimmed", &["--oplog-size", "16M"]);
    let (Some(first), Some(second)) = (start(), start()) else { return };
    let (mut a, mut b) = (first.connect().unwrap(), second.connect().unwrap());
    let token = begin(&mut a);
    let large = "x".repeat(5 << 20);
    for id in 0..6 {
        succeed(
            &mut b,
            &format!("{{insert: 'c', documents: [{{_id: {id}, large: '{large}'}}], $db: 'test'}}"),
        );
    }
    let late = begin(&mut a);
    let resume = |client: &mut Client, token: &str| {
        let spec = format!("{{$changeStream: {{resumeAfter: {{_data: '{token}'}}}}}}");
        let command =
            format!("{{aggregate: 'c', pipeline: [{spec}], cursor: {{batchSize: 0}}, $db: 'test'}}");
        let reply = client.command(&parse(&command).unwrap()).unwrap();
        reply.view().get("code").and_then(|code| code.as_i64())
    };
    // The log is maintained every few seconds.
    until("the token is gone", || resume(&mut a, &token) == Some(286));
    assert_eq!((resume(&mut b, &token), resume(&mut b, &late)), (Some(286), None));
}
