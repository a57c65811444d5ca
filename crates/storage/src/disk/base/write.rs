//! Checkpoints of the base: changed, new and deleted tables, then the superblock.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use super::delta::{self, Share};
use super::merge::{Source, Writer, merge};
use super::page::UNIT;
use super::superblock::Superblock;
use super::table::TableRoots;
use super::tree::{Tree, collect_extents};
use super::{Base, BaseCursor, Extent, FreeSpace, IDENTS_TABLE, SLOTS_UNITS, TABLES_TABLE, View};
use crate::disk::files::during;
use crate::{Direction, Error, Ident, Key, Range, Result, Value, mutant};

/// Writes tables, and collects the changes of the catalog trees.
pub(in crate::disk) struct Changes<'a> {
    writer: Writer<'a>,
    /// The base before the checkpoint.
    view: Arc<View>,
    /// Changed tables; `None` deletes one.
    tables: BTreeMap<u64, Option<TableRoots>>,
    /// Changed rows of the catalog tree of trees.
    idents: BTreeMap<u64, Option<[u64; 3]>>,
}

impl Changes<'_> {
    /// Merges changes into a table. Creates a missing table.
    pub(in crate::disk) fn merge(&mut self, number: u64, changes: &mut impl Source) -> Result<()> {
        debug_assert!(![IDENTS_TABLE, TABLES_TABLE].contains(&number), "{number} is a catalog tree");
        let after = match self.before(number)? {
            None => merge(&mut self.writer, number, None, false, changes)?,
            Some(before) => delta::write_all(&mut self.writer, number, (before, &self.view.file), changes)?,
        };
        self.tables.insert(number, after.map(TableRoots::of));
        Ok(())
    }

    /// Merges changes into a table, with the option to keep them pending. `changes` returns the changes from the start
    /// at each call.
    pub(in crate::disk) fn change<S: Source>(
        &mut self,
        number: u64,
        share: Share,
        changes: impl Fn() -> S,
    ) -> Result<()> {
        let before = self.before(number)?;
        let bound = before.and_then(|before| share.bound(before.delta.is_some()));
        let (Some(before), Some(bound)) = (before, bound) else { return self.merge(number, &mut changes()) };
        let source = (before, &self.view.file);
        let after = delta::write(&mut self.writer, number, source, bound, changes)?;
        debug_assert!(
            after.is_some() || before.delta.is_none(),
            "table {number} loses its entries, and its pending changes with them"
        );
        self.tables.insert(number, after);
        Ok(())
    }

    /// Returns the present roots of a table.
    fn before(&self, number: u64) -> Result<Option<TableRoots>> {
        match self.tables.get(&number) {
            Some(written) => Ok(*written),
            None => self.view.roots(number),
        }
    }

    /// Sets a tree's table, number of entries, and total length of keys and values; `None` removes the tree.
    pub(in crate::disk) fn note(&mut self, ident: Ident, row: Option<[u64; 3]>) {
        self.idents.insert(ident.0, row);
    }

    /// Deletes all tables except these, which change no more.
    pub(in crate::disk) fn retain_tables(&mut self, live: &BTreeSet<u64>) -> Result<()> {
        debug_assert!(
            self.tables.keys().all(|number| live.contains(number)),
            "the checkpoint writes a table that it deletes"
        );
        for (number, stored) in self.view.all_roots()? {
            if live.contains(&number) {
                continue;
            }
            let mut freed = Vec::new();
            if let Err(error) = stored.collect_extents(&self.view.file, number, &mut freed) {
                log::warn!("the space of unreadable pages is not reused yet: {error}");
            }
            self.writer.freed.append(&mut freed);
            self.tables.insert(number, None);
        }
        Ok(())
    }

    /// Writes the catalog trees.
    fn rows(&mut self) -> Result<(Option<Tree>, Option<Tree>)> {
        let tables = self.tables.iter().map(|(number, stored)| (*number, stored.map(TableRoots::encode)));
        let tables = Rows::new(tables);
        let idents = self
            .idents
            .iter()
            .map(|(ident, row)| (*ident, row.map(|row| row.map(u64::to_le_bytes).concat())));
        let idents = Rows::new(idents);
        let root = &self.view.root;
        Ok((
            tables.merge(&mut self.writer, TABLES_TABLE, root.tables)?,
            idents.merge(&mut self.writer, IDENTS_TABLE, root.idents)?,
        ))
    }
}

