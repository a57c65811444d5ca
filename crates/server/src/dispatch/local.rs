//! A server in this process: its construction with the command table, and connections without a socket.
//!
//! Scripts, tests without a network and fuzzing use the connections: [`LocalConnection::frame`] accepts any bytes.

use crate::commands::table;
use crate::dispatch::request::{self, inner_command};
use crate::observe::activity::Activity;
use crate::server::{Commands, Server, seed};
use crate::state::connection::ConnectionState;
use crate::state::settings::Settings;
use base::bson::{Document, DocumentBuf};
use database::Database;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// A client of a server in the same process.
pub struct LocalConnection {
    server: Arc<Server>,
    activity: Arc<Activity>,
    state: ConnectionState,
}

impl LocalConnection {
    /// Connects to a server.
    pub fn new(server: &Arc<Server>) -> LocalConnection {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 27017));
        let activity = server.activities.open(address);
        let state = ConnectionState::new(activity.clone(), address);
        LocalConnection { server: server.clone(), activity, state }
    }

    /// Connects as the server itself, without a user and with all privileges.
    pub fn of_server(server: &Arc<Server>) -> LocalConnection {
        let mut connection = LocalConnection::new(server);
        connection.state.is_system = true;
        connection
    }

    /// Runs a command that includes `$db`. Returns its reply; `None` if the server closes the
    /// connection.
    pub fn command(&mut self, command: Document<'_>) -> Option<DocumentBuf> {
        request::command(&mut self.state, &self.server, command)
    }

    /// Handles one frame and waits if necessary. `out` receives the first reply. Returns true if
    /// the connection stays open.
    pub fn frame(&mut self, frame: &[u8], out: &mut Vec<u8>) -> bool {
        request::answer(&mut self.state, &self.server, frame.to_vec(), out)
    }
}

impl Drop for LocalConnection {
    fn drop(&mut self) {
        self.server.activities.close(&self.activity);
    }
}

impl Server {
    /// Creates a server of this database. It does not listen yet.
    ///
    /// Errors: the records of retryable writes cannot be read.
    pub fn new(settings: Settings, database: Arc<Database>) -> base::Result<Server> {
        Server::with_seed(settings, database, seed())
    }

    /// Creates a server whose random numbers start from this seed.
    ///
    /// Errors: as [`new`](Self::new).
    pub fn with_seed(settings: Settings, database: Arc<Database>, seed: u64) -> base::Result<Server> {
        let commands = Commands {
            count: table::ROWS.len(),
            requirements_of: |name| table::find(name).map(|command| command.requirements),
            run: inner_command,
        };
        Server::with_commands(commands, settings, database, seed)
    }
}

#[cfg(test)]
mod tests {
    use crate::dispatch::local::*;
    use crate::state::settings::Settings;
    use base::bson::Builder;
    use database::{Database, SystemClock};
    use std::time::Instant;

    #[test]
    fn commands_run_without_a_socket() {
        let engine = Arc::new(storage::MemoryEngine::new());
        let database = Database::open(engine, Arc::new(SystemClock), 1).unwrap();
        let server = Arc::new(Server::new(Settings::default(), database).unwrap());
        let mut connection = LocalConnection::new(&server);
        let mut hello = Builder::new();
        hello.append(c"hello", 1).append(c"maxAwaitTimeMS", 5).begin_document(c"topologyVersion");
        hello.append(c"processId", server.topology.process_id).append(c"counter", 0i64).end();
        hello.append(c"$db", "admin");
        let began = Instant::now();
        let reply = connection.command(hello.finish().view()).unwrap();
        assert!(reply.view().find("isWritablePrimary").is_some());
        assert!(began.elapsed().as_millis() >= 5);
        assert!(!connection.frame(b"nonsense", &mut Vec::new()));
    }
}
