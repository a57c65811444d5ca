//! Work that may take long leaves the network thread, and the bound on threads.

use database::threads;
use std::sync::OnceLock;
use tokio::runtime::{Handle, RuntimeFlavor};

/// The stack of a network thread, in bytes: deep expressions recurse, within bounds.
pub(crate) const STACK_SIZE: usize = 4 * 1024 * 1024;

/// How many threads may wait for clients or commands; `None` if as many as there are connections.
pub(crate) fn threads_most() -> Option<usize> {
    threads::most(STACK_SIZE)
}

/// How many threads handle requests: more than cores, so that a long one seldom takes the last.
pub(crate) fn network_threads() -> usize {
    static THREADS: OnceLock<usize> = OnceLock::new();
    *THREADS.get_or_init(|| std::thread::available_parallelism().map_or(2, |cores| cores.get()).max(4))
}

/// Runs work that may take long: the network thread's other connections move to another thread
/// meanwhile. Elsewhere the work just runs, and so it does where no further thread can start.
pub(crate) fn in_place(work: &mut dyn FnMut()) {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) if threads::has_spare_room(Some(STACK_SIZE)) => {
            tokio::task::block_in_place(work)
        }
        _ => work(),
    }
}