/// Entries of a catalog tree.
struct Rows(std::iter::Peekable<std::vec::IntoIter<(Key, Option<Value>)>>);

impl Rows {
    fn new(rows: impl Iterator<Item = (u64, Option<Vec<u8>>)>) -> Self {
        let rows: Vec<_> =
            rows.map(|(number, row)| (Key::from(number.to_be_bytes()), row.map(Value::from))).collect();
        debug_assert!(rows.is_sorted_by(|(a, _), (b, _)| a < b), "catalog rows are out of order");
        Rows(rows.into_iter().peekable())
    }

    /// Merges the rows into a catalog tree.
    fn merge(mut self, writer: &mut Writer<'_>, table: u64, tree: Option<Tree>) -> Result<Option<Tree>> {
        match self.0.len() {
            0 => Ok(tree),
            _ => merge(writer, table, tree, false, &mut self),
        }
    }
}

impl<S: Source> Source for &mut S {
    fn peek(&mut self) -> Result<Option<&[u8]>> {
        S::peek(self)
    }

    fn take(&mut self) -> Result<Option<(Key, Option<Value>)>> {
        S::take(self)
    }
}

impl Source for BaseCursor {
    fn peek(&mut self) -> Result<Option<&[u8]>> {
        BaseCursor::peek(self)
    }

    fn take(&mut self) -> Result<Option<(Key, Option<Value>)>> {
        Ok(self.next()?.map(|(key, value)| (Key::from(key), Some(Value::from(value)))))
    }
}

impl Source for Rows {
    fn peek(&mut self) -> Result<Option<&[u8]>> {
        Ok(self.0.peek().map(|(key, _)| &**key))
    }

    fn take(&mut self) -> Result<Option<(Key, Option<Value>)>> {
        Ok(self.0.next())
    }
}

/// Entries as changes of an empty table.
pub(in crate::disk) struct Copied<C> {
    cursor: C,
    next: Option<(Key, Value)>,
}

impl<C: crate::Cursor> Copied<C> {
    pub(in crate::disk) fn new(cursor: C) -> Self {
        Copied { cursor, next: None }
    }

    /// Reads one entry ahead.
    fn fill(&mut self) -> Result<()> {
        if self.next.is_none() {
            self.next = self.cursor.next()?.map(|(key, value)| (Key::from(key), value.to_value()));
        }
        Ok(())
    }
}

impl<C: crate::Cursor> Source for Copied<C> {
    fn peek(&mut self) -> Result<Option<&[u8]>> {
        self.fill()?;
        Ok(self.next.as_ref().map(|(key, _)| &**key))
    }

    fn take(&mut self) -> Result<Option<(Key, Option<Value>)>> {
        self.fill()?;
        Ok(self.next.take().map(|(key, value)| (key, Some(value))))
    }
}

/// Numbers that a checkpoint stores in the base.
#[derive(Debug, Clone, Copy)]
pub(in crate::disk) struct Numbers {
    pub(in crate::disk) position: u64,
    pub(in crate::disk) time: u64,
    pub(in crate::disk) next_table: u64,
}

impl Base {
    /// Returns the free space, computed if unknown. If an inner page is unreadable, only the space after all pages
    /// counts as free.
    pub(super) fn free_space(&mut self) -> &mut FreeSpace {
        let view = Arc::clone(&self.current);
        self.free_space.get_or_insert_with(|| match view.extents() {
            Ok(used) => match FreeSpace::around(SLOTS_UNITS, used, view.root.end) {
                Ok(free_space) => free_space,
                Err(error) => unknown(&error, &view),
            },
            Err(error) => unknown(&error, &view),
        })
    }

    /// Returns the approximate number of live bytes in the file.
    pub(in crate::disk) fn live_bytes(&mut self) -> u64 {
        let oldest = self.oldest();
        let free_space = self.free_space();
        free_space.free_before(oldest);
        free_space.live() * UNIT as u64
    }

