//! A state of the whole engine: for each tree the changes since the checkpoint, over a table of the base.
//!
//! A tree has up to three layers: the changes since the latest freeze (`top`), the changes written by a running
//! checkpoint (`frozen`), and a table of the base. A change records whether lower layers hold its key. Counts are
//! therefore exact, and the deletion of a key that never reached the base leaves nothing. The base is read only at the
//! first change of a key since the freeze.
//!
//! All layers are persistent or immutable, so a state is cloned in constant time: the clone is a snapshot. A fork
//! clones the layers and refers to the same table of the base. When a checkpoint finds that one of the trees has
//! changed, it gives that tree its own table.

use crate::mark;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::base::View;
use super::cursor::MergeCursor;
use crate::batch::ExistingTrees;
use crate::memory::Tree;
use crate::{Batch, Cursor, Damage, Direction, Error, Ident, Op, Range, Result, Snapshot, Value};

/// Approximate overhead of an entry in memory, in addition to key and value.
const ENTRY_OVERHEAD: u64 = 64;

/// A change of one key.
#[derive(Clone)]
pub(super) enum Change {
    Put {
        value: Value,
        /// True if a lower layer holds the key too.
        over: bool,
    },
    /// The key is in a lower layer and is deleted.
    Tombstone,
}

impl Change {
    pub(super) fn into_value(self) -> Option<Value> {
        match self {
            Change::Put { value, .. } => Some(value),
            Change::Tombstone => None,
        }
    }
}

/// Changes that a checkpoint is writing.
pub(super) struct Frozen {
    /// Key of these changes in the checkpoint's result.
    pub(super) number: u64,
    pub(super) changes: Tree<Change>,
}

/// One collection or index.
#[derive(Clone, Default)]
pub(super) struct Table {
    top: Tree<Change>,
    /// Changes that a running checkpoint writes.
    pub(super) frozen: Option<Arc<Frozen>>,
    /// Table of the base; 0 for none.
    pub(super) base: u64,
    /// Number of entries over all layers.
    pub(super) entries: u64,
    /// Total length of keys and values.
    pub(super) bytes: u64,
}

impl Table {
    /// Creates a tree as the base describes it.
    pub(super) fn new(base: u64, entries: u64, bytes: u64) -> Self {
        Table { base, entries, bytes, ..Table::default() }
    }

    /// Asserts that a tree without entries has no bytes.
    fn assert_counts(&self) {
        debug_assert!(self.entries > 0 || self.bytes == 0, "no entries, and {} bytes", self.bytes);
    }

    /// Returns the value of a key in the topmost layer that has it.
    fn get(&self, key: &[u8], view: &View) -> Result<Option<Value>> {
        match self.top.get(key) {
            Some(change) => Ok(change.clone().into_value()),
            None => self.get_below(key, view),
        }
    }

    /// Returns the value of a key in the layers below `top`.
    fn get_below(&self, key: &[u8], view: &View) -> Result<Option<Value>> {
        if let Some(frozen) = &self.frozen
            && let Some(change) = frozen.changes.get(key)
        {
            return Ok(change.clone().into_value());
        }
        view.get(self.base, key)
    }

    /// Returns the length of a key's value in the layers below `top`.
    fn len_below(&self, key: &[u8], view: &View) -> Result<Option<usize>> {
        if let Some(frozen) = &self.frozen
            && let Some(change) = frozen.changes.get(key)
        {
            return Ok(match change {
                Change::Put { value, .. } => Some(value.len()),
                Change::Tombstone => None,
            });
        }
        view.value_len(self.base, key)
    }

    /// Returns whether lower layers hold a key, and the present length of its value. `below` is the length in the lower
    /// layers.
    fn old(&self, key: &[u8], below: Option<usize>) -> (bool, Option<usize>) {
        match self.top.get(key) {
            Some(Change::Put { value, over }) => (*over, Some(value.len())),
            Some(Change::Tombstone) => (true, None),
            None => (below.is_some(), below),
        }
    }

