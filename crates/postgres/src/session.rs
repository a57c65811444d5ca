//! Snapshots of everything: read-only transactions of PostgreSQL, each begun at its first read.
//!
//! A transaction is REPEATABLE READ, so all reads see one state. Its first reply contains the generation of the
//! catalog of that state. The transaction ends with the last holder of the session, without a wait for the reply.
//!
//! An idle cursor would hold its connection, and would keep its readable rows from vacuum. An idle session is therefore
//! parked: its transaction ends, and the next read begins another, of a later state. [`Session::is_pinned`] reports the
//! change.
//!
//! Cursors and snapshots read such a state by statements on a session.

use crate::connection::{Param, Row, Statement};
use crate::failure::{Failure, PgResult};
use crate::keys::{self, index_key};
use crate::pool::{Pool, PooledConnection};
use crate::schema::Statements;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use storage::{Error, Ident, Result, Value};

/// Idle time after which a session is parked.
const PARKED_AFTER: Duration = Duration::from_secs(2);

/// The same while another caller waits for a connection.
const PARKED_FOR_WAITERS: Duration = Duration::from_millis(20);

/// The same for a strict session, which allows no later state: it ends.
const ENDED_AFTER: Duration = Duration::from_secs(60);

/// The latest generation of the catalog that the process has read.
pub(crate) type KnownGeneration = Arc<AtomicU64>;

/// A transaction on its own connection.
pub(crate) struct Session {
    statements: Arc<Statements>,
    /// The latest generation that the process has seen; raised by reads of this session.
    known: KnownGeneration,
    inner: Mutex<Inner>,
    /// True if everything read so far is of one state.
    pinned: AtomicBool,
    /// True if no later state is allowed.
    strict: AtomicBool,
    /// True if the transaction holds write intents. They are rolled back if it cannot continue.
    has_intents: bool,
    /// True for a standby, which may end a read that conflicts with replay.
    on_standby: bool,
    /// The registry through which callers that wait for a connection park sessions.
    sessions: Option<Arc<Sessions>>,
}

/// State of the session's transaction.
enum Inner {
    /// No transaction. The catalog must have this generation at the first read.
    NotBegun(Arc<Pool>, Option<u64>),
    Open {
        conn: Box<PooledConnection>,
        /// Time of the last read, for parking.
        used: Instant,
        /// Source of the next transaction; `None` if no other is allowed.
        pool: Option<Arc<Pool>>,
    },
    Failed(Failure),
}

impl Session {
    /// Creates a session whose state is that of its first read. If the catalog then has another generation than
    /// `expected`, every read fails with `CatalogChanged`.
    pub(crate) fn new(
        statements: &Arc<Statements>,
        pool: &Arc<Pool>,
        (known, expected): (&KnownGeneration, Option<u64>),
        sessions: &Arc<Sessions>,
    ) -> Arc<Session> {
        let session = Arc::new(Session {
            statements: statements.clone(),
            known: known.clone(),
            inner: Mutex::new(Inner::NotBegun(pool.clone(), expected)),
            pinned: AtomicBool::new(true),
            strict: AtomicBool::new(false),
            has_intents: false,
            on_standby: false,
            sessions: Some(sessions.clone()),
        });
        sessions.add(&session);
        session
    }

    /// Wraps a transaction begun on a standby. If it must be released, the next read sees a later state of the same
    /// standby.
    pub(crate) fn on_standby(
        statements: &Arc<Statements>,
        conn: PooledConnection,
        pool: &Arc<Pool>,
        sessions: &Arc<Sessions>,
    ) -> Arc<Session> {
        let inner = Inner::Open { conn: Box::new(conn), used: Instant::now(), pool: Some(pool.clone()) };
        // A standby may have an older catalog.
        let mut session = Session::with_inner(statements, &KnownGeneration::default(), inner);
        session.sessions = Some(sessions.clone());
        session.on_standby = true;
        let session = Arc::new(session);
        sessions.add(&session);
        session
    }

    /// Wraps an open transaction.
    pub(crate) fn of(
        statements: &Arc<Statements>,
        known: &KnownGeneration,
        conn: PooledConnection,
    ) -> Session {
        let inner = Inner::Open { conn: Box::new(conn), used: Instant::now(), pool: None };
        Session::with_inner(statements, known, inner)
    }

