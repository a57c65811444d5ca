//! Snapshots of everything: read-only transactions of PostgreSQL, each begun at its first read.
//!
//! A transaction is REPEATABLE READ, so all reads see one state. Its first answer contains the generation of the
//! catalog of that state. The transaction ends with the last holder of the session, without a wait for the answer.
//!
//! An idle cursor would hold its connection, and would keep its readable rows from vacuum. An idle session is therefore
//! parked: its transaction ends, and the next read begins another, of a later state. [`Session::is_steady`] reports the
//! change.
//!
//! Cursors and snapshots read such a state by statements on a session.

use crate::connection::{Param, Row, Statement};
use crate::failure::{Answer, Failure};
use crate::keys::{self, stored};
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
const PARKED_FOR_OTHERS: Duration = Duration::from_millis(20);

/// The same for a strict session, which allows no later state: it ends.
const ENDED_AFTER: Duration = Duration::from_secs(60);

/// The latest generation of the catalog that the process has seen.
pub(crate) type Known = Arc<AtomicU64>;

/// A transaction on its own connection.
pub(crate) struct Session {
    statements: Arc<Statements>,
    /// The latest generation that the process has seen; raised by reads of this session.
    known: Known,
    inner: Mutex<Inner>,
    /// True if everything read so far is of one state.
    steady: AtomicBool,
    /// True if no later state is allowed.
    strict: AtomicBool,
    /// True if the transaction holds write intents. They are rolled back if it cannot continue.
    of_claims: bool,
    /// True for a standby, which may end a read that conflicts with replay.
    of_standby: bool,
    /// The registry through which callers that wait for a connection park sessions.
    sessions: Option<Arc<Sessions>>,
}

/// State of the session's transaction.
enum Inner {
    /// Nothing has been read. The catalog must have this generation at the first read.
    Fresh(Arc<Pool>, Option<u64>),
    Open {
        lent: Box<PooledConnection>,
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
        (known, expected): (&Known, Option<u64>),
        sessions: &Arc<Sessions>,
    ) -> Arc<Session> {
        let session = Arc::new(Session {
            statements: statements.clone(),
            known: known.clone(),
            inner: Mutex::new(Inner::Fresh(pool.clone(), expected)),
            steady: AtomicBool::new(true),
            strict: AtomicBool::new(false),
            of_claims: false,
            of_standby: false,
            sessions: Some(sessions.clone()),
        });
        sessions.add(&session);
        session
    }

    /// Wraps a transaction begun on a standby. If it must be released, the next read sees a later state of the same
    /// standby.
    pub(crate) fn of_standby(
        statements: &Arc<Statements>,
        lent: PooledConnection,
        pool: &Arc<Pool>,
        sessions: &Arc<Sessions>,
    ) -> Arc<Session> {
        let inner = Inner::Open { lent: Box::new(lent), used: Instant::now(), pool: Some(pool.clone()) };
        // A standby may have an older catalog.
        let mut session = Session::with_inner(statements, &Known::default(), inner);
        session.sessions = Some(sessions.clone());
        session.of_standby = true;
        let session = Arc::new(session);
        sessions.add(&session);
        session
    }

    /// Wraps an open transaction.
    pub(crate) fn of(statements: &Arc<Statements>, known: &Known, lent: PooledConnection) -> Session {
        let inner = Inner::Open { lent: Box::new(lent), used: Instant::now(), pool: None };
        Session::with_inner(statements, known, inner)
    }

    /// Wraps the open transaction of a multi-statement transaction, which holds its write intents. An abandoned
    /// statement ends it: nothing commits before [`with`](Self::with).
    pub(crate) fn of_claims(statements: &Arc<Statements>, known: &Known, lent: PooledConnection) -> Session {
        let mut session = Session::of(statements, known, lent);
        session.of_claims = true;
        session
    }

    /// Creates a session whose reads fail.
    pub(crate) fn failed(statements: &Arc<Statements>, known: &Known, failure: Failure) -> Session {
        Session::with_inner(statements, known, Inner::Failed(failure))
    }

    fn with_inner(statements: &Arc<Statements>, known: &Known, inner: Inner) -> Session {
        Session {
            statements: statements.clone(),
            known: known.clone(),
            inner: Mutex::new(inner),
            steady: AtomicBool::new(true),
            strict: AtomicBool::new(false),
            of_claims: false,
            of_standby: false,
            sessions: None,
        }
    }

    /// Returns true if everything read so far is of one state.
    pub(crate) fn is_steady(&self) -> bool {
        self.steady.load(Ordering::Acquire)
    }

    /// Forbids a later state. Once this state is released, every read fails with `TooOld`.
    pub(crate) fn enable_strict_mode(&self) {
        self.strict.store(true, Ordering::Release);
    }

