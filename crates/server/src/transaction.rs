//! The transaction of a session: none, under way, committed or aborted; and which commands may be part of one.
//!
//! A session has one transaction at a time, known by its number. A command names it by `txnNumber` with
//! `autocommit: false`, and begins it with `startTransaction: true`. What a statement fails with ends the
//! transaction. Statements of one session run one after another, so the state changes under nobody's feet
//! but the clock's, killSessions' and the session's end.

use crate::arguments::{Arguments, ReadConcern};
use crate::command::Command;
use crate::server::Server;
use crate::session::Session;
use crate::session_id;
use base::bson::{Builder, Value};
use base::{Error, ErrorCode, Result, err};
use database::{Committed, Database, OpenTransaction, Operation, RetryKey};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The commands that may be part of a transaction. Sorted.
const ALLOWED: &[&str] = &[
    "abortTransaction",
    "aggregate",
    "bulkWrite",
    "commitTransaction",
    "create",
    "createIndexes",
    "delete",
    "distinct",
    "find",
    "findAndModify",
    "getMore",
    "insert",
    "killCursors",
    "update",
];

/// The commands that may carry a transaction number without being part of a transaction. Sorted.
const RETRYABLE: &[&str] = &["bulkWrite", "delete", "findAndModify", "insert", "update"];

/// How a command takes part in a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Participation {
    /// Whether it begins the transaction.
    pub(crate) starts: bool,
}

/// A session's latest transaction.
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
    Committed(Committed),
    Aborted,
}

/// A transaction under way.
struct Open {
    transaction: Arc<OpenTransaction>,
    began: Instant,
    began_millis: i64,
    read_concern: Option<ReadConcern>,
    /// How long its statements have run together.
    active: Duration,
    /// Since when its present statement runs.
    running: Option<Instant>,
}

/// What has become of all transactions, for serverStatus.
#[derive(Default)]
pub(crate) struct TransactionCounters {
    started: AtomicU64,
    committed: AtomicU64,
    aborted: AtomicU64,
    open: AtomicI64,
    active: AtomicI64,
}

impl Arguments<'_> {
    /// Checks what a command says of transactions, before it is known whether there is one.
    ///
    /// Errors: InvalidOptions and others as MongoDB's, OperationNotSupportedInTransaction for a command that
    /// can't be part of one, IllegalOperation on a standalone.
    pub(crate) fn check_transaction(
        &mut self,
        (autocommit, start): (Option<bool>, Option<bool>),
        command: &Command,
        is_replica_set: bool,
    ) -> Result<()> {
        if self.transaction_number.is_some() && self.session.is_none() {
            return Err(err!(
                InvalidOptions,
                "Transaction number requires a session ID to also be specified"
            ));
        }
        if self.transaction_number.is_none() && autocommit.is_some() {
            return Err(err!(
                InvalidOptions,
                "'autocommit' field requires a transaction number to also be specified"
            ));
        }
        match autocommit {
            Some(true) => return Err(err!(InvalidOptions, "Specifying autocommit=true is not allowed.")),
            Some(false) => {}
            None if start.is_some() => {
                return Err(err!(
                    InvalidOptions,
                    "'startTransaction' field requires 'autocommit' field to also be specified"
                ));
            }
            None => return self.check_no_transaction(command),
        }
        if start == Some(false) {
            return Err(err!(InvalidOptions, "Specifying startTransaction=false is not allowed."));
        }
        if !is_replica_set {
            return Err(err!(
                IllegalOperation,
                "Transaction numbers are only allowed on a replica set member or mongos"
            ));
        }
        let ends = command.name.ends_with("Transaction");
        self.transaction = Some(Participation { starts: start.is_some() });
        check_allowed(command)?;
        if start.is_some() && ends {
            return Err(err!(
                OperationNotSupportedInTransaction,
                "Cannot run '{}' as the first command of a transaction.",
                command.name
            ));
        }
        if self.write_concern.is_some() && !ends {
            return Err(err!(
                InvalidOptions,
                "writeConcern is not allowed within a multi-statement transaction"
            ));
        }
        match self.read_concern {
            Some(_) if start.is_none() => {
                Err(err!(InvalidOptions, "Only the first command in a transaction may specify a readConcern"))
            }
            None | Some(ReadConcern::Local | ReadConcern::Majority | ReadConcern::Snapshot) => Ok(()),
            Some(_) => Err(err!(
                InvalidOptions,
                "The readConcern level must be either 'local' (default), 'majority' or 'snapshot' in order to run in \
                 a transaction"
            )),
        }
    }

    fn check_no_transaction(&self, command: &Command) -> Result<()> {
        match self.transaction_number {
            Some(_) if RETRYABLE.binary_search(&command.name).is_err() => Err(err!(
                50768,
                "txnNumber may only be provided for multi-document transactions and retryable write commands. \
                 autocommit:false was not provided, and {} is not a retryable write command.",
                command.name
            )),
            _ => Ok(()),
        }
    }
}

