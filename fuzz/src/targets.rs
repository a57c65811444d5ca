//! The targets, one for each parser of external bytes.

use crate::Target;
use crate::draw::Draw;
use base::bson::{
    Array, Builder, Document, DocumentBuf, FieldName, RegexText, Value, extended_json, validate,
};
use base::key_string;
use database::{Database, SystemClock};
use query::change::{self, Entry, ResumeToken};
use query::expression::Expression;
use query::matcher::Matcher;
use query::{Arena, Context, Pipeline, Projection, SortPattern, Update};
use replay::format::{self as recording, Event, EventKind};
use server::{LocalConnection, Server, Settings};
use std::path::PathBuf;
use std::sync::Arc;
use storage::testing::{self, FaultyFiles, Loss};
use storage::{Batch, Compression, Direction, DiskEngine, DiskOptions, Durability, Engine, Ident, Range};
use wire::scram::{Client, ClientFirst, Credential, Mechanism};

/// All targets, sorted by name.
pub const TARGETS: &[Target] = &[
    Target { name: "base_page", seeds: pages, run: base_page },
    Target { name: "bson", seeds: documents, run: bson },
    Target { name: "certificate", seeds: certificates, run: certificate },
    Target { name: "diff", seeds: nothing, run: diff },
    Target { name: "expression", seeds: nothing, run: expression },
    Target { name: "extended_json", seeds: texts, run: extended_json },
    Target { name: "filter", seeds: nothing, run: filter },
    Target { name: "http", seeds: requests, run: http },
    Target { name: "journal", seeds: journals, run: journal },
    Target { name: "journal_batch", seeds: batches, run: journal_batch },
    Target { name: "key_string", seeds: keys, run: key_string },
    Target { name: "log_entry", seeds: entries, run: log_entry },
    Target { name: "pipeline", seeds: nothing, run: pipeline },
    Target { name: "projection", seeds: nothing, run: projection },
    Target { name: "recording", seeds: recordings, run: recording },
    Target { name: "resume_token", seeds: tokens, run: resume_token },
    Target { name: "scram", seeds: conversations, run: scram },
    Target { name: "stored", seeds: nothing, run: stored },
    Target { name: "update", seeds: nothing, run: update },
    Target { name: "wire_frame", seeds: frames, run: wire_frame },
];

fn nothing() -> Vec<Vec<u8>> {
    (0..16u8).map(|seed| (0..200u8).map(|byte| byte.wrapping_mul(seed.wrapping_add(37))).collect()).collect()
}

fn sample() -> DocumentBuf {
    let mut out = Builder::new();
    out.append(c"_id", 1i32).append(c"text", "x").append(c"double", 1.5).append(c"null", Value::Null);
    out.begin_array(c"a").push(1i32).push("two").push_document().append(c"b", 3i64).end().end();
    out.begin_document(c"d").append(c"e", true).append(c"when", Value::DateTime(5)).end();
    out.append(c"r", Value::Regex { pattern: RegexText::literal("a"), options: RegexText::literal("i") });
    out.append(c"code", Value::JavaScriptWithScope { code: "x", scope: Document::EMPTY });
    out.append(c"bin", Value::Binary { subtype: 2, bytes: &[1, 0, 0, 0, 9] });
    out.finish()
}

fn documents() -> Vec<Vec<u8>> {
    vec![sample().into_bytes(), DocumentBuf::empty().into_bytes()]
}

fn pages() -> Vec<Vec<u8>> {
    let entries: [(&[u8], &[u8]); 4] =
        [(b"", b"x"), (b"key 1", &[7; 40]), (b"key 2", b""), (b"key 22", &[0; 300])];
    [Compression::None, Compression::Lz4, Compression::Zstd]
        .map(|how| testing::base_page(&entries, how))
        .to_vec()
}

/// The entries of an accepted data page can be read in order.
fn base_page(data: &[u8]) {
    let Some(entries) = testing::read_base_page(data) else { return };
    let bytes: usize = entries.iter().map(|(key, value)| key.len() + value.len()).sum();
    assert!(bytes <= data.len() << 16, "a page has more than its bytes");
}

