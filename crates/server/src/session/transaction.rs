//! The transaction of a session: none, open, committing, committed or aborted.
//!
//! A session has one transaction at a time, identified by its number. A command names it by
//! `txnNumber` with `autocommit: false`, and begins it with `startTransaction: true`. A failed
//! statement aborts it. Statements of a session run one after another. Only the lifetime limit,
//! killSessions and the end of the session change the state concurrently.
//!
//! The database has the changes and the snapshot ([`OpenTransaction`]); this module has the state that a client sees. A
//! new reason to end a transaction is a function of [`Session`] that calls [`Transaction::abort`].

use super::Session;
use crate::protocol::api::ApiParameters;
use crate::protocol::read_concern::{ReadConcern, RequestedReadConcern};
use crate::protocol::session_id;
use base::bson::{Builder, Value};
use base::{Error, Result, bail, err};
use database::mark;
use database::time;
use database::{Committed, Database, OpenTransaction, Operation, Queue, RetryKey, Ticket};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::{Duration, Instant};

/// Time for a commit to be repeated after a load-balanced connection has closed.
const COMMIT_RETRY_TIME: Duration = Duration::from_secs(2);

/// The latest transaction of a session.
#[derive(Default)]
pub(crate) struct Transaction {
    number: Option<i64>,
    state: State,
}

#[derive(Default)]
enum State {
    #[default]
    None,
    Open(Open),
    /// In the commit, which cannot be interrupted.
    Committing,
    Committed(Committed),
    Aborted,
}

/// The beginning of a transaction.
pub(crate) struct Start<'a> {
    pub(crate) read_concern: &'a RequestedReadConcern,
    pub(crate) api: ApiParameters<'static>,
    /// Execution ticket, if transactions are limited.
    pub(crate) ticket: Option<Ticket<Arc<Queue>>>,
}

/// An open transaction.
struct Open {
    transaction: Arc<OpenTransaction>,
    /// Execution ticket, if transactions are limited.
    ticket: Option<Ticket<Arc<Queue>>>,
    began: Instant,
    began_millis: i64,
    read_concern: RequestedReadConcern,
    api: ApiParameters<'static>,
    /// Connection of the last statement.
    connection_id: i32,
    /// Time when this load-balanced connection closed.
    closed: Option<Instant>,
    /// Total duration of its statements.
    active: Duration,
    /// Start of the current statement.
    running: Option<Instant>,
}

/// Counters of all transactions and retried writes for serverStatus.
#[derive(Default)]
pub(crate) struct TransactionCounters {
    started: AtomicU64,
    committed: AtomicU64,
    aborted: AtomicU64,
    open: AtomicI64,
    active: AtomicI64,
    retried_commands: AtomicU64,
    retried_statements: AtomicU64,
}

/// A snapshot of the counters: open transactions, open transactions with a running statement, and
/// totals.
pub(crate) struct TransactionStats {
    pub(crate) open: i64,
    pub(crate) active: i64,
    pub(crate) started: i64,
    pub(crate) committed: i64,
    pub(crate) aborted: i64,
}

impl Session {
    /// Restores the last transaction that an earlier process committed.
    pub(crate) fn restore_transaction(&self, number: i64, committed: Committed) {
        *self.transaction.lock() = Transaction { number: Some(number), state: State::Committed(committed) };
    }

    /// Returns true if the session has had a transaction.
    pub(crate) fn has_transaction(&self) -> bool {
        self.transaction.lock().number.is_some()
    }

    /// Returns true if a transaction is open.
    pub(crate) fn has_open_transaction(&self) -> bool {
        matches!(self.transaction.lock().state, State::Open(_))
    }

    /// Checks that a statement has the API parameters of the open transaction's first statement. A mismatch does not
    /// abort the transaction. The beginning of another transaction is checked too, as in MongoDB.
    ///
    /// Errors: APIMismatchError.
    pub(crate) fn check_api(&self, command: &str, api: ApiParameters<'_>) -> Result<()> {
        match &self.transaction.lock().state {
            State::Open(open) if open.api != api => Err(err!(
                APIMismatchError,
                "API parameter mismatch: {command} used params {api}, the transaction's first command used {}",
                open.api
            )),
            _ => Ok(()),
        }
    }

