//! A table: a tree of entries, and optionally a smaller tree of pending changes to it (`delta.rs`).
//!
//! Most tables have no second tree. If one exists, a lookup searches it first, and cursors walk over both.

use std::cmp::Ordering;
use std::sync::Arc;

use super::View;
use super::cache::PageFile;
use super::free_space::Extent;
use super::tree::{OpenTree, Tree, Walk, collect_extents};
use crate::{Direction, Range, Result};

/// Roots of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TableRoots {
    pub(super) entries: Tree,
    /// Changes not yet merged with the entries.
    pub(super) delta: Option<Tree>,
}

impl TableRoots {
    /// Creates a table without pending changes.
    pub(super) fn of(entries: Tree) -> Self {
        TableRoots { entries, delta: None }
    }

    /// Returns the trees of the table, entries first.
    pub(super) fn trees(self) -> impl Iterator<Item = Tree> {
        std::iter::once(self.entries).chain(self.delta)
    }

    pub(super) fn encode(self) -> Vec<u8> {
        debug_assert!(
            self.delta.is_none_or(|delta| delta.handle.offset != self.entries.handle.offset),
            "both trees of a table have one root: {self:?}"
        );
        self.trees().flat_map(Tree::encode).collect()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (entries, delta) = bytes.split_at_checked(Tree::BYTES)?;
        let delta = match delta {
            [] => None,
            delta => Some(Tree::decode(delta)?),
        };
        Some(TableRoots { entries: Tree::decode(entries)?, delta })
    }

    /// Adds the extents of all its pages to `extents`.
    pub(super) fn collect_extents(
        self,
        file: &PageFile,
        table: u64,
        extents: &mut Vec<Extent>,
    ) -> Result<()> {
        self.trees().try_for_each(|tree| collect_extents(file, table, tree, extents))
    }
}

/// Encodes a pending change: nothing for a deletion, otherwise a byte and the value.
pub(super) fn delta_value(value: Option<&[u8]>) -> Vec<u8> {
    let stored = value.map(|value| [&[1], value].concat()).unwrap_or_default();
    debug_assert_eq!(value_in_delta(&stored), value, "a pending change reads as another one");
    stored
}

/// Returns the new value of a pending change; `None` for a deletion.
pub(super) fn value_in_delta(stored: &[u8]) -> Option<&[u8]> {
    stored.split_first().map(|(_, value)| value)
}

/// An open table.
pub(super) struct OpenTable {
    pub(super) entries: Arc<OpenTree>,
    pub(super) delta: Option<Arc<OpenTree>>,
}

impl OpenTable {
    pub(super) fn new(file: &Arc<PageFile>, number: u64, stored: TableRoots) -> Result<Self> {
        let entries = OpenTree::new(Arc::clone(file), number, stored.entries)?;
        let delta = |tree| OpenTree::delta(Arc::clone(file), number, tree).map(Arc::new);
        Ok(OpenTable { entries: Arc::new(entries), delta: stored.delta.map(delta).transpose()? })
    }

    /// Calls a function with the value of a key.
    #[inline]
    pub(super) fn with<R>(&self, key: &[u8], then: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        match &self.delta {
            None => self.entries.with(key, then),
            Some(delta) => self.with_delta(delta, key, then),
        }
    }

    /// Looks up a key in the pending changes first, then in the entries.
    fn with_delta<R>(
        &self,
        delta: &OpenTree,
        key: &[u8],
        then: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        let mut then = Some(then);
        let mut once = |value: &[u8]| then.take().map(|then| then(value));
        match delta.with(key, |stored| value_in_delta(stored).and_then(&mut once))? {
            Some(changed) => Ok(changed),
            None => self.entries.with(key, once).map(Option::flatten),
        }
    }
}