fn batches() -> Vec<Vec<u8>> {
    let mut batch = Batch::new();
    batch.create(Ident(3));
    let value = storage::Value::from(vec![5; 50]);
    batch.put(Ident(3), b"key", value.clone());
    batch.put(Ident(300), b"again", value);
    batch.delete(Ident(1), b"key");
    batch.fork(Ident(3), Ident(70_000));
    batch.clear(Ident(3));
    batch.drop_ident(Ident(70_000));
    testing::journal_batch(&batch).into_iter().collect()
}

/// An accepted batch can be written, and read again as an equal batch.
fn journal_batch(data: &[u8]) {
    let Some(batch) = testing::read_journal_batch(data) else { return };
    let Ok(bytes) = testing::journal_batch(&batch) else { return };
    let again = testing::read_journal_batch(&bytes);
    assert_eq!(again.map(|again| format!("{:?}", again.ops())), Some(format!("{:?}", batch.ops())));
}

/// Returns a data directory of a process killed after some commits, and the path of its segment.
fn killed() -> Option<(FaultyFiles, PathBuf)> {
    let files = FaultyFiles::new();
    let engine = DiskEngine::open_on(Arc::new(files.clone()), &disk()).ok()?;
    let mut batch = Batch::new();
    batch.create(Ident(3));
    batch.put(Ident(3), b"key", storage::Value::from(vec![5; 50]));
    engine.commit(batch).ok()?;
    let mut batch = Batch::new();
    batch.fork(Ident(3), Ident(9));
    batch.delete(Ident(3), b"key");
    engine.commit(batch).ok()?;
    let files = files.restart(Loss::Nothing);
    let is_segment = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "journal");
    let segment = files.paths().into_iter().find(is_segment)?;
    Some((files, segment))
}

fn disk() -> DiskOptions {
    DiskOptions { durability: Durability::None, cache_bytes: 1 << 20, ..DiskOptions::new("/data") }
}

fn journals() -> Vec<Vec<u8>> {
    let segment = killed().and_then(|(files, segment)| files.read(&segment)).unwrap_or_default();
    let frames = testing::frames(&segment);
    let end = frames.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    vec![frames.get(..end).unwrap_or_default().to_vec(), Vec::new()]
}

/// For any bytes after a segment's header, the directory opens or is refused, and so does its
/// salvaged copy.
fn journal(data: &[u8]) {
    thread_local! {
        static KILLED: Option<(FaultyFiles, PathBuf)> = killed();
    }
    KILLED.with(|killed| {
        let Some((files, segment)) = killed else { return };
        let damaged = || {
            let files = files.restart(Loss::Nothing);
            files.tamper(segment, |bytes| testing::with_frames(bytes, data));
            Arc::new(files)
        };
        if let Ok(engine) = DiskEngine::open_on(damaged(), &disk()) {
            let snapshot = engine.snapshot();
            for ident in [3, 9] {
                let Ok(mut cursor) = snapshot.scan(Ident(ident), Range::all(), Direction::Forward) else {
                    continue;
                };
                while let Ok(Some(_)) = cursor.next() {}
            }
        }
        if let Ok(salvage) = DiskEngine::salvage_on(damaged(), &disk()) {
            let _ = salvage.lost().len();
        }
    });
}

fn requests() -> Vec<Vec<u8>> {
    let requests = [
        "GET /metrics?a=%20b HTTP/1.1\r\nHost: localhost:9216\r\nAuthorization: Basic eDp5\r\n\r\n",
        "POST /login HTTP/1.1\r\nHost: [::1]\r\nContent-Length: 5\r\nConnection: close\r\n\r\nq=%41",
    ];
    requests.iter().map(|request| request.as_bytes().to_vec()).collect()
}

/// A request is not longer than the input.
fn http(data: &[u8]) {
    if let Some(length) = server::request_length(data) {
        assert!(length <= data.len(), "a request of {length} bytes out of {}", data.len());
    }
}

/// A document that passes validation can be read completely.
fn bson(data: &[u8]) {
    if validate(data).is_err() {
        return;
    }
    let document = Document::from_valid(data);
    let mut copy = Builder::new();
    for element in document {
        copy.append(element.field_name(), element.value());
    }
    assert_eq!(copy.finish().bytes(), data, "a validated document is copied to the byte");
}

