//! The base of formats 1 and 2, a [redb](https://www.redb.org) file: read to be copied into one of today's, or salvaged.
//!
//! It held a table for each tree, each value followed by a CRC-32C of key and value, and two tables that told of them.
//! Opening such a file may write to it, and it is to stay as it is: what would be written is kept in memory.

use std::fmt::Debug;
use std::io;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use redb::{
    AccessGuard, BackendError, ReadOnlyTable, ReadableDatabase, ReadableTable, StorageBackend,
    TableDefinition,
};

use super::base::{self, Base, Found, Numbers, Source};
use super::control::Control;
use super::directory::NEW_BASE_FILE;
use super::files::{File, Files};
use super::journal::during;
use super::overlay::Overlay;
use super::state::Table;
use crate::bytes::Text;
use crate::{Compression, Error, Ident, Key, Result, Value};

/// A tree's table, the number of its entries, and the lengths of its keys and values.
const IDENTS: TableDefinition<'static, u64, (u64, u64, u64)> = TableDefinition::new("idents");
/// Numbers by name.
const NUMBERS: TableDefinition<'static, &str, u64> = TableDefinition::new("numbers");
/// How much of the file is cached.
const CACHE_BYTES: usize = 64 << 20;
/// The cache for the base being made.
const NEW_CACHE_BYTES: u64 = 4 << 20;

type Entries<'a> = TableDefinition<'a, &'static [u8], &'static [u8]>;
type RawTable = ReadOnlyTable<&'static [u8], &'static [u8]>;

/// Makes a base of today's out of one of before, durably; that one stays as it is.
pub(super) fn convert(
    files: &Arc<dyn Files>,
    legacy: &Path,
    path: &Path,
    compression: Compression,
) -> Result<()> {
    log::info!("{} is copied into {}", legacy.display(), path.display());
    let new = path.with_file_name(NEW_BASE_FILE);
    base::make(&**files, &new)?;
    let control = Arc::new(Control::impatient());
    let mut base = Base::open(Arc::clone(files), new.clone(), NEW_CACHE_BYTES, compression, control)?;
    sheltered(|| {
        let legacy = Legacy::open(files, legacy)?;
        base.checkpoint(legacy.numbers, &|| true, |changes| {
            let mut copied = Vec::new();
            for (ident, table) in &legacy.trees {
                changes.note(*ident, Some([table.base, table.entries, table.bytes]));
                if table.base != 0 && !copied.contains(&table.base) {
                    copied.push(table.base);
                    changes.merge(table.base, &mut Walk::new(&legacy, table.base)?)?;
                }
            }
            Ok(())
        })
    })?;
    let rename = files.rename(&new, path);
    let named = rename.and_then(|()| path.parent().map_or(Ok(()), |parent| files.sync_directory(parent)));
    named.map_err(|error| during("renaming", &new, error))
}

/// Makes an error of a panic in reading broken pages: redb trusts its pages.
fn sheltered<T>(read: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given");
        Err(Error::Corrupted(format!("a page makes no sense: {text}")))
    })
}

/// Such a file, open.
pub(super) struct Legacy {
    database: redb::Database,
    pub(super) numbers: Numbers,
    pub(super) trees: Vec<(Ident, Table)>,
}

impl Legacy {
    /// Opens it, and reads what it says of its tables; a panic is left to the caller.
    fn open(files: &Arc<dyn Files>, path: &Path) -> Result<Self> {
        let covered = Overlay(Arc::clone(files));
        let file = covered.open(path, false).map_err(|error| during("opening", path, error))?;
        let mut builder = redb::Builder::new();
        builder.set_cache_size(CACHE_BYTES);
        let database = builder.create_with_backend(Backend(file)).map_err(|error| match error {
            redb::DatabaseError::Storage(redb::StorageError::Io(error)) => during("opening", path, error),
            error => Error::Corrupted(format!("{}: {error}", path.display())),
        })?;
        let reading = database.begin_read().map_err(storage)?;
        let mut numbers = Numbers { position: 0, time: 0, next_table: 1 };
        match reading.open_table(NUMBERS) {
            Err(redb::TableError::TableDoesNotExist(_)) => {}
            table => {
                for entry in table.map_err(storage)?.iter().map_err(storage)? {
                    let (name, number) = entry.map_err(storage)?;
                    match name.value() {
                        "position" => numbers.position = number.value(),
                        "time" => numbers.time = number.value(),
                        "nextTable" => numbers.next_table = number.value(),
                        _ => {}
                    }
                }
            }
        }
        let mut trees = Vec::new();
        match reading.open_table(IDENTS) {
            Err(redb::TableError::TableDoesNotExist(_)) => {}
            table => {
                for entry in table.map_err(storage)?.iter().map_err(storage)? {
                    let (ident, row) = entry.map_err(storage)?;
                    let (number, entries, bytes) = row.value();
                    trees.push((Ident(ident.value()), Table::new(number, entries, bytes)));
                }
            }
        }
        drop(reading);
        Ok(Legacy { database, numbers, trees })
    }

    /// Opens it to save what can be.
    pub(super) fn salvage(files: &Arc<dyn Files>, path: &Path) -> Result<Self> {
        sheltered(|| Legacy::open(files, path))
    }

    /// Closes it; pages that were found broken may make it stumble once more.
    pub(super) fn close(self) {
        let closed = sheltered(move || {
            drop(self);
            Ok(())
        });
        if let Err(error) = closed {
            log::info!("closing the old base: {error}");
        }
    }

