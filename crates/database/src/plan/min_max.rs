//! `min` and `max`: bounds on an index given as keys rather than by a filter.

use super::Read;
use crate::index::{Index, KeyKind};
use base::bson::{Document, DocumentBuf};
use base::{Result, err};
use query::collation::{Collation, depends_on_collation};
use std::ops::Bound;
use storage::{Key, Range};

/// The range of keys from `min` (included) up to `max` (left out).
///
/// Errors: 51174 where a bound hasn't the fields of the index in its order, 51175 where the bounds
/// are in the wrong order, 51176 where they have not the same fields.
pub(crate) fn range(index: &Index, read: &Read) -> Result<Range> {
    if index.spec.wildcard.is_some() {
        return Err(incompatible());
    }
    if let (Some(min), Some(max)) = (&read.min, &read.max) {
        let names = |document: &DocumentBuf| -> Vec<String> {
            document.view().iter().map(|element| element.name().to_string()).collect()
        };
        if names(min) != names(max) {
            return Err(err!(51176, "min and max must have the same field names"));
        }
    }
    let bound = |document: &Option<DocumentBuf>| match document {
        Some(document) => key(index, document.view(), read.matcher.collation()).map(Some),
        None => Ok(None),
    };
    let (lower, upper) = (bound(&read.min)?, bound(&read.max)?);
    if let (Some(lower), Some(upper)) = (&lower, &upper)
        && lower >= upper
    {
        return Err(err!(
            51175,
            "The value provided for min() does not come before the value provided for max()"
        ));
    }
    Ok(Range {
        lower: lower.map_or(Bound::Unbounded, |key| Bound::Included(Key::from(key))),
        upper: upper.map_or(Bound::Unbounded, |key| Bound::Excluded(Key::from(key))),
    })
}

fn incompatible() -> base::Error {
    err!(51174, "The index chosen is not compatible with min/max")
}

fn key(index: &Index, document: Document<'_>, collation: &Collation) -> Result<Vec<u8>> {
    if document.iter().count() != index.spec.parts.len() {
        return Err(incompatible());
    }
    let mut key = Vec::new();
    for (element, part) in document.iter().zip(&index.spec.parts) {
        if element.name() != part.path.as_str() {
            return Err(incompatible());
        }
        if index.spec.collation != *collation && depends_on_collation(element.value()) {
            return Err(incompatible());
        }
        index.spec.collation.append_key(element.value(), part.kind != KeyKind::Descending, &mut key);
    }
    Ok(key)
}
