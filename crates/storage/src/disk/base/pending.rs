//! Changes that wait: a leaf is written when enough has changed in it, not at each checkpoint.
//!
//! Where a checkpoint's changes fall all over a large tree, as those of an index on random values do, nearly every leaf
//! has a few of them, and writing them all costs a hundred times what has changed. So a table may have a second, smaller
//! tree, of changes to the first. A checkpoint looks, leaf by leaf, at what has changed there, waiting changes included:
//! where that is much the leaf is written, and nothing waits there any more; elsewhere the changes wait in the second
//! tree. Both are trees of the same pages, so that whatever reads, checks, counts and frees pages knows them already;
//! a reader asks the smaller one first ([`super::table`]).
//!
//! How much is much: with a share `f` of the tree changed at each checkpoint, a leaf of `L` bytes being written once `T`
//! bytes have changed costs `L · fL/T` each time, and writing what waits, half of `T` on the average, another `T/2`. The
//! sum is least, `L · √(2f)`, at `T = L · √(2f)`, against `L` for writing every leaf: a third of it at a share of a
//! twentieth, a seventh at one of a hundredth. Where changes are dense, as those of a load in the order of keys, or many,
//! or the tree is small, none of this happens.
//!
//! A buffer on each page above the leaves, flushed by itself (a Bε-tree), would come to about the same with one level of
//! buffers. It would be one more kind of page to everybody, and what waits for a few hundred leaves would be written whole for
//! each checkpoint's few changes there; in a tree of their own changes lie as densely as anywhere.

use std::sync::Arc;

use super::cache::PageFile;
use super::merge::{Source, TARGET, Writer, merge};
use super::page::Place;
use super::table::{Stored, pending_value, value_pending};
use super::tree::{OpenTree, Tree, Walk};
use crate::{Direction, Key, Range, Result, Value};

/// Trees of fewer bytes are written without waiting, and so are fewer changes than that if none wait.
const BYTES_MIN: u64 = if cfg!(test) { 8 << 10 } else { 8 << 20 };
const CHANGES_MIN: u64 = if cfg!(test) { 4 } else { 512 };
/// Where more than one entry in so many changes, none waits.
const DENSE: u64 = 8;

/// How much of a table changes.
#[derive(Debug, Clone, Copy)]
pub(in crate::disk) struct Share {
    pub(in crate::disk) changes: u64,
    /// How many entries the table has, and how long they are.
    pub(in crate::disk) entries: u64,
    pub(in crate::disk) bytes: u64,
}

impl Share {
    /// How many bytes have to change in a leaf for it to be written; none if all are, whatever changes.
    pub(super) fn bound(self, has_pending: bool) -> Option<usize> {
        let few = !has_pending && self.changes < CHANGES_MIN;
        if few || self.bytes < BYTES_MIN || self.changes > self.entries / DENSE {
            return None;
        }
        let share = self.changes as f64 / self.entries as f64;
        Some(((TARGET as f64 * (2.0 * share).sqrt()) as usize).max(TARGET / 32))
    }
}

/// Writes the leaves of a table in which much changes, and lets the other changes wait. `changes` gives them from the
/// beginning, each time.
pub(super) fn write<S: Source>(
    writer: &mut Writer<'_>,
    number: u64,
    (before, file): (Stored, &Arc<PageFile>),
    bound: usize,
    changes: impl Fn() -> S,
) -> Result<Option<Stored>> {
    let open = |tree| OpenTree::once(Arc::clone(file), number, tree).map(Arc::new);
    let pending = before.pending.map(open).transpose()?;
    let walk = || {
        pending.as_ref().and_then(|tree| Walk::new(Arc::clone(tree), None, Range::all(), Direction::Forward))
    };
    let mut choice = Choice { file, number, changes: changes(), pending: walk(), bound, ranges: Vec::new() };
    choice.below(before.entries.place, before.entries.height, &[], None)?;
    let ranges = choice.ranges;
    let mut due = Merged::new(Due { ranges: ranges.iter(), range: None }, changes(), walk());
    let entries = match due.peek()? {
        Some(_) => merge(writer, number, Some(before.entries), false, &mut due)?,
        None => Some(before.entries),
    };
    let mut waiting = Merged::new(Waiting { ranges: ranges.iter().peekable() }, changes(), walk());
    let pending = match waiting.peek()? {
        Some(_) => merge(writer, number, before.pending, true, &mut waiting)?,
        None => before.pending,
    };
    // Every change lies in the range of some leaf: where none is left, none waits.
    Ok(entries.map(|entries| Stored { entries, pending }))
}

