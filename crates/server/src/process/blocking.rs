//! The threads of the process: their limits, long work on network threads, and threads that help long reads.
//!
//! A processor counts as idle if no request and no helper runs on it. A helping thread runs one piece of work and
//! ends: it takes some 30 µs to start, and work is given away only if it takes milliseconds.

use database::language::Helpers;
use database::threads;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use tokio::runtime::{Handle, RuntimeFlavor};

/// Stack size of a network thread in bytes. Deep expressions recurse within limits.
pub(crate) const STACK_SIZE: usize = 4 * 1024 * 1024;

/// Returns the maximum number of threads that wait for clients or commands; `None` without a limit.
pub(crate) fn threads_max() -> Option<usize> {
    threads::most(STACK_SIZE)
}

/// Returns the number of network threads. It exceeds the number of cores, so that a long request
/// seldom blocks all.
pub(crate) fn network_threads() -> usize {
    static THREADS: OnceLock<usize> = OnceLock::new();
    *THREADS.get_or_init(|| std::thread::available_parallelism().map_or(2, |cores| cores.get()).max(4))
}

/// Runs long work in place. Other connections of the network thread move to another thread
/// meanwhile.
///
/// Outside of network threads, and if no thread can start, the work simply runs.
pub(crate) fn in_place<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) if threads::has_spare_address_space(Some(STACK_SIZE)) => {
            tokio::task::block_in_place(work)
        }
        _ => work(),
    }
}

/// The processors and the threads that use them.
pub(crate) struct Processors {
    count: usize,
    requests: AtomicUsize,
    helpers: AtomicUsize,
}

/// A counted thread. The count drops with it.
pub(crate) struct Busy<'a>(&'a AtomicUsize);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Processors {
    /// Returns the processors of the machine.
    pub(crate) fn of_machine() -> Processors {
        let count = std::thread::available_parallelism().map_or(1, |count| count.get());
        Processors { count, requests: AtomicUsize::new(0), helpers: AtomicUsize::new(0) }
    }

    /// Counts a running request.
    pub(crate) fn begin_request(&self) -> Busy<'_> {
        self.requests.fetch_add(1, Relaxed);
        Busy(&self.requests)
    }
}

/// Lends idle processors to operations.
pub(crate) struct IdleProcessors(pub(crate) Arc<Processors>);

impl Helpers for IdleProcessors {
    fn has_idle(&self) -> bool {
        self.0.requests.load(Relaxed) + self.0.helpers.load(Relaxed) < self.0.count
    }

    fn is_busy(&self) -> bool {
        self.0.requests.load(Relaxed) + self.0.helpers.load(Relaxed) > self.0.count
    }

    fn run(&self, work: Box<dyn FnOnce() + Send>) -> bool {
        let helpers = self.0.helpers.fetch_add(1, Relaxed);
        let busy = Busy(&self.0.helpers);
        if self.0.requests.load(Relaxed) + helpers >= self.0.count
            || !threads::has_spare_address_space(Some(STACK_SIZE))
        {
            return false;
        }
        std::mem::forget(busy);
        let processors = self.0.clone();
        let run = move || {
            let _busy = Busy(&processors.helpers);
            work();
        };
        let started = threads::spawn("vellum-helper", Some(STACK_SIZE), run);
        if started.is_err() {
            self.0.helpers.fetch_sub(1, Relaxed);
        }
        started.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn threads_are_lent_while_processors_are_idle() {
        let processors = Processors { count: 2, ..Processors::of_machine() };
        let idle = IdleProcessors(Arc::new(processors));
        let request = idle.0.begin_request();
        let (end, ends) = channel::<()>();
        let work = Box::new(move || _ = ends.recv());
        assert!(idle.has_idle() && idle.run(work));
        assert!(!idle.has_idle() && !idle.is_busy() && !idle.run(Box::new(|| ())));
        let other = idle.0.begin_request();
        assert!(idle.is_busy());
        drop((request, other));
        assert!(idle.has_idle() && !idle.is_busy());
        drop(end);
        while idle.0.helpers.load(Relaxed) > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
