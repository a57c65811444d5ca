//! Tests of handlers through whole frames, without a socket.

use crate::access::Kind;
use crate::call::HandlerStatus;
use crate::commands::table;
use crate::dispatch::request::Request;
use crate::observe::activity;
use crate::process::event::Event;
use crate::server::Server;
use crate::state::connection::ConnectionState;
use crate::state::execution::ExecutionLimits;
use crate::state::settings::Settings;
use base::bson::{Builder, Document, DocumentBuf, FieldName, Value};
use database::language::Interrupt;
use database::{Database, SystemClock, Ticket};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use storage::store::LogOptions;
use storage::testing::FaultyFiles;
use storage::{DiskEngine, DiskOptions};
use wire::header::{self, Opcode};
use wire::{compression, message, query};

/// A client of a server in memory.
struct Client {
    server: Server,
    state: ConnectionState,
    /// The request that waits or has further replies.
    request: Option<Box<Request>>,
}

impl Client {
    fn new(settings: Settings) -> Client {
        Client::on(Arc::new(storage::MemoryEngine::new()), settings)
    }

    fn on(engine: Arc<dyn storage::Engine>, settings: Settings) -> Client {
        let log = settings.replica_set.is_some().then_some(LogOptions { bytes: 1 << 20 });
        let database = Database::open_with(engine, Arc::new(SystemClock), 1, log).unwrap();
        let server = Server::new(settings, database).unwrap();
        let activity = server.activities.open(([127, 0, 0, 1], 50_000).into());
        let state = ConnectionState::new(activity, ([127, 0, 0, 1], 27_017).into());
        Client { server, state, request: None }
    }

    fn standalone() -> Client {
        Client::new(Settings::default())
    }

    fn replica_set() -> Client {
        Client::new(Settings { replica_set: Some("rs0".to_string()), ..Settings::default() })
    }

    /// Continues the current request, or begins this one.
    fn frame(&mut self, frame: &[u8]) -> (HandlerStatus, Vec<u8>) {
        let mut out = Vec::new();
        let (answer, request) = match self.request.take() {
            Some(mut request) => (request.poll(&mut self.state, &self.server, &mut out), Some(request)),
            None => Request::begin(&mut self.state, &self.server, frame.to_vec(), &mut out)
                .unwrap_or((HandlerStatus::Close, None)),
        };
        self.request =
            request.filter(|request| matches!(answer, HandlerStatus::Wait(_)) || request.streams());
        (answer, out)
    }

    /// Handles a frame that must wait. Returns the deadline.
    fn until(&mut self, frame: &[u8]) -> std::time::Instant {
        let HandlerStatus::Wait(event) = self.frame(frame).0 else { panic!("nothing to wait for") };
        event.until().unwrap()
    }

    /// Runs a command on `admin` and returns its reply.
    fn run(&mut self, build: impl FnOnce(&mut Builder)) -> DocumentBuf {
        let (outcome, reply) = self.frame(&command(0, build));
        assert!(matches!(outcome, HandlerStatus::Done));
        body(&reply).to_owned()
    }
}

/// Returns an OP_MSG with these flags.
fn command(flags: u32, build: impl FnOnce(&mut Builder)) -> Vec<u8> {
    let mut out = Vec::new();
    header::begin(&mut out, 11, 0, Opcode::Message);
    out.extend_from_slice(&flags.to_le_bytes());
    out.push(0);
    let mut builder = Builder::with_buffer(out);
    build(&mut builder);
    builder.append(c"$db", "admin");
    let mut out = builder.into_buffer();
    header::finish(&mut out, 0);
    out
}

/// Returns the document of an OP_MSG reply.
fn body(reply: &[u8]) -> Document<'_> {
    assert_eq!(reply[8..12], 11i32.to_le_bytes(), "the reply names its request");
    base::bson::validate(&reply[21..]).unwrap();
    Document::from_valid(&reply[21..])
}

fn code(reply: &DocumentBuf) -> Option<i64> {
    reply.view().get("code").and_then(|code| code.as_i64())
}

