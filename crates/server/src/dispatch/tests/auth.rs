//! Tests of invalid conversations. Their clients stay unauthenticated, and other clients are not
//! affected.

use crate::call::HandlerStatus;
use crate::dispatch::local::LocalConnection;
use crate::dispatch::request::Request;
use crate::protocol::names::UserName;
use crate::server::Server;
use crate::state::connection::ConnectionState;
use crate::state::settings::Settings;
use base::bson::{Builder, Document, DocumentBuf, FieldName, Value};
use base::random::Random;
use database::{Database, SystemClock, time};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use storage::store::LogOptions;
use wire::message::{document, encode};
use wire::scram::{Client as Scram, Mechanism};

/// Number of conversations.
const CONVERSATIONS: u32 = 20_000;

/// Returns a server with access control and two users: alice, the victim, and bob, the attacker.
fn server() -> Arc<Server> {
    server_of(Settings { auth: true, ..Settings::default() })
}

fn server_of(settings: Settings) -> Arc<Server> {
    let engine = Arc::new(storage::MemoryEngine::new());
    let log = settings.replica_set.is_some().then_some(LogOptions { bytes: 1 << 20 });
    let database = Database::open_with(engine, Arc::new(SystemClock), 1, log).unwrap();
    let server = Arc::new(Server::new(settings, database).unwrap());
    let mut system = LocalConnection::of_server(&server);
    let mut run = |build: &dyn Fn(&mut Builder)| {
        let mut command = Builder::new();
        build(&mut command);
        command.append(c"$db", "admin");
        let reply = system.command(command.finish().view()).unwrap();
        assert_eq!(reply.view().get("ok").and_then(|ok| ok.as_i64()), Some(1), "{reply:?}");
    };
    for count in ["scramIterationCount", "scramSHA256IterationCount"] {
        run(&|command| _ = command.append(c"setParameter", 1).append(FieldName::trusted(count), 5000));
    }
    for user in ["alice", "bob"] {
        run(&|command| {
            command
                .append(c"createUser", user)
                .append(c"pwd", &format!("{user}'s"))
                .begin_array(c"roles")
                .end();
        });
    }
    server
}

/// A connection from some address.
struct Peer {
    server: Arc<Server>,
    state: ConnectionState,
}

impl Peer {
    fn new(server: &Arc<Server>, address: u32) -> Peer {
        let client = SocketAddr::from((Ipv4Addr::from_bits(address), 50_000));
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 27_017));
        let state = ConnectionState::new(server.activities.open(client), local);
        Peer { server: server.clone(), state }
    }

    /// Returns the reply to a command; `None` if the connection closes or the command must wait.
    fn command(&mut self, command: Document<'_>) -> Option<DocumentBuf> {
        let mut reply = Vec::new();
        match Request::begin(&mut self.state, &self.server, encode(1, 0, command), &mut reply) {
            Ok((HandlerStatus::Done, _)) => document(&reply),
            _ => None,
        }
    }

    /// Sends one message of a conversation. Returns the server's message, if any.
    fn say(&mut self, name: &str, message: &[u8], db: &str, id: i32, skips: bool) -> Option<Vec<u8>> {
        let mut command = Builder::new();
        command.append(FieldName::trusted(name), 1);
        if name == "saslStart" {
            command.append(c"mechanism", "SCRAM-SHA-256");
            command.begin_document(c"options").append(c"skipEmptyExchange", skips).end();
        } else {
            command.append(c"conversationId", id);
        }
        command.append(c"payload", Value::Binary { subtype: 0, bytes: message }).append(c"$db", db);
        match self.command(command.finish().view())?.view().get("payload") {
            Some(Value::Binary { bytes, .. }) => Some(bytes.to_vec()),
            _ => None,
        }
    }

    fn who(&self) -> Option<String> {
        self.state.identity.as_ref().map(|identity| identity.user.to_string())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.server.activities.close(&self.state.activity);
    }
}

/// A recorded conversation of another client.
struct RecordedLogin {
    first: Vec<u8>,
    reply: Vec<u8>,
    proof: Vec<u8>,
    signature: Vec<u8>,
}

/// Authenticates with the right password.
fn login(peer: &mut Peer, user: &str) -> RecordedLogin {
    let client = Scram::new(Mechanism::Sha256, user, &format!("{user}'s")).unwrap();
    let first = client.first().into_bytes();
    let reply = peer.say("saslStart", &first, "admin", 1, true).unwrap();
    let (verifier, proof) = client.reply(&reply).unwrap();
    let signature = peer.say("saslContinue", proof.as_bytes(), "admin", 1, true).unwrap();
    verifier.check(&signature).unwrap();
    RecordedLogin { first, reply, proof: proof.into_bytes(), signature }
}

