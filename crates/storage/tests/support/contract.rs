//! A wrapper that asserts the contract of the traits before and after every call.
//!
//! `Checked` is between `database` and an engine in tests and debug builds. It detects errors of
//! the engine: entries out of order or out of bounds, a changing snapshot, a read that differs from
//! a scan, a partially applied batch. It panics at the first error, so that the failing test shows
//! the place.
//!
//! [`Checked::new`] checks every call closely, at several times the cost. [`Checked::sampling`]
//! checks one call in [`SAMPLE`] closely, and other calls only cheaply. Most commits then find
//! their trees unshared and change them in place. A release build, which uses the engine without
//! this wrapper, does the same.

mod walk;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::engine::merged;
use crate::{
    Batch, Cursor, Damage, Difference, Differences, Direction, Engine, Error, Ident, Key, Op, Position,
    Range, Result, Snapshot, Value,
};
use walk::{CheckedCursor, Walk};

/// Batches up to this number of operations are read back after the commit.
const READ_BACK: usize = 64;
/// Sampling interval of closely checked calls.
const SAMPLE: u64 = 16;

/// An engine whose answers are checked against the contract. Commits are serialised, and all of
/// them must use this wrapper.
pub struct Checked<E> {
    engine: E,
    closely: Arc<Closely>,
    /// Position of the latest commit.
    commits: Mutex<Position>,
    /// Greatest time known to be in the engine.
    time: AtomicU64,
}

impl<E: Engine> Checked<E> {
    /// Checks every answer of an engine closely.
    pub fn new(engine: E) -> Self {
        Checked::every(engine, 1)
    }

    /// Checks some answers closely, at a low cost.
    pub fn sampling(engine: E) -> Self {
        Checked::every(engine, SAMPLE)
    }

    fn every(engine: E, every: u64) -> Self {
        let (commits, time) = (Mutex::new(engine.durable()), AtomicU64::new(engine.latest_time()));
        Checked { engine, closely: Arc::new(Closely { every, calls: AtomicU64::new(0) }), commits, time }
    }

    /// Returns the inner engine.
    pub fn inner(&self) -> &E {
        &self.engine
    }

    /// Commits, and compares the states before and after with the batch.
    fn commit_closely(&self, batch: Batch) -> Result<Position> {
        let before = self.engine.snapshot();
        let expected = outcome(&*before, &batch);
        look_for_new(&*before, &batch);
        let written = final_writes(&batch);
        let old: Vec<_> = written.iter().map(|write| before.get(write.ident, &write.key)).collect();
        let result = self.engine.commit(batch);
        if let Err(error) = &expected
            && is_an_answer(&expected)
            && is_an_answer(&result)
        {
            assert_eq!(result.as_ref(), Err(error), "an impossible batch must fail, and say why");
        }
        let after = self.engine.snapshot();
        for (write, old) in written.iter().zip(&old) {
            let now = before.get(write.ident, &write.key);
            let visible = after.get(write.ident, &write.key);
            if ![old, &now, &visible].into_iter().all(is_an_answer) {
                continue;
            }
            assert_eq!(now, *old, "a snapshot must not change when something is committed");
            let expected = if result.is_ok() { &Ok(write.value.clone()) } else { old };
            assert_eq!(visible, *expected, "a commit must be visible whole or not at all: {:?}", write.key);
        }
        result
    }
}

/// Selection of the closely checked calls.
struct Closely {
    every: u64,
    calls: AtomicU64,
}

impl Closely {
    /// Returns true if this call is checked closely.
    fn now(&self) -> bool {
        self.every == 1 || self.calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(self.every)
    }
}

impl<E: Engine> crate::Wrapper for Checked<E> {
    type Wrapped = E;

    fn wrapped(&self) -> &E {
        &self.engine
    }

    fn snapshot(&self) -> Arc<dyn Snapshot> {
        let closely = Arc::clone(&self.closely);
        Arc::new(CheckedSnapshot { inner: self.engine.snapshot(), seen: Seen::default(), closely })
    }

