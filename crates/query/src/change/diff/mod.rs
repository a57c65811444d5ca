//! Diffs of updates in the format of MongoDB's oplog since 5.0: the `diff` of `{$v: 2, diff: …}`.
//!
//! A diff of a document has up to four kinds of sections, in this order. `d` names the removed fields. `u` has the
//! fields with a new value in their old position. `i` has the fields added at the end. Each `s` with a field's name
//! after it is the diff of a field that is a document or an array in both states. A diff of an array begins with
//! `a: true` and may have the new length `l`. A `u` or an `s` follows for each changed position.
//!
//! [`between`] compares two states. [`Update::diff`](crate::Update::diff) describes the writes of an update. [`apply`]
//! applies a diff, and [`describe`](super::describe) converts it for change streams.

mod apply;
mod reader;
#[cfg(test)]
mod tests;

pub(super) use apply::apply_diff;
pub use apply::{apply, between};
pub(super) use reader::{ArrayDiff, ArrayEntry, DocumentDiff, SubDiff};

use base::bson::{Builder, DocumentBuf, Element, FieldName, FieldNameBuf, Value};

/// Size that MongoDB adds for the entry around the diff, in bytes.
const ENTRY_BYTES: usize = 15;
const EMPTY_DOCUMENT_BYTES: usize = 5;
const EMPTY_ARRAY_BYTES: usize = 9;
const SECTION_BYTES: usize = 8;
const LENGTH_BYTES: usize = 7;

/// A diff under construction.
pub(crate) enum Node<'a> {
    /// The diff of a document.
    Document(DocumentNode<'a>),
    /// The diff of an array.
    Array(ArrayNode<'a>),
}

/// The diff of a document under construction. It counts sizes as MongoDB does, because sizes decide whether the oplog
/// records the diff.
pub(crate) struct DocumentNode<'a> {
    deletes: Vec<FieldName<'a>>,
    updates: Vec<Element<'a>>,
    inserts: Vec<Element<'a>>,
    subs: Vec<(FieldName<'a>, Node<'a>)>,
    size: usize,
}

/// The diff of an array under construction.
pub(crate) struct ArrayNode<'a> {
    length: Option<usize>,
    items: Vec<(usize, Item<'a>)>,
    size: usize,
}

/// The change of one array position.
pub(crate) enum Item<'a> {
    /// A new value.
    Value(Element<'a>),
    /// A document or array with changes inside.
    Sub(Node<'a>),
}

impl<'a> Node<'a> {
    fn size(&self) -> usize {
        match self {
            Node::Document(node) => node.size,
            Node::Array(node) => node.size,
        }
    }

    /// Whether the diff is empty.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Node::Document(node) => node.is_empty(),
            Node::Array(node) => node.length.is_none() && node.items.is_empty(),
        }
    }

    fn write(&self, out: &mut Builder) {
        match self {
            Node::Document(node) => node.write(out),
            Node::Array(node) => node.write(out),
        }
    }
}

impl<'a> DocumentNode<'a> {
    /// Starts an empty diff.
    pub(crate) fn new() -> DocumentNode<'a> {
        DocumentNode {
            deletes: Vec::new(),
            updates: Vec::new(),
            inserts: Vec::new(),
            subs: Vec::new(),
            size: EMPTY_DOCUMENT_BYTES,
        }
    }

    /// Whether the diff is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.deletes.is_empty() && self.updates.is_empty() && self.inserts.is_empty() && self.subs.is_empty()
    }

    fn count(&mut self, name: &[u8], value: usize, opens_section: bool) {
        self.size += name.len() + 2 + value + if opens_section { SECTION_BYTES } else { 0 };
    }

    /// Records a removed field.
    pub(crate) fn delete(&mut self, name: FieldName<'a>) {
        self.count(name.bytes(), 1, self.deletes.is_empty());
        self.deletes.push(name);
    }

    /// Records a new value of a field in its old position.
    pub(crate) fn update(&mut self, element: Element<'a>) {
        self.count(element.name_bytes(), element.value_bytes().len(), self.updates.is_empty());
        self.updates.push(element);
    }

    /// Records a field added at the end.
    pub(crate) fn insert(&mut self, element: Element<'a>) {
        self.count(element.name_bytes(), element.value_bytes().len(), self.inserts.is_empty());
        self.inserts.push(element);
    }

    /// Records changes within a field.
    pub(crate) fn sub(&mut self, name: FieldName<'a>, node: Node<'a>) {
        self.count(name.bytes(), node.size() + 1, false);
        self.subs.push((name, node));
    }

    /// Encodes the diff as BSON.
    pub(crate) fn finish(&self) -> DocumentBuf {
        let mut out = Builder::with_buffer(Vec::with_capacity(self.size + 16));
        self.write(&mut out);
        out.finish()
    }

    fn write(&self, out: &mut Builder) {
        if !self.deletes.is_empty() {
            out.begin_document(c"d");
            for name in &self.deletes {
                out.append(*name, false);
            }
            out.end();
        }
        for (section, elements) in [(c"u", &self.updates), (c"i", &self.inserts)] {
            if !elements.is_empty() {
                out.begin_document(section);
                for element in elements {
                    out.append_element(element);
                }
                out.end();
            }
        }
        for (name, node) in &self.subs {
            out.begin_document(&FieldName::literal("s").joined(*name));
            node.write(out);
            out.end();
        }
    }
}

impl<'a> ArrayNode<'a> {
    /// Starts an empty diff.
    pub(crate) fn new() -> ArrayNode<'a> {
        ArrayNode { length: None, items: Vec::new(), size: EMPTY_ARRAY_BYTES }
    }

    /// Records a new value at a position, or a new position. Positions must ascend.
    pub(crate) fn set(&mut self, position: usize, element: Element<'a>) {
        self.size += digits(position) + 3 + element.value_bytes().len();
        self.items.push((position, Item::Value(element)));
    }

    /// Records changes within a position.
    pub(crate) fn sub(&mut self, position: usize, node: Node<'a>) {
        self.size += digits(position) + 3 + node.size();
        self.items.push((position, Item::Sub(node)));
    }

    /// Records a shorter length.
    pub(crate) fn truncate(&mut self, length: usize) {
        self.length = Some(length);
        self.size += LENGTH_BYTES;
    }

    fn write(&self, out: &mut Builder) {
        out.append(c"a", true);
        if let Some(length) = self.length {
            out.append(c"l", Value::Int32(i32::try_from(length).unwrap_or(i32::MAX)));
        }
        for (position, item) in &self.items {
            match item {
                Item::Value(element) => {
                    out.append_renamed(&positioned("u", *position), element);
                }
                Item::Sub(node) => {
                    out.begin_document(&positioned("s", *position));
                    node.write(out);
                    out.end();
                }
            }
        }
    }
}

fn digits(position: usize) -> usize {
    position.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// Returns the name of a position with the letter of its change.
fn positioned(letter: &'static str, position: usize) -> FieldNameBuf {
    FieldName::literal(letter).joined(FieldNameBuf::of_number(position).view())
}

/// Whether two elements have equal types and bytes, whatever their names.
pub fn same_value(a: &Element<'_>, b: &Element<'_>) -> bool {
    a.kind() == b.kind() && a.value_bytes() == b.value_bytes()
}
