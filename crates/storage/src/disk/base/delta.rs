//! Pending changes (a delta tree): a leaf is written when enough of it has changed, not at each checkpoint.
//!
//! The changes of a checkpoint may be scattered over a large tree, as in an index on random values. Nearly every leaf
//! then has a few changes, and writing all leaves costs a hundred times the size of the changes. A table may therefore
//! have a second, smaller tree with changes to the first. For each leaf, a checkpoint adds up the new and the pending
//! changes. A leaf with many changes is written, and no change of it remains pending. Other changes are added to the
//! second tree. Both trees have pages of one format, so the code that reads, checks, counts and frees pages serves
//! both. A reader searches the smaller tree first ([`super::table`]).
//!
//! The threshold follows from a cost estimate. Let a share `f` of the tree change at each checkpoint, and let a leaf of
//! `L` bytes be written once `T` bytes have changed. The leaf costs `L · fL/T` per checkpoint. Rewriting the pending
//! changes, `T/2` on average, costs another `T/2`. The sum is smallest, `L · √(2f)`, at `T = L · √(2f)`, compared with
//! `L` for writing every leaf. It is a third of `L` for `f` = 1/20, and a seventh for `f` = 1/100. Changes are never
//! pending if they are dense, as in a load in key order, if they are many, or if the tree is small.
//!
//! A buffer on each inner page, flushed separately (a Bε-tree), would cost about as much with one level of buffers. It
//! would need another kind of page. A buffer for some hundred leaves would also be written whole for a few changes at
//! each checkpoint, while changes in a separate tree are always dense.

use std::sync::Arc;

use super::cache::PageFile;
use super::merge::{PAGE_TARGET, Source, Writer, merge};
use super::page::PageHandle;
use super::table::{TableRoots, delta_value, value_in_delta};
use super::tree::{OpenTree, Tree, Walk};
use crate::{Direction, Key, Range, Result, Value};

/// Size below which trees are always written whole. A smaller number of changes is written whole too, if none are
/// pending.
const BYTES_MIN: u64 = if cfg!(test) { 8 << 10 } else { 8 << 20 };
const CHANGES_MIN: u64 = if cfg!(test) { 4 } else { 512 };
/// Density of changes, as one entry in so many, above which none stay pending.
const DENSE: u64 = 8;

/// Extent of the changes of a table.
#[derive(Debug, Clone, Copy)]
pub(in crate::disk) struct Share {
    /// Number of changed entries.
    pub(in crate::disk) changes: u64,
    /// Number and total length of the table's entries.
    pub(in crate::disk) entries: u64,
    pub(in crate::disk) bytes: u64,
}

impl Share {
    /// Returns the number of changed bytes at which a leaf is written; `None` to write every changed leaf.
    pub(super) fn bound(self, has_pending: bool) -> Option<usize> {
        let few = !has_pending && self.changes < CHANGES_MIN;
        if few || self.bytes < BYTES_MIN || self.changes > self.entries / DENSE {
            return None;
        }
        let share = self.changes as f64 / self.entries as f64;
        let bound = ((PAGE_TARGET as f64 * (2.0 * share).sqrt()) as usize).max(PAGE_TARGET / 32);
        debug_assert!(bound <= PAGE_TARGET, "the changes of a leaf may exceed the leaf: {self:?}");
        Some(bound)
    }
}

/// Writes the leaves with many changes, and keeps other changes pending. `changes` returns the changes from the start
/// at each call.
pub(super) fn write<S: Source>(
    writer: &mut Writer<'_>,
    number: u64,
    (before, file): (TableRoots, &Arc<PageFile>),
    bound: usize,
    changes: impl Fn() -> S,
) -> Result<Option<TableRoots>> {
    let open = |tree| OpenTree::once(Arc::clone(file), number, tree).map(Arc::new);
    let delta = before.delta.map(open).transpose()?;
    let walk = || {
        delta.as_ref().and_then(|tree| Walk::new(Arc::clone(tree), None, Range::all(), Direction::Forward))
    };
    let mut choice = Choice { file, number, changes: changes(), delta: walk(), bound, ranges: Vec::new() };
    choice.below(before.entries.handle, before.entries.height, &[], None)?;
    let ranges = choice.ranges;
    debug_assert!(
        ranges.is_sorted_by(|a, b| a.upper.as_ref().is_some_and(|upper| *upper < b.low)),
        "ranges overlap, or two of them are one"
    );
    let mut due = Merged::new(MergedChanges { ranges: ranges.iter(), range: None }, changes(), walk());
    let entries = match due.peek()? {
        Some(_) => merge(writer, number, Some(before.entries), false, &mut due)?,
        None => Some(before.entries),
    };
    let mut waiting = Merged::new(Waiting { ranges: ranges.iter().peekable() }, changes(), walk());
    let delta = match waiting.peek()? {
        Some(_) => merge(writer, number, before.delta, true, &mut waiting)?,
        None => before.delta,
    };
    // Every change is in the range of some leaf, so without leaves no change is pending.
    Ok(entries.map(|entries| TableRoots { entries, delta }))
}

