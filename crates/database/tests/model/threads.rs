//! Histories on real threads, with real waits.

use super::check::check;
use super::client::{Mix, Session, Shared};
use super::history::History;
use super::random::Random;
use super::recorder::Recorder;
use super::replay::Replay;
use super::statements::Ddl;
use database::{Database, SystemClock};
use std::cell::Cell;
use std::sync::Arc;
use std::thread;
use storage::Engine;

/// Number of threads.
const THREADS: u64 = 4;
/// Number of steps of each thread.
const STEPS: u64 = 12;

thread_local! {
    static PAUSES: Cell<u64> = const { Cell::new(0) };
}

/// Sometimes lets other threads run when a statement is about to commit.
fn pause() {
    PAUSES.set(PAUSES.get() + 1);
    if PAUSES.get().is_multiple_of(3) {
        thread::yield_now();
    }
}

/// Runs a history and checks it. Returns violations as errors.
pub(crate) fn history(engine: Arc<dyn Engine>, seed: u64) -> Result<(), String> {
    let recorder = Arc::new(Recorder::new(engine, Vec::new(), pause));
    let database = Database::open(recorder.clone(), Arc::new(SystemClock), seed).unwrap();
    let shared = Shared::new(vec![database], History::new(recorder.clone()), |work| work());
    let mix = Mix::draw(&Random::new(!seed));
    let first = Session::new(&shared, seed);
    first.ddl(&Ddl::Ensure, 0);
    first.ddl(&Ddl::Ensure, 1);
    thread::scope(|scope| {
        for number in 1..=THREADS {
            let shared = shared.clone();
            scope.spawn(move || {
                let session = Session::new(&shared, seed.wrapping_mul(31) + number);
                (0..STEPS).for_each(|_| session.step(mix));
                session.finish();
            });
        }
    });
    let events = shared.history.events();
    let checked = Replay::of(recorder.committed()).and_then(|replay| {
        check(&replay, 0, &events).inspect_err(|_| {
            if super::shown() {
                replay.show();
                events.iter().for_each(|event| eprintln!("{event:?}"));
            }
        })
    });
    checked.and_then(|()| shared.validate())
}
