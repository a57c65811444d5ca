//! The number of threads that serve a single client each, and its bound.

use crate::blocking::threads_most;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How many clients have a thread of their own at most, where another server is asked for everything.
const MOST_SHARED: usize = 256;

/// The same for each processor, where it isn't: [measured](../../../docs/performance.md#one-connection).
const MOST_EACH: usize = 1;

/// For how long nobody has one after somebody found too many who have.
const CROWDED: Duration = Duration::from_millis(100);

/// The threads that serve a client each.
pub(crate) struct Threads {
    count: AtomicUsize,
    most: usize,
    /// Whether those who have a thread give it up as soon as there are too many.
    gives_way: bool,
    since: Instant,
    /// Until when there are too many, milliseconds after `since`.
    crowded_until: AtomicU64,
}

impl Threads {
    /// None yet, of a server that asks another one for everything, or of one that has the data itself.
    pub(crate) fn new(is_shared: bool) -> Threads {
        let processors = std::thread::available_parallelism().map_or(1, |processors| processors.get());
        // Half of the threads that the address space allows stay free for all other clients.
        let most = threads_most().map_or(MOST_SHARED, |most| (most / 2).min(MOST_SHARED));
        Threads {
            count: AtomicUsize::new(0),
            most: if is_shared { most } else { most.min(MOST_EACH * processors) },
            gives_way: !is_shared,
            since: Instant::now(),
            crowded_until: AtomicU64::new(0),
        }
    }

    /// How many there are.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether a client found too many a moment ago.
    pub(crate) fn is_crowded(&self) -> bool {
        let until = self.crowded_until.load(Ordering::Relaxed);
        until != 0 && self.milliseconds() < until
    }

    fn milliseconds(&self) -> u64 {
        self.since.elapsed().as_millis() as u64
    }

    /// Counts one more, unless there are too many.
    pub(crate) fn enter(&self) -> Option<Entered<'_>> {
        if self.is_crowded() {
            return None;
        }
        let entered = Entered(&self.count);
        if self.count.fetch_add(1, Ordering::Relaxed) < self.most {
            return Some(entered);
        }
        if self.gives_way {
            let until = self.milliseconds() + CROWDED.as_millis() as u64;
            self.crowded_until.store(until, Ordering::Relaxed);
        }
        None
    }
}

/// One that is counted, until it is dropped.
pub(crate) struct Entered<'a>(&'a AtomicUsize);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
