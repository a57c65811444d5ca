//! An engine that keeps a line of text for every change committed.
//!
//! Which keys an insert writes is invisible from above, and an index entry too many costs something without
//! being wrong anywhere. Tests that show the keys make it visible.

use parking_lot::Mutex;

use crate::bytes::Text;
use crate::{Batch, Engine, Op, Position, Result};

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

impl<E: Engine> crate::Wrapper for Emit<E> {
    type Beneath = E;

    fn beneath(&self) -> &E {
        &self.engine
    }

    fn commit(&self, batch: Batch) -> Result<Position> {
        let lines: Vec<String> = batch.ops().iter().map(self.describe).collect();
        // Held over the commit, so that the lines come in the order of the commits.
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
