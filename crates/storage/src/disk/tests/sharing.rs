//! Sharing of syncs: waiting writers share one, and a single writer waits for one sync and no timer.

use std::thread;
use std::time::Duration;

use super::*;

const WRITERS: u64 = 32;
const EACH: u64 = 12;

/// An engine whose timer syncs only after an hour.
fn relaxed(files: &FaultyFiles) -> DiskEngine {
    let options = DiskOptions {
        durability: Durability::Relaxed,
        journal_commit_interval: Duration::from_secs(3600),
        ..options()
    };
    let engine = DiskEngine::open_with(Arc::new(files.clone()), &options, WIDE).unwrap();
    engine.commit(batch([Op::Create(Ident(1))])).unwrap();
    engine
}

fn write(engine: &DiskEngine, key: u64) {
    let position = engine.commit(batch([put(1, &key.to_be_bytes(), b"value")])).unwrap();
    engine.wait_journaled(position).unwrap();
}

#[test]
fn writers_that_wait_share_syncs() {
    let files = FaultyFiles::new();
    let engine = relaxed(&files);
    files.slow_syncs(Duration::from_millis(4));
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let engine = &engine;
            scope.spawn(move || (0..EACH).for_each(|at| write(engine, writer * EACH + at)));
        }
    });
    let counted = engine.statistics();
    assert_eq!(counted.commits, WRITERS * EACH + 1);
    assert!(counted.syncs * 4 <= counted.commits, "{} syncs for {} commits", counted.syncs, counted.commits);
    assert!(counted.sync_micros_p50 >= 4000, "{} µs", counted.sync_micros_p50);
    // All commits are present if everything unsynced is lost.
    let files = files.restart(Loss::Everything);
    drop(engine);
    assert_eq!(open(&files).unwrap().snapshot().entries(Ident(1)), Ok(WRITERS * EACH));
}

#[test]
fn a_lone_writer_waits_for_one_sync() {
    let engine = relaxed(&FaultyFiles::new());
    let before = engine.statistics().syncs;
    for key in 0..EACH {
        write(&engine, key);
        assert_eq!(engine.statistics().syncs, before + key + 1);
    }
}
