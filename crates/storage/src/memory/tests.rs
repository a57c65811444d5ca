//! Compares the tree with the standard library's map, and the engine with a model of plain maps.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use proptest::prelude::*;

use super::node::LEAF_MAX;
use super::{LARGE, MemoryEngine, Tree};
use crate::testing::Checked;
use crate::{Batch, Cursor, Direction, Engine, Error, Ident, Journaling, Key, Op, Range, Snapshot, Value};

type Model = BTreeMap<Vec<u8>, u32>;
type Entries = Vec<(Vec<u8>, u32)>;

#[derive(Debug, Clone)]
enum Step {
    Insert(Vec<u8>, u32),
    Remove(Vec<u8>),
    /// Inserts this number of keys with a prefix, in ascending (true) or descending order.
    Run(Vec<u8>, u16, bool),
    /// Removes this number of keys, from the first key at or after the given one.
    RemoveRun(Vec<u8>, u16),
    /// Keeps a clone for a comparison at the end.
    Keep,
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => prop::collection::vec(prop::sample::select(vec![0u8, 1, 7, 255]), 0..7),
        3 => any::<u16>().prop_map(|n| u64::from(n).to_be_bytes().to_vec()),
        1 => (any::<u8>(), 100usize..900).prop_map(|(byte, len)| vec![byte; len]),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (key(), any::<u32>()).prop_map(|(key, value)| Step::Insert(key, value)),
        4 => key().prop_map(Step::Remove),
        2 => (key(), 1u16..500, any::<bool>()).prop_map(|(key, n, up)| Step::Run(key, n, up)),
        1 => (key(), 1u16..700).prop_map(|(key, n)| Step::RemoveRun(key, n)),
        1 => Just(Step::Keep),
    ]
}

fn bound() -> impl Strategy<Value = Bound<Key>> {
    prop_oneof![
        Just(Bound::Unbounded),
        key().prop_map(|key| Bound::Included(Key::from(key))),
        key().prop_map(|key| Bound::Excluded(Key::from(key))),
    ]
}

fn range() -> impl Strategy<Value = Range> {
    (bound(), bound()).prop_map(|(lower, upper)| Range { lower, upper })
}

fn direction() -> impl Strategy<Value = Direction> {
    prop_oneof![Just(Direction::Forward), Just(Direction::Backward)]
}

fn perform(step: Step, tree: &mut Tree<u32>, model: &mut Model, clones: &mut Vec<(Tree<u32>, Model)>) {
    match step {
        Step::Insert(key, value) => {
            assert_eq!(tree.insert(&key, value), model.insert(key, value));
        }
        Step::Remove(key) => assert_eq!(tree.remove(&key), model.remove(&key)),
        Step::Run(prefix, count, up) => {
            for at in 0..count {
                let number = if up { at } else { count - at };
                let key = [&prefix[..], &number.to_be_bytes()].concat();
                assert_eq!(tree.insert(&key, u32::from(at)), model.insert(key, u32::from(at)));
            }
        }
        Step::RemoveRun(from, count) => {
            let keys: Vec<Vec<u8>> =
                model.range(from..).take(usize::from(count)).map(|(key, _)| key.clone()).collect();
            for key in keys {
                assert_eq!(tree.remove(&key), model.remove(&key));
            }
        }
        Step::Keep => clones.push((tree.clone(), model.clone())),
    }
}

fn all(tree: &Tree<u32>, range: Range, direction: Direction) -> Entries {
    let mut cursor = tree.cursor(range, direction);
    let mut entries = Vec::new();
    while let Some((key, value)) = cursor.next() {
        entries.push((key.to_vec(), *value));
    }
    assert!(cursor.next().is_none());
    entries
}

fn expected(model: &Model, range: &Range, direction: Direction) -> Entries {
    let inside = model.iter().filter(|(key, _)| range.contains(key));
    let mut entries: Entries = inside.map(|(key, value)| (key.clone(), *value)).collect();
    if direction == Direction::Backward {
        entries.reverse();
    }
    entries
}

