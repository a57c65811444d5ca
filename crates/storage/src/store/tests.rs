//! Tests of a store's guarantees: atomic commits, expectations and claims.

use super::*;
use crate::{Engine, MemoryEngine};
use smallvec::smallvec;
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

fn get(store: &Local, key: &[u8]) -> Option<Vec<u8>> {
    store.sight().snapshot.get(TREE, key).unwrap().map(|value| value.to_vec())
}

fn expect(key: &[u8], value: Option<&[u8]>) -> Expect {
    Expect::Value { ident: TREE, key: Key::from(key), value: value.map(Value::from) }
}

#[test]
fn a_change_is_applied_only_where_its_expectations_hold() {
    let store = store();
    let first = store.commit(put(b"a", b"one")).unwrap().unwrap();
    let change = Change { expect: smallvec![expect(b"b", None), expect(b"a", None)], ..put(b"b", b"two") };
    let (refusal, change) = store.commit(change).unwrap().unwrap_err();
    assert_eq!(refusal, Refusal::Expectation(1));
    assert_eq!(get(&store, b"b"), None);
    let change = Change { expect: smallvec![expect(b"a", Some(b"one"))], ..change };
    let second = store.commit(change).unwrap().unwrap();
    assert!(second.time > first.time && second.position > first.position);
    assert_eq!(get(&store, b"b"), Some(b"two".to_vec()));
}

#[test]
fn an_entry_of_the_same_key_string_is_found_and_a_longer_one_is_not() {
    let store = store();
    store.commit(put(b"abc12345678", b"")).unwrap().unwrap();
    let with = |prefix: &[u8]| Change {
        expect: smallvec![Expect::NoneUnder { ident: TREE, prefix: Key::from(prefix) }],
        ..put(b"x", b"")
    };
    assert!(store.commit(with(b"abc")).unwrap().is_err());
    assert!(store.commit(with(b"ab")).unwrap().is_ok());
    assert!(store.commit(with(b"abd")).unwrap().is_ok());
}

#[test]
fn a_changed_collection_refuses_what_was_prepared_before() {
    let store = store();
    let mut lock = store.lock(&mut || true).unwrap().unwrap();
    lock.declare(TREE, 1);
    drop(lock);
    let prepared =
        Change { expect: smallvec![Expect::Generation { ident: TREE, generation: 1 }], ..put(b"a", b"") };
    assert!(store.commit(prepared.clone()).unwrap().is_ok());
    let lock = store.lock(&mut || true).unwrap().unwrap();
    let mut told = 0;
    let beside = vec![Beside::Generation(TREE, Some(2))];
    let change = Change { beside: beside.into(), ..put(b"b", b"") };
    lock.commit(change, true, &mut |generation| told = generation).unwrap().unwrap();
    assert_eq!((told, store.sight().generation), (2, 2));
    assert_eq!(store.commit(prepared).unwrap().unwrap_err().0, Refusal::Expectation(0));
}

#[test]
fn what_a_transaction_has_claimed_nobody_else_changes() {
    let store = store();
    store.commit(put(b"a", b"one")).unwrap().unwrap();
    let sight = store.sight().snapshot;
    let keys = [Claim::Key(TREE, Key::from(b"a"))];
    let (own, other) = (Owner(7), Owner(8));
    store.claim(own, &keys, &[], sight.as_ref()).unwrap().unwrap();
    store.claim(own, &keys, &[], sight.as_ref()).unwrap().unwrap();
    assert_eq!(store.claim(other, &keys, &[], sight.as_ref()).unwrap(), Err(Refusal::Claimed(own)));
    assert_eq!(store.commit(put(b"a", b"two")).unwrap().unwrap_err().0, Refusal::Claimed(own));
    assert!(store.commit(put(b"b", b"two")).unwrap().is_ok());
    let committed = Change { owner: Some(own), ..put(b"a", b"three") };
    store.commit(committed).unwrap().unwrap();
    let mut asked = 0;
    store.wait_released(own, &mut || {
        asked += 1;
        asked < 3
    });
    assert_eq!(asked, 3);
    store.release(own);
    store.wait_released(own, &mut || false);
    assert_eq!(store.claim(other, &keys, &[], sight.as_ref()).unwrap(), Err(Refusal::Changed));
    assert!(store.commit(put(b"a", b"four")).unwrap().is_ok());
}

