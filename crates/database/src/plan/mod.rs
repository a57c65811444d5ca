//! Plans: how to find the documents that a read asks for.
//!
//! What is known of the documents that a plan finds, for `$meta`: what it is to tell, and telling it.

mod access;
mod bounds;
mod build;
mod choose;
mod conjuncts;
mod covering;
mod geo;
mod hint;
pub(crate) mod shape;
#[cfg(test)]
mod tests;
mod text;
mod tree;
mod trials;
mod wildcard;

pub(crate) use build::{Plan, by_id, plan, sort_document};
pub use hint::Hint;
pub(crate) use text::refuse_missing;

use crate::access::{Access, interval};
use crate::exec::Record;
use base::bson::{DocumentBuf, Path};
use base::{Error, Result, err};
use query::matcher::Matcher;
use query::{Context, DocumentMetadata, MetaKind, MetaKinds, SortPattern};
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

/// What a plan has to tell of the records it finds, of what will be asked for.
///
/// Errors: 40218 for what only searches give and the filter is none such; BadValue for the sort key of what isn't
/// sorted.
pub(crate) fn wanted(matcher: &Matcher, sort: Option<&SortPattern>, context: &Context) -> Result<MetaKinds> {
    let kinds = context.metadata.wanted().without(MetaKind::RecordId);
    let gives = |kind: MetaKind| match kind {
        MetaKind::TextScore => matches!(matcher.text(), Ok(Some(_))),
        _ => kind.is_of_places() && matcher.near().is_some(),
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

/// Notes in the context what `$meta` may ask of a record.
pub(crate) fn note(record: &Record, sort: Option<&SortPattern>, context: &Context) -> Result<()> {
    let mut noted = record.meta.as_deref().cloned().unwrap_or_default();
    noted.record_id = i64::try_from(record.id.0).ok();
    if let (None, Some(sort), true) = (&noted.sort_key, sort, context.metadata.wants(MetaKind::SortKey)) {
        noted.sort_key = Some(sort.values(record.document.view(), &noted)?);
    }
    context.metadata.note(noted);
    Ok(())
}

/// Notes that what comes next is a document that nothing has found.
pub(crate) fn note_none(context: &Context) {
    if context.metadata.wants_any() {
        context.metadata.note(DocumentMetadata::default());
    }
}

/// The error of asking for a sort key where there is no sort.
pub(crate) fn no_sort() -> Error {
    err!(BadValue, "cannot use sortKey $meta projection without a sort")
}