/// Scans with occasional seeks, and predicts every entry from the list of all entries.
fn walk_with_seeks(
    tree: &Tree<u32>,
    model: &Model,
    range: &Range,
    direction: Direction,
    seeks: &[(u8, Vec<u8>)],
) {
    let entries = expected(model, range, direction);
    let mut cursor = tree.cursor(range.clone(), direction);
    let mut at = 0;
    for (steps, sought) in seeks {
        for _ in 0..*steps {
            let next = cursor.next().map(|(key, value)| (key.to_vec(), *value));
            assert_eq!(next.as_ref(), entries.get(at));
            at = (at + 1).min(entries.len());
        }
        cursor.seek(sought);
        let passed = |key: &Vec<u8>| match direction {
            Direction::Forward => key < sought,
            Direction::Backward => key > sought,
        };
        at = at.max(entries.partition_point(|(key, _)| passed(key)));
    }
    let next = cursor.next().map(|(key, value)| (key.to_vec(), *value));
    assert_eq!(next.as_ref(), entries.get(at));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn the_tree_behaves_as_the_standard_map(
        steps in prop::collection::vec(step(), 1..60),
        ranges in prop::collection::vec((range(), direction()), 4),
        seeks in prop::collection::vec((0u8..90, key()), 0..6),
    ) {
        let (mut tree, mut model, mut clones) = (Tree::new(), Model::new(), Vec::new());
        for step in steps {
            perform(step, &mut tree, &mut model, &mut clones);
        }
        clones.push((tree, model));
        for (tree, model) in &clones {
            tree.check();
            prop_assert_eq!(tree.len(), model.len());
            prop_assert_eq!(all(tree, Range::all(), Direction::Forward), expected(model, &Range::all(), Direction::Forward));
            for (key, value) in model.iter().step_by(7) {
                prop_assert_eq!(tree.get(key), Some(value));
            }
            for (range, direction) in &ranges {
                prop_assert_eq!(all(tree, range.clone(), *direction), expected(model, range, *direction));
                walk_with_seeks(tree, model, range, *direction, &seeks);
            }
        }
    }

    #[test]
    fn the_engine_behaves_as_plain_maps(batches in prop::collection::vec(prop::collection::vec(op(), 0..8), 1..40)) {
        let engine = Checked::new(MemoryEngine::new());
        let mut model = States::new();
        let mut snapshots: Vec<(Arc<dyn Snapshot>, States)> = Vec::new();
        for (number, ops) in batches.into_iter().enumerate() {
            let mut next = model.clone();
            let outcome = ops.iter().try_for_each(|op| apply(&mut next, op));
            let mut batch = Batch::new();
            for op in ops {
                add(&mut batch, op);
            }
            match outcome {
                Ok(()) => {
                    prop_assert!(engine.commit(batch).is_ok());
                    model = next;
                }
                Err(error) => prop_assert_eq!(engine.commit(batch), Err(error)),
            }
            if number % 3 == 0 {
                snapshots.push((engine.snapshot(), model.clone()));
            }
        }
        snapshots.push((engine.snapshot(), model.clone()));
        for (snapshot, model) in &snapshots {
            compare(&**snapshot, model);
        }
        let bytes: u64 = model.values().map(weight).sum();
        prop_assert_eq!(engine.statistics().bytes, bytes);
    }
}

type States = BTreeMap<Ident, BTreeMap<Key, Vec<u8>>>;

fn ident() -> impl Strategy<Value = Ident> {
    (0u64..5).prop_map(Ident)
}

fn op() -> impl Strategy<Value = Op> {
    let small = || prop::collection::vec(0u8..3, 0..3).prop_map(Key::from);
    let value = || prop::collection::vec(any::<u8>(), 0..12).prop_map(Value::from);
    prop_oneof![
        12 => (ident(), small(), value()).prop_map(|(ident, key, value)| Op::Put { ident, key, value }),
        5 => (ident(), small()).prop_map(|(ident, key)| Op::Delete { ident, key }),
        8 => ident().prop_map(Op::Create),
        1 => ident().prop_map(Op::Drop),
        1 => ident().prop_map(Op::Clear),
        1 => (ident(), ident()).prop_map(|(from, to)| Op::Fork { from, to }),
    ]
}

