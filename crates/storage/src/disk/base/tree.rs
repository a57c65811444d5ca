//! A tree of pages for reading: lookups, cursors and complete walks. Reads over the two trees of a table are in
//! `table.rs`.

use std::ops::Bound;
use std::sync::Arc;

use super::View;
use super::cache::PageFile;
use super::free_space::Extent;
use super::page::{Page, PageHandle};
use crate::disk::reuse::TableReads;
use crate::{Direction, Key, Range, Result};

/// Number of entries prefetched into the processor's cache ahead of a walk.
const FETCHED: usize = 2;

/// Root of a tree, with its height and its number of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tree {
    /// The root page.
    pub(super) handle: PageHandle,
    /// Height of the root above the leaves: 0 for a leaf.
    pub(super) height: u8,
    /// Number of entries.
    pub(super) entries: u64,
}

impl Tree {
    /// Encoded length.
    pub(super) const BYTES: usize = PageHandle::BYTES + 9;

    pub(super) fn encode(self) -> [u8; Tree::BYTES] {
        debug_assert!(self.entries > 0, "a tree without entries has no pages: {self:?}");
        let mut bytes = [0; Tree::BYTES];
        let parts = [&self.handle.encode()[..], &[self.height], &self.entries.to_le_bytes()].concat();
        bytes.copy_from_slice(&parts);
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (handle, rest) = bytes.split_at_checked(PageHandle::BYTES)?;
        let (height, entries) = rest.split_first()?;
        let entries = u64::from_le_bytes(entries.try_into().ok()?);
        Some(Tree { handle: PageHandle::decode(handle)?, height: *height, entries })
    }
}

/// An open tree of a file.
pub(super) struct OpenTree {
    pub(super) file: Arc<PageFile>,
    /// Number of its table, for messages.
    pub(super) table: u64,
    pub(super) tree: Tree,
    /// The root, if it is an inner page: every lookup uses it.
    top: Option<Arc<Page>>,
    /// Greatest key, if known: new record ids need no search.
    last: Option<Vec<u8>>,
    visits: Visits,
}

/// Treatment of a visited page.
enum Visits {
    /// Kept in the cache and recorded, if counters exist. The flag marks a tree of entries, whose leaf visits count as
    /// reads.
    Noted(Option<Arc<TableReads>>, bool),
    /// Read once without the cache.
    Passing,
}

impl OpenTree {
    /// Opens a tree of entries.
    pub(super) fn new(file: Arc<PageFile>, table: u64, tree: Tree) -> Result<Self> {
        let visits = Visits::Noted(file.uses(table), true);
        OpenTree::keeping(file, table, tree, visits)
    }

    /// Opens a tree of pending changes, which every read visits on its way to the entries.
    pub(super) fn delta(file: Arc<PageFile>, table: u64, tree: Tree) -> Result<Self> {
        let visits = Visits::Noted(file.uses(table), false);
        OpenTree::keeping(file, table, tree, visits)
    }

    /// Opens a tree, and keeps its root in memory if that is an inner page.
    fn keeping(file: Arc<PageFile>, table: u64, tree: Tree, visits: Visits) -> Result<Self> {
        let top = Some(file.page(table, tree.handle)?).filter(|page| page.height() > 0);
        let mut opened = OpenTree { file, table, tree, top, last: None, visits };
        // A damaged page on the way does not affect other pages.
        opened.last = opened.find_last().ok();
        Ok(opened)
    }

    /// Opens a tree for one complete read.
    pub(super) fn once(file: Arc<PageFile>, table: u64, tree: Tree) -> Result<Self> {
        let (top, _) = file.page_once(table, tree.handle)?;
        let top = Some(top).filter(|page| page.height() > 0);
        Ok(OpenTree { file, table, tree, top, last: None, visits: Visits::Passing })
    }

    /// Returns the root page.
    #[inline]
    fn top(&self) -> Result<Arc<Page>> {
        match &self.top {
            Some(top) => Ok(Arc::clone(top)),
            None => self.visit(self.tree.handle),
        }
    }

    /// Reads a page and records the visit.
    #[inline]
    fn visit(&self, handle: PageHandle) -> Result<Arc<Page>> {
        match &self.visits {
            Visits::Noted(uses, is_read) => self.file.visit(uses.as_deref(), *is_read, self.table, handle),
            Visits::Passing => self.file.page_once(self.table, handle).map(|(page, _)| page),
        }
    }

