//! The oplog's description of an update.
//!
//! The oplog records the writes of an update by operators; it does not compare states. `{$set: {a: {…}}}` logs the
//! whole of `a`, however little of it is new. `{$push: {a: 1}}` logs only the new element. One walk over the update's
//! tree and both states finds the write of each operator.

use super::apply::Walk;
use super::tree::{Child, Elements, Fields, Node, join};
use super::{Kind, Update};
use crate::Context;
use crate::change::diff::{ArrayNode, DocumentNode, Node as DiffNode, between, same_value};
use crate::matcher::fields_by_name;
use base::Result;
use base::bson::{Array, Document, DocumentBuf, Element, Value};
use foldhash::HashMap;

impl Update {
    /// Returns the diff from a document to the result of [`apply`](Update::apply) with an equal `position`. `None` if
    /// the oplog records the whole document instead: for replacements, and for pipelines whose diff would not be
    /// smaller.
    ///
    /// Errors: only errors that [`apply`](Update::apply) has returned before.
    pub fn diff(
        &self,
        before: Document<'_>,
        after: Document<'_>,
        position: Option<usize>,
        context: &Context,
    ) -> Result<Option<DocumentBuf>> {
        let (tree, filters) = match &self.kind {
            Kind::Replacement(_) => return Ok(None),
            Kind::Pipeline(_) | Kind::Diff(_) => return Ok(between(before, after)),
            Kind::Operators { tree, filters } => (tree, filters),
        };
        let walk = Walk::new(context, before, position, false, filters);
        let written = WriteDiff { walk: &walk, rewritten: false };
        let mut node = written.document(tree, before, after, "")?;
        if node.is_empty() {
            // An update that rewrote an array counts as one even without a difference, and is logged.
            node = WriteDiff { rewritten: true, ..written }.document(tree, before, after, "")?;
        }
        Ok((!node.is_empty()).then(|| node.finish()))
    }
}

/// Builds the difference of an update, with the walk that applied it.
struct WriteDiff<'w, 'c> {
    walk: &'w Walk<'c>,
    /// Whether unchanged arrays that operators rewrote are logged.
    rewritten: bool,
}

/// Finds fields of a document by name. Many searches use a hash table.
struct Names<'a> {
    document: Document<'a>,
    all: Option<HashMap<&'a [u8], Element<'a>>>,
}

impl<'a> Names<'a> {
    /// Prepares for this number of searches.
    fn new(document: Document<'a>, searches: usize) -> Names<'a> {
        Names { document, all: (searches > 16).then(|| fields_by_name(document)) }
    }

    /// Returns the first field with this name.
    fn find(&self, name: &str) -> Option<Element<'a>> {
        match &self.all {
            Some(all) => all.get(name.as_bytes()).copied(),
            None => self.document.find(name),
        }
    }
}

/// Change of a field that exists in both states.
enum Change<'a> {
    None,
    Value,
    Within(DiffNode<'a>),
}

