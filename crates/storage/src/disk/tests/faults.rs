//! Full or failing disks during the operation of the engine.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};
use std::thread;
use std::time::Instant;

use parking_lot::Mutex;

use super::*;
use crate::{JournalWait, Position, Room};

/// Returns a checkpointed tree with some entries.
fn filled(files: &FaultyFiles) -> DiskEngine {
    let engine = open(files).unwrap();
    start(&engine);
    engine.commit(batch((0..500u64).map(|number| put(1, &number.to_be_bytes(), &[7; 200])))).unwrap();
    engine.checkpoint().unwrap();
    engine
}

fn within_seconds(label: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(20), "{label} takes too long");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Runs itself in another process, because that process ends.
#[cfg(unix)]
#[test]
fn a_panic_of_a_thread_ends_the_process() {
    use std::os::unix::process::ExitStatusExt;
    const CHILD: &str = "VELLUM_TEST_PANICKING_THREAD";
    if std::env::var_os(CHILD).is_some() {
        let engine = filled(&FaultyFiles::new());
        engine.spawn("checkpointer", || panic!("a broken checkpoint")).unwrap();
        return engine.close().unwrap();
    }
    let name = "disk::tests::faults::a_panic_of_a_thread_ends_the_process";
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    let output = child.args([name, "--exact", "--nocapture"]).env(CHILD, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(6), "{text}");
    assert!(text.contains("a broken checkpoint"), "{text}");
}

/// Commits like a caller that holds no locks.
fn in_turn(engine: &DiskEngine, batch: Batch) -> Result<Position> {
    engine.wait_for_space(&mut || true)?;
    engine.commit(batch)
}

#[test]
fn a_full_disk_fails_the_commit_and_nothing_else() {
    let files = FaultyFiles::new();
    let engine = filled(&files);
    files.set_free_bytes(Some(100));
    let before = everything(&*engine.snapshot());
    for _ in 0..3 {
        let refused = engine.commit(batch([put(1, b"large", &[1; 1000])]));
        assert!(matches!(refused, Err(Error::Full(_))), "{refused:?}");
        assert_eq!(everything(&*engine.snapshot()), before);
    }
    files.set_free_bytes(None);
    let position = engine.commit(batch([put(1, b"large", &[1; 1000])])).unwrap();
    engine.wait_journaled(position).unwrap();
    let files = files.restart(Loss::Everything);
    let engine = open(&files).unwrap();
    assert_eq!(engine.snapshot().entries(Ident(1)), Ok(501));
}

#[test]
fn a_checkpoint_waits_for_space_while_readers_go_on() {
    let files = FaultyFiles::new();
    let engine = filled(&files);
    let many = (0..3000u64).map(|number| put(2, &number.to_be_bytes(), &[8; 900]));
    engine.commit(batch(many)).unwrap();
    files.set_free_bytes(Some(50_000));
    thread::scope(|scope| {
        let checkpoint = scope.spawn(|| engine.checkpoint());
        within_seconds("running out of space", || engine.core.control.full().is_some());
        let snapshot = engine.snapshot();
        assert_eq!(snapshot.get(Ident(1), &7u64.to_be_bytes()).unwrap().as_deref(), Some(&[7; 200][..]));
        assert_eq!(entries(&*snapshot, Ident(2), Range::all(), Direction::Backward).unwrap().len(), 3000);
        files.set_free_bytes(None);
        assert_eq!(checkpoint.join().unwrap(), Ok(()));
    });
    let before = everything(&*engine.snapshot());
    drop(engine);
    assert_eq!(everything(&*open(&files).unwrap().snapshot()), before);
}

#[test]
fn a_failed_sync_loses_nothing_that_was_acknowledged() {
    let files = FaultyFiles::new();
    let engine = filled(&files);
    let position = engine.commit(batch([put(1, b"a", b"1")])).unwrap();
    files.fail_syncs(1);
    assert!(engine.wait_journaled(position).is_err());
    assert_eq!(engine.snapshot().get(Ident(1), b"a").unwrap().as_deref(), Some(&b"1"[..]));
    within_seconds("a checkpoint", || engine.wait_journaled(position).is_ok());
    let position = engine.commit(batch([put(1, b"b", b"2")])).unwrap();
    engine.wait_journaled(position).unwrap();
    let engine = open(&files.restart(Loss::Everything)).unwrap();
    assert_eq!(engine.snapshot().entries(Ident(1)), Ok(502));
}

