//! An engine that keeps a line of text for every change committed.
//!
//! Which keys an insert writes is invisible from above, and an index entry too many costs something without
//! being wrong anywhere. Tests that show the keys make it visible.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::bytes::Text;
use crate::{Batch, Durability, Engine, Op, Position, Result, Snapshot, Statistics, WorkingSet};

/// Turns one change into text. The layer that knows what the keys mean brings its own.
pub type Describe = fn(&Op) -> String;

/// An engine that passes everything on, and records the changes of successful commits.
pub struct Emit<E> {
    engine: E,
    describe: Describe,
    lines: Mutex<Vec<String>>,
}

impl<E: Engine> Emit<E> {
    /// Records changes with the keys as plain bytes, as `put 3 "a\x00" = 12 bytes`.
    pub fn new(engine: E) -> Self {
        Emit::with(engine, plain)
    }

    /// Records changes as the given function puts them.
    pub fn with(engine: E, describe: Describe) -> Self {
        Emit { engine, describe, lines: Mutex::default() }
    }

    /// The lines since the last call, in the order of the commits.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.lines.lock())
    }

    /// The engine inside.
    pub fn inner(&self) -> &E {
        &self.engine
    }
}

impl<E: Engine> Engine for Emit<E> {
    fn snapshot(&self) -> Arc<dyn Snapshot> {
        self.engine.snapshot()
    }

    fn commit(&self, batch: Batch) -> Result<Position> {
        let lines: Vec<String> = batch.ops().iter().map(self.describe).collect();
        // Held over the commit, so that the lines come in the order of the commits.
        let mut recorded = self.lines.lock();
        let position = self.engine.commit(batch)?;
        recorded.extend(lines);
        Ok(position)
    }

    fn wait_journaled(&self, position: Position) -> Result<()> {
        self.engine.wait_journaled(position)
    }

    fn wait_for_room(&self, go_on: &mut dyn FnMut() -> bool) -> Result<()> {
        self.engine.wait_for_room(go_on)
    }

    fn latest_time(&self) -> u64 {
        self.engine.latest_time()
    }

    fn durable(&self) -> Position {
        self.engine.durable()
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

    fn working_set(&self) -> Option<WorkingSet> {
        self.engine.working_set()
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
