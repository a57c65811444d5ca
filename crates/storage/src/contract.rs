//! A wrapper that asserts what the traits promise, on both sides of every call.
//!
//! `Checked` stands between `database` and an engine in tests and debug builds. It looks for mistakes of the
//! engine (entries out of order or out of bounds, a snapshot that moves, a read that disagrees with a scan, a
//! batch half applied) and panics where it finds one, so that the test that ran into it names the place. It
//! costs several times the work; a release build uses the engine bare.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::{
    Batch, Cursor, Damage, Direction, Durability, Engine, Error, Ident, Key, Op, Position, Range, Result,
    Snapshot, Statistics, Value,
};

/// Batches up to this many operations are read back after the commit.
const READ_BACK: usize = 64;
/// Every so many entries of a scan are compared with what `get` says.
const COMPARE_EVERY: u64 = 16;

/// An engine whose every answer is checked against the contract. Commits are serialised.
pub struct Checked<E> {
    engine: E,
    /// The position of the latest commit.
    commits: Mutex<Position>,
    /// The greatest time that the engine is known to hold.
    time: AtomicU64,
}

impl<E: Engine> Checked<E> {
    /// Checks an engine from now on.
    pub fn new(engine: E) -> Self {
        let (commits, time) = (Mutex::new(engine.durable()), AtomicU64::new(engine.latest_time()));
        Checked { engine, commits, time }
    }

    /// The engine inside.
    pub fn inner(&self) -> &E {
        &self.engine
    }
}

impl<E: Engine> Engine for Checked<E> {
    fn snapshot(&self) -> Arc<dyn Snapshot> {
        Arc::new(CheckedSnapshot { inner: self.engine.snapshot(), seen: Seen::default() })
    }

    fn commit(&self, batch: Batch) -> Result<Position> {
        let mut latest = self.commits.lock();
        let before = self.engine.snapshot();
        let expected = outcome(&*before, &batch);
        let written = final_writes(&batch);
        let old: Vec<_> = written.iter().map(|write| before.get(write.ident, &write.key)).collect();
        let time = batch.time();
        let result = self.engine.commit(batch);
        if let Err(error) = &expected {
            assert_eq!(result.as_ref(), Err(error), "an impossible batch must fail, and say why");
        }
        let after = self.engine.snapshot();
        for (write, old) in written.iter().zip(&old) {
            let now = before.get(write.ident, &write.key);
            assert_eq!(now, *old, "a snapshot must not change when something is committed");
            let expected = if result.is_ok() { &Ok(write.value.clone()) } else { old };
            let visible = after.get(write.ident, &write.key);
            assert_eq!(visible, *expected, "a commit must be visible whole or not at all: {:?}", write.key);
        }
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

    fn wait_for_room(&self, go_on: &mut dyn FnMut() -> bool) -> Result<()> {
        self.engine.wait_for_room(go_on)
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
        assert!(durable <= *self.commits.lock(), "{durable:?} was never handed out");
        durable
    }

    fn when_durable(&self, wake: Arc<dyn Fn() + Send + Sync>) {
        self.engine.when_durable(wake);
    }

    fn sync_soon(&self) {
        self.engine.sync_soon();
    }

    fn checkpoint(&self) -> Result<()> {
        self.engine.checkpoint()
    }

    fn durability(&self) -> Durability {
        self.engine.durability()
    }

    fn has_journal(&self) -> bool {
        self.engine.has_journal()
    }

    fn name(&self) -> &'static str {
        self.engine.name()
    }

    fn statistics(&self) -> Statistics {
        self.engine.statistics()
    }
}

/// What a batch must lead to as far as the trees it names are concerned.
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

/// What a key must hold after a batch.
struct Write {
    ident: Ident,
    key: Key,
    value: Option<Value>,
}

/// The last write of each key of a small batch; nothing if the batch also changes whole trees.
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

/// What complete scans have found in each tree: entries, and a checksum of them that their order does not
/// matter for.
type Seen = Arc<Mutex<HashMap<Ident, (u64, u64)>>>;

struct CheckedSnapshot {
    inner: Arc<dyn Snapshot>,
    seen: Seen,
}

