//! Copy-on-write merge of a tree with sorted changes.
//!
//! Unchanged pages stay in place. The entries of adjacent changed leaves form a run, which is divided evenly into new
//! pages. Pages are therefore neither small nor large, whatever their earlier sizes. A small run includes the next
//! leaf. The same happens at each level up to the root. No existing page is overwritten, so the previous tree remains
//! readable for its readers.
//!
//! The module also builds pages from sorted entries.

use super::cache::PageFile;
use super::free_space::{Extent, FreeSpace};
use super::page::{Framer, Page, PageHandle, UNIT};
use super::superblock::SLOTS_UNITS;
use super::tree::Tree;
use crate::disk::files::{Control, during};
use crate::{Compression, Error, Key, Result, Value};

/// Target length of an uncompressed page. Tests use many small pages.
pub(super) const PAGE_TARGET: usize = if cfg!(test) { 1 << 10 } else { 8 << 10 };
/// Maximum length of a page, except for a single long entry.
const PAGE_MAX: usize = PAGE_TARGET + PAGE_TARGET / 2;
/// Length below which a page absorbs the next one.
const PAGE_MIN: usize = PAGE_TARGET / 4;
/// Minimum number of entries of an inner page, if as many exist, whatever their lengths.
const CHILDREN_MIN: usize = 4;
/// Number of bytes collected for one write.
const WRITE_BYTES: usize = 1 << 20;

/// Changes in key order.
pub(in crate::disk) trait Source {
    /// Returns the next changed key.
    fn peek(&mut self) -> Result<Option<&[u8]>>;

    /// Returns that key and its new value; `None` deletes it.
    fn take(&mut self) -> Result<Option<(Key, Option<Value>)>>;
}

/// Writes pages into free space.
pub(super) struct Writer<'a> {
    pub(super) file: &'a PageFile,
    pub(super) free_space: &'a mut FreeSpace,
    control: &'a Control,
    framer: Framer,
    /// Extents of the written pages.
    pub(super) allocated: Vec<Extent>,
    /// Extents that the new state does not need.
    pub(super) freed: Vec<Extent>,
    /// Bytes for adjacent pages in the file, with their offset.
    pending: Vec<u8>,
    /// Offset of `pending` in the file, in units.
    pending_at: u64,
    /// Cancellation check, called at intervals.
    should_continue: &'a dyn Fn() -> bool,
}

impl<'a> Writer<'a> {
    pub(super) fn new(
        file: &'a PageFile,
        free_space: &'a mut FreeSpace,
        control: &'a Control,
        compression: Compression,
        should_continue: &'a dyn Fn() -> bool,
    ) -> Self {
        free_space.rewind();
        let (allocated, freed, pending) = (Vec::new(), Vec::new(), Vec::new());
        let framer = Framer::new(compression);
        Writer {
            file,
            free_space,
            control,
            framer,
            allocated,
            freed,
            pending,
            pending_at: 0,
            should_continue,
        }
    }

    /// Allocates space for a page and adds it to the pending write. `keep` puts it into the cache.
    fn write(&mut self, page: &[u8], cache: bool) -> Result<PageHandle> {
        let sum = self.framer.frame(page);
        let units = (self.framer.framed().len() / UNIT) as u32;
        debug_assert!(units > 0, "a page takes no space");
        let offset = self.free_space.allocate(units);
        debug_assert!(offset >= SLOTS_UNITS, "a page at unit {offset} overwrites the superblocks");
        self.allocated.push(Extent { offset, units: u64::from(units) });
        if self.pending_at + (self.pending.len() / UNIT) as u64 != offset || self.pending.len() > WRITE_BYTES
        {
            self.flush()?;
            self.pending_at = offset;
        }
        self.pending.extend_from_slice(self.framer.framed());
        self.file.note(offset, cache.then(|| Page::read(page.into())).flatten());
        Ok(PageHandle { offset, units, sum })
    }

