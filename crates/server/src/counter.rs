//! One counter.

use std::sync::atomic::{AtomicU64, Ordering};

/// A count that only grows.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Counts `amount` more.
    pub(crate) fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// The count, as BSON takes it.
    pub(crate) fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed) as i64
    }
}
