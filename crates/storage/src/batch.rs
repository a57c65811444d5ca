//! A batch: all the changes of one commit, in order.
//!
//! Nothing but a list. Whoever builds it knows what the keys mean; an engine applies all of it or nothing.

use smallvec::SmallVec;

use crate::{Ident, Key, Value};

/// One change to one tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Stores a value under a key, replacing what was there.
    Put {
        /// The tree.
        ident: Ident,
        /// Where in the tree.
        key: Key,
        /// What to store.
        value: Value,
    },
    /// Removes a key; a key that isn't there is no error.
    Delete {
        /// The tree.
        ident: Ident,
        /// Where in the tree.
        key: Key,
    },
    /// Makes a new, empty tree. Its number must be free.
    Create(Ident),
    /// Removes a tree with all it holds, in constant time; the number is free again.
    Drop(Ident),
    /// Empties a tree in constant time.
    Clear(Ident),
    /// Makes `to` a copy-on-write twin of `from`, in constant time where the engine can. The number `to`
    /// must be free; afterwards the two change independently.
    Fork {
        /// The tree to copy.
        from: Ident,
        /// The number of the twin.
        to: Ident,
    },
}

/// Changes that take effect together or not at all, in the order in which they were added: a later one sees
/// the earlier ones, so a tree can be created and filled by the same batch.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    ops: Vec<Op>,
    /// Which of the changes put keys that are known not to be there, in order.
    new: SmallVec<[u32; 4]>,
    time: u64,
}

impl PartialEq for Batch {
    /// What the caller knew of the keys is no part of what the batch does.
    fn eq(&self, other: &Self) -> bool {
        self.ops == other.ops && self.time == other.time
    }
}

impl Eq for Batch {}

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Batch::default()
    }

    /// An empty batch with room for `ops` changes.
    pub fn with_capacity(ops: usize) -> Self {
        Batch { ops: Vec::with_capacity(ops), ..Batch::default() }
    }

    /// Makes room for so many more changes.
    pub fn reserve(&mut self, ops: usize) {
        self.ops.reserve(ops);
        self.new.reserve(ops);
    }

    /// Adds [`Op::Put`].
    pub fn put(&mut self, ident: Ident, key: impl Into<Key>, value: impl Into<Value>) {
        self.ops.push(Op::Put { ident, key: key.into(), value: value.into() });
    }

    /// Adds [`Op::Put`] of a key that isn't in the tree before the batch, as the caller knows without looking: because a
    /// number is in it that was never given before, say. An engine then needn't look either, which spares it a page from the disk for
    /// each entry of a large index on random values. Where the key is there after all, counts are wrong from then on, and
    /// what was there may come back: [`crate::testing::Checked`] and debug builds look.
    pub fn put_new(&mut self, ident: Ident, key: impl Into<Key>, value: impl Into<Value>) {
        self.new.push(self.ops.len() as u32);
        self.put(ident, key, value);
    }

    /// The changes, in order, and whether each puts a key that is known not to be there.
    pub fn with_new(&self) -> impl Iterator<Item = (&Op, bool)> {
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

    /// Adds all changes of another batch behind these. The greater of the two times is kept.
    pub fn append(&mut self, mut other: Batch) {
        self.new.extend(other.new.iter().map(|at| at + self.ops.len() as u32));
        self.ops.append(&mut other.ops);
        self.time = self.time.max(other.time);
    }

    /// Says at which cluster time the changes are made. An engine gives the number no other meaning than that
    /// it remembers the greatest, see [`crate::Engine::latest_time`]; 0 stands for no time.
    pub fn set_time(&mut self, time: u64) {
        self.time = time;
    }

    /// The cluster time of the changes, 0 if they have none.
    pub fn time(&self) -> u64 {
        self.time
    }

    /// The changes, in order.
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// How many changes there are.
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Whether there is nothing to do.
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