    /// Begins or continues a transaction for a statement. `start` belongs to the first statement.
    ///
    /// Errors: TransactionTooOld, NoSuchTransaction, TransactionCommitted,
    /// ConflictingOperationInProgress; a snapshot that no longer exists.
    pub(crate) fn enter_transaction(
        &self,
        database: &Arc<Database>,
        counters: &TransactionCounters,
        number: i64,
        start: Option<Start<'_>>,
        connection_id: i32,
    ) -> Result<Arc<OpenTransaction>> {
        let mut current = self.transaction.lock();
        let newest = current.newest(self);
        current.check_age(self, number)?;
        if let Some(Start { read_concern, api, ticket }) = start {
            if newest == Some(number) {
                bail!(
                    ConflictingOperationInProgress,
                    "Only servers in a sharded cluster can start a new transaction at the active transaction number"
                );
            }
            // A transaction that replaces another one takes over its ticket.
            let own = match &mut current.state {
                State::Open(open) => open.ticket.take(),
                _ => None,
            };
            current.abort(database, counters);
            // The store may be remote and its connections busy. The lock is released, so that readers of the session's
            // state do not wait. Other statements wait in the session's queue.
            drop(current);
            let retry = RetryKey { session: self.id, number, statement: 0 };
            let transaction = database.begin_transaction(read_concern.at, Some(retry))?;
            counters.started.fetch_add(1, Relaxed);
            counters.open.fetch_add(1, Relaxed);
            current = self.transaction.lock();
            current.number = Some(number);
            current.state = State::Open(Open {
                transaction,
                ticket: ticket.or(own),
                began: time::now(),
                began_millis: database.now_millis(),
                read_concern: *read_concern,
                api,
                connection_id,
                closed: None,
                active: Duration::ZERO,
                running: None,
            });
            if self.ended.load(Acquire) {
                // The session has ended meanwhile, and nothing else would end the transaction.
                current.abort(database, counters);
            }
        }
        current.check_open(self, number)?;
        current.begin(database, counters, connection_id)
    }

    /// Aborts the transaction if its read concern does not support its new statement, which creates a collection or
    /// indexes.
    ///
    /// Errors: InvalidOptions.
    pub(crate) fn check_creation(
        &self,
        database: &Database,
        counters: &TransactionCounters,
        command: &str,
    ) -> Result<()> {
        let mut current = self.transaction.lock();
        let State::Open(Open { read_concern, .. }) = &current.state else { return Ok(()) };
        let concern = *read_concern;
        if concern.level.is_none_or(|level| level == ReadConcern::Local) {
            return Ok(());
        }
        current.end_statement(counters);
        current.abort(database, counters);
        Err(err!(
            InvalidOptions,
            "Command {command} does not support this transaction's {} :: caused by :: read concern not supported",
            concern.text()
        ))
    }

    /// Marks the end of a statement. A failure aborts the transaction.
    pub(crate) fn leave_transaction(
        &self,
        database: &Database,
        counters: &TransactionCounters,
        failed: bool,
    ) {
        let mut current = self.transaction.lock();
        current.end_statement(counters);
        if failed {
            current.abort(database, counters);
        }
    }

    /// Commits the transaction with this number. Repeats the acknowledgement if it is already
    /// committed.
    ///
    /// Errors: NoSuchTransaction, TransactionTooOld, errors of the commit.
    pub(crate) fn commit_transaction(
        &self,
        database: &Database,
        counters: &TransactionCounters,
        operation: &Operation,
        number: i64,
    ) -> Result<Committed> {
        let mut current = self.transaction.lock();
        current.check_number(self, number)?;
        match std::mem::replace(&mut current.state, State::Committing) {
            State::Committing => Err(err!(InternalError, "another commit of this transaction is running")),
            State::None => {
                current.state = State::None;
                Err(current.no_match(self, number))
            }
            State::Aborted => {
                current.state = State::Aborted;
                Err(aborted(number))
            }
            State::Committed(committed) => {
                mark!("a commit is repeated");
                current.state = State::Committed(committed);
                Ok(committed)
            }
            State::Open(open) => {
                // The commit may wait for the journal and for fsyncUnlock. The lock is released, so that readers of the
                // session's state do not wait.
                drop(current);
                let outcome = database.commit_transaction(operation, &open.transaction);
                counters.open.fetch_sub(1, Relaxed);
                self.transaction.lock().state = match &outcome {
                    Ok(committed) => State::Committed(*committed),
                    Err(_) => State::Aborted,
                };
                let counter = if outcome.is_ok() { &counters.committed } else { &counters.aborted };
                counter.fetch_add(1, Relaxed);
                outcome
            }
        }
    }

    /// Aborts the transaction with this number.
    ///
    /// Errors: NoSuchTransaction, TransactionCommitted, TransactionTooOld.
    pub(crate) fn abort_transaction(
        &self,
        database: &Database,
        counters: &TransactionCounters,
        number: i64,
    ) -> Result<()> {
        let mut current = self.transaction.lock();
        current.check_number(self, number)?;
        match &current.state {
            State::None => Err(current.no_match(self, number)),
            State::Aborted => Err(aborted(number)),
            State::Committing | State::Committed(_) => Err(committed(number)),
            State::Open(_) => {
                current.abort(database, counters);
                Ok(())
            }
        }
    }

