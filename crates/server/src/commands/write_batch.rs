//! What insert, update and delete share: statements in order, errors by position, one reply.

use super::retry::Retryable;
use crate::call::Call;
use crate::reply;
use base::bson::DocumentBuf;
use base::{Error, ErrorCode, Result, err};
use database::{Committed, RetryKey};

/// The most statements in one command.
const STATEMENTS_MAX: usize = 100_000;

/// The statements of one write command as they are carried out.
pub(crate) struct WriteBatch {
    ordered: bool,
    errors: Vec<(usize, Error)>,
    committed: Option<Committed>,
    /// Whether the statements are part of a transaction, which ends with the first that fails.
    in_transaction: bool,
    /// The record of retryable statements, where the command is retryable.
    pub(crate) retryable: Option<Retryable>,
}

impl WriteBatch {
    /// Begins a batch of `count` statements.
    ///
    /// Errors: InvalidLength for none or too many.
    pub(crate) fn begin(call: &Call<'_>, count: usize, ordered: bool) -> Result<WriteBatch> {
        if !(1..=STATEMENTS_MAX).contains(&count) {
            return Err(err!(
                InvalidLength,
                "Write batch sizes must be between 1 and {STATEMENTS_MAX}. Got {count} operations."
            ));
        }
        let retryable = Retryable::begin(call, count)?;
        let in_transaction = call.transaction.is_some();
        Ok(WriteBatch { ordered, errors: Vec::new(), committed: None, in_transaction, retryable })
    }

    /// What the statement answered when it was sent before.
    pub(crate) fn answered(&mut self, position: usize) -> Option<DocumentBuf> {
        self.retryable.as_mut()?.answered(position)
    }

    /// Whether the statement was carried out when it was sent before.
    pub(crate) fn is_answered(&self, position: usize) -> bool {
        self.retryable.as_ref().is_some_and(|retryable| retryable.is_answered(position))
    }

    /// What the commit of a retryable statement is recorded under.
    pub(crate) fn key(&self, position: usize) -> Option<RetryKey> {
        self.retryable.as_ref().map(|retryable| retryable.key(position))
    }

    /// Remembers a statement's answer for when it is sent again.
    pub(crate) fn record(&self, position: usize, answer: impl FnOnce() -> DocumentBuf) {
        if let Some(retryable) = &self.retryable {
            retryable.record(position, answer());
        }
    }

    /// Notes a commit to wait for.
    pub(crate) fn committed(&mut self, committed: Option<Committed>) {
        self.committed = committed.or(self.committed);
    }

    /// Notes a statement's failure; `false` where the batch must stop.
    ///
    /// Errors: what ends the whole command (interruption, an invalid namespace).
    pub(crate) fn failed(&mut self, position: usize, error: Error) -> Result<bool> {
        let ends_command = matches!(
            error.code(),
            ErrorCode::InterruptedAtShutdown
                | ErrorCode::InterruptedDueToReplStateChange
                | ErrorCode::InvalidNamespace
        );
        // What another try of the whole transaction may mend is no failure of one statement.
        if ends_command || (self.in_transaction && reply::is_transient(error.code(), false, false)) {
            return Err(error);
        }
        // Time that has run out has run out for the statements behind this one too.
        let stops = matches!(error.code(), ErrorCode::MaxTimeMSExpired | ErrorCode::Interrupted);
        self.errors.push((position, error));
        Ok(!self.ordered && !stops && !self.in_transaction)
    }

    /// Appends `writeErrors`, waits for the write concern, and appends what came of that.
    pub(crate) fn finish(self, call: &mut Call<'_>) -> Result<()> {
        if !self.errors.is_empty() {
            // One statement's failure is that of the whole transaction.
            call.progress.statement_failed = self.in_transaction;
            call.reply.begin_array(c"writeErrors");
            for (position, error) in &self.errors {
                reply::write_error(call.reply, *position as i32, error);
            }
            call.reply.end();
        }
        Retryable::append_retried(self.retryable.as_ref(), call.reply);
        call.acknowledge(self.committed)
    }
}
