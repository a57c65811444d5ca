//! Figures that more than one place tells of, each worked out here: `serverStatus` and `/metrics` read the same.

use crate::activity::Activities;
use database::Database;
use std::sync::atomic::Ordering;

/// Connections, by what they do.
#[derive(Default)]
pub(crate) struct Connections {
    /// Open now.
    pub(crate) open: usize,
    /// How many more there may be.
    pub(crate) available: usize,
    /// All there have been.
    pub(crate) created: u64,
    /// Running something.
    pub(crate) active: i32,
    /// Waiting for a change of the topology.
    pub(crate) awaiting: i32,
    /// Those that get hellos unasked.
    pub(crate) streams: i32,
    /// The same by the old command.
    pub(crate) old_streams: i32,
}

impl Connections {
    /// Those of now.
    pub(crate) fn of(activities: &Activities, connections_max: usize) -> Connections {
        let (open, created) = activities.counts();
        let available = connections_max.saturating_sub(open);
        let mut found = Connections { open, available, created, ..Connections::default() };
        for activity in activities.all() {
            let Some(command) = activity.command() else { continue };
            let greets = matches!(command, "hello" | "isMaster");
            let is_streaming = greets && activity.streams.load(Ordering::Relaxed);
            found.active += 1;
            // Any other hello is answered at once.
            found.awaiting += i32::from(greets);
            found.streams += i32::from(is_streaming && command == "hello");
            found.old_streams += i32::from(is_streaming && command == "isMaster");
        }
        found
    }
}

/// How many collections there are of which kind.
#[derive(Default)]
pub(crate) struct Collections {
    /// Those of users, the two kinds below among them.
    pub(crate) ordinary: i32,
    pub(crate) capped: i32,
    pub(crate) clustered: i32,
    pub(crate) views: i32,
    /// Those of the server.
    pub(crate) internal: i32,
}

impl Collections {
    /// Those of now.
    pub(crate) fn of(database: &Database) -> Collections {
        let mut found = Collections::default();
        for collection in database.catalog().all() {
            let own = collection.namespace.is_internal();
            match collection.is_view() {
                true => found.views += 1,
                false if own => found.internal += 1,
                false => {
                    found.ordinary += 1;
                    found.capped += i32::from(collection.options.capped.is_some());
                    found.clustered += i32::from(collection.options.clustered.is_some());
                }
            }
        }
        found
    }
}

/// What the kernel has counted for this process, where it tells.
#[derive(Default)]
pub(crate) struct Process {
    /// Microseconds of CPU in the program itself.
    pub(crate) user_micros: Option<i64>,
    /// The same in the system for it.
    pub(crate) system_micros: Option<i64>,
    /// Page faults that needed no file.
    pub(crate) reclaims: Option<i64>,
    /// Page faults that did.
    pub(crate) faults: Option<i64>,
}

impl Process {
    /// What it is now.
    pub(crate) fn now() -> Process {
        const TICKS_PER_SECOND: i64 = 100;
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // The name of the program, which may hold blanks, stands in brackets.
        let stat: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let number = |at: usize| stat.get(at).and_then(|text| text.parse::<i64>().ok());
        let micros = |at: usize| number(at).map(|ticks| ticks * (1_000_000 / TICKS_PER_SECOND));
        Process { user_micros: micros(11), system_micros: micros(12), reclaims: number(7), faults: number(9) }
    }
}