#[test]
fn a_base_that_failed_is_opened_anew() {
    let files = FaultyFiles::new();
    let engine = filled(&files);
    engine.commit(batch([put(1, b"a", b"1")])).unwrap();
    // The first sync of the checkpoint is the new segment's, the next ones are the base's.
    for failing in 1..5 {
        files.fail_syncs(failing);
        assert!(engine.checkpoint().is_err());
        files.fail_syncs(0);
        within_seconds("a checkpoint", || engine.checkpoint().is_ok());
        assert_eq!(
            engine.snapshot().get(Ident(1), &7u64.to_be_bytes()).unwrap().as_deref(),
            Some(&[7; 200][..])
        );
        engine.commit(batch([put(1, b"b", &[failing as u8])])).unwrap();
    }
    let before = everything(&*engine.snapshot());
    drop(engine);
    assert_eq!(everything(&*open(&files).unwrap().snapshot()), before);
}

#[test]
fn writers_wait_when_checkpoints_lag_and_fail_only_if_there_is_no_room() {
    let files = FaultyFiles::new();
    let bounds = Bounds { changed_bytes: 20_000, journal_bytes: 1 << 20, refused_bytes: 1 << 20 };
    let engine = DiskEngine::open_with(Arc::new(files.clone()), &options(), bounds).unwrap();
    start(&engine);
    for number in 0..2000u64 {
        in_turn(&engine, batch([put(1, &number.to_be_bytes(), &[7; 200])])).unwrap();
        assert!(engine.core.latest().changed_bytes < 3 * bounds.changed_bytes);
    }
    assert!(engine.statistics().checkpoints > 5);
    files.set_free_bytes(Some(200_000));
    let mut number = 2000u64;
    let refused = loop {
        match in_turn(&engine, batch([put(1, &number.to_be_bytes(), &[7; 200])])) {
            Ok(_) => number += 1,
            Err(error) => break error,
        }
        assert!(number < 20_000);
    };
    assert!(matches!(refused, Error::Full(_)), "{refused:?}");
    assert_eq!(engine.snapshot().entries(Ident(1)), Ok(number));
    files.set_free_bytes(None);
    within_seconds("going on", || in_turn(&engine, batch([put(2, b"a", b"1")])).is_ok());
    drop(engine);
    assert_eq!(open(&files).unwrap().snapshot().entries(Ident(1)), Ok(number));
}

#[test]
fn a_wait_for_space_is_interruptible_and_other_writes_are_refused() {
    let files = FaultyFiles::new();
    let bounds = Bounds { changed_bytes: 20_000, journal_bytes: 1 << 20, refused_bytes: 100_000 };
    let engine = DiskEngine::open_with(Arc::new(files.clone()), &options(), bounds).unwrap();
    start(&engine);
    // The checkpoint waits for the disk while changes accumulate.
    files.slow_syncs(Duration::from_millis(300));
    let one = |number: u64| batch([put(1, &number.to_be_bytes(), &[7; 200])]);
    let numbers =
        (0..).find(|number| engine.core.changed() >= 40_000 || engine.commit(one(*number)).is_err());
    let numbers = numbers.unwrap();
    let (mut requested, started) = (0, Instant::now());
    let waited = engine.wait_for_space(&mut || {
        requested += 1;
        requested < 4
    });
    assert_eq!((waited, requested), (Ok(()), 4));
    assert!(started.elapsed() < Duration::from_millis(250), "{:?}", started.elapsed());
    let Ok(Room::Checkpoint(mut progress)) = engine.room() else { panic!("the engine has room") };
    let refused = (numbers..).find_map(|number| engine.commit(one(number)).err());
    assert!(matches!(&refused, Some(Error::Full(why)) if why.contains("checkpoints")), "{refused:?}");
    let (longest, started) = (Duration::from_secs(20), Instant::now());
    files.slow_syncs(Duration::ZERO);
    assert_eq!(engine.wait_for_space(&mut || started.elapsed() < longest), Ok(()));
    assert!(started.elapsed() < longest);
    // The checkpoint has ended.
    assert!(progress.has_happened(Waker::noop()));
    engine.commit(one(u64::MAX)).unwrap();
}

