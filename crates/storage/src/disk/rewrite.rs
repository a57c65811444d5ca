//! Writing the base anew when little of its file is still needed.
//!
//! redb uses freed pages again, but seldom gives them back: a few pages in use behind them are enough to keep
//! the file as long as it ever was. So what there is is copied to a new file, which then takes the base's
//! name; whoever still reads the old one keeps it open, nameless. A crash leaves the one or the other.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::backend::{Backend, Control};
use super::base::{Base, Entries, IDENTS, NUMBERS, View, storage, table_name};
use super::directory::NEW_BASE_FILE;
use super::files::Files;
use super::journal::during;
use crate::{Error, Result};

/// redb's cache for the file being written.
const CACHE_BYTES: usize = 16 << 20;
/// How many entries are copied between two questions whether to go on.
const ASK_EVERY: u64 = 1024;

/// Copies all that a view shows to a new file, durably; `Closed` if it is told not to go on.
fn copy(files: &dyn Files, path: &Path, view: &View, go_on: &dyn Fn() -> bool) -> Result<()> {
    let open = || {
        let file = files.open(path, true)?;
        file.set_len(0)?;
        Ok(file)
    };
    let file = open().map_err(|error| during("making", path, error))?;
    // Where there is no room for it, it isn't waited for.
    let control = Arc::new(Control::default());
    control.close();
    let mut builder = redb::Builder::new();
    builder.set_cache_size(CACHE_BYTES);
    let database = builder.create_with_backend(Backend::new(Arc::clone(&file), control));
    let database = database.map_err(storage)?;
    let mut transaction = database.begin_write().map_err(storage)?;
    transaction.set_quick_repair(true);
    copy_tables(&transaction, view, go_on)?;
    transaction.commit().map_err(storage)?;
    drop(database);
    file.sync().map_err(|error| during("syncing", path, error))
}

fn copy_tables(transaction: &redb::WriteTransaction, view: &View, go_on: &dyn Fn() -> bool) -> Result<()> {
    {
        let mut numbers = transaction.open_table(NUMBERS).map_err(storage)?;
        for (name, number) in view.numbers()? {
            numbers.insert(name.as_str(), number).map_err(storage)?;
        }
    }
    let mut tables = BTreeSet::new();
    {
        let mut rows = transaction.open_table(IDENTS).map_err(storage)?;
        for (ident, table) in view.trees()? {
            rows.insert(ident.0, (table.base, table.entries, table.bytes)).map_err(storage)?;
            tables.insert(table.base);
        }
    }
    for number in tables.into_iter().filter(|number| *number != 0) {
        let name = table_name(number);
        let mut to = transaction.open_table(Entries::new(&name)).map_err(storage)?;
        for (at, entry) in (0u64..).zip(view.raw(number)?.range::<&[u8]>(..).map_err(storage)?) {
            // With the checksum as it is: what is damaged stays so, and is found.
            let (key, sealed) = entry.map_err(storage)?;
            to.insert(key.value(), sealed.value()).map_err(storage)?;
            if at % ASK_EVERY == 0 && !go_on() {
                return Err(Error::Closed);
            }
        }
    }
    Ok(())
}

impl Base {
    /// Writes the base anew from a view of its latest state, and opens it.
    pub(super) fn rewrite(&mut self, view: &View, go_on: &dyn Fn() -> bool) -> Result<()> {
        let new = self.path.with_file_name(NEW_BASE_FILE);
        let files = Arc::clone(&self.files);
        let written = copy(&*files, &new, view, go_on)
            .and_then(|()| files.rename(&new, &self.path).map_err(|error| during("renaming", &new, error)));
        if let Err(error) = written {
            // If it stays it will be overwritten.
            let _ = files.remove(&new);
            return Err(error);
        }
        self.named = false;
        self.retire();
        self.reopen()?;
        self.settle()
    }

    /// Makes sure that the base's name stands for the file that is open. Until then no checkpoint may let
    /// go of any journal.
    pub(super) fn settle(&mut self) -> Result<()> {
        if let (false, Some(directory)) = (self.named, self.path.parent()) {
            let synced = self.files.sync_directory(directory);
            synced.map_err(|error| during("syncing", directory, error))?;
        }
        self.named = true;
        Ok(())
    }
}
