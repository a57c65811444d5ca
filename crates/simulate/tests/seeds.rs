//! A seed decides everything: two runs have the same trace. Some seeds, each without a violation.

#![allow(clippy::unwrap_used)]

use simulate::{Report, Script};

#[test]
fn a_seed_replays_exactly() {
    for seed in 0..4 {
        assert_eq!(Script::new(seed).run().unwrap(), Script::new(seed).run().unwrap(), "seed {seed}");
    }
}

#[test]
fn seeds_reach_crashes_conflicts_and_repeated_requests() {
    let mut total = Report::default();
    for seed in 100..120 {
        total.add(&Script::new(seed).run().unwrap_or_else(|message| panic!("seed {seed}: {message}")));
    }
    let marks = [
        "clock jumps",
        "committed transactions",
        "crashes",
        "cursors of several batches",
        "failing syncs",
        "full backups",
        "full disks",
        "lost replies",
        "repeated requests",
        "replies with events of a change stream",
        "slow syncs",
        "writes",
    ];
    for mark in marks {
        assert!(total.marks.get(mark).is_some_and(|count| *count > 0), "no {mark}: {:?}", total.marks);
    }
}

#[test]
fn dropped_operations_and_fewer_steps_make_another_history() {
    let script = Script { steps: 60, ..Script::new(3) };
    let fewer = Script { dropped: (0..20).collect(), ..script.clone() };
    assert_ne!(script.run().unwrap().hash, fewer.run().unwrap().hash);
}
