//! The places for HTTP connections. If all are taken, a new connection gets the place of one that waits for its client,
//! so that slow clients cannot keep others out.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Notify;

/// How many connections there may be at once.
const MOST: usize = 64;

/// All places.
#[derive(Default)]
pub(crate) struct Places(Mutex<Vec<Arc<Place>>>);

/// The place of one connection.
pub(crate) struct Place {
    client: IpAddr,
    standing: Mutex<Standing>,
    cut: Notify,
}

/// What a connection does.
#[derive(Clone, Copy, PartialEq)]
enum Standing {
    /// It waits for its client to send or to read, since this time.
    Waits(Instant),
    /// Its request is being answered.
    Answers,
    /// It has lost its place.
    Cut,
}

impl Place {
    /// Notes that the connection waits for its client; `false` if it has lost its place.
    pub(crate) fn wait(&self) -> bool {
        self.change(Standing::Waits(Instant::now()))
    }

    /// Notes that a request is being answered; `false` if the connection has lost its place.
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

    /// Takes the place away, if the connection still waits.
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
    /// A place for a client's connection; `None` if requests are being answered in all places.
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

    /// Gives a place back.
    pub(crate) fn leave(&self, place: &Arc<Place>) {
        self.0.lock().retain(|other| !Arc::ptr_eq(other, place));
    }

    /// How many are taken.
    pub(crate) fn count(&self) -> usize {
        self.0.lock().len()
    }
}

/// Among connections that wait, that of the client with the most connections, and of these the one that waits longest.
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
        // The other client waits longer, and has fewer connections.
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
