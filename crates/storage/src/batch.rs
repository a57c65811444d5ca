//! A batch: all the changes of one commit, in order.
//!
//! Nothing but a list. Whoever builds it knows what the keys mean; an engine applies all of it or nothing.

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
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    ops: Vec<Op>,
    time: u64,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Batch::default()
    }

    /// An empty batch with room for `ops` changes.
    pub fn with_capacity(ops: usize) -> Self {
        Batch { ops: Vec::with_capacity(ops), time: 0 }
    }

    /// Adds [`Op::Put`].
    pub fn put(&mut self, ident: Ident, key: impl Into<Key>, value: impl Into<Value>) {
        self.ops.push(Op::Put { ident, key: key.into(), value: value.into() });
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
