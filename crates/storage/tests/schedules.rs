//! Invariants under all thread schedules: the commit lock, write intents, waits, views and times of the
//! store of one process, under a scheduler with seeds.
//!
//! `cargo test -p storage --features shuttle,mutants schedules` runs these tests.

#![cfg(all(feature = "shuttle", feature = "mutants"))]
#![allow(clippy::unwrap_used)]

mod schedules {
    use parking_lot::RwLock;
    use shuttle::thread;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use storage::mutants::switch_on;
    use storage::store::{
        Change, CommitError, Commits, Expect, Intents, Local, ReadViews, Replication, TransactionId,
        WriteIntent,
    };
    use storage::testing::{explore, fails};
    use storage::{Batch, Engine, Ident, Key, MemoryEngine, Snapshot, Value};

    const TREE: Ident = Ident(1);
    /// Seeds of each scenario; each stands for ten schedules.
    const SEEDS: u64 = 150;

    /// Locked for writing by tests that switch faults on.
    static ALONE: RwLock<()> = RwLock::new(());

    fn store() -> Arc<Local> {
        let engine = MemoryEngine::new();
        let mut batch = Batch::new();
        batch.create(TREE);
        engine.commit(batch).unwrap();
        Arc::new(Local::new(Arc::new(engine), None).unwrap())
    }

    fn number(snapshot: &dyn Snapshot, key: &[u8]) -> u64 {
        let value = snapshot.get(TREE, key).unwrap();
        value.map_or(0, |value| u64::from_be_bytes((*value).try_into().unwrap()))
    }

    /// Returns a change that increments a number and expects the value that was read.
    fn increment(read_view: &dyn Snapshot, key: &[u8], owner: Option<TransactionId>) -> Change {
        let before = read_view.get(TREE, key).unwrap();
        let mut change = Change { owner, ..Change::default() };
        let encoded = Key::from(key);
        change.expect.push(Expect::Value { ident: TREE, key: encoded.clone(), value: before });
        change.batch.put(TREE, encoded, Value::from(&(number(read_view, key) + 1).to_be_bytes()[..]));
        change
    }

    /// Increments a number like a statement: retries after a refusal, after a wait if the reason
    /// ends.
    fn increment_single(store: &Local, key: &[u8]) {
        loop {
            let mut change = increment(store.read_view().snapshot.as_ref(), key, None);
            match store.commit(&mut change).unwrap() {
                Ok(_) => return,
                Err(CommitError::IntentConflict(owner)) => store.wait_released(owner, &mut || true),
                Err(CommitError::Frozen) => store.wait_for_space(&mut || true).unwrap(),
                Err(CommitError::Expectation(_)) => {}
                Err(refusal) => panic!("{refusal:?}"),
            }
        }
    }

    /// Increments a number within a transaction. Returns true if it was committed.
    fn increment_within(store: &Local, key: &[u8]) -> bool {
        let (owner, read_view, _) = store.begin(0);
        let keys = [WriteIntent::Key(TREE, Key::from(key))];
        let acquired = store.acquire_intents(owner, &keys, &[], read_view.snapshot.as_ref()).unwrap().is_ok();
        if acquired {
            let change = increment(read_view.snapshot.as_ref(), key, Some(owner));
            let mut change = Change { expect: Default::default(), ..change };
            let committed = store.commit(&mut change).unwrap();
            assert!(committed.is_ok(), "nothing is left to fail at the commit: {committed:?}");
        }
        store.release(owner);
        acquired
    }

    fn single_increments() {
        let store = store();
        let run = |_| {
            let store = store.clone();
            thread::spawn(move || increment_single(&store, b"n"))
        };
        let threads: Vec<_> = (0..3).map(run).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(number(store.read_view().snapshot.as_ref(), b"n"), 3);
    }

    fn transactions_and_singles() {
        let store = store();
        let within = |_| {
            let store = store.clone();
            thread::spawn(move || u64::from(increment_within(&store, b"n")))
        };
        let mut threads: Vec<_> = (0..2).map(within).collect();
        let single = store.clone();
        threads.push(thread::spawn(move || {
            increment_single(&single, b"n");
            1
        }));
        let done: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert_eq!(number(store.read_view().snapshot.as_ref(), b"n"), done);
    }