#[test]
fn what_begins_with_a_claimed_key_string_nobody_else_adds() {
    let store = store();
    let (own, other) = (Owner(7), Owner(8));
    let sight = store.sight().snapshot;
    let keys = [Claim::Under(TREE, Key::from(b"abc"))];
    let prepared = |record: &[u8]| Change {
        expect: smallvec![Expect::NoneUnder { ident: TREE, prefix: Key::from(b"abc") }],
        ..put(&[b"abc", record].concat(), b"")
    };
    store.claim(own, &keys, &[], sight.as_ref()).unwrap().unwrap();
    assert_eq!(store.commit(prepared(b"00000001")).unwrap().unwrap_err().0, Refusal::Claimed(own));
    let own_change = Change { owner: Some(own), ..prepared(b"00000002") };
    store.commit(own_change).unwrap().unwrap();
    store.release(own);
    assert_eq!(store.claim(other, &keys, &[], sight.as_ref()).unwrap(), Err(Refusal::Changed));
    assert_eq!(store.commit(prepared(b"00000001")).unwrap().unwrap_err().0, Refusal::Expectation(0));
}

#[test]
fn a_collection_that_a_transaction_relies_on_stays() {
    let store = store();
    let mut lock = store.lock(&mut || true).unwrap().unwrap();
    lock.declare(TREE, 5);
    drop(lock);
    let sight = store.sight().snapshot;
    let claimed = store.claim(Owner(1), &[], &[(TREE, 4)], sight.as_ref()).unwrap();
    assert_eq!(claimed, Err(Refusal::Expectation(0)));
    store.claim(Owner(1), &[], &[(TREE, 5)], sight.as_ref()).unwrap().unwrap();
    let mut change = Change::default();
    change.batch.drop_ident(TREE);
    let lock = store.lock(&mut || true).unwrap().unwrap();
    assert_eq!(lock.relies(TREE, None), Some(Owner(1)));
    assert_eq!(
        lock.commit(change.clone(), false, &mut |_| {}).unwrap().unwrap_err().0,
        Refusal::Claimed(Owner(1))
    );
    store.release(Owner(1));
    assert!(store.commit(change).unwrap().is_ok());
}

#[test]
fn frozen_commits_are_refused_until_they_thaw() {
    let store = store();
    assert_eq!(store.freeze(), 1);
    assert_eq!(store.commit(put(b"a", b"")).unwrap().unwrap_err().0, Refusal::Frozen);
    assert!(store.lock(&mut || false).unwrap().is_none());
    assert_eq!(store.thaw(), Some(0));
    assert_eq!(store.thaw(), None);
    assert!(store.commit(put(b"a", b"")).unwrap().is_ok());
}

#[test]
fn counts_and_the_log_change_with_the_batch() {
    let engine = Arc::new(MemoryEngine::new());
    let mut batch = Batch::new();
    batch.create(TREE);
    engine.commit(batch).unwrap();
    let store = Local::new(engine.clone(), Some(LogOptions { bytes: 1 << 20 })).unwrap();
    let counts = Arc::new(Counts::default());
    let beside = vec![Beside::Count { counts: counts.clone(), records: 1, bytes: 3 }];
    let log = vec![(0, Value::from(b"head".as_slice())), (1, Value::from(b"one".as_slice()))];
    let written = store
        .commit(Change { beside: beside.into(), log: log.clone(), ..put(b"a", b"one") })
        .unwrap()
        .unwrap();
    assert_eq!((counts.records.load(Ordering::Relaxed), counts.bytes.load(Ordering::Relaxed)), (1, 3));
    let all = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
    let mut read = LogCursor::new(engine.snapshot(), all, crate::Direction::Forward).unwrap();
    assert_eq!(read.next_entry().unwrap(), Some(LogEntry { time: written.time, parts: log }));
    assert_eq!(read.next_entry().unwrap(), None);
    assert_eq!(store.log_begin().unwrap(), Some(written.time));
}

#[test]
fn a_value_that_was_away_meanwhile_counts_as_changed() {
    let store = store();
    store.commit(put(b"a", b"one")).unwrap().unwrap();
    let keys = [Claim::Key(TREE, Key::from(b"a"))];
    let (early, sight, time) = store.begin(0);
    store.commit(put(b"a", b"two")).unwrap().unwrap();
    let back = store.commit(put(b"a", b"one")).unwrap().unwrap();
    assert!(time < back.time);
    assert_eq!(store.claim(early, &keys, &[], sight.snapshot.as_ref()).unwrap(), Err(Refusal::Changed));
    let (late, sight, time) = store.begin(0);
    assert_eq!(time, back.time);
    store.claim(late, &keys, &[], sight.snapshot.as_ref()).unwrap().unwrap();
    store.release(early);
    store.release(late);
}