    /// Wraps the open transaction of a multi-statement transaction, which holds its write intents. An abandoned
    /// statement ends it: nothing commits before [`with`](Self::with).
    pub(crate) fn with_intents(
        statements: &Arc<Statements>,
        known: &KnownGeneration,
        conn: PooledConnection,
    ) -> Session {
        let mut session = Session::of(statements, known, conn);
        session.has_intents = true;
        session
    }

    /// Creates a session whose reads fail.
    pub(crate) fn failed(statements: &Arc<Statements>, known: &KnownGeneration, failure: Failure) -> Session {
        Session::with_inner(statements, known, Inner::Failed(failure))
    }

    fn with_inner(statements: &Arc<Statements>, known: &KnownGeneration, inner: Inner) -> Session {
        Session {
            statements: statements.clone(),
            known: known.clone(),
            inner: Mutex::new(inner),
            pinned: AtomicBool::new(true),
            strict: AtomicBool::new(false),
            has_intents: false,
            on_standby: false,
            sessions: None,
        }
    }

    /// Returns true if everything read so far is of one state.
    pub(crate) fn is_pinned(&self) -> bool {
        self.pinned.load(Ordering::Acquire)
    }

    /// Forbids a later state. Once this state is released, every read fails with `TooOld`.
    pub(crate) fn enable_strict_mode(&self) {
        self.strict.store(true, Ordering::Release);
    }

    /// Reads the generation of the catalog, and begins the transaction if necessary.
    pub(crate) fn generation(&self) -> PgResult<u64> {
        let rows = self.run(&self.statements.generation.clone(), &[])?;
        Ok(rows.first().map_or(0, |row| row.int(0) as u64))
    }

    /// Checks that the catalog has the expected generation.
    pub(crate) fn confirm(&self) -> PgResult<()> {
        match &*self.inner.lock() {
            Inner::Failed(failure) => return Err(failure.clone()),
            Inner::Open { .. } => return Ok(()),
            // A parked session has confirmed it earlier.
            Inner::NotBegun(..) if !self.is_pinned() => return Ok(()),
            Inner::NotBegun(..) => {}
        }
        self.generation().map(drop)
    }

