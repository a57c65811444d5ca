//! Errors of a PostgreSQL server and of the connection to it, and their meaning by SQLSTATE.

use parking_lot::{Mutex, MutexGuard};
use std::io;
use std::time::Duration;
use storage::cancellation::{self, Reason};

/// Interval at which a waiting thread checks for cancellation.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// A failed statement or a lost connection.
#[derive(Debug, Clone)]
pub(crate) enum Failure {
    /// An error of the server: SQLSTATE and message.
    Server {
        /// SQLSTATE, five characters.
        state: String,
        /// Message of the server.
        message: String,
    },
    /// The catalog is newer than the expected generation.
    CatalogChanged,
    /// The waiter gave up, for this reason.
    Interrupted(Reason),
    /// The snapshot was released, and the reader accepts no later one.
    TooOld,
    /// The connection is unusable. The effect of a running statement is unknown.
    Unavailable(String),
}

/// The result of a statement.
pub(crate) type PgResult<T> = Result<T, Failure>;

/// Checks for cancellation of the command that this thread works for.
///
/// Errors: `Interrupted` if the command has ended.
pub(crate) fn should_continue() -> PgResult<()> {
    cancellation::reason().map_or(Ok(()), |reason| Err(Failure::Interrupted(reason)))
}

/// Takes a lock whose holder may wait for the server.
///
/// Errors: `Interrupted`.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> PgResult<MutexGuard<'_, T>> {
    loop {
        if let Some(guard) = mutex.try_lock_for(CHECK_INTERVAL) {
            return Ok(guard);
        }
        should_continue()?;
    }
}

impl Failure {
    /// Returns true if the server's error has this SQLSTATE.
    pub(crate) fn is(&self, sqlstate: &str) -> bool {
        matches!(self, Failure::Server { state, .. } if state == sqlstate)
    }

    /// Returns true for a conflict with a change or a lock of another transaction: serialization_failure,
    /// deadlock_detected, lock_not_available.
    pub(crate) fn is_conflict(&self) -> bool {
        ["40001", "40P01", "55P03"].iter().any(|state| self.is(state))
    }

    /// Returns true if a condition of a change does not hold: an expectation, or a unique key.
    pub(crate) fn is_refusal(&self) -> bool {
        self.is("VE001") || self.is("23505")
    }

    /// Returns true if the effect of the statement is unknown, or if the server is shutting down.
    pub(crate) fn ends_connection(&self) -> bool {
        match self {
            Failure::Unavailable(_) => true,
            Failure::CatalogChanged | Failure::Interrupted(_) | Failure::TooOld => false,
            // A primary that became a standby takes no writes.
            Failure::Server { state, .. } => {
                state.starts_with("57P") || state.starts_with("08") || state == "25006"
            }
        }
    }

    /// Returns true if all connections of the server are in use.
    pub(crate) fn is_out_of_connections(&self) -> bool {
        self.is("53300")
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Unavailable(error.to_string())
    }
}

impl From<Failure> for storage::Error {
    fn from(failure: Failure) -> storage::Error {
        match failure {
            Failure::Unavailable(why) => storage::Error::Unavailable(why),
            Failure::CatalogChanged => storage::Error::CatalogChanged,
            Failure::Interrupted(reason) => storage::Error::Interrupted(reason),
            Failure::TooOld => storage::Error::SnapshotTooOld,
            Failure::Server { state, message } => match state.as_str() {
                "53100" | "53200" | "54000" => storage::Error::Full(message),
                "40001" | "40P01" | "55P03" => storage::Error::WriteConflict,
                "XX001" | "XX002" => storage::Error::Corrupted(message),
                _ => storage::Error::Unavailable(format!("{message} ({state})")),
            },
        }
    }
}
