//! Counters of the server and of its logins, as serverStatus reports them.

use crate::observe::operations::Operations;
use crate::process::counter::Counter;
use rustls::ProtocolVersion;

/// All counters.
#[derive(Default)]
pub(crate) struct Counters {
    /// Bytes received, including headers.
    pub(crate) bytes_in: Counter,
    /// Bytes sent, including headers.
    pub(crate) bytes_out: Counter,
    /// Requests received.
    pub(crate) requests: Counter,
    /// Inserted documents, as in opcounters.
    pub(crate) inserted: Counter,
    /// Update statements.
    pub(crate) updated: Counter,
    /// Delete statements.
    pub(crate) deleted: Counter,
    /// Documents returned in batches.
    pub(crate) returned: Counter,
    /// Errors caused by clients.
    pub(crate) user_asserts: Counter,
    /// Panics of handlers.
    pub(crate) panics: Counter,
    /// Connections refused by the connection limit.
    pub(crate) connections_rejected: Counter,
    /// Connections by TLS version: in the order of [`PROTOCOLS`], then other versions.
    pub(crate) protocols: [Counter; 5],
    /// Commands by database.
    pub(crate) operations: Operations,
}

/// TLS versions with MongoDB's names. The server never negotiates the first two.
pub(crate) const PROTOCOLS: [(&str, ProtocolVersion); 4] = [
    ("1.0", ProtocolVersion::TLSv1_0),
    ("1.1", ProtocolVersion::TLSv1_1),
    ("1.2", ProtocolVersion::TLSv1_2),
    ("1.3", ProtocolVersion::TLSv1_3),
];

impl Counters {
    /// Creates zero counters for a table of this many commands.
    pub(crate) fn new(commands: usize) -> Counters {
        Counters { operations: Operations::new(commands), ..Counters::default() }
    }

    /// Counts a connection with this TLS version.
    pub(crate) fn count_protocol(&self, protocol: Option<ProtocolVersion>) {
        let at = PROTOCOLS.iter().position(|(_, known)| Some(*known) == protocol);
        if let Some(counter) = self.protocols.get(at.unwrap_or(PROTOCOLS.len())) {
            counter.add(1);
        }
    }
}

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
