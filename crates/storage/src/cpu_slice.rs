//! The CPU time that a thread uses between two checks or under a lock: bounds that debug builds assert.
//!
//! A busy machine makes tests of fairness by the clock fail. The thread's own CPU time does not depend on other
//! processes. Release builds measure nothing, nor do builds for a scheduler that runs all threads on one.

use std::time::Duration;

/// Limit of CPU time between two checks for interruption or yielding.
pub const BETWEEN_CHECKS: Duration = Duration::from_millis(5);
/// Limits of CPU time under the commit lock: a base, and an addition for each operation of the
/// batch.
pub const UNDER_COMMIT_LOCK: Duration = Duration::from_millis(2);
/// See [`UNDER_COMMIT_LOCK`].
pub const PER_OPERATION: Duration = Duration::from_micros(5);

/// Factor for unoptimised code whose engine [`Checked`](crate::testing::Checked) verifies, on a
/// slow machine with other load. `VELLUM_OPTIMISED=1 cargo test --config profile.dev.opt-level=2`
/// asserts the limits without it.
#[cfg(all(debug_assertions, unix, not(feature = "shuttle")))]
const UNOPTIMISED: u32 = match option_env!("VELLUM_OPTIMISED") {
    Some(_) => 1,
    None => 120,
};

/// Returns the factor, or the value of `VELLUM_UNOPTIMISED`. Tests that measure waits over very
/// large values set it.
#[cfg(all(debug_assertions, unix, not(feature = "shuttle")))]
fn unoptimised() -> u32 {
    static FACTOR: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    let configured = || std::env::var("VELLUM_UNOPTIMISED").ok()?.parse().ok();
    *FACTOR.get_or_init(|| configured().unwrap_or(UNOPTIMISED))
}

/// Start of some work on one thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuSlice {
    #[cfg(all(debug_assertions, unix, not(feature = "shuttle")))]
    started: Duration,
    /// Value of [`running`] at the start.
    #[cfg(all(debug_assertions, unix, not(feature = "shuttle")))]
    at: Duration,
}

#[cfg(all(debug_assertions, unix, not(feature = "shuttle")))]
impl CpuSlice {
    /// Starts a slice on this thread.
    pub fn begin() -> CpuSlice {
        CpuSlice { started: used(), at: running() }
    }

    /// Returns the CPU time of this thread since the start of the slice.
    pub fn used(self) -> Duration {
        used().saturating_sub(self.started)
    }

    /// Panics if the thread has used more than `most`, scaled for unoptimised code.
    pub fn assert_within(self, most: Duration, label: &str) {
        let (used, most) = (self.used().min(running().saturating_sub(self.at)), most * unoptimised());
        assert!(used <= most, "{used:?} of CPU time {label}, where {most:?} is the most");
    }
}

#[cfg(any(not(debug_assertions), not(unix), feature = "shuttle"))]
impl CpuSlice {
    /// Starts nothing: release builds do not measure.
    pub fn begin() -> CpuSlice {
        CpuSlice::default()
    }

    /// Returns zero.
    pub fn used(self) -> Duration {
        Duration::ZERO
    }

    /// Asserts nothing.
    pub fn assert_within(self, _most: Duration, _what: &str) {}
}

/// Returns the CPU time of this thread since its start.
#[cfg(all(debug_assertions, unix, not(feature = "shuttle")))]
fn used() -> Duration {
    use nix::time::{ClockId, clock_gettime};
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// Returns the running time of the machine since the first call, in steps of [`BEAT`].
///
/// A virtual machine may stand still for many seconds while its host copies it. Its clocks count
/// that time, and its kernel charges it to the thread that was running. A thread that counts its
/// own short sleeps does not.
#[cfg(all(debug_assertions, unix, not(feature = "shuttle")))]
fn running() -> Duration {
    use std::sync::Once;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    static BEATS: AtomicU32 = AtomicU32::new(0);
    static START: Once = Once::new();
    START.call_once(|| {
        let beat = || loop {
            std::thread::sleep(BEAT);
            BEATS.fetch_add(1, Relaxed);
        };
        // Without the thread, no time counts as used and nothing is asserted.
        drop(std::thread::Builder::new().name("beat".to_string()).spawn(beat));
    });
    BEAT * BEATS.load(Relaxed)
}

/// See [`running`].
#[cfg(all(debug_assertions, unix, not(feature = "shuttle")))]
const BEAT: Duration = Duration::from_millis(20);

#[cfg(all(test, debug_assertions, unix, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn a_sleeping_thread_uses_nothing_and_a_busy_one_is_caught() {
        let slice = CpuSlice::begin();
        std::thread::sleep(Duration::from_millis(30));
        slice.assert_within(Duration::from_millis(1), "asleep");
        let busy = std::thread::spawn(|| {
            let slice = CpuSlice::begin();
            while slice.used() <= 2 * Duration::from_millis(1) * UNOPTIMISED {}
            slice.assert_within(Duration::from_millis(1), "in a loop");
        });
        assert!(busy.join().is_err());
    }
}
