//! A state of everything: a transaction of PostgreSQL that only reads, begun when it is first read.
//!
//! The transaction is REPEATABLE READ, so that all reads see one state. It ends with the last who holds the
//! session, and nobody waits for the answer to that.

use crate::connection::{Param, Row, Statement};
use crate::failure::{Answer, Failure};
use crate::pool::{Lent, Pool};
use crate::schema::Statements;
use parking_lot::Mutex;
use std::sync::Arc;

/// A transaction on a connection of its own.
pub(crate) struct Session {
    statements: Arc<Statements>,
    inner: Mutex<Inner>,
}

enum Inner {
    /// Nothing has been read yet.
    Fresh(Arc<Pool>),
    Open(Lent),
    Failed(Failure),
}

impl Session {
    /// A state of the present, or of the moment when it is first read.
    pub(crate) fn new(statements: &Arc<Statements>, pool: &Arc<Pool>) -> Session {
        Session { statements: statements.clone(), inner: Mutex::new(Inner::Fresh(pool.clone())) }
    }

    /// What a transaction under way sees.
    pub(crate) fn of(statements: &Arc<Statements>, lent: Lent) -> Session {
        Session { statements: statements.clone(), inner: Mutex::new(Inner::Open(lent)) }
    }

    /// A state that can't be read.
    pub(crate) fn failed(statements: &Arc<Statements>, failure: Failure) -> Session {
        Session { statements: statements.clone(), inner: Mutex::new(Inner::Failed(failure)) }
    }

    /// Reads the catalog's generation and begins the state with it.
    pub(crate) fn generation(&self) -> Answer<u64> {
        let rows = self.run(&self.statements.generation.clone(), &[])?;
        Ok(rows.first().map_or(0, |row| row.int(0) as u64))
    }

    /// Runs a statement in the transaction.
    pub(crate) fn run(&self, statement: &Statement, params: &[Param<'_>]) -> Answer<Vec<Row>> {
        let mut inner = self.inner.lock();
        match &mut *inner {
            Inner::Failed(failure) => Err(failure.clone()),
            Inner::Open(lent) => {
                let rows = lent.one(statement, params);
                if let Err(failure) = &rows {
                    *inner = Inner::Failed(failure.clone());
                }
                rows
            }
            Inner::Fresh(pool) => {
                let pool = pool.clone();
                match self.begin(&pool, statement, params) {
                    Ok((lent, rows)) => {
                        *inner = Inner::Open(lent);
                        Ok(rows)
                    }
                    Err(failure) => {
                        *inner = Inner::Failed(failure.clone());
                        Err(failure)
                    }
                }
            }
        }
    }

    /// Begins the transaction and runs its first statement. A connection that the server has closed meanwhile
    /// is replaced by a new one: nothing has been read yet.
    fn begin(
        &self,
        pool: &Arc<Pool>,
        statement: &Statement,
        params: &[Param<'_>],
    ) -> Answer<(Lent, Vec<Row>)> {
        loop {
            let mut lent = pool.take(&|| {})?;
            let mut first = || {
                lent.call(&self.statements.begin_read, &[])?;
                lent.call(statement, params)?;
                lent.flush()?;
                lent.answer()
            };
            match first() {
                Ok(mut answers) => return Ok((lent, answers.pop().unwrap_or_default())),
                Err(failure) if failure.ends_connection() && !lent.is_new => pool.clear(),
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Runs something on the connection of a transaction under way; `None` where none is.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Lent) -> Answer<T>) -> Option<Answer<T>> {
        match &mut *self.inner.lock() {
            Inner::Open(lent) => Some(work(lent)),
            _ => None,
        }
    }

    /// Takes the connection of a transaction under way back; what is read from now on is a later state.
    pub(crate) fn hand_over(&self, pool: &Arc<Pool>) -> Option<Lent> {
        let mut inner = self.inner.lock();
        match std::mem::replace(&mut *inner, Inner::Fresh(pool.clone())) {
            Inner::Open(lent) => Some(lent),
            other => {
                *inner = other;
                None
            }
        }
    }
}

impl Session {
    /// Ends the transaction: what is read from now on fails so.
    pub(crate) fn end(&self, failure: Failure) {
        let mut inner = self.inner.lock();
        if let Inner::Open(lent) = &mut *inner {
            end(lent, &self.statements.rollback);
        }
        *inner = Inner::Failed(failure);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Inner::Open(lent) = self.inner.get_mut() {
            end(lent, &self.statements.rollback);
        }
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
