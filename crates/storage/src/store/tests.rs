//! What a local store promises beyond the contract of all stores (`storage::testing::check_store`).

use super::*;
use crate::{Engine, MemoryEngine};
use std::sync::atomic::Ordering;

const TREE: Ident = Ident(1);

fn store() -> Local {
    let engine = Arc::new(MemoryEngine::new());
    let mut batch = Batch::new();
    batch.create(TREE);
    engine.commit(batch).unwrap();
    Local::new(engine, None).unwrap()
}

fn put(key: &[u8], value: &[u8]) -> Change {
    let mut change = Change::default();
    change.batch.put(TREE, key, value);
    change
}

#[test]
fn counts_and_the_log_change_with_the_batch() {
    let engine = Arc::new(MemoryEngine::new());
    let mut batch = Batch::new();
    batch.create(TREE);
    engine.commit(batch).unwrap();
    let store = Local::new(engine.clone(), Some(LogOptions { bytes: 1 << 20 })).unwrap();
    let counts = Arc::new(Counts::default());
    let side_effects = vec![SideEffect::Count { counts: counts.clone(), records: 1, bytes: 3 }];
    let log = vec![(0, Value::from(b"head".as_slice())), (1, Value::from(b"one".as_slice()))];
    let written = store
        .commit(&mut Change { side_effects: side_effects.into(), log: log.clone(), ..put(b"a", b"one") })
        .unwrap()
        .unwrap();
    assert_eq!((counts.records.load(Ordering::Relaxed), counts.bytes.load(Ordering::Relaxed)), (1, 3));
    let all = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
    let mut read = LogCursor::new(engine.snapshot(), all, crate::Direction::Forward).unwrap();
    assert_eq!(read.next_entry().unwrap(), Some(LogEntry { time: written.cluster_time, parts: log }));
    assert_eq!(read.next_entry().unwrap(), None);
    assert_eq!(store.log_begin().unwrap(), Some(written.cluster_time));
}

#[test]
fn counts_of_collections_that_do_not_exist_are_forgotten() {
    let store = store();
    let counts = |ident| store.counts(Ident(ident), &mut |_| Ok(())).unwrap();
    let kept: Vec<_> = (0..100).map(counts).collect();
    (100..10_000).for_each(|ident| drop(counts(ident)));
    // The table grows to 448 places at most: twice the kept ones, and those that removals have used up.
    assert!(store.counts.lock().len() < 500);
    assert!((0..100).zip(&kept).all(|(ident, kept)| Arc::ptr_eq(kept, &counts(ident))));
}

#[test]
fn a_value_that_was_away_meanwhile_counts_as_changed() {
    let store = store();
    store.commit(&mut put(b"a", b"one")).unwrap().unwrap();
    let keys = [WriteIntent::Key(TREE, Key::from(b"a"))];
    let (early, read_view, time) = store.begin(0);
    store.commit(&mut put(b"a", b"two")).unwrap().unwrap();
    let back = store.commit(&mut put(b"a", b"one")).unwrap().unwrap();
    assert!(time < back.cluster_time);
    assert_eq!(
        store.acquire_intents(early, &keys, &[], read_view.snapshot.as_ref()).unwrap(),
        Err(CommitError::Changed)
    );
    let (late, read_view, time) = store.begin(0);
    assert_eq!(time, back.cluster_time);
    store.acquire_intents(late, &keys, &[], read_view.snapshot.as_ref()).unwrap().unwrap();
    store.release(early);
    store.release(late);
}