/// Messages of both sides, each after a byte with the step of the exchange.
fn conversations() -> Vec<Vec<u8>> {
    let messages = [
        "0n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
        "0y,a=us=2Cer,n=us=2Cer,r=fyko+d2lbbFgONRv9qkxdawL,x=1",
        "1c=biws,r=abcdefgh,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        "2r=abcdefgh,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        "3v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ];
    messages.iter().map(|message| message.as_bytes().to_vec()).collect()
}

/// Messages without the password's key neither authenticate a client nor a server.
fn scram(data: &[u8]) {
    let Some((step, message)) = data.split_first() else { return };
    let credential = || Credential {
        iterations: 4096,
        salt: vec![1; 28],
        stored_key: vec![2; 32],
        server_key: vec![3; 32],
    };
    let first = |message: &[u8]| ClientFirst::read(Mechanism::Sha256, message);
    match step % 4 {
        0 => {
            if let Ok(first) = first(message) {
                assert!(first.reply(credential()).is_ok(), "somebody who wants in is answered");
            }
        }
        1 => {
            let Ok(first) = first(b"n,,n=user,r=abcdefgh") else { return };
            let Ok((server, reply)) = first.reply(credential()) else { return };
            // Inserts the correct nonce, so that the rest of the message is parsed.
            let nonce = reply.split([',', '=']).nth(1).unwrap_or_default();
            let message = String::from_utf8_lossy(message).replace("abcdefgh", nonce);
            assert!(server.finish(message.as_bytes()).is_err(), "a proof without a key");
        }
        _ => {
            let Ok(client) = Client::new(Mechanism::Sha256, "user", "password") else { return };
            // A message can request slow hashing of a password. Its nonce is not this client's in
            // any case.
            assert!(client.reply(message).is_err(), "an answer to another client");
        }
    }
}

fn certificates() -> Vec<Vec<u8>> {
    let file = include_str!("../../crates/wire/tests/fixtures/plain.pem");
    wire::certificates::sections(file).unwrap_or_default().into_iter().map(|section| section.bytes).collect()
}

/// A client's certificate has a subject, or is rejected.
fn certificate(data: &[u8]) {
    if let Ok(certificate_info) = wire::certificates::certificate_info(&data.to_vec().into()) {
        assert!(!certificate_info.subject.contains('\0'), "what isn't printable is escaped");
    }
}

fn recordings() -> Vec<Vec<u8>> {
    let sections = [vec![0], sample().into_bytes()].concat();
    let kinds = [
        EventKind::Opened,
        EventKind::Request { id: 1, flags: 0, sections: sections.clone() },
        EventKind::Reply { id: 2, to: 1, flags: 0, sections },
        EventKind::Withheld("saslStart".to_string()),
        EventKind::Closed,
        EventKind::End(String::new()),
    ];
    let mut file = recording::encode_start(&sample());
    for (at, kind) in kinds.into_iter().enumerate() {
        recording::encode(&Event { connection: 1, at: at as u64, kind }, &mut file);
    }
    vec![file, recording::encode_start(&DocumentBuf::empty())]
}

/// Parsed recordings are written unchanged, and damage is reported.
fn recording(data: &[u8]) {
    reads_back(data);
    // Checksums stop broken content before the parser. A second run therefore has the correct
    // checksum.
    let content = data.get(8..).unwrap_or_default();
    let mut file = recording::encode_start(&DocumentBuf::empty());
    file.extend((content.len() as u32).to_le_bytes());
    file.extend(crc32c::crc32c(content).to_le_bytes());
    file.extend(content);
    reads_back(&file);
}

fn reads_back(file: &[u8]) {
    let Ok(mut reader) = recording::Reader::open(file) else { return };
    let mut again = recording::encode_start(&reader.header().to_owned());
    assert!(file.starts_with(&again), "the header reads back");
    while let Ok(Some(event)) = reader.next_event() {
        recording::encode(&event, &mut again);
        assert!(file.starts_with(&again), "an event reads back");
    }
}

fn texts() -> Vec<Vec<u8>> {
    let texts = [
        "{a: 1, 'b': [NumberLong(5), /x/i], c: ISODate('2020-01-01T00:00:00Z')}",
        r#"{"$numberDecimal": "1E+3", "d": {"$date": {"$numberLong": "5"}}, "o": {"$oid": "0123456789abcdef01234567"}}"#,
    ];
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// Parsed text is valid BSON, and its canonical text parses to the same bytes.
fn extended_json(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(document) = extended_json::parse(text) else { return };
    assert!(validate(document.bytes()).is_ok(), "parsed JSON is valid BSON");
    let again = extended_json::parse(&extended_json::to_canonical(document.view()));
    assert_eq!(
        again.map(DocumentBuf::into_bytes).ok(),
        Some(document.into_bytes()),
        "canonical text reads back"
    );
}

fn keys() -> Vec<Vec<u8>> {
    let document = sample();
    let encode = |value| {
        let mut key = Vec::new();
        key_string::encode(value, true, &mut key);
        key
    };
    document.view().iter().map(|element| encode(element.value())).collect()
}

/// Decoding never panics.
fn key_string(data: &[u8]) {
    let (key, bits) = data.split_at(data.len() - data.len() / 4);
    for directions in [&[true][..], &[false], &[true, false, true]] {
        let _ = key_string::decode(key, bits, directions);
    }
}

/// The result of an applied diff is BSON, a second application changes nothing, and a diff can be
/// described.
fn diff(data: &[u8]) {
    let sections = ["d", "u", "i", "s", "sa", "sd", "a", "b", "l", "u0", "s0", "u7", "s1"];
    let mut draw = Draw::new(data);
    let (diff, other) = (draw.document(&sections), draw.document(&sections));
    for document in [sample(), other] {
        let Ok(after) = change::apply(document.view(), diff.view()) else { return };
        assert!(validate(after.bytes()).is_ok(), "a diff leads to BSON");
        let _ = change::between(document.view(), after.view());
    }
    assert!(change::describe(diff.view(), true, &mut Builder::new()).is_ok(), "what applies can be told");
}

fn tokens() -> Vec<Vec<u8>> {
    let event = [
        &[0x82, 0x68, 0x7E, 0x82, 0xDE, 0, 0, 0, 1, 0x2B, 4, 0x2C, 1, 0, 0x29, 0x6E, 0x5A, 0x10, 4][..],
        &[7; 16],
        b"\x46\x3CoperationType\0\x3Cinsert\0\x46documentKey\0\x46\x64_id\0\x64ABCDEFGHIJKL\0\0\x04",
    ];
    let mark = [0x82, 0x68, 0x7E, 0x82, 0xDE, 0, 0, 0, 1, 0x2B, 4, 0x29, 0x29, 0x6E, 0x14, 4];
    vec![event.concat(), mark.to_vec()]
}

/// A parsed resume token is written unchanged, and its fragments can be parsed.
fn resume_token(data: &[u8]) {
    let hex: String = data.iter().map(|byte| format!("{byte:02X}")).collect();
    let mut out = Builder::new();
    out.append(c"_data", hex.as_str());
    let Ok(token) = ResumeToken::parse(out.finish().view()) else { return };
    assert_eq!(token.hex(), hex, "a token keeps its bytes");
    assert!(token.parts().is_ok_and(|parts| ResumeToken::before(parts.time).parts().is_ok()));
    let _ = token.fragment(3).parts();
}

fn entries() -> Vec<Vec<u8>> {
    let mut recorder = change::Recorder::<Vec<u8>>::new(change::EntryTime { wall: 1, term: 1 }, None, false);
    let document = sample();
    let Some(id) = document.view().first() else { return Vec::new() };
    let source = change::Source { namespace: "d.c", uuid: Some([7; 16]) };
    recorder.push(source, Some(1), change::Change::Insert(document.bytes().to_vec()), None);
    let update = change::Change::Update { id, diff: document.view() };
    recorder.push(source, None, update, Some(document.bytes().to_vec()));
    recorder.push(source, None, change::Change::Delete(id), None);
    recorder.push(source, None, change::Change::Command(document.view(), None), None);
    vec![recorder.finish().0]
}

/// The header may be damaged, the values not. Reading and describing an entry never panics.
fn log_entry(data: &[u8]) {
    let value = sample().into_bytes();
    let parts = [(0, data.to_vec()), (1, value.clone()), (2, value)];
    if let Ok(entry) = Entry::read(u64::MAX / 2, &parts) {
        let documents = change::oplog_documents(&entry);
        assert_eq!(documents.len(), entry.ticks as usize, "a document for each tick");
    }
}

/// Returns the words of the query language from its own tables.
fn words() -> Vec<&'static str> {
    let mut words: Vec<&str> =
        query::matcher::operators::OPERATORS.iter().map(|operator| operator.name).collect();
    words.extend(query::expression::OPERATORS.iter().map(|operator| operator.name));
    words.extend(query::update::operators::names());
    words.extend([
        "$each",
        "$slice",
        "$sort",
        "$position",
        "input",
        "in",
        "vars",
        "as",
        "cond",
        "date",
        "format",
    ]);
    words
}

fn subject() -> DocumentBuf {
    sample()
}

fn filter(data: &[u8]) {
    let filter = Draw::new(data).document(&words());
    let context = Context::for_tests();
    if let Ok(matcher) = Matcher::parse(filter.view(), &context) {
        let _ = matcher.matches(subject().view(), &context);
        let _ = matcher.equalities();
        let described = matcher.describe();
        assert!(validate(described.bytes()).is_ok(), "parsedQuery is valid BSON");
    }
}

fn expression(data: &[u8]) {
    let holder = Draw::new(data).document(&words());
    let context = Context::for_tests();
    if let Ok(parsed) = Expression::parse(Value::Document(holder.view()), &context) {
        let _ = parsed.evaluate(subject().view(), &context, &Arena::new());
    }
}

fn update(data: &[u8]) {
    let mut draw = Draw::new(data);
    let (update, filter) = (draw.document(&words()), draw.document(&["i", "i.b"]));
    let context = Context::for_tests();
    let filters = if draw.below(2) == 0 { vec![] } else { vec![filter.view()] };
    let Ok(parsed) = Update::parse(Value::Document(update.view()), &filters, &context) else { return };
    for position in [None, Some(0), Some(100)] {
        if let Ok(Some(changed)) = parsed.apply(subject().view(), position, false, &context) {
            assert!(validate(changed.bytes()).is_ok(), "an updated document is valid BSON");
            if let Ok(Some(diff)) = parsed.diff(subject().view(), changed.view(), position, &context) {
                let again = change::apply(subject().view(), diff.view()).map(DocumentBuf::into_bytes);
                assert_eq!(again.ok(), Some(changed.into_bytes()), "the oplog tells what an update did");
            }
        }
    }
}

fn projection(data: &[u8]) {
    let mut draw = Draw::new(data);
    let (spec, sort) = (draw.document(&words()), draw.document(&["$natural"]));
    let context = Context::for_tests();
    for parsed in
        [Projection::parse_find(spec.view(), &context), Projection::parse_aggregate(spec.view(), &context)]
    {
        if let Ok(projection) = parsed
            && let Ok(projected) = projection.apply(subject().view(), Some(0), &context, &Arena::new())
        {
            assert!(validate(projected.bytes()).is_ok(), "a projected document is valid BSON");
        }
    }
    if let Ok(sort) = SortPattern::parse(sort.view()) {
        let _ = sort.key(subject().view(), &mut Vec::new());
    }
}

fn pipeline(data: &[u8]) {
    let stages: Vec<&str> = query::pipeline::stages().map(|stage| stage.name).collect();
    let holder = Draw::new(data).stages(&stages, &words());
    let context = Context::for_tests();
    let array = holder.view().get("stages").and_then(|value| value.as_array()).unwrap_or(Array::EMPTY);
    if let Ok(mut parsed) = Pipeline::parse(array, &context) {
        let _ = parsed.optimize(&context);
        let _ = parsed.dependencies();
    }
}

/// Every reply and every stored document is BSON, for any combination of stages, update operators
/// and expressions.
fn stored(data: &[u8]) {
    thread_local! {
        static SERVER: Arc<Server> = start();
    }
    let stages: Vec<&str> = query::pipeline::stages().map(|stage| stage.name).collect();
    let mut draw = Draw::new(data);
    let pipeline = draw.stages(&stages, &words());
    let changes = draw.changes(&["$set", "$project", "$replaceWith", "$group", "$setWindowFields"], &words());
    let update = {
        let mut out = Builder::new();
        draw.change(&query::update::operators::names().collect::<Vec<_>>(), &words(), &mut out);
        out.finish()
    };
    let array = |holder: &DocumentBuf, out: &mut Builder, name: &'static str| {
        let stages = holder.view().get("stages").unwrap_or(Value::Null);
        out.append(FieldName::literal(name), stages);
    };
    SERVER.with(|server| {
        let mut connection = LocalConnection::new(server);
        let mut run = |mut command: Builder| {
            command.append(c"$db", "d");
            let reply = connection.command(command.finish().view()).unwrap_or_default();
            assert!(validate(reply.bytes()).is_ok(), "a reply is BSON");
            let message = reply.view().get("errmsg").and_then(|text| text.as_str()).unwrap_or_default();
            assert!(!message.starts_with("the server failed"), "a handler panicked");
        };
        let new = |name: &'static str| {
            let mut command = Builder::new();
            command.append(FieldName::literal(name), "c");
            command
        };
        let mut delete = new("delete");
        delete
            .begin_array(c"deletes")
            .push_document()
            .begin_document(c"q")
            .end()
            .append(c"limit", 0)
            .end()
            .end();
        run(delete);
        let mut insert = new("insert");
        insert.begin_array(c"documents").push(&sample()).end();
        run(insert);
        for stages in [&pipeline, &changes] {
            let mut aggregate = new("aggregate");
            array(stages, &mut aggregate, "pipeline");
            aggregate.begin_document(c"cursor").end().append(c"maxTimeMS", 2000);
            run(aggregate);
        }
        for by_pipeline in [true, false] {
            let mut command = new("update");
            command.begin_array(c"updates").push_document().begin_document(c"q").end();
            match by_pipeline {
                true => array(&changes, &mut command, "u"),
                false => _ = command.append(c"u", &update),
            }
            command.end().end();
            run(command);
            let mut command = new("findAndModify");
            command.begin_document(c"query").end().append(c"new", true);
            match by_pipeline {
                true => array(&changes, &mut command, "update"),
                false => _ = command.append(c"update", &update),
            }
            run(command);
        }
        run(new("find"));
    });
}