    /// Writes the collected pages.
    pub(super) fn flush(&mut self) -> Result<()> {
        if !(self.should_continue)() {
            return Err(Error::Closed);
        }
        let (file, at) = (&self.file.file, self.pending_at * UNIT as u64);
        let pending = std::mem::take(&mut self.pending);
        debug_assert!(pending.len().is_multiple_of(UNIT), "{} bytes are no whole pages", pending.len());
        debug_assert!(
            self.pending_at + (pending.len() / UNIT) as u64 <= self.free_space.end(),
            "a write ends behind the file"
        );
        if !pending.is_empty() {
            let written = self.control.with_space(|| file.write_at(&pending, at));
            written.map_err(|error| during("writing", self.file.path(), error))?;
        }
        self.pending = pending;
        self.pending.clear();
        Ok(())
    }

    /// Records that the new state does not need a page.
    pub(super) fn free(&mut self, handle: PageHandle) {
        debug_assert!(
            handle.offset >= SLOTS_UNITS && handle.offset + u64::from(handle.units) <= self.free_space.end(),
            "a freed page is outside of the pages: {handle:?}"
        );
        self.freed.push(Extent { offset: handle.offset, units: u64::from(handle.units) });
    }
}

/// A tree being written.
struct Merge<'w, 'a> {
    writer: &'w mut Writer<'a>,
    table: u64,
    /// Entries waiting for pages, by height.
    levels: Vec<Run>,
    /// Lower bound of keys in the next leaf, if it is the first of a run.
    low: Option<Vec<u8>>,
    /// Key before the first remaining entry of the run.
    before: Vec<u8>,
    /// True to keep the leaves of the run, or all leaves, in memory.
    cache: bool,
    /// True to keep all written leaves in memory.
    cache_all: bool,
    /// Number of entries of the new tree so far.
    entries: u64,
    /// Buffer of the page under construction.
    page: Vec<u8>,
}

/// Merges changes into a tree and returns the new tree; `None` if it is empty. Written leaves stay in memory if their
/// predecessors were in memory, or with `keep_all`.
pub(super) fn merge(
    writer: &mut Writer<'_>,
    table: u64,
    tree: Option<Tree>,
    cache_all: bool,
    changes: &mut impl Source,
) -> Result<Option<Tree>> {
    let entries = tree.map_or(0, |tree| tree.entries);
    let (levels, before) = (vec![Run::default()], Vec::new());
    let page = Vec::new();
    writer.framer.begin();
    let mut merge =
        Merge { writer, table, levels, low: None, before, cache: false, cache_all, entries, page };
    match tree {
        Some(tree) => merge.page(tree.handle, tree.height, &[], None, changes)?,
        None => {
            while changes.peek()?.is_some() {
                merge.change(changes)?;
            }
        }
    }
    merge.finish()
}

impl Merge<'_, '_> {
    /// Returns true if the next change is before a key.
    fn is_due(upper: Option<&[u8]>, changes: &mut impl Source) -> Result<bool> {
        Ok(changes.peek()?.is_some_and(|key| upper.is_none_or(|upper| key < upper)))
    }

    /// Merges the changes below a page. `low` is the smallest key that may be below it, `upper` the first key that may
    /// not.
    fn page(
        &mut self,
        handle: PageHandle,
        height: u8,
        low: &[u8],
        upper: Option<&[u8]>,
        changes: &mut impl Source,
    ) -> Result<()> {
        let page = self.open(handle, height, low)?;
        if height == 0 {
            return self.leaf(&page, upper, changes);
        }
        let keys: Vec<Vec<u8>> = (0..page.len()).map(|at| page.key(at)).collect();
        for (at, key) in keys.iter().enumerate() {
            let handle = page.handle(at).ok_or_else(|| self.writer.file.damaged(self.table, handle))?;
            let low = if at == 0 { low } else { key };
            let upper = keys.get(at + 1).map(Vec::as_slice).or(upper);
            match Self::is_due(upper, changes)? {
                true => self.page(handle, height - 1, low, upper, changes)?,
                false => self.keep_subtree(handle, height - 1, low)?,
            }
        }
        Ok(())
    }

