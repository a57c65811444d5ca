//! Tests of authorization over connections in memory.

mod samples;
mod scenes;
mod table;
mod wild;

use crate::access::Identity;
use crate::dispatch::request;
use crate::protocol::names::UserName;
use crate::protocol::session_id;
use crate::server::Server;
use crate::state::connection::ConnectionState;
use crate::state::settings::Settings;
use base::bson::{Document, DocumentBuf, extended_json};
use database::{Database, SystemClock};
use std::sync::Arc;
use std::time::Instant;
use storage::store::LogOptions;
use wire::message;

/// Returns a server with access control.
fn guarded() -> Arc<Server> {
    guarded_by(Settings::default())
}

/// Returns a server with access control and other settings.
fn guarded_by(settings: Settings) -> Arc<Server> {
    let settings = Settings { auth: true, replica_set: Some("rs0".to_string()), ..settings };
    let engine = Arc::new(storage::MemoryEngine::new());
    let log = Some(LogOptions { bytes: 1 << 20 });
    let database = Database::open_with(engine, Arc::new(SystemClock), 1, log).unwrap();
    Arc::new(Server::new(settings, database).unwrap())
}

fn parse(text: &str) -> DocumentBuf {
    extended_json::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Runs a command with the server's own rights.
fn system(server: &Server, text: &str) -> DocumentBuf {
    request::command_of_server(server, parse(text).view()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// A connection.
struct Client {
    server: Arc<Server>,
    state: ConnectionState,
}

impl Client {
    /// Returns a remote connection without a user.
    fn anonymous(server: &Arc<Server>) -> Client {
        let activity = server.activities.open(([10, 0, 0, 1], 50_000).into());
        let state = ConnectionState::new(activity, ([127, 0, 0, 1], 27_017).into());
        Client { server: server.clone(), state }
    }

    /// Returns a connection of a user with these roles, each as `role@database`.
    fn user(server: &Arc<Server>, name: &str, roles: &[&str]) -> Client {
        let mut client = Client::anonymous(server);
        client.log_in(name, roles);
        client
    }

    /// Gives the connection's user these roles. The next command reads them.
    fn log_in(&mut self, name: &str, roles: &[&str]) {
        let role = |role: &&str| {
            let (role, database) = role.split_once('@').unwrap();
            format!(r#"{{role: "{role}", db: "{database}"}}"#)
        };
        let roles: Vec<String> = roles.iter().map(role).collect();
        let user =
            format!(r#"{{user: "{name}", db: "admin", credentials: {{}}, roles: [{}]}}"#, roles.join(", "));
        system(
            &self.server,
            &format!(
                r#"{{update: "system.users", updates: [{{q: {{_id: "admin.{name}"}}, u: {user}, upsert: true}}],
                    $db: "admin"}}"#
            ),
        );
        self.state.identity.get_or_insert_with(|| {
            Arc::new(Identity {
                user: UserName::new(name, "admin"),
                user_id: None,
                privileges: Arc::default(),
                roles: Vec::new(),
                mechanism: "SCRAM-SHA-256",
                digest: session_id::digest_of(name, "admin"),
                // An invalid generation, so that the identity is read again.
                generation: u64::MAX,
                read: Instant::now(),
            })
        });
        crate::auth::login::refresh(&self.server.auth, &mut self.state).unwrap();
        assert!(self.state.identity.is_some());
    }

    /// Runs a command that includes `$db`.
    fn run(&mut self, command: Document<'_>) -> DocumentBuf {
        let reply = request::command(&mut self.state, &self.server, command);
        reply.unwrap_or_else(DocumentBuf::empty)
    }

    /// Runs a command given as text.
    fn ask(&mut self, text: &str) -> DocumentBuf {
        self.run(parse(text).view())
    }

    /// Runs a command with a list in a document sequence.
    fn ask_with(&mut self, text: &str, name: &str, list: &[&str]) -> DocumentBuf {
        let documents: Vec<u8> = list.iter().flat_map(|text| parse(text).into_bytes()).collect();
        let length = (4 + name.len() + 1 + documents.len()) as i32;
        let body = parse(text);
        let sections: [&[u8]; 7] =
            [&[0], body.view().bytes(), &[1], &length.to_le_bytes(), name.as_bytes(), &[0], &documents];
        let mut out = Vec::new();
        request::answer(&mut self.state, &self.server, message::encode_sections(1, 0, &sections), &mut out);
        message::document(&out).unwrap()
    }

    /// Returns code and message of an error; 0 and an empty message on success.
    fn code(&mut self, text: &str) -> (i64, String) {
        let reply = self.ask(text);
        let reply = reply.view();
        let message = reply.get("errmsg").and_then(|message| message.as_str()).unwrap_or_default();
        (reply.get("code").and_then(|code| code.as_i64()).unwrap_or_default(), message.to_string())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.server.activities.close(&self.state.activity);
    }
}