impl CheckedSnapshot {
    /// Passes an answer on, after checking that it fails exactly if the tree isn't there.
    fn known<T>(&self, ident: Ident, answer: Result<T>) -> Result<T> {
        if let Ok(exists) = self.inner.contains(ident) {
            let missing = matches!(&answer, Err(Error::NoSuchIdent(named)) if *named == ident);
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
        let complete = range == Range::all();
        Ok(Box::new(CheckedCursor {
            inner,
            snapshot: Arc::clone(&self.inner),
            seen: Arc::clone(&self.seen),
            ident,
            range,
            direction,
            latest: None,
            current: None,
            sought: None,
            landing: false,
            entries: 0,
            checksum: 0,
            complete,
            finished: false,
        }))
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

    fn verify(&self, ident: Ident, go_on: &mut dyn FnMut() -> bool) -> Result<Vec<Damage>> {
        self.known(ident, self.inner.verify(ident, go_on))
    }
}

struct CheckedCursor {
    inner: Box<dyn Cursor>,
    snapshot: Arc<dyn Snapshot>,
    seen: Seen,
    ident: Ident,
    range: Range,
    direction: Direction,
    /// The key handed out last.
    latest: Option<Key>,
    /// What is lent to the caller.
    current: Option<(Key, Value)>,
    /// The farthest key sought.
    sought: Option<Key>,
    /// Whether that was sought since the latest entry.
    landing: bool,
    entries: u64,
    checksum: u64,
    /// Whether nothing was left out so far: the range is everything, and there was no seek.
    complete: bool,
    finished: bool,
}

impl CheckedCursor {
    /// Whether `a` comes before `b` in the direction of the walk.
    fn before(&self, a: &[u8], b: &[u8]) -> bool {
        match self.direction {
            Direction::Forward => a < b,
            Direction::Backward => a > b,
        }
    }

    fn check(&mut self, key: &Key, value: &Value) {
        assert!(!self.finished, "a cursor that has ended must not go on");
        assert!(self.range.contains(key), "{key:?} is outside of {:?}", self.range);
        if let Some(latest) = &self.latest {
            assert!(self.before(latest, key), "{key:?} must not come after {latest:?}");
        }
        if let Some(sought) = &self.sought {
            assert!(!self.before(key, sought), "{key:?} must not come after a seek to {sought:?}");
        }
        if self.entries.is_multiple_of(COMPARE_EVERY) {
            let read = self.snapshot.get(self.ident, key);
            assert_eq!(read, Ok(Some(value.clone())), "get and scan must agree on {key:?}");
        }
        self.entries += 1;
        let mut hasher = DefaultHasher::new();
        hasher.write(key);
        hasher.write_u8(0);
        hasher.write(value);
        self.checksum ^= hasher.finish();
        self.latest = Some(key.clone());
    }

    /// After the last entry of a complete scan: it must have found what is counted, and the same as before.
    fn finish(&mut self) {
        if self.complete && !self.finished {
            let counted = self.snapshot.entries(self.ident);
            assert_eq!(counted, Ok(self.entries), "entries and a whole scan must agree");
            let found = (self.entries, self.checksum);
            let first = *self.seen.lock().entry(self.ident).or_insert(found);
            assert_eq!(first, found, "a snapshot must not change between two scans");
        }
        self.finished = true;
    }

    /// After a seek to a key in the range that is there: the cursor must not jump over it.
    fn check_landing(&self, next: Option<&Key>, sought: &Key) {
        let passed = self.latest.as_ref().is_some_and(|latest| !self.before(latest, sought));
        // A cursor that has ended has passed every key.
        if passed || self.finished || !self.range.contains(sought) {
            return;
        }
        if let Ok(Some(_)) = self.snapshot.get(self.ident, sought) {
            assert_eq!(next, Some(sought), "a seek must not jump over the key sought");
        }
    }
}

impl Cursor for CheckedCursor {
    fn next(&mut self) -> Result<Option<(&[u8], &Value)>> {
        let next = self.inner.next()?.map(|(key, value)| (Key::from(key), value.clone()));
        if let Some(sought) = &self.sought
            && std::mem::take(&mut self.landing)
        {
            self.check_landing(next.as_ref().map(|(key, _)| key), sought);
        }
        match &next {
            Some((key, value)) => self.check(key, value),
            None => self.finish(),
        }
        self.current = next;
        Ok(self.current.as_ref().map(|(key, value)| (&**key, value)))
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.complete = false;
        let farther = self.sought.as_ref().is_none_or(|sought| self.before(sought, key));
        if farther {
            self.sought = Some(Key::from(key));
            self.landing = true;
        }
        self.inner.seek(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryEngine;

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
        // Beyond the end, and then to a key that this has passed.
        cursor.seek(&[1]).unwrap();
        assert_eq!(cursor.next(), Ok(None));
        cursor.seek(&[40]).unwrap();
        assert_eq!(cursor.next(), Ok(None));
        assert_eq!(snapshot.get(Ident(2), b"").err(), Some(Error::NoSuchIdent(Ident(2))));
        assert_eq!(engine.wait_journaled(Position(101)), Ok(()));
    }

    /// An engine that forgets deletions.
    struct Forgetful(MemoryEngine);

    impl Engine for Forgetful {
        fn snapshot(&self) -> Arc<dyn Snapshot> {
            self.0.snapshot()
        }

        fn commit(&self, batch: Batch) -> Result<Position> {
            let mut kept = Batch::new();
            for op in batch {
                match op {
                    Op::Put { ident, key, value } => kept.put(ident, key, value),
                    Op::Create(ident) => kept.create(ident),
                    _ => {}
                }
            }
            self.0.commit(kept)
        }

        fn wait_journaled(&self, position: Position) -> Result<()> {
            self.0.wait_journaled(position)
        }

        fn wait_for_room(&self, go_on: &mut dyn FnMut() -> bool) -> Result<()> {
            self.0.wait_for_room(go_on)
        }

        fn latest_time(&self) -> u64 {
            self.0.latest_time()
        }

        fn durable(&self) -> Position {
            self.0.durable()
        }

        fn when_durable(&self, wake: Arc<dyn Fn() + Send + Sync>) {
            self.0.when_durable(wake);
        }

        fn sync_soon(&self) {
            self.0.sync_soon();
        }

        fn has_journal(&self) -> bool {
            false
        }

        fn name(&self) -> &'static str {
            "forgetful"
        }

        fn statistics(&self) -> Statistics {
            self.0.statistics()
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
}
