//! A count that grows, and its waiters (an eventcount, by Reed and Kanodia).
//!
//! All waits in this process for other work are waits for a count: a durable position, a number of commits, the latest
//! admitted ticket of a queue. A wait gives a waker and holds no thread, or it holds a thread.

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Condvar, Mutex};
use crate::time;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

/// Interval between interrupt checks of a thread's wait.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// A count that grows.
#[derive(Default)]
pub struct EventCount {
    count: AtomicU64,
    waiting: Mutex<Waiting>,
    advanced: Condvar,
}

#[derive(Default)]
struct Waiting {
    /// Number of the latest wait.
    latest: u64,
    /// Wakers by the awaited count and the wait.
    wakers: BTreeMap<(u64, Wait), Waker>,
}

impl fmt::Debug for EventCount {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("EventCount").field(&self.read()).finish()
    }
}

/// Identifies a wait, so that a later registration replaces the waker of an earlier one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Wait {
    /// The addresses in the waker: a request that is polled repeatedly has one waker.
    Waker(usize, usize),
    /// The number of a listener.
    Listener(u64),
}

impl Wait {
    const LAST: Wait = Wait::Listener(u64::MAX);

    fn of(waker: &Waker) -> Wait {
        Wait::Waker(waker.data().addr(), std::ptr::from_ref(waker.vtable()).addr())
    }
}

impl EventCount {
    /// Returns a count that begins at a number.
    pub fn new(count: u64) -> EventCount {
        EventCount { count: AtomicU64::new(count), ..EventCount::default() }
    }

