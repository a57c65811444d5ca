//! The database's interface for pipelines: other collections to read, targets to write.
//!
//! The traits separate the language from the plans. Stages name a collection; the database decides about views,
//! indexes, snapshots and transactions.

use super::{External, Pipeline, Stream};
use crate::{Collation, Context, Matcher, Sorter, Update};
use base::bson::{Document, DocumentBuf, Element, Path, Value};
use base::{Error, ErrorCode, Result, bail, err};
use std::sync::Arc;

/// Maximum number of stages that wait for one another, in nested pipelines and pipelines of views together.
const STAGES_AT_ONCE_MAX: usize = 1500;

/// A collection as named by a stage. `database` is `None` for the command's database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// The other database, if named.
    pub database: Option<String>,
    /// The name of the collection or view.
    pub collection: String,
}

/// The target of `$out`. Documents become visible in [`finish`](Sink::finish).
pub trait Sink: Send {
    /// Writes a document; a document without `_id` gets one.
    fn write(&mut self, document: Document<'_>) -> Result<()>;
    /// Replaces the collection's content by the written documents, atomically.
    fn finish(&mut self) -> Result<()>;
}

/// A unique index on the fields of a `$merge`.
#[derive(Clone, Copy, Debug)]
pub struct UniqueIndex {
    /// Whether documents without the fields have no key.
    pub is_sparse: bool,
}

/// The database as stages see it. Returned streams own their snapshot.
pub trait Collections: Send + Sync {
    /// Returns the documents that match a filter, through an index if possible: `$lookup` by equality, `$graphLookup`.
    /// Views are resolved; a missing collection is empty.
    fn find(&self, from: &Namespace, matcher: Arc<Matcher>, environment: &Environment) -> Result<Stream>;

    /// Returns all documents of a collection in the order of a scan, for a join in memory; `None` for a view, or if an
    /// index may serve a condition on one of the paths.
    fn scan(&self, _from: &Namespace, _paths: &[Path], _environment: &Environment) -> Result<Option<Stream>> {
        Ok(None)
    }

    /// Runs a parsed pipeline over a collection; a plan may execute its leading stages. Used by `$lookup` with a
    /// pipeline and `$unionWith`.
    fn aggregate(&self, from: &Namespace, pipeline: &Pipeline, environment: &Environment) -> Result<Stream>;

    /// Returns the documents of a source in the database or the server.
    fn source(&self, source: &External, _context: &Arc<Context>) -> Result<Stream> {
        Err(err!(NotImplemented, "{source:?} is not implemented"))
    }

    /// The pipeline's database, and its collection or `$cmd.aggregate`.
    fn namespace(&self) -> (&str, &str);

    /// Returns the collections and views of one or all databases as listCollections does, each with its database's
    /// name.
    fn list(&self, database: Option<&str>) -> Vec<(String, DocumentBuf)>;

    /// Opens the target of `$out`.
    fn out(&self, into: &Namespace, _context: &Arc<Context>) -> Result<Box<dyn Sink>> {
        Err(err!(NotImplemented, "$out into {} is not implemented", into.collection))
    }

    /// Returns a unique index that has exactly these fields (in any order, not partial), as `$merge` requires. Not
    /// called for `_id` alone.
    fn unique_index(&self, _: &Namespace, _: &[String], _: &Collation) -> Result<Option<UniqueIndex>> {
        Ok(None)
    }

    /// Inserts one document: `$merge` with `whenMatched: "fail"`.
    fn insert(&self, into: &Namespace, _document: Document<'_>, _context: &Arc<Context>) -> Result<()> {
        Err(err!(NotImplemented, "$merge into {} is not implemented", into.collection))
    }

    /// Updates the document that matches a filter of equalities; returns whether it existed. Used by the other modes of
    /// `$merge`.
    ///
    /// If no document matches, `insert` (if given) is inserted unchanged. A pipeline reads the variables of
    /// `context`.
    fn update(
        &self,
        into: &Namespace,
        _filter: Document<'_>,
        _update: Arc<Update>,
        _insert: Option<Document<'_>>,
        _context: &Arc<Context>,
    ) -> Result<bool> {
        Err(err!(NotImplemented, "$merge into {} is not implemented", into.collection))
    }
}

/// The environment of a running pipeline.
#[derive(Clone)]
pub struct Environment {
    /// Access to other collections.
    pub collections: Arc<dyn Collections>,
    /// Time, variables, interruption.
    pub context: Arc<Context>,
    /// Whether blocking stages may spill to temporary files beyond their memory limit.
    pub allow_disk_use: bool,
    /// Number of stages around this pipeline. Each stage that waits for another's document takes a frame or more of the
    /// thread's stack.
    above: usize,
}

impl Environment {
    /// Builds an environment; the limits determine whether spilling is allowed.
    pub fn new(collections: Arc<dyn Collections>, context: Arc<Context>) -> Environment {
        let allow_disk_use = context.limits.allow_disk_use;
        Environment { collections, context, allow_disk_use, above: 0 }
    }

