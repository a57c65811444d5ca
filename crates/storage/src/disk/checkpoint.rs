//! Checkpoints: the changes since the previous one, written to the base in one durable transaction.
//!
//! The changes of a tree go into its table if no other tree shares the table. A tree that shares its table, as after a
//! fork, gets a new table with a copy of all entries, at a cost proportional to its size. A tree without entries has no
//! table. The same transaction deletes unreferenced tables, which are found by comparison. Their space is therefore
//! reclaimed in every case.
//!
//! The module also compacts the base when its file contains little live data.
//!
//! Freed pages are reused, but a few live pages at the end keep the file long. Compaction copies the live data into a
//! new file, which then takes the base's name. Readers of the old file keep it open without a name. A crash leaves one
//! of the two files.

use super::base::{self, Base, Changes, Copied, Numbers, Share, Source, View};
use super::directory::NEW_BASE_FILE;
use super::files::Control;
use super::state::{Change, Freeze, Table, each_ident, tree_key};
use crate::memory::LookaheadCursor;
use crate::{Direction, Ident, Key, Range, Result, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// The effect of a checkpoint on the tables, decided before any write.
pub(super) struct Plan {
    /// The later table of each frozen layer; 0 if it has no entries.
    pub(super) tables: BTreeMap<u64, u64>,
    /// Number of the next new table.
    pub(super) next_table: u64,
    /// The changed trees with their steps; `None` for dropped trees.
    trees: Vec<(Ident, Option<Step>)>,
    /// The tables still referenced.
    live_tables: BTreeSet<u64>,
    position: u64,
    time: u64,
}

/// The effect on a changed tree.
struct Step {
    table: Table,
    /// Number of the table afterwards; 0 for none.
    number: u64,
    /// True if its table is new and all entries are copied.
    copied: bool,
}

impl Plan {
    /// Decides the table of each frozen layer.
    pub(super) fn new(freeze: &Freeze, next_table: u64) -> Self {
        let mut users: HashMap<u64, u64> = HashMap::new();
        let mut live_tables = BTreeSet::new();
        freeze.state.each_table(|table| {
            *users.entry(table.base).or_default() += 1;
            if table.frozen.is_none() {
                live_tables.insert(table.base);
            }
        });
        let (position, time) = (freeze.state.position, freeze.state.time);
        let mut plan =
            Plan { tables: BTreeMap::new(), next_table, trees: Vec::new(), live_tables, position, time };
        each_ident(&freeze.dirty, |ident| {
            let step = freeze.state.table(ident).ok().map(|table| plan.step(table, &mut users));
            plan.trees.push((ident, step));
        });
        debug_assert!(
            freeze.dirty.is_empty() || plan.trees.is_sorted_by(|(a, _), (b, _)| tree_key(*a) < tree_key(*b)),
            "a tree is written twice"
        );
        debug_assert!(
            plan.live_tables.iter().all(|number| *number < plan.next_table),
            "a table has a later number"
        );
        plan
    }

    /// Decides the table of a changed tree. `users` counts the trees that share each table.
    fn step(&mut self, table: &Table, users: &mut HashMap<u64, u64>) -> Step {
        let sharers = users.get(&table.base).copied().unwrap_or_default();
        debug_assert!(sharers > 0, "table {} is not counted", table.base);
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
        // If all trees that share a table have changed, the last may keep it.
        if number != table.base
            && let Some(sharers) = users.get_mut(&table.base)
        {
            *sharers -= 1;
        }
        let is_free = self.live_tables.insert(number);
        debug_assert!(is_free || number == 0, "two trees write table {number}");
        debug_assert_eq!(number == 0, table.entries == 0, "{} entries in table {number}", table.entries);
        let written = self.tables.insert(frozen.number, number);
        debug_assert!(written.is_none(), "two trees have the frozen changes {}", frozen.number);
        Step { table: table.clone(), number, copied }
    }

    /// Writes everything to the base, durably. `view` is the previous base, the source of copies.
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
            changes.retain_tables(&self.live_tables)
        })
    }

    /// Returns the position of the last commit in the checkpoint.
    pub(super) fn position(&self) -> u64 {
        self.position
    }
}

impl Step {
    /// Merges the changes of a tree into its table, or copies all entries into a new one.
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
                let cursor = || frozen.changes.cursor(Range::all(), Direction::Forward);
                changes.change(number, share, || LookaheadCursor::new(cursor()))
            }
        }
    }
}

impl Source for LookaheadCursor<Change> {
    fn peek(&mut self) -> Result<Option<&[u8]>> {
        self.look_ahead();
        Ok(self.key())
    }

    fn take(&mut self) -> Result<Option<(Key, Option<Value>)>> {
        if !self.look_ahead() {
            return Ok(None);
        }
        Ok(LookaheadCursor::take(self).map(|(key, change)| (key, change.into_value())))
    }
}

/// Size of the cache for the new file.
const CACHE_BYTES: u64 = 4 << 20;

impl Base {
    /// Rewrites the base from its latest state and switches to the new file. Returns `Closed` if `should_continue`
    /// returns false.
    pub(super) fn rewrite(&mut self, should_continue: &dyn Fn() -> bool) -> Result<()> {
        let new = self.path.with_file_name(NEW_BASE_FILE);
        let files = Arc::clone(&self.files);
        let copy = || {
            base::make(&*files, &new)?;
            // Fails if the disk is full, instead of waiting.
            let control = Arc::new(Control::impatient());
            let mut copy =
                Base::open(Arc::clone(&files), new.clone(), CACHE_BYTES, self.compression, control)?;
            self.copy_to(&mut copy, should_continue)?;
            let view = self.open_view(&new)?;
            files.move_file(&new, &self.path)?;
            Ok(view)
        };
        match copy() {
            Ok(view) => self.switch_to_file(view),
            Err(error) => {
                // If it remains, it will be overwritten.
                let _ = files.remove(&new);
                return Err(error);
            }
        }
        self.sync_name()
    }
}
