//! Views of BSON bytes: documents, arrays and their elements, read in place.
//!
//! The bytes must have passed [`validate`](super::validate) or come from [`Builder`](super::Builder). Reading never
//! panics nevertheless: a view of broken bytes ends early.

use super::value::utf8;
use super::{FieldName, Type, Value};
use std::fmt;
use std::sync::Arc;

/// A borrowed document. A copy copies only a pointer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Document<'a>(&'a [u8]);

/// A borrowed array: a document whose names are decimal positions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Array<'a>(Document<'a>);

/// A document that owns its bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct DocumentBuf(Vec<u8>);

/// One element of a document: type, name and the undecoded bytes of the value.
#[derive(Clone, Copy)]
pub struct Element<'a> {
    kind: Type,
    name: &'a [u8],
    bytes: &'a [u8],
}

/// Iterates over the elements of a document in their order.
#[derive(Clone)]
pub struct Elements<'a> {
    rest: &'a [u8],
}

/// The bytes of an empty document: its length and terminator.
const EMPTY: &[u8] = &[5, 0, 0, 0, 0];

impl Default for Document<'_> {
    fn default() -> Self {
        Document::EMPTY
    }
}

impl<'a> Document<'a> {
    /// The document with no elements.
    pub const EMPTY: Document<'static> = Document(EMPTY);

    /// Takes bytes that are already known to be one valid document.
    pub fn from_valid(bytes: &'a [u8]) -> Document<'a> {
        Document(bytes)
    }

    /// The bytes of the whole document, length and terminator included.
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// The elements in order.
    pub fn iter(self) -> Elements<'a> {
        let end = self.0.len().saturating_sub(1);
        Elements { rest: self.0.get(4..end).unwrap_or(&[]) }
    }

    /// Whether the document has no elements.
    pub fn is_empty(self) -> bool {
        self.0.len() <= 5
    }

    /// The first element with this name.
    pub fn find(self, name: &str) -> Option<Element<'a>> {
        self.iter().find(|element| element.name == name.as_bytes())
    }

    /// The value of the first element with this name, not following dots.
    pub fn get(self, name: &str) -> Option<Value<'a>> {
        self.find(name).map(|element| element.value())
    }

    /// The first element.
    pub fn first(self) -> Option<Element<'a>> {
        self.iter().next()
    }

    /// A copy that owns its bytes.
    pub fn to_owned(self) -> DocumentBuf {
        DocumentBuf(self.0.to_vec())
    }
}

impl<'a> IntoIterator for Document<'a> {
    type Item = Element<'a>;
    type IntoIter = Elements<'a>;
    fn into_iter(self) -> Elements<'a> {
        self.iter()
    }
}

impl fmt::Debug for Document<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|e| (e.name(), e.value()))).finish()
    }
}

impl<'a> Array<'a> {
    /// The array with no elements.
    pub const EMPTY: Array<'static> = Array(Document::EMPTY);

    /// Takes bytes that are already known to be one valid array.
    pub fn from_valid(bytes: &'a [u8]) -> Array<'a> {
        Array(Document(bytes))
    }

    /// The bytes of the array as a document, with positions as names.
    pub fn as_document(self) -> Document<'a> {
        self.0
    }

    /// The bytes of the whole array, length and terminator included.
    pub fn bytes(self) -> &'a [u8] {
        self.0.bytes()
    }

    /// The raw elements in order, with positions as names.
    pub fn elements(self) -> Elements<'a> {
        self.0.iter()
    }

    /// The values in order.
    pub fn iter(self) -> impl Iterator<Item = Value<'a>> + Clone + use<'a> {
        self.0.iter().map(|element| element.value())
    }

    /// The value at a position, counted in elements; names are ignored. O(position).
    pub fn get(self, position: usize) -> Option<Value<'a>> {
        self.0.iter().nth(position).map(|element| element.value())
    }

    /// The number of elements. O(length).
    pub fn len(self) -> usize {
        self.0.iter().count()
    }

    /// Whether the array has no elements.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Array<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl DocumentBuf {
    /// The document with no elements.
    pub fn empty() -> DocumentBuf {
        DocumentBuf(EMPTY.to_vec())
    }

    /// Takes bytes that are already known to be one valid document.
    pub fn from_valid(bytes: Vec<u8>) -> DocumentBuf {
        DocumentBuf(bytes)
    }

    /// The document, borrowed.
    pub fn view(&self) -> Document<'_> {
        Document(&self.0)
    }

    /// The bytes of the whole document.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Gives up the bytes.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

