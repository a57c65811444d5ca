//! Something that happens now and then, and wakes whoever waits for it.
//!
//! Built on the standard library's wakers alone, so that code outside of `net` can offer waits
//! without knowing the runtime.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

/// Counts what happens and wakes those who listen.
#[derive(Default)]
pub(crate) struct Signal {
    count: AtomicU64,
    listeners: AtomicU64,
    waiting: Mutex<HashMap<u64, Waker>>,
}

/// Someone waiting for a [`Signal`]; forgotten by it when dropped.
pub(crate) struct Listener {
    signal: Arc<Signal>,
    number: u64,
    seen: u64,
}

impl Signal {
    /// How often it has happened.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// It happens: all who wait are woken.
    pub(crate) fn raise(&self) {
        let waiting = {
            let mut waiting = self.waiting.lock();
            self.count.fetch_add(1, Ordering::AcqRel);
            std::mem::take(&mut *waiting)
        };
        waiting.into_values().for_each(Waker::wake);
    }

    /// Listens for the first time after it has happened `seen` times.
    pub(crate) fn listen(self: &Arc<Signal>, seen: u64) -> Listener {
        let number = self.listeners.fetch_add(1, Ordering::Relaxed);
        Listener { signal: self.clone(), number, seen }
    }
}

impl Listener {
    /// Whether it has happened; if not, the waker is woken once it does.
    pub(crate) fn has_happened(&mut self, waker: &Waker) -> bool {
        let mut waiting = self.signal.waiting.lock();
        if self.signal.count() != self.seen {
            return true;
        }
        waiting.insert(self.number, waker.clone());
        false
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.signal.waiting.lock().remove(&self.number);
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
