//! Faults that are switched on one by one, each to be found by a seed: see `storage::mutants`.

#![cfg(feature = "mutants")]

use simulate::{Script, all_mutants};
use std::collections::BTreeSet;
use std::iter::once;
use std::time::Duration;
use storage::mutants::switch_on;

/// The faults, and the first seed that found each.
// tidy: sorted
const FOUND: &[(&str, u64)] = &[
    ("a failed sync is forgotten", 5),
    ("a text index on one field has two", 14),
    ("aborted changes are stored", 1),
    ("applied updates insert no missing documents", 70),
    ("backups overlook what the journal has lost", 154),
    ("bounds beyond MinKey include it", 1),
    ("changed documents are not matched again", 238),
    ("changed records are not marked", 40),
    ("collections change under transactions", 53),
    ("commit times are assigned twice", 0),
    ("commits are acknowledged before the journal has them", 2),
    ("counts of transactions are forgotten", 1),
    ("documents are not checked", 5),
    ("documents expire early", 60),
    ("duplicates in capped collections are tried again", 7),
    ("duplicates of refused writes end index builds", 186),
    ("each statement reads a new view", 1),
    ("entries in an index being built are not checked", 174),
    ("failed statements keep their transactions", 25),
    ("frames are not verified", 6),
    ("generations are not checked", 1),
    ("half of a batch is applied", 0),
    ("incomplete segments stay", 131),
    ("majority reads do not wait for the journal", 13),
    ("names of new segments are not synced", 0),
    ("old index entries are not removed", 0),
    ("old snapshots are never released", 3),
    ("pages are not synced before their superblock", 16),
    ("retryable writes leave no record", 4),
    ("shortened journals are accepted", 15),
    ("statements are stored before the commit", 0),
    ("the end of a turn wakes no waiter", 7),
    ("the localhost exception makes several users", 4),
    ("the log shows commits that are not durable", 12),
    ("transactions don't see their own changes", 0),
    ("transactions get the time of another state", 0),
    ("transactions leave no record", 19),
    ("transactions overlook changed collections", 33),
    ("transactions see what they have deleted", 1),
    ("transactions steal each other's write intents", 7),
    ("unique keys are not checked", 0),
    ("values that return count as unchanged", 30),
    ("write intents are ignored", 1),
    ("write intents are never released", 1),
    ("write intents are not compared with the read view", 28),
    ("write intents are released before the commit", 1),
    ("write intents on key strings are ignored", 199),
    ("writes during a sync count as durable", 54),
];

/// Number of other seeds that are tried if the known seed finds nothing: a change of the server changes what a seed
/// does.
const SEEDS: u64 = 200;

/// The other faults, each with the reason why no seed finds it.
// tidy: sorted
const UNSEEN: &[(&str, &str)] = &[
    ("a later known time is forgotten", "a second thread must run between two steps of a commit"),
    ("a sync wakes no waiter", "no seed found it; see disk/journal/tests.rs of storage"),
    ("commits go on while they are held up", "a command waits for the unlock before its commit"),
    ("reads overlook a newer catalog", "only a store of several processes has such reads"),
    ("released write intents wake no waiter", "no seed found it; see tests/schedules.rs of storage"),
    ("the last waiter has the turn", "every waiter gets its turn in the end, and replies have no order"),
    ("transactions wait in write queues", "the thread of the simulation never waits in a queue"),
    ("writes during a build are loaded", "no seed found it; see tests/schedules.rs of database"),
];

/// Mended defects: the fault that brings each back, or the reason why no seed can find it.
// tidy: sorted
const MENDED: &[(&str, Result<&str, &str>)] = &[
    ("HTTP connections held their place while they waited", Err("the simulation has no HTTP")),
    ("a burst of memory passed the limit", Err("the limit is that of a process or of its cgroup")),
    ("a checkpoint left a segment without a header", Ok("incomplete segments stay")),
    ("a comparison with MinKey differed with an index", Ok("bounds beyond MinKey include it")),
    ("a journal without synced commits was accepted", Ok("shortened journals are accepted")),
    ("a restart of the only PostgreSQL failed operations", Err("the simulation has no PostgreSQL")),
    ("a retry ran on two servers over PostgreSQL", Err("several processes share one schema")),
    ("a statement without a lock kept its transaction", Ok("failed statements keep their transactions")),
    ("a text index with an expiry time was refused", Ok("a text index on one field has two")),
    ("a thread that the system refused ended the server", Err("the simulation starts no threads")),
    ("an assertion refused new entries over deleted ones", Err("the engine itself was right")),
    ("changes after a view and a restart were lost", Err("the simulation has no views")),
    ("committed transactions left no durable record", Ok("transactions leave no record")),
    ("creating many collections was slow", Err("simulated time does not depend on work; see performance.md")),
    ("currentOp showed another time", Ok("transactions get the time of another state")),
    ("cursors of a dropped server stayed in memory", Err("no reply shows it; see `simulate --growth-max`")),
    ("cursors of renamed collections ended early", Err("seldom, see getMore.script")),
    ("duplicates in capped collections had no end", Ok("duplicates in capped collections are tried again")),
    ("incremental backups failed after a crash", Ok("backups overlook what the journal has lost")),
    ("lastWriteOpTime was missing over PostgreSQL", Err("the simulation has no PostgreSQL")),
    ("majority reads showed commits too early", Ok("majority reads do not wait for the journal")),
    ("old snapshots kept all versions", Ok("old snapshots are never released")),
    ("old views behind newer views were kept", Err("no client reads at an earlier time")),
    ("refused duplicates ended index builds", Ok("duplicates of refused writes end index builds")),
    ("restored oplogs failed on deleted documents", Ok("applied updates insert no missing documents")),
    ("the localhost exception made several users", Ok("the localhost exception makes several users")),
    ("the oplog was empty after a smaller limit", Err("each start has the same limit")),
    ("transactions behind a load balancer kept locks", Err("the simulation has no load balancer")),
];

#[test]
fn each_fault_has_a_seed_or_a_reason() {
    let found = FOUND.iter().map(|(name, _)| name.to_string());
    let listed: BTreeSet<String> = found.chain(UNSEEN.iter().map(|(name, _)| name.to_string())).collect();
    assert_eq!(listed.len(), FOUND.len() + UNSEEN.len(), "a fault has two entries");
    assert_eq!(listed, all_mutants(), "the lists and the faults of the sources differ");
    for (defect, fault) in MENDED {
        let is_found = fault.is_err() || FOUND.iter().any(|(name, _)| Ok(*name) == *fault);
        assert!(is_found, "no seed finds {defect}");
    }
}

#[test]
fn a_seed_finds_each_fault() {
    let mut missed = Vec::new();
    for (name, known) in FOUND {
        switch_on(Some(name));
        let mut simulated = Duration::ZERO;
        let script =
            |seed| Script { has_logins: name.starts_with("the localhost exception"), ..Script::new(seed) };
        let found = once(*known).chain(0..SEEDS).find_map(|seed| match script(seed).run() {
            Ok(report) => {
                simulated += report.simulated;
                None
            }
            Err(violation) => Some((seed, violation)),
        });
        switch_on(None);
        match found {
            Some((seed, violation)) => {
                assert_eq!(script(seed).run().err(), None, "seed {seed} fails without {name}");
                let violation: String = violation.chars().take(100).collect();
                eprintln!("| {name} | {seed} | {} | {violation}", simulated.as_secs());
            }
            None => missed.push(*name),
        }
    }
    assert!(missed.is_empty(), "no seed finds {missed:#?}");
}
