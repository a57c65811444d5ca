//! The nodes of the persistent B+tree: how one node splits, merges and finds its way.
//!
//! Nodes are reference-counted. Whoever changes a node holds the tree exclusively, and `Arc::make_mut` then
//! either changes it in place, if no clone of the tree shares it, or copies this one node first. A full leaf
//! splits where the new key falls: keys arriving in order, ascending or descending, leave full leaves
//! behind; others split in the middle.
//!
//! The persistent B+tree: an ordered map from bytes whose clones cost nothing and never change.
//!
//! A clone shares every node with the original. A change copies the nodes on the way to it that a clone
//! still shares, which are a handful, and works in place on all others, so that a tree nobody has cloned is
//! as fast as one that cannot be cloned. `docs/storage-memory.md` has the measurements this rests on.

use super::cursor::TreeCursor;
use super::keys::{Keys, clone_with_room, separator};
use crate::{Direction, Key, Range};
use std::mem;
use std::sync::Arc;

/// Entries of a full leaf. More make scans faster and the tree smaller, fewer make it cheaper to copy a leaf
/// that a snapshot shares. Tests use small nodes, so that small trees have all the levels and merges of big
/// ones.
pub(super) const LEAF_MAX: usize = if cfg!(test) { 8 } else { 64 };
/// Children of a full inner node. Fewer than entries: a copy touches one leaf but several inner nodes, and
/// their number hardly depends on it.
const INNER_MAX: usize = if cfg!(test) { 8 } else { 24 };
/// A node whose keys have grown to this many bytes counts as full whatever their number, which bounds what
/// one insertion moves.
const BYTES_MAX: usize = 4096;
/// Spare room in a copied node.
const ROOM: usize = 8;

/// A subtree.
pub(super) enum Node<V> {
    Leaf(Arc<Leaf<V>>),
    Inner(Arc<Inner<V>>),
}

/// Entries: keys and, at the same places, their values.
pub(super) struct Leaf<V> {
    pub(super) keys: Keys<LEAF_MAX>,
    values: Vec<V>,
}

/// Children, with a key between each two: at most every key right of it, and above every key left of it.
pub(super) struct Inner<V> {
    keys: Keys<INNER_MAX>,
    pub(super) children: Vec<Node<V>>,
}

/// What a node that had to split gives its parent: everything from `key` on.
pub(super) struct Split<V> {
    key: Key,
    right: Node<V>,
}

/// The outcome of an insertion: the value replaced, and the right part of a node that split.
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
        Leaf { keys: self.keys.clone_with_room(ROOM), values: clone_with_room(&self.values, ROOM) }
    }
}

impl<V> Clone for Inner<V> {
    fn clone(&self) -> Self {
        Inner { keys: self.keys.clone_with_room(ROOM), children: clone_with_room(&self.children, ROOM) }
    }
}

impl<V> Node<V> {
    /// Whether a clone of the tree holds this node too.
    pub(super) fn is_shared(&self) -> bool {
        match self {
            Node::Leaf(leaf) => Arc::strong_count(leaf) > 1,
            Node::Inner(inner) => Arc::strong_count(inner) > 1,
        }
    }

    /// Entries of a leaf, children of an inner node.
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
    /// A leaf with one entry.
    pub(super) fn single(key: &[u8], value: V) -> Self {
        let mut keys = Keys::default();
        keys.insert(0, key);
        Node::Leaf(Arc::new(Leaf { keys, values: vec![value] }))
    }

    /// Puts a new root above a root that split.
    pub(super) fn grow(&mut self, split: Split<V>) {
        let root = Inner { keys: Keys::default(), children: Vec::with_capacity(2) };
        let left = mem::replace(self, Node::Inner(Arc::new(root)));
        if let Node::Inner(root) = self {
            let root = Arc::make_mut(root);
            root.children.push(left);
            root.adopt(0, split);
        }
    }

    pub(super) fn insert(&mut self, key: &[u8], value: V) -> Inserted<V> {
        match self {
            Node::Leaf(leaf) => Arc::make_mut(leaf).insert(key, value),
            Node::Inner(inner) => {
                let inner = Arc::make_mut(inner);
                let at = inner.child_at(key);
                let (old, split) = inner.children[at].insert(key, value);
                (old, split.and_then(|split| inner.adopt(at, split)))
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
                inner.tidy(at);
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

    /// The root without levels that have only one child, or nothing if it has become empty.
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
                self.place(at, key, value);
                (None, None)
            }
        }
    }

    fn is_full(&self) -> bool {
        self.len() >= LEAF_MAX || (self.keys.bytes() >= BYTES_MAX && self.len() >= 2)
    }