fn add(batch: &mut Batch, op: Op) {
    match op {
        Op::Put { ident, key, value } => batch.put(ident, key, value),
        Op::Delete { ident, key } => batch.delete(ident, key),
        Op::Create(ident) => batch.create(ident),
        Op::Drop(ident) => batch.drop_ident(ident),
        Op::Clear(ident) => batch.clear(ident),
        Op::Fork { from, to } => batch.fork(from, to),
    }
}

fn apply(states: &mut States, op: &Op) -> Result<(), Error> {
    let missing = |ident: &Ident| Error::NoSuchIdent(*ident);
    match op {
        Op::Put { ident, key, value } => {
            states.get_mut(ident).ok_or(missing(ident))?.insert(key.clone(), value.to_vec());
        }
        Op::Delete { ident, key } => {
            states.get_mut(ident).ok_or(missing(ident))?.remove(key);
        }
        Op::Create(ident) => create(states, *ident, BTreeMap::new())?,
        Op::Drop(ident) => {
            states.remove(ident).ok_or(missing(ident))?;
        }
        Op::Clear(ident) => states.get_mut(ident).ok_or(missing(ident))?.clear(),
        Op::Fork { from, to } => {
            let copy = states.get(from).ok_or(missing(from))?.clone();
            create(states, *to, copy)?;
        }
    }
    Ok(())
}

fn create(states: &mut States, ident: Ident, tree: BTreeMap<Key, Vec<u8>>) -> Result<(), Error> {
    match states.contains_key(&ident) {
        true => Err(Error::IdentExists(ident)),
        false => {
            states.insert(ident, tree);
            Ok(())
        }
    }
}

fn weight(tree: &BTreeMap<Key, Vec<u8>>) -> u64 {
    tree.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum()
}

fn drain(mut cursor: Box<dyn Cursor>) -> Vec<(Key, Vec<u8>)> {
    let mut entries = Vec::new();
    while let Some((key, value)) = cursor.next().unwrap() {
        entries.push((Key::from(key), value.to_vec()));
    }
    entries
}

fn compare(snapshot: &dyn Snapshot, model: &States) {
    for ident in (0..5).map(Ident) {
        let Some(tree) = model.get(&ident) else {
            assert_eq!(snapshot.contains(ident), Ok(false));
            assert_eq!(snapshot.get(ident, b""), Err(Error::NoSuchIdent(ident)));
            assert!(snapshot.scan(ident, Range::all(), Direction::Forward).is_err());
            continue;
        };
        assert_eq!(snapshot.contains(ident), Ok(true));
        assert_eq!(snapshot.entries(ident), Ok(tree.len() as u64));
        assert_eq!(snapshot.bytes(ident), Ok(weight(tree)));
        let entries: Vec<_> = tree.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        assert_eq!(drain(snapshot.scan(ident, Range::all(), Direction::Forward).unwrap()), entries);
        for (key, value) in entries {
            assert_eq!(snapshot.get(ident, &key).unwrap().as_deref(), Some(&*value));
        }
    }
}

const TREE: Ident = Ident(1);

fn created() -> MemoryEngine {
    let engine = MemoryEngine::new();
    let mut batch = Batch::new();
    batch.create(TREE);
    engine.commit(batch).unwrap();
    engine
}

#[test]
fn keys_in_order_leave_full_leaves() {
    let mut tree = Tree::new();
    for number in 0..LEAF_MAX as u64 * 100 {
        tree.insert(&number.to_be_bytes(), ());
    }
    tree.check();
    assert_eq!(tree.leaves(), 100);
    let mut tree = Tree::new();
    for number in (0..LEAF_MAX as u64 * 100).rev() {
        tree.insert(&number.to_be_bytes(), ());
    }
    tree.check();
    assert_eq!(tree.leaves(), 100);
}

#[test]
fn a_value_read_is_the_value_written() {
    let engine = created();
    let value = Value::from(vec![1; 100]);
    let mut batch = Batch::new();
    batch.put(TREE, b"key", value.clone());
    engine.commit(batch).unwrap();
    let read = engine.snapshot().get(TREE, b"key").unwrap().unwrap();
    assert_eq!(read.as_ptr(), value.as_ptr());
}

