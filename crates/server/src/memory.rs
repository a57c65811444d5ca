//! Keeping the process within its memory: who is ended as it comes near the limit.
//!
//! A thread reads how much is resident, seldom while there is plenty and often where there is little. Beyond the
//! limit what holds most is ended, one after the other: a running operation gets an error, a cursor that nobody
//! reads is closed, a connection whose client doesn't read its reply or never ends its message is cut. What the
//! memory engine keeps can't be ended: as it comes near the limit, writes that make it grow are refused.
//!
//! That comes too late for bursts. So operations and messages are entered in a ledger as they grow
//! (`database/memory.rs`), and this thread sets how much room there is for them: an operation waits before it becomes
//! large while others hold half of the room, batches end early beyond a quarter, and beyond all of it growth is refused.

use crate::activity::Activity;
use crate::heap;
use crate::memory_limit::MemoryLimit;
use crate::server::Server;
use base::ErrorCode;
use database::Operation;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How fast memory can fill, about, in bytes for each millisecond: by that it is looked at often enough.
const BYTES_PER_MILLI: u64 = 4 << 20;

/// How often it is looked at, at least and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// How long what has been ended may take to free what it holds before something else is ended.
const GRACE: Duration = Duration::from_millis(100);

/// How long free pages may stay with the heap where memory is short, and how many times as long as giving them back
/// takes.
const KEEP: Duration = Duration::from_millis(20);
const KEEP_TIMES: u32 = 10;

/// What is smaller isn't worth ending: this share of the limit.
const LEAST_SHARE: u64 = 128;

/// Operations, cursors and messages may always take this share of the limit.
const OPERATIONS_SHARE: u64 = 4;

/// How often the log tells that nothing can be ended.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// Who holds memory that can be had back.
enum Holder {
    Operation(Arc<Activity>, Arc<Operation>),
    Cursor,
    Connection(Arc<Activity>),
}

/// What the thread remembers between two looks.
struct Watcher {
    limit: MemoryLimit,
    /// When free pages are given back next, if memory is short then.
    give_back: Instant,
    /// What was ended last and may not have noticed yet.
    ending: Option<(Weak<Operation>, Instant)>,
    told: Option<Instant>,
}

/// Runs until the server is dropped; start it on a thread of its own.
pub(crate) fn watch(server: &Weak<Server>, limit: MemoryLimit) {
    let mut watcher = Watcher { limit, give_back: Instant::now(), ending: None, told: None };
    loop {
        let Some(held) = server.upgrade() else { return };
        let resident = watcher.look(&held);
        drop(held);
        let room = watcher.limit.bytes.saturating_sub(resident);
        std::thread::sleep(Duration::from_millis(room / BYTES_PER_MILLI).clamp(PAUSES.0, PAUSES.1));
    }
}

/// Bytes resident; none where the system doesn't say.
fn resident() -> u64 {
    heap::process_bytes().map_or(0, |(_, resident)| resident)
}

impl Watcher {
    /// Ends what has to end; how much is resident.
    fn look(&mut self, server: &Server) -> u64 {
        let mut now = resident();
        let begun = Instant::now();
        if now > self.limit.of_data() && begun >= self.give_back {
            heap::give_back();
            now = resident();
            self.give_back = Instant::now() + (begun.elapsed() * KEEP_TIMES).max(KEEP);
        }
        server.ended.resident.store(now, Relaxed);
        // What is kept leaves less for operations, and they always have a share.
        let kept = now.saturating_sub(server.database.memory_held());
        let room = self.limit.of_data().saturating_sub(kept).max(self.limit.bytes / OPERATIONS_SHARE);
        server.database.set_memory_room(room);
        if now < self.limit.of_data_again() && !server.database.refuses_growth() {
            return now;
        }
        let holders = holders(server);
        self.bound_data(server, now, holders.iter().map(|(held, _)| held).sum());
        if now > self.limit.bytes {
            self.end_one(server, now, holders);
        }
        now
    }

    /// Refuses writes that make the data grow, or takes them again.
    fn bound_data(&self, server: &Server, now: u64, held: u64) {
        let refused = server.database.refuses_growth();
        if !server.settings.ephemeral {
            return;
        }
        // What operations hold they will give back.
        let kept = now.saturating_sub(held);
        if !refused && (kept > self.limit.of_data() || now > self.limit.bytes && held < now / 8) {
            log::warn!(
                "{} MB are resident, of which the data takes most, and {} MB may be ({}): writes that make it grow \
                 are refused until some of it is deleted",
                now >> 20,
                self.limit.bytes >> 20,
                self.limit.from
            );
            server.database.refuse_growth(true);
        } else if refused && kept < self.limit.of_data_again() {
            log::info!("{} MB are resident: writes are taken again", now >> 20);
            server.database.refuse_growth(false);
        }
    }

    /// Ends what holds most.
    fn end_one(&mut self, server: &Server, now: u64, holders: Vec<(u64, Holder)>) {
        if let Some((operation, since)) = &self.ending
            && operation.strong_count() > 0
            && since.elapsed() < GRACE
        {
            return;
        }
        self.ending = None;
        let most = holders.into_iter().max_by_key(|(held, _)| *held);
        let Some((held, holder)) = most.filter(|(held, _)| *held >= self.limit.bytes / LEAST_SHARE) else {
            if self.told.is_none_or(|told| told.elapsed() >= TELL_EVERY) {
                self.told = Some(Instant::now());
                log::warn!(
                    "{} MB are resident, {} MB may be ({}), and there is no large operation to end",
                    now >> 20,
                    self.limit.bytes >> 20,
                    self.limit.from
                );
            }
            return;
        };
        let what = match holder {
            Holder::Operation(activity, operation) => {
                server.ended.operations.add(1);
                operation.kill_with(ErrorCode::ExceededMemoryLimit);
                self.ending = Some((Arc::downgrade(&operation), Instant::now()));
                format!("operation of connection {}", activity.connection_id)
            }
            Holder::Cursor => match server.database.cursors.end_largest(held) {
                Some((namespace, _)) => {
                    server.ended.cursors.add(1);
                    format!("cursor on {namespace}, which nobody was reading,")
                }
                None => return,
            },
            Holder::Connection(activity) => {
                server.ended.connections.add(1);
                activity.cut();
                format!("connection {}, whose message or reply was stuck,", activity.connection_id)
            }
        };
        log::warn!(
            "{} MB are resident, {} MB may be ({}): the {what} held {} MB and is ended",
            now >> 20,
            self.limit.bytes >> 20,
            self.limit.from,
            held >> 20
        );
    }
}

/// Who holds how many bytes: the operations that run, the largest cursor at rest, connections' buffers.
fn holders(server: &Server) -> Vec<(u64, Holder)> {
    let mut found = vec![(server.database.cursors.largest(), Holder::Cursor)];
    for activity in server.activities.all() {
        match activity.operation() {
            Some(used) => {
                found.push((used.operation.held(), Holder::Operation(activity, used.operation)));
            }
            None => {
                let buffered = activity.buffered.load(Relaxed);
                if buffered > 0 {
                    found.push((buffered, Holder::Connection(activity)));
                }
            }
        }
    }
    found
}