    fn commit(&self, batch: Batch) -> Result<Position> {
        let mut latest = self.commits.lock();
        let time = batch.time();
        let result = match self.closely.now() {
            true => self.commit_closely(batch),
            false => self.engine.commit(batch),
        };
        if let Ok(position) = &result {
            assert!(*position > *latest, "positions must grow: {position:?} after {:?}", *latest);
            *latest = *position;
            self.time.fetch_max(time, Ordering::AcqRel);
            assert!(self.engine.latest_time() >= time, "the time of a commit must be remembered");
        }
        result
    }

    fn wait_journaled(&self, position: Position) -> Result<()> {
        assert!(position <= *self.commits.lock(), "{position:?} was never handed out");
        self.engine.wait_journaled(position)
    }

    fn latest_time(&self) -> u64 {
        let seen = self.time.load(Ordering::Acquire);
        let time = self.engine.latest_time();
        assert!(time >= seen, "the latest time must not go back from {seen} to {time}");
        self.time.fetch_max(time, Ordering::AcqRel);
        time
    }

    fn durable(&self) -> Position {
        let durable = self.engine.durable();
        // Commits from before the checks may become durable only now.
        let mut latest = self.commits.lock();
        *latest = durable.max(*latest);
        durable
    }
}

/// Returns true for a result determined by the contract, and false for a file error, which is
/// possible at any time.
fn is_an_answer<T>(result: &Result<T>) -> bool {
    !matches!(
        result,
        Err(Error::Corrupted(_) | Error::Io { .. } | Error::Full(_) | Error::Unavailable(_) | Error::Closed)
    )
}

/// Checks the result of a batch for the existence of its trees.
fn outcome(before: &dyn Snapshot, batch: &Batch) -> Result<()> {
    let mut changed: HashMap<Ident, bool> = HashMap::new();
    for op in batch.ops() {
        let exists = |ident: Ident| match changed.get(&ident) {
            Some(exists) => Ok(*exists),
            None => before.contains(ident),
        };
        let (needed, claimed) = match op {
            Op::Put { key, .. } | Op::Delete { key, .. } if key.len() > Key::MAX_BYTES => {
                return Err(Error::KeyTooLong(key.len()));
            }
            Op::Put { ident, .. } | Op::Delete { ident, .. } => (Some(*ident), None),
            Op::Drop(ident) | Op::Clear(ident) => (Some(*ident), None),
            Op::Create(ident) => (None, Some(*ident)),
            Op::Fork { from, to } => (Some(*from), Some(*to)),
        };
        if let Some(ident) = needed
            && !exists(ident)?
        {
            return Err(Error::NoSuchIdent(ident));
        }
        if let Some(ident) = claimed
            && exists(ident)?
        {
            return Err(Error::IdentExists(ident));
        }
        match op {
            Op::Drop(ident) => changed.insert(*ident, false),
            _ => claimed.and_then(|ident| changed.insert(ident, true)),
        };
    }
    Ok(())
}

/// Asserts that keys known to be new are new, or that an earlier change of the batch deletes them. The batch is small
/// and changes no whole trees.
fn look_for_new(before: &dyn Snapshot, batch: &Batch) {
    let is_key = |op: &Op| matches!(op, Op::Put { .. } | Op::Delete { .. });
    if batch.len() > READ_BACK || !batch.ops().iter().all(is_key) {
        return;
    }
    for (at, (op, _)) in batch.with_new().enumerate().filter(|(_, (_, is_new))| *is_new) {
        if let Op::Put { ident, key, .. } = op
            && !batch.ops().iter().take(at).any(|earlier| earlier.deletes(*ident, key))
        {
            let there = before.get(*ident, key);
            assert!(
                !matches!(there, Ok(Some(_))),
                "{key:?} of tree {} is there, and was said to be new",
                ident.0
            );
        }
    }
}

/// The expected value of a key after a batch.
struct Write {
    ident: Ident,
    key: Key,
    value: Option<Value>,
}

