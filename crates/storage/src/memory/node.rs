//! The persistent B+tree of the memory engine and of the disk engine's changes: search, split and merge of nodes.
//! `keys.rs` stores the keys of a node, `cursor.rs` scans, and `table.rs` adds the counts of an engine's tree.
//!
//! Nodes are reference-counted. A writer holds the tree exclusively. `Arc::make_mut` changes a node
//! in place if no clone of the tree shares it, and copies the node otherwise. A full leaf splits at
//! the position of the new key. Keys in ascending or descending order therefore leave full leaves
//! behind. Other leaves split in the middle.
//!
//! The persistent B+tree is an ordered map of byte strings. Its clones cost nothing and never
//! change.
//!
//! A clone shares every node with the original. A change copies the few shared nodes on its path
//! and changes all other nodes in place. A tree without clones is therefore as fast as a tree
//! without cloning. `docs/storage-memory.md` has the measurements.

use super::cursor::TreeCursor;
use super::keys::{Keys, clone_with_spare, separator};
use crate::{Direction, Key, Range};
use std::mem;
use std::sync::Arc;

/// Most entries of a leaf. More entries make scans faster and the tree smaller. Fewer entries make
/// copies of shared leaves cheaper. Tests use small nodes, so that small trees have the levels and
/// merges of large trees.
pub(super) const LEAF_MAX: usize = if cfg!(test) { 8 } else { 64 };
/// Most children of an inner node. Smaller than `LEAF_MAX`: a copy copies one leaf but several
/// inner nodes, and their number hardly depends on this limit.
const INNER_MAX: usize = if cfg!(test) { 8 } else { 24 };
/// A node with this many bytes of keys counts as full. This limits the bytes moved by one insert.
const KEY_BYTES_MAX: usize = 4096;
/// Spare capacity of a copied node, in entries.
const SPARE_CAPACITY: usize = 8;

/// A subtree.
pub(super) enum Node<V> {
    Leaf(Arc<Leaf<V>>),
    Inner(Arc<Inner<V>>),
}

/// Entries: keys and, at equal positions, their values.
pub(super) struct Leaf<V> {
    pub(super) keys: Keys<LEAF_MAX>,
    values: Vec<V>,
}

/// Children, separated by keys. A separator is at most every key to its right, and greater than
/// every key to its left.
pub(super) struct Inner<V> {
    keys: Keys<INNER_MAX>,
    pub(super) children: Vec<Node<V>>,
}

/// Right part of a split node, for its parent: everything from `key` on.
pub(super) struct Split<V> {
    key: Key,
    right: Node<V>,
}

/// Result of an insert: the replaced value, and the right part of a split node.
pub(super) type Inserted<V> = (Option<V>, Option<Split<V>>);

impl<V> Clone for Node<V> {
    fn clone(&self) -> Self {
        match self {
            Node::Leaf(leaf) => Node::Leaf(Arc::clone(leaf)),
            Node::Inner(inner) => Node::Inner(Arc::clone(inner)),
        }
    }
}

impl<V: Clone> Clone for Leaf<V> {
    fn clone(&self) -> Self {
        Leaf {
            keys: self.keys.clone_with_spare(SPARE_CAPACITY),
            values: clone_with_spare(&self.values, SPARE_CAPACITY),
        }
    }
}

impl<V> Clone for Inner<V> {
    fn clone(&self) -> Self {
        Inner {
            keys: self.keys.clone_with_spare(SPARE_CAPACITY),
            children: clone_with_spare(&self.children, SPARE_CAPACITY),
        }
    }
}

impl<V> Node<V> {
    /// Returns true if a clone of the tree also holds this node.
    pub(super) fn is_shared(&self) -> bool {
        match self {
            Node::Leaf(leaf) => Arc::strong_count(leaf) > 1,
            Node::Inner(inner) => Arc::strong_count(inner) > 1,
        }
    }

    /// Returns the number of entries of a leaf, or of children of an inner node.
    fn width(&self) -> usize {
        match self {
            Node::Leaf(leaf) => leaf.len(),
            Node::Inner(inner) => inner.children.len(),
        }
    }

    fn width_max(&self) -> usize {
        match self {
            Node::Leaf(_) => LEAF_MAX,
            Node::Inner(_) => INNER_MAX,
        }
    }

    fn key_bytes(&self) -> usize {
        match self {
            Node::Leaf(leaf) => leaf.keys.bytes(),
            Node::Inner(inner) => inner.keys.bytes(),
        }
    }
}

