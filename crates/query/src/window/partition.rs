//! The documents of a window function, and their sort pattern.

use super::PartitionBuffer;
use crate::interrupt_check::InterruptCheck;
use crate::{Arena, Context, Expression, RowView, SortPattern};
use base::bson::{Path, Value, ValueBuf};
use base::{Result, err};
use std::cell::Cell;

/// The `sortBy` of a stage.
pub(crate) struct SortBy {
    pub(crate) pattern: SortPattern,
}

/// A sorted partition.
pub(crate) struct Partition<'p> {
    pub(crate) documents: &'p PartitionBuffer,
    pub(crate) sort_by: Option<&'p SortBy>,
    pub(crate) context: &'p Context,
    /// Bytes of the values that functions have copied.
    pub(crate) memory_used: Cell<usize>,
}

/// Collects a function's values for the documents of a partition, in order.
pub(crate) struct Results<'p> {
    values: Vec<ValueBuf>,
    bytes: usize,
    context: &'p Context,
}

impl<'p> Results<'p> {
    /// Starts an empty list for about `count` values.
    pub(crate) fn new(count: usize, context: &'p Context) -> Results<'p> {
        Results { values: Vec::with_capacity(count), bytes: 0, context }
    }

    /// Adds the value of the next document.
    ///
    /// Errors: 5414201 beyond the memory limit; interruption.
    pub(crate) fn push(&mut self, value: ValueBuf) -> Result<()> {
        let bytes = value.bytes().len();
        self.bytes += size_of::<ValueBuf>() + bytes;
        self.context.steps(bytes / 1024)?;
        check_memory(self.bytes, self.context.limits.window)?;
        self.values.push(value);
        Ok(())
    }

    /// Repeats the previous document's value.
    ///
    /// Errors: as [`push`](Self::push).
    pub(crate) fn repeat(&mut self) -> Result<bool> {
        match self.values.last().cloned() {
            Some(last) => self.push(last).map(|()| true),
            None => Ok(false),
        }
    }

    /// Returns all values.
    pub(crate) fn finish(self) -> Vec<ValueBuf> {
        self.values
    }
}

/// Checks the memory limit. Errors: 5414201 beyond it.
fn check_memory(used: usize, limit: usize) -> Result<()> {
    if used <= limit {
        return Ok(());
    }
    Err(err!(
        5414201,
        "Exceeded memory limit in DocumentSourceSetWindowFields, used {used} bytes but max allowed is {limit} bytes"
    ))
}

impl SortBy {
    /// Returns the path of a single ascending sort field.
    pub(crate) fn single_ascending(&self) -> Option<&Path> {
        match self.pattern.fields() {
            [(path, true)] if !self.pattern.is_by_metadata() => Some(path),
            _ => None,
        }
    }

    /// Returns the path of a single sort field.
    pub(crate) fn single(&self) -> Option<&Path> {
        match self.pattern.fields() {
            [(path, _)] if !self.pattern.is_by_metadata() => Some(path),
            _ => None,
        }
    }
}

impl Partition<'_> {
    pub(crate) fn len(&self) -> usize {
        self.documents.len()
    }

    /// Visits every row in order.
    pub(crate) fn each(&self, visit: &mut dyn FnMut(RowView<'_>) -> Result<()>) -> Result<()> {
        let mut interrupts = InterruptCheck::new(self.context);
        self.documents.each(&mut |row| {
            interrupts.check()?;
            visit(row)
        })
    }

    /// Adds a copied value to the memory in use.
    ///
    /// Errors: 5414201 beyond the memory limit.
    pub(crate) fn track_value(&self, value: Option<&ValueBuf>) -> Result<()> {
        let bytes = size_of::<ValueBuf>() + value.map_or(0, |value| value.bytes().len());
        self.memory_used.set(self.memory_used.get() + bytes);
        check_memory(self.memory_used.get(), self.context.limits.window)
    }

    /// Returns the values of an expression; `None` if missing.
    pub(crate) fn values(&self, expression: &Expression) -> Result<Vec<Option<ValueBuf>>> {
        let mut arena = Arena::new();
        let mut values = Vec::with_capacity(self.len());
        self.each(&mut |row| {
            arena.reset();
            let value = expression.evaluate(row, self.context, &arena)?;
            let value = value.map(|value| value.to_owned());
            self.track_value(value.as_ref())?;
            values.push(value);
            Ok(())
        })?;
        Ok(values)
    }

    /// Returns the values of the sort path; missing values are null.
    pub(crate) fn sort_values(&self, path: &Path) -> Result<Vec<ValueBuf>> {
        let mut values = Vec::with_capacity(self.len());
        self.each(&mut |row| {
            let value = path.get(row.document).unwrap_or(Value::Null).to_owned();
            self.track_value(Some(&value))?;
            values.push(value);
            Ok(())
        })?;
        Ok(values)
    }

    /// Returns, for each document, whether it sorts equal to the previous one.
    pub(crate) fn ties(&self) -> Result<Vec<bool>> {
        let Some(sort_by) = self.sort_by else { return Ok(vec![false; self.len()]) };
        let (mut before, mut key) = (None, Vec::new());
        let mut ties = Vec::with_capacity(self.len());
        self.each(&mut |row| {
            key.clear();
            sort_by.pattern.key_in(row, self.context, &mut key)?;
            ties.push(before.as_deref() == Some(key.as_slice()));
            before = Some(key.clone());
            Ok(())
        })?;
        Ok(ties)
    }
}