/// Returns the last write of each key of a small batch; nothing if the batch also changes whole
/// trees.
fn final_writes(batch: &Batch) -> Vec<Write> {
    if batch.len() > READ_BACK {
        return Vec::new();
    }
    let mut writes: HashMap<(Ident, Key), Option<Value>> = HashMap::new();
    for op in batch.ops() {
        match op {
            Op::Put { ident, key, value } => writes.insert((*ident, key.clone()), Some(value.clone())),
            Op::Delete { ident, key } => writes.insert((*ident, key.clone()), None),
            Op::Create(_) | Op::Drop(_) | Op::Clear(_) | Op::Fork { .. } => return Vec::new(),
        };
    }
    writes.into_iter().map(|((ident, key), value)| Write { ident, key, value }).collect()
}

/// Results of complete scans of each tree: number of entries, and a checksum independent of their
/// order.
type Seen = Arc<Mutex<HashMap<Ident, (u64, u64)>>>;

struct CheckedSnapshot {
    inner: Arc<dyn Snapshot>,
    seen: Seen,
    closely: Arc<Closely>,
}

impl CheckedSnapshot {
    /// Returns an answer after checking that it is an error exactly if the tree is missing.
    fn known<T>(&self, ident: Ident, answer: Result<T>) -> Result<T> {
        let missing = matches!(&answer, Err(Error::NoSuchIdent(named)) if *named == ident);
        if (missing || self.closely.now())
            && let Ok(exists) = self.inner.contains(ident)
        {
            assert_eq!(missing, !exists, "NoSuchIdent must mean that there is no tree {}", ident.0);
        }
        answer
    }
}

impl Snapshot for CheckedSnapshot {
    fn get(&self, ident: Ident, key: &[u8]) -> Result<Option<Value>> {
        self.known(ident, self.inner.get(ident, key))
    }

    fn scan(&self, ident: Ident, range: Range, direction: Direction) -> Result<Box<dyn Cursor>> {
        let inner = self.known(ident, self.inner.scan(ident, range.clone(), direction))?;
        // A close check needs the whole snapshot. The cursor needs only its tree.
        let snapshot = self.closely.now().then(|| (Arc::clone(&self.inner), Arc::clone(&self.seen)));
        let counted = if range == Range::all() { self.inner.entries(ident).ok() } else { None };
        Ok(Box::new(CheckedCursor { inner, walk: Walk::new(ident, range, direction, counted, snapshot) }))
    }

    fn differences(&self, before: Option<Ident>, after: Option<Ident>) -> Result<Box<dyn Differences>> {
        let inner = self.inner.differences(before, after)?;
        let expected = match self.closely.now() {
            true => Some(merged(self.inner.as_ref(), before, after)?),
            false => None,
        };
        Ok(Box::new(CheckedDifferences { inner, expected }))
    }

    fn entries(&self, ident: Ident) -> Result<u64> {
        self.known(ident, self.inner.entries(ident))
    }

    fn bytes(&self, ident: Ident) -> Result<u64> {
        self.known(ident, self.inner.bytes(ident))
    }

    fn contains(&self, ident: Ident) -> Result<bool> {
        self.inner.contains(ident)
    }

    fn verify(&self, ident: Ident, should_continue: &mut dyn FnMut() -> bool) -> Result<Vec<Damage>> {
        self.known(ident, self.inner.verify(ident, should_continue))
    }
}

/// Differences that must equal the differences found by reading both trees.
struct CheckedDifferences {
    inner: Box<dyn Differences>,
    expected: Option<Box<dyn Differences>>,
}

