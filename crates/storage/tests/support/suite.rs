//! The contracts of the traits as suites: [`check_engine`] for engines, [`check_store`] for stores.
//!
//! Each check works on trees of its own, so a suite can run on a store that already holds data.

#![allow(clippy::unwrap_used)]

use crate::store::{
    AcknowledgmentLevel, Change, CommitError, Committed, Counts, Expect, MemberPreference, SideEffect,
    StandbyRead, Store, TransactionId, WriteConcernStatus, WriteIntent,
};
use crate::{
    Batch, Cursor, Direction, Engine, Error, Hints, Ident, JournalWait, Key, Kind, Overlay, Range, Ranges,
    Room, Snapshot, Value,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};

/// Checks the contract of [`Engine`], [`Journaling`](crate::Journaling), [`Snapshot`] and [`Cursor`] on an engine
/// whose trees `first`, `first + 1` and `first + 2` are unused.
///
/// # Panics
/// If the engine breaks the contract.
pub fn check_engine(engine: &dyn Engine, first: u64) {
    let [tree, fork, other] = [0, 1, 2].map(|at| Ident(first + at));
    let missing = Err(Error::NoSuchIdent(fork));
    let mut batch = Batch::new();
    batch.create(tree);
    entries().for_each(|(key, value)| batch.put(tree, key, value));
    batch.set_time(7);
    let before = engine.snapshot();
    let created = engine.commit(batch).unwrap();
    assert_eq!((before.contains(tree), before.get(tree, b"a")), (Ok(false), Err(Error::NoSuchIdent(tree))));
    check_reads(engine.snapshot().as_ref(), tree);
    assert!(engine.latest_time() >= 7, "the time of a commit is remembered");

    // A batch that fails changes nothing.
    let mut batch = Batch::new();
    batch.delete(tree, b"a");
    batch.put(fork, b"a", b"");
    assert_eq!(engine.commit(batch).map(drop), missing);
    let mut batch = Batch::new();
    batch.delete(tree, b"a");
    batch.create(tree);
    assert_eq!(engine.commit(batch), Err(Error::IdentExists(tree)));
    let long = vec![0; Key::MAX_BYTES + 1];
    let mut batch = Batch::new();
    batch.delete(tree, b"a");
    batch.put(tree, long.as_slice(), b"");
    assert_eq!(engine.commit(batch), Err(Error::KeyTooLong(long.len())));
    check_reads(engine.snapshot().as_ref(), tree);

    // A snapshot keeps its state over every kind of operation.
    let snapshot = engine.snapshot();
    let mut batch = Batch::new();
    batch.fork(tree, fork);
    batch.put(fork, b"new", b"1");
    batch.clear(tree);
    batch.create(other);
    let changed = engine.commit(batch).unwrap();
    assert!(changed > created, "positions grow");
    check_reads(snapshot.as_ref(), tree);
    let present = engine.snapshot();
    assert_eq!((present.entries(tree), present.bytes(tree)), (Ok(0), Ok(0)));
    assert_eq!(present.entries(fork), snapshot.entries(tree).map(|entries| entries + 1));
    assert_eq!(
        differences(present.as_ref(), Some(tree), Some(fork)),
        differences(present.as_ref(), None, Some(fork))
    );
    let mut batch = Batch::new();
    [tree, fork, other].into_iter().for_each(|ident| batch.drop_ident(ident));
    let dropped = engine.commit(batch).unwrap();
    assert_eq!(engine.snapshot().contains(fork), Ok(false));
    assert_eq!(present.contains(fork), Ok(true));
    check_reads(snapshot.as_ref(), tree);

    // Durability.
    assert!(engine.wait_for_space(&mut || true).is_ok());
    engine.sync_soon();
    engine.wait_journaled(dropped).unwrap();
    assert!(engine.durable() >= dropped, "a position is durable once it has been waited for");
    assert_eq!(engine.await_journaled(dropped, Waker::noop()), JournalWait::Satisfied);
    engine.checkpoint().unwrap();
    assert!(!engine.name().is_empty());
    assert!(engine.statistics().commits >= 3);
    let mut backup = match engine.backup(None, 0) {
        Err(Error::Unavailable(_)) => return,
        backup => backup.unwrap(),
    };
    assert_eq!(backup.kind(), Kind::Full);
    let mut pieces = 0;
    while backup.piece().unwrap().is_some() {
        pieces += 1;
    }
    assert!(pieces >= 2, "a backup has a header and a trailer");
}

