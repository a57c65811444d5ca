//! Shared parts of insert, update and delete: statements in order, errors by position, one reply.

use super::retry::Retryable;
use crate::call::{Call, HandlerStatus};
use crate::protocol::reply;
use base::bson::{Document, DocumentBuf};
use base::{Error, ErrorCode, Result, bail};
use database::{Committed, RetryKey};
use wire::request::Documents;

/// Maximum number of statements in a command.
const STATEMENTS_MAX: usize = 100_000;

/// Checks the number of statements of a command, and of their numbers in a retryable write.
///
/// Errors: InvalidLength for no statements or too many, or for another number of `stmtIds`; InvalidOptions for
/// `stmtId` beside `stmtIds`.
pub(crate) fn check_count(call: &Call<'_>, count: usize) -> Result<()> {
    if !(1..=STATEMENTS_MAX).contains(&count) {
        bail!(
            InvalidLength,
            "Write batch sizes must be between 1 and {STATEMENTS_MAX}. Got {count} operations."
        );
    }
    let Some(ids) = call.arguments.statement_ids else { return Ok(()) };
    let numbers = ids.iter().count();
    if numbers != count {
        bail!(
            InvalidLength,
            "Number of statement ids must match the number of batch entries. Got {numbers} statement ids but {count} \
             operations."
        );
    }
    if call.arguments.statement_id.is_some() {
        bail!(InvalidOptions, "May not specify both stmtId and stmtIds in write command.");
    }
    Ok(())
}

