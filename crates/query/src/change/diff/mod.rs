//! What an update changed, as MongoDB's oplog tells it since 5.0: the `diff` of `{$v: 2, diff: …}`.
//!
//! A diff of a document has up to four kinds of sections, in this order: `d` names the fields that
//! went, `u` has fields with a new value in their old place, `i` those that came at the end, and
//! each `s` with a field's name behind it is the diff of a field that is a document or an array in
//! both states. A diff of an array begins with `a: true`, may have the new length `l`, and then a
//! `u` or an `s` with each position that changed.
//!
//! [`between`] compares two states, [`Update::diff`](crate::Update::diff) tells what an update was
//! asked to do, [`apply`] carries a diff out and [`describe`](super::describe) tells it to clients.

mod apply;
mod between;
mod reader;
#[cfg(test)]
mod tests;

pub use apply::apply;
pub(super) use apply::carry_out;
pub use between::between;
pub(super) use reader::{ArrayDiff, ArrayEntry, DocumentDiff, SubDiff};

use base::bson::{Builder, DocumentBuf, Element, FieldName, FieldNameBuf, Value};

/// What the entry that holds the diff adds to it, in MongoDB's reckoning.
const ENTRY_BYTES: usize = 15;
const EMPTY_DOCUMENT_BYTES: usize = 5;
const EMPTY_ARRAY_BYTES: usize = 9;
const SECTION_BYTES: usize = 8;
const LENGTH_BYTES: usize = 7;

/// A diff while it is made.
pub(crate) enum Node<'a> {
    /// Of a document.
    Document(DocumentNode<'a>),
    /// Of an array.
    Array(ArrayNode<'a>),
}

/// The diff of a document while it is made; its sizes are reckoned as MongoDB does, which decides by
/// them whether a diff is worth it.
pub(crate) struct DocumentNode<'a> {
    deletes: Vec<FieldName<'a>>,
    updates: Vec<Element<'a>>,
    inserts: Vec<Element<'a>>,
    subs: Vec<(FieldName<'a>, Node<'a>)>,
    size: usize,
}

/// The diff of an array while it is made.
pub(crate) struct ArrayNode<'a> {
    length: Option<usize>,
    items: Vec<(usize, Item<'a>)>,
    size: usize,
}

/// What became of one position of an array.
pub(crate) enum Item<'a> {
    /// It has another value.
    Value(Element<'a>),
    /// It is a document or an array that changed within.
    Sub(Node<'a>),
}

impl<'a> Node<'a> {
    fn size(&self) -> usize {
        match self {
            Node::Document(node) => node.size,
            Node::Array(node) => node.size,
        }
    }

    /// Whether there is nothing in it.
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
    /// A diff without anything in it.
    pub(crate) fn new() -> DocumentNode<'a> {
        DocumentNode {
            deletes: Vec::new(),
            updates: Vec::new(),
            inserts: Vec::new(),
            subs: Vec::new(),
            size: EMPTY_DOCUMENT_BYTES,
        }
    }

    /// Whether there is nothing in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.deletes.is_empty() && self.updates.is_empty() && self.inserts.is_empty() && self.subs.is_empty()
    }

    fn count(&mut self, name: &[u8], value: usize, opens_section: bool) {
        self.size += name.len() + 2 + value + if opens_section { SECTION_BYTES } else { 0 };
    }

    /// A field went.
    pub(crate) fn delete(&mut self, name: FieldName<'a>) {
        self.count(name.bytes(), 1, self.deletes.is_empty());
        self.deletes.push(name);
    }

    /// A field has another value in its old place.
    pub(crate) fn update(&mut self, element: Element<'a>) {
        self.count(element.name_bytes(), element.value_bytes().len(), self.updates.is_empty());
        self.updates.push(element);
    }

    /// A field came at the end.
    pub(crate) fn insert(&mut self, element: Element<'a>) {
        self.count(element.name_bytes(), element.value_bytes().len(), self.inserts.is_empty());
        self.inserts.push(element);
    }

    /// A field changed within.
    pub(crate) fn sub(&mut self, name: FieldName<'a>, node: Node<'a>) {
        self.count(name.bytes(), node.size() + 1, false);
        self.subs.push((name, node));
    }

    /// The diff as BSON.
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
    /// A diff without anything in it.
    pub(crate) fn new() -> ArrayNode<'a> {
        ArrayNode { length: None, items: Vec::new(), size: EMPTY_ARRAY_BYTES }
    }

    /// A position has another value, or is new. Positions come in ascending order.
    pub(crate) fn set(&mut self, position: usize, element: Element<'a>) {
        self.size += digits(position) + 3 + element.value_bytes().len();
        self.items.push((position, Item::Value(element)));
    }

    /// A position changed within.
    pub(crate) fn sub(&mut self, position: usize, node: Node<'a>) {
        self.size += digits(position) + 3 + node.size();
        self.items.push((position, Item::Sub(node)));
    }

    /// The array became shorter.
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

/// A position's name behind the letter for what became of it.
fn positioned(letter: &'static str, position: usize) -> FieldNameBuf {
    FieldName::literal(letter).joined(FieldNameBuf::of_number(position).view())
}

/// Whether two elements have the same type and bytes, whatever their names.
pub fn same_value(a: &Element<'_>, b: &Element<'_>) -> bool {
    a.kind() == b.kind() && a.value_bytes() == b.value_bytes()
}