    /// Returns the oldest state in use by a reader.
    fn oldest(&mut self) -> u64 {
        self.views.retain(|view| view.strong_count() > 0);
        let alive = self.views.iter().filter_map(std::sync::Weak::upgrade);
        let oldest = alive.map(|view| view.root.sequence).min().unwrap_or(self.current.root.sequence);
        debug_assert!(oldest <= self.current.root.sequence, "a view is newer than the base");
        oldest
    }

    /// Makes a checkpoint: applies `change` to the tables, durably and atomically. A failure changes nothing, but its
    /// data may be found after a crash.
    pub(in crate::disk) fn checkpoint(
        &mut self,
        numbers: Numbers,
        should_continue: &dyn Fn() -> bool,
        change: impl FnOnce(&mut Changes<'_>) -> Result<()>,
    ) -> Result<()> {
        let oldest = self.oldest();
        self.free_space().free_before(oldest);
        self.assert_follows(numbers);
        let live = if cfg!(debug_assertions) { self.free_space().live() } else { 0 };
        let Some(mut free_space) = self.free_space.take() else { return Err(Error::Closed) };
        let view = Arc::clone(&self.current);
        let control = Arc::clone(&self.control);
        let writer = Writer::new(&view.file, &mut free_space, &control, self.compression, should_continue);
        let mut changes =
            Changes { writer, view: Arc::clone(&view), tables: BTreeMap::new(), idents: BTreeMap::new() };
        let written = change(&mut changes).and_then(|()| changes.rows()).and_then(|rows| {
            changes.writer.flush()?;
            Ok(rows)
        });
        debug_assert!(
            written.is_err() || changes.tables.keys().all(|number| *number < numbers.next_table),
            "a new table has the number of a later one"
        );
        let (allocated, freed) = (changes.writer.allocated, changes.writer.freed);
        debug_assert!(are_apart(&allocated, &freed), "two written or freed pages overlap");
        let ended = written.and_then(|(tables, idents)| {
            free_space.shrink();
            let sequence = view.root.sequence + 1 + u64::from(!self.uncertain.is_empty()) * 2;
            let Numbers { position, time, next_table } = numbers;
            let root =
                Superblock { sequence, position, time, next_table, end: free_space.end(), idents, tables };
            debug_assert!(root.sequence > view.root.sequence);
            debug_assert_ne!(
                root.sequence % 2,
                view.root.sequence % 2,
                "the latest superblock is overwritten"
            );
            let file = &view.file.file;
            if !mutant!("pages are not synced before their superblock") {
                file.sync().map_err(|error| during("syncing", &self.path, error))?;
            }
            Ok(root)
        });
        let root = match ended {
            Ok(root) => root,
            Err(error) => {
                allocated.into_iter().for_each(|extent| free_space.free(extent));
                debug_assert_eq!(free_space.live(), live, "a failed checkpoint has changed the space in use");
                free_space.shrink();
                self.free_space = Some(free_space);
                return Err(error);
            }
        };
        let file = &view.file.file;
        let ended = control.with_space(|| root.write(&**file)).and_then(|()| file.sync());
        if let Err(error) = ended {
            // The superblock may or may not be on disk. Its pages must stay unchanged until another superblock replaces
            // it.
            self.uncertain.extend(allocated);
            self.free_space = Some(free_space);
            return Err(during("writing the superblock of", &self.path, error));
        }
        debug_assert!(
            allocated.iter().all(|extent| extent.offset + extent.units <= root.end),
            "beyond the end"
        );
        debug_assert!(
            are_apart(&allocated, &self.uncertain),
            "a page of an uncertain checkpoint was overwritten"
        );
        let freed_units = units_of(&freed) + units_of(&self.uncertain);
        let live = (live + units_of(&allocated)).wrapping_sub(freed_units);
        std::mem::take(&mut self.uncertain).into_iter().for_each(|extent| free_space.free(extent));
        // Only readers of earlier views may read these pages again, so they leave the cache.
        freed.iter().for_each(|extent| view.file.forget(extent.offset));
        free_space.free_later(root.sequence, freed);
        debug_assert_eq!(free_space.live(), live, "the space in use differs from the written pages");
        free_space.assert_valid();
        let end = root.end * UNIT as u64;
        if file.len().is_ok_and(|len| len > end) {
            // Space after the end is only unused.
            let _ = file.set_len(end);
        }
        self.free_space = Some(free_space);
        self.show(View { file: Arc::clone(&view.file), root, tables: parking_lot::RwLock::default() });
        Ok(())
    }

    /// Copies everything into an empty base.
    pub(in crate::disk) fn copy_to(&self, copy: &mut Base, should_continue: &dyn Fn() -> bool) -> Result<()> {
        let Superblock { position, time, next_table, .. } = self.current.root;
        copy.checkpoint(Numbers { position, time, next_table }, should_continue, |changes| {
            for (number, _) in self.current.all_roots()? {
                if let Some(mut cursor) = self.current.scan(number, Range::all(), Direction::Forward)? {
                    changes.merge(number, &mut cursor)?;
                }
            }
            for (ident, table) in self.current.trees()? {
                changes.note(ident, Some([table.base, table.entries, table.bytes]));
            }
            Ok(())
        })
    }

    /// Opens a file that will replace this one.
    pub(in crate::disk) fn open_view(&self, path: &Path) -> Result<View> {
        View::open(&*self.files, (path, &self.path), &self.cache, &self.reuse)
    }

    /// Switches to a file that has taken this one's name. Existing readers keep this file.
    pub(in crate::disk) fn switch_to_file(&mut self, view: View) {
        let (new, old) = (&view.root, &self.current.root);
        debug_assert_eq!((new.position, new.time), (old.position, old.time), "the copy is of another state");
        debug_assert_eq!(new.next_table, old.next_table, "the copy would give a table's number again");
        self.free_space = None;
        self.uncertain.clear();
        self.views.clear();
        self.current.file.forget_all();
        self.named = false;
        self.show(view);
    }

    /// Asserts that a checkpoint is not older than the base. Equal numbers are a repeated checkpoint.
    fn assert_follows(&self, numbers: Numbers) {
        let root = &self.current.root;
        debug_assert!(numbers.position >= root.position, "{numbers:?} after {root:?}");
        debug_assert!(numbers.time >= root.time, "{numbers:?} after {root:?}");
        debug_assert!(numbers.next_table >= root.next_table, "{numbers:?} after {root:?}");
    }

    /// Makes a view the current one.
    fn show(&mut self, view: View) {
        self.current = Arc::new(view);
        self.views.retain(|view| view.strong_count() > 0);
        self.views.push(Arc::downgrade(&self.current));
    }

    /// Ensures that the base's name durably refers to the open file. Before that no checkpoint may remove journal
    /// segments.
    pub(in crate::disk) fn sync_name(&mut self) -> Result<()> {
        if let (false, Some(directory)) = (self.named, self.path.parent()) {
            let synced = self.files.sync_directory(directory);
            synced.map_err(|error| during("syncing", directory, error))?;
        }
        self.named = true;
        Ok(())
    }
}

/// Returns true if no two extents of both lists overlap.
fn are_apart(some: &[Extent], others: &[Extent]) -> bool {
    let mut all: Vec<Extent> = some.iter().chain(others).copied().collect();
    all.sort_unstable();
    all.is_sorted_by(|a, b| a.offset + a.units <= b.offset)
}

/// Returns the total length of extents.
fn units_of(extents: &[Extent]) -> u64 {
    extents.iter().map(|extent| extent.units).sum()
}

/// Returns the state without free space, after an unreadable inner page. The file then only grows.
fn unknown(error: &Error, view: &View) -> FreeSpace {
    log::warn!("free space of the base is not reused: {error}");
    FreeSpace::full(view.root.end)
}

impl View {
    /// Returns the extents of all pages.
    pub(super) fn extents(&self) -> Result<Vec<Extent>> {
        let mut used = Vec::new();
        for (table, tree) in [(IDENTS_TABLE, self.root.idents), (TABLES_TABLE, self.root.tables)] {
            if let Some(tree) = tree {
                collect_extents(&self.file, table, tree, &mut used)?;
            }
        }
        for (number, stored) in self.all_roots()? {
            stored.collect_extents(&self.file, number, &mut used)?;
        }
        Ok(used)
    }
}
