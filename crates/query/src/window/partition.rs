//! The documents that window functions look at, and the pattern these are sorted by.

use super::Gathered;
use crate::tick::Tick;
use crate::{Arena, Context, Expression, SortPattern};
use base::bson::{Document, Path, Value, ValueBuf};
use base::{Result, err};
use std::cell::Cell;

/// The `sortBy` of a stage.
pub(crate) struct SortBy {
    pub(crate) pattern: SortPattern,
}

/// One partition, sorted.
pub(crate) struct Partition<'p> {
    pub(crate) documents: &'p Gathered,
    pub(crate) sort_by: Option<&'p SortBy>,
    pub(crate) context: &'p Context,
    /// Bytes that functions hold of it.
    pub(crate) held: Cell<usize>,
}

/// What a function gives for the documents of a partition, in their order, as it is put together.
pub(crate) struct Results<'p> {
    values: Vec<ValueBuf>,
    bytes: usize,
    context: &'p Context,
}

impl<'p> Results<'p> {
    /// None yet, of about so many.
    pub(crate) fn new(count: usize, context: &'p Context) -> Results<'p> {
        Results { values: Vec::with_capacity(count), bytes: 0, context }
    }

    /// Adds the value of the next document.
    ///
    /// Errors: 5414201 beyond the memory; what interrupts it.
    pub(crate) fn push(&mut self, value: ValueBuf) -> Result<()> {
        let bytes = value.bytes().len();
        self.bytes += size_of::<ValueBuf>() + bytes;
        self.context.steps(bytes / 1024)?;
        check_memory(self.bytes, self.context.limits.window)?;
        self.values.push(value);
        Ok(())
    }

    /// The same value as that of the document before.
    ///
    /// Errors: as [`push`](Self::push).
    pub(crate) fn repeat(&mut self) -> Result<bool> {
        match self.values.last().cloned() {
            Some(last) => self.push(last).map(|()| true),
            None => Ok(false),
        }
    }

    /// All of them.
    pub(crate) fn finish(self) -> Vec<ValueBuf> {
        self.values
    }
}

/// Errors: 5414201 beyond the memory.
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
    /// The path, where there is one alone and it ascends.
    pub(crate) fn single_ascending(&self) -> Option<&Path> {
        match self.pattern.fields() {
            [(path, true)] if !self.pattern.is_by_metadata() => Some(path),
            _ => None,
        }
    }

    /// The path, where there is one alone.
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

    /// Visits every document in order.
    pub(crate) fn each(&self, visit: &mut dyn FnMut(Document<'_>) -> Result<()>) -> Result<()> {
        let mut tick = Tick::new(self.context);
        self.documents.each(&mut |document| {
            tick.check()?;
            visit(document)
        })
    }

    /// Accounts for a value that a function holds.
    ///
    /// Errors: 5414201 beyond the memory.
    pub(crate) fn hold_value(&self, value: Option<&ValueBuf>) -> Result<()> {
        let bytes = size_of::<ValueBuf>() + value.map_or(0, |value| value.bytes().len());
        self.held.set(self.held.get() + bytes);
        check_memory(self.held.get(), self.context.limits.window)
    }

    /// The values of an expression; `None` where missing.
    pub(crate) fn values(&self, expression: &Expression) -> Result<Vec<Option<ValueBuf>>> {
        let mut arena = Arena::new();
        let mut values = Vec::with_capacity(self.len());
        self.each(&mut |document| {
            arena.reset();
            let value = expression.evaluate(document, self.context, &arena)?;
            let value = value.map(|value| value.to_owned());
            self.hold_value(value.as_ref())?;
            values.push(value);
            Ok(())
        })?;
        Ok(values)
    }

    /// The values at the path sorted by; missing is null.
    pub(crate) fn sort_values(&self, path: &Path) -> Result<Vec<ValueBuf>> {
        let mut values = Vec::with_capacity(self.len());
        self.each(&mut |document| {
            let value = path.get(document).unwrap_or(Value::Null).to_owned();
            self.hold_value(Some(&value))?;
            values.push(value);
            Ok(())
        })?;
        Ok(values)
    }

    /// For each document whether it sorts equal to the one before.
    pub(crate) fn ties(&self) -> Result<Vec<bool>> {
        let Some(sort_by) = self.sort_by else { return Ok(vec![false; self.len()]) };
        let (mut before, mut key) = (None, Vec::new());
        let mut ties = Vec::with_capacity(self.len());
        self.each(&mut |document| {
            key.clear();
            sort_by.pattern.key_in(document, self.context, &mut key)?;
            ties.push(before.as_deref() == Some(key.as_slice()));
            before = Some(key.clone());
            Ok(())
        })?;
        Ok(ties)
    }
}