    /// Puts a value and updates the counts. `below` is the length of the key's value in the lower layers.
    fn put(&mut self, key: &[u8], value: Value, below: Option<usize>) {
        self.bytes += value.len() as u64;
        let is_below = below.is_some();
        // One search if the key is new in this layer, as most are.
        let (over, old) = match self.top.insert(key, Change::Put { value, over: is_below }) {
            Some(Change::Put { value, over }) => (over, Some(value.len())),
            Some(Change::Tombstone) => (true, None),
            None => (is_below, below),
        };
        if over != is_below
            && let Some(Change::Put { over: known, .. }) = self.top.get_mut(key)
        {
            *known = over;
        }
        match old {
            Some(len) => self.bytes -= len as u64,
            None => {
                self.bytes += key.len() as u64;
                self.entries += 1;
            }
        }
        debug_assert!(self.entries > 0, "a stored key is not counted");
    }

    /// Deletes a key and updates the counts. A key that only `top` holds leaves no trace.
    fn delete(&mut self, key: &[u8], below: Option<usize>) {
        let (over, Some(len)) = self.old(key, below) else { return };
        match over {
            true => self.top.insert(key, Change::Tombstone),
            false => self.top.remove(key),
        };
        debug_assert!(
            self.entries > 0 && self.bytes >= (key.len() + len) as u64,
            "a deleted key is not counted"
        );
        self.bytes -= (key.len() + len) as u64;
        self.entries -= 1;
        self.assert_counts();
    }

    /// Returns a cursor over the layers of this tree.
    pub(super) fn cursor(&self, view: &Arc<View>, range: Range, direction: Direction) -> Result<MergeCursor> {
        let mut layers = Vec::with_capacity(2);
        if !self.top.is_empty() {
            layers.push(self.top.cursor(range.clone(), direction));
        }
        if let Some(frozen) = &self.frozen {
            layers.push(frozen.changes.cursor(range.clone(), direction));
        }
        let base = view.scan(self.base, range, direction)?;
        debug_assert!(layers.len() <= 2, "{} layers of changes", layers.len());
        Ok(MergeCursor::new(layers, base, direction))
    }
}

/// All trees after a commit.
#[derive(Clone)]
pub(super) struct State {
    tables: Tree<Table>,
    /// Trees changed, created or dropped since the latest freeze.
    dirty: Tree<()>,
    /// Trees with frozen changes.
    freezing: Tree<()>,
    /// The base at the latest checkpoint.
    pub(super) view: Arc<View>,
    /// Position of the latest commit.
    pub(super) position: u64,
    /// Greatest time of any commit.
    pub(super) time: u64,
    /// Total length of keys and values in all trees.
    pub(super) bytes: u64,
    /// Approximate memory of the changes since the latest freeze.
    pub(super) changed_bytes: u64,
    /// Approximate bytes of the base in trees dropped or emptied since the latest freeze.
    pub(super) garbage_bytes: u64,
    /// Number of the next frozen layer.
    next_frozen: u64,
}

/// A state to be checkpointed.
pub(super) struct Freeze {
    /// The state. Its changes are in the `frozen` layers.
    pub(super) state: Arc<State>,
    /// The changed or dropped trees.
    pub(super) dirty: Tree<()>,
    /// Approximate memory of the changes.
    pub(super) changed_bytes: u64,
    /// Approximate bytes that the checkpoint frees in the base.
    pub(super) garbage_bytes: u64,
}

/// Returns the key of a tree in the map of trees: the ident plus one. The tree of retry records, which has the greatest
/// ident, thus has the first key. As the last key it would share no prefix with the latest trees, and searches for them
/// would compare whole keys.
pub(super) fn tree_key(ident: Ident) -> [u8; 8] {
    ident.0.wrapping_add(1).to_be_bytes()
}

/// Returns the tree of a key in the map of trees.
fn ident_of(key: &[u8]) -> Option<Ident> {
    key.first_chunk().map(|bytes| Ident(u64::from_be_bytes(*bytes).wrapping_sub(1)))
}

