//! The values at a path, for indexes whose values may be arrays themselves.

use base::bson::{Document, PathComponent, Value};

/// Calls `visit` with each value at a path: through arrays on the way into the documents in them, or to
/// a position where the path has a number. An array at the end is one value, unless it is to be
/// `expanded`. Arrays that fan out are noted as bits of the path's components.
pub(crate) fn elements<'d>(
    document: Document<'d>,
    components: &[PathComponent],
    expanded: bool,
    visit: &mut dyn FnMut(Value<'d>),
) -> u32 {
    walk(document, components, 0, expanded, visit)
}

/// Recursion is bounded by the path.
fn walk<'d>(
    document: Document<'d>,
    components: &[PathComponent],
    depth: usize,
    expanded: bool,
    visit: &mut dyn FnMut(Value<'d>),
) -> u32 {
    let Some((first, rest)) = components.split_first() else { return 0 };
    let Some(value) = document.get(first.name()) else { return 0 };
    let bit = 1 << depth.min(31);
    match (value, rest.first()) {
        (Value::Array(array), None) if expanded => {
            array.iter().for_each(&mut *visit);
            bit
        }
        (_, None) => {
            visit(value);
            0
        }
        (Value::Document(inner), Some(_)) => walk(inner, rest, depth + 1, expanded, visit),
        (Value::Array(array), Some(next)) if next.index().is_some() => {
            walk(array.as_document(), rest, depth + 1, expanded, visit)
        }
        (Value::Array(array), Some(_)) => {
            let inner = array.iter().filter_map(|element| element.as_document());
            inner.fold(bit, |bits, inner| bits | walk(inner, rest, depth + 1, expanded, visit))
        }
        _ => 0,
    }
}
