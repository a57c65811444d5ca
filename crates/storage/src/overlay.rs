//! A snapshot with the uncommitted changes of a transaction on top.
//!
//! The changes to each tree are in a persistent tree. A copy of the overlay is therefore cheap and
//! does not change with later changes.

use crate::memory::{LookaheadCursor, Tree};
use crate::mutant;
use crate::{
    Batch, Cursor, Direction, Error, Hints, Ident, Key, Op, Range, RemoteHints, Result, Snapshot, Value,
    ValueRef,
};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A state with changes.
#[derive(Clone)]
pub struct Overlay {
    base: Arc<dyn Snapshot>,
    layers: BTreeMap<Ident, Layer>,
}

/// The changes to one tree; `None` is a deletion.
#[derive(Clone, Default)]
struct Layer {
    changes: Tree<Option<Value>>,
    /// True if the tree was created or emptied here, so that the base has no entries.
    replaces_base: bool,
    dropped: bool,
    /// Difference of the counts to the base, or the counts themselves if the layer replaces the base.
    entries: i64,
    bytes: i64,
}

impl Overlay {
    /// Returns an overlay without changes.
    pub fn new(base: Arc<dyn Snapshot>) -> Overlay {
        Overlay { base, layers: BTreeMap::new() }
    }

    /// Returns the state below the changes.
    pub fn base(&self) -> &Arc<dyn Snapshot> {
        &self.base
    }