impl State {
    /// Creates the state of the base after the commit at `position`. `time` is the greatest time of any commit.
    pub(super) fn new(view: Arc<View>, tables: Vec<(Ident, Table)>, position: u64, time: u64) -> Self {
        let mut state = State {
            tables: Tree::new(),
            dirty: Tree::new(),
            freezing: Tree::new(),
            view,
            position,
            time,
            bytes: 0,
            changed_bytes: 0,
            garbage_bytes: 0,
            next_frozen: 1,
        };
        for (ident, table) in tables {
            state.bytes += table.bytes;
            state.tables.insert(&tree_key(ident), table);
        }
        state.assert_clean();
        state
    }

    /// Asserts what holds between the trees and the sets and sums of the state. Reads all trees, so it is called at a
    /// checkpoint only.
    fn assert_valid(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        let mut bytes = 0;
        let mut cursor = self.tables.cursor(Range::all(), Direction::Forward);
        while let Some((key, table)) = cursor.next() {
            bytes += table.bytes;
            let is_dirty = self.dirty.get(key).is_some();
            debug_assert!(is_dirty || table.top.is_empty(), "a checkpoint would omit changes of {key:?}");
            let is_freezing = self.freezing.get(key).is_some();
            debug_assert!(is_freezing || table.frozen.is_none(), "frozen changes of {key:?} would stay");
            table.assert_counts();
        }
        debug_assert_eq!(bytes, self.bytes, "the sum of all trees");
        self.assert_clean();
    }

    /// Asserts that a state without changes counts none, and that the base is not ahead of the state.
    fn assert_clean(&self) {
        debug_assert!(!self.is_clean() || self.changed_bytes + self.garbage_bytes == 0, "clean with changes");
        debug_assert!(self.view.position() <= self.position, "the base is ahead of the journal");
    }

    pub(super) fn table(&self, ident: Ident) -> Result<&Table> {
        self.tables.get(&tree_key(ident)).ok_or(Error::NoSuchIdent(ident))
    }

    /// Returns the numbers of all trees.
    pub(super) fn idents(&self) -> Vec<Ident> {
        let mut idents = Vec::new();
        let mut cursor = self.tables.cursor(Range::all(), Direction::Forward);
        while let Some((key, _)) = cursor.next() {
            idents.extend(ident_of(key));
        }
        idents
    }

    /// Calls a function with each tree.
    pub(super) fn each_table(&self, mut call: impl FnMut(&Table)) {
        let mut cursor = self.tables.cursor(Range::all(), Direction::Forward);
        while let Some((_, table)) = cursor.next() {
            call(table);
        }
    }

    /// Returns the trees that read each table of the base.
    pub(super) fn by_base(&self) -> BTreeMap<u64, Vec<Ident>> {
        let mut trees: BTreeMap<u64, Vec<Ident>> = BTreeMap::new();
        let mut cursor = self.tables.cursor(Range::all(), Direction::Forward);
        while let Some((key, table)) = cursor.next() {
            if table.base != 0 {
                trees.entry(table.base).or_default().extend(ident_of(key));
            }
        }
        trees
    }

    /// Checks that every operation of a batch is valid after the earlier ones. Looks up the lengths in the base of keys
    /// that change for the first time. This may wait for the disk; [`State::apply`] then does not.
    pub(super) fn prepare(&self, batch: &Batch) -> Result<Vec<Option<usize>>> {
        let mut trees = ExistingTrees::new(|ident| self.table(ident).ok());
        let mut below = Vec::with_capacity(batch.len());
        for (at, (op, is_new)) in batch.with_new().enumerate() {
            let earlier = batch.ops().get(..at).unwrap_or_default();
            below.push(match (trees.admit(op)?, op) {
                (Some(table), Op::Put { ident, key, .. }) if is_new => {
                    // A transaction that changes a value and changes it back deletes an entry and adds it again.
                    debug_assert!(
                        table.top.get(key).is_some()
                            || !matches!(table.len_below(key, &self.view), Ok(Some(_)))
                            || earlier.iter().any(|op| op.deletes(*ident, key)),
                        "an existing key was declared new: {key:?}"
                    );
                    None
                }
                // The length does not matter if the top layer keeps the key.
                (Some(table), Op::Put { key, .. } | Op::Delete { key, .. })
                    if table.top.get(key).is_none() =>
                {
                    table.len_below(key, &self.view)?
                }
                _ => None,
            });
        }
        debug_assert_eq!(below.len(), batch.len(), "one length for each operation");
        Ok(below)
    }

