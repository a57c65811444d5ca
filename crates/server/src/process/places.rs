//! Connection limit of the HTTP server. At the limit, a new connection replaces a connection that
//! waits for its client, so slow clients cannot block other clients.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Notify;

/// Maximum number of connections.
const MOST: usize = 64;

/// The places of all connections.
#[derive(Default)]
pub(crate) struct Places(Mutex<Vec<Arc<Place>>>);

/// The place of a connection.
pub(crate) struct Place {
    client: IpAddr,
    standing: Mutex<Standing>,
    cut: Notify,
}

/// State of a connection.
#[derive(Clone, Copy, PartialEq)]
enum Standing {
    /// Waits since this time for its client to send or to read.
    Waits(Instant),
    /// Handles a request.
    Answers,
    /// Lost its place.
    Cut,
}

impl Place {
    /// Marks the connection as waiting for its client. Returns false if it has lost its place.
    pub(crate) fn wait(&self) -> bool {
        self.change(Standing::Waits(Instant::now()))
    }

    /// Marks the connection as handling a request. Returns false if it has lost its place.
    pub(crate) fn answer(&self) -> bool {
        self.change(Standing::Answers)
    }

    fn change(&self, to: Standing) -> bool {
        let mut standing = self.standing.lock();
        if *standing != Standing::Cut {
            *standing = to;
        }
        *standing == to
    }

    fn waits_since(&self) -> Option<Instant> {
        match *self.standing.lock() {
            Standing::Waits(since) => Some(since),
            _ => None,
        }
    }

    /// Takes the place away if the connection waits.
    fn cut(&self) -> bool {
        let mut standing = self.standing.lock();
        let waits = matches!(*standing, Standing::Waits(_));
        if waits {
            *standing = Standing::Cut;
            self.cut.notify_one();
        }
        waits
    }

    /// Returns when the connection has lost its place.
    pub(crate) async fn lost(&self) {
        self.cut.notified().await;
    }
}

impl Places {
    /// Returns a place for a client's connection; `None` if all connections handle requests.
    pub(crate) fn take(&self, client: IpAddr) -> Option<Arc<Place>> {
        let mut places = self.0.lock();
        if places.len() >= MOST {
            let at = weakest(&places)?;
            if !places.get(at)?.cut() {
                return None;
            }
            places.swap_remove(at);
        }
        let standing = Mutex::new(Standing::Waits(Instant::now()));
        let place = Arc::new(Place { client, standing, cut: Notify::new() });
        places.push(place.clone());
        Some(place)
    }

    /// Releases a place.
    pub(crate) fn leave(&self, place: &Arc<Place>) {
        self.0.lock().retain(|other| !Arc::ptr_eq(other, place));
    }

    /// Returns the number of taken places.
    pub(crate) fn count(&self) -> usize {
        self.0.lock().len()
    }
}

/// Selects among the waiting connections: of the client with the most connections, the connection
/// with the longest wait.
fn weakest(places: &[Arc<Place>]) -> Option<usize> {
    let mut counts: HashMap<IpAddr, usize> = HashMap::new();
    for place in places {
        *counts.entry(place.client).or_default() += 1;
    }
    let waiting = places.iter().enumerate().filter_map(|(at, place)| Some((at, place, place.waits_since()?)));
    let rank = |place: &Place, since: Instant| (counts.get(&place.client).copied(), since.elapsed());
    waiting.max_by_key(|(_, place, since)| rank(place, *since)).map(|(at, ..)| at)
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
        let places = Places::default();
        let other = places.take(client(2)).unwrap();
        let all: Vec<_> = (1..MOST).map(|_| places.take(client(1)).unwrap()).collect();
        assert!(all.iter().skip(1).all(|place| place.answer()));
        // The other client waits longer but has fewer connections.
        let new = places.take(client(1)).unwrap();
        assert!(!all[0].answer() && !all[0].wait() && other.wait());
        assert!(new.answer());
        places.take(client(3)).unwrap().answer();
        assert!(!other.wait());
        assert!(places.take(client(4)).is_none() && places.count() == MOST);
        places.leave(&new);
        assert!(places.take(client(4)).is_some());
    }
}
