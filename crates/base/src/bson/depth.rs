//! Nesting depth of documents, measured without recursion.
//!
//! A level takes at least seven bytes, so a short document cannot be deep. Only documents of a kilobyte and more are
//! scanned, and in these only nested documents that are long enough.

use super::{Document, Element, Type};
use crate::{Result, bail};

/// Maximum nesting depth of documents in messages and operations, as in MongoDB; the outermost document counts as one.
pub const MAX_DEPTH: usize = 200;

/// Maximum nesting depth of stored documents. MongoDB reserves the remaining levels for the reply around them.
pub const MAX_STORED_DEPTH: usize = 180;

/// Minimum bytes of a level: a type, an empty name, a length and a terminator.
const LEVEL_BYTES: usize = 7;

/// Whether a document nests deeper than `levels`; the document itself counts as one.
#[inline]
pub fn nests_deeper(document: Document<'_>, levels: usize) -> bool {
    document.bytes().len() > levels * LEVEL_BYTES && exceeds_depth(document, levels)
}

/// Refuses a document that nests too deeply for a reply.
///
/// Errors: Overflow.
#[inline]
pub fn check_depth(document: Document<'_>) -> Result<()> {
    if nests_deeper(document, MAX_DEPTH) {
        bail!(
            Overflow,
            "cannot convert document to BSON because it exceeds the limit of {MAX_DEPTH} levels of nesting"
        );
    }
    Ok(())
}

/// Walks the nested documents with an explicit stack. Documents too short to exceed the remaining levels are skipped.
#[cold]
fn exceeds_depth(document: Document<'_>, levels: usize) -> bool {
    let mut open = vec![document.iter()];
    while let Some(elements) = open.last_mut() {
        let Some(element) = elements.next() else {
            open.pop();
            continue;
        };
        let Some(inner) = nested(&element) else { continue };
        let remaining = levels.saturating_sub(open.len());
        if remaining == 0 {
            return true;
        }
        if inner.bytes().len() > remaining * LEVEL_BYTES {
            open.push(inner.iter());
        }
    }
    false
}

/// Returns the document, array or scope in an element.
fn nested<'a>(element: &Element<'a>) -> Option<Document<'a>> {
    match element.kind() {
        Type::Document | Type::Array => Some(Document::from_valid(element.value_bytes())),
        Type::JavaScriptWithScope => match element.value() {
            super::Value::JavaScriptWithScope { scope, .. } => Some(scope),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Builder, DocumentBuf, Value};
    use super::*;

    /// Builds a document of `levels` levels with `beside` extra bytes at each level.
    fn nest(levels: usize, beside: usize, kind: usize) -> DocumentBuf {
        let mut inner = Builder::new().finish();
        for level in 1..levels {
            let mut outer = Builder::new();
            if beside > 0 {
                outer.append(c"beside", "x".repeat(beside).as_str());
            }
            match (level + kind) % 3 {
                0 => outer.append(c"", &inner),
                1 => outer.append(c"0", Value::Array(super::super::Array::from_valid(inner.bytes()))),
                _ => outer.append(c"", Value::JavaScriptWithScope { code: "", scope: inner.view() }),
            };
            outer.append(c"after", true);
            inner = outer.finish();
        }
        inner
    }

    #[test]
    fn levels_are_counted_exactly() {
        for levels in [1, 2, 3, 20, 179, 180, 181, 200, 201, 500] {
            for (beside, kind) in [(0, 0), (1, 1), (300, 2)] {
                let document = nest(levels, beside, kind);
                for limit in [1, 2, 3, 19, 20, 21, 179, 180, 181, 199, 200, 201, 499, 500] {
                    assert_eq!(
                        nests_deeper(document.view(), limit),
                        levels > limit,
                        "{levels} {limit} {beside}"
                    );
                }
                assert_eq!(check_depth(document.view()).is_err(), levels > MAX_DEPTH);
            }
        }
    }

    #[test]
    fn the_shortest_levels_are_seen() {
        let mut inner = Builder::new().finish();
        for _ in 1..201 {
            let mut outer = Builder::new();
            outer.append(c"", &inner);
            inner = outer.finish();
        }
        assert_eq!(inner.bytes().len(), 5 + 200 * LEVEL_BYTES);
        assert!(check_depth(inner.view()).is_err());
    }
}