impl<V: Clone> Node<V> {
    /// Returns a leaf with one entry.
    pub(super) fn single(key: &[u8], value: V) -> Self {
        let mut keys = Keys::default();
        keys.insert(0, key);
        Node::Leaf(Arc::new(Leaf { keys, values: vec![value] }))
    }

    /// Adds a new root above a split root.
    pub(super) fn grow(&mut self, split: Split<V>) {
        let root = Inner { keys: Keys::default(), children: Vec::with_capacity(2) };
        let left = mem::replace(self, Node::Inner(Arc::new(root)));
        if let Node::Inner(root) = self {
            let root = Arc::make_mut(root);
            root.children.push(left);
            root.insert_split(0, split);
        }
    }

    pub(super) fn insert(&mut self, key: &[u8], value: V) -> Inserted<V> {
        match self {
            Node::Leaf(leaf) => Arc::make_mut(leaf).insert(key, value),
            Node::Inner(inner) => {
                let inner = Arc::make_mut(inner);
                let at = inner.child_at(key);
                let (old, split) = inner.children[at].insert(key, value);
                (old, split.and_then(|split| inner.insert_split(at, split)))
            }
        }
    }

    pub(super) fn remove(&mut self, key: &[u8]) -> Option<V> {
        match self {
            Node::Leaf(leaf) => Arc::make_mut(leaf).remove(key),
            Node::Inner(inner) => {
                let inner = Arc::make_mut(inner);
                let at = inner.child_at(key);
                let removed = inner.children[at].remove(key)?;
                inner.rebalance(at);
                Some(removed)
            }
        }
    }

    pub(super) fn get_mut(&mut self, key: &[u8]) -> Option<&mut V> {
        match self {
            Node::Leaf(leaf) => {
                let leaf = Arc::make_mut(leaf);
                let at = leaf.keys.search(key).ok()?;
                leaf.values.get_mut(at)
            }
            Node::Inner(inner) => {
                let inner = Arc::make_mut(inner);
                let at = inner.child_at(key);
                inner.children[at].get_mut(key)
            }
        }
    }

    /// Returns the root without levels of a single child; `None` if it is empty.
    pub(super) fn collapsed(self) -> Option<Self> {
        let mut root = self;
        while let Node::Inner(inner) = &root {
            match inner.children.as_slice() {
                [only] => root = only.clone(),
                _ => break,
            }
        }
        (root.width() > 0).then_some(root)
    }
}

impl<V> Leaf<V> {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    #[inline]
    pub(super) fn entry(&self, at: usize) -> Option<(&[u8], &V)> {
        let value = self.values.get(at)?;
        Some((self.keys.get(at), value))
    }

    #[inline]
    pub(super) fn get(&self, key: &[u8]) -> Option<&V> {
        self.values.get(self.keys.search(key).ok()?)
    }
}

impl<V: Clone> Leaf<V> {
    fn insert(&mut self, key: &[u8], value: V) -> Inserted<V> {
        match self.keys.search(key) {
            Ok(at) => (Some(mem::replace(&mut self.values[at], value)), None),
            Err(at) if self.is_full() => (None, Some(self.split(at, key, value))),
            Err(at) => {
                self.insert_at(at, key, value);
                (None, None)
            }
        }
    }

    fn is_full(&self) -> bool {
        self.len() >= LEAF_MAX || (self.keys.bytes() >= KEY_BYTES_MAX && self.len() >= 2)
    }

    fn insert_at(&mut self, at: usize, key: &[u8], value: V) {
        self.keys.insert(at, key);
        self.values.insert(at, value);
        debug_assert_eq!(self.keys.len(), self.values.len(), "one value for each key");
    }

    /// Splits the leaf for a new entry at `at`.
    fn split(&mut self, at: usize, key: &[u8], value: V) -> Split<V> {
        let len = self.len();
        let cut = if at == 0 || at == len { at } else { len / 2 };
        let mut right = Leaf { keys: self.keys.split_off(cut), values: self.values.split_off(cut) };
        if at < cut || cut == 0 {
            self.insert_at(at, key, value);
        } else {
            right.insert_at(at - cut, key, value);
        }
        if cut == len {
            // Keys are inserted in ascending order: the next ones fill the new leaf.
            self.keys.transfer_capacity(&mut right.keys);
            right.values.reserve(LEAF_MAX - 1);
        }
        debug_assert!(self.len() > 0 && right.len() > 0, "a split leaves an empty leaf");
        debug_assert_eq!(self.len() + right.len(), len + 1, "a split loses an entry");
        let between = separator(self.keys.last().unwrap_or_default(), right.keys.first().unwrap_or_default());
        Split { key: Key::from(between), right: Node::Leaf(Arc::new(right)) }
    }

