//! Every commit appears in a change stream exactly once and in order, wherever the stream resumes and after kill -9. A
//! commit wakes a waiting stream. A thousand streams cause no problem.

use crate::client::Client;
use crate::requests::{run, running, succeed, until};
use crate::server::{Scratch, Server};
use base::bson::{DocumentBuf, Value};
use base::random::Random;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const WRITERS: usize = 16;
/// Number of writes of each writer.
const WRITES: usize = 60;
/// Number of documents that all writers increment.
const SHARED: usize = 4;

/// A stream's cursor and its last token.
pub(crate) struct Stream {
    pub(crate) cursor: i64,
    /// Resume token of the last batch.
    pub(crate) token: String,
    pub(crate) events: Vec<DocumentBuf>,
}

impl Stream {
    pub(crate) fn open(client: &mut Client, spec: &str) -> Stream {
        let command = format!(
            "{{aggregate: 'c', pipeline: [{{$changeStream: {{{spec}}}}}], cursor: {{batchSize: 0}}, $db: 'test'}}"
        );
        let mut stream = Stream { cursor: 0, token: String::new(), events: Vec::new() };
        stream.note(&succeed(client, &command), "firstBatch");
        stream
    }

    /// Reads a batch and returns the number of events.
    pub(crate) fn read(&mut self, client: &mut Client, batch: usize, millis: u64) -> usize {
        let before = self.events.len();
        let command = format!(
            "{{getMore: NumberLong({}), collection: 'c', batchSize: {batch}, maxTimeMS: {millis}, $db: 'test'}}",
            self.cursor
        );
        self.note(&succeed(client, &command), "nextBatch");
        self.events.len() - before
    }

    fn note(&mut self, reply: &DocumentBuf, batch: &str) {
        let cursor = reply.view().get("cursor").unwrap().as_document().unwrap();
        self.cursor = cursor.get("id").unwrap().as_i64().unwrap();
        let mark = cursor.get("postBatchResumeToken").unwrap().as_document().unwrap();
        self.token = mark.get("_data").unwrap().as_str().unwrap().to_string();
        let events = cursor.get(batch).unwrap().as_array().unwrap();
        self.events.extend(events.iter().map(|event| event.as_document().unwrap().to_owned()));
    }

    /// Reopens the stream after the last batch.
    fn resume(&mut self, client: &mut Client) {
        let opened = Stream::open(client, &format!("resumeAfter: {{_data: '{}'}}", self.token));
        self.cursor = opened.cursor;
    }
}

/// One writer: inserts and removes its own documents, and increments shared ones, partly in transactions.
fn write(server: &Server, writer: usize) {
    let mut client = server.connect().unwrap();
    let mut attempts = 0;
    for number in 0..WRITES {
        let shared = (writer + number) % SHARED;
        let insert = format!("{{insert: 'c', documents: [{{_id: 'w{writer}n{number}'}}], $db: 'test'");
        let count = format!(
            "{{update: 'c', updates: [{{q: {{_id: {shared}}}, u: {{$inc: {{n: 1}}}}, upsert: true}}], $db: 'test'"
        );
        match number % 3 {
            0 => loop {
                attempts += 1;
                let session = format!(
                    "lsid: {{id: UUID('00000000-0000-4000-8000-{writer:012}')}}, txnNumber: NumberLong({attempts}), autocommit: false"
                );
                let started = run(&mut client, &format!("{insert}, {session}, startTransaction: true}}"));
                let counted = run(&mut client, &format!("{count}, {session}}}"));
                let committed =
                    run(&mut client, &format!("{{commitTransaction: 1, {session}, $db: 'admin'}}"));
                let ok = [started, counted, committed]
                    .iter()
                    .all(|reply| reply.view().get("ok").and_then(|ok| ok.as_i64()) == Some(1));
                if ok {
                    break;
                }
            },
            1 => drop(succeed(&mut client, &format!("{insert}}}"))),
            _ => drop(succeed(&mut client, &format!("{count}}}"))),
        }
    }
}

