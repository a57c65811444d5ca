//! Metrics that `serverStatus` and `/metrics` share.

use crate::observe::activity::Activities;
use database::Database;
use std::sync::atomic::Ordering;

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
        Process { user_micros: micros(11), system_micros: micros(12), reclaims: number(7), faults: number(9) }
    }
}
