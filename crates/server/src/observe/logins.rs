//! Counters of logins, as serverStatus reports them.

use crate::process::counter::Counter;

/// Logins by one mechanism.
#[derive(Default)]
pub(crate) struct LoginCounter {
    /// All attempts.
    pub(crate) all: TryCounter,
    /// Attempts that began inside a hello.
    pub(crate) early: TryCounter,
}

/// Attempts and successes.
#[derive(Default)]
pub(crate) struct TryCounter {
    pub(crate) received: Counter,
    pub(crate) successful: Counter,
}

/// Mechanisms in the order of serverStatus.
pub(crate) const LOGINS: [&str; 3] = ["MONGODB-X509", "SCRAM-SHA-1", "SCRAM-SHA-256"];

/// Counters of logins.
#[derive(Default)]
pub(crate) struct Logins {
    /// Hellos that requested a user's mechanisms.
    pub(crate) mechanisms_asked: Counter,
    /// Login attempts in the order of [`LOGINS`].
    pub(crate) attempts: [LoginCounter; LOGINS.len()],
}

impl Logins {
    /// Counts a login attempt or a success.
    pub(crate) fn count(&self, mechanism: &str, is_early: bool, of: fn(&TryCounter) -> &Counter) {
        let at = LOGINS.iter().position(|known| *known == mechanism);
        if let Some(counter) = at.and_then(|at| self.attempts.get(at)) {
            of(&counter.all).add(1);
            of(&counter.early).add(u64::from(is_early));
        }
    }
}
