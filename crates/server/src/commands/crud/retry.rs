//! Retryable writes: a statement that is sent again gets its first result from a record.
//!
//! The session keeps the record. A persistent engine also stores it with the commit.

use super::write_batch::ends_command;
use crate::call::Call;
use crate::session::Session;
use base::bson::{Document, DocumentBuf};
use base::{Error, ErrorCode, Result, err};
use database::mark;
use database::{Committed, RetryKey};
use std::sync::Arc;

/// Retry state of one write command.
pub(crate) struct Retryable {
    session: Arc<Session>,
    number: i64,
    /// True if the command was received before.
    again: bool,
    /// Least and greatest number of a statement.
    among: (i32, i32),
    /// Number of the first statement, or the numbers of all.
    first: i32,
    ids: Option<Vec<i32>>,
    /// Statements answered from the record.
    pub(crate) retried: Vec<i32>,
}

impl Retryable {
    /// Begins a retryable write of `count` statements; `None` if the command is not retryable.
    ///
    /// Errors: TransactionTooOld.
    pub(crate) fn begin(call: &Call<'_>, count: usize) -> Result<Option<Retryable>> {
        Retryable::begin_with(call, count, false)
    }

    /// As [`begin`](Self::begin), for a write that commits its record in every case. One statement does without a read
    /// of its record if this process has seen it. The caller passes a failure to
    /// [`is_decided_again`](Self::is_decided_again).
    pub(crate) fn begin_presuming(call: &Call<'_>, count: usize) -> Result<Option<Retryable>> {
        Retryable::begin_with(call, count, count == 1)
    }

    fn begin_with(call: &Call<'_>, count: usize, presumes: bool) -> Result<Option<Retryable>> {
        let arguments = call.arguments;
        let number = arguments.transaction_number.filter(|_| arguments.transaction.is_none());
        let Some(number) = number else { return Ok(None) };
        let Some(session) = call.connection.session.clone() else { return Ok(None) };
        let ids = arguments.statement_ids.map(|ids| {
            ids.iter().map(|id| id.as_i64().and_then(|id| i32::try_from(id).ok()).unwrap_or(-1)).collect()
        });
        let first = arguments.statement_id.unwrap_or(0);
        let retried = Vec::new();
        let mut started = Retryable { session, number, again: false, among: (0, 0), first, ids, retried };
        let among = match &started.ids {
            Some(ids) => (ids.iter().copied().min().unwrap_or(0), ids.iter().copied().max().unwrap_or(0)),
            None => (started.statement(0), started.statement(count.saturating_sub(1))),
        };
        started.among = among;
        let session = &started.session;
        let stored = || call.server.database.stored_retries(session.id, among);
        started.again = match session.begin_write(number)? {
            true if presumes && call.server.database.has_seen_retry(&started.key(0)) => false,
            true => session.add_stored(stored()?, number)?,
            // On a shared store a remembered write may be lost. The stored record decides if it
            // runs again.
            false if call.server.settings.shared => session.replace_with_stored(stored()?, number)?,
            false => true,
        };
        Ok(Some(started))
    }

    /// Runs the statement at this position, or restores its outcome from its record.
    ///
    /// Another process may run the statement at the same time. The commit of one of them succeeds. If `run` fails or
    /// commits nothing, the outcome of the other process is returned.
    ///
    /// Errors: errors of `run`, and of [`is_decided_again`](Self::is_decided_again).
    pub(crate) fn run<T>(
        this: Option<&mut Retryable>,
        call: &Call<'_>,
        position: usize,
        recall: impl Fn(Document<'_>) -> T,
        committed: impl Fn(&T) -> Option<Committed>,
        mut run: impl FnMut(Option<RetryKey>) -> Result<T>,
    ) -> Result<T> {
        let Some(retryable) = this else { return run(None) };
        loop {
            if let Some(answer) = retryable.recorded_result(position) {
                return Ok(recall(answer.view()));
            }
            let outcome = run(Some(retryable.key(position)));
            let error = match &outcome {
                Ok(done) if committed(done).is_some() => return outcome,
                Ok(_) => None,
                Err(error) => Some(error),
            };
            if !retryable.is_decided_again(call, position, error)? {
                return outcome;
            }
        }
    }

    /// Reads the records of other processes again, after a statement that has failed or committed nothing. Returns true
    /// if another process has run the statement, or if the statement was refused because of another record that has
    /// changed since its read. The records only change to later ones, so a statement is not decided again forever.
    ///
    /// Errors: TransactionTooOld, storage errors.
    pub(crate) fn is_decided_again(
        &mut self,
        call: &Call<'_>,
        position: usize,
        error: Option<&Error>,
    ) -> Result<bool> {
        if !call.server.settings.shared || error.is_some_and(|error| ends_command(error, false)) {
            return Ok(false);
        }
        let stored = call.server.database.changed_retries(self.session.id, self.among)?;
        let Some(stored) = stored else { return Ok(false) };
        self.again |= self.session.add_stored(stored, self.number)?;
        let is_refused = error.is_some_and(|error| error.code() == ErrorCode::ConflictingOperationInProgress);
        Ok(is_refused || self.has_result(position))
    }

    /// Returns the recorded result of the statement at this position.
    pub(crate) fn recorded_result(&mut self, position: usize) -> Option<DocumentBuf> {
        if !self.again {
            return None;
        }
        let statement = self.statement(position);
        let answer = self.session.executed(self.number, statement)?;
        mark!("a write is answered from its record");
        self.retried.push(statement);
        Some(answer)
    }

    /// Returns true if the record has the statement at this position.
    pub(crate) fn has_result(&self, position: usize) -> bool {
        self.again && self.session.executed(self.number, self.statement(position)).is_some()
    }

    /// Returns the key of the retry record for the statement at this position.
    pub(crate) fn key(&self, position: usize) -> RetryKey {
        RetryKey { session: self.session.id, number: self.number, statement: self.statement(position) }
    }

    /// Records the result of the statement at this position.
    pub(crate) fn record(&self, position: usize, answer: DocumentBuf) {
        self.session.record(self.number, self.statement(position), answer);
    }

    /// Counts the statements that were answered from the record, and appends them as `retriedStmtIds`.
    pub(crate) fn append_retried(this: Option<&Retryable>, call: &mut Call<'_>) {
        let Some(this) = this.filter(|this| !this.retried.is_empty()) else { return };
        call.server.sessions.transactions.count_retried(this.retried.len());
        call.reply.begin_array(c"retriedStmtIds");
        for statement in &this.retried {
            call.reply.push(*statement);
        }
        call.reply.end();
    }

    /// Refuses a statement on many documents, which is not retryable.
    ///
    /// Errors: InvalidOptions with this message.
    pub(crate) fn check_single(this: Option<&Retryable>, multi: bool, message: &str) -> Result<()> {
        match this {
            Some(_) if multi => Err(err!(InvalidOptions, "{message}")),
            _ => Ok(()),
        }
    }

    fn statement(&self, position: usize) -> i32 {
        let listed = self.ids.as_ref().and_then(|ids| ids.get(position).copied());
        listed.unwrap_or(self.first.saturating_add(position as i32))
    }
}
