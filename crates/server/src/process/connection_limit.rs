//! Connection limit of the HTTP server. At the limit, a new connection replaces a connection that
//! waits for its client, so slow clients cannot block other clients.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Notify;

/// Maximum number of connections.
const MAX_CONNECTIONS: usize = 64;

/// The permits of all connections.
#[derive(Default)]
pub(crate) struct ConnectionLimit(Mutex<Vec<Arc<Permit>>>);

/// The permit of a connection.
pub(crate) struct Permit {
    client: IpAddr,
    state: Mutex<PermitState>,
    evict: Notify,
}

/// State of a connection.
#[derive(Clone, Copy, PartialEq)]
enum PermitState {
    /// Waits since this time for its client to send or to read.
    Idle(Instant),
    /// Waits since this time because of failed logins.
    Delayed(Instant),
    /// Handles a request.
    Active,
    /// Lost its permit.
    Evicted,
}

impl Permit {
    /// Marks the connection as waiting for its client. Returns false if it has lost its permit.
    pub(crate) fn begin_wait(&self) -> bool {
        self.change(PermitState::Idle(Instant::now()))
    }

    /// Marks the connection as waiting because of failed logins. Such connections lose their permits first.
    /// Returns false if it has lost its permit.
    pub(crate) fn begin_delay(&self) -> bool {
        self.change(PermitState::Delayed(Instant::now()))
    }

    /// Marks the connection as handling a request. Returns false if it has lost its permit.
    pub(crate) fn begin_request(&self) -> bool {
        self.change(PermitState::Active)
    }

    fn change(&self, to: PermitState) -> bool {
        let mut state = self.state.lock();
        if *state != PermitState::Evicted {
            *state = to;
        }
        *state == to
    }

    /// Returns whether the connection is delayed and since when it waits; `None` if it does not wait.
    fn waiting(&self) -> Option<(bool, Instant)> {
        match *self.state.lock() {
            PermitState::Idle(since) => Some((false, since)),
            PermitState::Delayed(since) => Some((true, since)),
            _ => None,
        }
    }

    /// Takes the permit away if the connection waits.
    fn evict(&self) -> bool {
        let mut state = self.state.lock();
        let is_idle = matches!(*state, PermitState::Idle(_) | PermitState::Delayed(_));
        if is_idle {
            *state = PermitState::Evicted;
            self.evict.notify_one();
        }
        is_idle
    }

    /// Returns when the connection has lost its permit.
    pub(crate) async fn evicted(&self) {
        self.evict.notified().await;
    }
}

impl ConnectionLimit {
    /// Returns a permit for a client's connection; `None` if all connections handle requests.
    pub(crate) fn acquire(&self, client: IpAddr) -> Option<Arc<Permit>> {
        let mut permits = self.0.lock();
        if permits.len() >= MAX_CONNECTIONS {
            let at = victim(&permits)?;
            if !permits.get(at)?.evict() {
                return None;
            }
            permits.swap_remove(at);
        }
        let state = Mutex::new(PermitState::Idle(Instant::now()));
        let permit = Arc::new(Permit { client, state, evict: Notify::new() });
        permits.push(permit.clone());
        Some(permit)
    }

    /// Releases a permit.
    pub(crate) fn release(&self, permit: &Arc<Permit>) {
        self.0.lock().retain(|other| !Arc::ptr_eq(other, permit));
    }

    /// Returns the number of taken permits.
    pub(crate) fn count(&self) -> usize {
        self.0.lock().len()
    }
}

/// Selects among the waiting connections: of the client with the most connections, a connection delayed by failed
/// logins, and the longest wait.
fn victim(permits: &[Arc<Permit>]) -> Option<usize> {
    let mut counts: HashMap<IpAddr, usize> = HashMap::new();
    for permit in permits {
        *counts.entry(permit.client).or_default() += 1;
    }
    let waiting = permits.iter().enumerate().filter_map(|(at, permit)| {
        let (is_delayed, since) = permit.waiting()?;
        Some((at, (counts.get(&permit.client).copied(), is_delayed, since.elapsed())))
    });
    waiting.max_by_key(|(_, rank)| *rank).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn client(number: u8) -> IpAddr {
        Ipv4Addr::new(127, 0, 0, number).into()
    }

    #[test]
    fn a_new_connection_gets_the_place_of_one_that_waits() {
        let permits = ConnectionLimit::default();
        let other = permits.acquire(client(2)).unwrap();
        let all: Vec<_> = (1..MAX_CONNECTIONS).map(|_| permits.acquire(client(1)).unwrap()).collect();
        assert!(all.iter().skip(1).all(|permit| permit.begin_request()));
        // The other client waits longer but has fewer connections.
        let new = permits.acquire(client(1)).unwrap();
        assert!(!all[0].begin_request() && !all[0].begin_wait() && other.begin_wait());
        assert!(new.begin_request());
        permits.acquire(client(3)).unwrap().begin_request();
        assert!(!other.begin_wait());
        assert!(permits.acquire(client(4)).is_none() && permits.count() == MAX_CONNECTIONS);
        permits.release(&new);
        assert!(permits.acquire(client(4)).is_some());
    }
}
