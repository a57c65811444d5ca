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
fn turns() {
    let turns = Arc::new(Turns::default());
    let (inside, taken) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
    let takes = |_| {
        let (turns, inside, taken) = (turns.clone(), inside.clone(), taken.clone());
        thread::spawn(move || {
            for losses in [0, LOSSES] {
                let waits = (&Uninterrupted as &dyn Interrupt, (|work| work()) as BlockingHook);
                let turn = turns.take_if_contended(PLACE.0, PLACE.1, losses, waits).unwrap();
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
    assert_eq!(turns.queue(PLACE.0, PLACE.1).length.load(Ordering::SeqCst), 0);
}

#[test]
fn turns_are_taken_in_order_under_any_schedule() {
    explore(SEEDS, turns);
    for name in ["the last to come has the turn", "nobody is told of a turn's end"] {
        switch_on(Some(name));
        let seen = fails(SEEDS, turns);
        switch_on(None);
        assert!(seen, "{name}");
    }
}
