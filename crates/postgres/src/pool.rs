//! Connections that are open and free, and how many there may be.
//!
//! Reads, commits and control questions have bounds of their own: whoever holds a connection to read may need
//! one to commit, and must not wait for others who do the same.

use crate::config::{Config, Wanted};
use crate::connection::{Connection, Statement};
use crate::failure::{Answer, Failure, LOOK, go_on};
use crate::lives::Lives;
use parking_lot::{Condvar, Mutex};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use storage::{patience, threads};

/// How long somebody waits for a connection before he is told that there is none.
const WAIT: Duration = Duration::from_secs(30);

/// How long the hosts are tried while none takes writes, as during a restart or a promotion.
const FAILOVER: Duration = Duration::from_secs(10);

/// How often meanwhile.
const RETRY: Duration = Duration::from_millis(100);

/// How somebody waits for a connection.
pub(crate) struct Waiting<'a> {
    /// Asked every now and then; an error ends the wait.
    pub(crate) go_on: &'a mut dyn FnMut() -> Answer<()>,
    /// Whether it ever says no: whoever has no limit needs no other thread to connect.
    pub(crate) is_limited: bool,
    /// For how long a server that is gone may be replaced by another.
    pub(crate) failover: Duration,
}

/// A bounded number of connections.
pub(crate) struct Pool {
    place: Arc<Place>,
    most: usize,
    /// Counts the answers that its connections have waited for.
    trips: Arc<AtomicU64>,
    inner: Mutex<Inner>,
    returned: Condvar,
}

/// Where connections lead, and what is asked on each when it is opened.
pub(crate) struct Place {
    pub(crate) config: Config,
    pub(crate) lives: Arc<Lives>,
    /// Asks for the life; none where they lead to a standby, which has none of its own.
    pub(crate) life: Option<Arc<Statement>>,
}

impl Place {
    /// Opens a connection; one attempt at each host.
    pub(crate) fn connect(&self, trips: &Arc<AtomicU64>) -> Answer<Connection> {
        self.begin(Connection::open(&self.config, &self.lives)?, trips)
    }

    /// Looks at a host that has let somebody in; whether it is a standby, and how long it took to say so. One that takes writes on a later timeline
    /// begins another life, and so ends the connections to whoever was the primary before.
    pub(crate) fn meet(&self, connection: Connection) -> Answer<(bool, Duration)> {
        let mut connection = connection;
        connection.limit(self.config.connect_timeout)?;
        let asked = Instant::now();
        let timeline = connection.timeline()?;
        let took = asked.elapsed();
        let Some(timeline) = timeline else { return Ok((true, took)) };
        if self.config.wanted == Wanted::ReadWrite {
            self.lives.admit(timeline)?;
            self.begin(connection, &Arc::default())?;
        }
        Ok((false, took))
    }

    fn begin(&self, connection: Connection, trips: &Arc<AtomicU64>) -> Answer<Connection> {
        let mut connection = connection;
        let id = match &self.life {
            Some(life) => {
                connection.limit(self.config.connect_timeout)?;
                connection.one(life, &[])?.first().map_or(0, |row| row.int(0))
            }
            None => 0,
        };
        connection.unlimited()?;
        connection.life = self.lives.enter(id, connection.socket())?;
        connection.trips = trips.clone();
        Ok(connection)
    }

    /// Whether a server that is gone is waited for: the primary is, with its restart or another host's promotion. A
    /// single standby is not, since others answer in its place.
    fn is_waited_for(&self) -> bool {
        self.life.is_some() || self.config.hosts.len() > 1
    }

    /// The same, and again while the primary may be about to come back, or to be replaced, for as long as `is_wanted`.
    fn connect_patiently(
        &self,
        trips: &Arc<AtomicU64>,
        patience: Duration,
        is_wanted: &dyn Fn() -> bool,
    ) -> Answer<Connection> {
        let end = Instant::now() + patience;
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
    /// Those lent and those free.
    open: usize,
}

impl Pool {
    /// A pool of at most so many connections.
    pub(crate) fn new(place: Arc<Place>, most: usize, trips: Arc<AtomicU64>) -> Arc<Pool> {
        Arc::new(Pool { place, most, trips, inner: Mutex::default(), returned: Condvar::new() })
    }

    /// Another pool of connections to the same place.
    pub(crate) fn another(&self, most: usize) -> Arc<Pool> {
        Pool::new(self.place.clone(), most, self.trips.clone())
    }

    /// Another of the same kind, whose answers nobody counts: for what happens by itself.
    pub(crate) fn uncounted(&self, most: usize) -> Arc<Pool> {
        Pool::new(self.place.clone(), most, Arc::default())
    }

    /// Another pool of connections, which lead elsewhere.
    pub(crate) fn leading_to(&self, place: &Arc<Place>, most: usize) -> Arc<Pool> {
        Pool::new(place.clone(), most, self.trips.clone())
    }

