//! The monotonic clock of all crates above, which a simulation replaces.
//!
//! A simulation runs a server on one thread, at the time of a seed. It sets the clock of its thread. Without it, and in
//! release builds, this is the system's clock.

use std::time::{Duration, Instant};

#[cfg(any(test, debug_assertions, feature = "testing"))]
thread_local! {
    static SIMULATED: std::cell::Cell<Option<Instant>> = const { std::cell::Cell::new(None) };
    static MEANWHILE: std::cell::Cell<Option<fn()>> = const { std::cell::Cell::new(None) };
}

/// Sets what happens while this thread sleeps at a simulated time.
#[cfg(any(test, debug_assertions, feature = "testing"))]
pub fn simulate_meanwhile(work: Option<fn()>) {
    MEANWHILE.set(work);
}

/// Sets the time of this thread; `None` returns to the system's clock.
#[cfg(any(test, debug_assertions, feature = "testing"))]
pub fn simulate(now: Option<Instant>) {
    SIMULATED.set(now);
}

#[cfg(any(test, debug_assertions, feature = "testing"))]
fn simulated() -> Option<Instant> {
    SIMULATED.get()
}

#[cfg(not(any(test, debug_assertions, feature = "testing")))]
fn simulated() -> Option<Instant> {
    None
}

/// Returns true if this thread's clock is simulated.
pub fn is_simulated() -> bool {
    simulated().is_some()
}

/// Returns the present time.
pub fn now() -> Instant {
    simulated().unwrap_or_else(Instant::now)
}

/// Returns the time since an earlier one.
pub fn since(earlier: Instant) -> Duration {
    now().saturating_duration_since(earlier)
}

/// Lets this thread sleep. A simulated clock moves instead.
pub fn sleep(time: Duration) {
    match simulated() {
        #[cfg(any(test, debug_assertions, feature = "testing"))]
        Some(now) => {
            simulate(Some(now + time));
            MEANWHILE.get().into_iter().for_each(|work| work());
        }
        _ => std::thread::sleep(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_simulated_clock_moves_by_sleeps_alone() {
        let start = now();
        simulate(Some(start));
        sleep(Duration::from_secs(3600));
        assert_eq!(since(start), Duration::from_secs(3600));
        assert!(is_simulated());
        simulate(None);
        assert!(since(start) < Duration::from_secs(3600));
    }
}
