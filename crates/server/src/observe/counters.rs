//! Counters of the server and of its logins, and counts of its present connections and collections, for `serverStatus`
//! and `/metrics`.

use crate::observe::activity::Activities;
use crate::observe::operations::Operations;
use crate::process::Counter;
use database::Database;
use rustls::ProtocolVersion;
use std::sync::atomic::Ordering;

/// All counters.
#[derive(Default)]
pub(crate) struct Counters {
    /// Bytes received, including headers.
    pub(crate) bytes_in: Counter,
    /// Bytes sent, including headers.
    pub(crate) bytes_out: Counter,
    /// Requests received.
    pub(crate) requests: Counter,
    /// Requests of commands that do not exist.
    pub(crate) unknown_commands: Counter,
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
    /// Update statements by command, in the order of [`UPDATERS`].
    updates: [UpdateCounter; UPDATERS.len()],
}

/// Commands that update documents.
const UPDATERS: [&str; 3] = ["bulkWrite", "findAndModify", "update"];

/// Update statements of a command that use a feature.
#[derive(Default)]
pub(crate) struct UpdateCounter {
    pub(crate) array_filters: Counter,
    pub(crate) pipeline: Counter,
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

    /// Returns the counters of the command's update statements, if it updates documents.
    pub(crate) fn updates_of(&self, command: &str) -> Option<&UpdateCounter> {
        let at = UPDATERS.iter().position(|known| *known == command)?;
        self.updates.get(at)
    }

    /// Counts an update statement of a command.
    pub(crate) fn count_update(&self, command: &str, is_pipeline: bool, has_array_filters: bool) {
        let Some(counter) = self.updates_of(command) else { return };
        if is_pipeline {
            counter.pipeline.add(1);
        }
        if has_array_filters {
            counter.array_filters.add(1);
        }
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

/// Connections by state.
#[derive(Default)]
pub(crate) struct Connections {
    /// Open connections.
    pub(crate) open: usize,
    /// Connections that the limit still allows.
    pub(crate) available: usize,
    /// Connections since the start.
    pub(crate) created: u64,
    /// Connections that run a command.
    pub(crate) active: i32,
    /// Connections that wait for a change of the topology.
    pub(crate) awaiting: i32,
    /// Connections with exhaust replies of hello.
    pub(crate) streams: i32,
    /// Connections with exhaust replies of isMaster.
    pub(crate) old_streams: i32,
}

impl Connections {
    /// Counts the present connections.
    pub(crate) fn of(activities: &Activities, connections_max: usize) -> Connections {
        let (open, created) = activities.counts();
        let available = connections_max.saturating_sub(open);
        let mut counts = Connections { open, available, created, ..Connections::default() };
        for activity in activities.all() {
            let Some(command) = activity.command() else { continue };
            let greets = matches!(command, "hello" | "isMaster");
            let is_streaming = greets && activity.streams.load(Ordering::Relaxed);
            counts.active += 1;
            // Other hellos are answered at once.
            counts.awaiting += i32::from(greets);
            counts.streams += i32::from(is_streaming && command == "hello");
            counts.old_streams += i32::from(is_streaming && command == "isMaster");
        }
        counts
    }
}

/// Collections by kind.
#[derive(Default)]
pub(crate) struct Collections {
    /// Collections of users, including capped and clustered collections.
    pub(crate) ordinary: i32,
    pub(crate) capped: i32,
    pub(crate) clustered: i32,
    pub(crate) views: i32,
    /// Collections of the server.
    pub(crate) internal: i32,
}

impl Collections {
    /// Counts the present collections.
    pub(crate) fn of(database: &Database) -> Collections {
        let mut counts = Collections::default();
        for collection in database.catalog().all() {
            let is_internal = collection.namespace.is_internal();
            match collection.is_view() {
                true => counts.views += 1,
                false if is_internal => counts.internal += 1,
                false => {
                    counts.ordinary += 1;
                    counts.capped += i32::from(collection.options.capped.is_some());
                    counts.clustered += i32::from(collection.options.clustered.is_some());
                }
            }
        }
        counts
    }
}

/// The kernel's counters of this process, where available.
#[derive(Default)]
pub(crate) struct Process {
    /// CPU time in user mode, in microseconds.
    pub(crate) user_micros: Option<i64>,
    /// CPU time in the kernel, in microseconds.
    pub(crate) system_micros: Option<i64>,
    /// Minor page faults.
    pub(crate) reclaims: Option<i64>,
    /// Major page faults.
    pub(crate) faults: Option<i64>,
    /// Context switches of all threads while they waited.
    pub(crate) voluntary_switches: Option<i64>,
    /// Other context switches of all threads.
    pub(crate) involuntary_switches: Option<i64>,
}

impl Process {
    /// Reads the present values.
    pub(crate) fn now() -> Process {
        const TICKS_PER_SECOND: i64 = 100;
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // The program's name stands in brackets and may contain blanks.
        let stat: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let number = |at: usize| stat.get(at).and_then(|text| text.parse::<i64>().ok());
        let micros = |at: usize| number(at).map(|ticks| ticks * (1_000_000 / TICKS_PER_SECOND));
        let switches = context_switches();
        Process {
            user_micros: micros(11),
            system_micros: micros(12),
            reclaims: number(7),
            faults: number(9),
            voluntary_switches: switches.map(|(voluntary, _)| voluntary),
            involuntary_switches: switches.map(|(_, involuntary)| involuntary),
        }
    }
}

/// Returns the voluntary and other context switches of all threads, ended threads included.
#[cfg(unix)]
fn context_switches() -> Option<(i64, i64)> {
    use nix::sys::resource::{UsageWho, getrusage};
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
    Some((usage.voluntary_context_switches(), usage.involuntary_context_switches()))
}

#[cfg(not(unix))]
fn context_switches() -> Option<(i64, i64)> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn context_switches_of_all_threads_count() {
        const SLEEPS: i64 = 20;
        let switches = || Process::now().voluntary_switches.unwrap();
        let before = switches();
        let sleep = || (0..SLEEPS).for_each(|_| std::thread::sleep(std::time::Duration::from_millis(1)));
        std::thread::spawn(sleep).join().unwrap();
        assert!(switches() - before >= SLEEPS);
    }
}