/// Returns a message with a few bytes changed, removed or added.
fn mutated(message: &[u8], random: &Random) -> Vec<u8> {
    let mut message = message.to_vec();
    for _ in 0..1 + random.draw() % 3 {
        let at = (random.draw() as usize) % (message.len() + 1);
        let byte = random.draw() as u8;
        match random.draw() % 4 {
            0 => message.insert(at, byte),
            1 if at < message.len() => _ = message.remove(at),
            2 => message.truncate(at),
            _ if at < message.len() => message[at] ^= byte | 1,
            _ => {}
        }
    }
    message
}

/// Returns the nonce of a server's first message.
fn nonce(reply: &[u8]) -> String {
    let text = String::from_utf8_lossy(reply);
    text.split(',').next().and_then(|part| part.strip_prefix("r=")).unwrap_or_default().to_string()
}

/// Runs one conversation with an error chosen by the seed.
fn attack(peer: &mut Peer, random: &Random, recorded: &[RecordedLogin]) {
    let pick = &recorded[(random.draw() as usize) % recorded.len()];
    let names = ["alice", "bob", "nobody", "ali=2Cce", "a=lice", "", "alice,m=x"];
    let headers = ["n,,", "y,,", "n,a=bob,", "p=tls-unique,,", "x,,", "n,", ""];
    let databases = ["admin", "admin", "admin", "test", "$external", "local"];
    let db = databases[(random.draw() as usize) % databases.len()];
    let mut last = Vec::new();
    for _ in 0..1 + random.draw() % 5 {
        let id = if random.draw().is_multiple_of(8) { random.draw() as i32 } else { 1 };
        let skips = random.draw().is_multiple_of(2);
        let answer = match random.draw() % 8 {
            0 => peer.say("saslStart", &pick.first, db, id, skips),
            1 => peer.say("saslStart", &mutated(&pick.first, random), db, id, skips),
            2 | 3 => {
                let name = names[(random.draw() as usize) % names.len()];
                let header = headers[(random.draw() as usize) % headers.len()];
                // A nonce of another conversation, a random nonce, or none.
                let nonce = match random.draw() % 3 {
                    0 => nonce(&pick.reply),
                    1 => format!("{:016x}", random.draw()),
                    _ => String::new(),
                };
                peer.say("saslStart", format!("{header}n={name},r={nonce}").as_bytes(), db, id, skips)
            }
            4 => peer.say("saslContinue", &pick.proof, db, id, skips),
            5 => peer.say("saslContinue", &mutated(&pick.proof, random), db, id, skips),
            6 => {
                // The right nonce with a proof of another conversation, or without a proof.
                let proof = String::from_utf8_lossy(&pick.proof);
                let proof = proof.rsplit_once(",p=").map_or("", |(_, proof)| proof).to_string();
                let channel = ["biws", "eSws", "", "cD10bHMtdW5pcXVlLCw="][(random.draw() % 4) as usize];
                let proof = if random.draw().is_multiple_of(2) { proof } else { "AAAA".repeat(11) };
                let message = format!("c={channel},r={},p={proof}", nonce(&last));
                peer.say("saslContinue", message.as_bytes(), db, id, skips)
            }
            _ => {
                let other = [&pick.reply, &pick.signature, &last][(random.draw() % 3) as usize].clone();
                let name = ["saslStart", "saslContinue"][(random.draw() % 2) as usize];
                peer.say(name, &other, db, id, skips)
            }
        };
        last = answer.unwrap_or(last);
    }
}

#[test]
fn a_foreign_conversation_does_not_authenticate() {
    let server = server();
    let mut alice = Peer::new(&server, 0x7F00_0001);
    let mut recorded = vec![login(&mut alice, "alice"), login(&mut Peer::new(&server, 0x7F00_0001), "bob")];
    recorded.push(login(&mut Peer::new(&server, 0x7F00_0001), "alice"));
    let mut status = Builder::new();
    status.append(c"listCollections", 1).append(c"$db", "admin");
    let status = status.finish();
    let random = Random::new(15);
    for conversation in 0..CONVERSATIONS {
        // Addresses differ, so that no attempt is delayed.
        let mut peer = Peer::new(&server, random.draw() as u32);
        attack(&mut peer, &random, &recorded);
        assert_eq!(peer.who(), None, "conversation {conversation}");
        if conversation.is_multiple_of(100) {
            let refused = peer.command(status.view()).unwrap();
            assert_eq!(refused.view().get("code").and_then(|code| code.as_i64()), Some(13));
            assert_eq!(alice.who().as_deref(), Some("alice@admin"));
            let mut other = Peer::new(&server, random.draw() as u32);
            login(&mut other, "alice");
            assert_eq!(other.who().as_deref(), Some("alice@admin"));
        }
    }
    assert_eq!(server.counters.panics.get(), 0);
}

