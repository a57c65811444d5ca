//! A server process on simulated files, and the comparison of all its data with the model.

use crate::action::{Action, COLLECTIONS, Doc, Outcome, USERS, cursor, failure, namespace, user_name};
use crate::model::Model;
use base::bson::{DocumentBuf, extended_json};
use database::{Database, ManualClock};
use server::{Advance, Server, Settings, SimulatedBackground, SimulatedConnection};
use std::collections::BTreeSet;
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
#[derive(Clone)]
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
        let server = Server::with_seed(settings, database, seed);
        let server = Arc::new(server.map_err(|error| format!("creating the server: {error}"))?);
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

/// Compares all data of a process with the model's latest version.
pub(crate) fn verify(process: &Process, model: &Model) -> Result<(), String> {
    let users = process.command("{find: 'system.users', $db: 'admin'}")?;
    let (_, users) = cursor(users.view())?;
    let names = users.iter().filter_map(|user| user.get("user")?.as_str().map(str::to_string));
    let found: BTreeSet<String> = names.collect();
    let expected = model.state().get(USERS).into_iter().flat_map(|users| users.keys());
    let expected: BTreeSet<String> = expected.map(|user| user_name(*user)).collect();
    if found != expected {
        return Err(format!("the users {found:?} instead of {expected:?}"));
    }
    let mut existing = BTreeSet::new();
    for database in COLLECTIONS.map(|collection| namespace(collection).0).into_iter().collect::<BTreeSet<_>>()
    {
        let list = format!("{{listCollections: 1, nameOnly: true, $db: '{database}'}}");
        let reply = process.command(&list)?;
        let (_, collections) = cursor(reply.view())?;
        let names = collections.iter().filter_map(|collection| collection.get("name")?.as_str());
        existing.extend(names.map(|name| (database, name.to_string())));
    }
    for collection in COLLECTIONS {
        let (database, name) = namespace(collection);
        let exists = existing.contains(&(database, name.to_string()));
        if exists != model.state().contains_key(collection) {
            return Err(format!("{collection} exists: {exists}, existing {existing:?}"));
        }
        if exists {
            verify_collection(process, model, collection)?;
        }
    }
    Ok(())
}

fn verify_collection(process: &Process, model: &Model, collection: &'static str) -> Result<(), String> {
    let state = model.state();
    let (database, name) = namespace(collection);
    let docs: Vec<Doc> = state.get(collection).into_iter().flat_map(|docs| docs.values().copied()).collect();
    let mut ways = vec!["$natural", "_id"];
    // The check by `validate` suffices for indexes without entries.
    if !docs.is_empty() {
        let indexes = process.command(&format!("{{listIndexes: '{name}', $db: '{database}'}}"))?;
        let indexes = extended_json::to_relaxed(indexes.view());
        let exists = |name: &str| indexes.contains(&format!("\"name\":\"{name}\""));
        let fields = [("u", "u"), ("n", "n"), ("v", "u")];
        ways.extend(fields.iter().filter(|(name, _)| exists(name)).map(|(_, field)| *field));
    }
    for way in ways {
        let reply = process.command(&format!("{{find: '{name}', hint: {{{way}: 1}}, $db: '{database}'}}"))?;
        let found = Action::Find(None).outcome(reply.view())?;
        if found != Outcome::Docs(docs.clone()) {
            return Err(format!("{collection} by {way} has {found:?}, expected {docs:?}"));
        }
    }
    let reply = process.command(&format!("{{count: '{name}', $db: '{database}'}}"))?;
    let count = Action::Count.outcome(reply.view())?;
    if count != Outcome::Count(docs.len() as i64) {
        return Err(format!("{collection} has {} documents, and counts {count:?}", docs.len()));
    }
    let reply = process.command(&format!("{{validate: '{name}', $db: '{database}'}}"))?;
    match reply.view().get("valid").and_then(|valid| valid.as_bool()) {
        Some(true) => Ok(()),
        _ => Err(format!("{collection} is not valid: {}", extended_json::to_relaxed(reply.view()))),
    }
}