fn check_allowed(command: &Command) -> Result<()> {
    if ALLOWED.binary_search(&command.name).is_ok() {
        return Ok(());
    }
    let alternative = match command.name {
        "count" => {
            " Please see http://dochub.mongodb.org/core/transaction-count for a recommended alternative."
        }
        _ => "",
    };
    Err(err!(
        OperationNotSupportedInTransaction,
        "Cannot run '{}' in a multi-document transaction.{alternative}",
        command.name
    ))
}

/// Checks that a transaction may touch a namespace.
///
/// Errors: OperationNotSupportedInTransaction.
pub(crate) fn check_namespace(command: &Command, database: &str, collection: &str) -> Result<()> {
    let ends = command.name.ends_with("Transaction");
    let is_read = matches!(command.name, "find" | "aggregate" | "distinct" | "getMore" | "killCursors");
    if matches!(database, "config" | "local") || (database == "admin" && !ends && !is_read) {
        return Err(err!(
            OperationNotSupportedInTransaction,
            "Cannot run command against the '{database}' database in a transaction."
        ));
    }
    if collection.starts_with("system.") && !is_read && collection != "system.views" {
        return Err(err!(
            OperationNotSupportedInTransaction,
            "Cannot run command against the '{database}.{collection}' collection in a transaction."
        ));
    }
    Ok(())
}

/// Whether a client may try the whole transaction again after this error of one of its statements, or of its
/// end.
pub(crate) fn is_transient(code: ErrorCode, ends: bool) -> bool {
    use ErrorCode as C;
    match code {
        C::WriteConflict
        | C::LockTimeout
        | C::NoSuchTransaction
        | C::SnapshotUnavailable
        | C::SnapshotTooOld
        | C::PreparedTransactionInProgress => true,
        C::NotWritablePrimary
        | C::NotPrimaryNoSecondaryOk
        | C::NotPrimaryOrSecondary
        | C::PrimarySteppedDown
        | C::InterruptedDueToReplStateChange
        | C::InterruptedAtShutdown
        | C::ShutdownInProgress
        | C::HostUnreachable
        | C::HostNotFound
        | C::NetworkTimeout
        | C::SocketException => !ends,
        _ => false,
    }
}

impl Session {
    /// Begins or goes on with a transaction for one of its statements.
    ///
    /// Errors: TransactionTooOld, NoSuchTransaction, TransactionCommitted, ConflictingOperationInProgress; those
    /// of a snapshot that is gone.
    pub(crate) fn enter_transaction(
        &self,
        server: &Server,
        number: i64,
        starts: bool,
        arguments: &Arguments<'_>,
    ) -> Result<Arc<OpenTransaction>> {
        let newest_write = self.newest_write();
        let mut own = self.transaction.lock();
        let newest = own.number.max(newest_write);
        if newest.is_some_and(|newest| newest > number) {
            return Err(err!(
                TransactionTooOld,
                "Cannot start transaction with {{ txnNumber: {number} }} on session {} because a newer transaction \
                 with txnNumber {} has already started on this session.",
                session_id::text(&self.id),
                newest.unwrap_or_default()
            ));
        }
        if starts {
            if own.number == Some(number) && !matches!(own.state, State::None) {
                return Err(err!(
                    ConflictingOperationInProgress,
                    "Only servers in a sharded cluster can start a new transaction at the active transaction number"
                ));
            }
            own.abort(server);
            let retry = RetryKey { session: self.id, number, statement: 0 };
            let transaction = server.database.begin_transaction(arguments.at_cluster_time, Some(retry))?;
            server.transactions.started.fetch_add(1, Relaxed);
            server.transactions.open.fetch_add(1, Relaxed);
            own.number = Some(number);
            own.state = State::Open(Open {
                transaction,
                began: Instant::now(),
                began_millis: server.database.now_millis(),
                read_concern: arguments.read_concern,
                active: Duration::ZERO,
                running: None,
            });
        }
        own.current(number, newest)?;
        own.run(server)
    }

    /// Notes that a statement of the open transaction has ended; where it has failed, the transaction is
    /// aborted.
    pub(crate) fn leave_transaction(&self, server: &Server, failed: bool) {
        let mut own = self.transaction.lock();
        own.pause(server);
        if failed {
            own.abort(server);
        }
    }

