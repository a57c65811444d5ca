//! A checkpoint: what has changed since the one before, written to the base in one durable transaction.
//!
//! The changes of a tree go into its table if no other tree shares that; else, as after a fork, the tree gets
//! a table of its own with a copy of everything, which costs as much as the tree is large. A tree without
//! entries has no table. Tables that no tree has any more are deleted in the same transaction, so that space
//! comes back whatever happens afterwards: their numbers are found by comparing, not remembered.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use redb::TableHandle;

use super::base::{
    Base, Entries, IDENTS, NEXT_TABLE, NUMBERS, POSITION, TIME, View, seal, storage, table_name,
};
use super::state::{Change, Freeze, Table, each_ident};
use crate::{Cursor, Direction, Ident, Range, Result};

/// What a checkpoint does to the tables, decided before anything is written.
pub(super) struct Plan {
    /// For each frozen layer the table that holds it afterwards; 0 where nothing is left.
    pub(super) tables: BTreeMap<u64, u64>,
    pub(super) next_table: u64,
    /// The trees that have changed, with how; `None` if they are gone.
    trees: Vec<(Ident, Option<Step>)>,
    /// The tables still wanted.
    wanted: BTreeSet<u64>,
    position: u64,
    time: u64,
}

/// What happens to a tree that has changed.
struct Step {
    table: Table,
    number: u64,
    /// Whether its table is a new one, to which everything is copied.
    copied: bool,
}

impl Plan {
    /// Decides which table each frozen layer goes to.
    pub(super) fn new(freeze: &Freeze, next_table: u64) -> Self {
        let mut users: HashMap<u64, u64> = HashMap::new();
        let mut wanted = BTreeSet::new();
        freeze.state.each_table(|table| {
            *users.entry(table.base).or_default() += 1;
            if table.frozen.is_none() {
                wanted.insert(table.base);
            }
        });
        let (position, time) = (freeze.state.position, freeze.state.time);
        let mut plan =
            Plan { tables: BTreeMap::new(), next_table, trees: Vec::new(), wanted, position, time };
        each_ident(&freeze.dirty, |ident| {
            let step = freeze.state.table(ident).ok().map(|table| plan.step(table, &mut users));
            plan.trees.push((ident, step));
        });
        plan
    }

    fn step(&mut self, table: &Table, users: &mut HashMap<u64, u64>) -> Step {
        let sharers = users.get(&table.base).copied().unwrap_or_default();
        let Some(frozen) = &table.frozen else {
            return Step { table: table.clone(), number: table.base, copied: false };
        };
        let (number, copied) = match (table.entries, table.base) {
            (0, _) => (0, false),
            (_, base) if base != 0 && sharers == 1 => (base, false),
            _ => {
                self.next_table += 1;
                (self.next_table - 1, true)
            }
        };
        // The last of several sharers that have all changed may have the table for itself.
        if number != table.base
            && let Some(sharers) = users.get_mut(&table.base)
        {
            *sharers -= 1;
        }
        self.wanted.insert(number);
        self.tables.insert(frozen.number, number);
        Step { table: table.clone(), number, copied }
    }

    /// Writes everything to the base, durably. `view` is the base as it was, for what has to be copied.
    pub(super) fn write(&self, base: &Base, view: &Arc<View>) -> Result<()> {
        let mut transaction = base.database()?.begin_write().map_err(storage)?;
        transaction.set_quick_repair(true);
        self.write_trees(&transaction, view)?;
        self.delete_tables(&transaction)?;
        {
            let mut numbers = transaction.open_table(NUMBERS).map_err(storage)?;
            numbers.insert(POSITION, self.position).map_err(storage)?;
            numbers.insert(NEXT_TABLE, self.next_table).map_err(storage)?;
            numbers.insert(TIME, self.time).map_err(storage)?;
        }
        transaction.commit().map_err(storage)
    }

    fn write_trees(&self, transaction: &redb::WriteTransaction, view: &Arc<View>) -> Result<()> {
        let mut rows = transaction.open_table(IDENTS).map_err(storage)?;
        for (ident, step) in &self.trees {
            match step {
                Some(step) => {
                    step.write(transaction, view)?;
                    let row = (step.number, step.table.entries, step.table.bytes);
                    rows.insert(ident.0, row).map_err(storage)?;
                }
                None => drop(rows.remove(ident.0).map_err(storage)?),
            }
        }
        Ok(())
    }

    fn delete_tables(&self, transaction: &redb::WriteTransaction) -> Result<()> {
        let wanted: BTreeSet<String> = self.wanted.iter().map(|number| table_name(*number)).collect();
        let kept = [IDENTS.name(), NUMBERS.name()];
        let there = transaction.list_tables().map_err(storage)?;
        let unwanted = there.filter(|table| !wanted.contains(table.name()) && !kept.contains(&table.name()));
        let unwanted: Vec<_> = unwanted.collect();
        for table in unwanted {
            transaction.delete_table(table).map_err(storage)?;
        }
        Ok(())
    }

    pub(super) fn position(&self) -> u64 {
        self.position
    }
}

impl Step {
    fn write(&self, transaction: &redb::WriteTransaction, view: &Arc<View>) -> Result<()> {
        let Some(frozen) = &self.table.frozen else { return Ok(()) };
        if self.number == 0 {
            return Ok(());
        }
        let name = table_name(self.number);
        let mut table = transaction.open_table(Entries::new(&name)).map_err(storage)?;
        let mut sealed = Vec::new();
        if self.copied {
            let mut cursor = self.table.cursor(view, Range::all(), Direction::Forward)?;
            while let Some((key, value)) = cursor.next()? {
                seal(key, value, &mut sealed);
                table.insert(key, sealed.as_slice()).map_err(storage)?;
            }
            return Ok(());
        }
        let mut cursor = frozen.changes.cursor(Range::all(), Direction::Forward);
        while let Some((key, change)) = cursor.next() {
            match change {
                Change::Put { value, .. } => {
                    seal(key, value, &mut sealed);
                    table.insert(key, sealed.as_slice()).map_err(storage)?;
                }
                Change::Gone => drop(table.remove(key).map_err(storage)?),
            }
        }
        Ok(())
    }
}
