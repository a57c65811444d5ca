//! The documents that window functions look at, and the pattern these are sorted by.

use crate::{Arena, Context, Expression, SortPattern};
use base::Result;
use base::bson::{DocumentCow, Path, Value, ValueBuf};

/// The `sortBy` of a stage.
pub(crate) struct SortBy {
    pub(crate) pattern: SortPattern,
}

/// One partition, sorted.
pub(crate) struct Partition<'p> {
    pub(crate) documents: &'p [DocumentCow],
    pub(crate) sort_by: Option<&'p SortBy>,
    pub(crate) context: &'p Context,
}

impl SortBy {
    /// The path, where there is one alone and it ascends.
    pub(crate) fn single_ascending(&self) -> Option<&Path> {
        match self.pattern.fields() {
            [(path, true)] => Some(path),
            _ => None,
        }
    }

    /// The path, where there is one alone.
    pub(crate) fn single(&self) -> Option<&Path> {
        match self.pattern.fields() {
            [(path, _)] => Some(path),
            _ => None,
        }
    }
}

impl Partition<'_> {
    pub(crate) fn len(&self) -> usize {
        self.documents.len()
    }

    /// The values of an expression; `None` where missing.
    pub(crate) fn values(&self, expression: &Expression) -> Result<Vec<Option<ValueBuf>>> {
        let mut arena = Arena::new();
        let mut values = Vec::with_capacity(self.len());
        for document in self.documents {
            arena.reset();
            let value = expression.evaluate(document.view(), self.context, &arena)?;
            values.push(value.map(|value| value.to_owned()));
        }
        Ok(values)
    }

    /// The values at the path sorted by; missing is null.
    pub(crate) fn sort_values(&self, path: &Path) -> Vec<ValueBuf> {
        let value = |document: &DocumentCow| path.get(document.view()).unwrap_or(Value::Null).to_owned();
        self.documents.iter().map(value).collect()
    }

    /// For each document whether it sorts equal to the one before.
    pub(crate) fn ties(&self) -> Result<Vec<bool>> {
        let Some(sort_by) = self.sort_by else { return Ok(vec![false; self.len()]) };
        let (mut before, mut key) = (None, Vec::new());
        let mut ties = Vec::with_capacity(self.len());
        for document in self.documents {
            key.clear();
            sort_by.pattern.key(document.view(), &mut key)?;
            ties.push(before.as_deref() == Some(key.as_slice()));
            before = Some(key.clone());
        }
        Ok(ties)
    }
}
