//! A server process on simulated files.

use crate::action::failure;
use base::bson::{DocumentBuf, extended_json};
use database::{Database, ManualClock};
use server::{Advance, Server, Settings, SimulatedBackground, SimulatedConnection};
use std::path::Path;
use std::sync::Arc;
use storage::store::LogOptions;
use storage::testing::FaultyFiles;
use storage::{DiskEngine, DiskOptions, Durability, Engine, Journaling};

/// A server process.
pub(crate) struct Process {
    pub(crate) engine: Arc<DiskEngine>,
    pub(crate) server: Arc<Server>,
    pub(crate) background: SimulatedBackground,
}

/// How processes start.
pub(crate) struct Starter {
    pub(crate) durability: Durability,
    pub(crate) cache_bytes: u64,
    /// True if clients must log in.
    pub(crate) has_logins: bool,
    pub(crate) clock: Arc<ManualClock>,
    /// Wraps the engine.
    pub(crate) observe: fn(Arc<DiskEngine>) -> Arc<dyn Engine>,
    /// Runs waits of statements.
    pub(crate) wait: fn(&mut dyn FnMut()),
}

impl Starter {
    /// Starts a server process on a directory. `recovered` gets the position of the recovered state.
    pub(crate) fn start(
        &self,
        files: FaultyFiles,
        directory: &Path,
        seed: u64,
        recovered: &dyn Fn(u64) -> Result<(), String>,
    ) -> Result<Process, String> {
        let options = DiskOptions {
            durability: self.durability,
            cache_bytes: self.cache_bytes,
            ..DiskOptions::new(directory)
        };
        let engine = DiskEngine::open_stepped(Arc::new(files), &options);
        let engine = Arc::new(engine.map_err(|error| format!("opening: {error}"))?);
        recovered(engine.durable().0)?;
        let log = Some(LogOptions { bytes: 1 << 20 });
        let database = Database::open_with((self.observe)(engine.clone()), self.clock.clone(), seed, log);
        let database = database.map_err(|error| format!("opening the database: {error}"))?;
        database.set_blocking_hook(self.wait);
        let settings = Settings {
            replica_set: Some("rs".to_string()),
            engine: "disk",
            ephemeral: false,
            auth: self.has_logins,
            ..Settings::default()
        };
        let server = Arc::new(Server::with_seed(settings, database, seed));
        Ok(Process { engine, server, background: SimulatedBackground::default() })
    }
}

impl Process {
    /// Runs a command of the simulation itself to its end.
    pub(crate) fn command(&self, text: &str) -> Result<DocumentBuf, String> {
        let mut connection = SimulatedConnection::of_server(&self.server);
        connection.receive(&encode(text)?);
        for _ in 0..100 {
            match connection.advance() {
                Advance::Reply(bytes) => {
                    let reply = wire::message::document(&bytes).ok_or("no reply")?;
                    return match failure(reply.view()) {
                        Some(error) => Err(format!("{text}: {error:?}")),
                        None => Ok(reply),
                    };
                }
                Advance::Waiting => self.engine.step_flush(true),
                other => return Err(format!("{text}: {other:?}")),
            }
        }
        Err(format!("{text}: it never ends"))
    }
}

/// Encodes a command as a message.
pub(crate) fn encode(text: &str) -> Result<Vec<u8>, String> {
    let command = extended_json::parse(text).map_err(|error| format!("{text}: {error}"))?;
    Ok(wire::message::encode(1, 0, command.view()))
}