    /// Reads the generation of the catalog, and begins the transaction if necessary.
    pub(crate) fn generation(&self) -> Answer<u64> {
        let rows = self.run(&self.statements.generation.clone(), &[])?;
        Ok(rows.first().map_or(0, |row| row.int(0) as u64))
    }

    /// Checks that the catalog has the expected generation.
    pub(crate) fn confirm(&self) -> Answer<()> {
        match &*self.inner.lock() {
            Inner::Failed(failure) => return Err(failure.clone()),
            Inner::Open { .. } => return Ok(()),
            // A parked session has confirmed it earlier.
            Inner::Fresh(..) if !self.is_steady() => return Ok(()),
            Inner::Fresh(..) => {}
        }
        self.generation().map(drop)
    }

    /// Runs a statement in the transaction.
    pub(crate) fn run(&self, statement: &Statement, params: &[Param<'_>]) -> Answer<Vec<Row>> {
        let mut inner = self.inner.lock();
        let outcome = match &mut *inner {
            Inner::Failed(failure) => return Err(failure.clone()),
            Inner::Open { lent, used, .. } => {
                *used = Instant::now();
                lent.is_interruptible |= self.of_claims;
                let rows = lent.one(statement, params);
                lent.is_interruptible &= !self.of_claims;
                rows
            }
            Inner::Fresh(pool, expected) => {
                let (pool, expected) = (pool.clone(), *expected);
                match self.begin(&pool, expected, statement, params) {
                    Ok((lent, rows)) => {
                        *inner = Inner::Open { lent: Box::new(lent), used: Instant::now(), pool: Some(pool) };
                        Ok(rows)
                    }
                    Err(failure) => Err(failure),
                }
            }
        };
        let outcome = outcome.map_err(|failure| match failure {
            Failure::Server { message, .. } if self.of_standby && failure.is_conflict() => {
                Failure::Lost(format!("the standby has ended the read: {message}"))
            }
            other => other,
        });
        match (&outcome, &*inner) {
            (Ok(_), _) => {}
            // Nothing has been read, and another caller may have a longer time limit.
            (Err(Failure::Interrupted(_)), Inner::Fresh(..)) => {}
            // Later reads report a lost answer. In a multi-statement transaction the cancelled statement is the last.
            (Err(Failure::Interrupted(_)), _) if !self.of_claims => {
                *inner = Inner::Failed(Failure::Lost("the reader was dropped before the reply".to_string()));
            }
            (Err(failure), _) => *inner = Inner::Failed(failure.clone()),
        }
        outcome
    }

    /// Runs `statement` in the open transaction. Without one, runs `alone` outside of any transaction; its third column
    /// is the generation of the catalog. Later reads see a later state.
    pub(crate) fn run_alone(
        &self,
        (within, alone): (&Statement, &Statement),
        params: &[Param<'_>],
    ) -> Answer<Vec<Row>> {
        let mut inner = self.inner.lock();
        let Inner::Fresh(pool, expected) = &*inner else {
            drop(inner);
            return self.run(within, params);
        };
        let (pool, expected) = (pool.clone(), *expected);
        let outcome = self.first(&pool, &mut |lent| lent.one(alone, params)).and_then(|(_, rows)| {
            let generation = rows.first().map_or(0, |row| row.int(2) as u64);
            self.hear(generation, expected).map(|()| rows)
        });
        self.steady.store(false, Ordering::Release);
        *inner = match &outcome {
            Ok(_) => Inner::Fresh(pool, None),
            Err(Failure::Interrupted(_)) => Inner::Fresh(pool, expected),
            Err(failure) => Inner::Failed(failure.clone()),
        };
        outcome
    }

    /// Records the generation of the catalog, and compares it with the expected one.
    fn hear(&self, generation: u64, expected: Option<u64>) -> Answer<()> {
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
    ) -> Answer<(PooledConnection, Vec<Row>)> {
        let (mut lent, mut answers) = self.first(pool, &mut |lent| {
            lent.call(&self.statements.begin_read, &[])?;
            lent.call(&self.statements.generation, &[])?;
            lent.call(statement, params)?;
            lent.flush()?;
            lent.answer()
        })?;
        let rows = answers.pop().unwrap_or_default();
        let generation = answers.pop().and_then(|rows| rows.first().map(|row| row.int(0) as u64));
        if let Err(failure) = self.hear(generation.unwrap_or_default(), expected) {
            end(&mut lent, &self.statements.rollback);
            return Err(failure);
        }
        Ok((lent, rows))
    }

    /// Borrows a connection and runs a query on it. Replaces a connection that the server has closed, since nothing has
    /// been read yet.
    fn first<T>(
        &self,
        pool: &Arc<Pool>,
        ask: &mut dyn FnMut(&mut PooledConnection) -> Answer<T>,
    ) -> Answer<(PooledConnection, T)> {
        loop {
            let mut lent = pool.take(&|| self.sessions.iter().for_each(|sessions| sessions.make_room()))?;
            lent.is_interruptible = true;
            match ask(&mut lent) {
                Ok(answers) => return Ok((lent, answers)),
                Err(failure) if failure.ends_connection() && !lent.is_new => {
                    pool.clear();
                    continue;
                }
                Err(failure) => {
                    end(&mut lent, &self.statements.rollback);
                    return Err(failure);
                }
            }
        }
    }

    /// Runs `work` on the connection of the open transaction; `None` if none is open.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut PooledConnection) -> Answer<T>) -> Option<Answer<T>> {
        match &mut *self.inner.lock() {
            Inner::Open { lent, .. } => Some(work(lent)),
            _ => None,
        }
    }

    /// Takes the connection of the open transaction back. Later reads see a later state.
    pub(crate) fn hand_over(&self, pool: &Arc<Pool>) -> Option<PooledConnection> {
        let mut inner = self.inner.lock();
        match std::mem::replace(&mut *inner, Inner::Fresh(pool.clone(), None)) {
            Inner::Open { lent, .. } => Some(*lent),
            other => {
                *inner = other;
                None
            }
        }
    }

    /// Ends the transaction. Later reads fail with `failure`.
    pub(crate) fn end(&self, failure: Failure) {
        let mut inner = self.inner.lock();
        if let Inner::Open { lent, .. } = &mut *inner {
            end(lent, &self.statements.rollback);
        }
        *inner = Inner::Failed(failure);
    }

    /// Parks the session if it has been idle for `idle`.
    fn park(&self, idle: Duration) {
        // A held lock means a read in progress.
        let Some(mut inner) = self.inner.try_lock() else { return };
        let is_strict = self.strict.load(Ordering::Acquire);
        let idle = if is_strict && idle == PARKED_AFTER { ENDED_AFTER } else { idle };
        if let Inner::Open { lent, used, pool: Some(pool) } = &mut *inner
            && used.elapsed() >= idle
        {
            end(lent, &self.statements.rollback);
            self.steady.store(false, Ordering::Release);
            *inner = match is_strict {
                true => Inner::Failed(Failure::TooOld),
                false => Inner::Fresh(pool.clone(), None),
            };
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Inner::Open { lent, .. } = self.inner.get_mut() {
            end(lent, &self.statements.rollback);
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
    pub(crate) fn make_room(&self) {
        self.park(PARKED_FOR_OTHERS);
    }

    /// Parks every session that has been idle for `idle`.
    fn park(&self, idle: Duration) {
        let all: Vec<Weak<Session>> = self.0.lock().clone();
        all.iter().filter_map(Weak::upgrade).for_each(|session| session.park(idle));
    }
}

/// Ends a transaction without waiting for the answer.
pub(crate) fn end(lent: &mut PooledConnection, statement: &Statement) {
    if !lent.is_broken() && lent.in_transaction() {
        // The next user of the connection finds the error.
        let _ = lent.call(statement, &[]).and_then(|()| lent.flush());
        lent.leave_transaction();
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
        let stored: Vec<_> = keys.iter().map(|key| stored(key)).collect();
        let stored: Vec<Option<&[u8]>> = stored.iter().map(|key| Some(&**key)).collect();
        let mut params = vec![Param::Int(keys::ident(ident)), Param::Many(&stored)];
        let rows = match longest {
            None => self.run(&self.statements.get_many, &params)?,
            Some(longest) => {
                params.push(Param::Int(longest as i64));
                self.run(&self.statements.get_ahead, &params)?
            }
        };
        let mut values = vec![None; keys.len()];
        for row in rows {
            let place = usize::try_from(row.int(0) - 1).ok().and_then(|number| values.get_mut(number));
            if let (Some(place), Some(bytes)) = (place, row.bytes(1)) {
                *place = Some(Value::from(bytes));
            }
        }
        Ok(values)
    }

    /// Returns true if a tree has this number. Ignores the trees of the log.
    pub(crate) fn has_tree(&self, ident: Ident) -> Result<bool> {
        let rows = self.run(&self.statements.contains, &[Param::Int(keys::ident(ident))])?;
        Ok(!rows.is_empty())
    }

    /// Fails if the first state was released and the tree no longer exists.
    pub(crate) fn still_has(&self, ident: Ident) -> Result<()> {
        match self.session.is_steady() || self.has_tree(ident)? {
            true => Ok(()),
            false => Err(Error::NoSuchIdent(ident)),
        }
    }
}

/// Returns a column as a value, empty for null.
pub(crate) fn value(row: &Row, column: usize) -> Value {
    Value::from(row.bytes(column).unwrap_or_default())
}