#[test]
fn each_sync_reports_the_durable_position() {
    let files = FaultyFiles::new();
    let engine = Arc::new(open(&files).unwrap());
    let reported = Arc::new(Mutex::new(Vec::new()));
    let (reported_too, engine_too) = (Arc::clone(&reported), Arc::downgrade(&engine));
    engine.when_durable(Arc::new(move || {
        // With locks held this would wait forever.
        let Some(engine) = engine_too.upgrade() else { return };
        engine.sync_soon();
        drop(engine.snapshot());
        reported_too.lock().push(engine.durable());
    }));
    start(&*engine);
    assert_eq!(engine.durable(), Position(0));
    let waited = engine.commit(batch([put(1, b"a", b"1")])).unwrap();
    engine.wait_journaled(waited).unwrap();
    assert_eq!((engine.durable(), reported.lock().clone()), (waited, vec![waited]));
    // No sync runs at this durability, unless requested.
    let requested = engine.commit(batch([put(1, b"b", b"1")])).unwrap();
    assert_eq!(engine.durable(), waited);
    engine.sync_soon();
    within_seconds("a sync", || *reported.lock() == [waited, requested]);
    let checkpointed = engine.commit(batch([put(1, b"c", b"1")])).unwrap();
    engine.checkpoint().unwrap();
    assert_eq!((engine.durable(), reported.lock().last()), (checkpointed, Some(&checkpointed)));
    // A failed sync advances nothing; the checkpoint that repairs the journal does.
    let mended = engine.commit(batch([put(1, b"d", b"1")])).unwrap();
    files.fail_syncs(1);
    engine.sync_soon();
    within_seconds("a checkpoint", || reported.lock().last() == Some(&mended));
    let files = files.restart(Loss::Everything);
    drop(engine);
    let engine = open(&files).unwrap();
    assert_eq!((engine.durable(), engine.snapshot().entries(Ident(1))), (mended, Ok(4)));
}

#[test]
fn a_failed_read_affects_only_its_readers() {
    let files = FaultyFiles::new();
    drop(filled(&files));
    let engine = open(&files).unwrap();
    let before = engine.snapshot();
    let key = 7u64.to_be_bytes();
    files.fail_reads(1);
    let failed = before.get(Ident(1), &key);
    assert!(matches!(failed, Err(Error::Io { .. })), "{failed:?}");
    for snapshot in [before, engine.snapshot()] {
        assert_eq!(snapshot.get(Ident(1), &key).unwrap().as_deref(), Some(&[7; 200][..]));
    }
    engine.commit(batch([put(1, b"a", b"1")])).unwrap();
    engine.checkpoint().unwrap();
    assert_eq!(engine.snapshot().entries(Ident(1)), Ok(501));
}

