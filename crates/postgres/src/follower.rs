//! Who looks for what other fronts have written: what wakes him.

use parking_lot::{Condvar, Mutex};
use std::sync::atomic::AtomicU64;

/// Looks for what other fronts have written, and has it made safe, for whoever waits: one look for all of a
/// front's streams.
#[derive(Default)]
pub(crate) struct Follower {
    pub(crate) asked: Mutex<bool>,
    pub(crate) wake: Condvar,
    /// Up to which time those who wait have been told of.
    pub(crate) told: AtomicU64,
}

impl Follower {
    /// Asks for a look at once.
    pub(crate) fn ask(&self) {
        *self.asked.lock() = true;
        self.wake.notify_all();
    }
}