/// Checks the contract of every trait of a [`Store`] that has no other user.
///
/// # Panics
/// If the store breaks the contract.
pub fn check_store(store: &dyn Store) {
    check_reads_of(store);
    check_views(store);
    check_commits(store);
    check_catalog_changes(store);
    check_intents(store);
    check_replication(store);
    check_counters(store);
    check_builds(store);
    check_log(store);
}

/// Entries of a unique index and of the records that they name, all in one tree.
fn entries() -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    let record = |id: u64| (id.to_be_bytes().to_vec(), format!("record {id}").into_bytes());
    let entry =
        |id: u64| (format!("key {id:03}").into_bytes(), [&id.to_be_bytes()[..], b" and more"].concat());
    let single = (b"a".to_vec(), Vec::new());
    (0..40).map(record).chain((0..40).map(entry)).chain([single])
}

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

fn rest(cursor: &mut dyn Cursor) -> Entries {
    let mut entries = Vec::new();
    while let Some((key, value)) = cursor.next().unwrap() {
        entries.push((key.to_vec(), value.to_vec()));
    }
    assert!(cursor.next().unwrap().is_none(), "a cursor that has ended stays at the end");
    entries
}

fn scanned(snapshot: &dyn Snapshot, tree: Ident, range: Range, direction: Direction) -> Entries {
    rest(snapshot.scan(tree, range, direction).unwrap().as_mut())
}

fn differences(snapshot: &dyn Snapshot, before: Option<Ident>, after: Option<Ident>) -> Vec<Vec<u8>> {
    let mut walk = snapshot.differences(before, after).unwrap();
    let mut keys = Vec::new();
    while let Some(difference) = walk.next(&mut || true).unwrap() {
        keys.push(difference.key.to_vec());
    }
    keys
}

/// Checks what a snapshot returns of a tree that holds [`entries`].
fn check_reads(snapshot: &dyn Snapshot, tree: Ident) {
    let mut all: Entries = entries().collect();
    all.sort();
    let unused = Ident(tree.0 + 1_000_000);
    assert_eq!((snapshot.contains(tree), snapshot.contains(unused)), (Ok(true), Ok(false)));
    for (key, value) in &all {
        assert_eq!(snapshot.get(tree, key).unwrap().as_deref(), Some(&value[..]));
    }
    assert_eq!(snapshot.get(tree, b"key"), Ok(None));
    let bytes: usize = all.iter().map(|(key, value)| key.len() + value.len()).sum();
    assert_eq!((snapshot.entries(tree), snapshot.bytes(tree)), (Ok(all.len() as u64), Ok(bytes as u64)));
    let ranges = [
        Range::all(),
        Range::prefix(b"key"),
        Range::half_open(b"key 003", b"key 031"),
        Range::half_open(b"b", b"a"),
        Range::half_open(b"key 0035", b"zzz"),
    ];
    for range in ranges {
        let mut within: Entries = all.iter().filter(|(key, _)| range.contains(key)).cloned().collect();
        assert_eq!(scanned(snapshot, tree, range.clone(), Direction::Forward), within);
        within.reverse();
        assert_eq!(scanned(snapshot, tree, range, Direction::Backward), within);
    }
    // A seek lands on the key or behind it, and never goes back.
    let mut cursor = snapshot.scan(tree, Range::prefix(b"key"), Direction::Forward).unwrap();
    cursor.seek(b"key 0105").unwrap();
    assert_eq!(cursor.next().unwrap().map(|(key, _)| key.to_vec()), Some(b"key 011".to_vec()));
    cursor.seek(b"key 002").unwrap();
    assert_eq!(cursor.next().unwrap().map(|(key, _)| key.to_vec()), Some(b"key 012".to_vec()));
    cursor.seek(b"z").unwrap();
    assert!(cursor.next().unwrap().is_none());
    let mut cursor = snapshot.scan(tree, Range::prefix(b"key"), Direction::Backward).unwrap();
    cursor.seek(b"key 0105").unwrap();
    assert_eq!(cursor.next().unwrap().map(|(key, _)| key.to_vec()), Some(b"key 010".to_vec()));
    // Lookups by a unique index.
    let lookups = [snapshot.lookup(tree, b"key 007", tree), snapshot.lookup_alone(tree, b"key 007", tree)];
    for found in lookups {
        let (entry, record) = found.unwrap().unwrap();
        assert_eq!((&entry[..8], &record[..]), (&7u64.to_be_bytes()[..], &b"record 7"[..]));
    }
    assert_eq!(snapshot.lookup(tree, b"key 7", tree), Ok(None));
    assert!(matches!(snapshot.lookup(tree, b"a", tree), Err(Error::Corrupted(_))));
    assert_eq!(differences(snapshot, None, Some(tree)).len(), all.len());
    assert!(differences(snapshot, Some(tree), Some(tree)).is_empty());
    assert_eq!(snapshot.verify(tree, &mut || true), Ok(Vec::new()));
    check_hints(snapshot, tree);
}

