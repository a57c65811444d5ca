//! Two servers in this process, each with its own database over one shared store that counts as remote. Each server
//! sees the other's changes by reading.

use crate::mirrored::Kind;
use database::{Database, SettableClock};
use server::{Server, Settings};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use storage::MemoryEngine;
use storage::store::{Local, LogOptions};
use storage::testing::Checked;
use storage::testing::Shared;

/// The servers; dropping this value stops them.
pub(crate) struct Fronts {
    servers: Vec<Arc<Server>>,
    threads: Vec<JoinHandle<()>>,
}

impl Fronts {
    /// Starts both on free ports, and returns their addresses.
    pub(crate) fn start(kind: Kind) -> (Fronts, [String; 2]) {
        let is_replica_set = kind != Kind::Alone;
        let log = is_replica_set.then_some(LogOptions { bytes: 64 << 20 });
        let engine = Arc::new(Checked::sampling(Arc::new(MemoryEngine::new())));
        let store = Arc::new(Local::new(engine, log).unwrap());
        let clock = Arc::<SettableClock>::default();
        let mut fronts = Fronts { servers: Vec::new(), threads: Vec::new() };
        let addresses = [(); 2].map(|()| {
            let shared = Arc::new(Shared::new(&store, Duration::ZERO));
            let database = Database::open_on(shared, clock.clone(), server::seed()).unwrap();
            let settings = Settings {
                replica_set: is_replica_set.then(|| "rs0".to_string()),
                awaits_initiation: kind == Kind::Uninitiated,
                ephemeral: true,
                ..Settings::default()
            };
            fronts.serve(Arc::new(Server::new(settings, database).unwrap()))
        });
        (fronts, addresses)
    }

    fn serve(&mut self, server: Arc<Server>) -> String {
        let (send, receive) = mpsc::channel();
        self.servers.push(server.clone());
        self.threads.push(thread::spawn(move || {
            server::serve(&server, |address| send.send(address).unwrap()).unwrap();
        }));
        receive.recv().unwrap().to_string()
    }
}

impl Drop for Fronts {
    fn drop(&mut self) {
        self.servers.iter().for_each(|server| server.stop());
        for thread in self.threads.drain(..) {
            // Its panic has already failed the test.
            let _ = thread.join();
        }
    }
}