/// Merges all pending changes and new changes with the entries of a table.
pub(super) fn write_all(
    writer: &mut Writer<'_>,
    number: u64,
    (before, file): (TableRoots, &Arc<PageFile>),
    changes: &mut impl Source,
) -> Result<Option<Tree>> {
    let Some(delta) = before.delta else {
        return merge(writer, number, Some(before.entries), false, changes);
    };
    let tree = Arc::new(OpenTree::once(Arc::clone(file), number, delta)?);
    let walk = Walk::new(tree, None, Range::all(), Direction::Forward);
    let all = [Span { low: Vec::new(), upper: None }];
    let entries = merge(
        writer,
        number,
        Some(before.entries),
        false,
        &mut Merged::new(MergedChanges { ranges: all.iter(), range: None }, changes, walk),
    )?;
    TableRoots::of(delta).collect_extents(file, number, &mut writer.freed)?;
    Ok(entries)
}

/// The keys from a lower bound up to an upper bound, excluded.
struct Span {
    /// Lower bound, included.
    low: Vec<u8>,
    /// Upper bound, excluded; `None` for the last leaf.
    upper: Option<Vec<u8>>,
}

impl Span {
    /// Returns true if the span ends behind a key.
    fn ends_behind(&self, key: &[u8]) -> bool {
        self.upper.as_ref().is_none_or(|upper| key < &**upper)
    }
}

/// The selection of leaves to write.
struct Choice<'a, S> {
    file: &'a PageFile,
    number: u64,
    changes: S,
    delta: Option<Walk>,
    /// Number of changed bytes from which a leaf is selected.
    bound: usize,
    /// Selected ranges; adjacent leaves form one range.
    ranges: Vec<Span>,
}

impl<S: Source> Choice<'_, S> {
    /// Selects leaves below a page; `low` and `upper` are as in merging.
    fn below(&mut self, handle: PageHandle, height: u8, low: &[u8], upper: Option<&[u8]>) -> Result<()> {
        if height == 0 {
            return self.leaf(low, upper);
        }
        let (page, _) = self.file.page_once(self.number, handle)?;
        if page.height() != height {
            return Err(self.file.damaged(self.number, handle));
        }
        let mut next = page.key(0);
        for at in 0..page.len() {
            let key = std::mem::replace(&mut next, page.key(at + 1));
            let handle = page.handle(at).ok_or_else(|| self.file.damaged(self.number, handle))?;
            let low = if at == 0 { low } else { &key };
            let upper = if at + 1 < page.len() { Some(&*next) } else { upper };
            if is_before(self.changes.peek()?, upper) {
                self.below(handle, height - 1, low, upper)?;
            }
        }
        Ok(())
    }

    /// Adds up the changes of a leaf, and selects the leaf if they reach the bound.
    fn leaf(&mut self, low: &[u8], upper: Option<&[u8]>) -> Result<()> {
        debug_assert!(upper.is_none_or(|upper| low < upper), "a leaf without keys");
        let mut bytes = 0;
        // In the last leaf the count may stop at the bound: no later leaf needs the remaining changes.
        while (upper.is_some() || bytes < self.bound) && is_before(self.changes.peek()?, upper) {
            if let Some((key, value)) = self.changes.take()? {
                bytes += key.len() + value.map_or(0, |value| value.len());
            }
        }
        if let (Some(delta), true) = (&mut self.delta, bytes < self.bound) {
            delta.seek(low)?;
            while bytes < self.bound
                && let Some(key) = delta.peek()?.filter(|key| is_before(Some(key), upper))
            {
                bytes += key.len();
                bytes += delta.value().len();
                delta.pass();
            }
        }
        if bytes >= self.bound {
            let upper = upper.map(<[u8]>::to_vec);
            match self.ranges.last_mut() {
                Some(last) if last.upper.as_deref() == Some(low) => last.upper = upper,
                _ => self.ranges.push(Span { low: low.to_vec(), upper }),
            }
        }
        Ok(())
    }
}

/// Returns true for a key before a bound.
fn is_before(key: Option<&[u8]>, upper: Option<&[u8]>) -> bool {
    key.is_some_and(|key| upper.is_none_or(|upper| key < upper))
}

/// Source of the next entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Unknown,
    Change,
    Delta,
    Nowhere,
}

