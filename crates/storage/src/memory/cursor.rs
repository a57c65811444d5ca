//! A cursor over a persistent tree that lends its entries.
//!
//! The cursor holds the root, its leaf and the leaf's parent. A step within a leaf increments an
//! array index. The bound is compared once for each leaf, not for each entry. The next leaf comes
//! from the parent or, once in 64 leaves, from a new descent. The cursor therefore needs no stack
//! of nodes.

use std::ops::Bound;
use std::sync::Arc;

use super::node::{Inner, Leaf, Node};
use crate::{Cursor, Direction, Key, Range, Result, Value, ValueRef};

/// A cursor over a [`Tree`](super::Tree), see [`Cursor`] for its behaviour.
pub struct TreeCursor<V> {
    root: Option<Node<V>>,
    direction: Direction,
    /// End of the scan: the upper bound of a forward scan, the lower bound of a backward scan.
    end: Bound<Key>,
    position: LeafPosition<V>,
    /// Index of the next entry in the leaf; plus one in a backward scan.
    at: usize,
    /// Value of `at` at the end of the leaf's part of the scan.
    limit: usize,
    /// True if the scan ends in this leaf.
    last: bool,
}

/// A leaf and its position in its parent. A leaf that is the root has no parent.
struct LeafPosition<V> {
    leaf: Option<Arc<Leaf<V>>>,
    parent: Option<Arc<Inner<V>>>,
    child: usize,
}

/// Side of a key: `Before` separates smaller keys from the key and greater keys, `After` separates
/// the key and smaller keys from greater keys.
#[derive(Clone, Copy)]
enum Side {
    Before,
    After,
}

impl<V> TreeCursor<V> {
    pub(super) fn new(root: Option<Node<V>>, range: Range, direction: Direction) -> Self {
        let (start, end) = match direction {
            Direction::Forward => (range.lower, range.upper),
            Direction::Backward => (range.upper, range.lower),
        };
        let position = LeafPosition { leaf: None, parent: None, child: 0 };
        let mut cursor = TreeCursor { root, direction, end, position, at: 0, limit: 0, last: true };
        match (&start, direction) {
            (Bound::Unbounded, _) => cursor.start_at_edge(),
            (Bound::Included(key), Direction::Forward) => cursor.start_at(key, Side::Before),
            (Bound::Excluded(key), Direction::Forward) => cursor.start_at(key, Side::After),
            (Bound::Included(key), Direction::Backward) => cursor.start_at(key, Side::After),
            (Bound::Excluded(key), Direction::Backward) => cursor.start_at(key, Side::Before),
        }
        cursor
    }

    /// Returns the next entry, or `None` at the end and in all later calls.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "it lends, which an Iterator cannot")]
    pub fn next(&mut self) -> Option<(&[u8], &V)> {
        if self.at == self.limit && !self.next_leaf() {
            return None;
        }
        debug_assert!(self.is_within(), "entry {} behind the limit {}", self.at, self.limit);
        let at = match self.direction {
            Direction::Forward => self.at,
            Direction::Backward => self.at - 1,
        };
        self.at = match self.direction {
            Direction::Forward => self.at + 1,
            Direction::Backward => at,
        };
        self.position.leaf.as_ref()?.entry(at)
    }

    /// Returns true if the next entry is before the end of the leaf's part, and that is in the leaf.
    fn is_within(&self) -> bool {
        let len = self.position.leaf.as_ref().map_or(0, |leaf| leaf.len());
        match self.direction {
            Direction::Forward => self.at <= self.limit && self.limit <= len,
            Direction::Backward => self.limit <= self.at && self.at <= len,
        }
    }