/// Merges all that waits in a table, and other changes, with its entries.
pub(super) fn write_all(
    writer: &mut Writer<'_>,
    number: u64,
    (before, file): (Stored, &Arc<PageFile>),
    changes: &mut impl Source,
) -> Result<Option<Tree>> {
    let Some(pending) = before.pending else {
        return merge(writer, number, Some(before.entries), false, changes);
    };
    let tree = Arc::new(OpenTree::once(Arc::clone(file), number, pending)?);
    let walk = Walk::new(tree, None, Range::all(), Direction::Forward);
    let all = [Span { low: Vec::new(), upper: None }];
    let entries = merge(
        writer,
        number,
        Some(before.entries),
        false,
        &mut Merged::new(Due { ranges: all.iter(), range: None }, changes, walk),
    )?;
    Stored::of(pending).each_extent(file, number, &mut writer.freed)?;
    Ok(entries)
}

/// The keys from one on, and up to another that is no longer meant.
struct Span {
    low: Vec<u8>,
    upper: Option<Vec<u8>>,
}

impl Span {
    fn ends_behind(&self, key: &[u8]) -> bool {
        self.upper.as_ref().is_none_or(|upper| key < &**upper)
    }
}

/// The choice of the leaves to be written.
struct Choice<'a, S> {
    file: &'a PageFile,
    number: u64,
    changes: S,
    pending: Option<Walk>,
    bound: usize,
    /// What is chosen; leaves that lie side by side are one range.
    ranges: Vec<Span>,
}