/// A way to merge changes with pending ones.
trait MergeRule {
    /// Finds the source of the next entry, and skips entries that appear in neither result.
    fn find(&mut self, changes: &mut impl Source, delta: &mut Option<Walk>) -> Result<Next>;

    /// Converts a new change.
    fn changed(value: Option<Value>) -> Option<Value>;

    /// Converts a pending change.
    fn waited(value: &[u8]) -> Option<Value>;
}

/// New and pending changes as one source.
struct Merged<W, S> {
    way: W,
    changes: S,
    delta: Option<Walk>,
    /// Source of the next entry, if known.
    next: Next,
}

impl<W: MergeRule, S: Source> Merged<W, S> {
    fn new(way: W, changes: S, delta: Option<Walk>) -> Self {
        Merged { way, changes, delta, next: Next::Unknown }
    }
}

impl<W: MergeRule, S: Source> Source for Merged<W, S> {
    fn peek(&mut self) -> Result<Option<&[u8]>> {
        if self.next == Next::Unknown {
            self.next = self.way.find(&mut self.changes, &mut self.delta)?;
        }
        match (self.next, &mut self.delta) {
            (Next::Change, _) => self.changes.peek(),
            (Next::Delta, Some(delta)) => delta.peek(),
            _ => Ok(None),
        }
    }

    fn take(&mut self) -> Result<Option<(Key, Option<Value>)>> {
        self.peek()?;
        match (self.next, &mut self.delta) {
            (Next::Change, _) => {
                self.next = Next::Unknown;
                Ok(self.changes.take()?.map(|(key, value)| (key, W::changed(value))))
            }
            (Next::Delta, Some(delta)) => {
                self.next = Next::Unknown;
                let value = W::waited(delta.value());
                delta.pass();
                Ok(Some((Key::from(delta.passed()), value)))
            }
            _ => Ok(None),
        }
    }
}

/// Changes to merge with the entries: in the selected ranges the pending changes, overridden by new ones.
struct MergedChanges<'r> {
    /// Selected ranges not yet reached.
    ranges: std::slice::Iter<'r, Span>,
    /// The present range.
    range: Option<&'r Span>,
}

impl MergeRule for MergedChanges<'_> {
    fn find(&mut self, changes: &mut impl Source, delta: &mut Option<Walk>) -> Result<Next> {
        loop {
            let Some(range) = self.range else {
                self.range = self.ranges.next();
                let Some(range) = self.range else { return Ok(Next::Nowhere) };
                while is_before(changes.peek()?, Some(&range.low)) {
                    changes.take()?;
                }
                if let Some(delta) = delta {
                    delta.seek(&range.low)?;
                }
                continue;
            };
            let change = changes.peek()?.filter(|key| range.ends_behind(key));
            let waiting = match delta {
                Some(delta) => delta.peek()?.filter(|key| range.ends_behind(key)),
                None => None,
            };
            match (change, waiting) {
                (None, None) => self.range = None,
                (Some(change), Some(waiting)) if waiting < change => return Ok(Next::Delta),
                (None, Some(_)) => return Ok(Next::Delta),
                (Some(change), waiting) => {
                    if waiting == Some(change)
                        && let Some(delta) = delta
                    {
                        delta.pass();
                    }
                    return Ok(Next::Change);
                }
            }
        }
    }

    fn changed(value: Option<Value>) -> Option<Value> {
        value
    }

    fn waited(value: &[u8]) -> Option<Value> {
        value_in_delta(value).map(Value::from)
    }
}

/// Changes that stay pending: new ones outside of the selected ranges are added, and pending ones within are removed.
struct Waiting<'r> {
    ranges: std::iter::Peekable<std::slice::Iter<'r, Span>>,
}

impl MergeRule for Waiting<'_> {
    fn find(&mut self, changes: &mut impl Source, delta: &mut Option<Walk>) -> Result<Next> {
        loop {
            let change = changes.peek()?;
            let Some(range) = self.ranges.peek() else {
                return Ok(if change.is_some() { Next::Change } else { Next::Nowhere });
            };
            if change.is_some_and(|key| key < &*range.low) {
                return Ok(Next::Change);
            }
            if let Some(delta) = delta {
                delta.seek(&range.low)?;
                if delta.peek()?.is_some_and(|key| range.ends_behind(key)) {
                    return Ok(Next::Delta);
                }
            }
            // No change stays pending after the last range.
            while range.upper.is_some() && is_before(changes.peek()?, range.upper.as_deref()) {
                changes.take()?;
            }
            let is_last = range.upper.is_none();
            self.ranges.next();
            if is_last {
                return Ok(Next::Nowhere);
            }
        }
    }

    fn changed(value: Option<Value>) -> Option<Value> {
        Some(Value::from(delta_value(value.as_deref())))
    }

    fn waited(_: &[u8]) -> Option<Value> {
        None
    }
}
