//! Connection pools, with a limit for each purpose.
//!
//! Reads, commits and control queries have separate limits. A holder of a read connection may need a commit connection,
//! and must not wait for other readers in the same position.

use crate::config::{Config, Wanted};
use crate::connection::{Connection, Statement};
use crate::failure::{Answer, Failure, LOOK, should_continue};
use crate::incarnations::Incarnations;
use parking_lot::{Condvar, Mutex};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use storage::{cancellation, threads};

/// Default timeout of a wait for a connection.
const WAIT: Duration = Duration::from_secs(30);

/// Period of retries while no host takes writes, as during a restart or a promotion.
const FAILOVER: Duration = Duration::from_secs(10);

/// Interval of those retries.
const RETRY: Duration = Duration::from_millis(100);

/// How a caller waits for a connection.
pub(crate) struct Waiting<'a> {
    /// Cancellation check, called at intervals. An error ends the wait.
    pub(crate) should_continue: &'a mut dyn FnMut() -> Answer<()>,
    /// False if the check never fails. The calling thread then connects by itself.
    pub(crate) is_limited: bool,
    /// Maximum time for the replacement of a lost server.
    pub(crate) failover: Duration,
}

/// A bounded pool of connections.
pub(crate) struct Pool {
    place: Arc<Place>,
    /// Maximum number of open connections.
    most: usize,
    /// Counts the round trips of its connections.
    trips: Arc<AtomicU64>,
    inner: Mutex<Inner>,
    /// Notified when a connection is returned or closed.
    returned: Condvar,
}

/// The server of a pool, and the query made on each new connection.
pub(crate) struct Place {
    pub(crate) config: Config,
    /// The lives of the server, shared by all pools of its connections.
    pub(crate) incarnations: Arc<Incarnations>,
    /// Reads the incarnation of the server; `None` for a standby, which has none of its own.
    pub(crate) incarnation: Option<Arc<Statement>>,
}

impl Place {
    /// Opens a connection with one attempt for each host.
    pub(crate) fn connect(&self, trips: &Arc<AtomicU64>) -> Answer<Connection> {
        self.begin(Connection::open(&self.config, &self.incarnations)?, trips)
    }

    /// Reads the role and latency of a host over a new connection. Returns true for a standby. A writable host on a
    /// later timeline begins another incarnation, which closes the connections to the previous primary.
    pub(crate) fn meet(&self, connection: Connection) -> Answer<(bool, Duration)> {
        let mut connection = connection;
        connection.limit(self.config.connect_timeout)?;
        let asked = Instant::now();
        let timeline = connection.timeline()?;
        let took = asked.elapsed();
        let Some(timeline) = timeline else { return Ok((true, took)) };
        if self.config.wanted == Wanted::ReadWrite {
            self.incarnations.admit(timeline)?;
            self.begin(connection, &Arc::default())?;
        }
        Ok((false, took))
    }

    /// Registers a new connection under the server's present incarnation.
    fn begin(&self, connection: Connection, trips: &Arc<AtomicU64>) -> Answer<Connection> {
        let mut connection = connection;
        let id = match &self.incarnation {
            Some(incarnation) => {
                connection.limit(self.config.connect_timeout)?;
                connection.one(incarnation, &[])?.first().map_or(0, |row| row.int(0))
            }
            None => 0,
        };
        connection.unlimited()?;
        connection.incarnation = self.incarnations.enter(id, connection.socket())?;
        connection.trips = trips.clone();
        Ok(connection)
    }

    /// Returns true if a lost server is waited for. A primary is, through its restart or the promotion of another host.
    /// A standby is not, since other hosts answer in its place.
    fn is_waited_for(&self) -> bool {
        self.incarnation.is_some() || self.config.hosts.len() > 1
    }

    /// Opens a connection, with retries for as long as `is_wanted` while the primary may return or be replaced.
    fn connect_with_retries(
        &self,
        trips: &Arc<AtomicU64>,
        timeout: Duration,
        is_wanted: &dyn Fn() -> bool,
    ) -> Answer<Connection> {
        let end = Instant::now() + timeout;
        loop {
            match self.connect(trips) {
                Err(failure)
                    if failure.ends_connection()
                        && self.is_waited_for()
                        && Instant::now() < end
                        && is_wanted() =>
                {
                    std::thread::sleep(RETRY);
                }
                other => return other,
            }
        }
    }
}

