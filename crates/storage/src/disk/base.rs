//! The base (page store): the state at the latest checkpoint, in a file of pages.
//!
//! The base has a table for each non-empty tree, with its own number. A tree that is emptied or recreated gets another
//! table. Forks share a table until they differ. Two more trees, the catalog trees, hold the table and counts of each
//! tree, and the roots of each table. A checkpoint writes changes into free space ([`merge`]), then a superblock that
//! refers to them ([`superblock`]). A state stays readable while its [`View`] exists, and a crash leaves the previous
//! or the new state.

mod cache;
mod check;
mod delta;
mod free_space;
mod merge;
mod page;
mod superblock;
mod table;
#[cfg(test)]
mod tests;
mod tree;
mod write;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use foldhash::fast::FixedState;
use parking_lot::RwLock;

use super::files::{Control, Files, during};
use super::reuse::Reuse;
use super::state::Table;
use crate::{Compression, Direction, Error, Ident, Range, Result, Value};
use cache::{PageCache, PageFile};
use free_space::{Extent, FreeSpace};
use superblock::{SLOTS_UNITS, Superblock};
use table::{OpenTable, TableRoots};
use tree::{OpenTree, Tree, Walk};

pub(super) use cache::CacheCounts;
pub(super) use check::TableItem;
pub(super) use delta::Share;
pub(super) use merge::Source;
#[cfg(any(test, debug_assertions, feature = "testing"))]
pub(crate) use page::{entries, framed};
pub(super) use table::BaseCursor;
pub(super) use write::{Changes, Copied, Numbers};

/// Numbers of the catalog trees in messages.
const IDENTS_TABLE: u64 = 0;
const TABLES_TABLE: u64 = u64::MAX;

/// Returns the name of a tree's table for messages.
pub(super) fn table_name(number: u64) -> String {
    match number {
        IDENTS_TABLE => "idents".to_owned(),
        TABLES_TABLE => "tables".to_owned(),
        number => format!("t{number}"),
    }
}

/// The open file of the base, for its writer.
pub(super) struct Base {
    pub(super) files: Arc<dyn Files>,
    pub(super) path: PathBuf,
    control: Arc<Control>,
    pub(super) compression: Compression,
    cache: Arc<PageCache>,
    /// Reuse statistics of the pages read.
    pub(super) reuse: Arc<Reuse>,
    current: Arc<View>,
    /// The free space, computed at its first use.
    free_space: Option<FreeSpace>,
    /// The views in use.
    views: Vec<Weak<View>>,
    /// Extents of a checkpoint that may or may not survive a crash.
    uncertain: Vec<Extent>,
    /// True if the file's name is known to be durable.
    named: bool,
}

/// Contents of the base at its opening.
pub(super) struct Loaded {
    pub(super) view: Arc<View>,
    pub(super) position: u64,
    pub(super) time: u64,
    pub(super) next_table: u64,
    pub(super) trees: Vec<(Ident, Table)>,
}

/// Returns the position of the latest commit in a base; `None` if there is no undamaged one.
pub(super) fn position(files: &dyn Files, path: &Path) -> Option<u64> {
    let file = files.open(path, false).ok()?;
    Superblock::read(&*file, path).ok().map(|superblock| superblock.position)
}

/// Creates an empty base, durably. Overwrites the remains of an earlier attempt.
pub(super) fn make(files: &dyn Files, path: &Path) -> Result<()> {
    let make = || {
        let file = files.open(path, true)?;
        file.set_len(0)?;
        file.set_len(SLOTS_UNITS * page::UNIT as u64)?;
        let empty = Superblock { sequence: 1, next_table: 1, end: SLOTS_UNITS, ..Superblock::default() };
        empty.write(&*file)?;
        file.sync()?;
        path.parent().map_or(Ok(()), |parent| files.sync_directory(parent))
    };
    make().map_err(|error| during("making", path, error))
}

impl Base {
    /// Opens the file without writing.
    pub(super) fn open(
        files: Arc<dyn Files>,
        path: PathBuf,
        cache_bytes: u64,
        compression: Compression,
        control: Arc<Control>,
    ) -> Result<Self> {
        let cache = Arc::new(PageCache::new(cache_bytes));
        let reuse = Arc::new(Reuse::default());
        let current = Arc::new(View::open(&*files, (&path, &path), &cache, &reuse)?);
        let views = vec![Arc::downgrade(&current)];
        let (free_space, uncertain) = (None, Vec::new());
        Ok(Base {
            files,
            path,
            control,
            compression,
            cache,
            reuse,
            current,
            free_space,
            views,
            uncertain,
            named: true,
        })
    }

    /// Syncs the file and its name. An ended process may have left writes in the system's cache only, and a checkpoint
    /// overwrites what the superblock on disk refers to.
    pub(super) fn sync(&self) -> Result<()> {
        let synced = self.current.file.file.sync();
        synced.map_err(|error| during("syncing", &self.path, error))?;
        self.path.parent().map_or(Ok(()), |directory| self.files.sync_names(directory))
    }

    /// Restricts readers to pages in memory.
    pub(super) fn close(&mut self) {
        self.current.file.close();
    }

    /// Returns the length of the file.
    pub(super) fn file_bytes(&self) -> u64 {
        self.current.file.file.len().unwrap_or_default()
    }

    /// Returns the counters of the cache.
    pub(super) fn cache(&self) -> CacheCounts {
        self.cache.counts()
    }

    /// Returns the state after the latest checkpoint, shared by readers.
    pub(super) fn view(&self) -> Arc<View> {
        Arc::clone(&self.current)
    }

