//! Construction of a server with its command table.

use crate::commands::table;
use crate::dispatch::request::inner_command;
use crate::server::{Commands, Server, seed};
use crate::state::settings::Settings;
use database::Database;
use std::sync::Arc;

impl Server {
    /// Creates a server of this database. It does not listen yet.
    pub fn new(settings: Settings, database: Arc<Database>) -> Server {
        Server::with_seed(settings, database, seed())
    }

    /// Creates a server whose random numbers start from this seed.
    pub fn with_seed(settings: Settings, database: Arc<Database>, seed: u64) -> Server {
        let commands = Commands {
            count: table::ROWS.len(),
            requirements_of: |name| table::find(name).map(|command| command.requirements),
            run: inner_command,
        };
        Server::with_commands(commands, settings, database, seed)
    }
}
