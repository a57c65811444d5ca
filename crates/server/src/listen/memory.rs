//! Enforcement of the memory limit.
//!
//! A thread reads the resident memory, more often as memory becomes short. Above the limit it ends
//! the largest holders one by one. A running operation gets an error. An idle cursor is closed. A
//! connection with an incomplete message or a reply unread for a second is cut. Data of the memory engine
//! cannot be ended, so growing writes are refused near the limit.
//!
//! That reaction is too late for bursts. Operations and messages therefore enter their growth in a
//! tracker (`database/memory.rs`), and this thread sets the room for them. Above half of the room,
//! an operation waits before it becomes large. Above a quarter, batches end early. Above the whole
//! room, growth is refused.

use crate::observe::activity::{Activities, Activity};
use crate::process::memory::{self, MemoryLimit};
use crate::server::Server;
use base::ErrorCode;
use database::{Database, Operation};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Assumed growth of memory in bytes per millisecond. Determines the pause between checks.
const BYTES_PER_MILLI: u64 = 4 << 20;

/// Minimum and maximum pause between checks.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// Time for an ended holder to free its memory before another holder is ended.
const GRACE: Duration = Duration::from_millis(100);

/// Minimum time that free pages may stay in the heap while memory is short, also as a multiple of the time
/// to return them. The maximum is [`GRACE`].
const KEEP: Duration = Duration::from_millis(20);
const KEEP_TIMES: u32 = 10;

/// Divisor of the limit: smaller holders are not ended.
const MIN_SHARE: u64 = 128;

/// Divisor of the limit: operations, cursors and messages may always use this part.
const OPERATIONS_SHARE: u64 = 4;

/// Interval of the log line about memory that cannot be freed.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// A holder of memory that can be ended.
enum MemoryConsumer {
    Operation(Arc<Activity>, Arc<Operation>),
    Cursor,
    Connection(Arc<Activity>),
}

/// State between two checks.
struct Watcher {
    limit: MemoryLimit,
    /// Earliest time of the next return of free pages while memory is short.
    next_purge: Instant,
    /// Operation that was ended last and may not have noticed yet.
    ending: Option<(Weak<Operation>, Instant)>,
    last_report: Option<Instant>,
}

/// Runs until the server is dropped. Needs a dedicated thread.
pub(crate) fn watch(server: &Weak<Server>, limit: MemoryLimit) {
    let mut watcher = Watcher { limit, next_purge: Instant::now(), ending: None, last_report: None };
    loop {
        let Some(server) = server.upgrade() else { return };
        let resident = watcher.check(&server);
        drop(server);
        let free = watcher.limit.bytes.saturating_sub(resident);
        std::thread::sleep(Duration::from_millis(free / BYTES_PER_MILLI).clamp(PAUSES.0, PAUSES.1));
    }
}

/// Returns resident bytes; 0 if the system does not report them.
fn resident() -> u64 {
    memory::process_bytes().map_or(0, |(_, resident)| resident)
}

impl Watcher {
    /// Ends holders if necessary. Returns resident bytes.
    fn check(&mut self, server: &Server) -> u64 {
        let mut now = resident();
        let is_short = now > self.limit.of_data();
        let is_purged = is_short && self.purge();
        if is_purged {
            now = resident();
        }
        server.memory_limit_stats.resident.store(now, Relaxed);
        // Stored data leaves less room for operations, but never less than their share.
        let data_bytes = now.saturating_sub(server.database.memory_used());
        let operations_limit =
            self.limit.of_data().saturating_sub(data_bytes).max(self.limit.bytes / OPERATIONS_SHARE);
        server.database.set_memory_limit(operations_limit);
        if is_short && !is_purged {
            // Free pages of the heap would count as held: a holder is only ended for memory that it holds.
            return now;
        }
        if now < self.limit.of_data_again() && !server.database.refuses_growth() {
            return now;
        }
        let holders = holders(server.database.cursors.largest(), &server.activities);
        if server.settings.ephemeral {
            self.bound_data(&server.database, now, holders.iter().map(|(held, _)| held).sum());
        }
        if now > self.limit.bytes {
            self.end_one(server, now, holders);
        }
        now
    }

    /// Returns the free pages of the heap to the system. Does nothing and returns false shortly after the last time.
    fn purge(&mut self) -> bool {
        let started = Instant::now();
        if started < self.next_purge {
            return false;
        }
        memory::purge();
        self.next_purge = Instant::now() + (started.elapsed() * KEEP_TIMES).clamp(KEEP, GRACE);
        true
    }

