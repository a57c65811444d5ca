//! A table: a tree of entries, and perhaps a smaller one of changes to it that are still to be merged (`pending.rs`).
//!
//! Where there is no second tree, as nearly always, nothing is asked of it. Else a key is looked up in it first, and
//! cursors walk along both.

use std::cmp::Ordering;
use std::sync::Arc;

use super::View;
use super::cache::PageFile;
use super::superblock::Extent;
use super::tree::{OpenTree, Tree, Walk, each_extent};
use crate::{Direction, Range, Result};

/// Where a table is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) entries: Tree,
    /// The changes that are still to be merged with the entries.
    pub(super) pending: Option<Tree>,
}

impl Stored {
    /// A table without changes to be merged.
    pub(super) fn of(entries: Tree) -> Self {
        Stored { entries, pending: None }
    }

    pub(super) fn trees(self) -> impl Iterator<Item = Tree> {
        std::iter::once(self.entries).chain(self.pending)
    }

    pub(super) fn encode(self) -> Vec<u8> {
        self.trees().flat_map(Tree::encode).collect()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (entries, pending) = bytes.split_at_checked(Tree::BYTES)?;
        let pending = match pending {
            [] => None,
            pending => Some(Tree::decode(pending)?),
        };
        Some(Stored { entries: Tree::decode(entries)?, pending })
    }

    /// The places of all its pages.
    pub(super) fn each_extent(self, file: &PageFile, table: u64, found: &mut Vec<Extent>) -> Result<()> {
        self.trees().try_for_each(|tree| each_extent(file, table, tree, found))
    }
}

/// What a key changes to, as the tree of changes has it: nothing, or a byte and the value.
pub(super) fn pending_value(value: Option<&[u8]>) -> Vec<u8> {
    value.map(|value| [&[1], value].concat()).unwrap_or_default()
}

/// The value that a key changes to, if it isn't gone.
pub(super) fn value_pending(stored: &[u8]) -> Option<&[u8]> {
    stored.split_first().map(|(_, value)| value)
}

/// A table, to be looked up in.
pub(super) struct OpenTable {
    pub(super) entries: Arc<OpenTree>,
    pub(super) pending: Option<Arc<OpenTree>>,
}

impl OpenTable {
    pub(super) fn new(file: &Arc<PageFile>, number: u64, stored: Stored) -> Result<Self> {
        let entries = OpenTree::new(Arc::clone(file), number, stored.entries)?;
        let pending = |tree| OpenTree::pending(Arc::clone(file), number, tree).map(Arc::new);
        Ok(OpenTable { entries: Arc::new(entries), pending: stored.pending.map(pending).transpose()? })
    }

    /// Does something with the value under a key.
    #[inline]
    pub(super) fn with<R>(&self, key: &[u8], then: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        match &self.pending {
            None => self.entries.with(key, then),
            Some(pending) => self.with_pending(pending, key, then),
        }
    }

    fn with_pending<R>(
        &self,
        pending: &OpenTree,
        key: &[u8],
        then: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        let mut then = Some(then);
        let mut once = |value: &[u8]| then.take().map(|then| then(value));
        match pending.with(key, |stored| value_pending(stored).and_then(&mut once))? {
            Some(changed) => Ok(changed),
            None => self.entries.with(key, once).map(Option::flatten),
        }
    }
}

/// A walk over a range of a table, which can look at the next entry before it takes it.
///
/// A page that cannot be read is an error once; the walk then goes on behind it. What a page of changes had is then
/// met as it was before.
pub(in crate::disk) struct BaseCursor {
    entries: Walk,
    /// The changes, as long as there are any.
    pending: Option<Walk>,
    direction: Direction,
    /// Where the next entry is, if that is known and there are changes.
    next: Option<Tier>,
    /// Where the last one was.
    last: Tier,
}

/// One of the trees of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tier {
    Entries,
    Pending,
}

impl BaseCursor {
    /// A cursor over a range; none if there is nothing in it.
    pub(super) fn new(
        table: &OpenTable,
        view: Option<Arc<View>>,
        range: Range,
        direction: Direction,
    ) -> Option<Self> {
        let pending = table.pending.as_ref();
        let pending = pending.and_then(|tree| Walk::new(Arc::clone(tree), None, range.clone(), direction));
        let entries = Walk::new(Arc::clone(&table.entries), view, range, direction)?;
        Some(BaseCursor::over(entries, pending, direction))
    }

    /// A cursor over entries and the changes to them.
    pub(super) fn over(entries: Walk, pending: Option<Walk>, direction: Direction) -> Self {
        BaseCursor { entries, pending, direction, next: None, last: Tier::Entries }
    }

    /// The next key without taking its entry.
    #[inline]
    pub(in crate::disk) fn peek(&mut self) -> Result<Option<&[u8]>> {
        match self.pending {
            None => self.entries.peek(),
            Some(_) => self.peek_at_both(),
        }
    }

    fn peek_at_both(&mut self) -> Result<Option<&[u8]>> {
        if self.next.is_none() {
            self.next = Some(self.find_next()?);
        }
        match (self.next, &mut self.pending) {
            (Some(Tier::Pending), Some(pending)) => pending.peek(),
            _ => self.entries.peek(),
        }
    }

    /// Finds out which tree has the next entry, and passes what is changed or gone.
    fn find_next(&mut self) -> Result<Tier> {
        while let Some(pending) = &mut self.pending {
            let Some(changed) = pending.peek()? else {
                self.pending = None;
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
            if value_pending(pending.value()).is_some() {
                return Ok(Tier::Pending);
            }
            pending.pass();
        }
        Ok(Tier::Entries)
    }

    /// Passes the entry that was peeked at.
    #[inline]
    pub(in crate::disk) fn pass(&mut self) {
        self.last = self.next.take().unwrap_or(Tier::Entries);
        match (self.last, &mut self.pending) {
            (Tier::Pending, Some(pending)) => pending.pass(),
            _ => self.entries.pass(),
        }
    }

    /// The entry passed last, until the next is looked at.
    #[inline]
    pub(in crate::disk) fn passed(&self) -> (&[u8], &[u8]) {
        match (self.last, &self.pending) {
            (Tier::Pending, Some(pending)) => {
                (pending.passed(), value_pending(pending.value_passed()).unwrap_or_default())
            }
            _ => (self.entries.passed(), self.entries.value_passed()),
        }
    }

    /// The next entry; its value lies in the page.
    #[inline]
    pub(in crate::disk) fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        if self.peek()?.is_none() {
            return Ok(None);
        }
        self.pass();
        Ok(Some(self.passed()))
    }

    /// Skips forward to a key or what comes after it.
    pub(in crate::disk) fn seek(&mut self, key: &[u8]) -> Result<()> {
        if let Some(pending) = &mut self.pending {
            self.next = None;
            pending.seek(key)?;
        }
        self.entries.seek(key)
    }
}
