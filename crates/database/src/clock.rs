//! The clock, injected so that tests can hold it still.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

/// Tells the time to everything whose behaviour depends on it: TTL, `$$NOW`, ObjectIds.
pub trait Clock: Send + Sync {
    /// Milliseconds since 1970.
    fn now_millis(&self) -> i64;
}

/// The machine's own clock.
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_millis(&self) -> i64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
    }
}

/// A clock that stands still until it is set.
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// A clock standing at the given time, in milliseconds since 1970.
    pub fn new(millis: i64) -> ManualClock {
        ManualClock(AtomicI64::new(millis))
    }

    /// Moves the clock, forwards or back.
    pub fn set(&self, millis: i64) {
        self.0.store(millis, Relaxed);
    }
}

impl Clock for ManualClock {
    fn now_millis(&self) -> i64 {
        self.0.load(Relaxed)
    }
}
