//! Validation of BSON from outside, and the nesting depth of valid documents. No other module turns outside bytes into
//! trusted BSON.
//!
//! Validation checks lengths, terminators, types, UTF-8 and nesting without recursion, so hostile input can neither
//! panic nor overflow the stack. Valid documents are read in place from then on.
//!
//! A level takes at least seven bytes, so a short document cannot be deep. Only documents of a kilobyte and more are
//! scanned for their depth, and in these only nested documents that are long enough.

use super::raw::{read_length, value_length};
use super::{Document, Element, Type};
use crate::{Result, bail, err};
use smallvec::{SmallVec, smallvec};

/// Maximum size of a stored document, in bytes.
pub const MAX_DOCUMENT_SIZE: usize = 16 * 1024 * 1024;

/// A document under validation: the offset of its terminator.
struct Open {
    end: usize,
}

/// The open documents. Most documents nest no deeper than the inline capacity.
type Stack = SmallVec<[Open; 8]>;

/// Checks that `bytes` are exactly one well-formed document.
///
/// Errors: InvalidBSON naming the offset, or Overflow if more than [`MAX_DEPTH`] documents nest in the outermost.
pub fn validate(bytes: &[u8]) -> Result<()> {
    let length = read_length(bytes).ok_or_else(|| err!(InvalidBSON, "BSON document is cut off"))?;
    if length != bytes.len() || length < 5 {
        bail!(InvalidBSON, "BSON length {length} doesn't match the {} bytes given", bytes.len());
    }
    let mut stack: Stack = smallvec![Open { end: length - 1 }];
    let mut position = 4;
    while let Some(open) = stack.last() {
        if position == open.end {
            if bytes[position] != 0 {
                bail!(InvalidBSON, "BSON document not terminated at offset {position}");
            }
            position += 1;
            stack.pop();
            continue;
        }
        let end = open.end;
        let body = &bytes[..end];
        position = validate_element(body, position, &mut stack)
            .ok_or_else(|| err!(InvalidBSON, "invalid BSON element at offset {position}"))?;
        // MongoDB does not count the outermost document of a message.
        if stack.len() > MAX_DEPTH + 1 {
            bail!(Overflow, "BSONObj exceeded maximum nested object depth: {MAX_DEPTH}");
        }
    }
    Ok(())
}

/// Whether the bytes are one document of any depth; for assertions.
pub fn is_well_formed(bytes: &[u8]) -> bool {
    !validate(bytes).is_err_and(|error| error.code() == crate::ErrorCode::InvalidBSON)
}

/// Validates the element at `position`, pushes the documents that it opens, and returns the next position.
fn validate_element(body: &[u8], position: usize, stack: &mut Stack) -> Option<usize> {
    let kind = Type::from_tag(*body.get(position)?)?;
    let name_start = position + 1;
    let start = name_start + check_name(body.get(name_start..)?)? + 1;
    let rest = body.get(start..)?;
    let length = value_length(kind, rest)?;
    let value = &rest[..length];
    let end = start + length;
    match kind {
        Type::Document | Type::Array => {
            if length < 5 {
                return None;
            }
            // The caller checks the terminator when it reaches the end of the embedded document.
            stack.push(Open { end: end - 1 });
            return Some(start + 4);
        }
        Type::String | Type::JavaScript | Type::Symbol => check_text(value)?,
        Type::Boolean => (value[0] <= 1).then_some(())?,
        Type::Binary => check_binary(value)?,
        Type::DbPointer => check_text(&value[..length - 12])?,
        Type::Regex => std::str::from_utf8(value).ok().map(|_| ())?,
        Type::JavaScriptWithScope => {
            let code = value.get(4..)?;
            let code_length = 4usize.checked_add(read_length(code)?)?;
            check_text(code.get(..code_length)?)?;
            let scope = code.get(code_length..)?;
            if scope.len() < 5 || read_length(scope)? != scope.len() {
                return None;
            }
            stack.push(Open { end: end - 1 });
            return Some(start + 4 + code_length + 4);
        }
        _ => {}
    }
    Some(end)
}

/// Checks the name at the start of `rest` and returns its length. Nearly all names are short and ASCII, which the scan
/// for their end detects.
fn check_name(rest: &[u8]) -> Option<usize> {
    let mut bits = 0;
    let length = rest.iter().position(|&byte| {
        bits |= byte;
        byte == 0
    })?;
    if bits >= 0x80 {
        std::str::from_utf8(&rest[..length]).ok()?;
    }
    Some(length)
}

fn check_text(value: &[u8]) -> Option<()> {
    let (&last, text) = value.get(4..)?.split_last()?;
    (last == 0 && (text.is_ascii() || std::str::from_utf8(text).is_ok())).then_some(())
}

fn check_binary(value: &[u8]) -> Option<()> {
    // The old binary subtype repeats the length inside.
    if value.get(4) == Some(&2) {
        let inner = value.get(5..)?;
        return (read_length(inner)? + 4 == inner.len()).then_some(());
    }
    Some(())
}

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
#[inline]
pub fn nested<'a>(element: &Element<'a>) -> Option<Document<'a>> {
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
    use super::super::{Builder, Document, DocumentBuf, Value};
    use super::*;

    fn sample() -> Vec<u8> {
        let mut builder = Builder::new();
        builder.append(c"a", "text").begin_document(c"b").begin_array(c"c").push(1i32).push(2.5).end().end();
        builder.append(c"d", true);
        builder.finish().into_bytes()
    }

    #[test]
    fn every_cut_and_every_changed_length_is_refused_or_harmless() {
        let good = sample();
        validate(&good).unwrap();
        for cut in 0..good.len() {
            assert!(validate(&good[..cut]).is_err(), "cut at {cut}");
        }
        for position in 0..good.len() {
            for flip in [0x01, 0x80, 0xFF] {
                let mut bad = good.clone();
                bad[position] ^= flip;
                if validate(&bad).is_ok() {
                    let _ = format!("{:?}", Document::from_valid(&bad));
                }
            }
        }
    }

    #[test]
    fn nesting_is_bounded_without_recursion() {
        let mut deep = Builder::new();
        for _ in 0..MAX_DEPTH {
            deep.begin_document(c"a");
        }
        validate(deep.clone().finish().bytes()).unwrap();
        for _ in 0..100_000 {
            deep.begin_document(c"a");
        }
        let error = validate(deep.finish().bytes()).unwrap_err();
        assert_eq!(error.code(), crate::ErrorCode::Overflow);
    }

    #[test]
    fn strings_must_be_utf8() {
        let mut bytes = sample();
        let at = bytes.iter().position(|&b| b == b't').unwrap();
        bytes[at] = 0xFF;
        assert!(validate(&bytes).is_err());
    }

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