    /// Applies a prepared batch. Returns the discarded trees, which the caller frees outside of any lock.
    pub(super) fn apply(&mut self, batch: Batch, below: &[Option<usize>], position: u64) -> Vec<Table> {
        debug_assert_eq!(below.len(), batch.len(), "the batch was not prepared");
        debug_assert_eq!(position, self.position + 1, "a position is missing");
        let (mut discarded, operations) = (Vec::new(), batch.len());
        self.time = self.time.max(batch.time());
        for (at, op) in batch.into_iter().enumerate() {
            let below = below.get(at).copied().flatten();
            match op {
                Op::Put { ident, key, value } => {
                    self.changed_bytes += (key.len() + value.len()) as u64 + ENTRY_OVERHEAD;
                    self.write(ident, |table| table.put(&key, value, below));
                }
                Op::Delete { ident, key } => {
                    self.changed_bytes += key.len() as u64 + ENTRY_OVERHEAD;
                    self.write(ident, |table| table.delete(&key, below));
                }
                Op::Create(ident) => self.insert_table(ident, Table::default()),
                Op::Drop(ident) => {
                    discarded.reserve(operations - at);
                    discarded.extend(self.discard(ident));
                }
                Op::Clear(ident) => {
                    discarded.extend(self.discard(ident));
                    self.insert_table(ident, Table::default());
                }
                Op::Fork { from, to } => self.fork(from, to),
            }
        }
        self.position = position;
        self.assert_clean();
        discarded
    }

    /// Changes a tree, and marks it as dirty at its first change since the freeze.
    fn write(&mut self, ident: Ident, write: impl FnOnce(&mut Table)) {
        let Some(table) = self.tables.get_mut(&tree_key(ident)) else {
            debug_assert!(false, "{ident:?} was not prepared");
            return;
        };
        if table.top.is_empty() {
            self.dirty.insert(&tree_key(ident), ());
        }
        debug_assert!(self.dirty.get(&tree_key(ident)).is_some(), "changes of {ident:?} are not marked");
        let before = table.bytes;
        write(table);
        debug_assert!(self.bytes >= before, "{ident:?} has more bytes than all trees");
        self.bytes = self.bytes - before + table.bytes;
        if !self.freezing.is_empty() {
            mark!("a tree changes during a checkpoint");
        }
    }

    /// Adds a fork: the clone shares all layers with the original.
    fn fork(&mut self, from: Ident, to: Ident) {
        debug_assert!(self.table(from).is_ok(), "{from:?} was not prepared");
        let Ok(table) = self.table(from).cloned() else { return };
        if table.frozen.is_some() {
            mark!("a tree is forked during its checkpoint");
            self.freezing.insert(&tree_key(to), ());
        }
        self.insert_table(to, table);
    }

    /// Adds a tree.
    fn insert_table(&mut self, ident: Ident, table: Table) {
        self.changed_bytes += ENTRY_OVERHEAD;
        self.bytes += table.bytes;
        self.dirty.insert(&tree_key(ident), ());
        let replaced = self.tables.insert(&tree_key(ident), table);
        debug_assert!(replaced.is_none(), "{ident:?} existed");
    }

    /// Removes a tree. Its table in the base becomes garbage for the next checkpoint.
    fn discard(&mut self, ident: Ident) -> Option<Table> {
        let table = self.tables.remove(&tree_key(ident));
        debug_assert!(table.is_some(), "{ident:?} was not prepared");
        let table = table?;
        debug_assert!(self.bytes >= table.bytes, "{ident:?} has more bytes than all trees");
        self.bytes -= table.bytes;
        if table.base != 0 {
            self.garbage_bytes += table.bytes;
        }
        self.dirty.insert(&tree_key(ident), ());
        if self.freezing.remove(&tree_key(ident)).is_some() {
            mark!("a tree is dropped during its checkpoint");
        }
        Some(table)
    }