impl Default for DocumentBuf {
    fn default() -> Self {
        DocumentBuf::empty()
    }
}

impl fmt::Debug for DocumentBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view().fmt(f)
    }
}

impl<'a> Element<'a> {
    /// The type of the value.
    pub fn kind(&self) -> Type {
        self.kind
    }

    /// The field's name.
    pub fn name(&self) -> &'a str {
        // Validation guarantees UTF-8. A broken name reads as empty instead of panicking.
        utf8(self.name).unwrap_or("")
    }

    /// The field's name for a [`Builder`](super::Builder). It ends at its first zero byte.
    #[inline]
    pub fn field_name(&self) -> FieldName<'a> {
        FieldName::of_element(self.name)
    }

    /// The bytes of the field's name, without the terminator: the cheap way to compare names.
    pub fn name_bytes(&self) -> &'a [u8] {
        self.name
    }

    /// The undecoded bytes of the value.
    pub fn value_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The value, with only its outer layer decoded.
    pub fn value(&self) -> Value<'a> {
        Value::decode(self.kind, self.bytes)
    }
}

impl fmt::Debug for Element<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}", self.name(), self.value())
    }
}

impl<'a> Elements<'a> {
    /// The bytes not yet iterated over: elements only, without the document's terminator.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

/// Complete elements at the start of a document whose end may be missing.
#[derive(Clone, Copy, Default)]
pub struct LeadingElements<'a>(&'a [u8]);

impl<'a> LeadingElements<'a> {
    /// Reads the first bytes of a document up to the first element for which `is_last` returns true. `None` if these
    /// bytes do not contain it.
    pub fn read(start: &'a [u8], is_last: impl FnMut(&Element<'a>) -> bool) -> Option<LeadingElements<'a>> {
        let all = start.get(4..)?;
        let mut elements = Elements { rest: all };
        elements.by_ref().find(is_last)?;
        all.get(..all.len() - elements.rest.len()).map(LeadingElements)
    }

    /// The size in bytes of the document of these elements.
    pub fn document_size(self) -> usize {
        EMPTY.len() + self.0.len()
    }

    /// Returns the document of these elements.
    pub fn to_document(self) -> DocumentBuf {
        let size = self.document_size() as i32;
        DocumentBuf([&size.to_le_bytes(), self.0, &[0]].concat())
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Element<'a>;

    #[inline]
    fn next(&mut self) -> Option<Element<'a>> {
        let (&tag, rest) = self.rest.split_first()?;
        let kind = Type::from_tag(tag)?;
        let end = name_length(rest)?;
        let (name, rest) = (rest.get(..end)?, rest.get(end + 1..)?);
        let length = value_length(kind, rest)?;
        let (bytes, rest) = rest.split_at_checked(length)?;
        self.rest = rest;
        Some(Element { kind, name, bytes })
    }
}

/// Returns the number of bytes before the first zero byte. The scan reads eight bytes at a time, because it is most of
/// the cost of skipping an element.
#[inline]
fn name_length(bytes: &[u8]) -> Option<usize> {
    const LOW: u64 = u64::from_le_bytes([0x01; 8]);
    const HIGH: u64 = u64::from_le_bytes([0x80; 8]);
    let mut before = 0;
    let mut rest = bytes;
    while let Some((chunk, more)) = rest.split_first_chunk::<8>() {
        let word = u64::from_le_bytes(*chunk);
        // The lowest set bit marks the first zero byte; higher bits may be wrong.
        let zeros = word.wrapping_sub(LOW) & !word & HIGH;
        if zeros != 0 {
            return Some(before + (zeros.trailing_zeros() / 8) as usize);
        }
        before += 8;
        rest = more;
    }
    rest.iter().position(|&byte| byte == 0).map(|end| before + end)
}

