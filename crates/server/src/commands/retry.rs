//! Retryable writes: a statement sent again is answered from the record of what it did.
//!
//! The session remembers it; on an engine that outlives the process the commit has recorded it, too.

use crate::call::Call;
use crate::session::Session;
use base::bson::{Builder, DocumentBuf};
use base::{Result, err};
use database::RetryKey;
use std::sync::Arc;

/// The retryable side of one write command.
pub(crate) struct Retryable {
    session: Arc<Session>,
    number: i64,
    /// Whether the command has been seen before.
    again: bool,
    /// The number of the first statement, or all numbers.
    first: i32,
    ids: Option<Vec<i32>>,
    /// The statements answered from the record.
    pub(crate) retried: Vec<i32>,
}

impl Retryable {
    /// Begins the command's retryable write, of so many statements; `None` where it is none.
    ///
    /// Errors: TransactionTooOld.
    pub(crate) fn begin(call: &Call<'_>, count: usize) -> Result<Option<Retryable>> {
        let arguments = &call.arguments;
        let number = arguments.transaction_number.filter(|_| arguments.transaction.is_none());
        let Some(number) = number else { return Ok(None) };
        let Some(session) = call.connection.session.clone() else { return Ok(None) };
        let ids = arguments.statement_ids.map(|ids| {
            ids.iter().map(|id| id.as_i64().and_then(|id| i32::try_from(id).ok()).unwrap_or(-1)).collect()
        });
        let first = arguments.statement_id.unwrap_or(0);
        let mut begun = Retryable { session, number, again: false, first, ids, retried: Vec::new() };
        let among = match &begun.ids {
            Some(ids) => (ids.iter().copied().min().unwrap_or(0), ids.iter().copied().max().unwrap_or(0)),
            None => (begun.statement(0), begun.statement(count.saturating_sub(1))),
        };
        let session = &begun.session;
        let stored = || call.server.database.stored_retries(session.id, among);
        begun.again = match session.begin_write(number)? {
            true => session.take_up(stored()?, number)?,
            // What others hold may be lost, though this server remembers it: then it is to be done again.
            false if call.server.settings.shared => session.believe(stored()?, number)?,
            false => true,
        };
        Ok(Some(begun))
    }

    /// What the statement at this position answered when it was carried out, if it was.
    pub(crate) fn answered(&mut self, position: usize) -> Option<DocumentBuf> {
        if !self.again {
            return None;
        }
        let statement = self.statement(position);
        let answer = self.session.executed(self.number, statement)?;
        self.retried.push(statement);
        Some(answer)
    }

    /// Whether the statement at this position was carried out before.
    pub(crate) fn is_answered(&self, position: usize) -> bool {
        self.again && self.session.executed(self.number, self.statement(position)).is_some()
    }

    /// What the commit of the statement at this position is recorded under.
    pub(crate) fn key(&self, position: usize) -> RetryKey {
        RetryKey { session: self.session.id, number: self.number, statement: self.statement(position) }
    }

    /// Remembers what the statement at this position answered.
    pub(crate) fn record(&self, position: usize, answer: DocumentBuf) {
        self.session.record(self.number, self.statement(position), answer);
    }

    /// Appends `retriedStmtIds` where statements were answered from the record.
    pub(crate) fn append_retried(this: Option<&Retryable>, reply: &mut Builder) {
        let Some(this) = this.filter(|this| !this.retried.is_empty()) else { return };
        reply.begin_array(c"retriedStmtIds");
        for statement in &this.retried {
            reply.push(*statement);
        }
        reply.end();
    }

    /// Refuses a statement on many documents, which can't be retried.
    ///
    /// Errors: InvalidOptions.
    pub(crate) fn check_single(this: Option<&Retryable>, multi: bool) -> Result<()> {
        match this {
            Some(_) if multi => Err(err!(
                InvalidOptions,
                "Cannot use (or request) retryable writes with limit=0 or multi=true"
            )),
            _ => Ok(()),
        }
    }

    fn statement(&self, position: usize) -> i32 {
        let listed = self.ids.as_ref().and_then(|ids| ids.get(position).copied());
        listed.unwrap_or(self.first.saturating_add(position as i32))
    }
}
