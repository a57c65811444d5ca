//! Differences of two persistent trees, found by their unshared nodes.
//!
//! Forks share all nodes that neither has changed since the fork. The scan reads both trees in
//! parallel and skips shared subtrees. Its time depends on the number of changes, not on the size
//! of the trees.

use super::node::{Leaf, Node, Tree};
use crate::engine::alike;
use crate::{Difference, Differences, Key, Result, Value};
use std::cmp::Ordering;
use std::sync::Arc;

/// Number of steps between two interrupt checks.
const ASK: u32 = 256;

/// A scan over the differences of two trees. It holds the nodes that it still has to visit.
pub(super) struct TreeDifferences {
    before: Side,
    after: Side,
    /// Number of nodes read.
    #[cfg(test)]
    pub(super) opened: usize,
}

/// The unread part of one tree.
struct Side {
    /// Subtrees with their heights (zero for a leaf), the next one last.
    rest: Vec<(usize, Node<Value>)>,
    /// Number of entries read in the next subtree, which is then a leaf.
    at: usize,
}

/// Next item of one side.
enum Next {
    End,
    /// A whole subtree of this height.
    Subtree(usize),
    /// The rest of a leaf.
    Rest,
}

impl TreeDifferences {
    pub(super) fn new(before: Option<&Tree<Value>>, after: Option<&Tree<Value>>) -> TreeDifferences {
        TreeDifferences {
            before: Side::new(before),
            after: Side::new(after),
            #[cfg(test)]
            opened: 0,
        }
    }

    /// Skips shared subtrees and opens other subtrees until both sides are at an entry or at their
    /// end. Returns true if this is already the case.
    fn is_ready(&mut self) -> bool {
        let (before, after) = (self.before.next(), self.after.next());
        let (open_before, open_after) = match (before, after) {
            (Next::Subtree(left), Next::Subtree(right)) => {
                if left == right && self.before.is_at_the_same(&self.after) {
                    self.before.pass();
                    self.after.pass();
                    return false;
                }
                // The higher subtree first: it may contain the shared part.
                (left > 0 && left >= right, right > 0 && right >= left)
            }
            (before, after) => (before.is_high(), after.is_high()),
        };
        #[cfg(test)]
        {
            self.opened += usize::from(open_before) + usize::from(open_after);
        }
        if open_before {
            self.before.open();
        }
        if open_after {
            self.after.open();
        }
        !open_before && !open_after
    }
}

impl Differences for TreeDifferences {
    fn next(&mut self, should_continue: &mut dyn FnMut() -> bool) -> Result<Option<Difference>> {
        let mut steps = 0u32;
        loop {
            steps += 1;
            if steps.is_multiple_of(ASK) && !should_continue() {
                return Ok(None);
            }
            if !self.is_ready() {
                continue;
            }
            let order = match (self.before.entry(), self.after.entry()) {
                (None, None) => return Ok(None),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((before, _)), Some((after, _))) => before.cmp(after),
            };
            let before = self.before.entry().filter(|_| order.is_le());
            let after = self.after.entry().filter(|_| order.is_ge());
            let difference = match before.or(after) {
                Some((key, _)) if !alike(before.map(|entry| entry.1), after.map(|entry| entry.1)) => {
                    let value = |entry: Option<(&[u8], &Value)>| entry.map(|(_, value)| value.clone());
                    Some(Difference { key: Key::from(key), before: value(before), after: value(after) })
                }
                _ => None,
            };
            if order.is_le() {
                self.before.step();
            }
            if order.is_ge() {
                self.after.step();
            }
            if difference.is_some() {
                return Ok(difference);
            }
        }
    }
}

impl Next {
    fn is_high(&self) -> bool {
        matches!(self, Next::Subtree(height) if *height > 0)
    }
}

impl Side {
    fn new(tree: Option<&Tree<Value>>) -> Side {
        let root = tree.and_then(Tree::root).cloned();
        Side { rest: root.into_iter().map(|root| (height(&root), root)).collect(), at: 0 }
    }

    fn next(&self) -> Next {
        match self.rest.last() {
            None => Next::End,
            Some((height, _)) if self.at == 0 => Next::Subtree(*height),
            Some(_) => Next::Rest,
        }
    }

