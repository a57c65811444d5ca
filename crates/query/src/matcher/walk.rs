//! How a path finds its values in a document: MongoDB's implicit traversal of arrays.
//!
//! - Through documents a path descends by name. Where a name is absent, or a value on the way is
//!   neither document nor array, the path finds one missing value.
//! - Through an array on the way it descends into each element that is a document; other
//!   elements find nothing, not even a missing value. A component that is a number also descends
//!   into the element at that position; there an array directly within the array is entered.
//! - A dot at a path's end after an array is as nothing.
//! - An array at the end of the path gives each of its elements and then itself, unless it was
//!   reached by position, which gives the array alone.
//!
//! Nothing is decoded on the way: names are compared as bytes, other values skipped by length.

use base::Result;
use base::bson::{Document, Element, PathComponent};

/// Whether an array at the end of a path stands for its elements as well as for itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LeafArrays {
    Traverse,
    Keep,
}

/// A value that a path found.
#[derive(Clone, Copy)]
pub(super) struct Found<'a> {
    /// The value, `None` where it is missing.
    pub(super) element: Option<Element<'a>>,
    /// The name (the position in digits) of the element of the outermost array that was
    /// traversed implicitly to get here: what the positional operator `$` stands for.
    pub(super) position: Option<&'a [u8]>,
}

/// Shows the values at a path to `visit` until that returns true, which is then the result.
pub(super) fn walk<'a, V>(
    components: &[PathComponent],
    document: Document<'a>,
    leaf: LeafArrays,
    visit: &mut V,
) -> Result<bool>
where
    V: FnMut(Found<'a>) -> Result<bool>,
{
    in_document(components, document, leaf, None, visit)
}

/// As [`walk`], from the value that the path's first component would have found, so that
/// `components` are those after it.
pub(super) fn walk_from<'a, V>(
    components: &[PathComponent],
    element: Element<'a>,
    leaf: LeafArrays,
    visit: &mut V,
) -> Result<bool>
where
    V: FnMut(Found<'a>) -> Result<bool>,
{
    at_value(components, element, leaf, None, visit)
}

fn in_document<'a, V>(
    components: &[PathComponent],
    document: Document<'a>,
    leaf: LeafArrays,
    position: Option<&'a [u8]>,
    visit: &mut V,
) -> Result<bool>
where
    V: FnMut(Found<'a>) -> Result<bool>,
{
    let Some((first, rest)) = components.split_first() else { return Ok(false) };
    walk_found(rest, document.find(first.name()), leaf, position, visit)
}

/// As [`walk`], with what the path's first component finds in the document, so that `components` are
/// those after it.
#[inline]
pub(super) fn walk_found<'a, V>(
    components: &[PathComponent],
    found: Option<Element<'a>>,
    leaf: LeafArrays,
    position: Option<&'a [u8]>,
    visit: &mut V,
) -> Result<bool>
where
    V: FnMut(Found<'a>) -> Result<bool>,
{
    match found {
        Some(element) => at_value(components, element, leaf, position, visit),
        None => visit(Found { element: None, position }),
    }
}

fn at_value<'a, V>(
    rest: &[PathComponent],
    element: Element<'a>,
    leaf: LeafArrays,
    position: Option<&'a [u8]>,
    visit: &mut V,
) -> Result<bool>
where
    V: FnMut(Found<'a>) -> Result<bool>,
{
    use base::bson::Type;
    match element.kind() {
        // What remains of `a.` is no name: the array is the end of the path.
        Type::Array if matches!(rest, [only] if only.name().is_empty()) => {
            at_value(&[], element, leaf, position, visit)
        }
        Type::Array if !rest.is_empty() => in_array(rest, element, leaf, position, visit),
        Type::Array if leaf == LeafArrays::Traverse => leaf_array(element, position, visit),
        Type::Document if !rest.is_empty() => in_document(rest, nested(element), leaf, position, visit),
        _ if rest.is_empty() => visit(Found { element: Some(element), position }),
        _ => visit(Found { element: None, position }),
    }
}

fn leaf_array<'a, V>(array: Element<'a>, position: Option<&'a [u8]>, visit: &mut V) -> Result<bool>
where
    V: FnMut(Found<'a>) -> Result<bool>,
{
    for element in nested(array) {
        let found = Found { element: Some(element), position: position.or(Some(element.name_bytes())) };
        if visit(found)? {
            return Ok(true);
        }
    }
    visit(Found { element: Some(array), position })
}

fn in_array<'a, V>(
    rest: &[PathComponent],
    array: Element<'a>,
    leaf: LeafArrays,
    position: Option<&'a [u8]>,
    visit: &mut V,
) -> Result<bool>
where
    V: FnMut(Found<'a>) -> Result<bool>,
{
    use base::bson::Type;
    let Some((next, after)) = rest.split_first() else { return Ok(false) };
    let wanted = next.index().map(|_| next.name().as_bytes());
    for element in nested(array) {
        let is_document = element.kind() == Type::Document;
        let implicit = position.or(Some(element.name_bytes()));
        if is_document && in_document(rest, nested(element), leaf, implicit, visit)? {
            return Ok(true);
        }
        if wanted != Some(element.name_bytes()) {
            continue;
        }
        let matched = match element.kind() {
            // A document was a candidate for implicit traversal already, so its position counts.
            _ if after.is_empty() => {
                let position = if is_document { implicit } else { position };
                visit(Found { element: Some(element), position })?
            }
            Type::Document => in_document(after, nested(element), leaf, position, visit)?,
            Type::Array => in_array(after, element, leaf, position, visit)?,
            _ => false,
        };
        if matched {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The inside of a document or array.
pub(super) fn nested<'a>(element: Element<'a>) -> Document<'a> {
    Document::from_valid(element.value_bytes())
}