    /// Returns the greatest key, from a walk along the last children.
    fn find_last(&self) -> Result<Vec<u8>> {
        let mut page = self.file.page(self.table, self.tree.handle)?;
        while page.height() > 0 {
            let last = page.handle(page.len().saturating_sub(1));
            let last = last.ok_or_else(|| self.file.damaged(self.table, self.tree.handle))?;
            page = self.file.page(self.table, last)?;
        }
        Ok(page.key(page.len().saturating_sub(1)))
    }

    /// Returns a child of an inner page.
    #[inline]
    fn below(&self, page: &Page, at: usize) -> Result<Arc<Page>> {
        let handle = page.handle(at).ok_or_else(|| self.file.damaged(self.table, self.tree.handle))?;
        self.visit(handle)
    }

    /// Calls a function with the value of a key.
    #[inline]
    pub(super) fn with<R>(&self, key: &[u8], then: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        if self.last.as_ref().is_some_and(|last| key > &**last) {
            return Ok(None);
        }
        let mut page = match &self.top {
            Some(top) => self.below(top, top.child(key))?,
            None => self.top()?,
        };
        while page.height() > 0 {
            page = self.below(&page, page.child(key))?;
        }
        Ok(page.find(key).ok().map(|at| then(page.value(at))))
    }

    /// Calls a function with each page in key order, parents before children, with its handle or its error. Stops when
    /// the function returns false. Keeps no page in memory.
    pub(super) fn walk(&self, visit: &mut dyn FnMut(PageHandle, Result<Arc<Page>>) -> bool) -> bool {
        self.walk_below(self.tree.handle, visit)
    }

    /// Walks over a page and its subtree. Returns false if the walk was stopped.
    fn walk_below(
        &self,
        handle: PageHandle,
        visit: &mut dyn FnMut(PageHandle, Result<Arc<Page>>) -> bool,
    ) -> bool {
        match self.file.page_once(self.table, handle) {
            Err(error) => visit(handle, Err(error)),
            Ok((page, _)) => {
                visit(handle, Ok(Arc::clone(&page)))
                    && (page.height() == 0
                        || (0..page.len())
                            .filter_map(|at| page.handle(at))
                            .all(|below| self.walk_below(below, visit)))
            }
        }
    }
}

/// Adds the extent of each page of a tree to `extents`, without reading the leaves.
pub(super) fn collect_extents(
    file: &PageFile,
    table: u64,
    tree: Tree,
    extents: &mut Vec<Extent>,
) -> Result<()> {
    extents_below(file, table, tree.handle, tree.height, extents)
}

/// Collects the extents of a page and its subtree.
fn extents_below(
    file: &PageFile,
    table: u64,
    handle: PageHandle,
    height: u8,
    extents: &mut Vec<Extent>,
) -> Result<()> {
    extents.push(Extent { offset: handle.offset, units: u64::from(handle.units) });
    if height == 0 {
        return Ok(());
    }
    let (page, _) = file.page_once(table, handle)?;
    if page.height() != height {
        return Err(file.damaged(table, handle));
    }
    (0..page.len())
        .filter_map(|at| page.handle(at))
        .try_for_each(|below| extents_below(file, table, below, height - 1, extents))
}

/// Returns true if the range excludes every key.
fn is_empty(range: &Range) -> bool {
    match (&range.lower, &range.upper) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(lower), Bound::Included(upper)) => lower > upper,
        (
            Bound::Included(lower) | Bound::Excluded(lower),
            Bound::Included(upper) | Bound::Excluded(upper),
        ) => lower >= upper,
    }
}

/// A cursor over a range of a tree, with a lookahead of one entry.
///
/// An unreadable page is reported once as an error, and the cursor continues after it.
pub(super) struct Walk {
    tree: Arc<OpenTree>,
    /// Protects the tree's pages from being overwritten.
    _view: Option<Arc<View>>,
    /// The remaining range, or a larger one.
    range: Range,
    direction: Direction,
    /// True once the first leaf has been found.
    started: bool,
    /// The inner pages above the leaf from the root down, each with the index of the child in use.
    above: Vec<(Arc<Page>, usize)>,
    /// The present leaf.
    leaf: Option<Arc<Page>>,
    /// Indexes of the leaf's remaining entries.
    left: std::ops::Range<usize>,
    /// True if the range ends in this leaf.
    is_last: bool,
    /// Key of the next entry after a lookahead, otherwise of the last entry taken.
    key: Vec<u8>,
    /// Length of the leaf's prefix in `key`; `None` if the key is from another leaf.
    prefixed: Option<usize>,
    /// True if `key` holds the key of the next or the last entry.
    has_key: bool,
    /// True if `key` belongs to the next entry.
    is_next: bool,
}

