//! Process-wide parts: waiting threads and their events, buffers, memory, the log.

pub(crate) mod blocking;
pub(crate) mod connection_limit;
#[cfg(unix)]
pub(crate) mod dedicated_threads;
pub(crate) mod event;
pub mod logging;
pub(crate) mod memory;

use std::sync::atomic::{AtomicU64, Ordering};

/// A count that only grows.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds `amount`.
    pub(crate) fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// Returns the count as a BSON integer.
    pub(crate) fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed) as i64
    }
}
