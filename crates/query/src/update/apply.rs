//! Application of an update's tree to a document in one walk. Unchanged elements are copied undecoded.
//!
//! The walk handles paths: arrays, missing fields and positional components. The operators of the tree's leaves
//! ([`operators`](super::operators)) compute values. A new operator needs no change here. A new form of result is a
//! case of [`Change`] and of [`write`].

use super::array_filters::ArrayFilter;
use super::operators::Change;
use super::sources::{Search, Sources};
use super::tree::{Child, Elements, Fields, Node, identifier, join};
use crate::Context;
use base::bson::{Builder, Document, DocumentBuf, Element, FieldName, FieldNameBuf, Value};
use base::{Result, bail, err};
use std::borrow::Cow;
use std::cell::Cell;

/// Maximum number of nulls inserted before a position beyond an array's end, as in MongoDB.
const BACKFILL_MAX: usize = 1_500_000;

/// The field that an operator is applied to, with the document and the operation.
pub(crate) struct FieldContext<'v> {
    pub(crate) context: &'v Context,
    /// The whole document before the update.
    pub(crate) root: Document<'v>,
    /// Whether an upsert is about to insert the document.
    pub(crate) is_insert: bool,
    /// The path of the field.
    pub(crate) path: &'v str,
    /// The name of the field.
    pub(crate) name: &'v str,
    /// Searches in `root`.
    pub(crate) sources: &'v dyn Search<'v>,
}

impl FieldContext<'_> {
    /// Checks for interruption at every 64th position of an array.
    pub(crate) fn check_at_intervals(&self, position: usize) -> Result<()> {
        check_at_intervals(self.context, position)
    }

    /// The document's `_id` as messages print it: `_id: 1.0`.
    pub(crate) fn id_text(&self) -> String {
        self.root.find("_id").map_or_else(|| "_id: missing".to_owned(), |id| id.to_string())
    }
}

/// Number of array elements between two interruption checks.
const ELEMENTS_PER_CHECK: usize = 64;

fn check_at_intervals(context: &Context, position: usize) -> Result<()> {
    if position % ELEMENTS_PER_CHECK == ELEMENTS_PER_CHECK - 1 { context.interrupt.check() } else { Ok(()) }
}

/// The application of a tree to one document.
pub(crate) struct Walk<'c> {
    pub(crate) context: &'c Context,
    pub(crate) root: Document<'c>,
    /// The array position that the filter matched, for `$`.
    pub(crate) position: Option<usize>,
    pub(crate) is_insert: bool,
    pub(crate) filters: &'c [ArrayFilter],
    /// Whether an array was rewritten. MongoDB counts it as a modification even if the result is equal. Example: a
    /// `$push` whose `$slice` removes the new element.
    pub(crate) rewritten: Cell<bool>,
    sources: Sources<'c>,
}

/// A document or array whose fields are updated.
#[derive(Clone, Copy)]
struct Parent<'a> {
    fields: Document<'a>,
    is_array: bool,
    /// The element that contains the parent, for messages; `None` for the whole document.
    element: Option<Element<'a>>,
    path: &'a str,
}

