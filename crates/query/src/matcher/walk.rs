//! Values at a path of a document, with MongoDB's implicit traversal of arrays.
//!
//! - In documents a path descends by name. It finds one missing value if a name is absent or a value on the path is
//!   neither document nor array.
//! - In an array on the path it descends into each element that is a document. Other elements find nothing, not even a
//!   missing value. A numeric component also descends into the element at that position; there it enters an array
//!   directly within the array.
//! - A trailing dot after an array is ignored.
//! - An array at the end of the path yields each of its elements and then itself. An array reached by position yields
//!   only itself.
//! - MongoDB 9.0 has another rule for conditions that null satisfies: see [`LeafArrays::TraverseGaps`].
//!
//! The walk decodes nothing: it compares names as bytes and skips values by length.

use base::Result;
use base::bson::{Document, Element, PathComponent};

/// Values that a path finds in arrays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LeafArrays {
    /// An array at the end of a path yields its elements and itself.
    Traverse,
    /// As `Traverse`, with missing values as in MongoDB 9.0 (src/mongo/db/matcher/path.cpp). An element of an array on
    /// the path that is no document yields a missing value, unless the next component is a number. An array without any
    /// element that leads on yields one missing value, unless a position selected this array.
    TraverseGaps,
    /// An array at the end of a path yields only itself.
    Keep,
}

/// A value that a path found.
#[derive(Clone, Copy)]
pub(super) struct Found<'a> {
    /// The value; `None` if missing.
    pub(super) element: Option<Element<'a>>,
    /// The name (decimal position) of the element in the outermost implicitly traversed array. The positional operator
    /// `$` refers to it.
    pub(super) position: Option<&'a [u8]>,
}

/// Passes the values at a path to `visit` until it returns true; returns that result.
pub(super) fn walk<'a>(
    components: &[PathComponent],
    document: Document<'a>,
    leaf: LeafArrays,
    visit: &mut impl FnMut(Found<'a>) -> Result<bool>,
) -> Result<bool> {
    in_document(components, document, leaf, None, visit)
}

/// As [`walk`], from the value of the path's first component; `components` are the components after it.
pub(super) fn walk_from<'a>(
    components: &[PathComponent],
    element: Element<'a>,
    leaf: LeafArrays,
    visit: &mut impl FnMut(Found<'a>) -> Result<bool>,
) -> Result<bool> {
    at_value(components, element, leaf, None, visit)
}

/// Descends into a document by the first component.
fn in_document<'a>(
    components: &[PathComponent],
    document: Document<'a>,
    leaf: LeafArrays,
    position: Option<&'a [u8]>,
    visit: &mut impl FnMut(Found<'a>) -> Result<bool>,
) -> Result<bool> {
    let Some((first, rest)) = components.split_first() else { return Ok(false) };
    walk_found(rest, document.find(first.name()), leaf, position, visit)
}

/// As [`walk`], with the element of the path's first component; `components` are the components after it.
#[inline]
pub(super) fn walk_found<'a>(
    components: &[PathComponent],
    found: Option<Element<'a>>,
    leaf: LeafArrays,
    position: Option<&'a [u8]>,
    visit: &mut impl FnMut(Found<'a>) -> Result<bool>,
) -> Result<bool> {
    match found {
        Some(element) => at_value(components, element, leaf, position, visit),
        None => visit(Found { element: None, position }),
    }
}

/// Visits a value at the end of the path, or descends into it.
fn at_value<'a>(
    rest: &[PathComponent],
    element: Element<'a>,
    leaf: LeafArrays,
    position: Option<&'a [u8]>,
    visit: &mut impl FnMut(Found<'a>) -> Result<bool>,
) -> Result<bool> {
    use base::bson::Type;
    match element.kind() {
        // The empty component after `a.` is not a name: the array is the end of the path.
        Type::Array if matches!(rest, [only] if only.name().is_empty()) => {
            at_value(&[], element, leaf, position, visit)
        }
        Type::Array if !rest.is_empty() => {
            in_array(rest, element, leaf, position, visit, leaf == LeafArrays::TraverseGaps)
        }
        Type::Array if leaf != LeafArrays::Keep => leaf_array(element, position, visit),
        Type::Document if !rest.is_empty() => in_document(rest, nested(element), leaf, position, visit),
        _ if rest.is_empty() => visit(Found { element: Some(element), position }),
        _ => visit(Found { element: None, position }),
    }
}

/// Visits each element of an array at the end of the path, then the array itself.
fn leaf_array<'a>(
    array: Element<'a>,
    position: Option<&'a [u8]>,
    visit: &mut impl FnMut(Found<'a>) -> Result<bool>,
) -> Result<bool> {
    for element in nested(array) {
        let found = Found { element: Some(element), position: position.or(Some(element.name_bytes())) };
        if visit(found)? {
            return Ok(true);
        }
    }
    visit(Found { element: Some(array), position })
}

/// Descends into an array on the path: into each document, and into the element that the next component selects by
/// position. `is_gap` lets an array without any element that leads on yield a missing value.
fn in_array<'a>(
    rest: &[PathComponent],
    array: Element<'a>,
    leaf: LeafArrays,
    position: Option<&'a [u8]>,
    visit: &mut impl FnMut(Found<'a>) -> Result<bool>,
    mut is_gap: bool,
) -> Result<bool> {
    use base::bson::Type;
    let Some((next, after)) = rest.split_first() else { return Ok(false) };
    let index_name = next.index().map(|_| next.name().as_bytes());
    let finds_gaps = leaf == LeafArrays::TraverseGaps && index_name.is_none();
    let gap = Found { element: None, position };
    for element in nested(array) {
        let is_document = element.kind() == Type::Document;
        let implicit = position.or(Some(element.name_bytes()));
        if is_document && in_document(rest, nested(element), leaf, implicit, visit)? {
            return Ok(true);
        }
        if finds_gaps && !is_document && visit(gap)? {
            return Ok(true);
        }
        is_gap &= !is_document && !finds_gaps;
        if index_name != Some(element.name_bytes()) {
            continue;
        }
        is_gap &= !after.is_empty() && element.kind() != Type::Array;
        let matched = match element.kind() {
            // A document was already a candidate for implicit traversal, so its position counts.
            _ if after.is_empty() => {
                let position = if is_document { implicit } else { position };
                visit(Found { element: Some(element), position })?
            }
            Type::Document => in_document(after, nested(element), leaf, position, visit)?,
            Type::Array if matches!(after, [only] if only.name().is_empty()) => {
                visit(Found { element: Some(element), position })?
            }
            Type::Array => in_array(after, element, leaf, position, visit, false)?,
            _ => false,
        };
        if matched {
            return Ok(true);
        }
    }
    Ok(is_gap && visit(gap)?)
}

/// The content of a document or array.
pub(super) fn nested<'a>(element: Element<'a>) -> Document<'a> {
    Document::from_valid(element.value_bytes())
}