    fn is_at_the_same(&self, other: &Side) -> bool {
        match (self.rest.last(), other.rest.last()) {
            (Some((_, Node::Leaf(a))), Some((_, Node::Leaf(b)))) => Arc::ptr_eq(a, b),
            (Some((_, Node::Inner(a))), Some((_, Node::Inner(b)))) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }

    fn pass(&mut self) {
        debug_assert!(!self.rest.is_empty(), "nothing is left to pass");
        debug_assert!(
            self.rest.windows(2).all(|pair| matches!(pair, [(below, _), (next, _)] if below >= next)),
            "a lower subtree is behind a higher one"
        );
        self.rest.pop();
        self.at = 0;
    }

    /// Replaces an inner node by its children.
    fn open(&mut self) {
        match self.rest.pop() {
            Some((height, Node::Inner(inner))) => {
                debug_assert!(
                    height > 0 && self.at == 0,
                    "an inner node of height {height}, read up to {}",
                    self.at
                );
                self.rest.extend(inner.children.iter().rev().map(|child| (height - 1, child.clone())));
            }
            Some(leaf) => self.rest.push(leaf),
            None => {}
        }
    }

    fn leaf(&self) -> Option<&Leaf<Value>> {
        match self.rest.last() {
            Some((height, Node::Leaf(leaf))) => {
                debug_assert_eq!(*height, 0, "a leaf above the lowest level");
                Some(leaf)
            }
            _ => None,
        }
    }

    fn entry(&self) -> Option<(&[u8], &Value)> {
        self.leaf()?.entry(self.at)
    }

    /// Moves to the next entry.
    fn step(&mut self) {
        debug_assert!(self.entry().is_some(), "no entry to pass");
        self.at += 1;
        if self.entry().is_none() {
            self.pass();
        }
    }
}

/// Returns the number of inner nodes between a root and each leaf.
fn height<V>(root: &Node<V>) -> usize {
    let (mut node, mut height) = (root, 0);
    while let Node::Inner(inner) = node
        && let Some(first) = inner.children.first()
    {
        (node, height) = (first, height + 1);
    }
    height
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::merged;
    use crate::{Batch, Engine, Ident, MemoryEngine};
    use proptest::prelude::*;

    const ORIGIN: Ident = Ident(1);
    const FORK: Ident = Ident(2);

    fn collect(mut differences: Box<dyn Differences>, stops: bool) -> Vec<Difference> {
        let mut all = Vec::new();
        loop {
            let mut stopped = false;
            let next = differences.next(&mut || {
                stopped = stops;
                !stopped
            });
            match next.unwrap() {
                Some(difference) => all.push(difference),
                None if stopped => {}
                None => return all,
            }
        }
    }

    /// Returns an engine with a tree of this number of entries, and its fork.
    fn forked(entries: u32) -> MemoryEngine {
        let engine = MemoryEngine::new();
        let mut batch = Batch::new();
        batch.create(ORIGIN);
        (0..entries).for_each(|number| batch.put(ORIGIN, number.to_be_bytes(), number.to_be_bytes()));
        batch.fork(ORIGIN, FORK);
        engine.commit(batch).unwrap();
        engine
    }

    proptest! {
        #[test]
        fn differences_equal_a_full_comparison(
            entries in 0u32..400,
            writes in prop::collection::vec((any::<bool>(), 0u32..500, prop::option::of(0u8..3)), 0..80),
            stops in any::<bool>(),
        ) {
            let engine = forked(entries);
            for (in_fork, key, value) in writes {
                let tree = if in_fork { FORK } else { ORIGIN };
                let mut batch = Batch::new();
                match value {
                    Some(value) => batch.put(tree, key.to_be_bytes(), [value; 4]),
                    None => batch.delete(tree, key.to_be_bytes()),
                }
                engine.commit(batch).unwrap();
            }
            let snapshot = engine.snapshot();
            let pairs = [(Some(ORIGIN), Some(FORK)), (Some(FORK), Some(ORIGIN)), (None, Some(FORK)), (Some(FORK), None)];
            for (before, after) in pairs {
                let expected = collect(merged(snapshot.as_ref(), before, after).unwrap(), stops);
                prop_assert_eq!(collect(snapshot.differences(before, after).unwrap(), stops), expected);
            }
        }
    }

    #[test]
    fn shared_nodes_are_skipped() {
        let engine = forked(100_000);
        for key in [7u32, 50_000, 99_999] {
            let mut batch = Batch::new();
            batch.put(FORK, key.to_be_bytes(), b"new");
            engine.commit(batch).unwrap();
        }
        let state = engine.latest();
        let [before, after] = [ORIGIN, FORK].map(|ident| &state.table(ident).unwrap().tree);
        let mut differences = TreeDifferences::new(Some(before), Some(after));
        let mut count = 0;
        while differences.next(&mut || true).unwrap().is_some() {
            count += 1;
        }
        // Three paths to a leaf, on both sides, in nodes of at most eight.
        assert!(count == 3 && differences.opened < 60, "{count} found, {} nodes opened", differences.opened);
    }
}