impl Differences for CheckedDifferences {
    fn next(&mut self, should_continue: &mut dyn FnMut() -> bool) -> Result<Option<Difference>> {
        let mut stopped = false;
        let found = self.inner.next(&mut || {
            stopped = !should_continue();
            !stopped
        })?;
        if let Some(expected) = &mut self.expected
            && !stopped
        {
            assert_eq!(found, expected.next(&mut || true)?, "differences are not those of the entries");
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Journaling as _, MemoryEngine};

    const TREE: Ident = Ident(1);

    fn filled() -> Checked<MemoryEngine> {
        let engine = Checked::new(MemoryEngine::new());
        let mut batch = Batch::new();
        batch.create(TREE);
        assert_eq!(engine.commit(batch), Ok(Position(1)));
        for number in 0..100u8 {
            let mut batch = Batch::new();
            batch.put(TREE, [number], [number, number]);
            assert!(engine.commit(batch).is_ok());
        }
        engine
    }

    #[test]
    fn an_honest_engine_passes() {
        let engine = filled();
        let snapshot = engine.snapshot();
        let mut batch = Batch::new();
        batch.delete(TREE, [7]);
        batch.drop_ident(Ident(2));
        assert_eq!(engine.commit(batch), Err(Error::NoSuchIdent(Ident(2))));
        for direction in [Direction::Forward, Direction::Backward, Direction::Forward] {
            let mut cursor = snapshot.scan(TREE, Range::all(), direction).unwrap();
            while cursor.next().unwrap().is_some() {}
            assert_eq!(cursor.next(), Ok(None));
        }
        let mut cursor = snapshot.scan(TREE, Range::half_open([10], [90]), Direction::Backward).unwrap();
        cursor.seek(&[50]).unwrap();
        assert_eq!(cursor.next().unwrap().map(|(key, _)| key.to_vec()), Some(vec![50]));
        // Past the end, and then to a passed key.
        cursor.seek(&[1]).unwrap();
        assert_eq!(cursor.next(), Ok(None));
        cursor.seek(&[40]).unwrap();
        assert_eq!(cursor.next(), Ok(None));
        assert_eq!(snapshot.get(Ident(2), b"").err(), Some(Error::NoSuchIdent(Ident(2))));
        assert_eq!(engine.wait_journaled(Position(101)), Ok(()));
    }

    /// An engine that ignores deletes.
    struct Forgetful(MemoryEngine);

    impl crate::Wrapper for Forgetful {
        type Wrapped = MemoryEngine;

        fn wrapped(&self) -> &MemoryEngine {
            &self.0
        }

        fn commit(&self, batch: Batch) -> Result<Position> {
            let mut filtered = Batch::new();
            for op in batch {
                match op {
                    Op::Put { ident, key, value } => filtered.put(ident, key, value),
                    Op::Create(ident) => filtered.create(ident),
                    _ => {}
                }
            }
            self.0.commit(filtered)
        }

        fn has_journal(&self) -> bool {
            false
        }

        fn name(&self) -> &'static str {
            "forgetful"
        }
    }

    #[test]
    fn a_lost_deletion_is_found() {
        let engine = Checked::new(Forgetful(MemoryEngine::new()));
        let mut batch = Batch::new();
        batch.create(TREE);
        engine.commit(batch).unwrap();
        let mut batch = Batch::new();
        batch.put(TREE, b"a", b"1");
        engine.commit(batch).unwrap();
        let mut batch = Batch::new();
        batch.delete(TREE, b"a");
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| engine.commit(batch)));
        assert!(outcome.is_err());
    }

    #[test]
    fn samples_find_the_fault_and_allow_changes_in_place() {
        let engine = Checked::sampling(Arc::new(Forgetful(MemoryEngine::new())) as Arc<dyn Engine>);
        let mut batch = Batch::new();
        batch.create(TREE);
        engine.commit(batch).unwrap();
        let (mut found, mut missed) = (0, 0);
        for _ in 0..10 * SAMPLE {
            let mut batch = Batch::new();
            batch.put(TREE, b"a", b"1");
            engine.inner().commit(batch).unwrap();
            let mut batch = Batch::new();
            batch.delete(TREE, b"a");
            let commit = || engine.commit(batch);
            match std::panic::catch_unwind(std::panic::AssertUnwindSafe(commit)) {
                Ok(_) => missed += 1,
                Err(_) => found += 1,
            }
        }
        assert_eq!((found, missed), (10, 10 * SAMPLE - 10));
    }

    #[test]
    fn a_cursor_out_of_order_is_found_whether_looked_at_closely_or_not() {
        for closely in [true, false] {
            let snapshot = filled().engine.snapshot();
            let close = closely.then(|| (Arc::clone(&snapshot), Seen::default()));
            let range = Range::half_open([10], [20]);
            let inner = snapshot.scan(TREE, range.clone(), Direction::Forward).unwrap();
            let walk = Walk::new(TREE, range, Direction::Backward, None, close);
            let mut cursor = CheckedCursor { inner, walk };
            assert!(cursor.next().is_ok());
            let second = || cursor.next().is_ok();
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(second)).is_err());
        }
    }
}