    /// Merges the changes of a leaf with its entries.
    fn leaf(&mut self, page: &Page, upper: Option<&[u8]>, changes: &mut impl Source) -> Result<()> {
        let mut at = 0;
        while let Some(key) = changes.peek()?.filter(|key| upper.is_none_or(|upper| *key < upper)) {
            let found = page.find(key);
            let index = found.unwrap_or_else(|index| index);
            debug_assert!(at <= index, "a change is before the one that was merged");
            self.copy(page, at..index)?;
            debug_assert!(self.entries > 0 || found.is_err(), "the tree has more entries than it counts");
            self.entries -= u64::from(found.is_ok());
            at = index + usize::from(found.is_ok());
            self.change(changes)?;
        }
        self.copy(page, at..page.len())
    }

    /// Copies entries of a leaf unchanged.
    fn copy(&mut self, page: &Page, entries: std::ops::Range<usize>) -> Result<()> {
        for at in entries {
            if let Some(run) = self.levels.first_mut() {
                run.push(page.prefix(), page.rest(at), page.value(at));
            }
            self.emit_if_full(0)?;
        }
        Ok(())
    }

    /// Reads a page that will be replaced.
    fn open(&mut self, handle: PageHandle, height: u8, low: &[u8]) -> Result<std::sync::Arc<Page>> {
        let (page, was_cached) = self.writer.file.page_once(self.table, handle)?;
        if page.height() != height {
            return Err(self.writer.file.damaged(self.table, handle));
        }
        self.writer.free(handle);
        if height == 0 {
            self.cache |= was_cached;
            if self.low.is_none() && self.levels.first().is_none_or(Run::is_empty) && self.before.is_empty() {
                self.low = Some(low.to_vec());
            }
        }
        Ok(page)
    }

    /// Adds the next change.
    fn change(&mut self, changes: &mut impl Source) -> Result<()> {
        if let Some((key, Some(value))) = changes.take()? {
            self.entries += 1;
            self.push(0, &key, &value)?;
        }
        Ok(())
    }

    /// Keeps a page and its subtree in place, unless the run before it is so small that it absorbs the page.
    fn keep_subtree(&mut self, handle: PageHandle, height: u8, low: &[u8]) -> Result<()> {
        let level = usize::from(height);
        if let Some(below) = level.checked_sub(1) {
            self.flush(below)?;
        }
        let small = self.levels.get(level).is_some_and(|run| !run.is_empty() && run.size() < PAGE_MIN);
        if small {
            let page = self.open(handle, height, low)?;
            for at in 0..page.len() {
                // The first child of a page may have keys down to the lower bound of the page.
                let key = if at == 0 && level > 0 { low.to_vec() } else { page.key(at) };
                self.push(level, &key, page.value(at))?;
            }
            return Ok(());
        }
        self.flush(level)?;
        self.push(level + 1, low, &handle.encode())
    }

    /// Adds an entry to a level, and cuts a page when the level is long enough.
    fn push(&mut self, level: usize, key: &[u8], value: &[u8]) -> Result<()> {
        if level >= self.levels.len() {
            self.levels.resize_with(level + 1, Run::default);
        }
        if let Some(run) = self.levels.get_mut(level) {
            debug_assert!(
                run.last_key().is_none_or(|last| last < key),
                "keys of height {level} are out of order"
            );
            run.push(&[], key, value);
        }
        self.emit_if_full(level)
    }

    /// Makes a page of the first entries of a level, if they suffice for more than one. Long keys fill an inner page
    /// with few children, and the height must still be logarithmic.
    fn emit_if_full(&mut self, level: usize) -> Result<()> {
        let is_full =
            |run: &Run| run.size() >= PAGE_TARGET + PAGE_MAX && (level == 0 || run.len() >= CHILDREN_MIN);
        match self.levels.get(level).is_some_and(is_full) {
            true => self.emit(level, PAGE_TARGET),
            false => Ok(()),
        }
    }

    /// Puts all entries of a level and of lower levels into pages.
    fn flush(&mut self, level: usize) -> Result<()> {
        for level in 0..=level {
            while let Some(run) = self.levels.get(level)
                && !run.is_empty()
            {
                let size = run.size();
                self.emit(level, if size <= PAGE_MAX { size } else { PAGE_TARGET.min(size / 2) })?;
            }
        }
        debug_assert!(
            self.levels.iter().take(level + 1).all(Run::is_empty),
            "entries up to height {level} are in no page"
        );
        (self.low, self.cache) = (None, false);
        self.before.clear();
        Ok(())
    }