/// The part of the index below `key 020` in one range.
struct Lower(bool);

impl Ranges for Lower {
    fn go_to(&mut self, _: &[u8]) {}

    fn next_range(&mut self) -> Option<Range> {
        let first = !std::mem::replace(&mut self.0, true);
        first.then(|| Range::half_open(b"key 010", b"key 020"))
    }
}

/// Checks that hints do not change results: a hinted cursor returns every requested entry.
fn check_hints(snapshot: &dyn Snapshot, tree: Ident) {
    let Some(remote) = snapshot.remote() else { return };
    remote.confirm().unwrap();
    for key in [&b"key 007"[..], b"key 7"] {
        assert_eq!(remote.get_alone(tree, key), snapshot.get(tree, key));
    }
    let index = Range::prefix(b"key");
    let plain = scanned(snapshot, tree, index.clone(), Direction::Forward);
    let records = || Hints { prefetch_records: Some((tree, true)), ..Hints::default() };
    let few = || Hints { limit: Some(3), ..records() };
    let odd = || Hints {
        record_filter: Some(Box::new(|key: &[u8], _: &[u8]| key.last().is_some_and(|digit| digit % 2 == 1))),
        ..records()
    };
    for hints in [Hints::default(), records(), few(), odd()] {
        let mut cursor = remote.scan_hinted(tree, index.clone(), hints, Direction::Forward).unwrap();
        let mut found = Vec::new();
        while let Some((key, value)) =
            cursor.next().unwrap().map(|(key, value)| (key.to_vec(), value.to_vec()))
        {
            if let Some(record) = cursor.prefetched_record().unwrap() {
                let id = value.get(..8).unwrap_or_default();
                assert_eq!(snapshot.get(tree, id).unwrap(), Some(record), "the record that the entry names");
                assert_eq!(cursor.prefetched_record(), Ok(None), "a record is handed out once");
            }
            found.push((key, value));
        }
        assert_eq!(found, plain);
    }
    let hints = Hints { ranges: Some(Box::new(Lower(false))), ..Hints::default() };
    let found = rest(remote.scan_hinted(tree, index.clone(), hints, Direction::Forward).unwrap().as_mut());
    let is_in = |(key, _): &&(Vec<u8>, Vec<u8>)| (&b"key 010"[..]..&b"key 020"[..]).contains(&&key[..]);
    assert!(found.iter().filter(is_in).eq(plain.iter().filter(is_in)), "no entry of the ranges is left out");
    assert!(found.iter().all(|entry| plain.contains(entry)));
    // Several cursors read what each of them would read alone.
    let scans = [b"key 00", b"key 01", b"key 02"].map(|prefix| (tree, Range::prefix(prefix), records()));
    let together = remote.scan_together(scans.into(), Direction::Backward).unwrap();
    for (mut cursor, prefix) in together.into_iter().zip([b"key 00", b"key 01", b"key 02"]) {
        let alone = scanned(snapshot, tree, Range::prefix(prefix), Direction::Backward);
        assert_eq!(rest(cursor.as_mut()), alone);
    }
    let keys: [&[u8]; 3] = [b"key 001", b"nothing", b"key 002"];
    let found = remote.prefetch_records(tree, &keys).unwrap();
    assert!(found.len() <= keys.len());
    for (value, key) in found.into_iter().zip(keys) {
        assert!(value.is_none() || Ok(value) == snapshot.get(tree, key), "a value or a gap");
    }
}

