//! Reading everything that the base holds of a tree, to find what isn't as it was written.
//!
//! redb trusts its pages, and the checksum behind each value is looked at when that value is read. Here all
//! of a table is read: every page of it, every checksum, the order of the keys and their number. A broken
//! page may make redb panic, which counts as damage and not as a mistake of ours.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::base::{View, storage, table_name, unsealed};
use crate::bytes::Text;
use crate::{Damage, Error, Key, Result};
use redb::ReadableTableMetadata;

/// No more damages than this are told of one table.
const DAMAGES_MAX: usize = 1000;
/// How many entries are read between two questions whether to go on.
const ASK_EVERY: u64 = 256;

/// Makes an error of a panic in reading broken pages.
pub(super) fn sheltered<T>(read: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given");
        Err(Error::Corrupted(format!("a page makes no sense: {text}")))
    })
}

impl View {
    /// Reads all of a table; the table 0 is always empty.
    pub(super) fn verify(&self, number: u64, go_on: &mut dyn FnMut() -> bool) -> Vec<Damage> {
        let mut damages = Vec::new();
        if number == 0 {
            return damages;
        }
        let name = table_name(number);
        if let Err(error) = sheltered(|| self.read_all(number, &mut damages, go_on)) {
            damages.push(Damage { key: None, what: format!("the base's table {name} is damaged: {error}") });
        }
        damages
    }

    fn read_all(
        &self,
        number: u64,
        damages: &mut Vec<Damage>,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        let (table, name) = (self.raw(number)?, table_name(number));
        let mut last: Option<Key> = None;
        let mut entries = 0;
        for entry in table.range::<&[u8]>(..).map_err(storage)? {
            let (key, sealed) = entry.map_err(storage)?;
            let key = key.value();
            let mut damage = |what: &str| {
                let what = format!("the base's table {name} {what} at the key \"{}\"", Text(key));
                damages.push(Damage { key: Some(Key::from(key)), what });
            };
            if last.as_ref().is_some_and(|last| **last >= *key) {
                damage("is out of order");
            }
            if unsealed(key, sealed.value()).is_none() {
                damage("is damaged");
            }
            last = Some(Key::from(key));
            entries += 1;
            if damages.len() >= DAMAGES_MAX || entries % ASK_EVERY == 0 && !go_on() {
                return Ok(());
            }
        }
        match table.len().map_err(storage)? {
            said if said == entries => Ok(()),
            said => Err(Error::Corrupted(format!("{entries} entries are found, {said} were written"))),
        }
    }
}