/// A password authenticates only its own user, in all interleavings of conversations.
#[test]
fn a_password_is_good_for_its_own_user_alone() {
    let server = server();
    for (first_as, go_on_as) in [("alice", "bob"), ("nobody", "bob"), ("bob", "bob")] {
        let mut peer = Peer::new(&server, 0x0A00_0001);
        let client = Scram::new(Mechanism::Sha256, go_on_as, &format!("{go_on_as}'s")).unwrap();
        // Bob's nonce with another user's name. The reply has the other user's salt.
        let first = client.first().replace("n=bob", &format!("n={first_as}"));
        let reply = peer.say("saslStart", first.as_bytes(), "admin", 1, true).unwrap();
        let (_, proof) = client.reply(&reply).unwrap();
        let signed = peer.say("saslContinue", proof.as_bytes(), "admin", 1, true);
        let expected = (first_as == go_on_as).then_some("bob@admin");
        assert_eq!((peer.who().as_deref(), signed.is_some()), (expected, expected.is_some()));
    }
    // Two conversations on one connection: the second replaces the first.
    let mut peer = Peer::new(&server, 0x0A00_0002);
    let client = Scram::new(Mechanism::Sha256, "bob", "bob's").unwrap();
    let reply = peer.say("saslStart", client.first().as_bytes(), "admin", 1, true).unwrap();
    peer.say("saslStart", b"n,,n=alice,r=abcdefgh", "admin", 1, true).unwrap();
    let (_, proof) = client.reply(&reply).unwrap();
    assert!(peer.say("saslContinue", proof.as_bytes(), "admin", 1, true).is_none());
    assert_eq!(peer.who(), None);
}

#[test]
fn users_that_are_not_there_answer_as_if_they_were() {
    let server = server();
    let salt = |user: &str| {
        let mut peer = Peer::new(&server, 0x0A00_0003);
        let first = format!("n,,n={user},r=abcdefgh");
        let reply = peer.say("saslStart", first.as_bytes(), "admin", 1, true).unwrap();
        let reply = String::from_utf8(reply).unwrap();
        reply.split_once(",s=").unwrap().1.to_string()
    };
    assert_eq!(salt("nobody"), salt("nobody"));
    assert_ne!(salt("nobody"), salt("somebody"));
    assert_eq!(salt("nobody").len(), salt("alice").len());
    assert!(salt("nobody").ends_with(",i=5000") && salt("alice").ends_with(",i=5000"));
}

#[test]
fn guesses_wait_and_hold_no_thread() {
    let server = server();
    // Returns a connection before its guess of alice's password, and the guess.
    let begin = |address: u32| {
        let mut peer = Peer::new(&server, address);
        let client = Scram::new(Mechanism::Sha256, "alice", "wrong").unwrap();
        let reply = peer.say("saslStart", client.first().as_bytes(), "admin", 1, true).unwrap();
        let (_, proof) = client.reply(&reply).unwrap();
        (peer, proof)
    };
    // Returns true if the guess is answered at once.
    let is_answered = |(mut peer, proof): (Peer, String)| {
        let reply = peer.command(continued(&proof).view());
        let code = reply.map(|reply| reply.view().get("code").and_then(|code| code.as_i64()));
        assert!(matches!(code, None | Some(Some(18))), "{code:?}");
        code.is_some()
    };
    let here = 0x0A00_0004;
    let early = [(); 3].map(|()| begin(here));
    for _ in 0..5 {
        assert!(is_answered(begin(here)));
    }
    // Further failures, so that the delay exceeds the time of the test.
    let alice = UserName::new("alice", "admin");
    for _ in 0..10 {
        server.auth.delays.failed(
            &alice,
            Ipv4Addr::from_bits(here).into(),
            time::now() + Duration::from_secs(5),
        );
    }
    // The next guesses wait, also in conversations from before the failures. Too long a wait is a refusal.
    assert_eq!(early.map(is_answered), [false, false, true]);
    // Other addresses and other users are not delayed.
    assert!(is_answered(begin(here + 1)));
    login(&mut Peer::new(&server, here), "bob");
}

/// Returns the command with a proof.
fn continued(proof: &str) -> DocumentBuf {
    let mut command = Builder::new();
    command.append(c"saslContinue", 1).append(c"conversationId", 1);
    command.append(c"payload", Value::Binary { subtype: 0, bytes: proof.as_bytes() }).append(c"$db", "admin");
    command.finish()
}

