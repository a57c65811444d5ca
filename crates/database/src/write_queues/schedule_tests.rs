//! Tests of turns under all thread schedules.

use super::*;
use query::context::Uninterrupted;
use shuttle::thread;
use std::sync::Arc;
use storage::mutants::switch_on;
use storage::testing::{explore, fails};

const SEEDS: u64 = 120;
const PLACE: (Ident, RecordId) = (Ident(3), RecordId(4));

/// Turns run one at a time, in order of arrival, and every thread gets a turn.
fn write_queues() {
    let write_queues = Arc::new(WriteQueues::default());
    let (inside, taken) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
    let takes = |_| {
        let (write_queues, inside, taken) = (write_queues.clone(), inside.clone(), taken.clone());
        thread::spawn(move || {
            for losses in [0, RESTARTS_BEFORE_QUEUE] {
                let waits = (&Uninterrupted as &dyn Interrupt, (|work| work()) as BlockingHook);
                let turn = write_queues.take_if_contended(PLACE.0, PLACE.1, losses, waits).unwrap();
                let Some(turn) = turn else { continue };
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two have the turn");
                // Threads that arrive now wait behind the threads in the queue.
                let waiting = turn.queue.tickets.lock().clone();
                taken.lock().push((turn.ticket, waiting));
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
    assert_eq!(write_queues.queue(PLACE.0, PLACE.1).length.load(Ordering::SeqCst), 0);
}

#[test]
fn turns_are_taken_in_order_under_any_schedule() {
    explore(SEEDS, write_queues);
    for name in ["the last waiter has the turn", "the end of a turn wakes no waiter"] {
        switch_on(Some(name));
        let seen = fails(SEEDS, write_queues);
        switch_on(None);
        assert!(seen, "{name}");
    }
}