    /// Skips, in the direction of the scan, to a key or the first entry after it.
    pub fn seek(&mut self, key: &[u8]) {
        let Some(leaf) = &self.position.leaf else { return };
        let (beyond, side) = match self.direction {
            Direction::Forward => (leaf.keys.last() < Some(key), Side::Before),
            Direction::Backward => (leaf.keys.first() > Some(key), Side::After),
        };
        if !beyond {
            self.move_to(index(leaf, key, side));
        } else if self.last {
            self.at = self.limit;
        } else {
            self.start_at(key, side);
        }
    }

    fn start_at_edge(&mut self) {
        if let Some(root) = &self.root {
            self.position = LeafPosition::edge(None, 0, root, self.direction);
            self.enter();
        }
    }

    fn start_at(&mut self, key: &[u8], side: Side) {
        let Some(root) = &self.root else { return };
        self.position = LeafPosition::of(root, key);
        self.enter();
        if let Some(leaf) = &self.position.leaf {
            let at = index(leaf, key, side);
            self.move_to(at);
        }
    }

    /// Moves within the leaf, never back and never beyond the limit.
    fn move_to(&mut self, at: usize) {
        self.at = match self.direction {
            Direction::Forward => at.max(self.at).min(self.limit),
            Direction::Backward => at.min(self.at).max(self.limit),
        };
        debug_assert!(self.is_within(), "entry {} behind the limit {}", self.at, self.limit);
    }

    /// Moves to the near edge of the leaf and computes the end of the scan in it.
    fn enter(&mut self) {
        let Some(leaf) = &self.position.leaf else { return };
        let (near, far) = match self.direction {
            Direction::Forward => (0, leaf.len()),
            Direction::Backward => (leaf.len(), 0),
        };
        self.at = near;
        self.limit = match (&self.end, self.direction) {
            (Bound::Unbounded, _) => far,
            (Bound::Included(key), Direction::Forward) => index(leaf, key, Side::After),
            (Bound::Excluded(key), Direction::Forward) => index(leaf, key, Side::Before),
            (Bound::Included(key), Direction::Backward) => index(leaf, key, Side::Before),
            (Bound::Excluded(key), Direction::Backward) => index(leaf, key, Side::After),
        };
        self.last = self.limit != far;
    }

    /// Moves to the neighbouring leaf. Returns false at the end of the scan.
    #[cold]
    fn next_leaf(&mut self) -> bool {
        let next = match self.last {
            true => None,
            false => self.position.neighbour(self.root.as_ref(), self.direction),
        };
        let Some(next) = next else {
            self.last = true;
            return false;
        };
        debug_assert!(self.position.is_before(&next, self.direction), "the next leaf has keys of the last");
        self.position = next;
        self.enter();
        self.at != self.limit
    }
}

impl<V> LeafPosition<V> {
    /// Returns true if a scan passes all keys of this leaf before all keys of another leaf.
    fn is_before(&self, other: &LeafPosition<V>, direction: Direction) -> bool {
        let (Some(leaf), Some(other)) = (&self.leaf, &other.leaf) else { return false };
        match direction {
            Direction::Forward => leaf.len() > 0 && leaf.keys.last() < other.keys.first(),
            Direction::Backward => other.len() > 0 && leaf.keys.first() > other.keys.last(),
        }
    }

    /// Returns the leaf of a key, which may be missing.
    fn of(root: &Node<V>, key: &[u8]) -> Self {
        LeafPosition::below(None, 0, root, |inner| inner.child_at(key))
    }

    /// Returns the first leaf, in the given direction, of the subtree at position `child` of its
    /// parent.
    fn edge(parent: Option<&Arc<Inner<V>>>, child: usize, node: &Node<V>, direction: Direction) -> Self {
        LeafPosition::below(parent, child, node, |inner| match direction {
            Direction::Forward => 0,
            Direction::Backward => inner.children.len() - 1,
        })
    }

