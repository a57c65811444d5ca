//! A state of everything: a transaction of PostgreSQL that only reads, begun when it is first read.
//!
//! The transaction is REPEATABLE READ, so that all reads see one state, and its first answer tells which
//! catalog belongs to that. It ends with the last who holds the session, and nobody waits for the answer.
//!
//! A cursor that is left open would keep its connection, and what it may still read from being vacuumed. So a
//! session that nobody has read from for a while is parked: its transaction ends, and the next read begins
//! another, of a later state. Whoever reads on after that is told by [`Session::is_steady`].
//!
//! One state of everything, as cursors and snapshots read it: statements on a session.

use crate::connection::{Param, Row, Statement};
use crate::failure::{Answer, Failure};
use crate::keys::{self, stored};
use crate::pool::{Lent, Pool};
use crate::schema::Statements;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use storage::{Error, Ident, Result, Value};

/// After how long without a read a session is parked.
const PARKED_AFTER: Duration = Duration::from_secs(2);

/// The same where others wait for a connection.
const PARKED_FOR_OTHERS: Duration = Duration::from_millis(20);

/// The same where the session is for the one state alone, and none other will do: then it ends.
const ENDED_AFTER: Duration = Duration::from_secs(60);

/// The latest generation of the catalog that a process has heard of.
pub(crate) type Known = Arc<AtomicU64>;

/// A transaction on a connection of its own.
pub(crate) struct Session {
    statements: Arc<Statements>,
    known: Known,
    inner: Mutex<Inner>,
    /// Whether all that has been read is of one state.
    steady: AtomicBool,
    /// Whether it is for the one state alone.
    strict: AtomicBool,
    /// Whether its transaction holds what somebody has claimed, which is undone where it can't go on.
    of_claims: bool,
    /// Whether it is a standby that is read, which may end a read that is in the way of what it has to apply.
    of_standby: bool,
    /// Whoever waits for a connection, and has sessions parked.
    sessions: Option<Arc<Sessions>>,
}

enum Inner {
    /// Nothing has been read yet; the catalog is to have this generation then.
    Fresh(Arc<Pool>, Option<u64>),
    Open {
        lent: Box<Lent>,
        used: Instant,
        /// Where the next transaction comes from; `None` where there may be no other.
        pool: Option<Arc<Pool>>,
    },
    Failed(Failure),
}

impl Session {
    /// A state of the moment when it is first read. Where the catalog isn't of the generation `expected` by
    /// then, every read fails with `CatalogChanged`.
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

    /// A state of a standby that has been begun. Where it has to be given up, what is read next is a later one of the
    /// same standby.
    pub(crate) fn of_standby(
        statements: &Arc<Statements>,
        lent: Lent,
        pool: &Arc<Pool>,
        sessions: &Arc<Sessions>,
    ) -> Arc<Session> {
        let inner = Inner::Open { lent: Box::new(lent), used: Instant::now(), pool: Some(pool.clone()) };
        // What a standby knows of the catalog may be old.
        let mut session = Session::with_inner(statements, &Known::default(), inner);
        session.sessions = Some(sessions.clone());
        session.of_standby = true;
        let session = Arc::new(session);
        sessions.add(&session);
        session
    }

    /// What a transaction under way sees.
    pub(crate) fn of(statements: &Arc<Statements>, known: &Known, lent: Lent) -> Session {
        let inner = Inner::Open { lent: Box::new(lent), used: Instant::now(), pool: None };
        Session::with_inner(statements, known, inner)
    }

    /// What a transaction of many statements sees, and where it claims what it changes. Whoever doesn't wait for one of
    /// its statements any longer ends it: nothing of it is committed before [`with`](Self::with).
    pub(crate) fn of_claims(statements: &Arc<Statements>, known: &Known, lent: Lent) -> Session {
        let mut session = Session::of(statements, known, lent);
        session.of_claims = true;
        session
    }

    /// A state that can't be read.
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

    /// Whether all that has been read so far is of one state.
    pub(crate) fn is_steady(&self) -> bool {
        self.steady.load(Ordering::Acquire)
    }

    /// Says that no later state will do: where this one has to be given up, every read fails with `TooOld`.
    pub(crate) fn be_strict(&self) {
        self.strict.store(true, Ordering::Release);
    }

    /// Reads the catalog's generation, and begins the state with it.
    pub(crate) fn generation(&self) -> Answer<u64> {
        let rows = self.run(&self.statements.generation.clone(), &[])?;
        Ok(rows.first().map_or(0, |row| row.int(0) as u64))
    }

    /// Makes sure that the catalog is of the generation that was expected.
    pub(crate) fn confirm(&self) -> Answer<()> {
        match &*self.inner.lock() {
            Inner::Failed(failure) => return Err(failure.clone()),
            Inner::Open { .. } => return Ok(()),
            // Whoever has given up what he has read found it so.
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
                lent.may_be_given_up |= self.of_claims;
                let rows = lent.one(statement, params);
                lent.may_be_given_up &= !self.of_claims;
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
            // Nothing has been read, and somebody else may wait longer.
            (Err(Failure::GivenUp(_)), Inner::Fresh(..)) => {}
            // Another statement may be told of it, but of a transaction this one is the last.
            (Err(Failure::GivenUp(_)), _) if !self.of_claims => {
                *inner = Inner::Failed(Failure::Lost("nobody waited for an answer".to_string()));
            }
            (Err(failure), _) => *inner = Inner::Failed(failure.clone()),
        }
        outcome
    }

