//! The base: the state as of the latest checkpoint, in a redb file.
//!
//! It holds a table for each tree that had entries at a checkpoint, named by a number of its own: a tree that
//! is emptied or dropped and made anew gets another table, and trees forked from one another share one until
//! they differ. Two more tables say which tree has which table, its counts, and the position in the journal
//! up to which all of it goes. A checkpoint changes all that in one durable transaction.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::{Mutex, RwLock};
use redb::{ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition, TableHandle};

use super::backend::{Backend, Control};
use super::files::Files;
use super::journal::during;
use super::reuse::{Reuse, Uses};
use super::state::Table;
use crate::bytes::Text;
use crate::{Direction, Error, Ident, Key, Range, Result, Value};

/// A tree's table, the number of its entries, and the lengths of its keys and values.
pub(super) const IDENTS: TableDefinition<'static, u64, (u64, u64, u64)> = TableDefinition::new("idents");
/// Numbers by name: [`POSITION`], [`NEXT_TABLE`] and [`TIME`].
pub(super) const NUMBERS: TableDefinition<'static, &str, u64> = TableDefinition::new("numbers");
/// The position of the last commit that the base holds.
pub(super) const POSITION: &str = "position";
/// The greatest time of any commit up to that position.
pub(super) const TIME: &str = "time";
/// The number that the next table gets.
pub(super) const NEXT_TABLE: &str = "nextTable";

/// How a seek looks for a near key before it descends from the root.
const NEAR: usize = 4;

pub(super) type RawTable = ReadOnlyTable<&'static [u8], &'static [u8]>;
pub(super) type Entries<'a> = TableDefinition<'a, &'static [u8], &'static [u8]>;

/// A value as the base stores it: with a checksum behind it, since redb doesn't check what it reads.
pub(super) fn seal(key: &[u8], value: &[u8], sealed: &mut Vec<u8>) {
    sealed.clear();
    sealed.extend_from_slice(value);
    sealed.extend_from_slice(&checksum(key, value));
}

/// The value in what the base stores under a key.
fn unseal<'a>(table: &OpenTable, key: &[u8], sealed: &'a [u8]) -> Result<&'a [u8]> {
    unsealed(key, sealed).ok_or_else(|| {
        let (name, key) = (table.table.name().to_owned(), Text(key));
        Error::Corrupted(format!("the base's table {name} is damaged at the key \"{key}\""))
    })
}

/// The value in what the base stores under a key, if it is as it was written.
pub(super) fn unsealed<'a>(key: &[u8], sealed: &'a [u8]) -> Option<&'a [u8]> {
    let (value, sum) = sealed.split_last_chunk::<4>()?;
    (*sum == checksum(key, value)).then_some(value)
}

fn checksum(key: &[u8], value: &[u8]) -> [u8; 4] {
    crc32c::crc32c_append(crc32c::crc32c(key), value).to_le_bytes()
}

/// The name of a table.
pub(super) fn table_name(number: u64) -> String {
    format!("t{number}")
}

/// The base file, open.
pub(super) struct Base {
    pub(super) files: Arc<dyn Files>,
    pub(super) path: PathBuf,
    cache_bytes: usize,
    control: Arc<Control>,
    /// What is known of the pages that are read.
    pub(super) reuse: Arc<Reuse>,
    /// How often a file was opened.
    opened: u64,
    /// None only while it is reopened, or after that failed.
    database: Option<Arc<redb::Database>>,
    /// Whether the file's name is known to be durable.
    pub(super) named: bool,
    /// Who reads it.
    views: Mutex<Vec<Weak<View>>>,
}

/// What redb's cache counts about itself.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CacheCounts {
    pub(super) hits: u64,
    pub(super) misses: u64,
    pub(super) evictions: u64,
    pub(super) bytes: u64,
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
    let open = || {
        let file = files.open(path, true)?;
        file.set_len(0)?;
        Ok(file)
    };
    let file = open().map_err(|error| during("making", path, error))?;
    let control = Arc::new(Control::default());
    control.close();
    let backend = Backend::new(Arc::clone(&file), control);
    let made = redb::Builder::new().create_with_backend(backend);
    drop(made.map_err(|error| opening(path, error))?);
    let sync = file.sync().and_then(|()| path.parent().map_or(Ok(()), |parent| files.sync_directory(parent)));
    sync.map_err(|error| during("syncing", path, error))
}