    /// Puts the first entries of a level into a page of about this size, and adds the page to the next level.
    fn emit(&mut self, level: usize, target: usize) -> Result<()> {
        let Some(run) = self.levels.get_mut(level) else { return Ok(()) };
        let minimum = if level == 0 { 1 } else { CHILDREN_MIN.min(run.len()) };
        let (mut count, mut size) = (0, 0);
        while count < run.len() {
            let next = run.entry_size(count);
            if count >= minimum && (size >= target || size + next > PAGE_MAX) {
                break;
            }
            (count, size) = (count + 1, size + next);
        }
        // The remaining entries would be too few for a page.
        if level > 0 && run.len() - count < CHILDREN_MIN {
            count = run.len();
        }
        debug_assert!(count > 0 && count <= run.len(), "a page of {count} of {} entries", run.len());
        debug_assert!(
            size <= PAGE_MAX || count <= minimum || count == run.len(),
            "{size} bytes in {count} entries"
        );
        let first = run.entry(0).0;
        let key = match (level, self.low.take()) {
            (0, Some(low)) => low,
            (0, None) => between(&self.before, first).to_vec(),
            (_, low) => {
                self.low = low;
                first.to_vec()
            }
        };
        debug_assert!(*key <= *first, "the bound of a page is greater than its first key");
        if level == 0 {
            debug_assert!(
                self.before.is_empty() || *self.before < *key,
                "the bound of a page is not greater than the page before"
            );
            self.before.clear();
            self.before.extend_from_slice(run.entry(count - 1).0);
        }
        run.take(count, level as u8, &mut self.page);
        let handle = self.writer.write(&self.page, self.cache || self.cache_all || level > 0)?;
        self.push(level + 1, &key, &handle.encode())
    }

    /// Puts everything into pages up to a single root.
    fn finish(mut self) -> Result<Option<Tree>> {
        let mut level = 0;
        loop {
            let is_top = self.levels.iter().skip(level + 1).all(Run::is_empty);
            let run = self.levels.get(level);
            match run.map_or(0, Run::len) {
                0 if is_top => {
                    debug_assert_eq!(self.entries, 0, "a tree without pages counts entries");
                    return Ok(None);
                }
                1 if is_top && level > 0 => {
                    let handle = run.and_then(|run| PageHandle::decode(run.entry(0).1));
                    let height = level as u8 - 1;
                    debug_assert!(self.entries > 0, "a tree with pages counts no entry");
                    let tree = handle.map(|handle| Tree { handle, height, entries: self.entries });
                    return Ok(tree);
                }
                _ => {}
            }
            self.flush(level)?;
            level += 1;
        }
    }
}

/// Encodes a number in groups of seven bits, the lowest first.
fn push_number(mut number: usize, bytes: &mut Vec<u8>) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Number of consumed bytes after which the remaining ones move to the front.
const CONSUMED_MAX: usize = 64 << 10;

/// Sorted entries, to be put into pages.
#[derive(Debug, Default)]
pub(super) struct Run {
    /// Keys and values in sequence.
    bytes: Vec<u8>,
    /// End of each key and of its value.
    ends: Vec<(usize, usize)>,
    /// Number of entries that are already in pages.
    consumed: usize,
}