    fn remove(&mut self, key: &[u8]) -> Option<V> {
        let at = self.keys.search(key).ok()?;
        debug_assert_eq!(self.keys.len(), self.values.len(), "one value for each key");
        self.keys.remove(at);
        Some(self.values.remove(at))
    }

    fn append(&mut self, right: Arc<Leaf<V>>) {
        self.keys.append(&right.keys);
        match Arc::try_unwrap(right) {
            Ok(mut right) => self.values.append(&mut right.values),
            Err(shared) => self.values.extend_from_slice(&shared.values),
        }
        debug_assert_eq!(self.keys.len(), self.values.len(), "one value for each key");
    }
}

impl<V> Inner<V> {
    /// Asserts the number of separators and children, and that all children have one height.
    fn assert_valid(&self) {
        debug_assert_eq!(self.keys.len() + 1, self.children.len(), "a key between each two children");
        debug_assert!(self.children.len() <= INNER_MAX, "{} children", self.children.len());
        let is_leaf = |child: &Node<V>| matches!(child, Node::Leaf(_));
        debug_assert!(
            self.children.first().map(is_leaf) == self.children.last().map(is_leaf),
            "leaves and inner nodes are on one level"
        );
    }

    /// Returns the position of the child for a key.
    #[inline]
    pub(super) fn child_at(&self, key: &[u8]) -> usize {
        match self.keys.search(key) {
            Ok(at) => at + 1,
            Err(at) => at,
        }
    }
}

impl<V: Clone> Inner<V> {
    /// Inserts the right part of the split child at `at`. May split this node.
    fn insert_split(&mut self, at: usize, split: Split<V>) -> Option<Split<V>> {
        self.keys.insert(at, &split.key);
        self.children.insert(at + 1, split.right);
        debug_assert_eq!(self.keys.len() + 1, self.children.len(), "a key between each two children");
        let len = self.children.len();
        let full = len > INNER_MAX || (self.keys.bytes() > KEY_BYTES_MAX && len > 3);
        full.then(|| {
            self.split(match at {
                0 => 1,
                _ if at + 2 == len => len - 1,
                _ => len / 2,
            })
        })
    }

    fn split(&mut self, cut: usize) -> Split<V> {
        debug_assert!(cut > 0 && cut < self.children.len(), "a split leaves an empty node");
        let children = self.children.split_off(cut);
        let keys = self.keys.split_off(cut);
        let key = Key::from(self.keys.get(cut - 1));
        self.keys.remove(cut - 1);
        let right = Inner { keys, children };
        debug_assert!(self.keys.last().is_none_or(|left| left < &*key), "the left node has the separator");
        debug_assert!(
            right.keys.first().is_none_or(|right| &*key < right),
            "the right node has the separator"
        );
        self.assert_valid();
        right.assert_valid();
        Split { key, right: Node::Inner(Arc::new(right)) }
    }

    /// Cleans up after a removal below the child at `at`. Removes an empty child, and merges a
    /// small child with a neighbour.
    fn rebalance(&mut self, at: usize) {
        let child = &self.children[at];
        let (width, most) = (child.width(), child.width_max());
        if width == 0 {
            self.children.remove(at);
            if self.keys.len() > 0 {
                self.keys.remove(at.saturating_sub(1));
            }
            debug_assert_eq!(self.keys.len(), self.children.len().saturating_sub(1), "a separator too many");
        } else if width < most / 4 {
            for left in [Some(at), at.checked_sub(1)].into_iter().flatten() {
                if self.can_merge(left) {
                    return self.merge(left);
                }
            }
        }
    }

    fn can_merge(&self, left: usize) -> bool {
        let (Some(a), Some(b)) = (self.children.get(left), self.children.get(left + 1)) else { return false };
        a.width() + b.width() <= a.width_max() / 4 * 3
            && a.key_bytes() + b.key_bytes() <= KEY_BYTES_MAX / 4 * 3
    }

    /// Merges the child after `left` into the child at `left`.
    fn merge(&mut self, left: usize) {
        let key = Key::from(self.keys.get(left));
        self.keys.remove(left);
        let right = self.children.remove(left + 1);
        match (&mut self.children[left], right) {
            (Node::Leaf(left), Node::Leaf(right)) => Arc::make_mut(left).append(right),
            (Node::Inner(left), Node::Inner(right)) => Arc::make_mut(left).append(&key, right),
            _ => unreachable!("all leaves of a tree are on one level"),
        }
        self.assert_valid();
    }

