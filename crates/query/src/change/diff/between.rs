//! The difference of two states of a document.

use super::{ArrayNode, DocumentNode, ENTRY_BYTES, Node, apply_diff, same_value};
use base::bson::{Array, Document, DocumentBuf, Element, Value};
use std::collections::BTreeSet;

/// Returns the diff from one state of a document to another, as MongoDB computes it for updates by a pipeline. `None`
/// if the oplog records the whole document instead: if it is not larger than the diff, or if a document contains a name
/// twice, which diffs cannot express.
pub fn between(before: Document<'_>, after: Document<'_>) -> Option<DocumentBuf> {
    let node = documents(before, after, ENTRY_BYTES)?;
    if node.is_empty() {
        return None;
    }
    let diff = node.finish();
    // An entry may be applied again to a document that has its changes already.
    let leads_from =
        |state| apply_diff(state, diff.view()).is_ok_and(|result| result.bytes() == after.bytes());
    (leads_from(before) && leads_from(after)).then_some(diff)
}

/// Compares two documents. `padding` counts as part of the diff. `None` if the diff is not smaller than the new state.
fn documents<'a>(before: Document<'a>, after: Document<'a>, padding: usize) -> Option<DocumentNode<'a>> {
    let most = after.bytes().len();
    let mut node = DocumentNode::new();
    node.size += padding;
    let (mut left, mut right) = (before.iter().peekable(), after.iter().peekable());
    // Fields that the new state lacks at this position; they may follow later.
    let mut passed = BTreeSet::new();
    while let (Some(old), Some(new)) = (left.peek(), right.peek()) {
        if most < node.size {
            return None;
        }
        if old.name_bytes() == new.name_bytes() {
            if !same_value(old, new) {
                match sub(old, new) {
                    Some(sub) => node.sub(new.field_name(), sub),
                    None => node.update(*new),
                }
            }
            right.next();
        } else {
            passed.insert(old.field_name());
        }
        left.next();
    }
    for old in left {
        node.delete(old.field_name());
    }
    for new in right {
        passed.remove(&new.field_name());
        node.insert(new);
    }
    for name in passed {
        node.delete(name);
    }
    (most > node.size).then_some(node)
}

/// Compares two arrays by position; `None` if the diff is not smaller than the new array.
fn arrays<'a>(before: Array<'a>, after: Array<'a>) -> Option<ArrayNode<'a>> {
    let most = after.bytes().len();
    let mut node = ArrayNode::new();
    let (mut left, mut right) = (before.elements(), after.elements().enumerate());
    let mut length = 0;
    for (position, new) in right.by_ref() {
        if most < node.size {
            return None;
        }
        length = position + 1;
        match left.next() {
            Some(old) if same_value(&old, &new) => {}
            Some(old) => match sub(&old, &new) {
                Some(sub) => node.sub(position, sub),
                None => node.set(position, new),
            },
            None => node.set(position, new),
        }
    }
    if left.next().is_some() {
        node.truncate(length);
    }
    (most > node.size).then_some(node)
}

/// Returns the diff of two documents or two arrays, if it is smaller than the new value.
fn sub<'a>(old: &Element<'a>, new: &Element<'a>) -> Option<Node<'a>> {
    // The depth of validated documents bounds the recursion.
    match (old.value(), new.value()) {
        (Value::Document(old), Value::Document(new)) => Some(Node::Document(documents(old, new, 0)?)),
        (Value::Array(old), Value::Array(new)) => Some(Node::Array(arrays(old, new)?)),
        _ => None,
    }
}