/// Checks that the events contain each change once and in order: counts rise by one, and each insert is present.
fn check(events: &[DocumentBuf]) {
    let mut counts: BTreeMap<i64, i64> = BTreeMap::new();
    let mut inserted = std::collections::BTreeSet::new();
    let mut last = String::new();
    for event in events {
        let event = event.view();
        let token = event.get("_id").unwrap().as_document().unwrap().get("_data").unwrap().as_str().unwrap();
        assert!(token > last.as_str(), "{last} then {token}");
        last = token.to_string();
        let id = event.get("documentKey").unwrap().as_document().unwrap().get("_id").unwrap();
        match id {
            Value::String(name) => assert!(inserted.insert(name.to_string()), "{name} twice"),
            id => {
                let fields = match event.get("updateDescription") {
                    Some(update) => update.as_document().unwrap().get("updatedFields").unwrap(),
                    None => event.get("fullDocument").unwrap(),
                };
                let count = fields.as_document().unwrap().get("n").unwrap().as_i64().unwrap();
                let before = counts.entry(id.as_i64().unwrap()).or_default();
                assert_eq!(count, *before + 1, "{id}");
                *before = count;
            }
        }
    }
    let of_each = |rest: usize| (0..WRITES).filter(|number| number % 3 == rest).count();
    assert_eq!(inserted.len(), WRITERS * (of_each(0) + of_each(1)));
    assert_eq!(counts.values().sum::<i64>() as usize, WRITERS * (of_each(0) + of_each(2)));
}

fn every_commit_appears_once(server: &Server) {
    let mut client = server.connect().unwrap();
    succeed(&mut client, "{create: 'c', $db: 'test'}");
    let first = Stream::open(&mut client, "");
    let writing = AtomicUsize::new(WRITERS);
    let read = thread::scope(|scope| {
        for writer in 0..WRITERS {
            let writing = &writing;
            scope.spawn(move || {
                write(server, writer);
                writing.fetch_sub(1, Ordering::Release);
            });
        }
        let random = Random::new(7);
        let mut stream = first;
        loop {
            let over = writing.load(Ordering::Acquire) == 0;
            let batch = 1 + random.draw() as usize % 30;
            let found = stream.read(&mut client, batch, if over { 300 } else { 50 });
            if random.draw().is_multiple_of(4) {
                stream.resume(&mut client);
            }
            if over && found == 0 {
                return stream;
            }
        }
    });
    check(&read.events);
    // A stream resumed after any of its events yields all later ones.
    let random = Random::new(8);
    for _ in 0..10 {
        let place = random.draw() as usize % read.events.len();
        let id = read.events[place].view().get("_id").unwrap().as_document().unwrap();
        let token = id.get("_data").unwrap().as_str().unwrap();
        let mut rest = Stream::open(&mut client, &format!("resumeAfter: {{_data: '{token}'}}"));
        while rest.read(&mut client, 1000, 100) > 0 {}
        assert_eq!(rest.events, read.events[place + 1..], "behind {place}");
    }
}

#[test]
fn every_commit_of_sixteen_writers_appears_once_and_in_order() {
    let Some(server) = Server::start_with(&["--replset", "rs0"]) else { return };
    if std::env::var_os("VELLUM_SERVER").is_none() {
        every_commit_appears_once(&server);
    }
}

#[test]
fn streams_on_disk_resume_after_a_kill() {
    if std::env::var_os("VELLUM_SERVER").is_some() {
        return;
    }
    let data = Scratch::new("streams");
    let start = || Server::start_on(&data, &["--replset", "rs0"]);
    let Some(server) = start() else { return };
    every_commit_appears_once(&server);
    let mut client = server.connect().unwrap();
    let mut stream = Stream::open(&mut client, "");
    succeed(&mut client, "{insert: 'c', documents: [{_id: 'before 1'}], $db: 'test'}");
    while stream.read(&mut client, 10, 1000) == 0 {}
    succeed(&mut client, "{insert: 'c', documents: [{_id: 'before 2'}], $db: 'test'}");
    drop(server);
    let Some(server) = start() else { return };
    let mut client = server.connect().unwrap();
    stream.resume(&mut client);
    succeed(&mut client, "{insert: 'c', documents: [{_id: 'behind'}], $db: 'test'}");
    let started = Instant::now();
    while stream.events.len() < 3 {
        stream.read(&mut client, 10, 1000);
        assert!(started.elapsed() < Duration::from_secs(30), "{:?}", stream.events);
    }
    let id = |event: &DocumentBuf| {
        let key = event.view().get("documentKey").unwrap().as_document().unwrap();
        key.get("_id").unwrap().as_str().unwrap().to_string()
    };
    let ids: Vec<_> = stream.events.iter().map(id).collect();
    assert_eq!(ids, ["before 1", "before 2", "behind"]);
}