fn frames() -> Vec<Vec<u8>> {
    let mut message = vec![0; 16];
    message.extend_from_slice(&[0; 5]);
    let mut command = Builder::new();
    command.append(c"insert", "c").begin_array(c"documents").push(&sample()).end().append(c"$db", "d");
    message.extend_from_slice(command.finish().bytes());
    let length = message.len() as i32;
    message[..4].copy_from_slice(&length.to_le_bytes());
    message[12..16].copy_from_slice(&2013i32.to_le_bytes());
    let mut hello = message.clone();
    hello[12..16].copy_from_slice(&2004i32.to_le_bytes());
    let mut compressed = message.clone();
    compressed[12..16].copy_from_slice(&2012i32.to_le_bytes());
    vec![message, hello, compressed]
}

/// The server answers any input or closes the connection, and still serves the next connection.
fn wire_frame(data: &[u8]) {
    thread_local! {
        static SERVER: Arc<Server> = start();
    }
    SERVER.with(|server| {
        let mut frame = data.to_vec();
        // net.rs reads frames by their length, so a handled frame has a correct length.
        let length = frame.len() as i32;
        if let Some(place) = frame.get_mut(..4) {
            place.copy_from_slice(&length.to_le_bytes());
        }
        let mut connection = LocalConnection::new(server);
        connection.frame(&frame, &mut Vec::new());
        let mut ping = Builder::new();
        ping.append(c"ping", 1i32).append(c"$db", "admin");
        let reply = LocalConnection::new(server).command(ping.finish().view());
        let ok = reply.and_then(|reply| reply.view().get("ok").and_then(|ok| ok.as_i64()));
        assert_eq!(ok, Some(1), "the server serves others");
    });
}

fn start() -> Arc<Server> {
    let engine = Arc::new(storage::MemoryEngine::new());
    #[allow(clippy::unwrap_used)]
    let server = Database::open(engine, Arc::new(SystemClock), 1)
        .and_then(|database| Server::new(Settings::default(), database))
        .unwrap();
    Arc::new(server)
}
