//! Switches on each fault that the checker must detect, see `storage::mutants`.

use super::{crash, interleaved, threads, waiting};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use storage::MemoryEngine;
use storage::mutants::switch_on;

/// The kind of histories that show a fault.
#[derive(Clone, Copy, Debug)]
enum By {
    Interleaved,
    TwoDatabases,
    Threads,
    Crash,
    Waiting,
}

/// The faults, by name.
// tidy: sorted
const MUTANTS: &[(&str, By)] = &[
    ("aborted changes are stored", By::Interleaved),
    ("changed documents are not matched again", By::Interleaved),
    ("changed records are not marked", By::Interleaved),
    ("collections change under transactions", By::Interleaved),
    ("commit times are assigned twice", By::TwoDatabases),
    ("commits are acknowledged before the journal has them", By::Crash),
    ("counts of transactions are forgotten", By::Interleaved),
    ("documents are not checked", By::Interleaved),
    ("each statement reads a new view", By::Interleaved),
    ("entries in an index being built are not checked", By::Interleaved),
    ("generations are not checked", By::Interleaved),
    ("half of a batch is applied", By::Interleaved),
    ("old index entries are not removed", By::Interleaved),
    ("reads overlook a newer catalog", By::TwoDatabases),
    ("statements are stored before the commit", By::Interleaved),
    ("transactions don't see their own changes", By::Interleaved),
    ("transactions get the time of another state", By::Interleaved),
    ("transactions overlook changed collections", By::Interleaved),
    ("transactions see what they have deleted", By::Interleaved),
    ("transactions steal each other's write intents", By::Threads),
    ("transactions wait in write queues", By::Waiting),
    ("unique keys are not checked", By::Interleaved),
    ("values that return count as unchanged", By::Interleaved),
    ("write intents are ignored", By::Interleaved),
    ("write intents are never released", By::Interleaved),
    ("write intents are not compared with the read view", By::Interleaved),
    ("write intents are released before the commit", By::Interleaved),
    ("write intents on key strings are ignored", By::Interleaved),
    ("writes during a build are loaded", By::Interleaved),
];

/// Number of histories within which a fault must be detected.
const HISTORIES: u64 = 20_000;

fn history(by: By, seed: u64) -> Result<(), String> {
    let engine = || Arc::new(MemoryEngine::new());
    match by {
        By::Interleaved => interleaved::history(engine(), false, seed),
        By::TwoDatabases => interleaved::history(engine(), true, seed),
        By::Threads => threads::history(engine(), seed),
        By::Crash => crash::history(seed),
        By::Waiting => waiting::history(seed),
    }
}

/// Returns the seed of the first history that shows a fault, and the error.
fn caught(name: &'static str, by: By) -> Option<(u64, String)> {
    switch_on(Some(name));
    let seen = (0..HISTORIES).find_map(|seed| {
        let seen = catch_unwind(AssertUnwindSafe(|| history(by, seed)));
        let violation =
            seen.unwrap_or_else(|panic| Err(format!("panicked: {:?}", panic.downcast_ref::<String>())));
        violation.err().map(|violation| (seed, violation))
    });
    switch_on(None);
    seen
}

#[test]
fn every_fault_is_seen() {
    let _alone = super::ALONE.write();
    let mut missed = Vec::new();
    for (name, by) in MUTANTS {
        match caught(name, *by) {
            Some((seed, violation)) => eprintln!("{name}: seed {seed}, {by:?}: {:.150}", violation),
            None => missed.push(*name),
        }
    }
    assert!(missed.is_empty(), "these are not seen: {missed:#?}");
}