#[test]
fn a_failed_batch_changes_nothing() {
    let engine = created();
    let mut batch = Batch::new();
    batch.put(TREE, b"key", b"value");
    batch.create(Ident(2));
    batch.drop_ident(TREE);
    batch.put(TREE, b"key", b"value");
    assert_eq!(engine.commit(batch), Err(Error::NoSuchIdent(TREE)));
    let snapshot = engine.snapshot();
    assert_eq!(snapshot.entries(TREE), Ok(0));
    assert_eq!(snapshot.contains(Ident(2)), Ok(false));
    assert_eq!(engine.statistics().commits, 1);
}

#[test]
fn a_key_may_be_long_but_not_endless() {
    let engine = created();
    let mut batch = Batch::new();
    batch.put(TREE, vec![1; Key::MAX_BYTES], b"");
    assert!(engine.commit(batch).is_ok());
    let mut batch = Batch::new();
    batch.put(TREE, vec![1; Key::MAX_BYTES + 1], b"");
    assert_eq!(engine.commit(batch), Err(Error::KeyTooLong(Key::MAX_BYTES + 1)));
}

#[test]
fn large_batches_and_dropped_trees_keep_the_totals() {
    let engine = created();
    let mut batch = Batch::new();
    for number in 0..(LARGE as u64 * 40) {
        batch.put(TREE, number.to_be_bytes(), b"12345");
    }
    engine.commit(batch).unwrap();
    let before = engine.snapshot();
    let mut batch = Batch::new();
    batch.fork(TREE, Ident(2));
    batch.clear(TREE);
    engine.commit(batch).unwrap();
    assert_eq!(engine.statistics().bytes, LARGE as u64 * 40 * 13);
    let mut batch = Batch::new();
    batch.drop_ident(TREE);
    batch.drop_ident(Ident(2));
    engine.commit(batch).unwrap();
    assert_eq!(engine.statistics().bytes, 0);
    assert_eq!(before.entries(TREE), Ok(LARGE as u64 * 40));
    assert_eq!(drain(before.scan(TREE, Range::all(), Direction::Backward).unwrap()).len(), LARGE * 40);
}

/// Writers keep two trees equal within each batch. Readers check that the trees are equal in every
/// snapshot.
#[test]
fn snapshots_are_consistent_while_writers_run() {
    let engine = created();
    let mut batch = Batch::new();
    batch.create(Ident(2));
    engine.commit(batch).unwrap();
    let finished = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !finished.load(Ordering::Relaxed) {
                    let snapshot = engine.snapshot();
                    let one = drain(snapshot.scan(TREE, Range::all(), Direction::Forward).unwrap());
                    let two = drain(snapshot.scan(Ident(2), Range::all(), Direction::Forward).unwrap());
                    assert_eq!(one, two);
                }
            });
        }
        let writers: Vec<_> = (0..2u64)
            .map(|writer| {
                let engine = &engine;
                scope.spawn(move || {
                    for number in 0..1500u64 {
                        let key = (number * 7919 % 500 * 2 + writer).to_be_bytes();
                        let mut batch = Batch::new();
                        for ident in [TREE, Ident(2)] {
                            match number % 5 {
                                0 => batch.delete(ident, key),
                                _ => batch.put(ident, key, number.to_be_bytes()),
                            }
                        }
                        engine.commit(batch).unwrap();
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        finished.store(true, Ordering::Relaxed);
    });
    assert_eq!(engine.statistics().commits, 3002);
}

#[test]
fn the_latest_time_is_the_greatest_of_all() {
    let engine = Checked::new(MemoryEngine::new());
    let timed = |time: u64| {
        let mut batch = Batch::new();
        batch.set_time(time);
        batch
    };
    for (time, latest) in [(0, 0), (7, 7), (3, 7), (0, 7), (8, 8)] {
        let mut batch = timed(0);
        batch.append(timed(time));
        let position = engine.commit(batch).unwrap();
        assert_eq!((engine.latest_time(), engine.durable()), (latest, position));
    }
}