impl Base {
    /// Opens the file. redb repairs it if that is needed.
    pub(super) fn open(
        files: Arc<dyn Files>,
        path: PathBuf,
        cache_bytes: usize,
        control: Arc<Control>,
    ) -> Result<Self> {
        let mut base = Base {
            files,
            path,
            cache_bytes,
            control,
            reuse: Arc::new(Reuse::default()),
            opened: 0,
            database: None,
            named: true,
            views: Mutex::default(),
        };
        base.reopen()?;
        Ok(base)
    }

    /// Closes and opens the file again, which redb wants after any error of reading or writing.
    pub(super) fn reopen(&mut self) -> Result<()> {
        self.database = None;
        self.control.reset();
        self.opened += 1;
        self.reuse.forget_pages();
        let opened = self.open_database();
        if opened.is_err() {
            // For the next attempt.
            self.control.report();
        }
        self.database = Some(Arc::new(opened?));
        Ok(())
    }

    fn open_database(&self) -> Result<redb::Database> {
        let opened = self.files.open(&self.path, false);
        let file = opened.map_err(|error| during("opening", &self.path, error))?;
        let reuse = Arc::clone(&self.reuse);
        let backend = Backend::watched(file, Arc::clone(&self.control), reuse, self.opened);
        let mut builder = redb::Builder::new();
        builder.set_cache_size(self.cache_bytes);
        let opened = builder.create_with_backend(backend);
        opened.map_err(|error| opening(&self.path, error))
    }

    pub(super) fn database(&self) -> Result<&redb::Database> {
        self.database.as_deref().ok_or(Error::Closed)
    }

    /// Closes the file; cleanly, if nothing has failed.
    pub(super) fn close(&mut self) {
        self.database = None;
    }

    /// The length of the file.
    pub(super) fn file_bytes(&self) -> u64 {
        self.files.open(&self.path, false).and_then(|file| file.len()).unwrap_or_default()
    }

    /// What the cache counts.
    pub(super) fn cache(&self) -> Option<CacheCounts> {
        let stats = self.database.as_ref()?.cache_stats();
        Some(CacheCounts {
            hits: stats.read_hits(),
            misses: stats.read_misses(),
            evictions: stats.evictions(),
            bytes: stats.used_bytes() as u64,
        })
    }

    /// The state after the latest checkpoint, for readers to share.
    pub(super) fn view(&self) -> Result<Arc<View>> {
        let transaction = self.database()?.begin_read().map_err(storage)?;
        let reuse = Arc::clone(&self.reuse);
        let view = View { transaction, tables: RwLock::default(), retired: Arc::default(), reuse };
        let view = Arc::new(view);
        let mut views = self.views.lock();
        views.retain(|view| view.strong_count() > 0);
        views.push(Arc::downgrade(&view));
        Ok(view)
    }

    /// Leaves the open file to those who read it.
    pub(super) fn retire(&mut self) {
        let Some(database) = self.database.take() else { return };
        for view in self.views.lock().drain(..).filter_map(|view| view.upgrade()) {
            // It may keep an older one already, then it reads that.
            let _ = view.retired.set(Arc::clone(&database));
        }
    }

    /// Reads what there is.
    pub(super) fn load(&self) -> Result<Loaded> {
        let view = self.view()?;
        let numbers = view.numbers()?;
        let number = |name: &str| numbers.get(name).copied();
        Ok(Loaded {
            position: number(POSITION).unwrap_or_default(),
            time: number(TIME).unwrap_or_default(),
            next_table: number(NEXT_TABLE).unwrap_or(1),
            trees: view.trees()?,
            view,
        })
    }
}

/// The base as of one checkpoint: a read transaction that all its readers share.
pub(super) struct View {
    transaction: ReadTransaction,
    /// Tables opened so far.
    tables: RwLock<HashMap<u64, Arc<OpenTable>>>,
    /// The file that it reads, once the base has another. The last to be dropped.
    retired: Retired,
    reuse: Arc<Reuse>,
}