impl Run {
    /// Adds an entry with its key in two parts.
    pub(super) fn push(&mut self, prefix: &[u8], rest: &[u8], value: &[u8]) {
        debug_assert_eq!(self.begin(self.ends.len()), self.bytes.len(), "the last entry ends elsewhere");
        self.bytes.extend_from_slice(prefix);
        self.bytes.extend_from_slice(rest);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, self.bytes.len()));
    }

    /// Returns the number of remaining entries.
    pub(super) fn len(&self) -> usize {
        self.ends.len() - self.consumed
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the offset of an entry, by index among all entries.
    fn begin(&self, at: usize) -> usize {
        at.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |ends| ends.1)
    }

    /// Returns the total length of the remaining entries, with their overhead in a page.
    pub(super) fn size(&self) -> usize {
        self.bytes.len() - self.begin(self.consumed) + 2 * self.len()
    }

    /// Returns the length of a remaining entry by index.
    pub(super) fn entry_size(&self, at: usize) -> usize {
        self.begin(self.consumed + at + 1) - self.begin(self.consumed + at) + 2
    }

    /// Returns a remaining entry by index.
    pub(super) fn entry(&self, at: usize) -> (&[u8], &[u8]) {
        let at = self.consumed + at;
        let Some((key_end, end)) = self.ends.get(at) else { return (&[], &[]) };
        let key = self.bytes.get(self.begin(at)..*key_end).unwrap_or_default();
        (key, self.bytes.get(*key_end..*end).unwrap_or_default())
    }

    /// Returns the greatest remaining key.
    fn last_key(&self) -> Option<&[u8]> {
        self.len().checked_sub(1).map(|last| self.entry(last).0)
    }

    /// Makes a page of the first remaining entries, replacing the contents of `page`, and removes them.
    pub(super) fn take(&mut self, count: usize, height: u8, page: &mut Vec<u8>) {
        let (first, last) = (self.entry(0).0, self.entry(count.saturating_sub(1)).0);
        let prefix = common(first, last);
        debug_assert!(count > 0 && count <= self.len(), "{count} of {} entries", self.len());
        page.clear();
        page.push(height);
        push_number(count, page);
        push_number(prefix, page);
        page.extend(first.iter().take(prefix));
        for at in 0..count {
            let (key, value) = self.entry(at);
            debug_assert!(key.get(..prefix) == first.get(..prefix), "a key lacks the prefix of its page");
            debug_assert!(at == 0 || self.entry(at - 1).0 < key, "the keys of a page are out of order");
            push_number(key.len() - prefix, page);
            push_number(value.len(), page);
        }
        for at in 0..count {
            let (key, value) = self.entry(at);
            page.extend_from_slice(key.get(prefix..).unwrap_or_default());
            page.extend_from_slice(value);
        }
        self.consumed += count;
        if self.consumed == self.ends.len() {
            (self.consumed, self.bytes, self.ends) = (0, cleared(&mut self.bytes), cleared(&mut self.ends));
        } else if let front = self.begin(self.consumed)
            && front > CONSUMED_MAX
        {
            self.bytes.drain(..front);
            self.ends.drain(..self.consumed);
            self.ends.iter_mut().for_each(|ends| *ends = (ends.0 - front, ends.1 - front));
            self.consumed = 0;
        }
        debug_assert_eq!(self.begin(self.ends.len()), self.bytes.len(), "the last entry ends elsewhere");
    }
}

/// Returns an empty vector that reuses memory, unless that is large.
fn cleared<T>(used: &mut Vec<T>) -> Vec<T> {
    let mut used = std::mem::take(used);
    used.clear();
    used.shrink_to(1 << 16);
    used
}

/// Returns the length of the common prefix of two keys.
fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Returns the shortest key that is greater than `before` and not greater than `next`.
pub(super) fn between<'a>(before: &[u8], next: &'a [u8]) -> &'a [u8] {
    debug_assert!(before < next || before.is_empty(), "no key is between {before:?} and {next:?}");
    next.get(..common(before, next) + 1).unwrap_or(next)
}

#[cfg(test)]
mod tests {
    use super::super::page::Page;
    use super::*;

    #[test]
    fn a_run_gives_its_entries_away_in_parts() {
        let mut run = Run::default();
        (0..10_000u32).for_each(|number| run.push(&[], &number.to_be_bytes(), &number.to_le_bytes()));
        let mut next = 0u32;
        while !run.is_empty() {
            let count = run.len().min(37);
            assert_eq!(run.size(), run.len() * 10);
            let mut page = vec![9; 9];
            run.take(count, 0, &mut page);
            let page = Page::read(page.into()).unwrap();
            for at in 0..count {
                assert_eq!(
                    (page.key(at), page.value(at)),
                    (next.to_be_bytes().to_vec(), &next.to_le_bytes()[..])
                );
                next += 1;
            }
        }
        assert_eq!(next, 10_000);
    }

    #[test]
    fn separators_of_pages_are_short() {
        assert_eq!(between(b"apple", b"banana"), b"b");
        assert_eq!(between(b"abc", b"abcd"), b"abcd");
        assert_eq!(between(b"abc", b"abd"), b"abd");
        assert_eq!(between(b"", b"x"), b"x");
    }
}
