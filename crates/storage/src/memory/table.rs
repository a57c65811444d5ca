//! A numbered tree with its size, and the set of all trees: a state of the whole memory engine.
//!
//! A state is itself a persistent tree, from ident to table. Cloning it makes a snapshot. Changing
//! it copies only nodes shared with a snapshot.
//!
//! This module also frees dropped trees, large ones on a separate thread.
//!
//! Dropping a collection takes a commit constant time. Returning a million nodes to the allocator
//! takes many milliseconds, and no writer should wait for it.

use super::differences::TreeDifferences;
use super::node::Tree;
use crate::batch::ExistingTrees;
use crate::{
    Batch, Cursor, Differences, Direction, Error, Ident, Op, Range, Result, Snapshot, Value, threads,
};
use std::sync::OnceLock;
use std::sync::mpsc::{self, Sender};

/// The tree of a collection or an index.
#[derive(Clone, Default)]
pub(super) struct Table {
    pub(super) tree: Tree<Value>,
    /// Total length of all keys and values.
    bytes: u64,
}

impl Table {
    fn put(&mut self, key: &[u8], value: Value) {
        let added = value.len() as u64;
        self.bytes += added;
        match self.tree.insert(key, value) {
            Some(old) => self.bytes -= old.len() as u64,
            None => self.bytes += key.len() as u64,
        }
        debug_assert!(self.bytes >= (key.len() as u64) + added, "{} bytes", self.bytes);
    }

    fn delete(&mut self, key: &[u8]) {
        if let Some(old) = self.tree.remove(key) {
            debug_assert!(self.bytes >= (key.len() + old.len()) as u64, "a deleted key is not counted");
            self.bytes -= (key.len() + old.len()) as u64;
            debug_assert!(self.bytes == 0 || !self.tree.is_empty(), "{} bytes in no entry", self.bytes);
        }
    }
}

/// All trees after a commit.
#[derive(Clone, Default)]
pub(super) struct State {
    tables: Tree<Table>,
    /// Number of committed batches.
    pub(super) commits: u64,
    /// Total length of all keys and values in all trees.
    pub(super) bytes: u64,
}

impl State {
    pub(super) fn table(&self, ident: Ident) -> Result<&Table> {
        self.tables.get(&ident.0.to_be_bytes()).ok_or(Error::NoSuchIdent(ident))
    }

    /// Returns the idents of all trees.
    pub(super) fn idents(&self) -> Vec<Ident> {
        let mut idents = Vec::new();
        let mut cursor = self.tables.cursor(Range::all(), Direction::Forward);
        while let Some((key, _)) = cursor.next() {
            idents.extend(key.first_chunk().map(|bytes| Ident(u64::from_be_bytes(*bytes))));
        }
        debug_assert_eq!(idents.len(), self.tables.len(), "a tree has a key that is no number");
        idents
    }

    /// Checks that every operation of a batch is possible after the operations before it.
    pub(super) fn validate(&self, batch: &Batch) -> Result<()> {
        let mut trees = ExistingTrees::new(|ident| self.table(ident).ok());
        batch.ops().iter().try_for_each(|op| trees.admit(op).map(drop))
    }

    /// Applies a validated batch. Returns the discarded trees, which the caller frees outside of
    /// any lock.
    pub(super) fn apply(&mut self, batch: Batch) -> Vec<Table> {
        let mut discarded = Vec::new();
        let mut ops = batch.into_iter().peekable();
        while let Some(op) = ops.next() {
            match op {
                Op::Create(ident) => self.insert_table(ident, Table::default()),
                Op::Drop(ident) => {
                    discarded.reserve(ops.len() + 1);
                    discarded.extend(self.discard(ident));
                }
                Op::Clear(ident) => discarded.extend(self.change(ident, std::mem::take)),
                Op::Fork { from, to } => {
                    if let Ok(table) = self.table(from).cloned() {
                        self.bytes += table.bytes;
                        self.insert_table(to, table);
                    }
                }
                Op::Put { ident, .. } | Op::Delete { ident, .. } => {
                    // Consecutive writes to one tree, as in an index build, look the tree up once.
                    self.change(ident, |table| {
                        let mut next = Some(op);
                        while let Some(op) = next {
                            write(table, op);
                            next = ops.next_if(|op| written(op) == Some(ident));
                        }
                    });
                }
            }
        }
        self.commits += 1;
        discarded
    }

