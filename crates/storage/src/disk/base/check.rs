//! Complete reads of a tree in the base, to find damage or to save valid data.

use std::sync::Arc;

use super::page::Page;
use super::tree::{OpenTree, Tree, Walk};
use super::{BaseCursor, View, table_name};
use crate::bytes::Text;
use crate::{Damage, Direction, Key, Range, Result};

/// Maximum number of damages reported for one table.
const DAMAGES_MAX: usize = 1000;

/// An entry or a damage, in key order.
pub(in crate::disk) enum TableItem<'a> {
    /// Key and value of an entry.
    Entry(&'a [u8], &'a [u8]),
    /// Description of an unreadable part.
    Damage(String),
}

impl View {
    /// Calls a function with all items of a table in key order, until it returns false. Omits everything below an
    /// unreadable page. If that page had pending changes, the affected entries appear as before these changes.
    pub(in crate::disk) fn read_all(
        &self,
        number: u64,
        visit: &mut dyn FnMut(TableItem<'_>) -> Result<bool>,
    ) -> Result<()> {
        let (entries, delta, more) = self.open_all(number, visit)?;
        match (entries, delta) {
            _ if !more => Ok(()),
            (Some(entries), None) => read_tree(&entries, visit),
            (None, None) => Ok(()),
            (entries, Some(delta)) => {
                let (all, up) = (Range::all, Direction::Forward);
                let below = entries.and_then(|tree| Walk::new(Arc::new(tree), None, all(), up));
                let delta = Arc::new(delta);
                let below = below.unwrap_or_else(|| Walk::ended(Arc::clone(&delta), up));
                let mut cursor = BaseCursor::over(below, Walk::new(delta, None, all(), up), up);
                loop {
                    let more = match cursor.next() {
                        Err(error) => visit(TableItem::Damage(error.to_string()))?,
                        Ok(None) => return Ok(()),
                        Ok(Some((key, value))) => visit(TableItem::Entry(key, value))?,
                    };
                    if !more {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Opens the readable trees of a table. Returns whether to continue.
    fn open_all(
        &self,
        number: u64,
        visit: &mut dyn FnMut(TableItem<'_>) -> Result<bool>,
    ) -> Result<(Option<OpenTree>, Option<OpenTree>, bool)> {
        let mut more = true;
        let stored = match self.roots(number) {
            _ if number == 0 => None,
            Ok(stored) => stored,
            Err(error) => {
                more = visit(TableItem::Damage(error.to_string()))?;
                None
            }
        };
        let mut open = |tree: Option<Tree>| -> Result<Option<OpenTree>> {
            let opened = tree.map(|tree| OpenTree::once(Arc::clone(&self.file), number, tree));
            match opened {
                Some(Err(error)) => {
                    more = more && visit(TableItem::Damage(error.to_string()))?;
                    Ok(None)
                }
                opened => Ok(opened.and_then(Result::ok)),
            }
        };
        let (entries, delta) = (stored.map(|stored| stored.entries), stored.and_then(|stored| stored.delta));
        Ok((open(entries)?, open(delta)?, more))
    }

    /// Reads a whole table and returns its damages.
    pub(in crate::disk) fn verify(
        &self,
        number: u64,
        should_continue: &mut dyn FnMut() -> bool,
    ) -> Vec<Damage> {
        let mut damages = Vec::new();
        let mut note = |item: TableItem<'_>| {
            if let TableItem::Damage(message) = item {
                damages.push(Damage { key: None, message });
            }
            Ok(true)
        };
        let name = table_name(number);
        let Ok((entries, delta, _)) = self.open_all(number, &mut note) else { return damages };
        for (tree, name) in [(entries, name.clone()), (delta, format!("{name}, its changes,"))] {
            if let Some(tree) = tree {
                verify_tree(&tree, &name, &mut damages, should_continue);
            }
        }
        damages
    }
}

/// Calls a function with all items of a tree.
fn read_tree(tree: &OpenTree, visit: &mut dyn FnMut(TableItem<'_>) -> Result<bool>) -> Result<()> {
    let mut result = Ok(());
    let mut visit_page = |page: Result<Arc<Page>>| -> Result<bool> {
        let page = match page {
            Ok(page) => page,
            Err(error) => return visit(TableItem::Damage(error.to_string())),
        };
        if page.height() == 0 {
            for at in 0..page.len() {
                if !visit(TableItem::Entry(&page.key(at), page.value(at)))? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    };
    tree.walk(&mut |_, page| {
        visit_page(page).unwrap_or_else(|error| {
            result = Err(error);
            false
        })
    });
    result
}

/// Reads a whole tree of the named table and reports its damages.
fn verify_tree(
    tree: &OpenTree,
    name: &str,
    damages: &mut Vec<Damage>,
    should_continue: &mut dyn FnMut() -> bool,
) {
    let (mut last, mut entries): (Option<Key>, u64) = (None, 0);
    let mut is_complete = true;
    let read = read_tree(tree, &mut |item| {
        match item {
            TableItem::Damage(message) => {
                is_complete = false;
                damages.push(Damage { key: None, message });
            }
            TableItem::Entry(key, _) => {
                if last.as_ref().is_some_and(|last| **last >= *key) {
                    let message =
                        format!("the base's table {name} is out of order at the key \"{}\"", Text(key));
                    damages.push(Damage { key: Some(Key::from(key)), message });
                }
                last = Some(Key::from(key));
                entries += 1;
            }
        }
        let more = damages.len() < DAMAGES_MAX && (entries % 256 > 0 || should_continue());
        is_complete &= more;
        Ok(more)
    });
    let expected = tree.tree.entries;
    if read.is_ok() && is_complete && expected != entries {
        let message = format!("the base's table {name} has {entries} entries, expected {expected}");
        damages.push(Damage { key: None, message });
    }
}
