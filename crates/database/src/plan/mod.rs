//! Plans: how to find the documents that a read asks for.

mod access;
mod bounds;
mod build;
mod choose;
mod conjuncts;
mod covering;
mod geo;
mod hint;
mod implies;
mod metadata;
pub(crate) mod shape;
#[cfg(test)]
mod tests;
mod text;
mod trials;
mod wildcard;

pub(crate) use build::{Plan, by_id, plan, sort_document};
pub(crate) use choose::Source;
pub use hint::Hint;
pub(crate) use metadata::{no_sort, note, note_none, wanted};
pub(crate) use text::refuse_missing;

use crate::access::{Access, interval};
use base::bson::{DocumentBuf, Path};
use query::matcher::Matcher;
use query::{MetaKinds, SortPattern};
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
    /// The one path of which only the different values are wanted, so that one document of each will do.
    pub distinct: Option<Path>,
    /// What a `$group` behind the plan makes do with.
    pub grouped: Option<Grouped>,
    /// The projection as the client gave it, as a part of the query's shape.
    pub projection: Option<DocumentBuf>,
    /// Yields the index keys in place of documents.
    pub return_key: bool,
    /// What each record is to tell beside its id and document: the index key, scores, distances. For
    /// the sort key documents are left whole, or index keys in their places know it.
    pub metadata: MetaKinds,
    /// Whether a blocking sort may spill to disk.
    pub allow_disk_use: bool,
    /// Whether nothing else is read from the view, which may be given up once the plan has what it needs.
    pub alone: bool,
}

/// A `$group` by the value at a path that needs one document of each group: the first in the wanted order, or the
/// last.
#[derive(Clone, Debug, PartialEq)]
pub struct Grouped {
    /// The path.
    pub path: Path,
    /// Whether it is the last.
    pub last: bool,
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
            distinct: None,
            grouped: None,
            projection: None,
            return_key: false,
            metadata: MetaKinds::default(),
            allow_disk_use: true,
            alone: false,
        }
    }
}