/// A tree made by a change of the catalog, whose generation is 1.
fn new_tree(store: &dyn Store) -> Ident {
    let tree = store.new_ident();
    let mut change = Change::default();
    change.batch.create(tree);
    change.side_effects.push(SideEffect::Generation(tree, Some(1)));
    let lock = store.lock(&mut || true).unwrap().unwrap();
    lock.commit(change, true, &mut |_| {}).unwrap().unwrap();
    tree
}

/// A change with an entry for the log, as every change of a database has.
fn put(tree: Ident, key: &[u8], value: &[u8]) -> Change {
    let mut change = Change { log: vec![(0, Value::from(key))], ..Change::default() };
    change.batch.put(tree, key, value);
    change
}

fn commit(store: &dyn Store, mut change: Change) -> Committed {
    store.commit(&mut change).unwrap().unwrap()
}

/// Why a change is refused.
fn refusal(store: &dyn Store, mut change: Change) -> CommitError {
    store.commit(&mut change).unwrap().unwrap_err()
}

fn get(store: &dyn Store, tree: Ident, key: &[u8]) -> Option<Vec<u8>> {
    store.read_view().snapshot.get(tree, key).unwrap().map(|value| value.to_vec())
}

fn has(tree: Ident, key: &[u8], value: Option<&[u8]>) -> Expect {
    Expect::Value { ident: tree, key: Key::from(key), value: value.map(Value::from) }
}

fn check_reads_of(store: &dyn Store) {
    let tree = new_tree(store);
    let mut change = Change::default();
    entries().for_each(|(key, value)| change.batch.put(tree, key, value));
    commit(store, change);
    check_reads(store.read_view().snapshot.as_ref(), tree);
    // An overlay without changes, and one that has made the same entries.
    let mut overlay = Overlay::new(store.read_view().snapshot);
    check_reads(&overlay, tree);
    let mut batch = Batch::new();
    batch.clear(tree);
    entries().for_each(|(key, value)| batch.put(tree, key, value));
    overlay.apply(&batch).unwrap();
    check_reads(&overlay, tree);
}

