//! Duplicate indexes: those that another index of the collection does the work of.

use crate::index::{Index, IndexSpec, KeyKind, KeyPart};
use std::sync::Arc;

/// The index that does all that this one does; of two that do the same, the older.
pub(super) fn covering<'i>(indexes: &'i [Arc<Index>], index: &Arc<Index>) -> Option<&'i Index> {
    let mut older = true;
    for other in indexes {
        if Arc::ptr_eq(other, index) {
            older = false;
        } else if covers(&other.spec, &index.spec) && (older || !covers(&index.spec, &other.spec)) {
            return Some(other);
        }
    }
    None
}

/// Whether every plan on `less`, and whatever it enforces, can have `more` instead.
fn covers(more: &IndexSpec, less: &IndexSpec) -> bool {
    let filter = |spec: &IndexSpec| spec.partial.as_ref().map(|partial| partial.filter.clone());
    let same_length = more.parts.len() == less.parts.len();
    // A longer sparse index holds other documents, and a longer unique one allows more.
    let same_documents =
        more.sparse == less.sparse && (!less.sparse || same_length) && filter(more) == filter(less);
    let enforces = !less.unique || (more.unique && same_length);
    let is_id = less.name == "_id_";
    let expires = less.expire_after_seconds.is_some();
    begins_with(&more.parts, &less.parts)
        && same_documents
        && more.wildcard == less.wildcard
        && more.geo == less.geo
        && enforces
        && more.collation == less.collation
        && !(is_id || expires || more.hidden || less.hidden)
}

/// Whether a key pattern begins with another, in its directions or with all of them reversed.
fn begins_with(more: &[KeyPart], less: &[KeyPart]) -> bool {
    let matches = |reversed: bool| {
        let kind = |kind: KeyKind| match (reversed, kind) {
            (true, KeyKind::Ascending) => KeyKind::Descending,
            (true, KeyKind::Descending) => KeyKind::Ascending,
            _ => kind,
        };
        more.iter().zip(less).all(|(a, b)| a.path == b.path && a.kind == kind(b.kind))
    };
    more.len() >= less.len() && (matches(false) || matches(true))
}
