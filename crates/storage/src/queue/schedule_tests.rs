//! Tests of queues under all thread schedules.

use super::*;
use crate::mutants::switch_on;
use crate::testing::{explore, fails};
use shuttle::thread;
use std::sync::Arc;

const SEEDS: u64 = 120;

/// Turns run one at a time, in order of arrival, and every thread gets a turn.
fn turns() {
    let queue = Arc::new(Queue::default());
    let (inside, taken) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
    let takes = |_| {
        let (queue, inside, taken) = (queue.clone(), inside.clone(), taken.clone());
        thread::spawn(move || {
            for _ in 0..2 {
                let turn = Ticket::take(queue.clone());
                turn.wait(&mut || true);
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two have the turn");
                // Threads that arrive now wait behind the threads in the queue.
                let waiting = queue.tickets.lock().present.clone();
                taken.lock().push((turn.number, waiting));
                assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
            }
        })
    };
    let threads: Vec<_> = (0..3).map(takes).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let taken = taken.lock();
    for (at, (_, waiting)) in taken.iter().enumerate() {
        let next: Vec<u64> = taken[at..].iter().map(|(ticket, _)| *ticket).take(waiting.len()).collect();
        assert!(waiting.iter().eq(&next), "{waiting:?} waited, and {next:?} came");
    }
    assert!(queue.is_empty());
}

#[test]
fn turns_are_taken_in_order_under_any_schedule() {
    explore(SEEDS, turns);
    for name in ["the last waiter has the turn", "the end of a turn wakes no waiter"] {
        switch_on(Some(name));
        let seen = fails(SEEDS, turns);
        switch_on(None);
        assert!(seen, "{name}");
    }
}
