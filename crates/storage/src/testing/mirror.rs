//! Two engines as one, compared at every answer.
//!
//! Every call goes to both. Whatever they say must be the same, errors included; where it isn't, the mirror
//! panics with both answers. Answers are the first engine's, positions pair up the two.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::{
    Batch, Cursor, Damage, Direction, Engine, Ident, Lent, Position, Range, Result, Snapshot, Statistics,
    Value, WorkingSet,
};

/// An engine made of two that must agree.
pub struct Mirror<A, B> {
    a: A,
    b: B,
    /// Held over commits and snapshots, so that both engines see them in one order. Knows for each position
    /// of the first engine that of the second.
    positions: Mutex<BTreeMap<Position, Position>>,
}

impl<A: Engine, B: Engine> Mirror<A, B> {
    /// Two engines that hold the same, for instance nothing.
    pub fn new(a: A, b: B) -> Self {
        let positions = Mutex::new(BTreeMap::from([(a.durable(), b.durable())]));
        Mirror { a, b, positions }
    }

    /// Both engines.
    pub fn inner(&self) -> (&A, &B) {
        (&self.a, &self.b)
    }
}

#[track_caller]
fn same<T: PartialEq + Debug>(what: &str, a: T, b: T) -> T {
    assert_eq!(a, b, "the mirrored engines disagree about {what}");
    a
}

impl<A: Engine, B: Engine> Engine for Mirror<A, B> {
    fn snapshot(&self) -> Arc<dyn Snapshot> {
        let _together = self.positions.lock();
        Arc::new(MirrorSnapshot { a: self.a.snapshot(), b: self.b.snapshot() })
    }

    fn commit(&self, batch: Batch) -> Result<Position> {
        let mut positions = self.positions.lock();
        let (a, b) = (self.a.commit(batch.clone()), self.b.commit(batch));
        same("whether a batch can be committed", a.as_ref().err(), b.as_ref().err());
        let (a, b) = (a?, b?);
        positions.insert(a, b);
        Ok(a)
    }

    fn wait_journaled(&self, position: Position) -> Result<()> {
        let b = self.positions.lock().get(&position).copied();
        let a = self.a.wait_journaled(position);
        match b {
            Some(b) => same("waiting for the journal", a, self.b.wait_journaled(b)),
            None => a,
        }
    }

    fn wait_for_room(&self, go_on: &mut dyn FnMut() -> bool) -> Result<()> {
        self.a.wait_for_room(go_on)?;
        self.b.wait_for_room(go_on)
    }

    fn latest_time(&self) -> u64 {
        let _together = self.positions.lock();
        same("the latest time", self.a.latest_time(), self.b.latest_time())
    }

    /// What both have made durable.
    fn durable(&self) -> Position {
        let positions = self.positions.lock();
        let (a, b) = (self.a.durable(), self.b.durable());
        let durable = positions.iter().rev().find(|(first, second)| **first <= a && **second <= b);
        durable.map(|(first, _)| *first).unwrap_or_default()
    }

    fn when_durable(&self, wake: Arc<dyn Fn() + Send + Sync>) {
        self.a.when_durable(Arc::clone(&wake));
        self.b.when_durable(wake);
    }

    fn sync_soon(&self) {
        self.a.sync_soon();
        self.b.sync_soon();
    }

    fn checkpoint(&self) -> Result<()> {
        self.a.checkpoint()?;
        self.b.checkpoint()
    }

    /// Whether either has one.
    fn has_journal(&self) -> bool {
        self.a.has_journal() || self.b.has_journal()
    }

    fn name(&self) -> &'static str {
        "mirror"
    }

    fn statistics(&self) -> Statistics {
        let _together = self.positions.lock();
        let (a, b) = (self.a.statistics(), self.b.statistics());
        same("the bytes stored", a.bytes, b.bytes);
        a
    }

    /// That of the first which has one.
    fn working_set(&self) -> Option<WorkingSet> {
        self.a.working_set().or_else(|| self.b.working_set())
    }
}

