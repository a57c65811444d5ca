//! Plans: how to find the documents that a read asks for.

mod access;
mod bounds;
mod build;
mod choose;
mod conjuncts;
mod covering;
mod expr;
mod hint;
mod implies;
mod interval;
mod min_max;
mod order;
pub(crate) mod shape;
#[cfg(test)]
mod tests;
mod wildcard;

pub(crate) use access::Access;
pub(crate) use build::{Plan, plan, sort_document};
pub use hint::Hint;
pub(crate) use interval::Interval;

use crate::collection::Collection;
use crate::database::{Database, View};
use crate::exec::RecordStream;
use crate::operation::Operation;
use base::Result;
use base::bson::{DocumentBuf, Path};
use query::matcher::Matcher;
use query::{Context, SortPattern};
use std::sync::Arc;

/// What to find, in which order, and how much of it.
#[derive(Clone)]
pub struct Read {
    /// Which documents.
    pub matcher: Arc<Matcher>,
    /// Their order; `None` is whatever the plan yields.
    pub sort: Option<Arc<SortPattern>>,
    /// The index to use.
    pub hint: Option<Hint>,
    /// Documents to pass over.
    pub skip: u64,
    /// Documents wanted; zero is all.
    pub limit: u64,
    /// Inclusive lower bound on the hinted index's keys.
    pub min: Option<DocumentBuf>,
    /// Exclusive upper bound on the hinted index's keys.
    pub max: Option<DocumentBuf>,
    /// The paths that the result needs, where an index that has them all may answer without
    /// fetching documents; `None` needs whole documents.
    pub covering: Option<Vec<Path>>,
    /// The projection as the client gave it, as a part of the query's shape.
    pub projection: Option<DocumentBuf>,
    /// Yields the index keys in place of documents.
    pub return_key: bool,
    /// Leaves whole documents, or in their places keys that know it, to tell the sort key by.
    pub sort_key: bool,
    /// Gives each record the key of the index that found it.
    pub index_key: bool,
    /// Whether a blocking sort may spill to disk.
    pub allow_disk_use: bool,
}

impl Read {
    /// All documents that match.
    pub fn new(matcher: Arc<Matcher>) -> Read {
        Read {
            matcher,
            sort: None,
            hint: None,
            skip: 0,
            limit: 0,
            min: None,
            max: None,
            covering: None,
            projection: None,
            return_key: false,
            sort_key: false,
            index_key: false,
            allow_disk_use: true,
        }
    }
}

impl Database {
    /// Plans a read and starts it on a view.
    ///
    /// Errors: BadValue for a hint that names no index; 51173 to 51176 for `min` and `max` that
    /// don't go with the hint; those of evaluating the filter.
    pub fn read(
        &self,
        operation: &Arc<Operation>,
        view: &View,
        collection: &Arc<Collection>,
        read: Read,
        context: &Arc<Context>,
    ) -> Result<Box<dyn RecordStream>> {
        if let Some(found) = build::by_id(operation, view, collection, &read, context)? {
            return Ok(found);
        }
        let plan = build::plan(operation, view, collection, read, context)?;
        plan.note_uses();
        if self.strict.is_on() {
            self.strict.note(collection, &plan);
        }
        if collection.is_large() && plan.reads_all() {
            operation.expect_long();
        }
        plan.start()
    }
}