    /// Runs the first of two statements in the transaction, or where none has been begun the second without one,
    /// which brings the catalog's generation in its third column. What is read after that is of a later state.
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
            Err(Failure::GivenUp(_)) => Inner::Fresh(pool, expected),
            Err(failure) => Inner::Failed(failure.clone()),
        };
        outcome
    }

    /// Notes the catalog's generation, which is to be the one that was expected.
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
    ) -> Answer<(Lent, Vec<Row>)> {
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

    /// Borrows a connection and asks something on it. One that the server has closed meanwhile is replaced by a new
    /// one: nothing has been read yet.
    fn first<T>(&self, pool: &Arc<Pool>, ask: &mut dyn FnMut(&mut Lent) -> Answer<T>) -> Answer<(Lent, T)> {
        loop {
            let mut lent = pool.take(&|| self.sessions.iter().for_each(|sessions| sessions.make_room()))?;
            lent.may_be_given_up = true;
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

    /// Runs something on the connection of a transaction under way; `None` where none is.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Lent) -> Answer<T>) -> Option<Answer<T>> {
        match &mut *self.inner.lock() {
            Inner::Open { lent, .. } => Some(work(lent)),
            _ => None,
        }
    }

    /// Takes the connection of a transaction under way back; what is read from now on is a later state.
    pub(crate) fn hand_over(&self, pool: &Arc<Pool>) -> Option<Lent> {
        let mut inner = self.inner.lock();
        match std::mem::replace(&mut *inner, Inner::Fresh(pool.clone(), None)) {
            Inner::Open { lent, .. } => Some(*lent),
            other => {
                *inner = other;
                None
            }
        }
    }

    /// Ends the transaction: what is read from now on fails so.
    pub(crate) fn end(&self, failure: Failure) {
        let mut inner = self.inner.lock();
        if let Inner::Open { lent, .. } = &mut *inner {
            end(lent, &self.statements.rollback);
        }
        *inner = Inner::Failed(failure);
    }

    /// Ends the transaction if nobody has read in it for so long, until somebody does.
    fn park(&self, idle: Duration) {
        // Whoever holds the lock is reading.
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

/// The sessions that may be open.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<Vec<Weak<Session>>>);

impl Sessions {
    fn add(&self, session: &Arc<Session>) {
        let mut all = self.0.lock();
        if all.len() == all.capacity() {
            all.retain(|session| session.strong_count() > 0);
        }
        all.push(Arc::downgrade(session));
    }

    /// Parks those that nobody has read from for long.
    pub(crate) fn park_idle(&self) {
        self.park(PARKED_AFTER);
    }

    /// Parks those that nobody has read from for a moment, for whoever waits for a connection.
    pub(crate) fn make_room(&self) {
        self.park(PARKED_FOR_OTHERS);
    }

    fn park(&self, idle: Duration) {
        let all: Vec<Weak<Session>> = self.0.lock().clone();
        all.iter().filter_map(Weak::upgrade).for_each(|session| session.park(idle));
    }
}

/// Ends a transaction without waiting for the answer.
pub(crate) fn end(lent: &mut Lent, statement: &Statement) {
    if !lent.is_broken() && lent.in_transaction() {
        // Whoever uses the connection next finds out that it is broken.
        let _ = lent.call(statement, &[]).and_then(|()| lent.flush());
        lent.leave_transaction();
    }
}

/// One state of everything.
#[derive(Clone)]
pub(crate) struct PostgresSnapshot {
    pub(crate) statements: Arc<Statements>,
    pub(crate) session: Arc<Session>,
}

impl PostgresSnapshot {
    pub(crate) fn run(&self, statement: &Statement, params: &[Param<'_>]) -> Result<Vec<Row>> {
        self.session.run(statement, params).map_err(Error::from)
    }

    /// The values of several keys.
    pub(crate) fn get_many(&self, ident: Ident, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
        self.get_several(ident, keys, None)
    }

    /// The same, but for values beyond a length.
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

    /// Whether there is a tree of that number, the log's aside.
    pub(crate) fn has_tree(&self, ident: Ident) -> Result<bool> {
        let rows = self.run(&self.statements.contains, &[Param::Int(keys::ident(ident))])?;
        Ok(!rows.is_empty())
    }

    /// Fails where the state that was begun with has been given up, and the tree is no longer there.
    pub(crate) fn still_has(&self, ident: Ident) -> Result<()> {
        match self.session.is_steady() || self.has_tree(ident)? {
            true => Ok(()),
            false => Err(Error::NoSuchIdent(ident)),
        }
    }
}

/// A column as a value, empty where it is null.
pub(crate) fn value(row: &Row, column: usize) -> Value {
    Value::from(row.bytes(column).unwrap_or_default())
}