#[derive(Default)]
struct Inner {
    free: Vec<Connection>,
    /// Number of open connections, lent and free.
    open: usize,
}

impl Pool {
    /// Creates a pool of at most `most` connections.
    pub(crate) fn new(place: Arc<Place>, most: usize, trips: Arc<AtomicU64>) -> Arc<Pool> {
        Arc::new(Pool { place, most, trips, inner: Mutex::default(), returned: Condvar::new() })
    }

    /// Creates another pool for the same place.
    pub(crate) fn another(&self, most: usize) -> Arc<Pool> {
        Pool::new(self.place.clone(), most, self.trips.clone())
    }

    /// Creates another pool for the same place whose round trips are not counted, for background work.
    pub(crate) fn uncounted(&self, most: usize) -> Arc<Pool> {
        Pool::new(self.place.clone(), most, Arc::default())
    }

    /// Creates another pool for a different place.
    pub(crate) fn leading_to(&self, place: &Arc<Place>, most: usize) -> Arc<Pool> {
        Pool::new(place.clone(), most, self.trips.clone())
    }

    /// Returns the place of the connections.
    pub(crate) fn place(&self) -> &Arc<Place> {
        &self.place
    }

    /// Lends a connection, and opens one if none is free. Calls `relieve` before a wait.
    ///
    /// Errors: the server's errors; `Lost` if all connections stay in use; `Interrupted`.
    pub(crate) fn take(self: &Arc<Self>, relieve: &dyn Fn()) -> Answer<PooledConnection> {
        let is_limited = cancellation::is_limited();
        self.take_while(
            relieve,
            &mut Waiting { should_continue: &mut should_continue, is_limited, failover: FAILOVER },
        )
    }

    /// Lends a connection under the caller's own conditions for the wait.
    ///
    /// Errors: as [`take`](Self::take), and the errors of `waiting`.
    pub(crate) fn take_while(
        self: &Arc<Self>,
        relieve: &dyn Fn(),
        waiting: &mut Waiting<'_>,
    ) -> Answer<PooledConnection> {
        let end = Instant::now() + WAIT;
        let mut inner = self.inner.lock();
        // Set if the server has no room for another connection. A returned connection then ends the wait.
        let mut crowded = None;
        loop {
            if let Some(mut connection) = inner.free.pop() {
                if connection.incarnation != self.place.incarnations.current() || connection.is_closed() {
                    inner.open -= 1;
                    continue;
                }
                return Ok(PooledConnection {
                    connection: Some(connection),
                    pool: self.clone(),
                    is_new: false,
                });
            }
            if inner.open < self.most && crowded.is_none() {
                inner.open += 1;
                drop(inner);
                match self.open(waiting) {
                    Ok(lent) => return Ok(lent),
                    Err(failure) => {
                        inner = self.inner.lock();
                        if !failure.is_crowded() || inner.open == 0 {
                            return Err(failure);
                        }
                        crowded = Some(failure);
                        continue;
                    }
                }
            }
            drop(inner);
            relieve();
            inner = self.inner.lock();
            if inner.free.is_empty() {
                let until = end.min(Instant::now() + LOOK);
                if self.returned.wait_until(&mut inner, until).timed_out() && Instant::now() >= end {
                    return Err(crowded.unwrap_or_else(|| {
                        Failure::Lost(format!("all {} connections to PostgreSQL are in use", self.most))
                    }));
                }
                (waiting.should_continue)()?;
            }
            if inner.open == 0
                && let Some(failure) = crowded
            {
                return Err(failure);
            }
        }
    }

