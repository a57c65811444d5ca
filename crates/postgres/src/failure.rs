//! What a PostgreSQL server answers where it doesn't do what it was asked.

use parking_lot::{Mutex, MutexGuard};
use std::io;
use std::time::Duration;
use storage::patience::{self, Reason};

/// How often somebody who waits looks whether he should go on.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// A statement that failed, or a connection that is gone.
#[derive(Debug, Clone)]
pub(crate) enum Failure {
    /// The server's answer: SQLSTATE and message.
    Server {
        /// Five characters.
        state: String,
        /// What the server says.
        message: String,
    },
    /// The catalog is newer than was expected.
    CatalogChanged,
    /// Whoever asked doesn't wait any longer, for this reason.
    GivenUp(Reason),
    /// The state that was read from has been given up, and no other will do.
    TooOld,
    /// The connection is of no more use. What a statement under way has done is unknown.
    Lost(String),
}

/// What a statement gives.
pub(crate) type Answer<T> = Result<T, Failure>;

/// Errors: `GivenUp` where whoever this thread works for doesn't wait any longer.
pub(crate) fn go_on() -> Answer<()> {
    patience::over().map_or(Ok(()), |reason| Err(Failure::GivenUp(reason)))
}

/// Takes a lock that others may hold while they wait for the server.
///
/// Errors: `GivenUp`.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> Answer<MutexGuard<'_, T>> {
    loop {
        if let Some(held) = mutex.try_lock_for(LOOK) {
            return Ok(held);
        }
        go_on()?;
    }
}

impl Failure {
    /// Whether the server has answered with this SQLSTATE.
    pub(crate) fn is(&self, wanted: &str) -> bool {
        matches!(self, Failure::Server { state, .. } if state == wanted)
    }

    /// Whether another transaction's change, or its lock, was in the way: serialization_failure,
    /// deadlock_detected, lock_not_available.
    pub(crate) fn is_conflict(&self) -> bool {
        ["40001", "40P01", "55P03"].iter().any(|state| self.is(state))
    }

    /// Whether nothing can be known of what the statement has done, or the server is going down.
    pub(crate) fn ends_connection(&self) -> bool {
        match self {
            Failure::Lost(_) => true,
            Failure::CatalogChanged | Failure::GivenUp(_) | Failure::TooOld => false,
            // A primary that has become a standby takes no writes any more.
            Failure::Server { state, .. } => {
                state.starts_with("57P") || state.starts_with("08") || state == "25006"
            }
        }
    }

    /// Whether all of the server's connections are taken.
    pub(crate) fn is_crowded(&self) -> bool {
        self.is("53300")
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Lost(error.to_string())
    }
}

impl From<Failure> for storage::Error {
    fn from(failure: Failure) -> storage::Error {
        match failure {
            Failure::Lost(why) => storage::Error::Unavailable(why),
            Failure::CatalogChanged => storage::Error::CatalogChanged,
            Failure::GivenUp(reason) => storage::Error::GivenUp(reason),
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
