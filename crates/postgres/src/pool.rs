//! Connection pools, with a limit for each purpose.
//!
//! Reads, commits and control queries have separate limits ([`crate::front::Limits`]). A holder of a read connection
//! may need a commit connection, and must not wait for other readers in the same position.

use crate::config::{Config, TargetSessionAttrs};
use crate::connection::{Connection, Statement};
use crate::failure::{CHECK_INTERVAL, Failure, PgResult, should_continue};
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
    pub(crate) should_continue: &'a mut dyn FnMut() -> PgResult<()>,
    /// False if the check never fails. The calling thread then connects by itself.
    pub(crate) is_limited: bool,
    /// Maximum time for the replacement of a lost server.
    pub(crate) failover: Duration,
}

/// A bounded pool of connections.
pub(crate) struct Pool {
    endpoint: Arc<Endpoint>,
    /// Maximum number of open connections.
    max_size: usize,
    /// Counts the round trips of its connections.
    round_trips: Arc<AtomicU64>,
    inner: Mutex<Inner>,
    /// Notified when a connection is returned or closed.
    returned: Condvar,
}

/// The server of a pool, and the query made on each new connection.
pub(crate) struct Endpoint {
    pub(crate) config: Config,
    /// The incarnations of the server, shared by all pools of its connections.
    pub(crate) incarnations: Arc<Incarnations>,
    /// Reads the incarnation of the server; `None` for a standby, which has none of its own.
    pub(crate) incarnation: Option<Arc<Statement>>,
}

impl Endpoint {
    /// Opens a connection with one attempt for each host.
    pub(crate) fn connect(&self, round_trips: &Arc<AtomicU64>) -> PgResult<Connection> {
        self.begin(Connection::open(&self.config, &self.incarnations)?, round_trips)
    }

    /// Reads the role and latency of a host over a new connection. Returns true for a standby. A writable host on a
    /// later timeline begins another incarnation, which closes the connections to the previous primary.
    pub(crate) fn probe(&self, connection: Connection) -> PgResult<(bool, Duration)> {
        let mut connection = connection;
        connection.set_timeout(self.config.connect_timeout)?;
        let start = Instant::now();
        let timeline = connection.timeline()?;
        let latency = start.elapsed();
        let Some(timeline) = timeline else { return Ok((true, latency)) };
        if self.config.target_session_attrs == TargetSessionAttrs::ReadWrite {
            self.incarnations.admit(timeline)?;
            self.begin(connection, &Arc::default())?;
        }
        Ok((false, latency))
    }

    /// Registers a new connection under the server's present incarnation.
    fn begin(&self, connection: Connection, round_trips: &Arc<AtomicU64>) -> PgResult<Connection> {
        let mut connection = connection;
        let id = match &self.incarnation {
            Some(incarnation) => {
                connection.set_timeout(self.config.connect_timeout)?;
                connection.query(incarnation, &[])?.first().map_or(0, |row| row.int(0))
            }
            None => 0,
        };
        connection.clear_timeout()?;
        connection.incarnation = self.incarnations.enter(id, connection.socket())?;
        connection.round_trips = round_trips.clone();
        Ok(connection)
    }

    /// Returns true if a lost server is waited for. A primary is, through its restart or the promotion of another host.
    /// A standby is not, since other hosts answer in its place.
    fn awaits_failover(&self) -> bool {
        self.incarnation.is_some() || self.config.hosts.len() > 1
    }