/// Writers keep two trees equal within each commit during checkpoints. Every snapshot shows them equal, and
/// acknowledged commits are present after the machine stops.
#[test]
fn readers_writers_and_checkpoints_at_once() {
    const WRITERS: u64 = 4;
    let files = FaultyFiles::new();
    let bounds = Bounds { changed_bytes: 30_000, journal_bytes: 1 << 20, refused_bytes: 1 << 20 };
    let engine = DiskEngine::open_with(Arc::new(files.clone()), &options(), bounds).unwrap();
    start(&engine);
    let write = |writer: u64| {
        for number in 0..400u64 {
            let key = (number * 7919 % 150 * WRITERS + writer).to_be_bytes();
            let change = |ident: u64| match number % 5 {
                0 => Op::Delete { ident: Ident(ident), key: Key::from(key) },
                _ => put(ident, &key, &[number as u8; 100]),
            };
            let position = in_turn(&engine, batch([change(1), change(2)])).unwrap();
            if number % 3 == 0 || number == 399 {
                engine.wait_journaled(position).unwrap();
            }
        }
    };
    let writing = std::sync::atomic::AtomicBool::new(true);
    thread::scope(|scope| {
        scope.spawn(|| {
            while writing.load(std::sync::atomic::Ordering::Relaxed) {
                let snapshot = engine.snapshot();
                let all =
                    |ident| entries(&*snapshot, Ident(ident), Range::all(), Direction::Forward).unwrap();
                let (one, two) = (all(1), all(2));
                assert_eq!(one, two);
                assert_eq!(snapshot.entries(Ident(1)), Ok(one.len() as u64));
            }
        });
        let writers: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(move || write(writer))).collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        writing.store(false, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(engine.statistics().checkpoints > 2);
    let before = everything(&*engine.snapshot());
    let reopened = open(&files.restart(Loss::Everything)).unwrap();
    assert_eq!(everything(&*reopened.snapshot()), before);
}

/// A large batch is applied to a copy of the state: it must not undo a checkpoint that ends meanwhile.
#[test]
fn large_batches_beside_checkpoints_lose_nothing() {
    let files = FaultyFiles::new();
    let engine = open(&files).unwrap();
    start(&engine);
    let writing = std::sync::atomic::AtomicBool::new(true);
    let count = 150 * 600u64;
    thread::scope(|scope| {
        scope.spawn(|| {
            while writing.load(std::sync::atomic::Ordering::Relaxed) {
                engine.checkpoint().unwrap();
            }
        });
        for from in (0..count).step_by(600) {
            let puts = (from..from + 600).map(|key| put(1, &key.to_be_bytes(), &[1; 20]));
            engine.commit(batch(puts)).unwrap();
        }
        writing.store(false, std::sync::atomic::Ordering::Relaxed);
    });
    let all = entries(&*engine.snapshot(), Ident(1), Range::all(), Direction::Forward).unwrap();
    assert_eq!(all.len() as u64, count);
    drop(engine);
    assert_eq!(
        open(&files).unwrap().snapshot().get(Ident(1), &[0; 8]).unwrap().as_deref(),
        Some(&[1; 20][..])
    );
}

/// Counts its wake-ups.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_waker_is_called_after_any_sync() {
    let files = FaultyFiles::new();
    let engine = filled(&files);
    let put_one = |key: &[u8]| engine.commit(batch([put(1, key, b"1")])).unwrap();
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let is_woken = |times| woken.0.load(Ordering::SeqCst) == times;
    let first = put_one(b"a");
    assert_eq!(engine.await_journaled(first, &waker), JournalWait::SyncNeeded);
    // The promised sync has not begun, and others already rely on it.
    let second = put_one(b"b");
    assert_eq!(engine.await_journaled(second, &waker), JournalWait::Pending);
    engine.wait_journaled(first).unwrap();
    assert!(is_woken(1));
    assert_eq!(engine.await_journaled(second, &waker), JournalWait::Satisfied);
    // A frame that is too late for a running sync gets another sync without a call.
    files.slow_syncs(Duration::from_millis(100));
    let third = put_one(b"c");
    thread::scope(|scope| {
        let syncs = scope.spawn(|| engine.wait_journaled(third));
        within_seconds("a sync", || engine.core.journal.is_running());
        let fourth = put_one(b"d");
        assert_eq!(engine.await_journaled(fourth, &waker), JournalWait::Pending);
        syncs.join().unwrap().unwrap();
        within_seconds("a second sync", || engine.durable() >= fourth && is_woken(2));
    });
    // A waiter left by a failed sync polls again and gets the error.
    let fifth = put_one(b"e");
    assert_eq!(engine.await_journaled(fifth, &waker), JournalWait::SyncNeeded);
    let sixth = put_one(b"f");
    assert_eq!(engine.await_journaled(sixth, &waker), JournalWait::Pending);
    files.slow_syncs(Duration::ZERO);
    files.fail_syncs(1);
    assert!(engine.core.journal.wait(fifth.0).is_err());
    assert!(is_woken(3));
    assert_eq!(engine.await_journaled(sixth, &waker), JournalWait::SyncNeeded);
    assert!(engine.core.journal.wait(sixth.0).is_err());
    engine.checkpoint().unwrap();
    assert_eq!(engine.await_journaled(sixth, &waker), JournalWait::Satisfied);
}

#[test]
fn with_writes_at_syncs_a_full_disk_fails_only_commits_without_space() {
    let files = FaultyFiles::new();
    let engine = open_as(&files, Durability::Journaled).unwrap();
    start(&engine);
    files.set_free_bytes(Some(20_000));
    let mut committed = 0u64;
    let refused = loop {
        match engine.commit(batch([put(1, &committed.to_be_bytes(), &[1; 1000])])) {
            Ok(_) => committed += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::Full(_)), "{refused:?}");
    assert!((10..40).contains(&committed), "{committed}");
    let before = everything(&*engine.snapshot());
    // Committed frames have their space.
    let position = engine.core.latest().position;
    engine.wait_journaled(Position(position)).unwrap();
    assert_eq!(everything(&*engine.snapshot()), before);
    files.set_free_bytes(None);
    let position = engine.commit(batch([put(1, b"more", &[1; 1000])])).unwrap();
    engine.wait_journaled(position).unwrap();
    let before = everything(&*engine.snapshot());
    let again = open_as(&files.restart(Loss::Everything), Durability::Journaled).unwrap();
    assert_eq!(everything(&*again.snapshot()), before);
    assert_eq!(again.snapshot().entries(Ident(1)), Ok(committed + 1));
}

#[test]
fn where_syncs_write_a_failed_one_is_made_up_for() {
    let files = FaultyFiles::new();
    let engine = open_as(&files, Durability::Journaled).unwrap();
    start(&engine);
    let put_one = |number: u64| engine.commit(batch([put(1, &number.to_be_bytes(), &[5; 700])]));
    let mut lost = 0;
    for number in 0..60u64 {
        if number % 9 == 4 {
            files.fail_syncs(1);
        }
        let waited = put_one(number).and_then(|position| engine.wait_journaled(position));
        if waited.is_err() {
            lost += 1;
            files.fail_syncs(0);
            within_seconds("a checkpoint", || engine.checkpoint().is_ok());
        }
        if number % 10 == 7 {
            engine.checkpoint().unwrap();
        }
    }
    assert!(lost > 3, "{lost}");
    let before = everything(&*engine.snapshot());
    let position = engine.core.latest().position;
    engine.wait_journaled(Position(position)).unwrap();
    let again = open_as(&files.restart(Loss::Everything), Durability::Journaled).unwrap();
    assert_eq!(everything(&*again.snapshot()), before);
}

#[test]
fn a_segment_that_could_not_be_made_does_not_look_damaged() {
    for write in 1.. {
        let files = FaultyFiles::new();
        let engine = DiskEngine::open_stepped(Arc::new(files.clone()), &DiskOptions::new("/data")).unwrap();
        start(&engine);
        let position = engine.commit(batch([put(1, b"key", &[1; 100])])).unwrap();
        engine.wait_journaled(position).unwrap();
        files.fail_syncs(1);
        assert!(engine.checkpoint().is_err());
        let position = engine.commit(batch([put(1, b"later", &[1; 100])])).unwrap();
        engine.wait_journaled(position).unwrap();
        files.stop_at_write(files.counts().0 + write);
        let is_done = engine.checkpoint().is_ok();
        let after = files.restart(Loss::Everything);
        drop(engine);
        let again = DiskEngine::open_stepped(Arc::new(after), &DiskOptions::new("/data")).unwrap();
        assert_eq!(again.snapshot().entries(Ident(1)), Ok(2), "stopped at write {write}");
        if is_done {
            return;
        }
    }
}
