//! The clock, injected so that tests can hold it still.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

/// Tells the time to everything whose behaviour depends on it: TTL, `$$NOW`, ObjectIds.
pub trait Clock: Send + Sync {
    /// Milliseconds since 1970.
    fn now_millis(&self) -> i64;

    /// The clock itself, where clients may set it.
    fn settable(&self) -> Option<&SettableClock> {
        None
    }
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

/// The machine's clock until a client sets it: then it runs on from another time, or stands still.
///
/// All it has to remember is one number, so that readers need no lock: twice the shift against the machine's
/// clock while it runs, twice the time and one more while it stands.
#[derive(Default)]
pub struct SettableClock(AtomicI64);

impl SettableClock {
    /// The latest time it can show, in the year 2106: ObjectIds and cluster times count seconds in 32 bits.
    /// The earliest is zero.
    pub const MAX_MILLIS: i64 = u32::MAX as i64 * 1000;

    /// Whether it stands still.
    pub fn is_frozen(&self) -> bool {
        self.0.load(Relaxed) & 1 == 1
    }

    /// How far it is ahead of the machine's clock, in milliseconds.
    pub fn shift_millis(&self) -> i64 {
        self.now_millis() - SystemClock.now_millis()
    }

    /// Sets the time, in milliseconds since 1970; running or standing, it goes on so.
    pub fn set(&self, millis: i64) {
        self.put(millis, self.is_frozen());
    }

    /// Moves it on by this many milliseconds, or back.
    pub fn advance(&self, millis: i64) {
        self.put(self.now_millis().saturating_add(millis), self.is_frozen());
    }

    /// Lets it stand still where it is, or run on from there.
    pub fn freeze(&self, frozen: bool) {
        if frozen != self.is_frozen() {
            self.put(self.now_millis(), frozen);
        }
    }

    /// Follows the machine's clock again.
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
    fn a_settable_clock_follows_until_it_is_told_otherwise() {
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