impl Walk {
    /// Creates a cursor over a range; `None` if the range is empty.
    pub(super) fn new(
        tree: Arc<OpenTree>,
        view: Option<Arc<View>>,
        range: Range,
        direction: Direction,
    ) -> Option<Self> {
        (!is_empty(&range)).then(|| Walk::along(tree, view, range, direction))
    }

    /// Creates a cursor at its end.
    pub(super) fn ended(tree: Arc<OpenTree>, direction: Direction) -> Self {
        let walk = Walk::along(tree, None, Range::all(), direction);
        Walk { started: true, is_last: true, ..walk }
    }

    /// Creates a cursor before its first page is read.
    fn along(tree: Arc<OpenTree>, view: Option<Arc<View>>, range: Range, direction: Direction) -> Self {
        Walk {
            tree,
            _view: view,
            range,
            direction,
            started: false,
            above: Vec::new(),
            leaf: None,
            left: 0..0,
            is_last: false,
            key: Vec::new(),
            prefixed: None,
            has_key: false,
            is_next: false,
        }
    }

    /// Descends to the first leaf of the range.
    fn start(&mut self) -> Result<()> {
        self.started = true;
        self.above.clear();
        self.is_last = false;
        self.left = 0..0;
        let top = self.tree.top()?;
        self.descend(top, true)
    }

    /// Descends to a leaf: at the start to the first leaf of the range, later to the nearest leaf.
    fn descend(&mut self, mut page: Arc<Page>, starting: bool) -> Result<()> {
        while page.height() > 0 {
            let at = match (self.direction, &self.range.lower, &self.range.upper) {
                (Direction::Forward, Bound::Included(key) | Bound::Excluded(key), _) if starting => {
                    page.child(key)
                }
                (Direction::Backward, _, Bound::Included(key) | Bound::Excluded(key)) if starting => {
                    page.child(key)
                }
                (Direction::Forward, ..) => 0,
                (Direction::Backward, ..) => page.len().saturating_sub(1),
            };
            self.above.push((Arc::clone(&page), at));
            page = self.tree.below(&page, at)?;
        }
        let first = match &self.range.lower {
            Bound::Unbounded => 0,
            Bound::Included(key) => page.find(key).unwrap_or_else(|at| at),
            Bound::Excluded(key) => page.find(key).map_or_else(|at| at, |at| at + 1),
        };
        let end = match &self.range.upper {
            Bound::Unbounded => page.len(),
            Bound::Included(key) => page.find(key).map_or_else(|at| at, |at| at + 1),
            Bound::Excluded(key) => page.find(key).unwrap_or_else(|at| at),
        };
        self.is_last = match self.direction {
            Direction::Forward => end < page.len(),
            Direction::Backward => first > 0,
        };
        debug_assert!(first <= page.len() && end <= page.len(), "{first}..{end} of {}", page.len());
        self.left = first..end.max(first);
        self.prefixed = None;
        self.leaf = Some(page);
        Ok(())
    }

    /// Moves to the next leaf with entries. Returns false at the end.
    fn next_leaf(&mut self) -> Result<bool> {
        if !self.started {
            self.start()?;
        }
        while self.left.is_empty() {
            if self.is_last {
                return Ok(false);
            }
            loop {
                let Some((page, at)) = self.above.last_mut() else {
                    self.is_last = true;
                    return Ok(false);
                };
                let next = match self.direction {
                    Direction::Forward => Some(*at + 1).filter(|next| *next < page.len()),
                    Direction::Backward => at.checked_sub(1),
                };
                let Some(next) = next else {
                    self.above.pop();
                    continue;
                };
                *at = next;
                let page = Arc::clone(page);
                let below = self.tree.below(&page, next)?;
                self.descend(below, false)?;
                break;
            }
        }
        Ok(true)
    }