/// A cursor over a range of a table, with a lookahead of one entry.
///
/// An unreadable page is reported once as an error, and the cursor continues after it. Entries then appear as before
/// the page's pending changes.
pub(in crate::disk) struct BaseCursor {
    entries: Walk,
    /// Pending changes, while any remain.
    delta: Option<Walk>,
    direction: Direction,
    /// Tree of the next entry, if known and if changes are pending.
    next: Option<Tier>,
    /// Tree of the last entry.
    last: Tier,
}

/// One of the trees of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tier {
    Entries,
    Delta,
}

impl BaseCursor {
    /// Creates a cursor over a range; `None` if the range is empty.
    pub(super) fn new(
        table: &OpenTable,
        view: Option<Arc<View>>,
        range: Range,
        direction: Direction,
    ) -> Option<Self> {
        let delta = table.delta.as_ref();
        let delta = delta.and_then(|tree| Walk::new(Arc::clone(tree), None, range.clone(), direction));
        let entries = Walk::new(Arc::clone(&table.entries), view, range, direction)?;
        Some(BaseCursor::over(entries, delta, direction))
    }

    /// Creates a cursor over entries and their pending changes.
    pub(super) fn over(entries: Walk, delta: Option<Walk>, direction: Direction) -> Self {
        BaseCursor { entries, delta, direction, next: None, last: Tier::Entries }
    }

    /// Returns the next key without taking its entry.
    #[inline]
    pub(in crate::disk) fn peek(&mut self) -> Result<Option<&[u8]>> {
        match self.delta {
            None => self.entries.peek(),
            Some(_) => self.peek_at_both(),
        }
    }

    /// Returns the next key of a table with pending changes.
    fn peek_at_both(&mut self) -> Result<Option<&[u8]>> {
        if self.next.is_none() {
            self.next = Some(self.find_next()?);
        }
        match (self.next, &mut self.delta) {
            (Some(Tier::Delta), Some(delta)) => delta.peek(),
            _ => self.entries.peek(),
        }
    }

    /// Finds the tree of the next entry, and skips overridden and deleted entries.
    fn find_next(&mut self) -> Result<Tier> {
        while let Some(delta) = &mut self.delta {
            let Some(changed) = delta.peek()? else {
                self.delta = None;
                break;
            };
            let entry = self.entries.peek()?;
            let order = entry.map_or(Ordering::Less, |key| self.direction.order(changed, key));
            if order == Ordering::Greater {
                break;
            }
            if order == Ordering::Equal {
                self.entries.pass();
            }
            if value_in_delta(delta.value()).is_some() {
                return Ok(Tier::Delta);
            }
            delta.pass();
        }
        Ok(Tier::Entries)
    }

    /// Skips the entry returned by `peek`.
    #[inline]
    pub(in crate::disk) fn pass(&mut self) {
        self.last = self.next.take().unwrap_or(Tier::Entries);
        debug_assert!(self.last == Tier::Entries || self.delta.is_some(), "no pending change to pass");
        match (self.last, &mut self.delta) {
            (Tier::Delta, Some(delta)) => delta.pass(),
            _ => self.entries.pass(),
        }
    }

    /// Returns the entry skipped last, until the next lookahead.
    #[inline]
    pub(in crate::disk) fn passed(&self) -> (&[u8], &[u8]) {
        match (self.last, &self.delta) {
            (Tier::Delta, Some(delta)) => {
                (delta.passed(), value_in_delta(delta.value_passed()).unwrap_or_default())
            }
            _ => (self.entries.passed(), self.entries.value_passed()),
        }
    }

    /// Returns the next entry. Its value points into the page.
    #[inline]
    pub(in crate::disk) fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        if self.peek()?.is_none() {
            return Ok(None);
        }
        self.pass();
        Ok(Some(self.passed()))
    }

    /// Moves forward to the first key that is not smaller.
    pub(in crate::disk) fn seek(&mut self, key: &[u8]) -> Result<()> {
        if let Some(delta) = &mut self.delta {
            self.next = None;
            delta.seek(key)?;
        }
        self.entries.seek(key)
    }
}
