//! A batch: all changes of one commit, in order.
//!
//! A batch is only a list. Its builder knows the meaning of the keys. An engine applies all of it
//! or nothing.

use smallvec::SmallVec;
use std::collections::BTreeMap;

use crate::{Error, Ident, Key, Result, Value};

/// A change of one tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Stores a value under a key and replaces an existing value.
    Put {
        /// The tree.
        ident: Ident,
        /// The key.
        key: Key,
        /// The value.
        value: Value,
    },
    /// Removes a key. A missing key is no error.
    Delete {
        /// The tree.
        ident: Ident,
        /// The key.
        key: Key,
    },
    /// Creates an empty tree. Its ident must be free.
    Create(Ident),
    /// Drops a tree with its contents, in constant time. Its ident is then free.
    Drop(Ident),
    /// Empties a tree in constant time.
    Clear(Ident),
    /// Makes `to` a copy-on-write fork of `from`, in constant time if the engine can. The ident
    /// `to` must be free. The trees are then independent.
    Fork {
        /// The tree to copy.
        from: Ident,
        /// The ident of the fork.
        to: Ident,
    },
}

impl Op {
    /// Returns true if the change removes this key.
    pub fn deletes(&self, ident: Ident, key: &Key) -> bool {
        matches!(self, Op::Delete { ident: of, key: deleted } if *of == ident && deleted == key)
    }
}

/// Changes that take effect together or not at all, in the order of addition. A change sees all
/// earlier changes of the batch, so a batch can create and fill a tree.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    ops: Vec<Op>,
    /// Positions of the changes that put keys known to be new, in order.
    new: SmallVec<[u32; 4]>,
    time: u64,
}

impl PartialEq for Batch {
    /// The knowledge about new keys is not part of a batch's effect.
    fn eq(&self, other: &Self) -> bool {
        self.ops == other.ops && self.time == other.time
    }
}

impl Eq for Batch {}

impl Batch {
    /// Returns an empty batch.
    pub fn new() -> Self {
        Batch::default()
    }

    /// Returns an empty batch with room for `ops` changes.
    pub fn with_capacity(ops: usize) -> Self {
        Batch { ops: Vec::with_capacity(ops), ..Batch::default() }
    }

    /// Reserves room for this number of further changes.
    pub fn reserve(&mut self, ops: usize) {
        self.ops.reserve(ops);
        self.new.reserve(ops);
    }

    /// Adds [`Op::Put`].
    pub fn put(&mut self, ident: Ident, key: impl Into<Key>, value: impl Into<Value>) {
        self.ops.push(Op::Put { ident, key: key.into(), value: value.into() });
    }

    /// Adds [`Op::Put`] of a key that is known to be missing in the tree, for example because it contains a new record
    /// id, or because an earlier change of the batch deletes it. The engine then skips the lookup, which saves a page
    /// read for each entry of a large index on random values. If the key exists, counts become wrong and its old
    /// value may come back. [`crate::testing::Checked`] and debug builds verify it.
    pub fn put_new(&mut self, ident: Ident, key: impl Into<Key>, value: impl Into<Value>) {
        debug_assert!(self.new.last().is_none_or(|last| (*last as usize) < self.ops.len()), "out of order");
        self.new.push(self.ops.len() as u32);
        self.put(ident, key, value);
    }

    /// Returns the changes in order, each with a flag for a key known to be new.
    pub fn with_new(&self) -> impl Iterator<Item = (&Op, bool)> {
        debug_assert!(self.new.is_sorted_by(|a, b| a < b), "new keys are out of order: {:?}", self.new);
        debug_assert!(self.new.last().is_none_or(|last| (*last as usize) < self.ops.len()), "no such change");
        let mut new = self.new.iter().peekable();
        self.ops.iter().enumerate().map(move |(at, op)| (op, new.next_if_eq(&&(at as u32)).is_some()))
    }

    /// Adds [`Op::Delete`].
    pub fn delete(&mut self, ident: Ident, key: impl Into<Key>) {
        self.ops.push(Op::Delete { ident, key: key.into() });
    }