    /// Reads the contents.
    pub(super) fn load(&self) -> Result<Loaded> {
        let Superblock { position, time, next_table, .. } = self.current.root;
        let trees = self.current.trees()?;
        Ok(Loaded { view: self.view(), position, time, next_table, trees })
    }
}

/// The base at one checkpoint, shared by its readers.
pub(super) struct View {
    file: Arc<PageFile>,
    root: Superblock,
    /// The tables opened so far.
    tables: RwLock<HashMap<u64, Option<Arc<OpenTable>>, FixedState>>,
}

impl View {
    /// Opens a file that has another name in messages.
    fn open(
        files: &dyn Files,
        (path, name): (&Path, &Path),
        cache: &Arc<PageCache>,
        reuse: &Arc<Reuse>,
    ) -> Result<Self> {
        let file = files.open(path, false).map_err(|error| during("opening", path, error))?;
        let root = Superblock::read(&*file, path)?;
        let file = Arc::new(PageFile::new(file, name.to_path_buf(), Arc::clone(cache), Arc::clone(reuse)));
        Ok(View { file, root, tables: RwLock::default() })
    }

    /// Returns all entries of a catalog tree.
    fn rows(&self, table: u64, tree: Option<Tree>) -> Result<Vec<(u64, Value)>> {
        let mut rows = Vec::new();
        let Some(tree) = tree else { return Ok(rows) };
        let tree = Arc::new(OpenTree::new(Arc::clone(&self.file), table, tree)?);
        let Some(mut cursor) = Walk::new(tree, None, Range::all(), Direction::Forward) else {
            return Ok(rows);
        };
        while cursor.peek()?.is_some() {
            cursor.pass();
            let number = cursor.passed().try_into().map(u64::from_be_bytes);
            rows.push((number.map_err(|_| self.senseless())?, Value::from(cursor.value_passed())));
        }
        Ok(rows)
    }

    fn senseless(&self) -> Error {
        let path = self.file.path().display();
        Error::Corrupted(format!("{path}: the entry of a tree is invalid"))
    }

    /// Returns the position of the last commit in the view.
    pub(super) fn position(&self) -> u64 {
        self.root.position
    }

    /// Returns the greatest cluster time in the view.
    pub(super) fn time(&self) -> u64 {
        self.root.time
    }

    /// Returns the numbers of all tables.
    pub(super) fn table_numbers(&self) -> Result<Vec<u64>> {
        Ok(self.all_roots()?.into_iter().map(|(number, _)| number).collect())
    }

    /// Returns the table of each tree.
    pub(super) fn trees(&self) -> Result<Vec<(Ident, Table)>> {
        let rows = self.rows(IDENTS_TABLE, self.root.idents)?.into_iter();
        let row = |(ident, row): (u64, Value)| {
            let mut numbers = row.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
            match (numbers.next(), numbers.next(), numbers.next()) {
                (Some(table), Some(entries), Some(bytes)) => {
                    Ok((Ident(ident), Table::new(table, entries, bytes)))
                }
                _ => Err(self.senseless()),
            }
        };
        rows.map(row).collect()
    }

    /// Returns the roots of each table.
    fn all_roots(&self) -> Result<Vec<(u64, TableRoots)>> {
        let rows = self.rows(TABLES_TABLE, self.root.tables)?.into_iter();
        rows.map(|(number, row)| Ok((number, TableRoots::decode(&row).ok_or_else(|| self.senseless())?)))
            .collect()
    }

    /// Returns the roots of a table.
    fn roots(&self, number: u64) -> Result<Option<TableRoots>> {
        let Some(tables) = self.root.tables else { return Ok(None) };
        let tables = OpenTree::new(Arc::clone(&self.file), TABLES_TABLE, tables)?;
        let found = tables.with(&number.to_be_bytes(), TableRoots::decode)?;
        found.map(|stored| stored.ok_or_else(|| self.senseless())).transpose()
    }

    /// Opens a table; `None` if it is empty, as table 0.
    fn table(&self, number: u64) -> Result<Option<Arc<OpenTable>>> {
        if number == 0 {
            return Ok(None);
        }
        if let Some(table) = self.tables.read().get(&number) {
            return Ok(table.clone());
        }
        let table = match self.roots(number)? {
            Some(stored) => Some(Arc::new(OpenTable::new(&self.file, number, stored)?)),
            None => None,
        };
        self.tables.write().insert(number, table.clone());
        Ok(table)
    }

    /// Returns the place of the list of trees in the file.
    #[cfg(test)]
    pub(super) fn list_place(&self) -> u64 {
        self.root.idents.map_or(0, |tree| tree.handle.offset * page::UNIT as u64)
    }

    /// Returns the number of pending changes in all tables.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> u64 {
        let tables = self.all_roots().unwrap_or_default().into_iter();
        tables.filter_map(|(_, stored)| stored.delta).map(|tree| tree.entries).sum()
    }

    /// Returns the value of a key in a table.
    pub(super) fn get(&self, number: u64, key: &[u8]) -> Result<Option<Value>> {
        match self.table(number)? {
            Some(table) => table.with(key, |value| Value::from(value)),
            None => Ok(None),
        }
    }

    /// Returns the length of that value.
    pub(super) fn value_len(&self, number: u64, key: &[u8]) -> Result<Option<usize>> {
        match self.table(number)? {
            Some(table) => table.with(key, <[u8]>::len),
            None => Ok(None),
        }
    }

    /// Returns a cursor over a range of a table; `None` if the range is empty.
    pub(super) fn scan(
        self: &Arc<Self>,
        number: u64,
        range: Range,
        direction: Direction,
    ) -> Result<Option<BaseCursor>> {
        Ok(self
            .table(number)?
            .and_then(|table| BaseCursor::new(&table, Some(Arc::clone(self)), range, direction)))
    }
}
