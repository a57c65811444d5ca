//! What a pipeline needs from the database: other collections to read, places to write.
//!
//! The traits are the seam between the language and the plans: stages name a collection, the
//! database decides about views, indexes, snapshots and transactions.

use super::{External, Pipeline, Stream};
use crate::{Collation, Context, Sorter};
use base::bson::{Document, DocumentBuf, DocumentCow, Value};
use base::{Result, err};
use std::sync::Arc;

/// How many stages may wait for one another, in nested pipelines and those of views all together.
const STAGES_AT_ONCE_MAX: usize = 1500;

/// A collection as a stage names it. `database` is `None` for the one the command runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// The other database, where one was named.
    pub database: Option<String>,
    /// The collection or view.
    pub collection: String,
}

/// Where `$out` writes to: nothing is visible before [`finish`](Sink::finish).
pub trait Sink: Send {
    /// Takes one more document (without `_id`, it is to get one).
    fn write(&mut self, document: DocumentCow) -> Result<()>;
    /// Puts what was written in the collection's place, in one step.
    fn finish(&mut self) -> Result<()>;
}

/// The database as stages see it. What comes back owns its snapshot.
pub trait Collections: Send + Sync {
    /// The documents that match a filter (through an index where there is one): `$lookup` by
    /// equality, `$graphLookup`. Views are resolved; a collection that is not there is empty.
    fn find(&self, from: &Namespace, filter: Document<'_>, environment: &Environment) -> Result<Stream>;

    /// The documents of a collection sent through a parsed pipeline, whose leading stages may be
    /// given to a plan: `$lookup` with a pipeline, `$unionWith`.
    fn aggregate(&self, from: &Namespace, pipeline: &Pipeline, environment: &Environment) -> Result<Stream>;

    /// The documents of a source that the database or the server holds.
    fn source(&self, source: &External, _context: &Arc<Context>) -> Result<Stream> {
        Err(err!(NotImplemented, "{source:?} is not implemented"))
    }

    /// The database that the pipeline runs on, and its collection or `$cmd.aggregate`.
    fn namespace(&self) -> (&str, &str);

    /// The collections and views of one database, or of all, as listCollections shows them, each with the name of its
    /// database.
    fn list(&self, database: Option<&str>) -> Vec<(String, DocumentBuf)>;

    /// A new content for a collection: `$out`.
    fn out(&self, into: &Namespace, _context: &Arc<Context>) -> Result<Box<dyn Sink>> {
        Err(err!(NotImplemented, "$out into {} is not implemented", into.collection))
    }

    /// Whether a unique index covers exactly these fields (in any order, not sparse or partial),
    /// so that `$merge` may match on them. Only asked for anything but `_id` alone.
    fn has_unique_index(&self, _on: &Namespace, _fields: &[String], _collation: &Collation) -> Result<bool> {
        Ok(false)
    }

    /// Inserts one document: `$merge` with `whenMatched: "fail"`.
    fn insert(&self, into: &Namespace, _document: Document<'_>, _context: &Arc<Context>) -> Result<()> {
        Err(err!(NotImplemented, "$merge into {} is not implemented", into.collection))
    }

    /// Updates the document that a filter of equalities finds, and says whether there was one:
    /// the other modes of `$merge`. Where none is found, `insert` (if given) is inserted as it
    /// stands. `update` is a replacement, a document of operators or a pipeline, which reads the
    /// variables of `context`.
    fn update(
        &self,
        into: &Namespace,
        _filter: Document<'_>,
        _update: Value<'_>,
        _insert: Option<Document<'_>>,
        _context: &Arc<Context>,
    ) -> Result<bool> {
        Err(err!(NotImplemented, "$merge into {} is not implemented", into.collection))
    }
}

/// What a running pipeline is surrounded by.
#[derive(Clone)]
pub struct Environment {
    /// The other collections.
    pub collections: Arc<dyn Collections>,
    /// Time, variables, interruption.
    pub context: Arc<Context>,
    /// Whether blocking stages may spill to a temporary file beyond their memory.
    pub allow_disk_use: bool,
    /// How many stages stand around this pipeline: each that waits for another's document is a
    /// frame or more of the thread's stack.
    above: usize,
}

impl Environment {
    /// Surroundings in which spilling is allowed as the limits say.
    pub fn new(collections: Arc<dyn Collections>, context: Arc<Context>) -> Environment {
        let allow_disk_use = context.limits.allow_disk_use;
        Environment { collections, context, allow_disk_use, above: 0 }
    }

    /// A sorter for all documents, or the first so many, that holds so many bytes.
    pub(crate) fn sorter(&self, limit: usize, memory: usize) -> Sorter {
        Sorter::new(limit, memory, self.allow_disk_use).spilling_into(&self.context.spills)
    }

    /// The surroundings of what so many stages run within themselves.
    ///
    /// Errors: 7749501 where there are too many in all.
    pub(crate) fn below(&self, stages: usize) -> Result<Environment> {
        let above = self.above + stages;
        if above > STAGES_AT_ONCE_MAX {
            return Err(err!(
                7749501,
                "Pipeline length must be no longer than {STAGES_AT_ONCE_MAX} stages, those of the pipelines \
                 around it counted"
            ));
        }
        Ok(Environment { above, ..self.clone() })
    }

    /// The same surroundings with other collections.
    pub fn with_collections(&self, collections: Arc<dyn Collections>) -> Environment {
        Environment { collections, ..self.clone() }
    }

    /// The same surroundings with another context: a sub-pipeline with variables of its own.
    pub fn with_context(&self, context: Context) -> Environment {
        Environment { context: Arc::new(context), ..self.clone() }
    }
}

impl Namespace {
    /// A collection of the database that the command runs on.
    pub fn local(collection: &str) -> Namespace {
        Namespace { database: None, collection: collection.to_string() }
    }
}
