//! The incarnations of a server. An incarnation ends when committed changes may have been lost.
//!
//! Commits precede the flush of the write-ahead log. A crash loses the last of them, and so does the promotion of a
//! standby that had not received them. A wait for durability must therefore ask the same incarnation that made the
//! commit. In a later incarnation all present data is durable, but the commit may be missing.
//!
//! The number of an incarnation is in an unlogged table. PostgreSQL empties the table at recovery from a crash and at
//! the promotion of a standby, and keeps it through an orderly restart.

use crate::failure::{Failure, PgResult};
use crate::stream::Socket;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use storage::Position;

/// The incarnations that a front has seen, numbered from one.
#[derive(Default)]
pub(crate) struct Incarnations {
    /// Number of the latest incarnation, readable without the lock.
    current: AtomicU64,
    inner: Mutex<Inner>,
}

/// The incarnations seen so far, with their connections.
#[derive(Default)]
struct Inner {
    /// The server's ids of the incarnations, in order.
    ids: Vec<i64>,
    /// The latest timeline. Each promotion begins a timeline.
    timeline: i64,
    /// The connections of each incarnation.
    sockets: Vec<(u64, Weak<Socket>)>,
}

impl Incarnations {
    /// Returns the latest incarnation.
    pub(crate) fn current(&self) -> u64 {
        self.current.load(Ordering::Acquire)
    }

    /// Refuses a writable server on a timeline that has ended: a primary that does not know about the promotion of a
    /// standby.
    pub(crate) fn admit(&self, timeline: i64) -> PgResult<()> {
        let mut inner = self.inner.lock();
        if timeline < inner.timeline {
            return Err(replaced());
        }
        inner.timeline = timeline;
        debug_assert_eq!(self.current(), inner.ids.len() as u64, "the number of the latest incarnation");
        Ok(())
    }

    /// Records the incarnation of a new connection and returns its number. The first connection of a new incarnation
    /// closes all connections of earlier incarnations.
    ///
    /// Errors: `Unavailable` if a later incarnation has been seen.
    pub(crate) fn enter(&self, id: i64, socket: &Arc<Socket>) -> PgResult<u64> {
        let mut inner = self.inner.lock();
        let number = match inner.ids.iter().position(|known| *known == id) {
            Some(at) if at + 1 == inner.ids.len() => inner.ids.len() as u64,
            Some(_) => return Err(replaced()),
            None => {
                inner.ids.push(id);
                let number = inner.ids.len() as u64;
                debug_assert!(number > self.current(), "incarnation {number} is not the latest");
                self.current.store(number, Ordering::Release);
                end_all(&mut inner);
                number
            }
        };
        if inner.sockets.len() == inner.sockets.capacity() {
            inner.sockets.retain(|(_, socket)| socket.strong_count() > 0);
        }
        inner.sockets.push((number, Arc::downgrade(socket)));
        Ok(number)
    }

    /// Closes all connections, because the server does not reply.
    pub(crate) fn end_connections(&self) {
        end_all(&mut self.inner.lock());
    }
}

/// Closes the sockets of all connections, which ends pending reads.
fn end_all(inner: &mut Inner) {
    let sockets = std::mem::take(&mut inner.sockets);
    sockets.iter().filter_map(|(_, socket)| socket.upgrade()).for_each(|socket| socket.end());
}

/// Returns the error of a wait for a commit that a later incarnation may lack.
pub(crate) fn replaced() -> Failure {
    Failure::Unavailable("the server has crashed or was replaced since then".to_string())
}

/// Bit of a position at which the incarnation of the commit begins.
const INCARNATION_SHIFT: u32 = 40;

/// Returns the position of the commit of this number.
pub(crate) fn position(incarnation: u64, number: u64) -> Position {
    debug_assert!(number < 1 << INCARNATION_SHIFT, "commit {number} has the position of an earlier one");
    let position = Position(incarnation << INCARNATION_SHIFT | number & ((1 << INCARNATION_SHIFT) - 1));
    debug_assert_eq!(incarnation_of(position), incarnation, "a wait would ask another incarnation");
    position
}

/// Returns the incarnation of a position.
pub(crate) fn incarnation_of(position: Position) -> u64 {
    position.0 >> INCARNATION_SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_later_life_ends_the_connections_of_earlier_ones() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = || Arc::new(Socket::Tcp(TcpStream::connect(listener.local_addr().unwrap()).unwrap()));
        let (incarnations, first, second) = (Incarnations::default(), socket(), socket());
        assert_eq!(
            (incarnations.enter(77, &first).unwrap(), incarnations.enter(77, &first).unwrap()),
            (1, 1)
        );
        assert_eq!((incarnations.enter(88, &second).unwrap(), incarnations.current()), (2, 2));
        let mut byte = [0];
        assert_eq!(std::io::Read::read(&mut &*first, &mut byte).unwrap(), 0);
        assert!(incarnations.enter(77, &first).is_err(), "an earlier incarnation isn't gone back to");
        incarnations.admit(3).unwrap();
        assert!(incarnations.admit(2).is_err() && incarnations.admit(3).is_ok());
    }
}