impl<S: Source> Choice<'_, S> {
    /// Chooses below a page; `low` and `upper` are as in merging.
    fn below(&mut self, place: Place, height: u8, low: &[u8], upper: Option<&[u8]>) -> Result<()> {
        if height == 0 {
            return self.leaf(low, upper);
        }
        let (page, _) = self.file.page_once(self.number, place)?;
        if page.height() != height {
            return Err(self.file.damaged(self.number, place));
        }
        let mut next = page.key(0);
        for at in 0..page.len() {
            let key = std::mem::replace(&mut next, page.key(at + 1));
            let place = page.place(at).ok_or_else(|| self.file.damaged(self.number, place))?;
            let low = if at == 0 { low } else { &key };
            let upper = if at + 1 < page.len() { Some(&*next) } else { upper };
            if is_before(self.changes.peek()?, upper) {
                self.below(place, height - 1, low, upper)?;
            }
        }
        Ok(())
    }

    fn leaf(&mut self, low: &[u8], upper: Option<&[u8]>) -> Result<()> {
        let mut bytes = 0;
        // Behind the last leaf nothing is left to be looked at.
        while (upper.is_some() || bytes < self.bound) && is_before(self.changes.peek()?, upper) {
            if let Some((key, value)) = self.changes.take()? {
                bytes += key.len() + value.map_or(0, |value| value.len());
            }
        }
        if let (Some(pending), true) = (&mut self.pending, bytes < self.bound) {
            pending.seek(low)?;
            while bytes < self.bound
                && let Some(key) = pending.peek()?.filter(|key| is_before(Some(key), upper))
            {
                bytes += key.len();
                bytes += pending.value().len();
                pending.pass();
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

/// Whether there is a key, and it lies before a bound.
fn is_before(key: Option<&[u8]>, upper: Option<&[u8]>) -> bool {
    key.is_some_and(|key| upper.is_none_or(|upper| key < upper))
}

/// Where the next entry of a source is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Unknown,
    Change,
    Pending,
    Nowhere,
}

/// How changes are merged with those that have waited.
trait Way {
    /// Finds out where the next entry is, and passes what comes from neither.
    fn find(&mut self, changes: &mut impl Source, pending: &mut Option<Walk>) -> Result<Next>;

    /// What a change comes to.
    fn changed(value: Option<Value>) -> Option<Value>;

    /// What an entry that has waited comes to.
    fn waited(value: &[u8]) -> Option<Value>;
}

/// Changes and those that have waited, as one source.
struct Merged<W, S> {
    way: W,
    changes: S,
    pending: Option<Walk>,
    next: Next,
}

impl<W: Way, S: Source> Merged<W, S> {
    fn new(way: W, changes: S, pending: Option<Walk>) -> Self {
        Merged { way, changes, pending, next: Next::Unknown }
    }
}

impl<W: Way, S: Source> Source for Merged<W, S> {
    fn peek(&mut self) -> Result<Option<&[u8]>> {
        if self.next == Next::Unknown {
            self.next = self.way.find(&mut self.changes, &mut self.pending)?;
        }
        match (self.next, &mut self.pending) {
            (Next::Change, _) => self.changes.peek(),
            (Next::Pending, Some(pending)) => pending.peek(),
            _ => Ok(None),
        }
    }

    fn take(&mut self) -> Result<Option<(Key, Option<Value>)>> {
        self.peek()?;
        match (self.next, &mut self.pending) {
            (Next::Change, _) => {
                self.next = Next::Unknown;
                Ok(self.changes.take()?.map(|(key, value)| (key, W::changed(value))))
            }
            (Next::Pending, Some(pending)) => {
                self.next = Next::Unknown;
                let value = W::waited(pending.value());
                pending.pass();
                Ok(Some((Key::from(pending.passed()), value)))
            }
            _ => Ok(None),
        }
    }
}

/// What is merged with the entries: in some ranges what has waited, and on top of it what changes.
struct Due<'r> {
    ranges: std::slice::Iter<'r, Span>,
    range: Option<&'r Span>,
}

impl Way for Due<'_> {
    fn find(&mut self, changes: &mut impl Source, pending: &mut Option<Walk>) -> Result<Next> {
        loop {
            let Some(range) = self.range else {
                self.range = self.ranges.next();
                let Some(range) = self.range else { return Ok(Next::Nowhere) };
                while is_before(changes.peek()?, Some(&range.low)) {
                    changes.take()?;
                }
                if let Some(pending) = pending {
                    pending.seek(&range.low)?;
                }
                continue;
            };
            let change = changes.peek()?.filter(|key| range.ends_behind(key));
            let waiting = match pending {
                Some(pending) => pending.peek()?.filter(|key| range.ends_behind(key)),
                None => None,
            };
            match (change, waiting) {
                (None, None) => self.range = None,
                (Some(change), Some(waiting)) if waiting < change => return Ok(Next::Pending),
                (None, Some(_)) => return Ok(Next::Pending),
                (Some(change), waiting) => {
                    if waiting == Some(change)
                        && let Some(pending) = pending
                    {
                        pending.pass();
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
        value_pending(value).map(Value::from)
    }
}

/// What happens to the changes that wait: those outside of some ranges come to them, those within are gone.
struct Waiting<'r> {
    ranges: std::iter::Peekable<std::slice::Iter<'r, Span>>,
}

impl Way for Waiting<'_> {
    fn find(&mut self, changes: &mut impl Source, pending: &mut Option<Walk>) -> Result<Next> {
        loop {
            let change = changes.peek()?;
            let Some(range) = self.ranges.peek() else {
                return Ok(if change.is_some() { Next::Change } else { Next::Nowhere });
            };
            if change.is_some_and(|key| key < &*range.low) {
                return Ok(Next::Change);
            }
            if let Some(pending) = pending {
                pending.seek(&range.low)?;
                if pending.peek()?.is_some_and(|key| range.ends_behind(key)) {
                    return Ok(Next::Pending);
                }
            }
            // Behind the last range nothing waits.
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
        Some(Value::from(pending_value(value.as_deref())))
    }

    fn waited(_: &[u8]) -> Option<Value> {
        None
    }
}
