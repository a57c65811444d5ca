//! A server in this process whose engine is two, the one in memory and the one on disk, compared at every
//! answer; the latter makes one checkpoint after the other, so that reads find its data in all layers.

use crate::server::Scratch;
use database::{Database, SettableClock};
use server::Settings;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use storage::store::LogOptions;
use storage::testing::Mirror;
use storage::{DiskEngine, DiskOptions, Durability, Engine, MemoryEngine};

/// How long after a checkpoint the next one begins.
const PAUSE: Duration = Duration::from_millis(3);

/// The kinds of servers that scripts are for.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    /// A standalone.
    Alone,
    /// A replica set, initiated.
    Set,
    /// A replica set that waits for replSetInitiate.
    Uninitiated,
    /// A standalone that lets nobody in but users.
    Users,
}

/// The server; dropping it stops it.
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
        // Said to be in memory alone, as the recorded replies are; but writes on a set wait for the journal, since
        // streams show nothing before.
        let replica_set = is_replica_set.then(|| "rs0".to_string());
        let settings = Settings {
            replica_set,
            awaits_initiation: kind == Kind::Uninitiated,
            ephemeral: !is_replica_set,
            auth: kind == Kind::Users,
            test_commands: kind != Kind::Users,
            ..Settings::default()
        };
        let server = Arc::new(server::Server::new(settings, database));
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
            // What it panicked with has failed the test already.
            let _ = thread.join();
        }
    }
}