/// Returns the size of a value of this type at the start of `bytes`. `None` if the bytes are too short or invalid.
#[inline]
pub(super) fn value_length(kind: Type, bytes: &[u8]) -> Option<usize> {
    let length = match kind {
        Type::Double | Type::DateTime | Type::Timestamp | Type::Int64 => 8,
        Type::Int32 => 4,
        Type::Boolean => 1,
        Type::Null | Type::Undefined | Type::MinKey | Type::MaxKey => 0,
        Type::ObjectId => 12,
        Type::Decimal128 => 16,
        Type::String | Type::JavaScript | Type::Symbol => 4usize.checked_add(read_length(bytes)?)?,
        Type::Document | Type::Array | Type::JavaScriptWithScope => read_length(bytes)?,
        Type::Binary => 5usize.checked_add(read_length(bytes)?)?,
        Type::DbPointer => 16usize.checked_add(read_length(bytes)?)?,
        Type::Regex => {
            let pattern = bytes.iter().position(|&byte| byte == 0)? + 1;
            pattern + bytes.get(pattern..)?.iter().position(|&byte| byte == 0)? + 1
        }
    };
    (length <= bytes.len()).then_some(length)
}

/// Reads the little-endian length at the start of `bytes`; `None` if negative or cut off.
#[inline]
pub(super) fn read_length(bytes: &[u8]) -> Option<usize> {
    let raw = i32::from_le_bytes(*bytes.first_chunk::<4>()?);
    usize::try_from(raw).ok()
}

/// A document that shares the engine's bytes or owns new bytes. A clone of a shared document increments a reference
/// count. A move copies nothing.
#[derive(Clone, Debug)]
pub enum DocumentCow {
    /// The stored bytes themselves.
    Shared(Arc<[u8]>),
    /// A document made by the plan or pipeline.
    Owned(DocumentBuf),
}

impl DocumentCow {
    /// The document, borrowed.
    pub fn view(&self) -> Document<'_> {
        match self {
            DocumentCow::Shared(bytes) => Document::from_valid(bytes),
            DocumentCow::Owned(document) => document.view(),
        }
    }
}

impl From<DocumentBuf> for DocumentCow {
    fn from(document: DocumentBuf) -> Self {
        DocumentCow::Owned(document)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Builder;
    use super::*;

    #[test]
    fn names_end_at_the_first_zero_byte() {
        for length in 0..40 {
            for fill in [1u8, 0x7f, 0x80, 0xff] {
                let mut bytes = vec![fill; length];
                assert_eq!(name_length(&bytes), None);
                bytes.extend([0, 1, 0, fill, 0]);
                assert_eq!(name_length(&bytes), Some(length));
            }
        }
    }

    #[test]
    fn broken_bytes_end_early_and_never_panic() {
        let mut builder = Builder::new();
        builder.append(c"a", 1i32).append(c"b", "text");
        builder.begin_array(c"c");
        builder.push(1.5).push(true);
        builder.end();
        let good = builder.finish().into_bytes();
        assert_eq!(Document::from_valid(&good).iter().count(), 3);
        for cut in 0..good.len() {
            let mut bad = good.clone();
            bad[cut] ^= 0xFF;
            let _ = format!("{:?} {:?}", Document::from_valid(&bad), Document::from_valid(&good[..cut]));
        }
    }

    #[test]
    fn elements_are_found_by_name_without_following_dots() {
        let mut builder = Builder::new();
        builder.append(c"a.b", 1i32).append(c"a", 2i32);
        let document = builder.finish();
        assert_eq!(document.view().get("a.b").and_then(|v| v.as_i64()), Some(1));
        assert!(document.view().get("b").is_none());
    }
}