    /// Runs a statement in the transaction.
    pub(crate) fn run(&self, statement: &Statement, params: &[Param<'_>]) -> PgResult<Vec<Row>> {
        let mut inner = self.inner.lock();
        let outcome = match &mut *inner {
            Inner::Failed(failure) => return Err(failure.clone()),
            Inner::Open { conn, used, .. } => {
                *used = Instant::now();
                conn.is_interruptible |= self.has_intents;
                let rows = conn.query(statement, params);
                conn.is_interruptible &= !self.has_intents;
                rows
            }
            Inner::NotBegun(pool, expected) => {
                let (pool, expected) = (pool.clone(), *expected);
                match self.begin(&pool, expected, statement, params) {
                    Ok((conn, rows)) => {
                        *inner = Inner::Open { conn: Box::new(conn), used: Instant::now(), pool: Some(pool) };
                        Ok(rows)
                    }
                    Err(failure) => Err(failure),
                }
            }
        };
        let outcome = outcome.map_err(|failure| match failure {
            Failure::Server { message, .. } if self.on_standby && failure.is_conflict() => {
                Failure::Unavailable(format!("the standby has ended the read: {message}"))
            }
            other => other,
        });
        match (&outcome, &*inner) {
            (Ok(_), _) => {}
            // Nothing has been read, and another caller may have a longer time limit.
            (Err(Failure::Interrupted(_)), Inner::NotBegun(..)) => {}
            // Later reads report a lost reply. In a multi-statement transaction the cancelled statement is the last.
            (Err(Failure::Interrupted(_)), _) if !self.has_intents => {
                *inner = Inner::Failed(Failure::Unavailable(
                    "the reader was dropped before the reply".to_string(),
                ));
            }
            (Err(failure), _) => self.end_inner(&mut inner, failure.clone()),
        }
        outcome
    }

    /// Runs `statement` in the open transaction. Without one, runs `alone` outside of any transaction; its third column
    /// is the generation of the catalog. Later reads see a later state.
    pub(crate) fn run_single(
        &self,
        (in_transaction, single): (&Statement, &Statement),
        params: &[Param<'_>],
    ) -> PgResult<Vec<Row>> {
        let mut inner = self.inner.lock();
        let Inner::NotBegun(pool, expected) = &*inner else {
            drop(inner);
            return self.run(in_transaction, params);
        };
        let (pool, expected) = (pool.clone(), *expected);
        let outcome = self.begin_on(&pool, &mut |conn| conn.query(single, params)).and_then(|(_, rows)| {
            let generation = rows.first().map_or(0, |row| row.int(2) as u64);
            self.check_generation(generation, expected).map(|()| rows)
        });
        self.pinned.store(false, Ordering::Release);
        *inner = match &outcome {
            Ok(_) => Inner::NotBegun(pool, None),
            Err(Failure::Interrupted(_)) => Inner::NotBegun(pool, expected),
            Err(failure) => Inner::Failed(failure.clone()),
        };
        outcome
    }

    /// Records the generation of the catalog, and compares it with the expected one.
    fn check_generation(&self, generation: u64, expected: Option<u64>) -> PgResult<()> {
        self.known.fetch_max(generation, Ordering::AcqRel);
        match expected.is_some_and(|expected| expected != generation) {
            true => Err(Failure::CatalogChanged),
            false => Ok(()),
        }
    }

    /// Begins the transaction and runs its first statement.
    fn begin(
        &self,
        pool: &Arc<Pool>,
        expected: Option<u64>,
        statement: &Statement,
        params: &[Param<'_>],
    ) -> PgResult<(PooledConnection, Vec<Row>)> {
        let (mut conn, mut answers) = self.begin_on(pool, &mut |conn| {
            conn.call(&self.statements.begin_read, &[])?;
            conn.call(&self.statements.generation, &[])?;
            conn.call(statement, params)?;
            conn.flush()?;
            conn.results()
        })?;
        let rows = answers.pop().unwrap_or_default();
        let generation = answers.pop().and_then(|rows| rows.first().map(|row| row.int(0) as u64));
        if let Err(failure) = self.check_generation(generation.unwrap_or_default(), expected) {
            end(&mut conn, &self.statements.rollback);
            return Err(failure);
        }
        Ok((conn, rows))
    }

    /// Borrows a connection and runs a query on it. Replaces a connection that the server has closed, since nothing has
    /// been read yet.
    fn begin_on<T>(
        &self,
        pool: &Arc<Pool>,
        run: &mut dyn FnMut(&mut PooledConnection) -> PgResult<T>,
    ) -> PgResult<(PooledConnection, T)> {
        loop {
            let mut conn =
                pool.take(&|| self.sessions.iter().for_each(|sessions| sessions.park_for_waiters()))?;
            conn.is_interruptible = true;
            match run(&mut conn) {
                Ok(answers) => return Ok((conn, answers)),
                Err(failure) if failure.ends_connection() && !conn.is_new => {
                    pool.clear();
                    continue;
                }
                Err(failure) => {
                    end(&mut conn, &self.statements.rollback);
                    return Err(failure);
                }
            }
        }
    }

    /// Runs `work` on the connection of the open transaction; `None` if none is open.
    pub(crate) fn with<T>(
        &self,
        work: impl FnOnce(&mut PooledConnection) -> PgResult<T>,
    ) -> Option<PgResult<T>> {
        match &mut *self.inner.lock() {
            Inner::Open { conn, .. } => Some(work(conn)),
            _ => None,
        }
    }

    /// Takes the connection of the open transaction back. Later reads see a later state.
    pub(crate) fn take_connection(&self, pool: &Arc<Pool>) -> Option<PooledConnection> {
        let mut inner = self.inner.lock();
        match std::mem::replace(&mut *inner, Inner::NotBegun(pool.clone(), None)) {
            Inner::Open { conn, .. } => Some(*conn),
            other => {
                *inner = other;
                None
            }
        }
    }

    /// Ends the transaction, and waits until its write intents are released. Later reads fail with `failure`.
    pub(crate) fn end(&self, failure: Failure) {
        self.end_inner(&mut self.inner.lock(), failure);
    }

    fn end_inner(&self, inner: &mut Inner, failure: Failure) {
        if let Inner::Open { conn, .. } = inner {
            end(conn, &self.statements.rollback);
            if self.has_intents {
                // The client's next statement may need the rows. It waits for locks 50 ms, or not at all.
                conn.is_interruptible = true;
                conn.read_remaining();
            }
        }
        *inner = Inner::Failed(failure);
    }

    /// Parks the session if it has been idle for `idle`.
    fn park(&self, idle: Duration) {
        // A held lock means a read in progress.
        let Some(mut inner) = self.inner.try_lock() else { return };
        let is_strict = self.strict.load(Ordering::Acquire);
        let idle = if is_strict && idle == PARKED_AFTER { ENDED_AFTER } else { idle };
        if let Inner::Open { conn, used, pool: Some(pool) } = &mut *inner
            && used.elapsed() >= idle
        {
            end(conn, &self.statements.rollback);
            self.pinned.store(false, Ordering::Release);
            *inner = match is_strict {
                true => Inner::Failed(Failure::TooOld),
                false => Inner::NotBegun(pool.clone(), None),
            };
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Inner::Open { conn, .. } = self.inner.get_mut() {
            end(conn, &self.statements.rollback);
        }
    }
}

/// The registry of open sessions.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<Vec<Weak<Session>>>);

impl Sessions {
    /// Registers a session. Removes dropped sessions before the list would grow.
    fn add(&self, session: &Arc<Session>) {
        let mut all = self.0.lock();
        if all.len() == all.capacity() {
            all.retain(|session| session.strong_count() > 0);
        }
        all.push(Arc::downgrade(session));
    }

    /// Parks sessions that have been idle for long.
    pub(crate) fn park_idle(&self) {
        self.park(PARKED_AFTER);
    }

    /// Parks sessions that have been idle for a moment, to free a connection for a waiting caller.
    pub(crate) fn park_for_waiters(&self) {
        self.park(PARKED_FOR_WAITERS);
    }

    /// Parks every session that has been idle for `idle`.
    fn park(&self, idle: Duration) {
        let all: Vec<Weak<Session>> = self.0.lock().clone();
        all.iter().filter_map(Weak::upgrade).for_each(|session| session.park(idle));
    }
}

/// Ends a transaction without waiting for the reply.
pub(crate) fn end(conn: &mut PooledConnection, statement: &Statement) {
    if !conn.is_broken() && conn.in_transaction() {
        // The next user of the connection finds the error.
        let _ = conn.call(statement, &[]).and_then(|()| conn.flush());
        conn.leave_transaction();
    }
}

/// A snapshot of everything.
#[derive(Clone)]
pub(crate) struct PostgresSnapshot {
    pub(crate) statements: Arc<Statements>,
    pub(crate) session: Arc<Session>,
}

impl PostgresSnapshot {
    /// Runs a statement in the transaction, with the errors of the store.
    pub(crate) fn run(&self, statement: &Statement, params: &[Param<'_>]) -> Result<Vec<Row>> {
        self.session.run(statement, params).map_err(Error::from)
    }

    /// Returns the values of several keys.
    pub(crate) fn get_many(&self, ident: Ident, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
        self.get_several(ident, keys, None)
    }

    /// Returns the values of several keys, except for values beyond a length.
    pub(crate) fn get_several(
        &self,
        ident: Ident,
        keys: &[&[u8]],
        longest: Option<usize>,
    ) -> Result<Vec<Option<Value>>> {
        let index_keys: Vec<_> = keys.iter().map(|key| index_key(key)).collect();
        let index_keys: Vec<Option<&[u8]>> = index_keys.iter().map(|key| Some(&**key)).collect();
        let mut params = vec![Param::Int(keys::stored_ident(ident)), Param::Many(&index_keys)];
        let rows = match longest {
            None => self.run(&self.statements.get_many, &params)?,
            Some(longest) => {
                params.push(Param::Int(longest as i64));
                self.run(&self.statements.get_ahead, &params)?
            }
        };
        let mut values = vec![None; keys.len()];
        for row in rows {
            let slot = usize::try_from(row.int(0) - 1).ok().and_then(|number| values.get_mut(number));
            if let (Some(slot), Some(bytes)) = (slot, row.bytes(1)) {
                *slot = Some(Value::from(bytes));
            }
        }
        Ok(values)
    }

    /// Returns true if a tree has this number. Ignores the trees of the log.
    pub(crate) fn has_tree(&self, ident: Ident) -> Result<bool> {
        let rows = self.run(&self.statements.contains, &[Param::Int(keys::stored_ident(ident))])?;
        Ok(!rows.is_empty())
    }
}

/// Returns a column as a value, empty for null.
pub(crate) fn value(row: &Row, column: usize) -> Value {
    Value::from(row.bytes(column).unwrap_or_default())
}