    fn place(&mut self, at: usize, key: &[u8], value: V) {
        self.keys.insert(at, key);
        self.values.insert(at, value);
    }

    /// Splits, with a new entry to be placed at `at`.
    fn split(&mut self, at: usize, key: &[u8], value: V) -> Split<V> {
        let len = self.len();
        let cut = if at == 0 || at == len { at } else { len / 2 };
        let mut right = Leaf { keys: self.keys.split_off(cut), values: self.values.split_off(cut) };
        if at < cut || cut == 0 {
            self.place(at, key, value);
        } else {
            right.place(at - cut, key, value);
        }
        if cut == len {
            // Keys come in ascending order: the next ones will fill the new leaf.
            self.keys.hand_over_room(&mut right.keys);
            right.values.reserve(LEAF_MAX - 1);
        }
        let between = separator(self.keys.last().unwrap_or_default(), right.keys.first().unwrap_or_default());
        Split { key: Key::from(between), right: Node::Leaf(Arc::new(right)) }
    }

    fn remove(&mut self, key: &[u8]) -> Option<V> {
        let at = self.keys.search(key).ok()?;
        self.keys.remove(at);
        Some(self.values.remove(at))
    }

    fn append(&mut self, right: Arc<Leaf<V>>) {
        self.keys.append(&right.keys);
        match Arc::try_unwrap(right) {
            Ok(mut right) => self.values.append(&mut right.values),
            Err(shared) => self.values.extend_from_slice(&shared.values),
        }
    }
}

impl<V> Inner<V> {
    /// Which child a key belongs to.
    #[inline]
    pub(super) fn child_at(&self, key: &[u8]) -> usize {
        match self.keys.search(key) {
            Ok(at) => at + 1,
            Err(at) => at,
        }
    }
}

impl<V: Clone> Inner<V> {
    /// Takes in the right part of the child at `at`, and may have to split for it.
    fn adopt(&mut self, at: usize, split: Split<V>) -> Option<Split<V>> {
        self.keys.insert(at, &split.key);
        self.children.insert(at + 1, split.right);
        let len = self.children.len();
        let full = len > INNER_MAX || (self.keys.bytes() > BYTES_MAX && len > 3);
        full.then(|| {
            self.split(match at {
                0 => 1,
                _ if at + 2 == len => len - 1,
                _ => len / 2,
            })
        })
    }

    fn split(&mut self, cut: usize) -> Split<V> {
        let children = self.children.split_off(cut);
        let keys = self.keys.split_off(cut);
        let key = Key::from(self.keys.get(cut - 1));
        self.keys.remove(cut - 1);
        Split { key, right: Node::Inner(Arc::new(Inner { keys, children })) }
    }

    /// After a removal below the child at `at`: drops the child if nothing is left of it, and joins it with
    /// a neighbour if both together are small.
    fn tidy(&mut self, at: usize) {
        let child = &self.children[at];
        let (width, most) = (child.width(), child.width_max());
        if width == 0 {
            self.children.remove(at);
            if self.keys.len() > 0 {
                self.keys.remove(at.saturating_sub(1));
            }
        } else if width < most / 4 {
            for left in [Some(at), at.checked_sub(1)].into_iter().flatten() {
                if self.can_join(left) {
                    return self.join(left);
                }
            }
        }
    }

    fn can_join(&self, left: usize) -> bool {
        let (Some(a), Some(b)) = (self.children.get(left), self.children.get(left + 1)) else { return false };
        a.width() + b.width() <= a.width_max() / 4 * 3 && a.key_bytes() + b.key_bytes() <= BYTES_MAX / 4 * 3
    }

    /// Moves the content of the child behind `left` into the one at `left`.
    fn join(&mut self, left: usize) {
        let key = Key::from(self.keys.get(left));
        self.keys.remove(left);
        let right = self.children.remove(left + 1);
        match (&mut self.children[left], right) {
            (Node::Leaf(left), Node::Leaf(right)) => Arc::make_mut(left).append(right),
            (Node::Inner(left), Node::Inner(right)) => Arc::make_mut(left).append(&key, right),
            _ => unreachable!("all leaves of a tree are on one level"),
        }
    }

    fn append(&mut self, between: &[u8], right: Arc<Inner<V>>) {
        self.keys.insert(self.keys.len(), between);
        self.keys.append(&right.keys);
        match Arc::try_unwrap(right) {
            Ok(mut right) => self.children.append(&mut right.children),
            Err(shared) => self.children.extend_from_slice(&shared.children),
        }
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

    /// Asserts what holds for every subtree, and returns its entries and levels.
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