    /// Commits the transaction of this number; once more where it is committed.
    ///
    /// Errors: NoSuchTransaction, TransactionTooOld, those of the commit.
    pub(crate) fn commit_transaction(
        &self,
        server: &Server,
        operation: &Operation,
        number: i64,
    ) -> Result<Committed> {
        let mut own = self.transaction.lock();
        own.check_number(self, number)?;
        match std::mem::take(&mut own.state) {
            State::None => Err(no_match(number, own.number)),
            State::Aborted => {
                own.state = State::Aborted;
                Err(aborted(number))
            }
            State::Committed(committed) => {
                own.state = State::Committed(committed);
                Ok(committed)
            }
            State::Open(open) => {
                server.transactions.open.fetch_sub(1, Relaxed);
                let outcome = server.database.commit_transaction(operation, &open.transaction);
                own.state = match &outcome {
                    Ok(committed) => State::Committed(*committed),
                    Err(_) => State::Aborted,
                };
                let counters = &server.transactions;
                let counter = if outcome.is_ok() { &counters.committed } else { &counters.aborted };
                counter.fetch_add(1, Relaxed);
                outcome
            }
        }
    }

    /// Aborts the transaction of this number.
    ///
    /// Errors: NoSuchTransaction, TransactionCommitted, TransactionTooOld.
    pub(crate) fn abort_transaction(&self, server: &Server, number: i64) -> Result<()> {
        let mut own = self.transaction.lock();
        own.check_number(self, number)?;
        match &own.state {
            State::None => Err(no_match(number, own.number)),
            State::Aborted => Err(aborted(number)),
            State::Committed(_) => Err(committed(number)),
            State::Open(_) => {
                own.abort(server);
                Ok(())
            }
        }
    }

    /// Aborts whatever transaction is under way, as at the end of the session.
    pub(crate) fn abort_any_transaction(&self, database: &Database, counters: &TransactionCounters) {
        self.transaction.lock().abort_in(database, counters);
    }

    /// Aborts the transaction if it is older than this; whether it was.
    pub(crate) fn expire_transaction(&self, server: &Server, limit: Duration) -> bool {
        let mut own = self.transaction.lock();
        let expired = matches!(&own.state, State::Open(open) if open.began.elapsed() >= limit);
        if expired {
            log::info!(
                "aborting transaction {} on session {}: it has been open for longer than \
                 transactionLifetimeLimitSeconds",
                own.number.unwrap_or_default(),
                session_id::text(&self.id)
            );
            own.abort(server);
        }
        expired
    }

    /// A retryable write of this number begins: the end of any transaction before it.
    ///
    /// Errors: TransactionTooOld, IncompleteTransactionHistory where the number is a transaction's.
    pub(crate) fn pass_transaction(&self, server: &Server, number: i64) -> Result<()> {
        let mut own = self.transaction.lock();
        match own.number {
            Some(newest) if newest > number => Err(err!(
                TransactionTooOld,
                "Retryable write with txnNumber {number} is prohibited on session {} because a newer transaction with \
                 txnNumber {newest} has already started on this session.",
                session_id::text(&self.id)
            )),
            Some(newest) if newest == number && !matches!(own.state, State::None) => Err(err!(
                IncompleteTransactionHistory,
                "Cannot run a retryable write with txnNumber {number} on session {}: the number is a transaction's",
                session_id::text(&self.id)
            )),
            _ => {
                own.abort(server);
                Ok(())
            }
        }
    }

    /// Appends what `currentOp` shows of the session's transaction, where one is under way; of one that runs a
    /// statement, or of one that is idle.
    pub(crate) fn describe_transaction(&self, lifetime: Duration, idle: bool, out: &mut Builder) -> bool {
        let own = self.transaction.lock();
        let State::Open(open) = &own.state else { return false };
        if idle != open.running.is_none() {
            return false;
        }
        let time_open = open.began.elapsed();
        let active = open.active + open.running.map_or(Duration::ZERO, |since| since.elapsed());
        out.begin_document("transaction").begin_document("parameters");
        out.append("txnNumber", own.number.unwrap_or_default()).append("autocommit", false);
        out.begin_document("readConcern");
        out.append_optional("level", open.read_concern.map(|concern| Value::String(concern.name())));
        out.end().end();
        out.append("readTimestamp", Value::Timestamp(open.transaction.time()));
        out.append("startWallClockTime", &crate::logging::format_time(open.began_millis));
        out.append("timeOpenMicros", time_open.as_micros() as i64);
        out.append("timeActiveMicros", active.as_micros() as i64);
        out.append("timeInactiveMicros", time_open.saturating_sub(active).as_micros() as i64);
        let expiry = open.began_millis + lifetime.as_millis() as i64;
        out.append("expiryTime", &crate::logging::format_time(expiry)).end();
        true
    }
}

