//! Reading everything that the base holds of a tree, to find what isn't as it was written, or to save what is.

use std::sync::Arc;

use super::page::Page;
use super::{View, table_name};
use crate::bytes::Text;
use crate::{Damage, Key, Result};

/// No more damages than this are told of one table.
const DAMAGES_MAX: usize = 1000;

/// What is found in a table.
pub(in crate::disk) enum Found<'a> {
    /// An entry's key and value.
    Entry(&'a [u8], &'a [u8]),
    /// Something that cannot be read, in words.
    Damage(String),
}

impl View {
    /// Calls a function with all that is in a table, in the order of keys; it says whether to go on. What lies below a
    /// page that cannot be read is left out.
    pub(in crate::disk) fn read_all(
        &self,
        number: u64,
        see: &mut dyn FnMut(Found<'_>) -> Result<bool>,
    ) -> Result<()> {
        let table = match self.table(number) {
            Ok(Some(table)) => table,
            Ok(None) => return Ok(()),
            Err(error) => return see(Found::Damage(error.to_string())).map(drop),
        };
        let mut ended = Ok(());
        let mut see_page = |page: Result<Arc<Page>>| -> Result<bool> {
            let page = match page {
                Ok(page) => page,
                Err(error) => return see(Found::Damage(error.to_string())),
            };
            if page.height() == 0 {
                for at in 0..page.len() {
                    if !see(Found::Entry(&page.key(at), page.value(at)))? {
                        return Ok(false);
                    }
                }
            }
            Ok(true)
        };
        table.walk(&mut |_, page| {
            see_page(page).unwrap_or_else(|error| {
                ended = Err(error);
                false
            })
        });
        ended
    }

    /// Reads all of a table, and tells what isn't as it was written.
    pub(in crate::disk) fn verify(&self, number: u64, go_on: &mut dyn FnMut() -> bool) -> Vec<Damage> {
        let mut damages = Vec::new();
        let (mut last, mut entries): (Option<Key>, u64) = (None, 0);
        let mut whole = true;
        let name = table_name(number);
        let read = self.read_all(number, &mut |found| {
            match found {
                Found::Damage(what) => {
                    whole = false;
                    damages.push(Damage { key: None, what });
                }
                Found::Entry(key, _) => {
                    if last.as_ref().is_some_and(|last| **last >= *key) {
                        let what =
                            format!("the base's table {name} is out of order at the key \"{}\"", Text(key));
                        damages.push(Damage { key: Some(Key::from(key)), what });
                    }
                    last = Some(Key::from(key));
                    entries += 1;
                }
            }
            let more = damages.len() < DAMAGES_MAX && (entries % 256 > 0 || go_on());
            whole &= more;
            Ok(more)
        });
        let said = match self.table(number) {
            Ok(Some(table)) => table.tree.entries,
            _ => 0,
        };
        if read.is_ok() && whole && said != entries {
            let what = format!("the base's table {name} has {entries} entries, {said} were written");
            damages.push(Damage { key: None, what });
        }
        damages
    }
}