    /// Descends from the node at position `child` of its parent, through the children that `choose` returns, to a
    /// leaf.
    #[inline]
    fn below<'n>(
        mut parent: Option<&'n Arc<Inner<V>>>,
        mut child: usize,
        mut node: &'n Node<V>,
        choose: impl Fn(&Inner<V>) -> usize,
    ) -> Self {
        loop {
            match node {
                Node::Leaf(leaf) => {
                    let (leaf, parent) = (Some(Arc::clone(leaf)), parent.map(Arc::clone));
                    return LeafPosition { leaf, parent, child };
                }
                Node::Inner(inner) => {
                    child = choose(inner);
                    parent = Some(inner);
                    node = &inner.children[child];
                }
            }
        }
    }

    fn neighbour(&self, root: Option<&Node<V>>, direction: Direction) -> Option<Self> {
        let parent = self.parent.as_ref()?;
        if let Some(child) = step(self.child, direction)
            && let Some(node) = parent.children.get(child)
        {
            return Some(LeafPosition::edge(Some(parent), child, node, direction));
        }
        self.distant_neighbour(root?, direction)
    }

    /// Returns the neighbouring leaf under another parent. Descends to this leaf again, and
    /// branches off at the last node with a further child.
    fn distant_neighbour(&self, root: &Node<V>, direction: Direction) -> Option<Self> {
        let key = self.leaf.as_ref()?.keys.first()?;
        debug_assert!(matches!(root, Node::Inner(_)), "a leaf without a root has a parent");
        let (mut node, mut turn) = (root, None);
        while let Node::Inner(inner) = node {
            let child = inner.child_at(key);
            if let Some(next) = step(child, direction)
                && let Some(subtree) = inner.children.get(next)
            {
                turn = Some((inner, next, subtree));
            }
            node = &inner.children[child];
        }
        let (inner, next, subtree) = turn?;
        Some(LeafPosition::edge(Some(inner), next, subtree, direction))
    }
}

fn step(child: usize, direction: Direction) -> Option<usize> {
    match direction {
        Direction::Forward => Some(child + 1),
        Direction::Backward => child.checked_sub(1),
    }
}

/// Returns the number of a leaf's entries before the given side of a key.
fn index<V>(leaf: &Leaf<V>, key: &[u8], side: Side) -> usize {
    match (leaf.keys.search(key), side) {
        (Ok(at), Side::After) => at + 1,
        (Ok(at), Side::Before) | (Err(at), _) => at,
    }
}

/// A cursor over changes, one entry ahead, for merging with the entries below.
pub(crate) struct LookaheadCursor<V> {
    cursor: TreeCursor<V>,
    head: Option<(Key, V)>,
}

impl<V: Clone> LookaheadCursor<V> {
    pub(crate) fn new(cursor: TreeCursor<V>) -> LookaheadCursor<V> {
        LookaheadCursor { cursor, head: None }
    }

    /// Returns true if a next entry exists. It is then the head.
    pub(crate) fn look_ahead(&mut self) -> bool {
        if self.head.is_none() {
            self.head = self.cursor.next().map(|(key, value)| (Key::from(key), value.clone()));
        }
        self.head.is_some()
    }

    /// Returns the key of the head.
    pub(crate) fn key(&self) -> Option<&[u8]> {
        self.head.as_ref().map(|(key, _)| &**key)
    }

    /// Takes the head.
    pub(crate) fn take(&mut self) -> Option<(Key, V)> {
        debug_assert!(self.head.is_some(), "an entry is taken without a look ahead");
        self.head.take()
    }

    /// Skips to a key or the first entry after it.
    pub(crate) fn seek(&mut self, key: &[u8]) {
        let direction = self.cursor.direction;
        if self.key().is_none_or(|head| direction.is_before(head, key)) {
            self.head = None;
            self.cursor.seek(key);
        }
    }
}

impl Cursor for TreeCursor<Value> {
    #[inline]
    fn next(&mut self) -> Result<Option<(&[u8], ValueRef<'_>)>> {
        Ok(TreeCursor::next(self).map(|(key, value)| (key, ValueRef::Value(value))))
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        TreeCursor::seek(self, key);
        Ok(())
    }
}
