//! Connections that are open and free, and how many there may be.
//!
//! Reads, commits and control questions have bounds of their own: whoever holds a connection to read may need
//! one to commit, and must not wait for others who do the same.

use crate::config::Config;
use crate::connection::Connection;
use crate::failure::{Answer, Failure};
use parking_lot::{Condvar, Mutex};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

/// How long somebody waits for a connection before he is told that there is none.
const WAIT: Duration = Duration::from_secs(30);

/// A bounded number of connections.
pub(crate) struct Pool {
    config: Arc<Config>,
    most: usize,
    /// Counts the answers that its connections have waited for.
    trips: Arc<AtomicU64>,
    inner: Mutex<Inner>,
    returned: Condvar,
}

#[derive(Default)]
struct Inner {
    free: Vec<Connection>,
    /// Those lent and those free.
    open: usize,
}

impl Pool {
    /// A pool of at most so many connections.
    pub(crate) fn new(config: Arc<Config>, most: usize, trips: Arc<AtomicU64>) -> Arc<Pool> {
        Arc::new(Pool { config, most, trips, inner: Mutex::default(), returned: Condvar::new() })
    }

    /// Another pool of connections to the same place.
    pub(crate) fn another(&self, most: usize) -> Arc<Pool> {
        Pool::new(self.config.clone(), most, self.trips.clone())
    }

    /// Another of the same kind, whose answers nobody counts: for what happens by itself.
    pub(crate) fn uncounted(&self, most: usize) -> Arc<Pool> {
        Pool::new(self.config.clone(), most, Arc::default())
    }

    /// Lends a connection, opening one where none is free; `relieve` is called before waiting for one.
    ///
    /// Errors: the server's, and `Lost` where all are in use for long.
    pub(crate) fn take(self: &Arc<Self>, relieve: &dyn Fn()) -> Answer<Lent> {
        let end = Instant::now() + WAIT;
        let mut inner = self.inner.lock();
        loop {
            if let Some(mut connection) = inner.free.pop() {
                if connection.is_closed() {
                    inner.open -= 1;
                    continue;
                }
                return Ok(Lent { connection: Some(connection), pool: self.clone(), is_new: false });
            }
            if inner.open < self.most {
                break;
            }
            drop(inner);
            relieve();
            inner = self.inner.lock();
            if inner.free.is_empty() && self.returned.wait_until(&mut inner, end).timed_out() {
                return Err(Failure::Lost(format!("all {} connections to PostgreSQL are in use", self.most)));
            }
        }
        inner.open += 1;
        drop(inner);
        match Connection::open(&self.config, &self.trips) {
            Ok(connection) => Ok(Lent { connection: Some(connection), pool: self.clone(), is_new: true }),
            Err(failure) => {
                self.closed();
                Err(failure)
            }
        }
    }

    fn closed(&self) {
        self.inner.lock().open -= 1;
        self.returned.notify_one();
    }

    /// Closes those that are free: the server they lead to is gone.
    pub(crate) fn clear(&self) {
        let mut inner = self.inner.lock();
        let gone = std::mem::take(&mut inner.free);
        inner.open -= gone.len();
        drop(inner);
        drop(gone);
    }
}

/// A connection on loan. It goes back when dropped, or is closed where it is of no more use.
pub(crate) struct Lent {
    /// There until it is dropped.
    connection: Option<Connection>,
    pool: Arc<Pool>,
    /// Whether it has been opened for this loan.
    pub(crate) is_new: bool,
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        if connection.is_broken() || connection.in_transaction() {
            drop(connection);
            return self.pool.closed();
        }
        self.pool.inner.lock().free.push(connection);
        self.pool.returned.notify_one();
    }
}

#[allow(clippy::expect_used)]
impl Deref for Lent {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection.as_ref().expect("a loan has its connection until it is dropped")
    }
}

#[allow(clippy::expect_used)]
impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("a loan has its connection until it is dropped")
    }
}