fn is_ok(reply: &DocumentBuf) -> bool {
    matches!(reply.view().get("ok"), Some(Value::Double(ok)) if ok == 1.0)
}

fn text<'a>(reply: &'a DocumentBuf, name: &str) -> Option<&'a str> {
    reply.view().get(name).and_then(|value| value.as_str())
}

#[test]
fn every_command_refuses_a_field_it_does_not_know() {
    // These commands accept any name: conditions, parameters, sections, fields of newer clients,
    // and fields that MongoDB ignores.
    const OPEN: [&str; 10] = [
        "currentOp",
        "dbHash",
        "getParameter",
        "hello",
        "isMaster",
        "listCommands",
        "serverStatus",
        "setParameter",
        "top",
        "whatsmyuri",
    ];
    for row in table::commands().filter(|row| !OPEN.contains(&row.name)) {
        let mut client = Client::standalone();
        let (_, reply) = client
            .frame(&command(0, |b| _ = b.append(FieldName::trusted(row.name), 1).append(c"noSuchField", 1)));
        let reply = body(&reply).to_owned();
        assert!(!is_ok(&reply), "{} took an unknown field", row.name);
        let refused = [2, 4, 8, 9, 14, 18, 20, 59, 73, 76, 125, 238, 251, 31_082, 40_414, 40_415];
        assert!(refused.contains(&code(&reply).unwrap()), "{}: {reply:?}", row.name);
    }
}

#[test]
fn ping_and_unknown_commands() {
    let mut client = Client::standalone();
    assert!(is_ok(&client.run(|b| _ = b.append(c"ping", 1))));
    let unknown = client.run(|b| _ = b.append(c"getlasterror", 1));
    assert_eq!(
        (code(&unknown), text(&unknown, "errmsg")),
        (Some(59), Some("no such command: 'getlasterror'"))
    );
    let clock = client.run(|b| _ = b.append(c"vellumClock", 1));
    assert_eq!(code(&clock), Some(59));
    assert!(
        text(&clock, "errmsg").is_some_and(|why| why.ends_with("it needs test commands (--test-commands)"))
    );
    let field = client.run(|b| _ = b.append(c"ping", 1).append(c"x", 1));
    assert_eq!(text(&field, "errmsg"), Some("BSON field 'ping.x' is an unknown field."));
    assert_eq!(text(&field, "codeName"), Some("IDLUnknownField"));
}

#[test]
fn explain_shows_parameters_and_the_shape() {
    let explained = |filter: i32| {
        let reply = Client::standalone().run(|b| {
            b.begin_document(c"explain").append(c"find", "c").begin_document(c"filter");
            b.append(c"a", filter).end().end();
        });
        let parameters = reply.view().get("serverParameters").and_then(|value| value.as_document());
        assert!(parameters.is_some_and(|all| all.find("internalQueryFrameworkControl").is_some()));
        text(&reply, "queryShapeHash").map(str::to_string)
    };
    assert_eq!(explained(1).map(|hash| hash.len()), Some(64));
    assert_eq!(explained(1), explained(2));
}

#[test]
fn a_reply_above_the_size_of_messages_is_an_error() {
    let mut client = Client::standalone();
    client.run(|b| _ = b.append(c"create", "c"));
    // The explanation has the filter at least three times.
    let mut explained = |size: usize| {
        let reply = client.run(|b| {
            b.begin_document(c"explain").append(c"find", "c").begin_document(c"filter");
            b.append(c"a", &"x".repeat(size)).end().end();
        });
        code(&reply)
    };
    assert_eq!(explained(5_000_000), None);
    assert_eq!(explained(16_500_000), Some(10_334));
}

#[test]
fn hello_shows_a_standalone_or_a_primary() {
    let alone = Client::standalone().run(|b| _ = b.append(c"hello", 1).append(c"helloOk", true));
    assert!(
        is_ok(&alone) && alone.view().find("setName").is_none() && alone.view().find("helloOk").is_some()
    );
    assert!(alone.view().find("$clusterTime").is_none());
    let set = Client::replica_set().run(|b| _ = b.append(c"isMaster", 1));
    assert_eq!(text(&set, "setName"), Some("rs0"));
    assert_eq!(text(&set, "me"), Some("127.0.0.1:27017"));
    for name in ["$clusterTime", "operationTime", "electionId", "lastWrite", "hosts", "ismaster"] {
        assert!(set.view().find(name).is_some(), "{name}");
    }
}

