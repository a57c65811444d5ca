//! A server in this process with two engines, in memory and on disk, compared at every answer. The disk engine makes
//! constant checkpoints, so reads find data in all layers.

use crate::server::Scratch;
use database::{Database, SettableClock};
use server::Settings;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use storage::store::LogOptions;
use storage::testing::Mirror;
use storage::{DiskEngine, DiskOptions, Durability, Journaling, MemoryEngine};

/// Pause between two checkpoints.
const PAUSE: Duration = Duration::from_millis(3);

/// Kinds of servers for scripts.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    /// A standalone server.
    Alone,
    /// An initiated replica set.
    Set,
    /// A replica set before replSetInitiate.
    Uninitiated,
    /// A standalone server with access control.
    Users,
    /// A standalone server by the rules of MongoDB 9.0.
    Newest,
}

/// The server; dropping this value stops it.
pub(crate) struct Mirrored {
    server: Arc<server::Server>,
    threads: Vec<JoinHandle<()>>,
    ended: Arc<AtomicBool>,
    _data: Scratch,
}

impl Mirrored {
    /// Starts it on a free port, and returns its address.
    pub(crate) fn start(kind: Kind) -> (Mirrored, String) {
        let is_replica_set = matches!(kind, Kind::Set | Kind::Uninitiated);
        let data = Scratch::new("mirror");
        let options =
            DiskOptions { durability: Durability::None, cache_bytes: 4 << 20, ..DiskOptions::new(&*data) };
        let engine = Arc::new(Mirror::new(MemoryEngine::new(), DiskEngine::open(&options).unwrap()));
        let clock = Arc::<SettableClock>::default();
        let database = {
            let log = is_replica_set.then_some(LogOptions { bytes: 64 << 20 });
            Database::open_with(engine.clone(), clock, server::seed(), log).unwrap()
        };
        // Reported as in memory, as in the recorded replies. On a set, writes wait for the journal, since streams show
        // only durable writes.
        let replica_set = is_replica_set.then(|| "rs0".to_string());
        let settings = Settings {
            replica_set,
            awaits_initiation: kind == Kind::Uninitiated,
            ephemeral: !is_replica_set,
            auth: kind == Kind::Users,
            test_commands: kind != Kind::Users,
            compatible_with: match kind {
                Kind::Newest => server::CompatibleWith::V9_0,
                _ => server::CompatibleWith::default(),
            },
            ..Settings::default()
        };
        let server = Arc::new(server::Server::new(settings, database).unwrap());
        let ended = Arc::new(AtomicBool::new(false));
        let checkpoints = {
            let ended = ended.clone();
            thread::spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    engine.checkpoint().unwrap();
                    thread::sleep(PAUSE);
                }
            })
        };
        let (send, receive) = mpsc::channel();
        let serving = {
            let server = server.clone();
            thread::spawn(move || server::serve(&server, |address| send.send(address).unwrap()).unwrap())
        };
        let address = receive.recv().unwrap().to_string();
        (Mirrored { server, threads: vec![serving, checkpoints], ended, _data: data }, address)
    }
}

impl Drop for Mirrored {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        self.server.stop();
        for thread in self.threads.drain(..) {
            // Its panic has already failed the test.
            let _ = thread.join();
        }
    }
}