#[test]
fn secrets_are_not_shown_to_others() {
    let server = server();
    let mut create = Builder::new();
    create.append(c"createUser", "carol").append(c"pwd", "carol's").begin_array(c"roles").end();
    create.append(c"$db", "admin");
    let create = create.finish();
    let mut peer = Peer::new(&server, 0x7F00_0001);
    peer.state.is_system = true;
    let held = server.auth.changing.lock();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| peer.command(create.view()));
        // The command waits for the lock on users. The test inspects it meanwhile.
        let noted = loop {
            let running = server.activities.all().into_iter().filter_map(|activity| activity.current());
            if let Some(current) = running.into_iter().find(|current| current.command == "createUser") {
                break current.body;
            }
            std::thread::yield_now();
        };
        let text = String::from_utf8_lossy(&noted);
        assert!(!text.contains("carol's") && text.contains("xxx"), "{text}");
        drop(held);
        let reply = waiting.join().unwrap().unwrap();
        assert_eq!(reply.view().get("ok").and_then(|ok| ok.as_i64()), Some(1), "{reply:?}");
    });
}

#[test]
fn cluster_times_are_for_authenticated_clients() {
    let server =
        server_of(Settings { auth: true, replica_set: Some("rs0".to_string()), ..Settings::default() });
    let mut peer = Peer::new(&server, 0x0A00_0001);
    let tells_time = |peer: &mut Peer, name: &str| {
        let reply = peer.command(document_of(name).view()).unwrap();
        ["$clusterTime", "operationTime"].map(|field| reply.view().get(field).is_some())
    };
    for name in ["hello", "ping", "find", "unheardOf"] {
        assert_eq!(tells_time(&mut peer, name), [false, false], "{name}");
    }
    login(&mut peer, "bob");
    for name in ["hello", "ping", "find", "unheardOf"] {
        assert_eq!(tells_time(&mut peer, name), [true, true], "{name}");
    }
}

#[test]
fn server_status_counts_login_attempts_and_successes() {
    let server = server();
    login(&mut Peer::new(&server, 0x0A00_0001), "bob");
    let mut stranger = Peer::new(&server, 0x0A00_0002);
    let client = Scram::new(Mechanism::Sha256, "alice", "wrong").unwrap();
    let first = client.first();
    let reply = stranger.say("saslStart", first.as_bytes(), "admin", 1, true).unwrap();
    let (_, proof) = client.reply(&reply).unwrap();
    assert_eq!(stranger.say("saslContinue", proof.as_bytes(), "admin", 1, true), None);
    let mut hello = Builder::new();
    hello.append(c"hello", 1).append(c"saslSupportedMechs", "admin.alice");
    hello
        .begin_document(c"speculativeAuthenticate")
        .append(c"saslStart", 1)
        .append(c"mechanism", "SCRAM-SHA-256");
    hello
        .append(c"payload", Value::Binary { subtype: 0, bytes: first.as_bytes() })
        .append(c"db", "admin")
        .end();
    hello.append(c"$db", "admin");
    stranger.command(hello.finish().view()).unwrap();
    let status = LocalConnection::of_server(&server).command(document_of("serverStatus").view()).unwrap();
    let security = status.view().get("security").and_then(|value| value.as_document()).unwrap();
    let counted = security.get("authentication").and_then(|value| value.as_document()).unwrap();
    assert_eq!(counted.get("saslSupportedMechsReceived").and_then(|count| count.as_i64()), Some(1));
    let mechanisms = counted.get("mechanisms").and_then(|value| value.as_document()).unwrap();
    let count = |mechanism: &str, kind: &str, of: &str| {
        let tries = mechanisms.get(mechanism)?.as_document()?.get(kind)?.as_document()?;
        tries.get(of)?.as_i64()
    };
    for (mechanism, kind, expected) in [
        ("SCRAM-SHA-256", "authenticate", [3, 1]),
        ("SCRAM-SHA-256", "speculativeAuthenticate", [1, 0]),
        ("SCRAM-SHA-1", "authenticate", [0, 0]),
        ("MONGODB-X509", "authenticate", [0, 0]),
    ] {
        let found = ["received", "successful"].map(|of| count(mechanism, kind, of));
        assert_eq!(found, expected.map(Some), "{mechanism} {kind}");
    }
}

fn document_of(name: &str) -> DocumentBuf {
    let mut command = Builder::new();
    command.append(FieldName::trusted(name), 1).append(c"$db", "admin");
    command.finish()
}