/// Keeps a database open for those who read it, once the base has another.
type Retired = Arc<OnceLock<Arc<redb::Database>>>;

struct OpenTable {
    table: RawTable,
    /// Keys beyond this one are not there: new record ids need no search.
    last: Option<Key>,
    reuse: Arc<Reuse>,
    uses: Arc<Uses>,
    /// Cursors may outlive the view.
    _retired: Retired,
}

impl View {
    pub(super) fn numbers(&self) -> Result<BTreeMap<String, u64>> {
        let table = match self.transaction.open_table(NUMBERS) {
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(BTreeMap::new()),
            table => table.map_err(storage)?,
        };
        let entries = table.iter().map_err(storage)?;
        let entry = |entry: std::result::Result<_, redb::StorageError>| {
            entry
                .map(|(name, number): (redb::AccessGuard<'_, &str>, redb::AccessGuard<'_, u64>)| {
                    (name.value().to_owned(), number.value())
                })
                .map_err(storage)
        };
        entries.map(entry).collect()
    }

    pub(super) fn trees(&self) -> Result<Vec<(Ident, Table)>> {
        let table = match self.transaction.open_table(IDENTS) {
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
            table => table.map_err(storage)?,
        };
        let mut trees = Vec::new();
        for entry in table.iter().map_err(storage)? {
            let (ident, row) = entry.map_err(storage)?;
            let (number, entries, bytes) = row.value();
            trees.push((Ident(ident.value()), Table::new(number, entries, bytes)));
        }
        Ok(trees)
    }

    /// A table as redb has it.
    pub(super) fn raw(&self, number: u64) -> Result<RawTable> {
        self.transaction.open_table(Entries::new(&table_name(number))).map_err(storage)
    }

    fn open(&self, number: u64) -> Result<Arc<OpenTable>> {
        if let Some(table) = self.tables.read().get(&number) {
            return Ok(Arc::clone(table));
        }
        let table = self.raw(number)?;
        let last = table.last().map_err(storage)?.map(|(key, _)| Key::from(key.value()));
        let table = Arc::new(OpenTable {
            table,
            last,
            reuse: Arc::clone(&self.reuse),
            uses: self.reuse.uses(number),
            _retired: Arc::clone(&self.retired),
        });
        self.tables.write().insert(number, Arc::clone(&table));
        Ok(table)
    }

    /// Does something with the value under a key of a table.
    fn with<R>(&self, number: u64, key: &[u8], then: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        if number == 0 {
            return Ok(None);
        }
        let table = self.open(number)?;
        if table.last.as_ref().is_none_or(|last| key > &**last) {
            return Ok(None);
        }
        match table.table.get(key) {
            Ok(Some(sealed)) => {
                let sealed = sealed.value();
                table.reuse.visit(&table.uses, sealed.as_ptr() as usize);
                unseal(&table, key, sealed).map(|value| Some(then(value)))
            }
            Ok(None) => {
                Reuse::visit_in_vain();
                Ok(None)
            }
            Err(error) => Err(storage(error)),
        }
    }

    /// The value under a key of a table; the table 0 is always empty.
    pub(super) fn get(&self, number: u64, key: &[u8]) -> Result<Option<Value>> {
        self.with(number, key, |value| Value::from(value))
    }

    /// The length of that value.
    pub(super) fn value_len(&self, number: u64, key: &[u8]) -> Result<Option<usize>> {
        self.with(number, key, <[u8]>::len)
    }

    /// A cursor over a range of a table; none if there is nothing in it.
    pub(super) fn scan(&self, number: u64, range: Range, direction: Direction) -> Result<Option<BaseCursor>> {
        if number == 0 || is_empty(&range) {
            return Ok(None);
        }
        let table = self.open(number)?;
        let mut cursor = BaseCursor { table, range, direction, entries: None, head: None, edge: 0 };
        cursor.start()?;
        Ok(Some(cursor))
    }
}

/// Whether the bounds exclude everything, which redb wants never to be asked for.
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

