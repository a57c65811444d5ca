//! The limit on dedicated threads, each of which serves one client.

use crate::process::blocking::threads_max;
use database::time;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Maximum number of dedicated threads on a server with a shared store.
const MAX_SHARED: usize = 256;

/// Maximum number for each processor on a server with local data:
/// [measured](../../../docs/performance.md#one-connection).
const MAX_PER_PROCESSOR: usize = 1;

/// Time without dedicated threads after the limit was exceeded.
const SATURATION_PAUSE: Duration = Duration::from_millis(100);

/// The dedicated threads of a server.
pub(crate) struct Threads {
    count: AtomicUsize,
    limit: usize,
    /// True if clients give up their threads as soon as the limit is exceeded.
    yields_at_limit: bool,
    since: Instant,
    /// End of the time without dedicated threads, in milliseconds after `since`.
    saturated_until: AtomicU64,
}

impl Threads {
    /// Creates the limit for a server with a shared store (`is_shared`) or with local data.
    pub(crate) fn new(is_shared: bool) -> Threads {
        let processors = std::thread::available_parallelism().map_or(1, |processors| processors.get());
        // Half of the threads that fit into the address space stay free for other clients.
        let limit = threads_max().map_or(MAX_SHARED, |limit| (limit / 2).min(MAX_SHARED));
        Threads {
            count: AtomicUsize::new(0),
            limit: if is_shared { limit } else { limit.min(MAX_PER_PROCESSOR * processors) },
            yields_at_limit: !is_shared,
            since: time::now(),
            saturated_until: AtomicU64::new(0),
        }
    }

    /// Returns the number of dedicated threads.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns true if the limit was exceeded recently.
    pub(crate) fn is_saturated(&self) -> bool {
        let until = self.saturated_until.load(Ordering::Relaxed);
        until != 0 && self.milliseconds() < until
    }

    fn milliseconds(&self) -> u64 {
        time::since(self.since).as_millis() as u64
    }

    /// Counts a thread, unless the limit is reached.
    pub(crate) fn acquire(&self) -> Option<ThreadPermit<'_>> {
        if self.is_saturated() {
            return None;
        }
        let permit = ThreadPermit(&self.count);
        if self.count.fetch_add(1, Ordering::Relaxed) < self.limit {
            return Some(permit);
        }
        if self.yields_at_limit {
            let until = self.milliseconds() + SATURATION_PAUSE.as_millis() as u64;
            self.saturated_until.store(until, Ordering::Relaxed);
        }
        None
    }
}

/// A counted thread. The count drops with it.
pub(crate) struct ThreadPermit<'a>(&'a AtomicUsize);

impl Drop for ThreadPermit<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
