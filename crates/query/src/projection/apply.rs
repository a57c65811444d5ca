//! Applies a projection's tree: one walk over the document, then computed and missing fields.
//!
//! For find's positional `$`, the first array on the path keeps only the matching element.

use super::Kind;
use super::tree::{Node, Slice, Tree};
use crate::{Arena, Context, Matcher, RowView};
use base::bson::{Array, Builder, Document, DocumentBuf, Element, FieldName, PathComponent, Value};
use base::{Result, err};

/// The projection of one document.
#[derive(Clone, Copy)]
pub(super) struct Walk<'a> {
    pub(super) kind: Kind,
    /// False within an array of an array, which find's `$slice` does not enter.
    pub(super) slices: bool,
    pub(super) root: RowView<'a>,
    pub(super) context: &'a Context,
    pub(super) arena: &'a Arena,
}

/// Name of a value; `None` for the next element of the open array.
type Slot<'n> = Option<FieldName<'n>>;

impl<'a> Walk<'a> {
    /// Writes the fields of a document by the tree: existing fields in their order, then computed fields in the order
    /// of the specification.
    pub(super) fn document(&self, tree: &'a Tree, document: Document<'_>, out: &mut Builder) -> Result<()> {
        let mut written = vec![false; tree.children.len()];
        for element in document {
            let index = tree.find(element.name_bytes());
            match index.and_then(|at| Some((written.get_mut(at)?, tree.children.get(at)?))) {
                Some((written, (_, node))) => {
                    *written = self.field(node, &element, document, out)?;
                }
                None if self.kind == Kind::Include => {}
                None => {
                    out.append_element(&element);
                }
            }
        }
        if tree.computes {
            self.missing(tree, document, &written, out)?;
        }
        Ok(())
    }

