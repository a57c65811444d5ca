//! Connections and background work of a server without sockets and threads, for a simulation.
//!
//! The simulation owns one thread. It delivers bytes, continues the driver of a connection, and lets the background
//! work run, each when its seed says so.

use crate::listen::background::Background;
use crate::listen::driver::{Driver, DriverAction, ThreadKind};
use crate::observe::activity::Activity;
use crate::process::event::Event;
use crate::server::Server;
use crate::state::connection::ConnectionState;
use database::time;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};
use std::time::Instant;

/// Result of [`SimulatedConnection::advance`].
#[derive(Debug, PartialEq, Eq)]
pub enum Advance {
    /// The bytes of a reply.
    Reply(Vec<u8>),
    /// The server waits for bytes of the client.
    Idle,
    /// The request waits for an event.
    Waiting,
    /// The server closes the connection.
    Closed,
}

/// A client's connection.
pub struct SimulatedConnection {
    driver: Driver,
    activity: Arc<Activity>,
    woken: Arc<Woken>,
}

/// Records that the event of a request has happened.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl SimulatedConnection {
    /// Connects to a server.
    pub fn new(server: &Arc<Server>) -> SimulatedConnection {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 27017));
        let activity = server.activities.open(address);
        let driver = Driver::new(server.clone(), ConnectionState::new(activity.clone(), address));
        SimulatedConnection { driver, activity, woken: Arc::default() }
    }

    /// Connects as the server itself, without a user and with all privileges.
    pub fn of_server(server: &Arc<Server>) -> SimulatedConnection {
        let mut connection = SimulatedConnection::new(server);
        connection.driver.state.is_system = true;
        connection
    }

    /// Delivers bytes of the client.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.driver.input.extend_from_slice(bytes);
    }

    /// Continues as far as possible, up to a reply. As on a socket, a waiting request continues only after its waker
    /// was called or its deadline has passed.
    pub fn advance(&mut self) -> Advance {
        loop {
            match self.driver.advance(ThreadKind::Dedicated) {
                DriverAction::Read => return Advance::Idle,
                DriverAction::Send => {
                    let reply = self.driver.unsent().to_vec();
                    self.driver.count_sent(reply.len());
                    return Advance::Reply(reply);
                }
                DriverAction::Refuse(_) | DriverAction::Close => return Advance::Closed,
                DriverAction::Wait if self.has_happened() => self.driver.event = None,
                DriverAction::Wait => return Advance::Waiting,
            }
        }
    }

    /// Returns true if [`advance`](Self::advance) would continue a waiting request.
    pub fn can_advance(&self) -> bool {
        let Some(event) = &self.driver.event else { return true };
        self.woken.0.load(Ordering::Relaxed) || event.until().is_some_and(|until| time::now() >= until)
    }

    /// Returns the deadline of a waiting request.
    pub fn deadline(&self) -> Option<Instant> {
        self.driver.event.as_ref().and_then(Event::until)
    }

    /// Registers a waker at the event, on the first call and after a wake.
    fn has_happened(&mut self) -> bool {
        let Some(event) = &mut self.driver.event else { return true };
        self.woken = Arc::default();
        let waker = Waker::from(self.woken.clone());
        event.has_happened(&self.driver.server.database, &waker)
            || event.until().is_some_and(|until| time::now() >= until)
    }
}

impl Drop for SimulatedConnection {
    fn drop(&mut self) {
        self.driver.server.activities.close(&self.activity);
    }
}

/// The background work of a server.
#[derive(Default)]
pub struct SimulatedBackground(Background);

impl SimulatedBackground {
    /// Does the work that is due. The simulation calls it once a second of its clock.
    pub fn tick(&mut self, server: &Server) {
        self.0.tick(server);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::settings::Settings;
    use base::bson::{DocumentBuf, extended_json};
    use database::{Database, SystemClock};
    use storage::store::LogOptions;

    fn replica_set() -> Arc<Server> {
        let engine = Arc::new(storage::MemoryEngine::new());
        let log = Some(LogOptions { bytes: 1 << 20 });
        let database = Database::open_with(engine, Arc::new(SystemClock), 1, log).unwrap();
        let settings = Settings { replica_set: Some("rs0".to_string()), ..Settings::default() };
        Arc::new(Server::new(settings, database))
    }

    fn send(connection: &mut SimulatedConnection, command: &str) -> Advance {
        let command = extended_json::parse(command).unwrap();
        connection.receive(&wire::message::encode(1, 0, command.view()));
        connection.advance()
    }

    fn reply(advance: Advance) -> DocumentBuf {
        match advance {
            Advance::Reply(bytes) => wire::message::document(&bytes).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn number(reply: &DocumentBuf, field: &str) -> Option<i64> {
        reply.view().get(field).and_then(|value| value.as_i64())
    }

    #[test]
    fn a_write_waits_for_a_transaction_without_a_thread() {
        const LSID: &str = "lsid: {id: {$uuid: '00000000-0000-4000-8000-000000000001'}}";
        let server = replica_set();
        let [mut one, mut other] = std::array::from_fn(|_| SimulatedConnection::new(&server));
        let inserted = send(&mut one, "{insert: 'c', $db: 'd', documents: [{_id: 1, n: 1}]}");
        assert_eq!(number(&reply(inserted), "n"), Some(1));
        let transaction = format!("$db: 'd', {LSID}, txnNumber: {{$numberLong: '1'}}, autocommit: false");
        let update = "update: 'c', updates: [{q: {_id: 1}, u: {$inc: {n: 1}}}]";
        let first = send(&mut one, &format!("{{{update}, {transaction}, startTransaction: true}}"));
        assert_eq!(number(&reply(first), "nModified"), Some(1));
        let update = format!("{{{update}, $db: 'd'}}");
        assert_eq!(send(&mut other, &update), Advance::Waiting);
        assert!(!other.can_advance() && other.advance() == Advance::Waiting);
        let commit = transaction.replace("'d'", "'admin'");
        let committed = reply(send(&mut one, &format!("{{commitTransaction: 1, {commit}}}")));
        assert_eq!(number(&committed, "ok"), Some(1));
        assert!(other.can_advance());
        assert_eq!(number(&reply(other.advance()), "nModified"), Some(1));
        let found = reply(send(&mut one, "{find: 'c', $db: 'd', filter: {n: 3}, singleBatch: true}"));
        let batch = found.view().get("cursor").and_then(|cursor| cursor.as_document()?.get("firstBatch"));
        assert_eq!(batch.and_then(|batch| batch.as_array()).map(|batch| batch.iter().count()), Some(1));
    }

    #[test]
    fn the_wait_of_a_write_ends_at_max_time() {
        const LSID: &str = "lsid: {id: {$uuid: '00000000-0000-4000-8000-000000000002'}}";
        let server = replica_set();
        let [mut one, mut other] = std::array::from_fn(|_| SimulatedConnection::new(&server));
        reply(send(&mut one, "{create: 'c', $db: 'd'}"));
        let insert = "insert: 'c', $db: 'd', documents: [{_id: 1}]";
        let transaction =
            format!("{LSID}, txnNumber: {{$numberLong: '1'}}, autocommit: false, startTransaction: true");
        assert_eq!(number(&reply(send(&mut one, &format!("{{{insert}, {transaction}}}"))), "n"), Some(1));
        assert_eq!(send(&mut other, &format!("{{{insert}, maxTimeMS: 20}}")), Advance::Waiting);
        std::thread::sleep(std::time::Duration::from_millis(25));
        assert_eq!(number(&reply(other.advance()), "code"), Some(50));
    }
}