impl<'a> Change<'a> {
    fn within(node: DiffNode<'a>) -> Change<'a> {
        if node.is_empty() { Change::None } else { Change::Within(node) }
    }
}

impl WriteDiff<'_, '_> {
    /// Compares the fields of a document that the update names.
    fn document<'a>(
        &self,
        fields: &Fields,
        before: Document<'a>,
        after: Document<'a>,
        path: &str,
    ) -> Result<DocumentNode<'a>> {
        let fields = self.walk.positioned(fields, path)?;
        let mut node = DocumentNode::new();
        let (old, new) =
            (Names::new(before, fields.children.len()), Names::new(after, fields.children.len()));
        for child in &fields.children {
            match (old.find(&child.name), new.find(&child.name)) {
                (None, None) => {}
                (None, Some(new)) => node.insert(new),
                (Some(old), None) => node.delete(old.field_name()),
                (Some(old), Some(new)) => {
                    match self.change(&child.node, old, new, &join(path, &child.name))? {
                        Change::None => {}
                        Change::Value => node.update(new),
                        Change::Within(sub) => node.sub(new.field_name(), sub),
                    }
                }
            }
        }
        Ok(node)
    }

    /// Returns the change of one place. Unchanged arrays count if operators rewrote them.
    fn change<'a>(&self, node: &Node, old: Element<'a>, new: Element<'a>, path: &str) -> Result<Change<'a>> {
        let same = same_value(&old, &new);
        if same && !self.rewritten {
            return Ok(Change::None);
        }
        Ok(match (node, old.value(), new.value()) {
            (Node::Leaf(_), _, Value::Array(_)) if same => Change::Value,
            (Node::Leaf(_), _, _) if same => Change::None,
            (Node::Leaf(operator), Value::Array(old), Value::Array(new)) => {
                match operator.appended(old.len()).and_then(|count| appended(old, new, count)) {
                    Some(node) => Change::within(DiffNode::Array(node)),
                    None => Change::Value,
                }
            }
            (Node::Leaf(_), _, _) => Change::Value,
            (Node::Fields(fields), Value::Document(old), Value::Document(new)) => {
                Change::within(DiffNode::Document(self.document(fields, old, new, path)?))
            }
            (Node::Fields(fields), Value::Array(old), Value::Array(new)) => {
                Change::within(DiffNode::Array(self.array(fields, old, new, path)?))
            }
            (Node::Elements(elements), Value::Array(old), Value::Array(new)) => {
                Change::within(DiffNode::Array(self.elements(elements, old, new, path)?))
            }
            // Applying the update has refused operators below any other value.
            _ => Change::None,
        })
    }

    /// Compares an array whose positions are updated by number.
    fn array<'a>(
        &self,
        fields: &Fields,
        before: Array<'a>,
        after: Array<'a>,
        path: &str,
    ) -> Result<ArrayNode<'a>> {
        let fields = self.walk.positioned(fields, path)?;
        let mut node = ArrayNode::new();
        // Children are sorted by name, numbers by value, so positions ascend.
        let positions = fields.children.iter().filter_map(|child: &Child| Some((child, child.index?)));
        let last = positions.clone().map(|(_, position)| position).max().unwrap_or(0);
        let first = |array: Array<'a>| array.elements().take(last + 1).collect::<Vec<_>>();
        let (before, after) = (first(before), first(after));
        for (child, position) in positions {
            match (before.get(position).copied(), after.get(position).copied()) {
                (None, Some(new)) => node.set(position, new),
                (Some(old), Some(new)) => {
                    let change = self.change(&child.node, old, new, &join(path, &child.name))?;
                    put(&mut node, position, change, new);
                }
                (_, None) => {}
            }
        }
        Ok(node)
    }

    /// Compares an array whose elements are selected by filters.
    fn elements<'a>(
        &self,
        elements: &Elements,
        before: Array<'a>,
        after: Array<'a>,
        path: &str,
    ) -> Result<ArrayNode<'a>> {
        let mut node = ArrayNode::new();
        for (position, (old, new)) in before.elements().zip(after.elements()).enumerate() {
            if same_value(&old, &new) && !self.rewritten {
                continue;
            }
            let path = join(path, old.name());
            if let Some(chosen) = self.walk.matching_node(elements, old.value(), &path)? {
                let change = self.change(&chosen, old, new, &path)?;
                put(&mut node, position, change, new);
            }
        }
        Ok(node)
    }
}

fn put<'a>(node: &mut ArrayNode<'a>, position: usize, change: Change<'a>, new: Element<'a>) {
    match change {
        Change::None => {}
        Change::Value => node.set(position, new),
        Change::Within(sub) => node.sub(position, sub),
    }
}

/// Returns the diff of an array that only got `count` more elements at its end.
fn appended<'a>(before: Array<'a>, after: Array<'a>, count: usize) -> Option<ArrayNode<'a>> {
    let (old, length) = (before.elements().rest(), before.len());
    if !after.elements().rest().starts_with(old) || after.len() != length + count {
        return None;
    }
    let mut node = ArrayNode::new();
    for (position, element) in after.elements().enumerate().skip(length) {
        node.set(position, element);
    }
    Some(node)
}
