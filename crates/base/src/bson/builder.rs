//! Appending writer of documents, as MongoDB's `BSONObjBuilder`. Elements of other documents are copied undecoded.

use super::{Document, DocumentBuf, Element, FieldName, Value};
use std::io::Write;

/// Appending writer of one document and its nested documents.
///
/// Open documents and arrays form a stack. [`begin_document`](Builder::begin_document) and
/// [`begin_array`](Builder::begin_array) push; [`end`](Builder::end) pops and fills in the length.
#[derive(Clone)]
pub struct Builder {
    bytes: Vec<u8>,
    /// The innermost open document or array.
    open: Frame,
    /// The documents and arrays around it, outermost first. A flat document needs no allocation for them.
    outer: Vec<Frame>,
}

/// An open document or array: its start in the buffer, and the position of its next array element.
#[derive(Clone, Copy)]
struct Frame {
    start: usize,
    next_index: u32,
}

impl Default for Builder {
    fn default() -> Self {
        Builder::new()
    }
}

impl Builder {
    /// Starts an empty document.
    pub fn new() -> Builder {
        Builder::with_buffer(Vec::with_capacity(64))
    }

    /// Starts an empty document after the existing content of `bytes`. [`into_buffer`](Self::into_buffer) returns the
    /// whole buffer, so a reply can be written directly after a message header.
    pub fn with_buffer(mut bytes: Vec<u8>) -> Builder {
        let start = bytes.len();
        bytes.extend_from_slice(&[0; 4]);
        Builder { bytes, open: Frame { start, next_index: 0 }, outer: Vec::new() }
    }

    /// Appends an element.
    pub fn append<'n, 'v>(
        &mut self,
        name: impl Into<FieldName<'n>>,
        value: impl Into<Value<'v>>,
    ) -> &mut Self {
        self.append_value(name.into(), value.into())
    }

    fn append_value(&mut self, name: FieldName<'_>, value: Value<'_>) -> &mut Self {
        self.header(value.kind().tag(), name);
        value.write_to(&mut self.bytes);
        self
    }