    fn insert_table(&mut self, ident: Ident, table: Table) {
        let replaced = self.tables.insert(&ident.0.to_be_bytes(), table);
        debug_assert!(replaced.is_none(), "{ident:?} existed");
    }

    fn discard(&mut self, ident: Ident) -> Option<Table> {
        let table = self.tables.remove(&ident.0.to_be_bytes());
        debug_assert!(table.is_some(), "{ident:?} was not validated");
        let table = table?;
        debug_assert!(self.bytes >= table.bytes, "{ident:?} has more bytes than all trees");
        self.bytes -= table.bytes;
        Some(table)
    }

    /// Changes a tree in place and updates the total.
    fn change<R>(&mut self, ident: Ident, change: impl FnOnce(&mut Table) -> R) -> Option<R> {
        let table = self.tables.get_mut(&ident.0.to_be_bytes())?;
        let before = table.bytes;
        debug_assert!(self.bytes >= before, "{ident:?} has more bytes than all trees");
        let result = change(table);
        self.bytes = self.bytes - before + table.bytes;
        Some(result)
    }
}

fn written(op: &Op) -> Option<Ident> {
    match op {
        Op::Put { ident, .. } | Op::Delete { ident, .. } => Some(*ident),
        _ => None,
    }
}

fn write(table: &mut Table, op: Op) {
    match op {
        Op::Put { key, value, .. } => table.put(&key, value),
        Op::Delete { key, .. } => table.delete(&key),
        _ => {}
    }
}

impl Snapshot for State {
    fn get(&self, ident: Ident, key: &[u8]) -> Result<Option<Value>> {
        Ok(self.table(ident)?.tree.get(key).cloned())
    }

    fn scan(&self, ident: Ident, range: Range, direction: Direction) -> Result<Box<dyn Cursor>> {
        Ok(Box::new(self.table(ident)?.tree.cursor(range, direction)))
    }

    fn differences(&self, before: Option<Ident>, after: Option<Ident>) -> Result<Box<dyn Differences>> {
        let tree =
            |ident: Option<Ident>| ident.map(|ident| self.table(ident).map(|table| &table.tree)).transpose();
        Ok(Box::new(TreeDifferences::new(tree(before)?, tree(after)?)))
    }

    fn entries(&self, ident: Ident) -> Result<u64> {
        Ok(self.table(ident)?.tree.len() as u64)
    }

    fn bytes(&self, ident: Ident) -> Result<u64> {
        Ok(self.table(ident)?.bytes)
    }

    fn contains(&self, ident: Ident) -> Result<bool> {
        Ok(self.table(ident).is_ok())
    }
}

/// Trees with more entries than this are freed in the background.
const BIG: usize = 4096;

/// Frees unused trees. The thread starts with the first large tree, and ends with the reaper.
#[derive(Default)]
pub(super) struct Reaper {
    sender: OnceLock<Option<Sender<Table>>>,
}

impl Reaper {
    /// Frees a tree now or later. Must not be called under a lock.
    pub(super) fn free(&self, table: Table) {
        if table.tree.len() > BIG
            && !table.tree.is_shared()
            && let Some(sender) = self.sender.get_or_init(start)
        {
            // A failed send returns the tree inside the error, which is freed here.
            let _ = sender.send(table);
        }
    }
}

/// Starts the thread. If the start fails, for example because of too many threads, trees are freed
/// by the caller.
fn start() -> Option<Sender<Table>> {
    let (sender, receiver) = mpsc::channel();
    let run = move || receiver.into_iter().for_each(drop);
    threads::spawn("storage-reaper", None, run).ok().map(|_| sender)
}