type Guards = (redb::AccessGuard<'static, &'static [u8]>, redb::AccessGuard<'static, &'static [u8]>);

/// A walk over one table of the base, one entry ahead.
pub(super) struct BaseCursor {
    table: Arc<OpenTable>,
    /// What is left to walk, at least.
    range: Range,
    direction: Direction,
    entries: Option<redb::Range<'static, &'static [u8], &'static [u8]>>,
    head: Option<Guards>,
    /// Where in memory the key lies that is the next of the same page: keys of a page lie one behind the other.
    edge: usize,
}

impl BaseCursor {
    fn start(&mut self) -> Result<()> {
        let bounds = (as_slice(&self.range.lower), as_slice(&self.range.upper));
        let entries = self.table.table.range::<&[u8]>(bounds);
        self.entries = Some(entries.map_err(storage)?);
        Ok(())
    }

    fn step(&mut self) -> Result<()> {
        let Some(entries) = &mut self.entries else { return Ok(()) };
        let next = match self.direction {
            Direction::Forward => entries.next(),
            Direction::Backward => entries.next_back(),
        };
        match next {
            Some(Ok(head)) => {
                self.visit(head.0.value());
                self.head = Some(head);
            }
            Some(Err(error)) => return Err(storage(error)),
            None => self.entries = None,
        }
        Ok(())
    }

    /// Notes the visit of a page when the cursor comes to the first of its keys.
    fn visit(&mut self, key: &[u8]) {
        let (begin, end) = (key.as_ptr() as usize, key.as_ptr() as usize + key.len());
        let (near, far) = match self.direction {
            Direction::Forward => (begin, end),
            Direction::Backward => (end, begin),
        };
        if std::mem::replace(&mut self.edge, far) != near {
            self.table.reuse.visit(&self.table.uses, begin);
        }
    }

    /// The next key without taking its entry.
    pub(super) fn peek(&mut self) -> Result<Option<&[u8]>> {
        if self.head.is_none() {
            self.step()?;
        }
        Ok(self.head.as_ref().map(|(key, _)| key.value()))
    }

    /// Takes the entry that was peeked at.
    pub(super) fn take(&mut self) -> Result<Option<Value>> {
        let Some((key, sealed)) = self.head.take() else { return Ok(None) };
        unseal(&self.table, key.value(), sealed.value()).map(|value| Some(Value::from(value)))
    }

    /// Skips forward to a key or what comes after it: by steps if it is near, else from the root.
    pub(super) fn seek(&mut self, key: &[u8]) -> Result<()> {
        for _ in 0..NEAR {
            let direction = self.direction;
            match self.peek()? {
                Some(head) if direction == Direction::Forward && head < key => {}
                Some(head) if direction == Direction::Backward && head > key => {}
                _ => return Ok(()),
            }
            self.head = None;
        }
        match self.direction {
            Direction::Forward => self.range.lower = Bound::Included(Key::from(key)),
            Direction::Backward => self.range.upper = Bound::Included(Key::from(key)),
        }
        match is_empty(&self.range) {
            true => self.entries = None,
            false => self.start()?,
        }
        Ok(())
    }
}

fn as_slice(bound: &Bound<Key>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(key) => Bound::Included(key),
        Bound::Excluded(key) => Bound::Excluded(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}

fn opening(path: &Path, error: redb::DatabaseError) -> Error {
    match error {
        redb::DatabaseError::Storage(redb::StorageError::Io(error)) => during("opening", path, error),
        error => Error::Corrupted(format!("{}: {error}", path.display())),
    }
}

/// redb's errors in our words.
pub(super) fn storage(error: impl Into<redb::Error>) -> Error {
    match error.into() {
        redb::Error::Corrupted(what) => Error::Corrupted(what),
        redb::Error::Io(error) => error.into(),
        redb::Error::DatabaseClosed => Error::Closed,
        redb::Error::ValueTooLarge(bytes) => Error::Full(format!("a value of {bytes} bytes is too large")),
        error => Error::Io { kind: std::io::ErrorKind::Other, message: error.to_string() },
    }
}