    /// Aborts the open transaction, if any, for example at the end of the session.
    pub(crate) fn abort_any_transaction(&self, database: &Database, counters: &TransactionCounters) {
        self.transaction.lock().abort(database, counters);
    }

    /// Lets the open transaction expire soon if this connection ran its last statement. A commit that is repeated on
    /// another connection to this server still finds it.
    pub(crate) fn close_transaction_connection(&self, connection_id: i32) {
        if let State::Open(open) = &mut self.transaction.lock().state
            && open.connection_id == connection_id
        {
            open.closed = Some(time::now());
        }
    }

    /// Aborts the transaction if it is older than the limit, or if its load-balanced connection has closed. Returns
    /// true if it did.
    pub(crate) fn expire_transaction(
        &self,
        database: &Database,
        counters: &TransactionCounters,
        limit: Duration,
    ) -> bool {
        let mut current = self.transaction.lock();
        let expired = matches!(&current.state, State::Open(open) if time::since(open.began) >= limit
            || open.closed.is_some_and(|closed| time::since(closed) >= COMMIT_RETRY_TIME));
        if expired {
            mark!("an old transaction is aborted");
            log::info!(
                "aborting transaction {} on session {}: it is older than transactionLifetimeLimitSeconds, or its \
                 load-balanced connection has closed",
                current.number.unwrap_or_default(),
                session_id::text(&self.id)
            );
            current.abort(database, counters);
        }
        expired
    }

    /// Ends an earlier transaction before a retryable write with this number.
    ///
    /// Errors: TransactionTooOld; IncompleteTransactionHistory if the number belongs to a
    /// transaction.
    pub(crate) fn end_transaction(
        &self,
        database: &Database,
        counters: &TransactionCounters,
        number: i64,
    ) -> Result<()> {
        let mut current = self.transaction.lock();
        match current.number {
            Some(newest) if newest > number => Err(err!(
                TransactionTooOld,
                "Retryable write with txnNumber {number} is prohibited on session {} because a newer transaction with \
                 txnNumber {newest} has already started on this session.",
                session_id::text(&self.id)
            )),
            Some(newest) if newest == number && !matches!(current.state, State::None) => Err(err!(
                IncompleteTransactionHistory,
                "Cannot retry a retryable write that has been converted into a transaction"
            )),
            _ => {
                current.abort(database, counters);
                Ok(())
            }
        }
    }

    /// Appends the open transaction for `currentOp`. `idle` selects transactions without a running
    /// statement, otherwise transactions with one.
    pub(crate) fn describe_transaction(&self, lifetime: Duration, idle: bool, out: &mut Builder) -> bool {
        let current = self.transaction.lock();
        let State::Open(open) = &current.state else { return false };
        if idle != open.running.is_none() {
            return false;
        }
        let time_open = time::since(open.began);
        let active = open.active + open.running.map_or(Duration::ZERO, time::since);
        out.begin_document(c"transaction").begin_document(c"parameters");
        out.append(c"txnNumber", current.number.unwrap_or_default()).append(c"autocommit", false);
        out.begin_document(c"readConcern");
        out.append_optional(c"level", open.read_concern.level.map(|level| Value::String(level.name())));
        out.end().end();
        out.append(c"readTimestamp", Value::Timestamp(open.transaction.time()));
        out.append(c"startWallClockTime", &crate::process::logging::format_time(open.began_millis));
        out.append(c"timeOpenMicros", time_open.as_micros() as i64);
        out.append(c"timeActiveMicros", active.as_micros() as i64);
        out.append(c"timeInactiveMicros", time_open.saturating_sub(active).as_micros() as i64);
        let expiry = open.began_millis + lifetime.as_millis() as i64;
        out.append(c"expiryTime", &crate::process::logging::format_time(expiry)).end();
        true
    }
}

impl Transaction {
    /// Returns the newest number of the session, of a transaction or a retryable write.
    fn newest(&self, session: &Session) -> Option<i64> {
        self.number.max(session.newest_write())
    }

    /// Checks that no newer number exists.
    ///
    /// Errors: TransactionTooOld.
    fn check_age(&self, session: &Session, number: i64) -> Result<()> {
        let Some(newest) = self.newest(session).filter(|newest| *newest > number) else { return Ok(()) };
        let (kind, counter) = match self.number == Some(newest) {
            true => ("transaction", 0),
            false => ("retryable write", -1),
        };
        Err(err!(
            TransactionTooOld,
            "Cannot start transaction with {{ txnNumber: {number} }} on session {} because a newer {kind} with \
             txnNumberAndRetryCounter {{ txnNumber: {newest}, txnRetryCounter: {counter} }} has already started on this \
             session.",
            session_id::text(&session.id)
        ))
    }

