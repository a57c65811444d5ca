//! Query plans: how a read finds its documents.
//!
//! This module also computes the metadata of a plan's records for `$meta`.

mod access;
mod bounds;
mod build;
mod choose;
mod conjuncts;
mod covering;
mod geo;
mod hint;
pub(crate) mod shape;
pub(crate) mod strict;
#[cfg(test)]
mod tests;
mod text;
mod tree;
mod trials;
mod wildcard;

pub(crate) use build::{Plan, by_id, plan, sort_document};
pub use hint::Hint;
pub(crate) use text::read_missing;

use crate::access::Access;
use base::bson::{DocumentBuf, Path};
use base::{Error, Result, err};
use query::matcher::Matcher;
use query::{Context, MetaKind, MetaKinds, Row, SortPattern};
use std::sync::Arc;

/// Filter, order and limits of a read.
#[derive(Clone)]
pub struct Read {
    /// Filter of the documents.
    pub matcher: Arc<Matcher>,
    /// Order of the documents; `None` for the plan's order.
    pub sort: Option<Arc<SortPattern>>,
    /// Index hint.
    pub hint: Option<Hint>,
    /// Number of documents to skip.
    pub skip: u64,
    /// Most documents to return; zero is unlimited.
    pub limit: u64,
    /// Inclusive lower bound on the hinted index's keys.
    pub min: Option<DocumentBuf>,
    /// Exclusive upper bound on the hinted index's keys.
    pub max: Option<DocumentBuf>,
    /// Paths that the result needs. An index with all of them can answer without a fetch. `None`
    /// needs whole documents.
    pub covering: Option<Vec<Path>>,
    /// The path of a distinct read: one document of each value is enough.
    pub distinct: Option<Path>,
    /// The requirements of a `$group` behind the plan.
    pub grouped: Option<Grouped>,
    /// The client's projection, as a part of the query shape.
    pub projection: Option<DocumentBuf>,
    /// Returns the index keys instead of documents.
    pub return_key: bool,
    /// Metadata of each record besides id and document: index key, scores, distances. Sort keys
    /// need whole documents, or index keys instead of them.
    pub metadata: MetaKinds,
    /// True if a blocking sort may spill to disk.
    pub allow_disk_use: bool,
    /// True if the view has no other reader. The plan may then release the view early.
    pub alone: bool,
}

/// A `$group` by the value of a path that needs one document of each group: the first in sort
/// order, or the last.
#[derive(Clone, Debug, PartialEq)]
pub struct Grouped {
    /// The path.
    pub path: Path,
    /// Needs the last document instead of the first.
    pub last: bool,
}

impl Read {
    /// Returns a read of all matching documents.
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

/// Returns the metadata that a plan must provide for the expressions that use it.
///
/// Errors: 40218 for scores or distances without a matching search; BadValue for a sort key without
/// a sort.
pub(crate) fn required_metadata(
    matcher: &Matcher,
    sort: Option<&SortPattern>,
    context: &Context,
) -> Result<MetaKinds> {
    let kinds = context.metadata.required().without(MetaKind::RecordId);
    let gives = |kind: MetaKind| match kind {
        MetaKind::TextScore => matches!(matcher.text(), Ok(Some(_))),
        _ => kind.is_geo_near() && matcher.near().is_some(),
    };
    let missing = MetaKind::SEARCHED.into_iter().find(|kind| kinds.has(*kind) && !gives(*kind));
    if let Some(kind) = missing {
        return Err(kind.unavailable());
    }
    if kinds.has(MetaKind::SortKey) && sort.is_none_or(|sort| !sort.orders()) {
        return Err(no_sort());
    }
    Ok(kinds)
}

/// Sets the sort key of a row if `$meta` wants it and no plan node has set it.
///
/// Errors: those of sort patterns.
pub(crate) fn note_sort_key(row: &mut Row, sort: Option<&SortPattern>, context: &Context) -> Result<()> {
    match sort.filter(|_| context.metadata.requires(MetaKind::SortKey)) {
        Some(sort) if row.get(MetaKind::SortKey).is_none() => sort.set_sort_key(row),
        _ => Ok(()),
    }
}

/// Returns the error for a sort key without a sort.
pub(crate) fn no_sort() -> Error {
    err!(BadValue, "cannot use sortKey $meta projection without a sort")
}
