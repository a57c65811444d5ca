//! Faults that are switched on one by one, each to be found by a seed: see `storage::mutants`.

#![cfg(feature = "mutants")]

use simulate::Script;
use std::time::Duration;
use storage::mutants::switch_on;

/// The faults, by name.
// tidy: sorted
const MUTANTS: &[&str] = &[
    "a failed sync is forgotten",
    "a later known time is forgotten",
    "aborted changes are stored",
    "changed documents are not matched again",
    "changed records are not marked",
    "collections change under transactions",
    "commit times are assigned twice",
    "commits are acknowledged before the journal has them",
    "counts of transactions are forgotten",
    "documents are not checked",
    "documents expire early",
    "each statement reads a new view",
    "entries in an index being built are not checked",
    "frames are not verified",
    "generations are not checked",
    "half of a batch is applied",
    "majority reads do not wait for the journal",
    "names of new segments are not synced",
    "old index entries are not removed",
    "pages are not synced before their superblock",
    "retryable writes leave no record",
    "statements are stored before the commit",
    "the log shows commits that are not durable",
    "transactions don't see their own changes",
    "transactions get the time of another state",
    "transactions leave no record",
    "transactions overlook changed collections",
    "transactions see what they have deleted",
    "transactions steal each other's write intents",
    "unique keys are not checked",
    "values that return count as unchanged",
    "write intents are ignored",
    "write intents are never released",
    "write intents are not compared with the read view",
    "write intents are released before the commit",
    "write intents on key strings are ignored",
    "writes during a build are loaded",
    "writes during a sync count as durable",
];

/// Number of seeds, one of which must find a fault.
const SEEDS: u64 = 100;

#[test]
fn a_seed_finds_each_fault() {
    let mut missed = Vec::new();
    for name in MUTANTS {
        switch_on(Some(name));
        let mut simulated = Duration::ZERO;
        let found = (0..SEEDS).find_map(|seed| match Script::new(seed).run() {
            Ok(report) => {
                simulated += report.simulated;
                None
            }
            Err(what) => Some((seed, what)),
        });
        switch_on(None);
        match found {
            Some((seed, what)) => {
                assert_eq!(Script::new(seed).run().err(), None, "seed {seed} fails without {name}");
                let what: String = what.chars().take(100).collect();
                eprintln!("| {name} | {seed} | {} | {what}", simulated.as_secs());
            }
            None => missed.push(*name),
        }
    }
    assert!(missed.is_empty(), "no seed finds {missed:#?}");
}