#[test]
fn the_handshake_may_be_an_op_query() {
    let mut frame = Vec::new();
    header::begin(&mut frame, 5, 0, Opcode::Query);
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(b"admin.$cmd\0");
    frame.extend_from_slice(&[0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF]);
    let start = frame.len();
    for (name, ok) in [("ismaster", true), ("find", false)] {
        frame.truncate(start);
        let mut builder = Builder::with_buffer(frame.clone());
        builder.append(FieldName::trusted(name), 1).append(c"backpressure", "2");
        let mut query = builder.into_buffer();
        header::finish(&mut query, 0);
        let (outcome, reply) = Client::standalone().frame(&query);
        assert!(matches!(outcome, HandlerStatus::Done));
        let document = Document::from_valid(&reply[36..]).to_owned();
        assert_eq!(is_ok(&document), ok);
        assert_eq!(code(&document), (!ok).then_some(352));
    }
    assert!(query::parse(&frame[..10]).is_err());
}

#[test]
fn client_metadata_is_taken_once() {
    let mut client = Client::standalone();
    let mut hello = |app: &str| {
        let app = app.to_string();
        client.run(move |b| {
            b.append(c"hello", 1).begin_document(c"client");
            b.begin_document(c"application").append(c"name", &app).end();
            b.begin_document(c"driver").append(c"name", "d").append(c"version", "1").end();
            b.begin_document(c"os").append(c"type", "Linux").end().end();
        })
    };
    assert_eq!(code(&hello(&"x".repeat(200))), Some(184));
    assert!(is_ok(&hello("app")));
    assert_eq!(code(&hello("app")), Some(186));
    let now = client.run(|b| _ = b.append(c"currentOp", 1).append(c"appName", "app"));
    let listed = now.view().get("inprog").and_then(|listed| listed.as_array()).unwrap();
    let metadata = listed.iter().next().and_then(|entry| entry.as_document()?.get("clientMetadata")).unwrap();
    assert_eq!(activity::app_name(metadata.as_document().unwrap()), "app");
}

#[test]
fn current_op_truncates_commands_unless_a_test_asks_for_them() {
    let mut clients =
        [true, false].map(|test_commands| Client::new(Settings { test_commands, ..Settings::default() }));
    for (client, truncates) in [(0, None), (0, Some(true)), (0, Some(false)), (1, Some(false))] {
        let padding = "x".repeat(1000);
        let reply = clients[client].run(|b| {
            b.append(c"currentOp", 1).append(c"comment", "kept");
            b.append_optional(c"$truncateOps", truncates);
            b.begin_document(FieldName::trusted(&padding)).append(c"$exists", false).end();
        });
        let listed = reply.view().get("inprog").and_then(|listed| listed.as_array()).unwrap();
        let entry = listed.iter().next().and_then(|entry| entry.as_document()).unwrap();
        assert_eq!(entry.iter().nth(1).map(|field| field.name()), Some("host"));
        let command = entry.get("command").and_then(|command| command.as_document()).unwrap();
        let text = command.get("$truncated").and_then(|text| text.as_str());
        let is_whole = client == 0 && truncates == Some(false);
        assert_eq!(text.map(str::len), (!is_whole).then_some(1000), "{client} {truncates:?}");
        assert_eq!(command.get("comment").and_then(|comment| comment.as_str()), Some("kept"));
    }
}

#[test]
fn empty_client_metadata_is_accepted_and_a_part_of_it_is_not() {
    let mut client = Client::standalone();
    let hello = |client: &mut Client, part: bool| {
        client.run(move |b| {
            b.append(c"hello", 1).begin_document(c"client");
            if part {
                b.begin_document(c"driver").append(c"name", "d").end();
            }
            b.end();
        })
    };
    assert_eq!(code(&hello(&mut client, true)), Some(183));
    assert!(!client.server.warned_of_empty_metadata.load(Ordering::Relaxed));
    assert!(is_ok(&hello(&mut client, false)));
    assert!(client.server.warned_of_empty_metadata.load(Ordering::Relaxed));
}

