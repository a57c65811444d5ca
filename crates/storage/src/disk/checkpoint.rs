//! A checkpoint: what has changed since the one before, written to the base in one durable transaction.
//!
//! The changes of a tree go into its table if no other tree shares that; else, as after a fork, the tree gets
//! a table of its own with a copy of everything, which costs as much as the tree is large. A tree without
//! entries has no table. Tables that no tree has any more are deleted in the same transaction, so that space
//! comes back whatever happens afterwards: their numbers are found by comparing, not remembered.
//!
//! Writing the base anew when little of its file is still needed.
//!
//! Freed pages are used again, but a few pages in use behind them keep the file as long as it ever was. So what there
//! is is copied to a new file, which then takes the base's name; whoever still reads the old one keeps it open,
//! nameless. A crash leaves the one or the other.

use super::base::{self, Base, Changes, Copied, Numbers, Share, Source, View};
use super::control::Control;
use super::directory::NEW_BASE_FILE;
use super::journal::during;
use super::state::{Change, Freeze, Frozen, Table, each_ident};
use crate::memory::TreeCursor;
use crate::{Direction, Ident, Key, Range, Result, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

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
    pub(super) fn write(&self, base: &mut Base, view: &Arc<View>) -> Result<()> {
        let numbers = Numbers { position: self.position, time: self.time, next_table: self.next_table };
        base.checkpoint(numbers, &|| true, |changes| {
            for (ident, step) in &self.trees {
                match step {
                    Some(step) => {
                        step.write(changes, view)?;
                        changes.note(*ident, Some([step.number, step.table.entries, step.table.bytes]));
                    }
                    None => changes.note(*ident, None),
                }
            }
            changes.keep_only(&self.wanted)
        })
    }

    pub(super) fn position(&self) -> u64 {
        self.position
    }
}

impl Step {
    fn write(&self, changes: &mut Changes<'_>, view: &Arc<View>) -> Result<()> {
        let Some(frozen) = &self.table.frozen else { return Ok(()) };
        match (self.number, self.copied) {
            (0, _) => Ok(()),
            (number, true) => {
                let cursor = self.table.cursor(view, Range::all(), Direction::Forward)?;
                changes.merge(number, &mut Copied::new(cursor))
            }
            (number, false) => {
                let Table { entries, bytes, .. } = self.table;
                let share = Share { changes: frozen.changes.len() as u64, entries, bytes };
                changes.change(number, share, || Layer::new(frozen))
            }
        }
    }
}

/// Frozen changes, one entry ahead.
struct Layer {
    cursor: TreeCursor<Change>,
    next: Option<(Key, Change)>,
}

impl Layer {
    fn new(frozen: &Frozen) -> Self {
        Layer { cursor: frozen.changes.cursor(Range::all(), Direction::Forward), next: None }
    }

    fn fill(&mut self) {
        if self.next.is_none() {
            self.next = self.cursor.next().map(|(key, change)| (Key::from(key), change.clone()));
        }
    }
}

impl Source for Layer {
    fn peek(&mut self) -> Result<Option<&[u8]>> {
        self.fill();
        Ok(self.next.as_ref().map(|(key, _)| &**key))
    }

    fn take(&mut self) -> Result<Option<(Key, Option<Value>)>> {
        self.fill();
        Ok(self.next.take().map(|(key, change)| (key, change.into_value())))
    }
}

/// The cache for the file being written.
const CACHE_BYTES: u64 = 4 << 20;

impl Base {
    /// Writes the base anew from its latest state, and goes on with that; `Closed` if it is told not to go on.
    pub(super) fn rewrite(&mut self, go_on: &dyn Fn() -> bool) -> Result<()> {
        let new = self.path.with_file_name(NEW_BASE_FILE);
        let files = Arc::clone(&self.files);
        let copy = || {
            base::make(&*files, &new)?;
            // Where there is no room for it, it isn't waited for.
            let control = Arc::new(Control::impatient());
            let mut copy =
                Base::open(Arc::clone(&files), new.clone(), CACHE_BYTES, self.compression, control)?;
            self.copy_to(&mut copy, go_on)?;
            let view = self.open_view(&new)?;
            files.rename(&new, &self.path).map_err(|error| during("renaming", &new, error))?;
            Ok(view)
        };
        match copy() {
            Ok(view) => self.go_on_in(view),
            Err(error) => {
                // If it stays it will be overwritten.
                let _ = files.remove(&new);
                return Err(error);
            }
        }
        self.settle()
    }
}