/// Runs a command on its state, which `begin` creates. A suspended command continues with its state.
///
/// Errors: errors of `begin` and `run`.
pub(crate) fn run_suspendable<W: Send + 'static>(
    call: &mut Call<'_>,
    begin: impl FnOnce(&Call<'_>) -> Result<W>,
    run: impl FnOnce(&mut Call<'_>, &mut W) -> Result<HandlerStatus>,
) -> Result<HandlerStatus> {
    let mut state = match call.resume() {
        Some(state) => state,
        None => begin(call)?,
    };
    run(call, &mut state).map_err(|error| call.keep(state, error))
}

/// A write command with a list of statements: its parsed fields, and the steps of its run.
pub(crate) trait WriteCommand<'d> {
    /// A parsed element of the list.
    type Statement;
    /// The running command. It is kept while a statement is suspended.
    type State: Send + 'static;

    /// Parses an element of the list.
    ///
    /// Errors: invalid fields.
    fn parse(&self, document: Document<'d>) -> Result<Self::Statement>;

    /// Creates the state, once all statements are parsed.
    ///
    /// Errors: those that precede the first statement.
    fn begin(&self, call: &Call<'_>) -> Result<Self::State>;

    /// Runs the statement at a position. Returns false if the command must stop.
    ///
    /// Errors: an error that ends the whole command, also the suspension of the statement.
    fn run(
        &self,
        call: &mut Call<'_>,
        state: &mut Self::State,
        position: usize,
        statement: &Self::Statement,
    ) -> Result<bool>;

    /// Appends the reply.
    ///
    /// Errors: an interrupted wait for the write concern.
    fn finish(&self, call: &mut Call<'_>, state: &mut Self::State) -> Result<HandlerStatus>;

    /// Runs the command on a list. A suspended command continues at the same statement, and parses the remaining
    /// statements again.
    ///
    /// Errors: errors of all steps.
    fn run_list(&self, call: &mut Call<'_>, list: Documents<'d>) -> Result<HandlerStatus> {
        let mut parsed = Vec::new();
        let (mut state, mut position, mut rest) = match call.resume() {
            Some(progress) => progress,
            None => {
                parsed.reserve_exact(list.len());
                for document in list.iter() {
                    parsed.push(self.parse(document)?);
                }
                (self.begin(call)?, 0, list.iter().rest())
            }
        };
        let mut run_remaining = || {
            let mut documents = list.iter_from(rest);
            while let Some(document) = documents.next() {
                let should_continue = match parsed.get(position) {
                    Some(statement) => self.run(call, &mut state, position, statement)?,
                    None => self.run(call, &mut state, position, &self.parse(document)?)?,
                };
                if !should_continue {
                    break;
                }
                position += 1;
                rest = documents.rest();
            }
            self.finish(call, &mut state)
        };
        run_remaining().map_err(|error| call.keep((state, position, rest), error))
    }
}

/// Running statements of a write command.
pub(crate) struct WriteBatch {
    ordered: bool,
    errors: Vec<(usize, Error)>,
    committed: Option<Committed>,
    /// True in a transaction, which fails with its first failed statement.
    in_transaction: bool,
    /// Retry state of a retryable command.
    pub(crate) retryable: Option<Retryable>,
}

/// Returns true if a statement is suspended and runs again.
pub(crate) fn is_suspended<T>(outcome: &Result<T>) -> bool {
    matches!(outcome, Err(error) if error.code() == ErrorCode::LockBusy)
}

/// Returns true if the error of a statement ends the whole command: after an interruption, and if the statement is
/// suspended.
pub(crate) fn ends_command(error: &Error, in_transaction: bool) -> bool {
    let is_interrupted = matches!(
        error.code(),
        ErrorCode::Interrupted
            | ErrorCode::InterruptedAtShutdown
            | ErrorCode::MaxTimeMSExpired
            | ErrorCode::LockBusy
            | ErrorCode::InterruptedDueToReplStateChange
    );
    // A retry of the whole transaction may succeed, so the error belongs to the command.
    is_interrupted || (in_transaction && reply::is_transient(error.code(), false, false))
}

/// Returns true if the error ends a retryable command because a retry may succeed: the store was not reached. Drivers
/// do not retry write errors.
pub(crate) fn may_retry(error: &Error, retryable: Option<&Retryable>) -> bool {
    retryable.is_some() && error.code() == ErrorCode::HostUnreachable
}

impl WriteBatch {
    /// Begins a batch of `count` statements.
    ///
    /// Errors: as [`check_count`].
    pub(crate) fn begin(call: &Call<'_>, count: usize, ordered: bool) -> Result<WriteBatch> {
        check_count(call, count)?;
        Ok(WriteBatch::with(call, ordered, Retryable::begin(call, count)?))
    }

    /// As [`begin`](Self::begin), with [`Retryable::begin_presuming`].
    pub(crate) fn begin_presuming(call: &Call<'_>, count: usize, ordered: bool) -> Result<WriteBatch> {
        check_count(call, count)?;
        Ok(WriteBatch::with(call, ordered, Retryable::begin_presuming(call, count)?))
    }

    fn with(call: &Call<'_>, ordered: bool, retryable: Option<Retryable>) -> WriteBatch {
        let in_transaction = call.transaction.is_some();
        WriteBatch { ordered, errors: Vec::new(), committed: None, in_transaction, retryable }
    }

    /// Returns the recorded result of a retried statement.
    pub(crate) fn recorded_result(&mut self, position: usize) -> Option<DocumentBuf> {
        self.retryable.as_mut()?.recorded_result(position)
    }

    /// Returns true if a failed statement must be decided again, see [`Retryable::is_decided_again`].
    pub(crate) fn is_decided_again(
        &mut self,
        call: &Call<'_>,
        position: usize,
        error: &Error,
    ) -> Result<bool> {
        let retryable = self.retryable.as_mut();
        retryable.map_or(Ok(false), |retryable| retryable.is_decided_again(call, position, Some(error)))
    }

    /// Returns true if the record has the statement.
    pub(crate) fn has_result(&self, position: usize) -> bool {
        self.retryable.as_ref().is_some_and(|retryable| retryable.has_result(position))
    }

    /// Returns the key of the retry record for a statement.
    pub(crate) fn key(&self, position: usize) -> Option<RetryKey> {
        self.retryable.as_ref().map(|retryable| retryable.key(position))
    }

    /// Records the result of a statement for retries.
    pub(crate) fn record(&self, position: usize, answer: impl FnOnce() -> DocumentBuf) {
        if let Some(retryable) = &self.retryable {
            retryable.record(position, answer());
        }
    }

    /// Stores the commit that the reply waits for.
    pub(crate) fn committed(&mut self, committed: Option<Committed>) {
        self.committed = committed.or(self.committed);
    }

    /// Adds the error of a statement. Returns false if the batch must stop.
    ///
    /// Errors: an error that ends the whole command (interruption, a suspended statement, an invalid namespace).
    pub(crate) fn failed(&mut self, position: usize, error: Error) -> Result<bool> {
        let ends = ends_command(&error, self.in_transaction) || may_retry(&error, self.retryable.as_ref());
        if ends || error.code() == ErrorCode::InvalidNamespace {
            return Err(error);
        }
        self.errors.push((position, error));
        Ok(!self.ordered && !self.in_transaction)
    }

    /// Appends `writeErrors`, waits for the write concern and appends its outcome.
    pub(crate) fn finish(&self, call: &mut Call<'_>) -> Result<HandlerStatus> {
        if call.is_unacknowledged() {
            return call.acknowledge(self.committed);
        }
        if !self.errors.is_empty() {
            // A failed statement fails the whole transaction.
            call.progress.statement_failed = self.in_transaction;
            call.reply.begin_array(c"writeErrors");
            for (position, error) in &self.errors {
                reply::write_error(call.reply, *position as i32, error);
            }
            call.reply.end();
        }
        Retryable::append_retried(self.retryable.as_ref(), call);
        call.acknowledge(self.committed)
    }
}