#[test]
fn an_awaitable_hello_waits_and_streams() {
    let mut client = Client::standalone();
    let process = client.server.topology.process_id;
    let frame = command(1 << 16, |b| {
        b.append(c"hello", 1).begin_document(c"topologyVersion");
        b.append(c"processId", process).append(c"counter", 0i64).end();
        b.append(c"maxAwaitTimeMS", 20);
    });
    for _ in 0..2 {
        std::thread::sleep(client.until(&frame) - std::time::Instant::now());
        let (outcome, reply) = client.frame(&frame);
        assert!(matches!(outcome, HandlerStatus::Done) && client.request.is_some());
        assert_eq!(reply[16..20], 2u32.to_le_bytes(), "more to come");
    }
    client.server.topology.changed.advance();
    assert!(matches!(client.frame(&frame).0, HandlerStatus::Done), "a change is told at once");
    assert!(matches!(client.frame(&frame).0, HandlerStatus::Wait(_)), "and only once");
}

#[test]
fn replies_are_compressed_as_the_request_was_but_never_a_handshake() {
    for (name, compressed) in [("ping", true), ("hello", false)] {
        let mut frame = command(0, |b| _ = b.append(FieldName::trusted(name), 1));
        compression::compress_message(wire::compression::Compressor::Zlib, &mut frame);
        let (_, reply) = Client::standalone().frame(&frame);
        assert_eq!(reply[12..16] == 2012i32.to_le_bytes(), compressed);
        if compressed {
            let mut unpacked = Vec::new();
            compression::decompress_message(&reply, wire::header::MAX_MESSAGE_SIZE, &mut unpacked).unwrap();
            assert!(message::parse(&unpacked).is_ok());
        }
    }
}

#[test]
fn unacknowledged_messages_get_no_reply() {
    let frame = command(2, |b| {
        b.append(c"endSessions", base::bson::Array::EMPTY)
            .begin_document(c"writeConcern")
            .append(c"w", 0)
            .end();
    });
    let (outcome, reply) = Client::standalone().frame(&frame);
    assert!(matches!(outcome, HandlerStatus::Done) && reply.is_empty());
}

#[test]
fn broken_bson_is_an_error_and_broken_framing_the_end() {
    let mut frame = command(0, |b| _ = b.append(c"ping", "text"));
    let at = frame.windows(4).position(|bytes| bytes == b"text").unwrap();
    frame[at] = 0xFF;
    let (outcome, reply) = Client::standalone().frame(&frame);
    assert!(matches!(outcome, HandlerStatus::Done));
    assert_eq!(code(&body(&reply).to_owned()), Some(22));
    frame[20] = 9;
    assert!(matches!(Client::standalone().frame(&frame).0, HandlerStatus::Close));
}

#[test]
fn fail_points_fail_delay_and_hang_up() {
    let mut client = Client::standalone();
    let mut configure = |build: &dyn Fn(&mut Builder)| {
        let reply = client.run(|b| {
            b.append(c"configureFailPoint", "failCommand").begin_document(c"mode").append(c"times", 1).end();
            b.begin_document(c"data").begin_array(c"failCommands").push("ping").end();
            build(b);
            b.end();
        });
        assert!(is_ok(&reply), "{reply:?}");
        client.frame(&command(0, |b| _ = b.append(c"ping", 1)))
    };
    let (_, reply) = configure(&|b| _ = b.append(c"errorCode", 91));
    assert_eq!(code(&body(&reply).to_owned()), Some(91));
    assert!(matches!(configure(&|b| _ = b.append(c"closeConnection", true)).0, HandlerStatus::Close));
    let blocks = |b: &mut Builder| _ = b.append(c"blockConnection", true).append(c"blockTimeMS", 5);
    assert!(matches!(configure(&blocks).0, HandlerStatus::Wait(_)));
    assert!(is_ok(&client.run(|b| _ = b.append(c"ping", 1))));
    let current_op = |b: &mut Builder| {
        b.append(c"aggregate", 1).begin_array(c"pipeline");
        b.push_document().begin_document(c"$currentOp").end().end();
        b.end().begin_document(c"cursor").end();
    };
    assert!(is_ok(&client.run(current_op)));
}