    /// Opens an additional connection, already counted, and lends it.
    ///
    /// A caller with a time limit does not wait longer for a silent server, or for a replacement of the primary.
    /// Another thread finishes the work, and its connection serves the next caller.
    fn open(self: &Arc<Self>, waiting: &mut Waiting<'_>) -> Answer<PooledConnection> {
        let failover = waiting.failover;
        let lent = |pool: &Arc<Pool>, opened: Answer<Connection>| match opened {
            Ok(connection) => {
                Ok(PooledConnection { connection: Some(connection), pool: pool.clone(), is_new: true })
            }
            Err(failure) => {
                pool.closed();
                Err(failure)
            }
        };
        if !waiting.is_limited {
            return lent(self, self.place.connect_with_retries(&self.trips, failover, &|| true));
        }
        let (tell, told) = mpsc::sync_channel(1);
        let is_wanted = Arc::new(());
        let (pool, wanted) = (self.clone(), Arc::downgrade(&is_wanted));
        let connect = move || {
            let is_wanted = || wanted.strong_count() > 0;
            let opened = pool.place.connect_with_retries(&pool.trips, failover, &is_wanted);
            // A connection without a waiter goes back to the pool.
            drop(tell.send(lent(&pool, opened)));
        };
        if let Err(error) = threads::spawn("postgres-connect", None, connect) {
            self.closed();
            return Err(Failure::Lost(error.to_string()));
        }
        loop {
            match told.recv_timeout(LOOK) {
                Ok(opened) => return opened,
                Err(mpsc::RecvTimeoutError::Timeout) => (waiting.should_continue)()?,
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(Failure::Lost("the connection was not opened".to_string()));
                }
            }
        }
    }

    /// Cancels the statement of a connection on another thread. The connection counts as open until then.
    fn end_statement(self: &Arc<Self>, connection: Connection) {
        let pool = self.clone();
        let end = move || {
            connection.end_statement();
            pool.closed();
        };
        if threads::spawn("postgres-cancel", None, end).is_err() {
            // The closure and its connection were dropped. The server notices the closed socket.
            self.closed();
        }
    }

    /// Records a closed connection and wakes one waiting caller, which may open another.
    fn closed(&self) {
        self.inner.lock().open -= 1;
        self.returned.notify_one();
    }

    /// Closes the free connections: their server is lost.
    pub(crate) fn clear(&self) {
        let mut inner = self.inner.lock();
        let gone = std::mem::take(&mut inner.free);
        inner.open -= gone.len();
        drop(inner);
        drop(gone);
    }
}

/// Runs a query on a connection of a pool. Takes a new connection if the server has closed an old one.
pub(crate) fn ask<T>(
    control: &Arc<Pool>,
    question: &dyn Fn(&mut PooledConnection) -> Answer<T>,
) -> Answer<T> {
    ask_on(control, question, &mut || control.take(&|| {}))
}

/// Runs a query under the caller's own conditions for the wait.
pub(crate) fn ask_while<T>(
    control: &Arc<Pool>,
    question: &dyn Fn(&mut PooledConnection) -> Answer<T>,
    waiting: &mut Waiting<'_>,
) -> Answer<T> {
    ask_on(control, question, &mut || control.take_while(&|| {}, waiting))
}

/// Runs a query, and repeats it on a new connection if an old connection had been closed by the server.
fn ask_on<T>(
    control: &Pool,
    question: &dyn Fn(&mut PooledConnection) -> Answer<T>,
    take: &mut dyn FnMut() -> Answer<PooledConnection>,
) -> Answer<T> {
    loop {
        let mut lent = take()?;
        match question(&mut lent) {
            Err(failure) if failure.ends_connection() && !lent.is_new => control.clear(),
            answer => return answer,
        }
    }
}

/// A borrowed connection. It returns to the pool when dropped, or closes if unusable.
pub(crate) struct PooledConnection {
    /// Present until the value is dropped.
    connection: Option<Connection>,
    pool: Arc<Pool>,
    /// True if the connection was opened for this loan.
    pub(crate) is_new: bool,
}

impl Drop for PooledConnection {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        if connection.is_interrupted() {
            return self.pool.end_statement(connection);
        }
        if connection.is_broken() || connection.in_transaction() {
            drop(connection);
            return self.pool.closed();
        }
        let mut connection = connection;
        connection.is_interruptible = false;
        self.pool.inner.lock().free.push(connection);
        self.pool.returned.notify_one();
    }
}

#[allow(clippy::expect_used)]
impl Deref for PooledConnection {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection.as_ref().expect("a loan has its connection until it is dropped")
    }
}

#[allow(clippy::expect_used)]
impl DerefMut for PooledConnection {
    fn deref_mut(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("a loan has its connection until it is dropped")
    }
}
