//! The lives of a server: each lasts until something that was committed may have been lost.
//!
//! Commits are made before the write-ahead log is synced, so that a crash takes the last ones with it, and so
//! does the promotion of a standby that hadn't got them. Whoever waits until his commit is safe must therefore
//! ask the very life in which it was made: in a later one all that is there is safe, and what he wrote isn't
//! there. A life's number lies in an unlogged table, which PostgreSQL empties whenever it recovers from a crash
//! and whenever a standby is promoted, and keeps through an orderly restart.

use crate::failure::{Answer, Failure};
use crate::stream::Socket;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use storage::Position;

/// The lives that a front has seen, numbered from one.
#[derive(Default)]
pub(crate) struct Lives {
    current: AtomicU64,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// What the server calls them, in order.
    ids: Vec<i64>,
    /// The latest timeline: each promotion begins one.
    timeline: i64,
    /// The connections to each.
    sockets: Vec<(u64, Weak<Socket>)>,
}

impl Lives {
    /// The latest.
    pub(crate) fn current(&self) -> u64 {
        self.current.load(Ordering::Acquire)
    }

    /// Refuses a server that takes writes on a timeline that another has ended: a primary that doesn't know yet
    /// that a standby has been promoted.
    pub(crate) fn admit(&self, timeline: i64) -> Answer<()> {
        let mut inner = self.inner.lock();
        if timeline < inner.timeline {
            return Err(replaced());
        }
        inner.timeline = timeline;
        Ok(())
    }

    /// Notes in which life a connection was opened, and gives its number. The first one of a new life ends all
    /// connections to earlier ones.
    ///
    /// Errors: `Lost` where a later life has been seen.
    pub(crate) fn enter(&self, id: i64, socket: &Arc<Socket>) -> Answer<u64> {
        let mut inner = self.inner.lock();
        let number = match inner.ids.iter().position(|known| *known == id) {
            Some(at) if at + 1 == inner.ids.len() => inner.ids.len() as u64,
            Some(_) => return Err(replaced()),
            None => {
                inner.ids.push(id);
                let number = inner.ids.len() as u64;
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

    /// Ends all connections: nobody answers any more.
    pub(crate) fn end_connections(&self) {
        end_all(&mut self.inner.lock());
    }
}

fn end_all(inner: &mut Inner) {
    let sockets = std::mem::take(&mut inner.sockets);
    sockets.iter().filter_map(|(_, socket)| socket.upgrade()).for_each(|socket| socket.end());
}

/// What becomes of a wait for something that a later life may not have.
pub(crate) fn replaced() -> Failure {
    Failure::Lost("the server has crashed or been replaced by another since".to_string())
}

/// Where in a position the life begins that a commit was made in.
const LIFE: u32 = 40;

/// The position of the commit of this number.
pub(crate) fn position(life: u64, number: u64) -> Position {
    Position(life << LIFE | number & ((1 << LIFE) - 1))
}

/// The life of a position.
pub(crate) fn life_of(position: Position) -> u64 {
    position.0 >> LIFE
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_later_life_ends_the_connections_of_earlier_ones() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = || Arc::new(Socket::Tcp(TcpStream::connect(listener.local_addr().unwrap()).unwrap()));
        let (lives, first, second) = (Lives::default(), socket(), socket());
        assert_eq!((lives.enter(77, &first).unwrap(), lives.enter(77, &first).unwrap()), (1, 1));
        assert_eq!((lives.enter(88, &second).unwrap(), lives.current()), (2, 2));
        let mut byte = [0];
        assert_eq!(std::io::Read::read(&mut &*first, &mut byte).unwrap(), 0);
        assert!(lives.enter(77, &first).is_err(), "an earlier life isn't gone back to");
        lives.admit(3).unwrap();
        assert!(lives.admit(2).is_err() && lives.admit(3).is_ok());
    }
}