    fn freezing() {
        let store = store();
        let writer = store.clone();
        let writer = thread::spawn(move || increment_single(&writer, b"n"));
        let freezer = store.clone();
        let freezer = thread::spawn(move || {
            freezer.freeze();
            let before = number(freezer.read_view().snapshot.as_ref(), b"n");
            thread::yield_now();
            assert_eq!(number(freezer.read_view().snapshot.as_ref(), b"n"), before);
            freezer.thaw().unwrap();
        });
        let exclusive = store.clone();
        let exclusive = thread::spawn(move || drop(exclusive.lock(&mut || true).unwrap().unwrap()));
        for thread in [writer, freezer, exclusive] {
            thread.join().unwrap();
        }
        assert_eq!(number(store.read_view().snapshot.as_ref(), b"n"), 1);
    }

    fn read_views_and_generations() {
        let store = store();
        let published = Arc::new(AtomicU64::new(0));
        let changes = |_| {
            let (store, published) = (store.clone(), published.clone());
            thread::spawn(move || {
                let lock = store.lock(&mut || true).unwrap().unwrap();
                let mut change = Change::default();
                let next = (lock.read_view().generation + 1).to_be_bytes();
                change.batch.put(TREE, Key::from(b"generation"), Value::from(&next[..]));
                let applied = &mut |generation| published.store(generation, Ordering::SeqCst);
                lock.commit(change, true, applied).unwrap().unwrap();
            })
        };
        let reader = store.clone();
        let (reported, reads) = (
            published.clone(),
            thread::spawn(move || {
                for _ in 0..3 {
                    let before = snapshot_and_generation(&reader);
                    assert_eq!(number(before.0.as_ref(), b"generation"), before.1);
                }
            }),
        );
        let threads: Vec<_> = (0..2).map(changes).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        reads.join().unwrap();
        assert_eq!((reported.load(Ordering::SeqCst), store.generation()), (2, 2));
    }

    fn snapshot_and_generation(store: &Local) -> (Arc<dyn Snapshot>, u64) {
        let read_view = store.read_view();
        (read_view.snapshot, read_view.generation)
    }

    /// A returned time is before the times of later commits. A transaction sees exactly the commits
    /// up to its time.
    fn times() {
        let store = store();
        let writes = |at: u64| {
            let store = store.clone();
            thread::spawn(move || {
                let reported = store.time(at * 2);
                let mut change = Change { earliest: at, ..Change::default() };
                let key = Key::from(at.to_be_bytes());
                change.batch.put(TREE, key.clone(), Value::empty());
                let written = store.commit(&mut change).unwrap().unwrap();
                assert!(written.cluster_time > reported && store.time(0) >= written.cluster_time);
                (written.cluster_time, key)
            })
        };
        let writers: Vec<_> = (1..4).map(writes).collect();
        let reader = store.clone();
        let reader = thread::spawn(move || {
            let (owner, read_view, time) = reader.begin(3);
            reader.release(owner);
            (read_view.snapshot, time)
        });
        let written: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        let (snapshot, time) = reader.join().unwrap();
        for (number, (at, key)) in written.iter().enumerate() {
            assert_eq!(snapshot.get(TREE, key).unwrap().is_some(), *at <= time);
            assert!(written[..number].iter().all(|(other, _)| other != at));
        }
    }

    #[test]
    fn no_update_is_lost() {
        let _together = ALONE.read();
        explore(SEEDS, single_increments);
    }

    #[test]
    fn write_intents_exclude_and_release_wakes_waiters() {
        let _together = ALONE.read();
        explore(SEEDS, transactions_and_singles);
    }

    #[test]
    fn a_thaw_wakes_its_waiters() {
        let _together = ALONE.read();
        explore(SEEDS, freezing);
    }

    #[test]
    fn a_read_view_pairs_a_snapshot_with_its_generation() {
        let _together = ALONE.read();
        explore(SEEDS, read_views_and_generations);
    }

    #[test]
    fn times_grow_and_order_snapshots() {
        let _together = ALONE.read();
        explore(SEEDS, times);
    }

    #[test]
    fn faults_are_seen_under_some_schedule() {
        let _alone = ALONE.write();
        let faults: [(&'static str, fn()); 7] = [
            ("documents are not checked", single_increments),
            ("write intents are ignored", transactions_and_singles),
            ("write intents are not compared with the read view", transactions_and_singles),
            ("released write intents wake no waiter", transactions_and_singles),
            ("commits go on while they are held up", freezing),
            ("commit times are assigned twice", times),
            ("a later known time is forgotten", times),
        ];
        for (name, scenario) in faults {
            switch_on(Some(name));
            let seen = fails(SEEDS, scenario);
            switch_on(None);
            assert!(seen, "{name}");
        }
    }
}
