//! The clock, injected so that tests can hold it still.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

/// Source of time for TTL, `$$NOW` and ObjectIds.
pub trait Clock: Send + Sync {
    /// Returns the time in milliseconds since 1970.
    fn now_millis(&self) -> i64;

    /// Returns the clock if clients may set it.
    fn settable(&self) -> Option<&SettableClock> {
        None
    }
}

/// The system clock.
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_millis(&self) -> i64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
    }
}

/// A clock that stands still until it is set.
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// Returns a clock at the given time, in milliseconds since 1970.
    pub fn new(millis: i64) -> ManualClock {
        ManualClock(AtomicI64::new(millis))
    }

    /// Moves the clock, forward or back.
    pub fn set(&self, millis: i64) {
        self.0.store(millis, Relaxed);
    }
}

impl Clock for ManualClock {
    fn now_millis(&self) -> i64 {
        self.0.load(Relaxed)
    }
}

/// The system clock until a client sets it. It then runs from another time, or stands still.
///
/// The state is a single number, so that readers need no lock. A running clock stores twice the
/// shift against the system clock. A frozen clock stores twice the time plus one.
#[derive(Default)]
pub struct SettableClock(AtomicI64);

impl SettableClock {
    /// The latest time, in the year 2106: ObjectIds and cluster times have seconds in 32 bits. The
    /// earliest time is zero.
    pub const MAX_MILLIS: i64 = u32::MAX as i64 * 1000;

    /// Returns true if the clock is frozen.
    pub fn is_frozen(&self) -> bool {
        self.0.load(Relaxed) & 1 == 1
    }

    /// Returns the shift against the system clock, in milliseconds.
    pub fn shift_millis(&self) -> i64 {
        let state = self.0.load(Relaxed);
        if state & 1 == 1 { (state >> 1) - SystemClock.now_millis() } else { state >> 1 }
    }

    /// Sets the time, in milliseconds since 1970. A running clock keeps running and a frozen clock
    /// stays frozen.
    pub fn set(&self, millis: i64) {
        self.put(millis, self.is_frozen());
    }

    /// Moves the clock by this number of milliseconds, forward or back.
    pub fn advance(&self, millis: i64) {
        self.put(self.now_millis().saturating_add(millis), self.is_frozen());
    }

    /// Freezes the clock at its time, or lets it run from there.
    pub fn freeze(&self, frozen: bool) {
        if frozen != self.is_frozen() {
            self.put(self.now_millis(), frozen);
        }
    }

    /// Follows the system clock again.
    pub fn follow(&self) {
        self.0.store(0, Relaxed);
    }

    fn put(&self, millis: i64, frozen: bool) {
        let millis = millis.clamp(0, Self::MAX_MILLIS);
        let state = if frozen { millis << 1 | 1 } else { (millis - SystemClock.now_millis()) << 1 };
        self.0.store(state, Relaxed);
    }
}

impl Clock for SettableClock {
    fn now_millis(&self) -> i64 {
        let state = self.0.load(Relaxed);
        if state & 1 == 1 { state >> 1 } else { SystemClock.now_millis() + (state >> 1) }
    }

    fn settable(&self) -> Option<&SettableClock> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_settable_clock_follows_until_it_is_set() {
        let clock = SettableClock::default();
        let near = |millis: i64| (clock.now_millis() - millis).abs() < 10_000;
        assert!(near(SystemClock.now_millis()) && !clock.is_frozen());
        clock.set(86_400_000);
        assert!(near(86_400_000) && !clock.is_frozen());
        clock.freeze(true);
        clock.set(1_000);
        clock.advance(500);
        assert_eq!((clock.now_millis(), clock.is_frozen()), (1_500, true));
        clock.advance(i64::MAX);
        assert_eq!(clock.now_millis(), SettableClock::MAX_MILLIS);
        clock.set(-5);
        assert_eq!(clock.now_millis(), 0);
        clock.freeze(false);
        assert!(near(0) && clock.shift_millis() < 0);
        clock.follow();
        assert!(near(SystemClock.now_millis()));
    }
}