    /// Applies the changes of a batch.
    ///
    /// Errors: as an engine's commit; `Unavailable` for a fork, which transactions do not make.
    pub fn apply(&mut self, batch: &Batch) -> Result<()> {
        batch.ops().iter().try_for_each(|op| match op {
            Op::Put { ident, key, value } => self.write(*ident, key, Some(value.clone())),
            Op::Delete { ident, key } => self.write(*ident, key, None),
            Op::Create(ident) if self.contains(*ident)? => Err(Error::IdentExists(*ident)),
            Op::Create(ident) => {
                self.layers.insert(*ident, Layer { replaces_base: true, ..Layer::default() });
                Ok(())
            }
            Op::Clear(ident) | Op::Drop(ident) if !self.contains(*ident)? => Err(Error::NoSuchIdent(*ident)),
            Op::Clear(ident) => {
                self.layers.insert(*ident, Layer { replaces_base: true, ..Layer::default() });
                Ok(())
            }
            Op::Drop(ident) => {
                self.layers.insert(*ident, Layer { replaces_base: true, dropped: true, ..Layer::default() });
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
        match layer.replaces_base && value.is_none() {
            true => layer.changes.remove(key),
            false => layer.changes.insert(key, value),
        };
        debug_assert!(!layer.dropped, "{ident:?} is dropped");
        debug_assert!(
            !layer.replaces_base || layer.entries == layer.changes.len() as i64,
            "{} entries",
            layer.entries
        );
        debug_assert!(!layer.replaces_base || layer.bytes >= 0, "{} bytes in {ident:?}", layer.bytes);
        Ok(())
    }

    /// Returns a cursor over the changes of a tree and the entries below, which may carry records.
    fn merged(
        &self,
        (ident, range): (Ident, Range),
        direction: Direction,
        below: Option<Box<dyn Cursor>>,
        records: Option<(Ident, bool)>,
    ) -> Box<dyn Cursor> {
        let changes = self.layers.get(&ident).map_or_else(Tree::default, |layer| layer.changes.clone());
        Box::new(OverlayCursor {
            above: LookaheadCursor::new(changes.cursor(range, direction)),
            below,
            below_next: None,
            direction,
            key: Key::from(b""),
            value: Value::empty(),
            record: None,
            records,
            layers: if records.is_some() { self.layers.clone() } else { BTreeMap::new() },
        })
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
            None if layer.replaces_base => Ok(None),
            None => self.base.get(ident, key),
        }
    }

    fn lookup(&self, index: Ident, key: &[u8], records: Ident) -> Result<Option<(Value, Value)>> {
        let is_changed = |layer: &Layer| layer.replaces_base || layer.changes.get(key).is_some();
        let found = match self.layer(index)?.is_some_and(is_changed) {
            // One round trip to a remote store.
            false => self.base.lookup(index, key, records)?.map(|(entry, record)| (entry, Some(record))),
            true => self.get(index, key)?.map(|entry| (entry, None)),
        };
        let Some((entry, below)) = found else { return Ok(None) };
        let id = entry.get(..8).unwrap_or_default();
        let is_changed = |layer: &Layer| layer.replaces_base || layer.changes.get(id).is_some();
        let record = match below {
            Some(below) if !self.layer(records)?.is_some_and(is_changed) => Some(below),
            _ => self.get(records, id)?,
        };
        match record {
            Some(record) => Ok(Some((entry, record))),
            None => Err(Error::Corrupted("an index entry refers to a missing record".to_string())),
        }
    }

    fn scan(&self, ident: Ident, range: Range, direction: Direction) -> Result<Box<dyn Cursor>> {
        let layer = self.layer(ident)?;
        let below = match layer.is_some_and(|layer| layer.replaces_base) {
            true => None,
            false => Some(self.base.scan(ident, range.clone(), direction)?),
        };
        match (layer, below) {
            (None, Some(below)) => Ok(below),
            (_, below) => Ok(self.merged((ident, range), direction, below, None)),
        }
    }

    fn entries(&self, ident: Ident) -> Result<u64> {
        let Some(layer) = self.layer(ident)? else { return self.base.entries(ident) };
        let base = if layer.replaces_base { 0 } else { self.base.entries(ident)? };
        debug_assert!(
            base.checked_add_signed(layer.entries).is_some(),
            "{base} and {} entries",
            layer.entries
        );
        Ok(base.saturating_add_signed(layer.entries))
    }

    fn bytes(&self, ident: Ident) -> Result<u64> {
        let Some(layer) = self.layer(ident)? else { return self.base.bytes(ident) };
        let base = if layer.replaces_base { 0 } else { self.base.bytes(ident)? };
        debug_assert!(base.checked_add_signed(layer.bytes).is_some(), "{base} and {} bytes", layer.bytes);
        Ok(base.saturating_add_signed(layer.bytes))
    }

    fn contains(&self, ident: Ident) -> Result<bool> {
        match self.layers.get(&ident) {
            Some(layer) if layer.dropped => Ok(false),
            Some(layer) if layer.replaces_base => Ok(true),
            _ => self.base.contains(ident),
        }
    }

    fn remote(&self) -> Option<&dyn RemoteHints> {
        self.base.remote().is_some().then_some(self as &dyn RemoteHints)
    }
}

impl RemoteHints for Overlay {
    fn get_alone(&self, ident: Ident, key: &[u8]) -> Result<Option<Value>> {
        self.get(ident, key)
    }

    fn scan_hinted(
        &self,
        ident: Ident,
        range: Range,
        hints: Hints,
        direction: Direction,
    ) -> Result<Box<dyn Cursor>> {
        let (layer, records) = (self.layer(ident)?, hints.prefetch_records);
        // A merged cursor does not count entries that its base leaves out.
        let hints = Hints { contains: hints.contains.filter(|_| layer.is_none()), ..hints };
        let below = match (layer.is_some_and(|layer| layer.replaces_base), self.base.remote()) {
            (true, _) => None,
            (false, Some(remote)) => Some(remote.scan_hinted(ident, range.clone(), hints, direction)?),
            (false, None) => Some(self.base.scan(ident, range.clone(), direction)?),
        };
        match (layer, below) {
            // A record that comes with its entry may have been changed, even if the index has not.
            (None, Some(below)) if records.is_none() || self.layers.is_empty() => Ok(below),
            (_, below) => Ok(self.merged((ident, range), direction, below, records)),
        }
    }

    fn scan_together(
        &self,
        scans: Vec<(Ident, Range, Hints)>,
        direction: Direction,
    ) -> Result<Vec<Box<dyn Cursor>>> {
        let Some(remote) = self.base.remote() else {
            return scans.into_iter().map(|(ident, range, _)| self.scan(ident, range, direction)).collect();
        };
        if self.layers.is_empty() {
            return remote.scan_together(scans, direction);
        }
        for (ident, ..) in &scans {
            self.layer(*ident)?;
        }
        let replaces_base = |ident: &Ident| self.layers.get(ident).is_some_and(|layer| layer.replaces_base);
        let cursors: Vec<_> = scans
            .iter()
            .map(|(ident, range, hints)| (*ident, range.clone(), hints.prefetch_records))
            .collect();
        let requested = scans.into_iter().filter(|(ident, ..)| !replaces_base(ident)).collect();
        let mut below = remote.scan_together(requested, direction)?.into_iter();
        let merged = |(ident, range, records): (Ident, Range, Option<(Ident, bool)>)| {
            let below = if replaces_base(&ident) { None } else { below.next() };
            self.merged((ident, range), direction, below, records)
        };
        let cursors = cursors.into_iter().map(merged).collect();
        debug_assert!(below.next().is_none(), "a cursor of the base is not used");
        Ok(cursors)
    }

    fn prefetch_records(&self, ident: Ident, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
        let Some(remote) = self.base.remote() else { return Ok(Vec::new()) };
        let Some(layer) = self.layer(ident)? else { return remote.prefetch_records(ident, keys) };
        if layer.replaces_base {
            return Ok(Vec::new());
        }
        let is_changed = |key: &&[u8]| layer.changes.get(key).is_some();
        let requested: Vec<&[u8]> = keys.iter().filter(|key| !is_changed(key)).copied().collect();
        let mut below = remote.prefetch_records(ident, &requested)?.into_iter();
        let value = |key: &&[u8]| match layer.changes.get(key) {
            Some(changed) => changed.clone(),
            None => below.next().flatten(),
        };
        let values: Vec<_> = keys.iter().map(value).collect();
        debug_assert!(below.next().is_none(), "the base has more values than keys");
        Ok(values)
    }

    fn confirm(&self) -> Result<()> {
        self.base.remote().map_or(Ok(()), |remote| remote.confirm())
    }
}

/// A cursor over the changes and the entries below; each is one entry ahead.
struct OverlayCursor {
    above: LookaheadCursor<Option<Value>>,
    below: Option<Box<dyn Cursor>>,
    /// With its fetched record.
    below_next: Option<(Key, Value, Option<Value>)>,
    direction: Direction,
    /// Entry borrowed by the caller.
    key: Key,
    value: Value,
    record: Option<Value>,
    /// Tree of the fetched records, and whether the index is unique.
    records: Option<(Ident, bool)>,
    /// Changes of the records.
    layers: BTreeMap<Ident, Layer>,
}

impl OverlayCursor {
    fn look_ahead(&mut self) -> Result<()> {
        self.above.look_ahead();
        if self.below_next.is_none()
            && let Some(below) = &mut self.below
        {
            let entry = below.next()?.map(|(key, value)| (Key::from(key), value.to_value()));
            self.below_next = match (entry, self.records) {
                (None, _) => None,
                (Some((key, value)), None) => Some((key, value, None)),
                (Some((key, value)), Some(_)) => Some((key, value, below.prefetched_record()?)),
            };
        }
        Ok(())
    }

    /// Asserts that a key comes after the last one. A new cursor has the empty key.
    fn assert_follows(&self, key: &Key) {
        let last = &self.key;
        debug_assert!(last.is_empty() || self.direction.is_before(last, key), "{key:?} comes after {last:?}");
    }

    /// Returns the fetched record of an entry with the changes applied; `None` if a lookup is
    /// necessary.
    fn with_changes(&self, key: &[u8], value: &[u8], prefetched: Option<Value>) -> Option<Value> {
        let (records, unique) = self.records?;
        let Some(layer) = self.layers.get(&records) else { return prefetched };
        let id = match unique {
            true => value.get(..8)?,
            false => key.get(key.len().checked_sub(8)?..)?,
        };
        match layer.changes.get(id) {
            Some(changed) => changed.clone(),
            None if layer.replaces_base => None,
            None => prefetched,
        }
    }
}

impl Cursor for OverlayCursor {
    fn next(&mut self) -> Result<Option<(&[u8], ValueRef<'_>)>> {
        loop {
            self.look_ahead()?;
            let order = match (self.above.key(), &self.below_next) {
                (None, None) => return Ok(None),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(above), Some((below, _, _))) => self.direction.order(above, below),
            };
            if order == Ordering::Greater {
                if let Some((key, value, prefetched)) = self.below_next.take() {
                    self.assert_follows(&key);
                    self.record = self.with_changes(&key, &value, prefetched);
                    (self.key, self.value) = (key, value);
                    return Ok(Some((&*self.key, ValueRef::Value(&self.value))));
                }
                continue;
            }
            if order == Ordering::Equal {
                self.below_next = None;
            }
            if let Some((key, Some(value))) = self.above.take() {
                self.assert_follows(&key);
                self.record = None;
                (self.key, self.value) = (key, value);
                return Ok(Some((&*self.key, ValueRef::Value(&self.value))));
            }
        }
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.above.seek(key);
        if self.below_next.as_ref().is_none_or(|(next, _, _)| self.direction.is_before(next, key)) {
            self.below_next = None;
            if let Some(below) = &mut self.below {
                below.seek(key)?;
            }
        }
        Ok(())
    }

    fn prefetched_record(&mut self) -> Result<Option<Value>> {
        Ok(self.record.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Checked;
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
        let mut entries = Vec::new();
        while let Some((key, value)) = cursor.next().unwrap() {
            entries.push((key.to_vec(), value.to_vec()));
        }
        entries
    }

    proptest! {
        /// An overlay over a state reads like an engine that has committed the changes.
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
            let with_changes = engine.snapshot();
            for direction in [Direction::Forward, Direction::Backward] {
                prop_assert_eq!(
                    all(&overlay, direction, &seek),
                    all(with_changes.as_ref(), direction, &seek)
                );
            }
            prop_assert_eq!(overlay.entries(TREE), with_changes.entries(TREE));
            prop_assert_eq!(overlay.bytes(TREE), with_changes.bytes(TREE));
            prop_assert_eq!(all(&untouched, Direction::Forward, b""), all(overlay.base().as_ref(), Direction::Forward, b""));
        }
    }

    #[test]
    fn trees_are_created_and_dropped() {
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