    /// Writes the computed fields that did not replace an existing field.
    fn missing(
        &self,
        tree: &'a Tree,
        document: Document<'_>,
        written: &[bool],
        out: &mut Builder,
    ) -> Result<()> {
        for ((name, node), _) in tree.children.iter().zip(written).filter(|(_, written)| !**written) {
            match node {
                Node::Computed(expression) => {
                    // A missing value has removed a field that is computed in place.
                    let in_place = self.kind == Kind::Add && document.find(name).is_some();
                    if !in_place {
                        let value = expression.evaluate(self.root, self.context, self.arena)?;
                        out.append_optional(name.view(), value);
                        self.check_size(out)?;
                    }
                }
                Node::ElemMatch(filter) => {
                    if let Some(found) = self.first_match(filter, name, document)? {
                        out.begin_array(name).push(found).end();
                    }
                }
                Node::Below(inner) if inner.computes => {
                    out.begin_document(name);
                    self.document(inner, Document::EMPTY, out)?;
                    out.end();
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Stops if the document has grown far beyond the limit for storage and replies.
    ///
    /// Errors: BSONObjectTooLarge.
    fn check_size(&self, out: &Builder) -> Result<()> {
        self.context.limits.check_document(out.len())?;
        self.context.steps(1)
    }

    /// Writes one existing field; returns whether it was written.
    fn field(
        &self,
        node: &'a Node,
        element: &Element<'_>,
        document: Document<'_>,
        out: &mut Builder,
    ) -> Result<bool> {
        match node {
            Node::ElemMatch(filter) if self.kind == Kind::Exclude => {
                if let Some(found) = self.first_match(filter, element.name(), document)? {
                    out.begin_array(element.field_name()).push(found).end();
                }
                Ok(true)
            }
            Node::Listed if self.kind == Kind::Include => {
                out.append_element(element);
                Ok(true)
            }
            Node::Listed => Ok(false),
            Node::Below(tree) => self.below(tree, element.value(), Some(element.field_name()), out),
            Node::Computed(expression) if self.kind == Kind::Add => {
                let value = expression.evaluate(self.root, self.context, self.arena)?;
                out.append_optional(element.field_name(), value);
                self.check_size(out)?;
                Ok(value.is_some())
            }
            Node::Computed(_) | Node::ElemMatch(_) => Ok(false),
            Node::Slice(slice) => {
                match element.value() {
                    Value::Array(array) if self.slices => slice.write(array, element.field_name(), out),
                    _ => {
                        out.append_element(element);
                    }
                }
                Ok(true)
            }
        }
    }

    /// Writes a value with a subtree; arrays are processed element by element. Returns whether it was written. The
    /// document's depth bounds the recursion.
    fn below(&self, tree: &'a Tree, value: Value<'_>, slot: Slot<'_>, out: &mut Builder) -> Result<bool> {
        match value {
            Value::Document(inner) => {
                out.begin_document_at(slot);
                self.document(tree, inner, out)?;
                out.end();
            }
            Value::Array(array) => {
                out.begin_array_at(slot);
                for item in array.iter() {
                    self.item(tree, item, out)?;
                }
                out.end();
            }
            _ => return self.scalar(tree, value, slot, out),
        }
        Ok(true)
    }

    /// Writes an element of an array. Unlike a field, a scalar is replaced by the computed fields.
    fn item(&self, tree: &'a Tree, item: Value<'_>, out: &mut Builder) -> Result<()> {
        let is_nested = matches!(item, Value::Array(_));
        Walk { slices: self.slices && !is_nested, ..*self }.below(tree, item, None, out)?;
        if tree.computes && self.kind == Kind::Include && !is_container(item) {
            self.below(tree, Value::Document(Document::EMPTY), None, out)?;
        }
        Ok(())
    }

    /// Writes a value without fields where the tree has fields. It is dropped, kept, or replaced by a document of
    /// computed fields.
    fn scalar(&self, tree: &'a Tree, value: Value<'_>, slot: Slot<'_>, out: &mut Builder) -> Result<bool> {
        match self.kind {
            Kind::Include => Ok(false),
            Kind::Add if tree.computes => self.below(tree, Value::Document(Document::EMPTY), slot, out),
            Kind::Add | Kind::Exclude => {
                out.append_at(slot, value);
                Ok(true)
            }
        }
    }

    /// Returns the first element of an array field that the `$elemMatch` matches.
    fn first_match<'d>(
        &self,
        filter: &Matcher,
        name: &str,
        document: Document<'d>,
    ) -> Result<Option<Value<'d>>> {
        let Some(Value::Array(array)) = document.get(name) else { return Ok(None) };
        let matched = filter.matches_at(document, self.context)?;
        Ok(matched.and_then(|matched| array.get(matched.position?)))
    }
}

fn is_container(value: Value<'_>) -> bool {
    matches!(value, Value::Document(_) | Value::Array(_))
}

impl Slice {
    /// Writes the elements within the bounds as an array.
    fn write(self, array: Array<'_>, name: FieldName<'_>, out: &mut Builder) {
        let skip = if self.skip >= 0 {
            usize::try_from(self.skip).unwrap_or(usize::MAX)
        } else {
            let from_end = usize::try_from(self.skip.unsigned_abs()).unwrap_or(usize::MAX);
            array.len().saturating_sub(from_end)
        };
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        out.begin_array(name);
        for value in array.iter().skip(skip).take(limit) {
            out.push(value);
        }
        out.end();
    }
}

/// Returns the document with the first array on the path reduced to the matching element.
///
/// Errors: 51246 if the filter matched no element, 51247 if the array is too short.
pub(super) fn apply(
    document: Document<'_>,
    path: &[PathComponent],
    position: Option<usize>,
) -> Result<DocumentBuf> {
    let mut out = Builder::with_buffer(Vec::with_capacity(document.bytes().len()));
    fields(document, path, position, &mut out)?;
    Ok(out.finish())
}

/// Copies the fields, and reduces the first array on the path. Deeper components are not followed beyond it.
fn fields(
    document: Document<'_>,
    path: &[PathComponent],
    position: Option<usize>,
    out: &mut Builder,
) -> Result<()> {
    let empty = FieldName::literal("");
    let (name, rest) = path.split_first().map_or((empty, path), |(first, rest)| (first.into(), rest));
    for element in document {
        if element.field_name() != name {
            out.append_element(&element);
            continue;
        }
        match element.value() {
            Value::Array(array) => {
                let position = position.ok_or_else(|| {
                    err!(51246, "positional operator '.$' couldn't find a matching element in the array")
                })?;
                let matched = array
                    .get(position)
                    .ok_or_else(|| err!(51247, "positional operator '.$' element mismatch"))?;
                out.begin_array(name).push(matched).end();
            }
            Value::Document(inner) if !rest.is_empty() => {
                out.begin_document(name);
                fields(inner, rest, position, out)?;
                out.end();
            }
            _ => {
                out.append_element(&element);
            }
        }
    }
    Ok(())
}