    fn table(&self, number: u64) -> Result<RawTable> {
        let reading = self.database.begin_read().map_err(storage)?;
        reading.open_table(Entries::new(&format!("t{number}"))).map_err(storage)
    }

    /// Calls a function with all that can be read of a table: upwards until its end or a broken page, then downwards
    /// to where that was.
    pub(super) fn read_all(&self, number: u64, see: &mut dyn FnMut(Found<'_>) -> Result<bool>) -> Result<()> {
        let mut last = None;
        if let Some(broken) = self.walk(number, see, &mut last, false)?
            && see(Found::Damage(broken))?
        {
            self.walk(number, see, &mut last, true)?;
        }
        Ok(())
    }

    /// Walks until the end of a table; returns what kept it from getting there.
    fn walk(
        &self,
        number: u64,
        see: &mut dyn FnMut(Found<'_>) -> Result<bool>,
        last: &mut Option<Key>,
        backwards: bool,
    ) -> Result<Option<String>> {
        let from = match (backwards, &*last) {
            (true, Some(last)) => Bound::Excluded(&**last),
            _ => Bound::Unbounded,
        };
        let opened = sheltered(|| {
            let table = self.table(number)?;
            table.range::<&[u8]>((from, Bound::Unbounded)).map_err(storage)
        });
        let mut entries = match opened {
            Ok(entries) => entries,
            Err(error) => return Ok(Some(error.to_string())),
        };
        loop {
            let next = sheltered(|| {
                let next = if backwards { entries.next_back() } else { entries.next() };
                let Some(entry) = next else { return Ok(None) };
                let (key, sealed) = entry.map_err(storage)?;
                let value = unsealed(key.value(), sealed.value()).map(Value::from);
                Ok(Some((Key::from(key.value()), value)))
            });
            let (key, value) = match next {
                Ok(Some(entry)) => entry,
                Ok(None) => return Ok(None),
                Err(error) => return Ok(Some(error.to_string())),
            };
            if !backwards && last.as_ref().is_some_and(|last| **last >= *key) {
                return Ok(Some("its keys are out of order".to_string()));
            }
            let more = match value {
                Some(value) => see(Found::Entry(&key, &value))?,
                None => see(Found::Damage(format!("a wrong checksum at the key \"{}\"", Text(&key))))?,
            };
            if !more {
                return Ok(None);
            }
            if !backwards {
                *last = Some(key);
            }
        }
    }
}

/// The value in what is stored under a key, if it is as it was written.
fn unsealed<'a>(key: &[u8], sealed: &'a [u8]) -> Option<&'a [u8]> {
    let (value, sum) = sealed.split_last_chunk::<4>()?;
    (u32::from_le_bytes(*sum) == crc32c::crc32c_append(crc32c::crc32c(key), value)).then_some(value)
}

type Guard = AccessGuard<'static, &'static [u8]>;

/// A walk along a table that must be whole.
struct Walk {
    number: u64,
    entries: redb::Range<'static, &'static [u8], &'static [u8]>,
    next: Option<(Guard, Guard)>,
}

impl Walk {
    fn new(legacy: &Legacy, number: u64) -> Result<Self> {
        let entries = legacy.table(number)?.range::<&[u8]>(..).map_err(storage)?;
        Ok(Walk { number, entries, next: None })
    }
}

impl Source for Walk {
    fn peek(&mut self) -> Result<Option<&[u8]>> {
        if self.next.is_none() {
            self.next = self.entries.next().transpose().map_err(storage)?;
        }
        Ok(self.next.as_ref().map(|(key, _)| key.value()))
    }

    fn take(&mut self) -> Result<Option<(Key, Option<Value>)>> {
        self.peek()?;
        let Some((key, sealed)) = self.next.take() else { return Ok(None) };
        let value = unsealed(key.value(), sealed.value()).ok_or_else(|| {
            let (number, key) = (self.number, Text(key.value()));
            Error::Corrupted(format!("the base's table t{number} is damaged at the key \"{key}\""))
        })?;
        Ok(Some((Key::from(key.value()), Some(Value::from(value)))))
    }
}

/// redb's errors in our words.
fn storage(error: impl Into<redb::Error>) -> Error {
    match error.into() {
        redb::Error::Corrupted(what) => Error::Corrupted(what),
        redb::Error::Io(error) => error.into(),
        error => Error::Io { kind: io::ErrorKind::Other, message: error.to_string() },
    }
}

/// The file as redb sees it. Locks are granted: the directory's own lock keeps other processes out.
#[derive(Debug)]
struct Backend(Arc<dyn File>);

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_at(out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_at(data, offset)
    }

    fn try_lock_range(&self, _: Bound<u64>, _: Bound<u64>) -> std::result::Result<bool, BackendError> {
        Ok(true)
    }

    fn try_lock_shared_range(&self, _: Bound<u64>, _: Bound<u64>) -> std::result::Result<bool, BackendError> {
        Ok(true)
    }

    fn lock_range(&self, _: Bound<u64>, _: Bound<u64>) -> std::result::Result<(), BackendError> {
        Ok(())
    }

    fn lock_shared_range(&self, _: Bound<u64>, _: Bound<u64>) -> std::result::Result<(), BackendError> {
        Ok(())
    }

    fn unlock_range(&self, _: Bound<u64>, _: Bound<u64>) -> std::result::Result<(), BackendError> {
        Ok(())
    }

    fn query_lock_range(&self, _: Bound<u64>, _: Bound<u64>) -> std::result::Result<bool, BackendError> {
        Ok(false)
    }
}