struct MirrorSnapshot {
    a: Arc<dyn Snapshot>,
    b: Arc<dyn Snapshot>,
}

impl Snapshot for MirrorSnapshot {
    fn get(&self, ident: Ident, key: &[u8]) -> Result<Option<Value>> {
        same("a value", self.a.get(ident, key), self.b.get(ident, key))
    }

    fn scan(&self, ident: Ident, range: Range, direction: Direction) -> Result<Box<dyn Cursor>> {
        let (a, b) = (self.a.scan(ident, range.clone(), direction), self.b.scan(ident, range, direction));
        same("whether a tree can be scanned", a.as_ref().err(), b.as_ref().err());
        Ok(Box::new(MirrorCursor { a: a?, b: b? }))
    }

    fn entries(&self, ident: Ident) -> Result<u64> {
        same("the number of entries", self.a.entries(ident), self.b.entries(ident))
    }

    fn bytes(&self, ident: Ident) -> Result<u64> {
        same("the size of a tree", self.a.bytes(ident), self.b.bytes(ident))
    }

    fn contains(&self, ident: Ident) -> Result<bool> {
        same("which trees there are", self.a.contains(ident), self.b.contains(ident))
    }

    fn verify(&self, ident: Ident, go_on: &mut dyn FnMut() -> bool) -> Result<Vec<Damage>> {
        let mut damages = self.a.verify(ident, go_on)?;
        damages.extend(self.b.verify(ident, go_on)?);
        Ok(damages)
    }
}

struct MirrorCursor {
    a: Box<dyn Cursor>,
    b: Box<dyn Cursor>,
}

impl Cursor for MirrorCursor {
    fn next(&mut self) -> Result<Option<(&[u8], Lent<'_>)>> {
        let (a, b) = (self.a.next(), self.b.next());
        same("the next entry", &a, &b);
        a
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        same("a seek", self.a.seek(key), self.b.seek(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Checked;
    use crate::{Error, MemoryEngine};

    const TREE: Ident = Ident(1);

    fn put(engine: &dyn Engine, key: &[u8], value: &[u8]) {
        let mut batch = Batch::new();
        batch.put(TREE, key, value);
        engine.commit(batch).unwrap();
    }

    fn created() -> Mirror<Checked<MemoryEngine>, MemoryEngine> {
        let engine = Mirror::new(Checked::new(MemoryEngine::new()), MemoryEngine::new());
        let mut batch = Batch::new();
        batch.create(TREE);
        engine.commit(batch).unwrap();
        engine
    }

    #[test]
    fn equal_engines_pass_for_one() {
        let engine = created();
        put(&engine, b"a", b"1");
        let mut batch = Batch::new();
        batch.put(TREE, b"b", b"2");
        let position = engine.commit(batch).unwrap();
        assert_eq!(engine.wait_journaled(position), Ok(()));
        let mut batch = Batch::new();
        batch.create(TREE);
        assert_eq!(engine.commit(batch), Err(Error::IdentExists(TREE)));
        let snapshot = engine.snapshot();
        assert_eq!((snapshot.entries(TREE), snapshot.bytes(TREE)), (Ok(2), Ok(4)));
        let mut cursor = snapshot.scan(TREE, Range::all(), Direction::Forward).unwrap();
        cursor.seek(b"b").unwrap();
        let value = Value::from(b"2");
        assert_eq!(cursor.next(), Ok(Some((b"b".as_slice(), Lent::Value(&value)))));
        assert_eq!(cursor.next(), Ok(None));
        assert_eq!(engine.statistics().bytes, 4);
    }

    #[test]
    fn a_difference_is_found() {
        let engine = created();
        put(engine.inner().1, b"a", b"behind the mirror");
        let snapshot = engine.snapshot();
        let read = || snapshot.get(TREE, b"a").is_ok();
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(read)).is_err());
        let step =
            || snapshot.scan(TREE, Range::all(), Direction::Forward).is_ok_and(|mut c| c.next().is_ok());
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(step)).is_err());
    }
}