    /// Adds [`Op::Create`].
    pub fn create(&mut self, ident: Ident) {
        self.ops.push(Op::Create(ident));
    }

    /// Adds [`Op::Drop`].
    pub fn drop_ident(&mut self, ident: Ident) {
        self.ops.push(Op::Drop(ident));
    }

    /// Adds [`Op::Clear`].
    pub fn clear(&mut self, ident: Ident) {
        self.ops.push(Op::Clear(ident));
    }

    /// Adds [`Op::Fork`].
    pub fn fork(&mut self, from: Ident, to: Ident) {
        self.ops.push(Op::Fork { from, to });
    }

    /// Appends all changes of another batch. The batch keeps the greater of the two times.
    pub fn append(&mut self, mut other: Batch) {
        self.new.extend(other.new.iter().map(|at| at + self.ops.len() as u32));
        self.ops.append(&mut other.ops);
        self.time = self.time.max(other.time);
    }

    /// Sets the cluster time of the changes; 0 means none. An engine only remembers the greatest
    /// time, see [`crate::Engine::latest_time`].
    pub fn set_time(&mut self, time: u64) {
        self.time = time;
    }

    /// Returns the cluster time of the changes, 0 if they have none.
    pub fn time(&self) -> u64 {
        self.time
    }

    /// Returns the changes in order.
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// Returns the number of changes.
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Returns true if the batch is empty.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }
}

impl IntoIterator for Batch {
    type Item = Op;
    type IntoIter = std::vec::IntoIter<Op>;

    fn into_iter(self) -> Self::IntoIter {
        self.ops.into_iter()
    }
}

/// The trees that exist at a point within a batch. An engine checks a batch with them before it applies it.
pub(crate) struct ExistingTrees<'a, T, F> {
    /// Returns a tree from before the batch.
    before: F,
    /// Trees that the batch changed as a whole: `None` for a dropped tree, otherwise the earlier tree that it is a
    /// fork of, direct or indirect, if it is one.
    changed: BTreeMap<Ident, Option<Option<&'a T>>>,
    /// The tree found last: consecutive operations often use one tree.
    recent: Option<(Ident, Option<&'a T>)>,
}

impl<'a, T, F: Fn(Ident) -> Option<&'a T>> ExistingTrees<'a, T, F> {
    pub(crate) fn new(before: F) -> Self {
        ExistingTrees { before, changed: BTreeMap::new(), recent: None }
    }

    /// Checks an operation after the earlier ones. Returns the earlier tree in which it puts or deletes a key; `None`
    /// if the batch created the tree, and for other operations.
    ///
    /// Errors: KeyTooLong, NoSuchIdent, IdentExists.
    pub(crate) fn admit(&mut self, op: &Op) -> Result<Option<&'a T>> {
        let (ident, changed) = match op {
            Op::Put { key, .. } | Op::Delete { key, .. } if key.len() > Key::MAX_BYTES => {
                return Err(Error::KeyTooLong(key.len()));
            }
            Op::Put { ident, .. } | Op::Delete { ident, .. } => return self.find(*ident),
            Op::Clear(ident) => (*ident, self.find(*ident).map(|_| Some(None))?),
            Op::Drop(ident) => (*ident, self.find(*ident).map(|_| None)?),
            Op::Create(ident) => (*ident, Some(None)),
            Op::Fork { from, to } => (*to, Some(self.find(*from)?)),
        };
        if let Op::Create(_) | Op::Fork { .. } = op
            && self.find(ident).is_ok()
        {
            return Err(Error::IdentExists(ident));
        }
        self.changed.insert(ident, changed);
        self.recent = None;
        Ok(None)
    }

    fn find(&mut self, ident: Ident) -> Result<Option<&'a T>> {
        if let Some((recent, tree)) = self.recent
            && recent == ident
        {
            return Ok(tree);
        }
        let changed = self.changed.get(&ident).copied();
        let tree =
            changed.unwrap_or_else(|| (self.before)(ident).map(Some)).ok_or(Error::NoSuchIdent(ident))?;
        self.recent = Some((ident, tree));
        Ok(tree)
    }
}