    /// Appends an integer as an int32 if it fits, as MongoDB does for sizes and counts.
    pub fn append_number<'n>(&mut self, name: impl Into<FieldName<'n>>, number: i64) -> &mut Self {
        match i32::try_from(number) {
            Ok(small) => self.append(name, small),
            Err(_) => self.append(name, number),
        }
    }

    /// Appends an element unless the value is `None`.
    pub fn append_optional<'n, 'v>(
        &mut self,
        name: impl Into<FieldName<'n>>,
        value: Option<impl Into<Value<'v>>>,
    ) -> &mut Self {
        if let Some(value) = value {
            self.append(name, value);
        }
        self
    }

    /// Appends an element of another document unchanged.
    pub fn append_element(&mut self, element: &Element<'_>) -> &mut Self {
        self.append_renamed(element.field_name(), element)
    }

    /// Appends the value of an element under another name.
    pub fn append_renamed<'n>(&mut self, name: impl Into<FieldName<'n>>, element: &Element<'_>) -> &mut Self {
        self.header(element.kind().tag(), name.into());
        self.bytes.extend_from_slice(element.value_bytes());
        self
    }

    /// Appends every element of a document.
    pub fn append_all(&mut self, document: Document<'_>) -> &mut Self {
        self.bytes.extend_from_slice(document.iter().rest());
        self
    }

    /// Appends the next element of the open array; the name is its position.
    pub fn push<'v>(&mut self, value: impl Into<Value<'v>>) -> &mut Self {
        let value = value.into();
        self.index_header(value.kind().tag());
        value.write_to(&mut self.bytes);
        self
    }

    /// Opens an embedded document.
    pub fn begin_document<'n>(&mut self, name: impl Into<FieldName<'n>>) -> &mut Self {
        self.header(0x03, name.into());
        self.open_frame()
    }

    /// Opens an array.
    pub fn begin_array<'n>(&mut self, name: impl Into<FieldName<'n>>) -> &mut Self {
        self.header(0x04, name.into());
        self.open_frame()
    }

    /// Opens an embedded document as the next element of the open array.
    pub fn push_document(&mut self) -> &mut Self {
        self.index_header(0x03);
        self.open_frame()
    }

    /// Opens an array as the next element of the open array.
    pub fn push_array(&mut self) -> &mut Self {
        self.index_header(0x04);
        self.open_frame()
    }

    /// Appends an element under a name, or as the next element of the open array.
    pub fn append_at<'v>(&mut self, name: Option<FieldName<'_>>, value: impl Into<Value<'v>>) {
        match name {
            Some(name) => self.append(name, value),
            None => self.push(value),
        };
    }

    /// Opens an embedded document under a name, or as the next element of the open array.
    pub fn begin_document_at(&mut self, name: Option<FieldName<'_>>) {
        match name {
            Some(name) => self.begin_document(name),
            None => self.push_document(),
        };
    }

    /// Opens an array under a name, or as the next element of the open array.
    pub fn begin_array_at(&mut self, name: Option<FieldName<'_>>) {
        match name {
            Some(name) => self.begin_array(name),
            None => self.push_array(),
        };
    }

    /// Closes the innermost open document or array. (`finish` closes the outermost document.)
    pub fn end(&mut self) -> &mut Self {
        debug_assert!(!self.outer.is_empty(), "end without begin");
        if !self.outer.is_empty() {
            self.close_frame();
        }
        self
    }

    /// Returns the start of the outermost document in the buffer.
    fn start(&self) -> usize {
        self.outer.first().unwrap_or(&self.open).start
    }

    /// The size so far in bytes, including the written part of open documents.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.start()
    }

    /// Truncates the outermost document to a length that it had while no document within it was open; 0 removes all
    /// elements.
    pub fn truncate(&mut self, length: usize) {
        self.open = *self.outer.first().unwrap_or(&self.open);
        self.outer.clear();
        self.bytes.truncate(self.open.start + length.max(4));
    }

    /// Allocated memory in bytes.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Whether the outermost document has no elements yet.
    pub fn is_empty(&self) -> bool {
        self.len() <= 4
    }

    /// Returns a copy of the document so far, with all open levels closed.
    pub fn to_document(&self) -> DocumentBuf {
        let begin = self.start();
        let bytes = self.bytes.get(begin..).unwrap_or_default().to_vec();
        let moved = |frame: &Frame| Frame { start: frame.start - begin, ..*frame };
        Builder { bytes, open: moved(&self.open), outer: self.outer.iter().map(moved).collect() }.finish()
    }

    /// Closes all open levels and returns the document.
    pub fn finish(self) -> DocumentBuf {
        debug_assert!(self.start() == 0, "the buffer has a prefix");
        DocumentBuf::from_valid(self.into_buffer())
    }

    /// Closes all open levels and returns the buffer, including its earlier content.
    pub fn into_buffer(mut self) -> Vec<u8> {
        while self.close_frame() {}
        self.bytes
    }

    fn header(&mut self, tag: u8, name: FieldName<'_>) {
        self.bytes.push(tag);
        self.bytes.extend_from_slice(name.bytes());
        self.bytes.push(0);
    }

    /// Appends the tag and the position of the next array element, which is its name.
    fn index_header(&mut self, tag: u8) {
        self.bytes.push(tag);
        let index = self.open.next_index;
        self.open.next_index += 1;
        if index < 10 {
            self.bytes.push(b'0' + index as u8);
        } else {
            // Writing to a Vec cannot fail.
            let _ = write!(self.bytes, "{index}");
        }
        self.bytes.push(0);
    }

    fn open_frame(&mut self) -> &mut Self {
        self.outer.push(self.open);
        self.open = Frame { start: self.bytes.len(), next_index: 0 };
        self.bytes.extend_from_slice(&[0; 4]);
        self
    }

    /// Closes the innermost document or array. Returns false if it was the outermost document.
    fn close_frame(&mut self) -> bool {
        self.bytes.push(0);
        let start = self.open.start;
        let length = (self.bytes.len() - start) as i32;
        if let Some(slot) = self.bytes.get_mut(start..start + 4) {
            slot.copy_from_slice(&length.to_le_bytes());
        }
        let outer = self.outer.pop();
        self.open = outer.unwrap_or(self.open);
        outer.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::super::validate;
    use super::*;

    #[test]
    fn nested_documents_get_their_lengths() {
        let mut builder = Builder::new();
        builder.append(c"a", 1i32).begin_document(c"b").begin_array(c"c");
        for i in 0..12 {
            builder.push(i);
        }
        builder.push_document().append(c"d", "e").end().end().end();
        let document = builder.finish();
        validate(document.bytes()).unwrap();
        let inner = document.view().get("b").unwrap().as_document().unwrap();
        let array = inner.get("c").unwrap().as_array().unwrap();
        assert_eq!(array.len(), 13);
        assert_eq!(array.elements().nth(11).unwrap().name(), "11");
    }

    #[test]
    fn a_builder_keeps_earlier_bytes() {
        let mut builder = Builder::with_buffer(vec![9, 9]);
        builder.append(c"ok", 1.0);
        let buffer = builder.into_buffer();
        assert_eq!(&buffer[..2], &[9, 9]);
        validate(&buffer[2..]).unwrap();
    }
}