fn check_views(store: &dyn Store) {
    let tree = new_tree(store);
    let written = commit(store, put(tree, b"a", b"1"));
    let read_view = store.read_view();
    if let Some(remote) = read_view.snapshot.remote() {
        remote.pin();
    }
    assert_eq!(read_view.snapshot.get(tree, b"a").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(read_view.generation, store.generation());
    assert!(store.known_generation().is_none_or(|known| known == read_view.generation));
    commit(store, put(tree, b"a", b"2"));
    assert_eq!(
        read_view.snapshot.get(tree, b"a").unwrap().as_deref(),
        Some(&b"1"[..]),
        "a view does not move"
    );
    let (latest, time) = store.read_view_with_time(0);
    assert_eq!(latest.snapshot.get(tree, b"a").unwrap().as_deref(), Some(&b"2"[..]));
    assert!(time >= written.cluster_time && latest.generation == read_view.generation);
    let requested = StandbyRead { after: None, preference: MemberPreference::Secondary };
    assert!(store.standby_read_view(requested).unwrap().is_none(), "there is no standby");
    new_tree(store);
    assert!(store.generation() > read_view.generation, "each change of the catalog has a generation");
}

fn check_commits(store: &dyn Store) {
    let tree = new_tree(store);
    let first = commit(store, put(tree, b"a", b"1"));
    let expecting = |expect: Vec<Expect>, change: Change| Change { expect: expect.into(), ..change };
    let mut change = expecting(vec![has(tree, b"b", None), has(tree, b"a", None)], put(tree, b"b", b"2"));
    assert_eq!(store.commit(&mut change).unwrap().unwrap_err(), CommitError::Expectation(1));
    assert_eq!(get(store, tree, b"b"), None, "a refused change changes nothing");
    let second = commit(store, expecting(vec![has(tree, b"a", Some(b"1"))], change));
    assert!(second.cluster_time > first.cluster_time && second.position > first.position);
    assert_eq!(get(store, tree, b"b"), Some(b"2".to_vec()));
    let none_or =
        |value: &[u8]| Expect::NoneOr { ident: tree, key: Key::from(b"b"), value: Value::from(value) };
    assert_eq!(
        refusal(store, expecting(vec![none_or(b"3")], put(tree, b"c", b""))),
        CommitError::Expectation(0)
    );
    commit(store, expecting(vec![none_or(b"2")], put(tree, b"c", b"")));
    // Another entry with the same key string has eight more bytes.
    commit(store, put(tree, b"abc12345678", b""));
    let under = |prefix: &[u8]| vec![Expect::NoneUnder { ident: tree, prefix: Key::from(prefix) }];
    assert_eq!(refusal(store, expecting(under(b"abc"), put(tree, b"x", b""))), CommitError::Expectation(0));
    commit(store, expecting(under(b"ab"), put(tree, b"x", b"")));
    commit(store, expecting(under(b"abd"), put(tree, b"x", b"")));
    // A store may truncate long keys.
    for length in [1990, 1995, 2000, 2001, 3000] {
        let [prefix, other] = [b"p", b"q"].map(|last| [&vec![length as u8; length], &last[..]].concat());
        let unless_there = || expecting(under(&prefix), put(tree, b"x", b""));
        commit(store, put(tree, &[&other[..], b"12345678"].concat(), b""));
        commit(store, unless_there());
        commit(store, put(tree, &[&prefix[..], b"12345678"].concat(), b""));
        assert_eq!(refusal(store, unless_there()), CommitError::Expectation(0), "{length}");
    }
    // Frozen commits.
    assert!(matches!(store.room(), Ok(Room::Free)));
    assert_eq!((store.frozen(), store.freeze()), (0, 1));
    assert_eq!(refusal(store, put(tree, b"y", b"")), CommitError::Frozen);
    assert!(matches!(store.room(), Ok(Room::Frozen)));
    assert!(store.lock(&mut || false).unwrap().is_none());
    store.wait_for_space(&mut || false).unwrap();
    assert_eq!((store.thaw(), store.thaw()), (Some(0), None));
    store.wait_for_space(&mut || true).unwrap();
    commit(store, put(tree, b"y", b""));
}

fn check_catalog_changes(store: &dyn Store) {
    let tree = new_tree(store);
    let expected = |generation| Change {
        expect: vec![Expect::Generation { ident: tree, generation }].into(),
        ..put(tree, b"a", b"")
    };
    commit(store, expected(1));
    let lock = store.lock(&mut || true).unwrap().unwrap();
    let before = lock.read_view().generation;
    let mut applied = 0;
    let change =
        Change { side_effects: vec![SideEffect::Generation(tree, Some(2))].into(), ..put(tree, b"b", b"") };
    lock.commit(change, true, &mut |generation| applied = generation).unwrap().unwrap();
    assert_eq!((applied, store.read_view().generation), (before + 1, before + 1));
    assert_eq!(refusal(store, expected(1)), CommitError::Expectation(0));
    commit(store, expected(2));
    // A lock that is dropped changes nothing. A change under the lock may be refused, too.
    drop(store.lock(&mut || true).unwrap());
    let lock = store.lock(&mut || true).unwrap().unwrap();
    let change = Change { expect: vec![has(tree, b"b", None)].into(), ..put(tree, b"c", b"") };
    let outcome = lock.commit(change, false, &mut |_| {}).unwrap();
    assert_eq!(outcome.unwrap_err(), CommitError::Expectation(0));
    assert_eq!((get(store, tree, b"c"), store.generation()), (None, before + 1));
    let _ = store.clears_in_constant_time();
}

/// Begins a transaction and reads its view.
fn begin(store: &dyn Store, tree: Ident) -> (TransactionId, Arc<dyn Snapshot>) {
    let (owner, read_view, _) = store.begin(0);
    read_view.snapshot.get(tree, b"a").unwrap();
    (owner, read_view.snapshot)
}

fn check_intents(store: &dyn Store) {
    let tree = new_tree(store);
    let key = |key: &[u8]| [WriteIntent::Key(tree, Key::from(key))];
    commit(store, put(tree, b"a", b"1"));
    let [(own, view), (other, other_view), (late, late_view)] = [0; 3].map(|_| begin(store, tree));
    assert!(own != other && other != late);
    store.acquire_intents(own, &key(b"a"), &[(tree, 1)], view.as_ref()).unwrap().unwrap();
    store.acquire_intents(own, &key(b"a"), &[], view.as_ref()).unwrap().unwrap();
    let acquired = store.acquire_intents(other, &key(b"a"), &[], other_view.as_ref()).unwrap();
    let is_refused = matches!(acquired, Err(CommitError::IntentConflict(_) | CommitError::Changed));
    assert!(is_refused, "another transaction holds the key: {acquired:?}");
    store.release(other);
    assert!(matches!(refusal(store, put(tree, b"a", b"2")), CommitError::IntentConflict(_)));
    commit(store, put(tree, b"b", b"2"));
    let lock = store.lock(&mut || true).unwrap().unwrap();
    assert!(
        lock.transaction_relying_on(tree, None).is_some()
            && lock.transaction_relying_on(tree, Some(own)).is_none()
    );
    drop(lock);
    commit(store, Change { owner: Some(own), ..put(tree, b"a", b"3") });
    store.release(own);
    store.wait_released(own, &mut || false);
    assert_eq!(get(store, tree, b"a"), Some(b"3".to_vec()));
    let acquired = store.acquire_intents(late, &key(b"a"), &[], late_view.as_ref()).unwrap();
    assert_eq!(acquired, Err(CommitError::Changed), "the key has changed since the view");
    store.release(late);
    commit(store, put(tree, b"a", b"4"));
    let lock = store.lock(&mut || true).unwrap().unwrap();
    assert!(lock.transaction_relying_on(tree, None).is_none());
    drop(lock);
    // A key string of a unique index.
    let under = [WriteIntent::Under(tree, Key::from(b"abc"))];
    let prepared = |record: &[u8]| Change {
        expect: vec![Expect::NoneUnder { ident: tree, prefix: Key::from(b"abc") }].into(),
        ..put(tree, &[b"abc", record].concat(), b"")
    };
    let (own, view) = begin(store, tree);
    store.acquire_intents(own, &under, &[], view.as_ref()).unwrap().unwrap();
    assert!(matches!(refusal(store, prepared(b"00000001")), CommitError::IntentConflict(_)));
    commit(store, Change { owner: Some(own), ..prepared(b"00000002") });
    store.release(own);
    assert_eq!(refusal(store, prepared(b"00000001")), CommitError::Expectation(0));
    // A collection that has changed, and intents that end without a commit.
    let (own, view) = begin(store, tree);
    let acquired = store.acquire_intents(own, &[], &[(tree, 7)], view.as_ref()).unwrap();
    assert_eq!(acquired, Err(CommitError::Expectation(0)));
    store.release(own);
    let (own, view) = begin(store, tree);
    store.acquire_intents(own, &key(b"new"), &[], view.as_ref()).unwrap().unwrap();
    store.release(own);
    commit(store, put(tree, b"new", b""));
}

fn check_replication(store: &dyn Store) {
    let tree = new_tree(store);
    let earliest = store.time(0);
    let written = commit(store, put(tree, b"a", b""));
    assert!(written.cluster_time >= earliest && store.time(0) >= written.cluster_time);
    assert!(store.latest_position() >= written.position && store.visible_position() >= written.position);
    store.wait_journaled(written.position).unwrap();
    for by in [AcknowledgmentLevel::Journal, AcknowledgmentLevel::Majority, AcknowledgmentLevel::Members(1)] {
        assert_eq!(
            store.wait_acknowledged(written.position, by, &mut || true),
            Ok(WriteConcernStatus::Satisfied)
        );
    }
    let members = store.members().unwrap();
    assert!(members >= 1 && [0, members].contains(&store.list_members().unwrap().len()));
}

fn check_counters(store: &dyn Store) {
    let tree = new_tree(store);
    assert_ne!(store.new_ident(), store.new_ident());
    store.prefetch_counts(&[tree], store.read_view().snapshot.as_ref()).unwrap();
    let counts = store.counts(tree, &mut |_| Ok(())).unwrap();
    let (first, second) = (store.new_record(&counts), store.new_record(&counts));
    assert!(first < second && store.greatest_record(&counts) >= second);
    let side_effects = vec![SideEffect::Count { counts: counts.clone(), records: 2, bytes: 30 }];
    commit(store, Change { side_effects: side_effects.into(), ..put(tree, b"a", b"") });
    let now =
        |counts: &Counts| (counts.records.load(Ordering::Relaxed), counts.bytes.load(Ordering::Relaxed));
    assert_eq!(now(&counts), (2, 30));
    store.refresh_counts(tree, &counts).unwrap();
    assert_eq!(now(&counts), (2, 30));
    let again = store.counts(tree, &mut |_| Ok(())).unwrap();
    assert_eq!(now(&again), (2, 30), "counts belong to the tree");
    // A refused change counts nothing.
    let side_effects = vec![SideEffect::Count { counts: counts.clone(), records: 5, bytes: 5 }];
    let expect = vec![has(tree, b"a", None)];
    refusal(
        store,
        Change { side_effects: side_effects.into(), expect: expect.into(), ..put(tree, b"b", b"") },
    );
    store.refresh_counts(tree, &counts).unwrap();
    assert_eq!(now(&counts), (2, 30));
}

fn check_builds(store: &dyn Store) {
    let tree = new_tree(store);
    assert!(store.build(tree).is_none());
    let started = store.begin_build(tree, 100);
    let mark = |side_effects| {
        commit(store, Change { side_effects: vec![side_effects].into(), ..put(tree, b"a", b"") })
    };
    mark(SideEffect::Mark(store.build(tree).unwrap(), 7));
    // The holder of the lock knows all marks of earlier commits.
    drop(store.lock(&mut || true).unwrap());
    assert!(started.changed.contains(7) && !started.changed.contains(8) && !started.has_failed());
    mark(SideEffect::MarkAll(store.build(tree).unwrap()));
    drop(store.lock(&mut || true).unwrap());
    assert!(started.changed.contains(8));
    store.end_build(tree);
    assert!(store.build(tree).is_none());
}

fn check_log(store: &dyn Store) {
    let tree = new_tree(store);
    let log = || vec![(0, Value::from(b"head".as_slice())), (1, Value::from(b"one".as_slice()))];
    let written = commit(store, Change { log: log(), ..put(tree, b"a", b"1") });
    store.wait_journaled(written.position).unwrap();
    assert!(store.log_now(0).unwrap() >= written.cluster_time);
    let known = store.log_end();
    let (read_view, end) = store.log_read_view(0);
    assert!(read_view.snapshot.contains(tree).unwrap());
    assert!(known.unwrap_or(written.cluster_time) <= end, "the end of the log does not go back");
    let steps = store.log_steps();
    match store.log_limit() {
        None => assert_eq!((store.log_begin(), store.log_bytes()), (Ok(None), None)),
        Some(limit) => {
            assert!(store.log_begin().unwrap().is_some_and(|begin| begin <= written.cluster_time));
            assert!(store.log_bytes().is_some());
            let is_set = store.set_log_limit(limit * 2);
            assert_eq!(store.log_limit(), Some(if is_set { limit * 2 } else { limit }));
        }
    }
    // A store that follows the log reports its growth while a client waits.
    let (waits, reports) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU64::new(0)));
    let (is_awaited, report) = (waits.clone(), reports.clone());
    store.follow_log(
        Arc::new(move || is_awaited.load(Ordering::Relaxed)),
        Arc::new(move || _ = report.fetch_add(1, Ordering::Relaxed)),
    );
    commit(store, Change { log: log(), ..put(tree, b"a", b"2") });
    assert!(store.log_steps() >= steps);
    let begin = Instant::now();
    while known.is_some() && reports.load(Ordering::Relaxed) == 0 {
        assert!(begin.elapsed() < Duration::from_secs(20), "the growth of the log is not reported");
        std::thread::sleep(Duration::from_millis(5));
    }
    waits.store(false, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Local, LogOptions};
    use crate::testing::{Checked, Emit, FaultyFiles, Mirror, Shared};
    use crate::{DiskEngine, DiskOptions, MemoryEngine};

    fn disk() -> DiskEngine {
        DiskEngine::open_on(Arc::new(FaultyFiles::new()), &DiskOptions::new("/data")).unwrap()
    }

    #[test]
    fn every_engine_keeps_the_contract() {
        check_engine(&MemoryEngine::new(), 1);
        check_engine(&disk(), 1);
        check_engine(&Checked::new(disk()), 1);
        check_engine(&Emit::new(Mirror::new(MemoryEngine::new(), disk())), 1);
    }

    #[test]
    fn every_local_store_keeps_the_contract() {
        let engines: [fn() -> Arc<dyn Engine>; 3] = [
            || Arc::new(MemoryEngine::new()),
            || Arc::new(disk()),
            || Arc::new(Checked::new(MemoryEngine::new())),
        ];
        for engine in engines {
            for log in [None, Some(LogOptions { bytes: 1 << 20 })] {
                let store = Arc::new(Local::new(engine(), log).unwrap());
                check_store(store.as_ref());
                check_store(&Shared::new(&store, Duration::ZERO));
            }
        }
    }
}