    /// Returns a sorter of at most `limit` documents and `memory` bytes.
    pub(crate) fn sorter(&self, limit: usize, memory: usize) -> Sorter {
        Sorter::new(limit, memory, self.allow_disk_use).spilling_into(&self.context.spills)
    }

    /// Returns the environment for pipelines nested within `stages` stages.
    ///
    /// Errors: 7749501 for too many stages in all.
    pub(crate) fn below(&self, stages: usize) -> Result<Environment> {
        let above = self.above + stages;
        if above > STAGES_AT_ONCE_MAX {
            bail!(
                7749501,
                "Pipeline length must be no longer than {STAGES_AT_ONCE_MAX} stages, including the stages \
                 of enclosing pipelines"
            );
        }
        Ok(Environment { above, ..self.clone() })
    }

    /// Copies the environment with other collections.
    pub fn with_collections(&self, collections: Arc<dyn Collections>) -> Environment {
        Environment { collections, ..self.clone() }
    }

    /// Copies the environment with another context, for a sub-pipeline with different variables or for another thread.
    pub fn with_context(&self, context: Context) -> Environment {
        Environment { context: Arc::new(context), ..self.clone() }
    }
}

impl Namespace {
    /// Returns a collection of the command's database.
    pub fn local(collection: &str) -> Namespace {
        Namespace { database: None, collection: collection.to_string() }
    }

    /// Parses `{db, coll}`; `prefix` is its name in messages.
    ///
    /// Errors: 40415 for an unknown field, 40414 without a collection, TypeMismatch, NotImplemented for a time-series
    /// target.
    pub(super) fn parse(prefix: &str, target: Document<'_>) -> Result<Namespace> {
        let (mut database, mut collection) = (None, None);
        for field in target {
            match field.name() {
                "db" if prefix.starts_with("$merge") && left_out(field.value()) => {}
                "db" => database = Some(text(prefix, &field)?),
                "coll" if prefix.starts_with("$merge") && left_out(field.value()) => {
                    bail!(5786801, "Invalid {prefix}: the name of the collection is empty");
                }
                "coll" => collection = Some(text(prefix, &field)?),
                "timeseries" => bail!(NotImplemented, "{prefix}.timeseries is not implemented"),
                other => return Err(Error::unknown_field(format_args!("{prefix}.{other}"))),
            }
        }
        match collection {
            Some(collection) => Ok(Namespace { database, collection }),
            None => Err(Error::missing_field(format_args!("{prefix}.coll"))),
        }
    }

    /// Refuses collections that a pipeline must not write to.
    ///
    /// Errors: the first code for a system collection, the second for an internal database.
    pub(super) fn check_target(&self, stage: &str, codes: (i32, i32)) -> Result<()> {
        let error = |code, message| Err(Error::new(ErrorCode::Location(code), message));
        if self.collection.starts_with("system.") {
            return error(
                codes.0,
                format!("{stage} cannot write to the special collection {}", self.collection),
            );
        }
        self.check_database("", stage, codes.1)
    }

    /// Refuses an internal database, also if it is the command's.
    ///
    /// Errors: the code.
    pub(super) fn check_database(&self, of_command: &str, stage: &str, code: i32) -> Result<()> {
        match self.database.as_deref().unwrap_or(of_command) {
            database @ ("admin" | "config" | "local") => Err(Error::new(
                ErrorCode::Location(code),
                format!("{stage} cannot write to the internal database {database}"),
            )),
            _ => Ok(()),
        }
    }
}

/// Null and an empty string mean an absent value.
fn left_out(value: Value<'_>) -> bool {
    value.is_nullish() || value.as_str() == Some("")
}

/// Returns a non-empty string. Errors: InvalidNamespace if empty, TypeMismatch for other types.
fn text(prefix: &str, field: &Element<'_>) -> Result<String> {
    match field.value() {
        Value::String(text) if !text.is_empty() => Ok(text.to_string()),
        Value::String(_) => Err(err!(InvalidNamespace, "{prefix}.{} cannot be empty", field.name())),
        other => Err(Error::wrong_type(format_args!("{prefix}.{}", field.name()), other.kind(), "string")),
    }
}
