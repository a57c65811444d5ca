//! Process-wide parts: waiting threads and their events, buffers, memory, the log.

pub(crate) mod blocking;
pub(crate) mod buffers;
pub(crate) mod connection_limit;
pub(crate) mod counter;
#[cfg(unix)]
pub(crate) mod dedicated_threads;
pub(crate) mod event;
pub(crate) mod heap;
pub(crate) mod helpers;
pub mod logging;
pub(crate) mod memory_limit;