    /// Checks that the newest number is this transaction's.
    ///
    /// Errors: TransactionTooOld; NoSuchTransaction if the newest number is another or belongs to a
    /// write.
    fn check_number(&self, session: &Session, number: i64) -> Result<()> {
        self.check_age(session, number)?;
        match self.number == Some(number) && self.newest(session) == Some(number) {
            true => Ok(()),
            false => Err(self.no_match(session, number)),
        }
    }

    fn no_match(&self, session: &Session, number: i64) -> Error {
        err!(
            NoSuchTransaction,
            "Given transaction number {number} on session {} using txnRetryCounter 0 does not match any in-progress \
             transactions. The active transaction number is {}",
            session_id::text(&session.id),
            self.newest(session).unwrap_or(-1)
        )
    }

    /// Checks that the open transaction has this number.
    fn check_open(&self, session: &Session, number: i64) -> Result<()> {
        self.check_number(session, number)?;
        match &self.state {
            State::None => Err(self.no_match(session, number)),
            State::Aborted => Err(aborted(number)),
            State::Committing | State::Committed(_) => Err(committed(number)),
            State::Open(_) => Ok(()),
        }
    }

    /// Begins a statement of the open transaction.
    fn begin(
        &mut self,
        database: &Database,
        counters: &TransactionCounters,
        connection_id: i32,
    ) -> Result<Arc<OpenTransaction>> {
        let number = self.number.unwrap_or(-1);
        let State::Open(open) = &mut self.state else { return Err(aborted(number)) };
        if open.transaction.has_lost_snapshot() {
            let error = open.transaction.ended_error();
            self.abort(database, counters);
            return Err(error);
        }
        open.running = Some(time::now());
        open.connection_id = connection_id;
        open.closed = None;
        counters.active.fetch_add(1, Relaxed);
        Ok(open.transaction.clone())
    }

    fn end_statement(&mut self, counters: &TransactionCounters) {
        if let State::Open(open) = &mut self.state
            && let Some(since) = open.running.take()
        {
            open.active += time::since(since);
        }
        counters.active.fetch_sub(1, Relaxed);
    }

    fn abort(&mut self, database: &Database, counters: &TransactionCounters) {
        if let State::Open(open) = &self.state {
            database.abort_transaction(&open.transaction);
            counters.open.fetch_sub(1, Relaxed);
            counters.aborted.fetch_add(1, Relaxed);
            self.state = State::Aborted;
        }
    }
}

impl TransactionCounters {
    /// Returns true if any transaction is open.
    pub(crate) fn any_open(&self) -> bool {
        self.open.load(Relaxed) > 0
    }

    /// Counts a write of which these statements were answered from their records.
    pub(crate) fn count_retried(&self, statements: usize) {
        self.retried_commands.fetch_add(u64::from(statements > 0), Relaxed);
        self.retried_statements.fetch_add(statements as u64, Relaxed);
    }

    /// Returns a snapshot of the counters.
    pub(crate) fn stats(&self) -> TransactionStats {
        let (open, active) = (self.open.load(Relaxed).max(0), self.active.load(Relaxed).max(0));
        let count = |counter: &AtomicU64| counter.load(Relaxed) as i64;
        TransactionStats {
            open,
            active: active.min(open),
            started: count(&self.started),
            committed: count(&self.committed),
            aborted: count(&self.aborted),
        }
    }

    /// Appends the fields of serverStatus' section.
    pub(crate) fn append_to(&self, out: &mut Builder) {
        let TransactionStats { open, active, started, committed, aborted } = self.stats();
        out.append(c"retriedCommandsCount", self.retried_commands.load(Relaxed) as i64);
        out.append(c"retriedStatementsCount", self.retried_statements.load(Relaxed) as i64);
        out.append(c"transactionsCollectionWriteCount", 0i64);
        out.append(c"currentActive", active).append(c"currentInactive", open - active);
        out.append(c"currentOpen", open).append(c"totalAborted", aborted);
        out.append(c"totalCommitted", committed).append(c"totalStarted", started);
        out.append(c"totalPrepared", 0i64).append(c"totalPreparedThenCommitted", 0i64);
        out.append(c"totalPreparedThenAborted", 0i64).append(c"currentPrepared", 0i64);
    }
}

fn aborted(number: i64) -> Error {
    err!(NoSuchTransaction, "Transaction with {{ txnNumber: {number} }} has been aborted.")
}

fn committed(number: i64) -> Error {
    err!(TransactionCommitted, "Transaction with {{ txnNumber: {number} }} has been committed.")
}