impl Transaction {
    /// Checks that a statement of this number goes on with the transaction under way.
    fn current(&self, number: i64, newest: Option<i64>) -> Result<()> {
        if self.number != Some(number) {
            return Err(no_match(number, newest));
        }
        match &self.state {
            State::None => Err(no_match(number, newest)),
            State::Aborted => Err(aborted(number)),
            State::Committed(_) => Err(committed(number)),
            State::Open(_) => Ok(()),
        }
    }

    /// Begins a statement of the transaction under way.
    fn run(&mut self, server: &Server) -> Result<Arc<OpenTransaction>> {
        let State::Open(open) = &mut self.state else { return Err(no_match(0, self.number)) };
        open.running = Some(Instant::now());
        server.transactions.active.fetch_add(1, Relaxed);
        Ok(open.transaction.clone())
    }

    fn pause(&mut self, server: &Server) {
        if let State::Open(open) = &mut self.state
            && let Some(since) = open.running.take()
        {
            open.active += since.elapsed();
        }
        server.transactions.active.fetch_sub(1, Relaxed);
    }

    fn abort(&mut self, server: &Server) {
        self.abort_in(&server.database, &server.transactions);
    }

    fn abort_in(&mut self, database: &Database, counters: &TransactionCounters) {
        if let State::Open(open) = &self.state {
            database.abort_transaction(&open.transaction);
            counters.open.fetch_sub(1, Relaxed);
            counters.aborted.fetch_add(1, Relaxed);
            self.state = State::Aborted;
        }
    }

    fn check_number(&self, session: &Session, number: i64) -> Result<()> {
        match self.number {
            Some(newest) if newest > number => Err(err!(
                TransactionTooOld,
                "Cannot continue transaction with {{ txnNumber: {number} }} on session {} because a newer transaction \
                 with txnNumber {newest} has already started on this session.",
                session_id::text(&session.id)
            )),
            Some(newest) if newest == number => Ok(()),
            newest => Err(no_match(number, newest)),
        }
    }
}

impl TransactionCounters {
    /// Appends what serverStatus' section has.
    pub(crate) fn append_to(&self, out: &mut Builder) {
        let (open, active) = (self.open.load(Relaxed).max(0), self.active.load(Relaxed).max(0));
        let count = |counter: &AtomicU64| counter.load(Relaxed) as i64;
        out.append("retriedCommandsCount", 0i64).append("retriedStatementsCount", 0i64);
        out.append("transactionsCollectionWriteCount", 0i64);
        out.append("currentActive", active.min(open)).append("currentInactive", (open - active).max(0));
        out.append("currentOpen", open).append("totalAborted", count(&self.aborted));
        out.append("totalCommitted", count(&self.committed)).append("totalStarted", count(&self.started));
        out.append("totalPrepared", 0i64).append("totalPreparedThenCommitted", 0i64);
        out.append("totalPreparedThenAborted", 0i64).append("currentPrepared", 0i64);
    }
}

fn no_match(number: i64, active: Option<i64>) -> Error {
    match active {
        Some(active) => err!(
            NoSuchTransaction,
            "Given transaction number {number} does not match any in-progress transactions. The active transaction \
             number is {active}"
        ),
        None => err!(
            NoSuchTransaction,
            "Given transaction number {number} does not match any in-progress transactions. The active transaction \
             number is -1"
        ),
    }
}

fn aborted(number: i64) -> Error {
    err!(NoSuchTransaction, "Transaction with {{ txnNumber: {number} }} has been aborted.")
}

fn committed(number: i64) -> Error {
    err!(TransactionCommitted, "Transaction with {{ txnNumber: {number} }} has been committed.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_sorted() {
        assert!(ALLOWED.is_sorted() && RETRYABLE.is_sorted());
    }

    #[test]
    fn only_what_another_try_may_mend_is_transient() {
        assert!(
            is_transient(ErrorCode::WriteConflict, false) && is_transient(ErrorCode::WriteConflict, true)
        );
        assert!(is_transient(ErrorCode::InterruptedAtShutdown, false));
        assert!(!is_transient(ErrorCode::InterruptedAtShutdown, true));
        assert!(!is_transient(ErrorCode::DuplicateKey, false));
    }
}
