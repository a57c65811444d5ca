//! What the server counts of itself, as serverStatus reports it.

use crate::counter::Counter;
use crate::operations::Operations;
use rustls::ProtocolVersion;

/// How often one way to log in was tried, and let somebody in.
#[derive(Default)]
pub(crate) struct LoginCounter {
    /// All tries.
    pub(crate) all: TryCounter,
    /// Those that began within a hello.
    pub(crate) early: TryCounter,
}

/// Tries, and those that came to something.
#[derive(Default)]
pub(crate) struct TryCounter {
    pub(crate) received: Counter,
    pub(crate) successful: Counter,
}

/// The ways to log in, as serverStatus sorts them.
pub(crate) const LOGINS: [&str; 3] = ["MONGODB-X509", "SCRAM-SHA-1", "SCRAM-SHA-256"];

/// All counts.
pub(crate) struct Counters {
    /// Bytes received, headers included.
    pub(crate) bytes_in: Counter,
    /// Bytes sent, headers included.
    pub(crate) bytes_out: Counter,
    /// Requests received.
    pub(crate) requests: Counter,
    /// Documents inserted one by one, as opcounters has them.
    pub(crate) inserted: Counter,
    /// Update statements.
    pub(crate) updated: Counter,
    /// Delete statements.
    pub(crate) deleted: Counter,
    /// Documents returned in batches.
    pub(crate) returned: Counter,
    /// Errors that clients caused.
    pub(crate) user_asserts: Counter,
    /// Handlers that panicked.
    pub(crate) panics: Counter,
    /// Connections refused for their number.
    pub(crate) connections_rejected: Counter,
    /// Connections by their version of TLS: as [`PROTOCOLS`] has them, then others.
    pub(crate) protocols: [Counter; 5],
    /// Hellos that asked how a user can log in.
    pub(crate) mechanisms_asked: Counter,
    /// Tries to log in: as [`LOGINS`] has them.
    pub(crate) logins: [LoginCounter; LOGINS.len()],
    /// Commands by database.
    pub(crate) operations: Operations,
}

/// The versions of TLS that are counted, by MongoDB's names of them. The first two nobody gets.
pub(crate) const PROTOCOLS: [(&str, ProtocolVersion); 4] = [
    ("1.0", ProtocolVersion::TLSv1_0),
    ("1.1", ProtocolVersion::TLSv1_1),
    ("1.2", ProtocolVersion::TLSv1_2),
    ("1.3", ProtocolVersion::TLSv1_3),
];

impl Counters {
    /// Counts at zero, for a table of this many commands.
    pub(crate) fn new(commands: usize) -> Counters {
        Counters {
            bytes_in: Counter::default(),
            bytes_out: Counter::default(),
            requests: Counter::default(),
            inserted: Counter::default(),
            updated: Counter::default(),
            deleted: Counter::default(),
            returned: Counter::default(),
            user_asserts: Counter::default(),
            panics: Counter::default(),
            connections_rejected: Counter::default(),
            protocols: Default::default(),
            mechanisms_asked: Counter::default(),
            logins: Default::default(),
            operations: Operations::new(commands),
        }
    }

    /// Counts a try to log in, or that one has let somebody in.
    pub(crate) fn count_login(&self, mechanism: &str, is_early: bool, of: fn(&TryCounter) -> &Counter) {
        let at = LOGINS.iter().position(|known| *known == mechanism);
        if let Some(counter) = at.and_then(|at| self.logins.get(at)) {
            of(&counter.all).add(1);
            of(&counter.early).add(u64::from(is_early));
        }
    }

    /// Counts a connection of this version of TLS.
    pub(crate) fn count_protocol(&self, protocol: Option<ProtocolVersion>) {
        let at = PROTOCOLS.iter().position(|(_, known)| Some(*known) == protocol);
        if let Some(counter) = self.protocols.get(at.unwrap_or(PROTOCOLS.len())) {
            counter.add(1);
        }
    }
}