    /// Returns true without changes since the latest freeze.
    pub(super) fn is_clean(&self) -> bool {
        self.dirty.is_empty()
    }

    /// Moves all changes down one layer, for a checkpoint to write them. No frozen layers may exist.
    pub(super) fn freeze(&mut self) -> Freeze {
        debug_assert!(self.freezing.is_empty(), "a checkpoint is still writing");
        self.assert_valid();
        let dirty = std::mem::take(&mut self.dirty);
        self.freezing = dirty.clone();
        let changed_bytes = std::mem::take(&mut self.changed_bytes);
        let garbage_bytes = std::mem::take(&mut self.garbage_bytes);
        // Forks without changes since the fork share their changes, and each gets its own number. This costs one more
        // table, and only if both survive.
        each_ident(&dirty, |ident| {
            if let Some(table) = self.tables.get_mut(&tree_key(ident))
                && !table.top.is_empty()
            {
                debug_assert!(table.frozen.is_none(), "frozen changes of {ident:?} are lost");
                let changes = std::mem::take(&mut table.top);
                table.frozen = Some(Arc::new(Frozen { number: self.next_frozen, changes }));
                self.next_frozen += 1;
            }
        });
        Freeze { state: Arc::new(self.clone()), dirty, changed_bytes, garbage_bytes }
    }

    /// Replaces the frozen changes by the tables that the checkpoint has written.
    pub(super) fn thaw(&mut self, written: &BTreeMap<u64, u64>, view: Arc<View>) {
        let freezing = std::mem::take(&mut self.freezing);
        each_ident(&freezing, |ident| {
            if let Some(table) = self.tables.get_mut(&tree_key(ident))
                && let Some(frozen) = table.frozen.take()
            {
                debug_assert!(written.contains_key(&frozen.number), "changes of {ident:?} were not written");
                // Every frozen layer has been written, unless its tree was dropped; a dropped tree is not here.
                table.base = written.get(&frozen.number).copied().unwrap_or_default();
            }
        });
        self.replace_view(view);
        self.assert_valid();
    }

    /// Replaces the view of the base by a later one, or by one of equal contents.
    pub(super) fn replace_view(&mut self, view: Arc<View>) {
        debug_assert!(view.position() >= self.view.position(), "the base goes back");
        debug_assert!(view.position() <= self.position, "the base is ahead of the journal");
        self.view = view;
    }
}

/// Calls a function with each number in a set.
pub(super) fn each_ident(idents: &Tree<()>, mut call: impl FnMut(Ident)) {
    let mut cursor = idents.cursor(Range::all(), Direction::Forward);
    while let Some((key, ())) = cursor.next() {
        ident_of(key).into_iter().for_each(&mut call);
    }
}

impl Snapshot for State {
    fn get(&self, ident: Ident, key: &[u8]) -> Result<Option<Value>> {
        self.table(ident)?.get(key, &self.view)
    }

    fn scan(&self, ident: Ident, range: Range, direction: Direction) -> Result<Box<dyn Cursor>> {
        Ok(Box::new(self.table(ident)?.cursor(&self.view, range, direction)?))
    }

    fn entries(&self, ident: Ident) -> Result<u64> {
        Ok(self.table(ident)?.entries)
    }

    fn bytes(&self, ident: Ident) -> Result<u64> {
        Ok(self.table(ident)?.bytes)
    }

    fn contains(&self, ident: Ident) -> Result<bool> {
        Ok(self.table(ident).is_ok())
    }

    fn verify(&self, ident: Ident, should_continue: &mut dyn FnMut() -> bool) -> Result<Vec<Damage>> {
        Ok(self.view.verify(self.table(ident)?.base, should_continue))
    }
}
