//! The base: the state as of the latest checkpoint, in a file of pages.
//!
//! It holds a table for each tree that had entries at a checkpoint, named by a number of its own: a tree that
//! is emptied or dropped and made anew gets another table, and trees forked from one another share one until
//! they differ. Two more trees say which tree has which table, with its counts, and where each table is. A checkpoint
//! writes what has changed of all that to where nothing is ([`merge`]), and then the superblock that leads to it
//! ([`superblock`]): so a state can be read for as long as somebody holds its [`View`], and a crash leaves the one
//! before or the one after.

mod cache;
mod check;
mod merge;
mod page;
mod pending;
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

use super::control::Control;
use super::files::Files;
use super::journal::during;
use super::reuse::Reuse;
use super::state::Table;
use crate::{Compression, Direction, Error, Ident, Range, Result, Value};
use cache::{PageCache, PageFile};
use superblock::{Extent, Room, SLOTS_UNITS, Superblock};
use table::{OpenTable, Stored};
use tree::{OpenTree, Tree, Walk};

pub(super) use cache::CacheCounts;
pub(super) use check::Found;
pub(super) use merge::Source;
#[cfg(any(test, debug_assertions, feature = "testing"))]
pub(crate) use page::{entries, framed};
pub(super) use pending::Share;
pub(super) use table::BaseCursor;
pub(super) use write::{Changes, Copied, Numbers};

/// Stand for the trees that tell of the others, in messages.
const IDENTS_TABLE: u64 = 0;
const TABLES_TABLE: u64 = u64::MAX;

/// What a tree's table is called in messages.
pub(super) fn table_name(number: u64) -> String {
    match number {
        IDENTS_TABLE => "idents".to_owned(),
        TABLES_TABLE => "tables".to_owned(),
        number => format!("t{number}"),
    }
}

/// The base's file, open, for the one who writes it.
pub(super) struct Base {
    pub(super) files: Arc<dyn Files>,
    pub(super) path: PathBuf,
    control: Arc<Control>,
    pub(super) compression: Compression,
    cache: Arc<PageCache>,
    /// What is known of the pages that are read.
    pub(super) reuse: Arc<Reuse>,
    current: Arc<View>,
    /// Which room is free, once somebody had to know.
    room: Option<Room>,
    /// Who reads what.
    views: Vec<Weak<View>>,
    /// Written for a checkpoint of which nobody knows whether it will be found after a crash.
    uncertain: Vec<Extent>,
    /// Whether the file's name is known to be durable.
    named: bool,
}

/// What the base holds, read when it is opened.
pub(super) struct Loaded {
    pub(super) view: Arc<View>,
    pub(super) position: u64,
    pub(super) time: u64,
    pub(super) next_table: u64,
    pub(super) trees: Vec<(Ident, Table)>,
}

/// Makes an empty base, durably; what an earlier attempt left there is overwritten.
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
    /// Opens the file; nothing is written by that.
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
        let (room, uncertain) = (None, Vec::new());
        Ok(Base {
            files,
            path,
            control,
            compression,
            cache,
            reuse,
            current,
            room,
            views,
            uncertain,
            named: true,
        })
    }

    /// Lets readers read no more than what is in memory.
    pub(super) fn close(&mut self) {
        self.current.file.close();
    }

    /// The length of the file.
    pub(super) fn file_bytes(&self) -> u64 {
        self.current.file.file.len().unwrap_or_default()
    }

    /// What the cache counts.
    pub(super) fn cache(&self) -> CacheCounts {
        self.cache.counts()
    }

    /// The state after the latest checkpoint, for readers to share.
    pub(super) fn view(&self) -> Arc<View> {
        Arc::clone(&self.current)
    }

    /// Reads what there is.
    pub(super) fn load(&self) -> Result<Loaded> {
        let Superblock { position, time, next_table, .. } = self.current.root;
        let trees = self.current.trees()?;
        Ok(Loaded { view: self.view(), position, time, next_table, trees })
    }
}

/// The base as of one checkpoint, as its readers share it.
pub(super) struct View {
    file: Arc<PageFile>,
    root: Superblock,
    /// Tables opened so far.
    tables: RwLock<HashMap<u64, Option<Arc<OpenTable>>, FixedState>>,
}

impl View {
    /// Opens a file, which has another name in messages.
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

    /// All entries of one of the trees that tell of the others.
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
        Error::Corrupted(format!("{path}: an entry that tells of a tree makes no sense"))
    }

    /// Which tree has which table.
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

    /// Where each table is.
    fn places(&self) -> Result<Vec<(u64, Stored)>> {
        let rows = self.rows(TABLES_TABLE, self.root.tables)?.into_iter();
        rows.map(|(number, row)| Ok((number, Stored::decode(&row).ok_or_else(|| self.senseless())?)))
            .collect()
    }

    /// Where a table is.
    fn place(&self, number: u64) -> Result<Option<Stored>> {
        let Some(tables) = self.root.tables else { return Ok(None) };
        let tables = OpenTree::new(Arc::clone(&self.file), TABLES_TABLE, tables)?;
        let found = tables.with(&number.to_be_bytes(), Stored::decode)?;
        found.map(|stored| stored.ok_or_else(|| self.senseless())).transpose()
    }

    /// A table, opened; none if there is nothing in it, as in table 0.
    fn table(&self, number: u64) -> Result<Option<Arc<OpenTable>>> {
        if number == 0 {
            return Ok(None);
        }
        if let Some(table) = self.tables.read().get(&number) {
            return Ok(table.clone());
        }
        let table = match self.place(number)? {
            Some(stored) => Some(Arc::new(OpenTable::new(&self.file, number, stored)?)),
            None => None,
        };
        self.tables.write().insert(number, table.clone());
        Ok(table)
    }

    /// How many changes wait in all tables.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> u64 {
        let tables = self.places().unwrap_or_default().into_iter();
        tables.filter_map(|(_, stored)| stored.pending).map(|tree| tree.entries).sum()
    }

    /// The value under a key of a table.
    pub(super) fn get(&self, number: u64, key: &[u8]) -> Result<Option<Value>> {
        match self.table(number)? {
            Some(table) => table.with(key, |value| Value::from(value)),
            None => Ok(None),
        }
    }

    /// The length of that value.
    pub(super) fn value_len(&self, number: u64, key: &[u8]) -> Result<Option<usize>> {
        match self.table(number)? {
            Some(table) => table.with(key, <[u8]>::len),
            None => Ok(None),
        }
    }

    /// A cursor over a range of a table; none if there is nothing in it.
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
