//! A snapshot with changes on top that nobody else sees: what a transaction reads.
//!
//! The changes lie in a persistent tree for each tree that is changed, so that a copy of the overlay costs
//! next to nothing and stays as it is while more is changed.

use crate::memory::{Tree, TreeCursor};
use crate::mutant;
use crate::{Batch, Cursor, Direction, Error, Ident, Key, Op, Range, Result, Snapshot, Value};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A state, and changes to it.
#[derive(Clone)]
pub struct Overlay {
    base: Arc<dyn Snapshot>,
    layers: BTreeMap<Ident, Layer>,
}

/// The changes to one tree; `None` is a deletion.
#[derive(Clone, Default)]
struct Layer {
    changes: Tree<Option<Value>>,
    /// Whether the tree was made or emptied here, so that the base has nothing to say.
    covers: bool,
    dropped: bool,
    /// Entries and bytes more than in the base, or in all where the layer covers it.
    entries: i64,
    bytes: i64,
}

impl Overlay {
    /// An overlay without changes.
    pub fn new(base: Arc<dyn Snapshot>) -> Overlay {
        Overlay { base, layers: BTreeMap::new() }
    }

    /// The state below the changes.
    pub fn base(&self) -> &Arc<dyn Snapshot> {
        &self.base
    }

    /// Makes the changes of a batch.
    ///
    /// Fails as an engine would; a fork is none of a transaction's changes, and fails with `Unavailable`.
    pub fn apply(&mut self, batch: &Batch) -> Result<()> {
        batch.ops().iter().try_for_each(|op| match op {
            Op::Put { ident, key, value } => self.write(*ident, key, Some(value.clone())),
            Op::Delete { ident, key } => self.write(*ident, key, None),
            Op::Create(ident) if self.contains(*ident)? => Err(Error::IdentExists(*ident)),
            Op::Create(ident) => {
                self.layers.insert(*ident, Layer { covers: true, ..Layer::default() });
                Ok(())
            }
            Op::Clear(ident) | Op::Drop(ident) if !self.contains(*ident)? => Err(Error::NoSuchIdent(*ident)),
            Op::Clear(ident) => {
                self.layers.insert(*ident, Layer { covers: true, ..Layer::default() });
                Ok(())
            }
            Op::Drop(ident) => {
                self.layers.insert(*ident, Layer { covers: true, dropped: true, ..Layer::default() });
                Ok(())
            }
            Op::Fork { .. } => Err(Error::Unavailable("an overlay can't fork trees".to_string())),
        })
    }

    fn write(&mut self, ident: Ident, key: &Key, value: Option<Value>) -> Result<()> {
        let before = self.get(ident, key)?;
        let layer = self.layers.entry(ident).or_default();
        let size = |value: &Value| (key.len() + value.len()) as i64;
        layer.entries += i64::from(value.is_some()) - i64::from(before.is_some());
        layer.bytes += value.as_ref().map_or(0, size) - before.as_ref().map_or(0, size);
        match layer.covers && value.is_none() {
            true => layer.changes.remove(key),
            false => layer.changes.insert(key, value),
        };
        Ok(())
    }

    fn layer(&self, ident: Ident) -> Result<Option<&Layer>> {
        match self.layers.get(&ident) {
            Some(layer) if layer.dropped => Err(Error::NoSuchIdent(ident)),
            layer => Ok(layer),
        }
    }
}

impl Snapshot for Overlay {
    fn get(&self, ident: Ident, key: &[u8]) -> Result<Option<Value>> {
        let Some(layer) = self.layer(ident)? else { return self.base.get(ident, key) };
        match layer.changes.get(key) {
            Some(None) if mutant!("transactions see what they have deleted") => self.base.get(ident, key),
            Some(changed) => Ok(changed.clone()),
            None if layer.covers => Ok(None),
            None => self.base.get(ident, key),
        }
    }

    fn scan(&self, ident: Ident, range: Range, direction: Direction) -> Result<Box<dyn Cursor>> {
        let Some(layer) = self.layer(ident)? else { return self.base.scan(ident, range, direction) };
        let below = match layer.covers {
            true => None,
            false => Some(self.base.scan(ident, range.clone(), direction)?),
        };
        let above = layer.changes.cursor(range, direction);
        Ok(Box::new(OverlayCursor {
            above,
            above_next: None,
            below,
            below_next: None,
            direction,
            key: Key::from(b""),
            value: Value::empty(),
        }))
    }

    fn entries(&self, ident: Ident) -> Result<u64> {
        let Some(layer) = self.layer(ident)? else { return self.base.entries(ident) };
        let base = if layer.covers { 0 } else { self.base.entries(ident)? };
        Ok(base.saturating_add_signed(layer.entries))
    }

    fn bytes(&self, ident: Ident) -> Result<u64> {
        let Some(layer) = self.layer(ident)? else { return self.base.bytes(ident) };
        let base = if layer.covers { 0 } else { self.base.bytes(ident)? };
        Ok(base.saturating_add_signed(layer.bytes))
    }

    fn confirm(&self) -> Result<()> {
        self.base.confirm()
    }

    fn contains(&self, ident: Ident) -> Result<bool> {
        match self.layers.get(&ident) {
            Some(layer) if layer.dropped => Ok(false),
            Some(layer) if layer.covers => Ok(true),
            _ => self.base.contains(ident),
        }
    }
}