#[test]
fn parameters_and_replication_are_answered_as_clients_expect() {
    let mut client = Client::standalone();
    let all = client.run(|b| _ = b.append(c"getParameter", "*"));
    for name in ["enableTestCommands", "authenticationMechanisms", "requireApiVersion"] {
        assert!(all.view().find(name).is_some(), "{name}");
    }
    assert_eq!(code(&client.run(|b| _ = b.append(c"getParameter", "foo"))), Some(72));
    let status = client.run(|b| _ = b.append(c"replSetGetStatus", 1));
    assert_eq!((code(&status), text(&status, "errmsg")), (Some(76), Some("not running with --replSet")));
    assert!(is_ok(&Client::replica_set().run(|b| _ = b.append(c"replSetGetStatus", 1))));
    let refused = client.run(|b| _ = b.append(c"mapReduce", "c"));
    assert_eq!((code(&refused), text(&refused, "codeName")), (Some(238), Some("NotImplemented")));
}

#[test]
fn repl_set_status_has_the_fields_of_tools() {
    let mut client = Client::replica_set();
    let status = client.run(|b| _ = b.append(c"replSetGetStatus", 1));
    let names: Vec<&str> = status.view().iter().map(|field| field.name()).collect();
    assert_eq!(
        names,
        [
            "set",
            "date",
            "myState",
            "term",
            "syncSourceHost",
            "syncSourceId",
            "heartbeatIntervalMillis",
            "majorityVoteCount",
            "writeMajorityCount",
            "votingMembersCount",
            "writableVotingMembersCount",
            "optimes",
            "lastStableRecoveryTimestamp",
            "electionCandidateMetrics",
            "members",
            "ok",
            "$clusterTime",
            "operationTime",
        ]
    );
    let member = |status: &DocumentBuf, name: &str| {
        let members = status.view().get("members").and_then(|members| members.as_array()).unwrap();
        let member = members.iter().next().and_then(|member| member.as_document()).unwrap();
        member.get(name).map(|value| value.to_owned())
    };
    assert_eq!(member(&status, "stateStr"), Some(Value::String("PRIMARY").to_owned()));
    assert!(member(&status, "electionTime").is_some());
    assert!(is_ok(&client.run(|b| _ = b.append(c"replSetStepDown", 60).append(c"force", true))));
    let status = client.run(|b| _ = b.append(c"replSetGetStatus", 1));
    assert_eq!(status.view().get("myState").and_then(|state| state.as_i64()), Some(2));
    assert_eq!(member(&status, "stateStr"), Some(Value::String("SECONDARY").to_owned()));
    assert!(member(&status, "electionTime").is_none());
}

#[test]
fn a_failed_lock_wakes_the_writes_that_wait_for_it() {
    let files = Arc::new(FaultyFiles::new());
    let engine = DiskEngine::open_on(files.clone(), &DiskOptions::new("/data")).unwrap();
    let mut client = Client::on(Arc::new(engine), Settings::default());
    let mut unlocked = client.server.unlocked.listen(client.server.unlocked.read());
    files.fail_syncs(u64::MAX);
    let locked = client.run(|b| _ = b.append(c"fsync", 1).append(c"lock", true));
    assert!(!is_ok(&locked), "{locked:?}");
    assert_eq!(client.server.database.write_locks(), 0);
    assert!(unlocked.has_happened(std::task::Waker::noop()));
}