    /// Refuses writes that grow the data, or accepts them again.
    fn bound_data(&self, database: &Database, now: u64, held: u64) {
        let refused = database.refuses_growth();
        // Memory of operations will be freed.
        let data_bytes = now.saturating_sub(held);
        if !refused && (data_bytes > self.limit.of_data() || now > self.limit.bytes && held < now / 8) {
            log::warn!(
                "RSS is {} MB, mostly data, and the limit is {} MB ({}): writes that add data are refused \
                 until data is deleted",
                now >> 20,
                self.limit.bytes >> 20,
                self.limit.from
            );
            database.refuse_growth(true);
        } else if refused && data_bytes < self.limit.of_data_again() {
            log::info!("RSS is {} MB: writes are accepted again", now >> 20);
            database.refuse_growth(false);
        }
    }

    /// Ends the largest holder.
    fn end_one(&mut self, server: &Server, now: u64, holders: Vec<(u64, MemoryConsumer)>) {
        if let Some((operation, since)) = &self.ending
            && operation.strong_count() > 0
            && since.elapsed() < GRACE
        {
            return;
        }
        self.ending = None;
        let most = holders.into_iter().max_by_key(|(held, _)| *held);
        let Some((held, holder)) = most.filter(|(held, _)| *held >= self.limit.bytes / MIN_SHARE) else {
            if self.last_report.is_none_or(|last_report| last_report.elapsed() >= REPORT_INTERVAL) {
                self.last_report = Some(Instant::now());
                log::warn!(
                    "RSS is {} MB, the limit is {} MB ({}), and no large operation runs",
                    now >> 20,
                    self.limit.bytes >> 20,
                    self.limit.from
                );
            }
            return;
        };
        let kind = match holder {
            MemoryConsumer::Operation(activity, operation) => {
                server.memory_limit_stats.operations.add(1);
                operation.kill_with(ErrorCode::ExceededMemoryLimit);
                self.ending = Some((Arc::downgrade(&operation), Instant::now()));
                format!("operation of connection {}", activity.connection_id)
            }
            MemoryConsumer::Cursor => match server.database.cursors.end_largest(held) {
                Some((namespace, _)) => {
                    server.memory_limit_stats.cursors.add(1);
                    format!("idle cursor on {namespace}")
                }
                None => return,
            },
            MemoryConsumer::Connection(activity) => {
                server.memory_limit_stats.connections.add(1);
                activity.disconnect();
                format!("stalled connection {}", activity.connection_id)
            }
        };
        log::warn!(
            "RSS is {} MB, the limit is {} MB ({}): interrupting the {kind}, which held {} MB",
            now >> 20,
            self.limit.bytes >> 20,
            self.limit.from,
            held >> 20
        );
    }
}

/// Returns holders with their bytes: running operations, the largest idle cursor, connections'
/// buffers.
fn holders(largest_cursor: u64, activities: &Activities) -> Vec<(u64, MemoryConsumer)> {
    let mut holders = vec![(largest_cursor, MemoryConsumer::Cursor)];
    for activity in activities.all() {
        let buffered = activity.buffered.load(Relaxed);
        match activity.operation() {
            Some(used) => {
                holders.push((
                    used.operation.memory_used() + buffered,
                    MemoryConsumer::Operation(activity, used.operation),
                ));
            }
            None => {
                if buffered > 0 && activity.is_stalled() {
                    holders.push((buffered, MemoryConsumer::Connection(activity)));
                }
            }
        }
    }
    holders
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::activity::Activities;

    #[test]
    fn a_client_has_a_second_to_read_its_reply() {
        let activities = Activities::default();
        let activity = activities.open("127.0.0.1:1".parse().unwrap());
        activity.buffered.store(10 << 20, Relaxed);
        let cut = |since| {
            *activity.unread_since.lock() = since;
            holders(0, &activities).iter().any(|(_, held)| matches!(held, MemoryConsumer::Connection(_)))
        };
        let now = database::time::now();
        assert!(!cut(Some(now)), "the reply is new");
        assert!(cut(now.checked_sub(Duration::from_secs(2))), "the reply is old");
        assert!(cut(None), "the message is incomplete");
    }

    #[test]
    fn free_pages_are_returned_seldom() {
        let limit = MemoryLimit { bytes: 1 << 30, from: "a test".to_string() };
        let mut watcher = Watcher { limit, next_purge: Instant::now(), ending: None, last_report: None };
        assert!(watcher.purge() && !watcher.purge());
        let pause = watcher.next_purge.saturating_duration_since(Instant::now());
        assert!(pause <= GRACE, "{pause:?}");
        std::thread::sleep(pause);
        assert!(watcher.purge());
    }
}
