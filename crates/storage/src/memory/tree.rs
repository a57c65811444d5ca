//! The persistent B+tree: an ordered map from bytes whose clones cost nothing and never change.
//!
//! A clone shares every node with the original. A change copies the nodes on the way to it that a clone
//! still shares, which are a handful, and works in place on all others, so that a tree nobody has cloned is
//! as fast as one that cannot be cloned. `docs/storage-memory.md` has the measurements this rests on.

use super::cursor::TreeCursor;
use super::node::Node;
use crate::{Direction, Range};

/// An ordered map from byte strings to values. Cloning takes constant time; clones are independent.
pub struct Tree<V> {
    root: Option<Node<V>>,
    len: usize,
}

impl<V> Default for Tree<V> {
    fn default() -> Self {
        Tree { root: None, len: 0 }
    }
}

impl<V> Clone for Tree<V> {
    fn clone(&self) -> Self {
        Tree { root: self.root.clone(), len: self.len }
    }
}

impl<V> Tree<V> {
    /// An empty tree, which allocates nothing.
    pub fn new() -> Self {
        Tree::default()
    }

    /// How many entries there are; takes constant time.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether dropping this tree frees nothing because a clone holds all of it.
    pub(super) fn is_shared(&self) -> bool {
        self.root.as_ref().is_none_or(Node::is_shared)
    }

    /// The topmost node.
    pub(super) fn root(&self) -> Option<&Node<V>> {
        self.root.as_ref()
    }

    /// The value under a key.
    #[inline]
    pub fn get(&self, key: &[u8]) -> Option<&V> {
        let mut node = self.root.as_ref()?;
        loop {
            match node {
                Node::Leaf(leaf) => return leaf.get(key),
                Node::Inner(inner) => node = &inner.children[inner.child_at(key)],
            }
        }
    }
}

impl<V: Clone> Tree<V> {
    /// Stores a value, and returns the one that it replaces.
    pub fn insert(&mut self, key: &[u8], value: V) -> Option<V> {
        let Some(root) = &mut self.root else {
            self.root = Some(Node::single(key, value));
            self.len = 1;
            return None;
        };
        let (old, split) = root.insert(key, value);
        if let Some(split) = split {
            root.grow(split);
        }
        self.len += usize::from(old.is_none());
        old
    }

    /// Removes a key, and returns its value.
    pub fn remove(&mut self, key: &[u8]) -> Option<V> {
        let removed = self.root.as_mut()?.remove(key)?;
        self.len -= 1;
        self.root = self.root.take().and_then(Node::collapsed);
        Some(removed)
    }

    /// The value under a key, to be changed in place.
    pub fn get_mut(&mut self, key: &[u8]) -> Option<&mut V> {
        self.root.as_mut()?.get_mut(key)
    }

    /// A cursor over a range of this tree as it is now; it holds a clone.
    pub fn cursor(&self, range: Range, direction: Direction) -> TreeCursor<V> {
        TreeCursor::new(self.root.clone(), range, direction)
    }
}

#[cfg(test)]
impl<V> Tree<V> {
    /// Asserts the shape of the whole tree.
    pub(super) fn check(&self) {
        let counted = self.root.as_ref().map_or(0, |root| root.check(None, None).0);
        assert_eq!(counted, self.len);
    }

    /// How many leaves there are.
    pub(super) fn leaves(&self) -> usize {
        self.root.as_ref().map_or(0, Node::leaves)
    }
}