#[test]
fn a_waiting_client_is_notified_of_a_step_down() {
    let mut client = Client::replica_set();
    let process = client.server.topology.process_id;
    let waiting = |counter: i64| {
        command(0, move |b| {
            b.append(c"hello", 1).begin_document(c"topologyVersion");
            b.append(c"processId", process).append(c"counter", counter).end();
            b.append(c"maxAwaitTimeMS", 600_000);
        })
    };
    let now = client.server.topology.changed.read() as i64;
    let HandlerStatus::Wait(Event::Other { mut ready, .. }) = client.frame(&waiting(now)).0 else {
        panic!("nothing to wait for")
    };
    assert!(!ready(std::task::Waker::noop()));
    let set = client.server.set().unwrap();
    set.step_down(std::time::Duration::ZERO).unwrap();
    assert!(ready(std::task::Waker::noop()));
    // The time has elapsed: the first read makes the member the primary of another term.
    let (_, reply) = client.frame(&waiting(now));
    let hello = body(&reply).to_owned();
    assert!(matches!(hello.view().get("isWritablePrimary"), Some(Value::Boolean(true))));
    assert_eq!(client.server.set().unwrap().term(), 2);
    assert_eq!(client.server.topology.changed.read() as i64, now + 2);
}

#[test]
fn killing_a_cursor_ends_its_waiting_get_more() {
    let mut client = Client::standalone();
    client.run(|b| _ = b.append(c"create", "c").append(c"capped", true).append(c"size", 4096));
    client.run(|b| {
        b.append(c"insert", "c").begin_array(c"documents").push_document().append(c"_id", 1).end().end();
    });
    let found =
        client.run(|b| _ = b.append(c"find", "c").append(c"tailable", true).append(c"awaitData", true));
    let id = found.view().get("cursor").and_then(|cursor| cursor.as_document()?.get("id")?.as_i64()).unwrap();
    let more = command(0, |b| _ = b.append(c"getMore", id).append(c"collection", "c"));
    let HandlerStatus::Wait(Event::Other { mut ready, .. }) = client.frame(&more).0 else {
        panic!("the cursor has no more documents")
    };
    assert!(!ready(std::task::Waker::noop()));
    assert!(client.server.database.kill_cursor(id) && !client.server.database.kill_cursor(id));
    assert!(ready(std::task::Waker::noop()));
    let (_, reply) = client.frame(&more);
    assert_eq!(code(&body(&reply).to_owned()), Some(237));
}

#[test]
fn a_step_down_without_force_waits_for_a_secondary() {
    let mut client = Client::replica_set();
    let frame = command(0, |b| _ = b.append(c"replSetStepDown", 60).append(c"secondaryCatchUpPeriodSecs", 1));
    std::thread::sleep(client.until(&frame).saturating_duration_since(std::time::Instant::now()));
    let (_, reply) = client.frame(&frame);
    assert_eq!(code(&body(&reply).to_owned()), Some(262));
}

const LIMITS: ExecutionLimits = ExecutionLimits { reads: 1, secondary_reads: 1, writes: 1, transactions: 1 };

#[test]
fn a_command_waits_for_an_execution_ticket() {
    let execution_limits = Some(LIMITS);
    let mut client = Client::new(Settings { execution_limits, ..Settings::default() });
    let queue = client
        .server
        .execution
        .as_ref()
        .and_then(|execution| execution.queue(Kind::Read, false))
        .unwrap()
        .clone();
    let running = Ticket::take(queue.clone());
    let late = command(0, |b| _ = b.append(c"count", "c").append(c"maxTimeMS", 1));
    std::thread::sleep(client.until(&late).saturating_duration_since(std::time::Instant::now()));
    let (_, reply) = client.frame(&late);
    assert_eq!(code(&body(&reply).to_owned()), Some(50));
    let count = command(0, |b| _ = b.append(c"count", "c"));
    let began = std::time::Instant::now();
    assert!(client.until(&count).duration_since(began) <= std::time::Duration::from_secs(31));
    assert_eq!(queue.len(), 2);
    drop(running);
    let (_, reply) = client.frame(&count);
    assert!(is_ok(&body(&reply).to_owned()) && queue.is_empty());
    // Reads do not delay writes and reads of secondaries, and commands without data have no limit.
    let _running = Ticket::take(queue.clone());
    let secondary = |b: &mut Builder| {
        b.append(c"count", "c").begin_document(c"$readPreference").append(c"mode", "secondary").end();
    };
    assert!(is_ok(&client.run(secondary)));
    assert!(is_ok(&client.run(|b| _ = b.append(c"create", "c"))));
    assert!(is_ok(&client.run(|b| _ = b.append(c"ping", 1))));
    // The time of a getMore limits its wait for results only.
    let more =
        command(0, |b| _ = b.append(c"getMore", 7i64).append(c"collection", "c").append(c"maxTimeMS", 1));
    let began = std::time::Instant::now();
    assert!(client.until(&more).duration_since(began) > std::time::Duration::from_secs(20));
}

