//! Who waits for whom: a request that must come after others waits until they are through.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

/// How long a thread sleeps before it looks whether all is to end.
const LOOK: Duration = Duration::from_millis(200);

/// Tells threads when what they wait for is over. Things are numbered in the order they were over in the recording.
pub struct Order {
    state: Mutex<State>,
}

struct State {
    over: Vec<bool>,
    /// All before this are over.
    frontier: usize,
    /// Threads that wait for one thing, and for all before one.
    for_one: HashMap<usize, Vec<Thread>>,
    for_all: BTreeMap<usize, Vec<Thread>>,
    stopped: bool,
}

impl Order {
    /// Of so many things.
    pub fn new(count: usize) -> Order {
        let (for_one, for_all) = (HashMap::new(), BTreeMap::new());
        Order {
            state: Mutex::new(State {
                over: vec![false; count],
                frontier: 0,
                for_one,
                for_all,
                stopped: false,
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This one is over.
    pub(super) fn end(&self, which: usize) {
        let mut state = self.state();
        if let Some(over) = state.over.get_mut(which) {
            *over = true;
        }
        while state.over.get(state.frontier) == Some(&true) {
            state.frontier += 1;
        }
        let next = state.frontier + 1;
        let behind = state.for_all.split_off(&next);
        let reached = std::mem::replace(&mut state.for_all, behind);
        let waiting = state.for_one.remove(&which).into_iter().chain(reached.into_values());
        waiting.flatten().for_each(|thread| thread.unpark());
    }

    /// Nobody waits any more.
    pub fn stop(&self) {
        self.state().stopped = true;
    }

    /// Whether all is to end.
    pub(super) fn is_stopped(&self) -> bool {
        self.state().stopped
    }

    /// Waits until this one is over; false if all is to end.
    pub(super) fn after(&self, which: usize) -> bool {
        self.wait(|state| {
            if state.over.get(which) != Some(&false) {
                return true;
            }
            state.for_one.entry(which).or_default().push(thread::current());
            false
        })
    }

    /// Waits until all before this one are over; false if all is to end.
    pub(super) fn after_all_before(&self, which: usize) -> bool {
        self.wait(|state| {
            if state.frontier >= which {
                return true;
            }
            state.for_all.entry(which).or_default().push(thread::current());
            false
        })
    }

    /// `is_over` adds the thread to those that are told, if it says no.
    fn wait(&self, mut is_over: impl FnMut(&mut State) -> bool) -> bool {
        loop {
            {
                let mut state = self.state();
                if state.stopped {
                    return false;
                }
                if is_over(&mut state) {
                    return true;
                }
            }
            thread::park_timeout(LOOK);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    #[test]
    fn what_must_come_after_comes_after() {
        let order = Arc::new(Order::new(3));
        let seen = Arc::new(AtomicUsize::new(0));
        let spawn = |wait: fn(&Order) -> bool| {
            let (order, seen) = (Arc::clone(&order), Arc::clone(&seen));
            thread::spawn(move || {
                assert!(wait(&order));
                seen.fetch_add(1, SeqCst)
            })
        };
        let one = spawn(|order| order.after(1));
        let all = spawn(|order| order.after_all_before(2));
        assert!(order.after_all_before(0));
        order.end(1);
        one.join().unwrap();
        assert_eq!(seen.load(SeqCst), 1, "the other waits for the first, too");
        order.end(0);
        all.join().unwrap();
    }

    #[test]
    fn a_stop_ends_all_waiting() {
        let order = Arc::new(Order::new(1));
        let waiting = Arc::clone(&order);
        let thread = thread::spawn(move || waiting.after(0));
        order.stop();
        assert!(!thread.join().unwrap());
    }
}