/// A walk over the changes and what lies below them; each is one entry ahead.
struct OverlayCursor {
    above: TreeCursor<Option<Value>>,
    above_next: Option<(Key, Option<Value>)>,
    below: Option<Box<dyn Cursor>>,
    below_next: Option<(Key, Value)>,
    direction: Direction,
    /// What is lent to the caller.
    key: Key,
    value: Value,
}

impl OverlayCursor {
    fn order(&self, a: &[u8], b: &[u8]) -> Ordering {
        match self.direction {
            Direction::Forward => a.cmp(b),
            Direction::Backward => b.cmp(a),
        }
    }

    fn look_ahead(&mut self) -> Result<()> {
        if self.above_next.is_none() {
            self.above_next = self.above.next().map(|(key, value)| (Key::from(key), value.clone()));
        }
        if self.below_next.is_none()
            && let Some(below) = &mut self.below
        {
            self.below_next = below.next()?.map(|(key, value)| (Key::from(key), value.clone()));
        }
        Ok(())
    }
}

impl Cursor for OverlayCursor {
    fn next(&mut self) -> Result<Option<(&[u8], &Value)>> {
        loop {
            self.look_ahead()?;
            let order = match (&self.above_next, &self.below_next) {
                (None, None) => return Ok(None),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((above, _)), Some((below, _))) => self.order(above, below),
            };
            if order == Ordering::Greater {
                if let Some((key, value)) = self.below_next.take() {
                    (self.key, self.value) = (key, value);
                    return Ok(Some((&*self.key, &self.value)));
                }
                continue;
            }
            if order == Ordering::Equal {
                self.below_next = None;
            }
            if let Some((key, Some(value))) = self.above_next.take() {
                (self.key, self.value) = (key, value);
                return Ok(Some((&*self.key, &self.value)));
            }
        }
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        if self.above_next.as_ref().is_none_or(|(next, _)| self.order(next, key) == Ordering::Less) {
            self.above_next = None;
            self.above.seek(key);
        }
        if self.below_next.as_ref().is_none_or(|(next, _)| self.order(next, key) == Ordering::Less) {
            self.below_next = None;
            if let Some(below) = &mut self.below {
                below.seek(key)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::Checked;
    use crate::{Engine, MemoryEngine};
    use proptest::prelude::*;

    const TREE: Ident = Ident(1);

    fn op() -> impl Strategy<Value = Op> {
        let key = || prop::collection::vec(0u8..4, 0..3).prop_map(Key::from);
        prop_oneof![
            6 => (key(), 0u8..9).prop_map(|(key, value)| Op::Put { ident: TREE, key, value: Value::from([value].as_slice()) }),
            3 => key().prop_map(|key| Op::Delete { ident: TREE, key }),
            1 => Just(Op::Clear(TREE)),
        ]
    }

    fn batch(ops: &[Op]) -> Batch {
        let mut batch = Batch::new();
        for op in ops.iter().cloned() {
            match op {
                Op::Put { ident, key, value } => batch.put(ident, key, value),
                Op::Delete { ident, key } => batch.delete(ident, key),
                Op::Clear(ident) => batch.clear(ident),
                _ => {}
            }
        }
        batch
    }

    fn all(snapshot: &dyn Snapshot, direction: Direction, seek: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut cursor = snapshot.scan(TREE, Range::all(), direction).unwrap();
        cursor.seek(seek).unwrap();
        let mut found = Vec::new();
        while let Some((key, value)) = cursor.next().unwrap() {
            found.push((key.to_vec(), value.to_vec()));
        }
        found
    }

    proptest! {
        /// An overlay over a state reads as an engine does that the same changes were committed to.
        #[test]
        fn an_overlay_reads_as_the_changed_state(
            before in prop::collection::vec(op(), 0..20),
            changes in prop::collection::vec(op(), 0..20),
            seek in prop::collection::vec(0u8..4, 0..3),
        ) {
            let engine = Checked::new(MemoryEngine::new());
            let mut create = Batch::new();
            create.create(TREE);
            engine.commit(create).unwrap();
            engine.commit(batch(&before)).unwrap();
            let mut overlay = Overlay::new(engine.snapshot());
            let untouched = overlay.clone();
            overlay.apply(&batch(&changes)).unwrap();
            engine.commit(batch(&changes)).unwrap();
            let changed = engine.snapshot();
            for direction in [Direction::Forward, Direction::Backward] {
                prop_assert_eq!(
                    all(&overlay, direction, &seek),
                    all(changed.as_ref(), direction, &seek)
                );
            }
            prop_assert_eq!(overlay.entries(TREE), changed.entries(TREE));
            prop_assert_eq!(overlay.bytes(TREE), changed.bytes(TREE));
            prop_assert_eq!(all(&untouched, Direction::Forward, b""), all(overlay.base().as_ref(), Direction::Forward, b""));
        }
    }

    #[test]
    fn trees_are_made_and_taken_away() {
        let engine = MemoryEngine::new();
        let mut overlay = Overlay::new(engine.snapshot());
        let mut batch = Batch::new();
        batch.create(TREE);
        batch.put(TREE, b"a", b"1");
        overlay.apply(&batch).unwrap();
        assert_eq!(overlay.entries(TREE), Ok(1));
        assert_eq!(overlay.apply(&batch), Err(Error::IdentExists(TREE)));
        let mut batch = Batch::new();
        batch.drop_ident(TREE);
        overlay.apply(&batch).unwrap();
        assert_eq!(overlay.contains(TREE), Ok(false));
        assert_eq!(overlay.get(TREE, b"a"), Err(Error::NoSuchIdent(TREE)));
    }
}