    /// Opens a connection, with retries for as long as `is_awaited` while the primary may return or be replaced.
    fn connect_with_retries(
        &self,
        round_trips: &Arc<AtomicU64>,
        timeout: Duration,
        is_awaited: &dyn Fn() -> bool,
    ) -> PgResult<Connection> {
        let end = Instant::now() + timeout;
        loop {
            match self.connect(round_trips) {
                Err(failure)
                    if failure.ends_connection()
                        && self.awaits_failover()
                        && Instant::now() < end
                        && is_awaited() =>
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
    /// Number of open connections, checked out or free.
    open: usize,
}

impl Inner {
    /// Asserts that free connections are open, and that the limit holds.
    fn assert_valid(&self, most: usize) {
        debug_assert!(self.free.len() <= self.open, "{} free of {} open", self.free.len(), self.open);
        debug_assert!(self.open <= most, "{} open connections, {most} at most", self.open);
    }
}

impl Pool {
    /// Creates a pool of at most `max_size` connections.
    pub(crate) fn new(endpoint: Arc<Endpoint>, max_size: usize, round_trips: Arc<AtomicU64>) -> Arc<Pool> {
        debug_assert!(max_size > 0, "a pool without connections");
        Arc::new(Pool { endpoint, max_size, round_trips, inner: Mutex::default(), returned: Condvar::new() })
    }

    /// Creates another pool for the same endpoint.
    pub(crate) fn sibling(&self, max_size: usize) -> Arc<Pool> {
        Pool::new(self.endpoint.clone(), max_size, self.round_trips.clone())
    }

    /// Creates another pool for the same endpoint whose round trips are not counted, for background work.
    pub(crate) fn uncounted(&self, max_size: usize) -> Arc<Pool> {
        Pool::new(self.endpoint.clone(), max_size, Arc::default())
    }

    /// Creates another pool for a different endpoint.
    pub(crate) fn for_endpoint(&self, endpoint: &Arc<Endpoint>, max_size: usize) -> Arc<Pool> {
        Pool::new(endpoint.clone(), max_size, self.round_trips.clone())
    }

    /// Returns the endpoint of the connections.
    pub(crate) fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    /// Checks out a connection, and opens one if none is free. Calls `before_wait` before a wait.
    ///
    /// Errors: the server's errors; `Unavailable` if all connections stay in use; `Interrupted`.
    pub(crate) fn take(self: &Arc<Self>, before_wait: &dyn Fn()) -> PgResult<PooledConnection> {
        let is_limited = cancellation::is_limited();
        self.take_while(
            before_wait,
            &mut Waiting { should_continue: &mut should_continue, is_limited, failover: FAILOVER },
        )
    }

    /// Checks out a connection under the caller's own conditions for the wait.
    ///
    /// Errors: as [`take`](Self::take), and the errors of `waiting`.
    pub(crate) fn take_while(
        self: &Arc<Self>,
        before_wait: &dyn Fn(),
        waiting: &mut Waiting<'_>,
    ) -> PgResult<PooledConnection> {
        let end = Instant::now() + WAIT;
        let mut inner = self.inner.lock();
        // Set if the server has no room for another connection. A returned connection then ends the wait.
        let mut refusal = None;
        loop {
            inner.assert_valid(self.max_size);
            if let Some(mut connection) = inner.free.pop() {
                if connection.incarnation != self.endpoint.incarnations.current() || connection.is_closed() {
                    inner.open -= 1;
                    continue;
                }
                return Ok(PooledConnection {
                    connection: Some(connection),
                    pool: self.clone(),
                    is_new: false,
                });
            }
            if inner.open < self.max_size && refusal.is_none() {
                inner.open += 1;
                drop(inner);
                match self.open(waiting) {
                    Ok(conn) => return Ok(conn),
                    Err(failure) => {
                        inner = self.inner.lock();
                        if !failure.is_out_of_connections() || inner.open == 0 {
                            return Err(failure);
                        }
                        refusal = Some(failure);
                        continue;
                    }
                }
            }
            drop(inner);
            before_wait();
            inner = self.inner.lock();
            if inner.free.is_empty() {
                let until = end.min(Instant::now() + CHECK_INTERVAL);
                if self.returned.wait_until(&mut inner, until).timed_out() && Instant::now() >= end {
                    return Err(refusal.unwrap_or_else(|| {
                        Failure::Unavailable(format!(
                            "all {} connections to PostgreSQL are in use",
                            self.max_size
                        ))
                    }));
                }
                (waiting.should_continue)()?;
            }
            if inner.open == 0
                && let Some(failure) = refusal
            {
                return Err(failure);
            }
        }
    }

    /// Opens an additional connection, already counted, and checks it out.
    ///
    /// A caller with a time limit does not wait longer for a silent server, or for a replacement of the primary.
    /// Another thread finishes the work, and its connection serves the next caller.
    fn open(self: &Arc<Self>, waiting: &mut Waiting<'_>) -> PgResult<PooledConnection> {
        let failover = waiting.failover;
        let pooled = |pool: &Arc<Pool>, opened: PgResult<Connection>| match opened {
            Ok(connection) => {
                Ok(PooledConnection { connection: Some(connection), pool: pool.clone(), is_new: true })
            }
            Err(failure) => {
                pool.closed();
                Err(failure)
            }
        };
        if !waiting.is_limited {
            return pooled(self, self.endpoint.connect_with_retries(&self.round_trips, failover, &|| true));
        }
        let (sender, receiver) = mpsc::sync_channel(1);
        let is_awaited = Arc::new(());
        let (pool, awaited) = (self.clone(), Arc::downgrade(&is_awaited));
        let connect = move || {
            let is_awaited = || awaited.strong_count() > 0;
            let opened = pool.endpoint.connect_with_retries(&pool.round_trips, failover, &is_awaited);
            // A connection without a waiter goes back to the pool.
            drop(sender.send(pooled(&pool, opened)));
        };
        if let Err(error) = threads::spawn("postgres-connect", None, connect) {
            self.closed();
            return Err(Failure::Unavailable(error.to_string()));
        }
        loop {
            match receiver.recv_timeout(CHECK_INTERVAL) {
                Ok(opened) => return opened,
                Err(mpsc::RecvTimeoutError::Timeout) => (waiting.should_continue)()?,
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(Failure::Unavailable("the connection was not opened".to_string()));
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
        let mut inner = self.inner.lock();
        debug_assert!(inner.open > inner.free.len(), "the closed connection was not lent");
        inner.open -= 1;
        drop(inner);
        self.returned.notify_one();
    }

    /// Closes the free connections: their server is lost.
    pub(crate) fn clear(&self) {
        let mut inner = self.inner.lock();
        let closed = std::mem::take(&mut inner.free);
        debug_assert!(inner.open >= closed.len(), "{} of {} connections are free", closed.len(), inner.open);
        inner.open -= closed.len();
        drop(inner);
        drop(closed);
    }
}

/// Runs a query on a connection of a pool. Takes a new connection if the server has closed an old one.
pub(crate) fn run<T>(
    control: &Arc<Pool>,
    query: &dyn Fn(&mut PooledConnection) -> PgResult<T>,
) -> PgResult<T> {
    run_on(control, query, &mut || control.take(&|| {}))
}

/// Runs a query under the caller's own conditions for the wait.
pub(crate) fn run_while<T>(
    control: &Arc<Pool>,
    query: &dyn Fn(&mut PooledConnection) -> PgResult<T>,
    waiting: &mut Waiting<'_>,
) -> PgResult<T> {
    run_on(control, query, &mut || control.take_while(&|| {}, waiting))
}

/// Runs a query, and repeats it on a new connection if an old connection had been closed by the server.
fn run_on<T>(
    control: &Pool,
    query: &dyn Fn(&mut PooledConnection) -> PgResult<T>,
    take: &mut dyn FnMut() -> PgResult<PooledConnection>,
) -> PgResult<T> {
    loop {
        let mut conn = take()?;
        match query(&mut conn) {
            Err(failure) if failure.ends_connection() && !conn.is_new => control.clear(),
            answer => return answer,
        }
    }
}

/// A borrowed connection. It returns to the pool when dropped, or closes if unusable.
pub(crate) struct PooledConnection {
    /// Present until the value is dropped.
    connection: Option<Connection>,
    pool: Arc<Pool>,
    /// True if the connection was opened for this caller.
    pub(crate) is_new: bool,
}

impl Drop for PooledConnection {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        if connection.is_interrupted() {
            return self.pool.end_statement(connection);
        }
        // The next user would send queued calls.
        if connection.is_broken() || connection.in_transaction() || connection.queued() > 0 {
            drop(connection);
            return self.pool.closed();
        }
        let mut connection = connection;
        connection.is_interruptible = false;
        let mut inner = self.pool.inner.lock();
        inner.free.push(connection);
        inner.assert_valid(self.pool.max_size);
        drop(inner);
        self.pool.returned.notify_one();
    }
}

#[allow(clippy::expect_used)]
impl Deref for PooledConnection {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection.as_ref().expect("present until the drop")
    }
}

#[allow(clippy::expect_used)]
impl DerefMut for PooledConnection {
    fn deref_mut(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("present until the drop")
    }
}

#[cfg(test)]
mod tests {
    use crate::connection::Statement;
    use crate::front::Limits;
    use crate::state::PostgresStore;
    use crate::testing::Cluster;

    #[test]
    fn a_connection_with_queued_calls_is_closed() {
        let Some(cluster) = Cluster::start().unwrap() else { return };
        let store =
            PostgresStore::open(cluster.config().unwrap(), "pooled", Limits::default(), None).unwrap();
        let take = || store.front.commits.take(&|| {}).unwrap();
        drop(take());
        let mut conn = take();
        assert!(!conn.is_new);
        conn.call(&Statement::new("queued", "select 1"), &[]).unwrap();
        drop(conn);
        assert!(take().is_new);
    }
}