    /// Where its connections lead.
    pub(crate) fn place(&self) -> &Arc<Place> {
        &self.place
    }

    /// Lends a connection, opening one where none is free; `relieve` is called before waiting for one.
    ///
    /// Errors: the server's, `Lost` where all are in use for long, and `GivenUp`.
    pub(crate) fn take(self: &Arc<Self>, relieve: &dyn Fn()) -> Answer<Lent> {
        let is_limited = patience::is_limited();
        self.take_while(relieve, &mut Waiting { go_on: &mut go_on, is_limited, failover: FAILOVER })
    }

    /// The same for whoever has his own say in how long he waits.
    ///
    /// Errors: as [`take`](Self::take), and those of `waiting`.
    pub(crate) fn take_while(
        self: &Arc<Self>,
        relieve: &dyn Fn(),
        waiting: &mut Waiting<'_>,
    ) -> Answer<Lent> {
        let end = Instant::now() + WAIT;
        let mut inner = self.inner.lock();
        // Whether the server has no room for another: then one that comes back will do.
        let mut crowded = None;
        loop {
            if let Some(mut connection) = inner.free.pop() {
                if connection.life != self.place.lives.current() || connection.is_closed() {
                    inner.open -= 1;
                    continue;
                }
                return Ok(Lent { connection: Some(connection), pool: self.clone(), is_new: false });
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
                (waiting.go_on)()?;
            }
            if inner.open == 0
                && let Some(failure) = crowded
            {
                return Err(failure);
            }
        }
    }

    /// Opens one more connection, which has been counted, and lends it.
    ///
    /// Whoever has a time limit doesn't wait longer for a server that doesn't answer, or for one to take the
    /// primary's place: another thread goes on with it, and what it opens is for the next.
    fn open(self: &Arc<Self>, waiting: &mut Waiting<'_>) -> Answer<Lent> {
        let failover = waiting.failover;
        let lent = |pool: &Arc<Pool>, opened: Answer<Connection>| match opened {
            Ok(connection) => Ok(Lent { connection: Some(connection), pool: pool.clone(), is_new: true }),
            Err(failure) => {
                pool.closed();
                Err(failure)
            }
        };
        if !waiting.is_limited {
            return lent(self, self.place.connect_patiently(&self.trips, failover, &|| true));
        }
        let (tell, told) = mpsc::sync_channel(1);
        let is_wanted = Arc::new(());
        let (pool, wanted) = (self.clone(), Arc::downgrade(&is_wanted));
        let connect = move || {
            let is_wanted = || wanted.strong_count() > 0;
            let opened = pool.place.connect_patiently(&pool.trips, failover, &is_wanted);
            // What nobody waits for any longer goes back to the pool.
            drop(tell.send(lent(&pool, opened)));
        };
        if let Err(error) = threads::spawn("postgres-connect", None, connect) {
            self.closed();
            return Err(Failure::Lost(error.to_string()));
        }
        loop {
            match told.recv_timeout(LOOK) {
                Ok(opened) => return opened,
                Err(mpsc::RecvTimeoutError::Timeout) => (waiting.go_on)()?,
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(Failure::Lost("the connection was not opened".to_string()));
                }
            }
        }
    }

    /// Has the statement on a connection ended by another thread; the connection counts as open until then.
    fn end_statement(self: &Arc<Self>, connection: Connection) {
        let pool = self.clone();
        let end = move || {
            connection.end_statement();
            pool.closed();
        };
        if threads::spawn("postgres-cancel", None, end).is_err() {
            // The connection is gone with what was to be done; the server notices by itself.
            self.closed();
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

/// Asks a question on a connection of a pool; on a new one where the server has closed those there were.
pub(crate) fn ask<T>(control: &Arc<Pool>, question: &dyn Fn(&mut Lent) -> Answer<T>) -> Answer<T> {
    ask_on(control, question, &mut || control.take(&|| {}))
}

/// The same for whoever has his own say in how long he waits.
pub(crate) fn ask_while<T>(
    control: &Arc<Pool>,
    question: &dyn Fn(&mut Lent) -> Answer<T>,
    waiting: &mut Waiting<'_>,
) -> Answer<T> {
    ask_on(control, question, &mut || control.take_while(&|| {}, waiting))
}

fn ask_on<T>(
    control: &Pool,
    question: &dyn Fn(&mut Lent) -> Answer<T>,
    take: &mut dyn FnMut() -> Answer<Lent>,
) -> Answer<T> {
    loop {
        let mut lent = take()?;
        match question(&mut lent) {
            Err(failure) if failure.ends_connection() && !lent.is_new => control.clear(),
            answer => return answer,
        }
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
        if connection.is_given_up() {
            return self.pool.end_statement(connection);
        }
        if connection.is_broken() || connection.in_transaction() {
            drop(connection);
            return self.pool.closed();
        }
        let mut connection = connection;
        connection.may_be_given_up = false;
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
