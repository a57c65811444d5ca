//! Plans: how to find the documents that a read asks for.

mod hint;

pub use hint::Hint;

use crate::collection::Collection;
use crate::database::{Database, View};
use crate::exec::{self, RecordStream};
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
    /// Yields the index keys in place of documents.
    pub return_key: bool,
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
            return_key: false,
            allow_disk_use: true,
        }
    }
}

impl Database {
    /// Plans a read and starts it on a view.
    ///
    /// Errors: BadValue for a hint that names no index, and those of the filter's evaluation.
    pub fn read(
        &self,
        operation: &Arc<Operation>,
        view: &View,
        collection: &Arc<Collection>,
        read: Read,
        context: &Arc<Context>,
    ) -> Result<Box<dyn RecordStream>> {
        exec::start(operation, view, collection, read, context)
    }
}
