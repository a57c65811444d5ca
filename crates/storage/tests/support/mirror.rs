//! Two engines behind one interface, compared at every answer.
//!
//! Every call goes to both engines. Their answers must be equal, including errors. If not, the
//! mirror panics with both answers. It returns the first engine's answers, and maps positions
//! between the engines.
//!
//! This module also has an engine that records a line of text for every committed change. The
//! layers above do not see which keys an insert writes, and an additional index entry costs time
//! without a wrong result. Tests that print the keys make it visible.

use crate::bytes::Text;
use crate::{
    Batch, Cursor, Damage, Direction, Engine, Ident, Journaling, Op, Position, Range, Result, Room, Snapshot,
    Statistics, Value, ValueRef, WorkingSet,
};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

/// An engine of two engines that must agree.
pub struct Mirror<A, B> {
    a: A,
    b: B,
    /// Locked during commits and snapshots, so that both engines see them in one order. Maps each
    /// position of the first engine to a position of the second.
    positions: Mutex<BTreeMap<Position, Position>>,
}

impl<A: Engine, B: Engine> Mirror<A, B> {
    /// Returns a mirror of two engines with equal contents, for example none.
    pub fn new(a: A, b: B) -> Self {
        let positions = Mutex::new(BTreeMap::from([(a.durable(), b.durable())]));
        Mirror { a, b, positions }
    }

    /// Returns both engines.
    pub fn inner(&self) -> (&A, &B) {
        (&self.a, &self.b)
    }
}

#[track_caller]
fn same<T: PartialEq + Debug>(label: &str, a: T, b: T) -> T {
    assert_eq!(a, b, "the mirrored engines disagree about {label}");
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

    fn room(&self) -> Result<Room> {
        match self.a.room()? {
            Room::Free => self.b.room(),
            room => Ok(room),
        }
    }

    fn latest_time(&self) -> u64 {
        let _together = self.positions.lock();
        same("the latest time", self.a.latest_time(), self.b.latest_time())
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

    /// Returns the working set of the first engine that has one.
    fn working_set(&self) -> Option<WorkingSet> {
        self.a.working_set().or_else(|| self.b.working_set())
    }
}

impl<A: Engine, B: Engine> Journaling for Mirror<A, B> {
    fn wait_journaled(&self, position: Position) -> Result<()> {
        let b = self.positions.lock().get(&position).copied();
        let a = self.a.wait_journaled(position);
        match b {
            Some(b) => same("waiting for the journal", a, self.b.wait_journaled(b)),
            None => a,
        }
    }

    /// Returns the position that both engines have made durable.
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

    /// Returns true if either engine has a journal.
    fn has_journal(&self) -> bool {
        self.a.has_journal() || self.b.has_journal()
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

    fn verify(&self, ident: Ident, should_continue: &mut dyn FnMut() -> bool) -> Result<Vec<Damage>> {
        let mut damages = self.a.verify(ident, should_continue)?;
        damages.extend(self.b.verify(ident, should_continue)?);
        Ok(damages)
    }
}

struct MirrorCursor {
    a: Box<dyn Cursor>,
    b: Box<dyn Cursor>,
}

impl Cursor for MirrorCursor {
    fn next(&mut self) -> Result<Option<(&[u8], ValueRef<'_>)>> {
        let (a, b) = (self.a.next(), self.b.next());
        same("the next entry", &a, &b);
        a
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        same("a seek", self.a.seek(key), self.b.seek(key))
    }
}

/// Formats one change. The layer that knows the meaning of the keys provides it.
pub type Describe = fn(&Op) -> String;

/// An engine that delegates everything, and records the changes of successful commits.
pub struct Emit<E> {
    engine: E,
    describe: Describe,
    lines: Mutex<Vec<String>>,
}

impl<E: Engine> Emit<E> {
    /// Records changes with the keys as plain bytes, such as `put 3 "a\x00" = 12 bytes`.
    pub fn new(engine: E) -> Self {
        Emit::with(engine, plain)
    }

    /// Records changes in the format of the given function.
    pub fn with(engine: E, describe: Describe) -> Self {
        Emit { engine, describe, lines: Mutex::default() }
    }

    /// Returns the lines since the last call, in the order of the commits.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.lines.lock())
    }

    /// Returns the inner engine.
    pub fn inner(&self) -> &E {
        &self.engine
    }
}

impl<E: Engine> crate::Wrapper for Emit<E> {
    type Wrapped = E;

    fn wrapped(&self) -> &E {
        &self.engine
    }

    fn commit(&self, batch: Batch) -> Result<Position> {
        let lines: Vec<String> = batch.ops().iter().map(self.describe).collect();
        // Locked during the commit, so that the lines are in the order of the commits.
        let mut recorded = self.lines.lock();
        let position = self.engine.commit(batch)?;
        recorded.extend(lines);
        Ok(position)
    }
}

fn plain(op: &Op) -> String {
    match op {
        Op::Put { ident, key, value } => format!("put {} \"{}\" = {} bytes", ident.0, Text(key), value.len()),
        Op::Delete { ident, key } => format!("delete {} \"{}\"", ident.0, Text(key)),
        Op::Create(ident) => format!("create {}", ident.0),
        Op::Drop(ident) => format!("drop {}", ident.0),
        Op::Clear(ident) => format!("clear {}", ident.0),
        Op::Fork { from, to } => format!("fork {} to {}", from.0, to.0),
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
        assert_eq!(cursor.next(), Ok(Some((b"b".as_slice(), ValueRef::Value(&value)))));
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

#[cfg(test)]
mod emit_tests {
    use super::*;
    use crate::{Ident, MemoryEngine};

    #[test]
    fn every_change_is_shown_once_it_is_committed() {
        let engine = Emit::new(MemoryEngine::new());
        let mut batch = Batch::new();
        batch.create(Ident(1));
        batch.put(Ident(1), b"a\x00", b"value");
        batch.delete(Ident(1), b"b");
        batch.fork(Ident(1), Ident(2));
        batch.clear(Ident(2));
        batch.drop_ident(Ident(2));
        engine.commit(batch).unwrap();
        let mut failing = Batch::new();
        failing.put(Ident(9), b"a", b"");
        assert!(engine.commit(failing).is_err());
        let expected =
            ["create 1", r#"put 1 "a\x00" = 5 bytes"#, r#"delete 1 "b""#, "fork 1 to 2", "clear 2", "drop 2"];
        assert_eq!(engine.take(), expected);
        assert!(engine.take().is_empty());
    }

    #[test]
    fn another_layer_can_bring_its_own_words() {
        let engine = Emit::with(MemoryEngine::new(), |op| format!("{op:?}"));
        let mut batch = Batch::new();
        batch.create(Ident(1));
        engine.commit(batch).unwrap();
        assert_eq!(engine.take(), ["Create(Ident(1))"]);
    }
}