impl<'c> Walk<'c> {
    pub(crate) fn new(
        context: &'c Context,
        root: Document<'c>,
        position: Option<usize>,
        is_insert: bool,
        filters: &'c [ArrayFilter],
    ) -> Walk<'c> {
        let sources = Sources::new(root);
        Walk { context, root, position, is_insert, filters, rewritten: Cell::new(false), sources }
    }

    /// Returns the updated document.
    pub(crate) fn apply(&self, tree: &Fields) -> Result<DocumentBuf> {
        let mut out = Builder::with_buffer(Vec::with_capacity(self.root.bytes().len() + 64));
        let parent = Parent { fields: self.root, is_array: false, element: None, path: "" };
        self.fields(tree, parent, &mut out)?;
        Ok(out.finish())
    }

    fn field<'v>(&'v self, path: &'v str, name: &'v str) -> FieldContext<'v> {
        let (context, root, sources) = (self.context, self.root, &self.sources);
        FieldContext { context, root, is_insert: self.is_insert, path, name, sources }
    }

    /// Returns the fields with `$` replaced by its position.
    pub(super) fn positioned<'n>(&self, fields: &'n Fields, path: &str) -> Result<Cow<'n, Fields>> {
        if fields.positional.is_none() {
            return Ok(Cow::Borrowed(fields));
        }
        let position = self.position.ok_or_else(|| {
            err!(BadValue, "The positional operator did not find the match needed from the query.")
        })?;
        Ok(Cow::Owned(fields.with_position(position, path)?))
    }

    /// Writes the fields of a parent: existing fields in their order, then created fields.
    fn fields(&self, fields: &Fields, parent: Parent<'_>, out: &mut Builder) -> Result<()> {
        let fields = self.positioned(fields, parent.path)?;
        let mut seen = vec![false; fields.children.len()];
        let mut length = 0;
        for element in parent.fields {
            let index = match parent.is_array {
                true => fields.find_element(length),
                false => fields.find(element.name_bytes()),
            };
            length += 1;
            match index.and_then(|at| Some((seen.get_mut(at)?, fields.children.get(at)?))) {
                // A second field with an equal name is not updated, as in MongoDB.
                Some((seen, child)) if !*seen => {
                    *seen = true;
                    let path = join(parent.path, &child.name);
                    self.existing(&child.node, element, parent.is_array, &path, out)?;
                }
                _ => {
                    out.append_element(&element);
                }
            }
        }
        for (child, _) in fields.children.iter().zip(&seen).filter(|(_, seen)| !**seen) {
            length = self.absent(child, parent, length, out)?;
        }
        Ok(())
    }

    /// Applies a node to an existing element.
    fn existing(
        &self,
        node: &Node,
        element: Element<'_>,
        in_array: bool,
        path: &str,
        out: &mut Builder,
    ) -> Result<()> {
        match (node, element.value()) {
            (Node::Leaf(operator), value) => {
                let change = operator.existing(value, &self.field(path, element.name()))?;
                if matches!(change, Change::Keep) {
                    out.append_element(&element);
                } else {
                    self.rewritten.set(self.rewritten.get() || matches!(change, Change::Array(_)));
                    write(change, element.field_name(), in_array, out);
                }
            }
            (Node::Fields(fields), Value::Document(inner)) => {
                out.begin_document(element.field_name());
                let parent = Parent { fields: inner, is_array: false, element: Some(element), path };
                self.fields(fields, parent, out)?;
                out.end();
            }
            (Node::Fields(fields), Value::Array(inner)) => {
                out.begin_array(element.field_name());
                let parent =
                    Parent { fields: inner.as_document(), is_array: true, element: Some(element), path };
                self.fields(fields, parent, out)?;
                out.end();
            }
            (Node::Fields(fields), _) => {
                let fields = self.positioned(fields, path)?;
                for child in &fields.children {
                    self.refuse_path(child, element, path)?;
                }
                out.append_element(&element);
            }
            (Node::Elements(elements), Value::Array(_)) => self.elements(elements, element, path, out)?,
            (Node::Elements(_), _) => {
                bail!(BadValue, "Cannot apply array updates to non-array element {element}");
            }
        }
        Ok(())
    }

    /// Applies to each element of an array the nodes whose filters match it.
    fn elements(&self, elements: &Elements, array: Element<'_>, path: &str, out: &mut Builder) -> Result<()> {
        let Value::Array(values) = array.value() else { return Ok(()) };
        out.begin_array(array.field_name());
        for (position, element) in values.elements().enumerate() {
            check_at_intervals(self.context, position)?;
            let path = join(path, element.name());
            match self.matching_node(elements, element.value(), &path)? {
                Some(node) => self.existing(&node, element, true, &path, out)?,
                None => {
                    out.append_element(&element);
                }
            }
        }
        out.end();
        Ok(())
    }

    /// Merges all nodes whose filters match an element. `None` if no filter matches.
    pub(super) fn matching_node<'n>(
        &self,
        elements: &'n Elements,
        value: Value<'_>,
        path: &str,
    ) -> Result<Option<Cow<'n, Node>>> {
        let mut merged: Option<Cow<'n, Node>> = None;
        for (name, node) in &elements.children {
            if !self.filter_matches(name, value)? {
                continue;
            }
            merged = Some(match merged {
                None => Cow::Borrowed(node),
                Some(other) => Cow::Owned(other.merge(node, path)?),
            });
        }
        Ok(merged)
    }

    fn filter_matches(&self, name: &str, value: Value<'_>) -> Result<bool> {
        if name.is_empty() {
            return Ok(true);
        }
        match self.filters.iter().find(|filter| filter.identifier == name) {
            Some(filter) => filter.matches(value, self.context),
            None => Ok(false),
        }
    }

    /// Creates a missing child if its operator creates fields. Returns the new number of fields of the parent.
    fn absent(&self, child: &Child, parent: Parent<'_>, length: usize, out: &mut Builder) -> Result<usize> {
        let path = join(parent.path, &child.name);
        if !parent.is_array {
            if self.creates(&child.node, &path)? {
                self.create(&child.node, child.name.view(), &path, out)?;
            }
            return Ok(length);
        }
        let Some(index) = child.index else {
            if let Some(element) = parent.element {
                self.refuse_path(child, element, parent.path)?;
            }
            return Ok(length);
        };
        if !self.creates(&child.node, &path)? {
            return Ok(length);
        }
        if index.saturating_sub(length) > BACKFILL_MAX {
            bail!(CannotBackfillArray, "can't backfill more than {BACKFILL_MAX} elements");
        }
        for position in length..index {
            check_at_intervals(self.context, position)?;
            out.append(&FieldNameBuf::of_number(position), Value::Null);
        }
        self.create(&child.node, FieldNameBuf::of_number(index).view(), &path, out)?;
        Ok(index + 1)
    }

    /// Whether an operator below a missing field would create it.
    fn creates(&self, node: &Node, path: &str) -> Result<bool> {
        match node {
            Node::Leaf(operator) => operator.creates(&self.field(path, last(path))),
            Node::Elements(_) => Err(err!(
                BadValue,
                "The path '{path}' must exist in the document in order to apply array updates."
            )),
            Node::Fields(fields) => {
                let fields = self.positioned(fields, path)?;
                let mut any = false;
                for child in &fields.children {
                    any |= self.creates(&child.node, &join(path, &child.name))?;
                }
                Ok(any)
            }
        }
    }

    /// Writes a missing field, including the documents on its path.
    fn create(&self, node: &Node, name: FieldName<'_>, path: &str, out: &mut Builder) -> Result<()> {
        match node {
            Node::Leaf(operator) => {
                write(operator.missing(&self.field(path, name.as_str()))?, name, false, out)
            }
            Node::Elements(_) => {}
            Node::Fields(fields) => {
                let fields = self.positioned(fields, path)?;
                out.begin_document(name);
                for child in &fields.children {
                    let path = join(path, &child.name);
                    if self.creates(&child.node, &path)? {
                        self.create(&child.node, child.name.view(), &path, out)?;
                    }
                }
                out.end();
            }
        }
        Ok(())
    }

    /// Refuses a path through an element that cannot have the child. A path whose operators create nothing is accepted,
    /// unless an operator checks it.
    ///
    /// Errors: PathNotViable.
    fn refuse_path(&self, child: &Child, element: Element<'_>, path: &str) -> Result<()> {
        let full = join(path, &child.name);
        if self.creates(&child.node, &full)? {
            bail!(PathNotViable, "Cannot create field '{}' in element {{{element}}}", child.name);
        }
        let mut refused = None;
        child.node.for_each_operator(&full, &mut |path, operator| {
            if operator.checks_path() && refused.is_none() {
                refused = Some(path.to_owned());
            }
        });
        match refused {
            Some(full) => Err(err!(
                PathNotViable,
                "Cannot use the part ({}) of ({full}) to traverse the element ({{{element}}})",
                child.name
            )),
            None => Ok(()),
        }
    }
}

/// Returns the last component of a path.
fn last(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

/// Writes the changed field.
fn write(change: Change<'_>, name: FieldName<'_>, in_array: bool, out: &mut Builder) {
    match change {
        Change::Keep => {}
        // A removed array element becomes null, so the other elements keep their positions.
        Change::Remove if in_array => {
            out.append(name, Value::Null);
        }
        Change::Remove => {}
        Change::Value(value) => {
            out.append(name, value);
        }
        Change::Array(values) => {
            out.begin_array(name);
            for value in values {
                out.push(value);
            }
            out.end();
        }
        Change::Append(array, values) => {
            out.begin_array(name);
            out.append_all(array.as_document());
            for (position, value) in (array.len()..).zip(values) {
                out.append(&FieldNameBuf::of_number(position), value);
            }
            out.end();
        }
    }
}

/// Returns the identifiers of the tree's `$[identifier]` components, each with a path that uses it.
pub(crate) fn identifiers(tree: &Fields) -> Vec<(String, String)> {
    let mut used = Vec::new();
    tree.for_each_operator("", &mut |path, _| {
        for name in path.split('.').filter_map(identifier).filter(|name| !name.is_empty()) {
            used.push((name.to_owned(), path.to_owned()));
        }
    });
    used
}