    /// Returns the count.
    pub fn read(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Increments the count and ends the waits for it.
    pub fn advance(&self) {
        let mut waiting = self.waiting.lock();
        let count = self.count.fetch_add(1, Ordering::AcqRel) + 1;
        let wakers = self.reached(&mut waiting, count);
        drop(waiting);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Raises the count to at least `count`. Returns the wakers of the waits that end. The caller wakes them after it
    /// has released its locks.
    #[must_use]
    pub fn advance_to(&self, count: u64) -> Vec<Waker> {
        let mut waiting = self.waiting.lock();
        self.count.fetch_max(count, Ordering::AcqRel);
        self.reached(&mut waiting, count)
    }

    fn reached(&self, waiting: &mut Waiting, count: u64) -> Vec<Waker> {
        self.advanced.notify_all();
        let ended = waiting.wakers.extract_if(..=(count, Wait::LAST), |_, _| true);
        ended.map(|(_, waker)| waker).collect()
    }

    /// Ends the waits with wakers, whatever the count is. Returns their wakers.
    #[must_use]
    pub fn interrupt(&self) -> Vec<Waker> {
        std::mem::take(&mut self.waiting.lock().wakers).into_values().collect()
    }

    /// Returns true if a waker waits.
    pub fn is_awaited(&self) -> bool {
        !self.waiting.lock().wakers.is_empty()
    }

    /// Returns true if the count has reached `count`. Otherwise registers the waker once, until then.
    pub fn has_reached(&self, count: u64, waker: &Waker) -> bool {
        self.register(count, |_| Wait::of(waker), waker)
    }

    /// Does the same as [`has_reached`](Self::has_reached), under a number that the caller keeps. A later registration
    /// under that number replaces the waker.
    pub(crate) fn has_reached_as(&self, count: u64, number: &mut Option<u64>, waker: &Waker) -> bool {
        let wait = |waiting: &mut Waiting| {
            Wait::Listener(*number.get_or_insert_with(|| {
                waiting.latest += 1;
                waiting.latest
            }))
        };
        self.register(count, wait, waker)
    }

    fn register(&self, count: u64, wait: impl FnOnce(&mut Waiting) -> Wait, waker: &Waker) -> bool {
        if self.read() >= count {
            return true;
        }
        let mut waiting = self.waiting.lock();
        if self.read() >= count {
            return true;
        }
        let wait = wait(&mut waiting);
        waiting.wakers.insert((count, wait), waker.clone());
        false
    }

    /// Removes a registered waker.
    pub(crate) fn forget(&self, count: u64, number: u64) {
        self.waiting.lock().wakers.remove(&(count, Wait::Listener(number)));
    }

    /// Returns a listener for the first event after `seen` events.
    pub fn listen(self: &Arc<EventCount>, seen: u64) -> Listener {
        Listener { events: self.clone(), count: seen.saturating_add(1), number: None }
    }

    /// Holds this thread until the count has reached `count`.
    pub fn wait(&self, count: u64) {
        let mut waiting = self.waiting.lock();
        while self.read() < count {
            self.advanced.wait(&mut waiting);
        }
    }

    /// Holds this thread until the count has reached `count`, or until `should_continue` returns false.
    pub fn wait_while(&self, count: u64, should_continue: &mut dyn FnMut() -> bool) {
        // No other thread of a simulation can end the wait.
        while !self.wait_briefly(count) && should_continue() && !time::is_simulated() {}
    }

    /// Holds this thread for 10 milliseconds at most. Returns true if the count has reached `count`.
    pub fn wait_briefly(&self, count: u64) -> bool {
        let mut waiting = self.waiting.lock();
        if self.read() < count && !time::is_simulated() {
            self.advanced.wait_for(&mut waiting, CHECK_INTERVAL);
        }
        self.read() >= count
    }
}

/// A wait for an event. Its waker is removed when it is dropped.
pub struct Listener {
    events: Arc<EventCount>,
    /// The awaited count.
    count: u64,
    /// Number of the wait, once a waker is registered.
    number: Option<u64>,
}

impl Listener {
    /// Returns the count.
    pub fn events(&self) -> &Arc<EventCount> {
        &self.events
    }

    /// Holds this thread until the event has happened, for 10 milliseconds at most.
    pub fn wait_briefly(&self) {
        self.events.wait_briefly(self.count);
    }

    /// Returns true if the event has happened. Otherwise registers the waker.
    pub fn has_happened(&mut self, waker: &Waker) -> bool {
        self.events.has_reached_as(self.count, &mut self.number, waker)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.events.forget(self.count, number);
        }
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_listener_gets_the_next_event_and_leaves_no_waker() {
        let events = Arc::new(EventCount::default());
        let mut listener = events.listen(0);
        assert!(!listener.has_happened(Waker::noop()) && !listener.has_happened(Waker::noop()));
        assert_eq!(events.waiting.lock().wakers.len(), 1);
        events.advance();
        assert!(listener.has_happened(Waker::noop()) && !events.is_awaited());
        let mut late = events.listen(1);
        assert!(!late.has_happened(Waker::noop()) && events.is_awaited());
        drop(late);
        assert!(!events.is_awaited());
    }

    #[test]
    fn a_count_wakes_the_waits_up_to_it() {
        let events = EventCount::new(4);
        let woken: [Arc<Woken>; 3] = Default::default();
        let wakers = woken.clone().map(Waker::from);
        assert!(events.has_reached(4, &wakers[0]));
        assert!([5, 7, 9].iter().zip(&wakers).all(|(count, waker)| !events.has_reached(*count, waker)));
        // A repeated poll replaces its waker.
        assert!(!events.has_reached(5, &wakers[0]));
        assert_eq!(events.waiting.lock().wakers.len(), 3);
        let times = || woken.each_ref().map(|woken| woken.0.load(Ordering::Relaxed));
        events.advance_to(7).into_iter().for_each(Waker::wake);
        assert_eq!((times(), events.read()), ([1, 1, 0], 7));
        assert!(events.advance_to(3).is_empty() && events.read() == 7);
        events.interrupt().into_iter().for_each(Waker::wake);
        assert_eq!((times(), events.read()), ([1, 1, 1], 7));
    }

    #[test]
    fn a_thread_waits_for_a_count_or_until_it_is_interrupted() {
        let events = EventCount::default();
        std::thread::scope(|scope| {
            scope.spawn(|| events.wait(2));
            scope.spawn(|| events.wait_while(2, &mut || true));
            events.advance();
            events.advance();
        });
        let mut checks = 0;
        events.wait_while(3, &mut || {
            checks += 1;
            checks < 2
        });
        assert_eq!(checks, 2);
    }
}