/// Counts the memory of operations, as in the program.
#[global_allocator]
static HEAP: base::memory::CountingAllocator = base::memory::CountingAllocator(std::alloc::System);

#[test]
fn a_read_waits_for_memory_without_a_thread() {
    let mut client = Client::standalone();
    client.server.database.set_memory_limit(8 << 20);
    let limit = |b: &mut Builder| {
        _ = b.append(c"setParameter", 1).append(c"internalQueryMaxOperationMemoryBytes", 64 << 20)
    };
    assert!(is_ok(&client.run(limit)));
    for id in 0..5 {
        let document = |b: &mut Builder| {
            b.append(c"insert", "c").begin_array(c"documents").push_document();
            b.append(c"_id", id).append(c"text", "x".repeat(200_000).as_str()).end().end();
        };
        assert!(is_ok(&client.run(document)));
    }
    let group = |limit: i32| {
        command(0, move |b| {
            b.append(c"aggregate", "c").append(c"maxTimeMS", limit).begin_document(c"cursor").end();
            b.begin_array(c"pipeline").push_document().begin_document(c"$group").append(c"_id", Value::Null);
            b.begin_document(c"all").append(c"$push", "$text").end().end().end().end();
        })
    };
    let mut large = client.server.database.operation(7);
    large.set_memory_limit(64 << 20);
    let held = vec![1u8; 6 << 20];
    large.check().unwrap();
    let late = group(50);
    std::thread::sleep(client.until(&late).saturating_duration_since(std::time::Instant::now()));
    let (_, reply) = client.frame(&late);
    assert_eq!(code(&body(&reply).to_owned()), Some(50));
    let (began, grouped) = (std::time::Instant::now(), group(0));
    assert!(client.until(&grouped).duration_since(began) <= std::time::Duration::from_secs(31));
    drop((large, held));
    let (outcome, reply) = client.frame(&grouped);
    assert!(matches!(outcome, HandlerStatus::Done) && is_ok(&body(&reply).to_owned()));
    assert!(reply.len() > 1_000_000, "{} bytes", reply.len());
}

#[test]
fn a_transaction_has_an_execution_ticket_until_its_end() {
    let execution_limits = Some(LIMITS);
    let replica_set = Some("rs0".to_string());
    let mut client = Client::new(Settings { execution_limits, replica_set, ..Settings::default() });
    let queue = client.server.execution.as_ref().map(|execution| execution.transactions.clone()).unwrap();
    let statement = |b: &mut Builder, number: i64| {
        b.begin_document(c"lsid").append(c"id", Value::Binary { subtype: 4, bytes: &[1; 16] }).end();
        b.append(c"txnNumber", number).append(c"autocommit", false);
    };
    let count = |number: i64| {
        command(0, move |b| {
            b.append(c"find", "c");
            statement(b, number);
            b.append(c"startTransaction", true);
        })
    };
    let other = Ticket::take(queue.clone());
    client.until(&count(1));
    drop(other);
    assert!(is_ok(&body(&client.frame(&count(1)).1).to_owned()));
    assert_eq!(queue.len(), 1);
    // The next transaction of the session ends this one.
    assert!(is_ok(&body(&client.frame(&count(2)).1).to_owned()));
    assert_eq!(queue.len(), 1);
    let abort = command(0, |b| {
        b.append(c"abortTransaction", 1);
        statement(b, 2);
    });
    client.frame(&abort);
    assert!(queue.is_empty());
    assert!(is_ok(&body(&client.frame(&count(3)).1).to_owned()));
    assert_eq!(queue.len(), 1);
}