    /// Returns the next key without taking its entry.
    #[inline]
    pub(super) fn peek(&mut self) -> Result<Option<&[u8]>> {
        if self.is_next {
            return Ok(Some(&self.key));
        }
        if self.left.is_empty() && !self.next_leaf()? {
            return Ok(None);
        }
        let Some(leaf) = &self.leaf else { return Ok(None) };
        let at = match self.direction {
            Direction::Forward => self.left.start,
            Direction::Backward => self.left.end - 1,
        };
        match self.prefixed {
            Some(prefix) => self.key.truncate(prefix),
            None => {
                self.key.clear();
                self.key.extend_from_slice(leaf.prefix());
                self.prefixed = Some(self.key.len());
            }
        }
        debug_assert!(self.left.contains(&at) && at < leaf.len(), "entry {at} of {:?}", self.left);
        debug_assert_eq!(self.key.len(), leaf.prefix().len(), "the prefix is of another leaf");
        self.key.extend_from_slice(leaf.rest(at));
        match self.direction {
            Direction::Forward if at + FETCHED < self.left.end => leaf.fetch(at + FETCHED),
            Direction::Backward if at >= self.left.start + FETCHED => leaf.fetch(at - FETCHED),
            _ => {}
        }
        (self.has_key, self.is_next) = (true, true);
        Ok(Some(&self.key))
    }

    /// Returns the value of the entry returned by `peek`.
    #[inline]
    pub(super) fn value(&self) -> &[u8] {
        debug_assert!(self.is_next, "the value of an entry without a look ahead");
        let at = match self.direction {
            Direction::Forward => self.left.start,
            Direction::Backward => self.left.end.saturating_sub(1),
        };
        self.leaf.as_ref().filter(|_| self.is_next).map_or(&[], |leaf| leaf.value(at))
    }

    /// Skips the entry returned by `peek`.
    #[inline]
    pub(super) fn pass(&mut self) {
        debug_assert!(self.is_next, "an entry is passed without a look ahead");
        if std::mem::take(&mut self.is_next) {
            match self.direction {
                Direction::Forward => self.left.start += 1,
                Direction::Backward => self.left.end -= 1,
            }
        }
    }

    /// Returns the key of the entry skipped last, until the next lookahead.
    #[inline]
    pub(super) fn passed(&self) -> &[u8] {
        debug_assert!(self.has_key && !self.is_next, "the key belongs to the next entry");
        &self.key
    }

    /// Returns the value of the entry skipped last, until the next lookahead.
    #[inline]
    pub(super) fn value_passed(&self) -> &[u8] {
        debug_assert!(self.has_key && !self.is_next, "the entry has not been passed");
        let at = match self.direction {
            Direction::Forward => self.left.start.wrapping_sub(1),
            Direction::Backward => self.left.end,
        };
        self.leaf.as_ref().map_or(&[], |leaf| leaf.value(at))
    }

    /// Moves forward to the first key that is not smaller. Searches the present leaf first, then from the root.
    pub(super) fn seek(&mut self, key: &[u8]) -> Result<()> {
        if self.has_key && !self.direction.is_before(&self.key, key) {
            return Ok(());
        }
        self.is_next = false;
        if self.started
            && let Some(leaf) = &self.leaf
            && !self.left.is_empty()
        {
            match self.direction {
                Direction::Forward => {
                    let at = leaf.find(key).unwrap_or_else(|at| at);
                    self.left.start = at.clamp(self.left.start, self.left.end);
                }
                Direction::Backward => {
                    let at = leaf.find(key).map_or_else(|at| at, |at| at + 1);
                    self.left.end = at.clamp(self.left.start, self.left.end);
                }
            }
            debug_assert!(self.left.end <= leaf.len(), "a seek leaves the leaf: {:?}", self.left);
            if !self.left.is_empty() || self.is_last {
                return Ok(());
            }
        }
        if self.started && self.left.is_empty() && (self.is_last || self.above.is_empty()) {
            return Ok(());
        }
        let closer = match (self.direction, &self.range.lower, &self.range.upper) {
            (Direction::Forward, Bound::Included(lower) | Bound::Excluded(lower), _) => key > &**lower,
            (Direction::Backward, _, Bound::Included(upper) | Bound::Excluded(upper)) => key < &**upper,
            _ => true,
        };
        if closer {
            match self.direction {
                Direction::Forward => self.range.lower = Bound::Included(Key::from(key)),
                Direction::Backward => self.range.upper = Bound::Included(Key::from(key)),
            }
        }
        if is_empty(&self.range) {
            (self.started, self.is_last, self.left) = (true, true, 0..0);
            return Ok(());
        }
        self.start()
    }
}
