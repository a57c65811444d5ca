//! Long work outside of the network threads, and the limit on threads.

use database::threads;
use std::sync::OnceLock;
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
pub(crate) fn in_place(work: &mut dyn FnMut()) {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) if threads::has_spare_address_space(Some(STACK_SIZE)) => {
            tokio::task::block_in_place(work)
        }
        _ => work(),
    }
}