/// Number of open streams, and of waiting ones.
const STREAMS: usize = 1000;
const WAITING: usize = 200;

/// After a crash and a jump of the clock, new events may be earlier than the present.
#[test]
fn a_resume_token_names_no_time_after_the_latest_write() {
    if std::env::var_os("VELLUM_SERVER").is_some() {
        return;
    }
    let Some(server) = Server::start_with(&["--replset", "rs0"]) else { return };
    let mut client = server.connect().unwrap();
    succeed(&mut client, "{create: 'c', $db: 'test'}");
    let mut stream = Stream::open(&mut client, "");
    succeed(&mut client, "{insert: 'c', documents: [{_id: 1}], $db: 'test'}");
    assert_eq!(stream.read(&mut client, 10, 1000), 1);
    let token = stream.token.clone();
    succeed(&mut client, "{vellumClock: 1, advance: 3600000, $db: 'admin'}");
    assert_eq!(stream.read(&mut client, 10, 1), 0);
    assert_eq!(stream.token, token);
}

#[test]
fn a_thousand_streams_return_one_commit() {
    if std::env::var_os("VELLUM_SERVER").is_some() {
        return;
    }
    let Some(server) = Server::start_with(&["--replset", "rs0"]) else { return };
    let mut client = server.connect().unwrap();
    let mut streams: Vec<_> = (0..STREAMS).map(|_| Stream::open(&mut client, "")).collect();
    let waiting = streams.split_off(STREAMS - WAITING);
    thread::scope(|scope| {
        let waiting: Vec<_> = waiting
            .into_iter()
            .map(|mut stream| {
                let mut own = server.connect().unwrap();
                // Without a wake-up this would take the whole test time.
                scope.spawn(move || stream.read(&mut own, 10, 600_000))
            })
            .collect();
        until("all wait", || running(&mut client, "getMore") == WAITING);
        // Writes to other collections end no wait.
        succeed(&mut client, "{insert: 'other', documents: [{}], $db: 'test'}");
        succeed(&mut client, "{insert: 'c', documents: [{_id: 1}], $db: 'test'}");
        waiting.into_iter().for_each(|waited| assert_eq!(waited.join().unwrap(), 1));
    });
    for mut stream in streams {
        assert_eq!(stream.read(&mut client, 10, 1), 1);
    }
}

#[test]
fn server_status_counts_expanded_streams_and_large_events() {
    let Some(server) = Server::start_with(&["--replset", "rs0"]) else { return };
    let mut client = server.connect().unwrap();
    let open = |client: &mut Client, spec: &str, last: &str| {
        // The copy doubles the event of the insert.
        let stages = format!("{{$changeStream: {spec}}}, {{$addFields: {{copy: '$fullDocument'}}}}{last}");
        let opened = succeed(
            client,
            &format!("{{aggregate: 'c', pipeline: [{stages}], cursor: {{batchSize: 0}}, $db: 'test'}}"),
        );
        opened.view().get("cursor").unwrap().as_document().unwrap().get("id").unwrap().as_i64().unwrap()
    };
    let failing = open(&mut client, "{}", "");
    let splitting = open(&mut client, "{showExpandedEvents: true}", ", {$changeStreamSplitLargeEvent: {}}");
    let text = "x".repeat(9 << 20);
    succeed(&mut client, &format!("{{insert: 'c', documents: [{{_id: 1, text: '{text}'}}], $db: 'test'}}"));
    let more =
        |id: i64| format!("{{getMore: NumberLong({id}), collection: 'c', maxTimeMS: 2000, $db: 'test'}}");
    let failed = run(&mut client, &more(failing));
    assert_eq!(failed.view().get("code").and_then(|code| code.as_i64()), Some(10334), "BSONObjectTooLarge");
    succeed(&mut client, &more(splitting));
    succeed(&mut client, &more(splitting));
    let status = succeed(&mut client, "{serverStatus: 1, $db: 'admin'}");
    let metrics = status.view().get("metrics").unwrap().as_document().unwrap();
    assert_eq!(
        metrics.get("changeStreams").unwrap().to_string(),
        "{ largeEventsFailed: 1, largeEventsSplit: 1, showExpandedEvents: 1 }"
    );
}
