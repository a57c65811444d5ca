//! Connections and background work of a server without sockets and threads, for a simulation.
//!
//! The simulation owns one thread. It delivers bytes, continues the driver of a connection, and lets the background
//! work run, each when its seed says so.

use crate::listen::background::Background;
use crate::listen::driver::{Driver, DriverAction, ThreadKind};
use crate::observe::activity::Activity;
use crate::process::event::Event;
use crate::state::connection::ConnectionState;
use crate::state::server::Server;
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
                    self.driver.note_sent(reply.len());
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