    fn append(&mut self, between: &[u8], right: Arc<Inner<V>>) {
        self.keys.insert(self.keys.len(), between);
        self.keys.append(&right.keys);
        match Arc::try_unwrap(right) {
            Ok(mut right) => self.children.append(&mut right.children),
            Err(shared) => self.children.extend_from_slice(&shared.children),
        }
        self.assert_valid();
    }
}

#[cfg(test)]
impl<V> Node<V> {
    pub(super) fn leaves(&self) -> usize {
        match self {
            Node::Leaf(_) => 1,
            Node::Inner(inner) => inner.children.iter().map(Node::leaves).sum(),
        }
    }

    /// Asserts the invariants of a subtree. Returns its numbers of entries and levels.
    pub(super) fn check(&self, lower: Option<&[u8]>, upper: Option<&[u8]>) -> (usize, usize) {
        let inside = |key: &[u8]| lower.is_none_or(|l| l <= key) && upper.is_none_or(|u| key < u);
        match self {
            Node::Leaf(leaf) => {
                assert_eq!(leaf.keys.len(), leaf.values.len());
                assert!(leaf.len() > 0 && leaf.len() <= LEAF_MAX);
                let keys: Vec<&[u8]> = (0..leaf.len()).map(|at| leaf.keys.get(at)).collect();
                assert!(keys.is_sorted_by(|a, b| a < b) && keys.iter().all(|key| inside(key)));
                (leaf.len(), 1)
            }
            Node::Inner(inner) => {
                let width = inner.children.len();
                assert!(width > 0 && width <= INNER_MAX && inner.keys.len() == width - 1);
                let mut total = 0;
                let mut levels = None;
                for (at, child) in inner.children.iter().enumerate() {
                    let from = if at == 0 { lower } else { Some(inner.keys.get(at - 1)) };
                    let to = if at + 1 == width { upper } else { Some(inner.keys.get(at)) };
                    let (entries, depth) = child.check(from, to);
                    assert_eq!(*levels.get_or_insert(depth), depth);
                    total += entries;
                }
                (total, levels.unwrap_or(0) + 1)
            }
        }
    }
}

/// An ordered map from byte strings to values. Cloning takes constant time, and clones are
/// independent.
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
    /// Returns an empty tree without an allocation.
    pub fn new() -> Self {
        Tree::default()
    }

    /// Returns the number of entries, in constant time.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the tree is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns true if a clone holds the whole tree, so that dropping it frees nothing.
    pub(super) fn is_shared(&self) -> bool {
        self.root.as_ref().is_none_or(Node::is_shared)
    }

    /// Returns the root node.
    pub(super) fn root(&self) -> Option<&Node<V>> {
        self.root.as_ref()
    }

    /// Returns the value of a key.
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
    /// Stores a value. Returns the replaced value.
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
        debug_assert!(self.len > 0, "a tree with a root counts no entry");
        old
    }

    /// Removes a key. Returns its value.
    pub fn remove(&mut self, key: &[u8]) -> Option<V> {
        let removed = self.root.as_mut()?.remove(key)?;
        debug_assert!(self.len > 0, "the removed key was not counted");
        self.len -= 1;
        self.root = self.root.take().and_then(Node::collapsed);
        debug_assert_eq!(self.root.is_none(), self.len == 0, "{} entries", self.len);
        Some(removed)
    }

    /// Returns a mutable reference to the value of a key.
    pub fn get_mut(&mut self, key: &[u8]) -> Option<&mut V> {
        self.root.as_mut()?.get_mut(key)
    }

    /// Returns a cursor over a range of the present tree. The cursor holds a clone.
    pub fn cursor(&self, range: Range, direction: Direction) -> TreeCursor<V> {
        debug_assert_eq!(self.root.is_none(), self.len == 0, "{} entries", self.len);
        TreeCursor::new(self.root.clone(), range, direction)
    }
}

#[cfg(test)]
impl<V> Tree<V> {
    /// Asserts the invariants of the whole tree.
    pub(super) fn check(&self) {
        let counted = self.root.as_ref().map_or(0, |root| root.check(None, None).0);
        assert_eq!(counted, self.len);
    }

    /// Returns the number of leaves.
    pub(super) fn leaves(&self) -> usize {
        self.root.as_ref().map_or(0, Node::leaves)
    }
}
