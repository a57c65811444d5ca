//! A repeated event with waiting listeners.
//!
//! Uses only the standard library's wakers, so code outside of `net` can wait without the runtime.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

/// Counts events and wakes listeners.
#[derive(Default)]
pub(crate) struct Signal {
    count: AtomicU64,
    listeners: AtomicU64,
    waiting: Mutex<HashMap<u64, Waker>>,
}

/// A listener of a [`Signal`]. It is removed when dropped.
pub(crate) struct Listener {
    signal: Arc<Signal>,
    number: u64,
    seen: u64,
    /// True if a waker may be registered.
    waits: bool,
}

impl Signal {
    /// Returns the number of events.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Counts an event and wakes all listeners.
    pub(crate) fn raise(&self) {
        let waiting = {
            let mut waiting = self.waiting.lock();
            self.count.fetch_add(1, Ordering::AcqRel);
            std::mem::take(&mut *waiting)
        };
        waiting.into_values().for_each(Waker::wake);
    }

    /// Returns a listener for the first event after `seen` events.
    pub(crate) fn listen(self: &Arc<Signal>, seen: u64) -> Listener {
        let number = self.listeners.fetch_add(1, Ordering::Relaxed);
        Listener { signal: self.clone(), number, seen, waits: false }
    }
}

impl Listener {
    /// Returns true if the event has happened. Otherwise registers the waker.
    pub(crate) fn has_happened(&mut self, waker: &Waker) -> bool {
        let mut waiting = self.signal.waiting.lock();
        if self.signal.count() != self.seen {
            return true;
        }
        waiting.insert(self.number, waker.clone());
        self.waits = true;
        false
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if self.waits {
            self.signal.waiting.lock().remove(&self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_told_and_forgotten() {
        let signal = Arc::new(Signal::default());
        let waiting = |signal: &Signal| signal.waiting.lock().len();
        let mut listener = signal.listen(0);
        assert!(!listener.has_happened(Waker::noop()));
        assert!(!listener.has_happened(Waker::noop()));
        assert_eq!(waiting(&signal), 1);
        signal.raise();
        assert!(listener.has_happened(Waker::noop()));
        let mut late = signal.listen(1);
        assert!(!late.has_happened(Waker::noop()));
        drop(late);
        assert_eq!(waiting(&signal), 0);
    }
}
