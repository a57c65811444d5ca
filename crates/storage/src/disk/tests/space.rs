//! Space of dropped trees is freed automatically, also after a crash.

use super::*;
use std::time::Instant;

const LARGE: u64 = 12 << 20;

/// Returns an engine whose base holds a large tree and a small one after it.
fn large(files: &FaultyFiles) -> DiskEngine {
    let engine = open(files).unwrap();
    engine.commit(batch((0..3).map(|number| Op::Create(Ident(number))))).unwrap();
    for number in 0..LARGE / 100_000 {
        engine.commit(batch([put(1, &number.to_be_bytes(), &vec![number as u8; 100_000])])).unwrap();
    }
    engine.checkpoint().unwrap();
    engine.commit(batch([put(2, b"small", &[1; 1000])])).unwrap();
    engine.checkpoint().unwrap();
    assert!(base_bytes(files) > LARGE - 100_000);
    engine
}

fn base_bytes(files: &FaultyFiles) -> u64 {
    files.read(Path::new("/data/base.vellum")).unwrap().len() as u64
}

fn wait_until_small(files: &FaultyFiles, label: &str) {
    let started = Instant::now();
    while base_bytes(files) > LARGE * 2 / 3 {
        assert!(started.elapsed() < Duration::from_secs(20), "{label}: {} bytes", base_bytes(files));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_space_of_a_dropped_tree_is_freed_in_the_background() {
    let files = FaultyFiles::new();
    let engine = large(&files);
    let before = engine.statistics();
    // Readers of the old file continue.
    let snapshot = engine.snapshot();
    let all = Range::all();
    let mut cursor = engine.snapshot().scan(Ident(1), all, Direction::Backward).unwrap();
    assert!(before.bytes > LARGE - 100_000 && before.file_bytes > LARGE - 100_000);
    engine.commit(batch([Op::Drop(Ident(1))])).unwrap();
    // The remaining data is known at once.
    assert!(engine.statistics().bytes < 2000);
    wait_until_small(&files, "dropped");
    let started = Instant::now();
    while engine.statistics().file_bytes > LARGE / 4 {
        assert!(started.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(20));
    }
    let small = engine.snapshot().get(Ident(2), b"small").unwrap();
    assert_eq!(small.as_deref(), Some(&[1; 1000][..]));
    let first = snapshot.get(Ident(1), &0u64.to_be_bytes()).unwrap();
    assert_eq!(first.as_deref(), Some(&[0; 100_000][..]));
    drop(snapshot);
    let mut read = 0;
    while let Some((_, value)) = cursor.next().unwrap() {
        read += value.len() as u64;
    }
    assert!(read > LARGE - 100_000);
    engine.commit(batch([put(2, b"after", b"1")])).unwrap();
    engine.close().unwrap();
    let again = open(&files.restart(Loss::Everything)).unwrap();
    assert_eq!(again.snapshot().entries(Ident(2)), Ok(2));
}

#[test]
fn the_space_of_an_emptied_tree_is_reused() {
    let files = FaultyFiles::new();
    let engine = large(&files);
    let most = base_bytes(&files);
    for _ in 0..8 {
        engine.commit(batch([Op::Clear(Ident(1))])).unwrap();
        for number in 0..LARGE / 100_000 {
            engine.commit(batch([put(1, &number.to_be_bytes(), &vec![number as u8; 100_000])])).unwrap();
        }
        engine.checkpoint().unwrap();
    }
    assert!(base_bytes(&files) <= 4 * most, "{} after {most} bytes", base_bytes(&files));
    engine.commit(batch([Op::Clear(Ident(1))])).unwrap();
    wait_until_small(&files, "emptied");
}

/// Dropped pages leave the cache with the checkpoint that frees them. Other pages stay.
#[test]
fn the_pages_of_a_dropped_tree_leave_the_cache() {
    let files = FaultyFiles::new();
    let engine = large(&files);
    let remaining: Vec<u8> = (0..900_000u32).map(|number| number.wrapping_mul(0x9E37_79B9) as u8).collect();
    engine
        .commit(batch(remaining.chunks(1000).zip(0u64..).map(|(part, at)| put(2, &at.to_be_bytes(), part))))
        .unwrap();
    engine.checkpoint().unwrap();
    for ident in [1, 2] {
        let mut all = engine.snapshot().scan(Ident(ident), Range::all(), Direction::Forward).unwrap();
        while all.next().unwrap().is_some() {}
    }
    let full = engine.statistics().cache_bytes;
    engine.commit(batch([Op::Drop(Ident(1))])).unwrap();
    engine.checkpoint().unwrap();
    let left = engine.statistics().cache_bytes;
    assert!(full > 4_000_000 && left < 2_500_000, "{full} bytes were in the cache, {left} are left");
}

/// The process ends before, during and after the checkpoint that frees the tree's pages.
#[test]
fn a_crash_in_the_middle_keeps_no_room() {
    let prepared = FaultyFiles::new();
    large(&prepared).close().unwrap();
    for stop in [0, 1, 2, 3, 5, 8, 13, 21, 34, 55] {
        let files = prepared.restart(Loss::Nothing);
        let engine = open(&files).unwrap();
        let last = engine.commit(batch([Op::Drop(Ident(1))])).unwrap();
        engine.wait_journaled(last).unwrap();
        if stop > 0 {
            files.stop_at_write(files.counts().0 + stop);
            // It may finish before that many writes.
            let _ = engine.checkpoint();
        }
        let files = files.restart(if stop % 2 == 0 { Loss::Nothing } else { Loss::Some(stop) });
        let engine = open(&files).unwrap();
        assert!(!engine.snapshot().contains(Ident(1)).unwrap());
        wait_until_small(&files, &format!("stopped at write {}", stop));
        let small = engine.snapshot().get(Ident(2), b"small").unwrap();
        assert_eq!(small.as_deref(), Some(&[1; 1000][..]));
    }
}

/// Files may be copied after a finished checkpoint if nothing is written: no work is left.
#[test]
fn after_a_checkpoint_the_files_stay_as_they_are() {
    let files = FaultyFiles::new();
    let engine = large(&files);
    engine.commit(batch([Op::Drop(Ident(1))])).unwrap();
    engine.checkpoint().unwrap();
    let (bytes, counts) = (files.read(Path::new("/data/base.vellum")), files.counts());
    assert!(base_bytes(&files) < LARGE * 2 / 3);
    std::thread::sleep(Duration::from_millis(1200));
    assert!(files.read(Path::new("/data/base.vellum")) == bytes && files.counts() == counts);
}

/// The maximum time between checkpoints can change at run time, and a change is checkpointed by then.
#[test]
fn changes_leave_the_journal_when_they_may_stay_no_longer() {
    let files = FaultyFiles::new();
    let engine = open(&files).unwrap();
    engine.checkpoint_after(Some(Duration::ZERO));
    let before = engine.statistics().checkpoints;
    engine.commit(batch([Op::Create(Ident(1))])).unwrap();
    let started = Instant::now();
    while engine.statistics().checkpoints == before {
        assert!(started.elapsed() < Duration::from_secs(20), "no checkpoint");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_removed_segment_is_closed() {
    for durability in [Durability::None, Durability::Journaled] {
        let engine = open_as(&FaultyFiles::new(), durability).unwrap();
        engine.commit(batch([Op::Create(Ident(1))])).unwrap();
        for number in 0..5u64 {
            engine.commit(batch([put(1, &number.to_be_bytes(), b"value")])).unwrap();
            engine.checkpoint().unwrap();
            assert_eq!(engine.core.journal.held(), 1, "{durability:?}");
        }
    }
}
