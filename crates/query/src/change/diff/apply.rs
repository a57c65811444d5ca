//! Diffs of two states of a document: computation and application.

use super::reader::{ArrayDiff, ArrayEntry, DocumentDiff, SubDiff};
use super::{ArrayNode, DocumentNode, ENTRY_BYTES, Node, same_value};
use base::bson::{Array, Builder, Document, DocumentBuf, Element, FieldNameBuf, Value};
use base::{Result, bail, err};
use std::collections::{BTreeSet, HashMap};

/// Maximum number of nulls inserted before a position beyond an array's end, as in MongoDB's updates.
const PADDING_MAX: usize = 1_500_000;

/// The change of one field.
enum FieldChange<'a> {
    Delete,
    Update(Element<'a>),
    Insert,
    Sub(SubDiff<'a>),
}

/// Changes by field name.
type FieldChanges<'a> = HashMap<&'a [u8], FieldChange<'a>, foldhash::fast::RandomState>;

/// Returns the document after a diff from any source; applying it again changes nothing. If the diff was made for a
/// document of another shape, mismatching values become null, because a later oplog entry will write them.
///
/// The result may be too large or too deep. A caller with a diff from outside must check this.
///
/// Errors: 4770500 and similar codes for a value that is not a diff, 4728000 for a field that is named twice,
/// CannotBackfillArray for a position far beyond the end of an array.
pub fn apply(document: Document<'_>, diff: Document<'_>) -> Result<DocumentBuf> {
    check(&SubDiff::Document(DocumentDiff::read(diff)?))?;
    apply_diff(document, diff)
}

/// Applies a diff that was made here; only the relevant parts are checked.
pub(in crate::change) fn apply_diff(document: Document<'_>, diff: Document<'_>) -> Result<DocumentBuf> {
    let mut out = Builder::with_buffer(Vec::with_capacity(document.bytes().len() + diff.bytes().len()));
    fields(document, &DocumentDiff::read(diff)?, &mut out)?;
    Ok(out.finish())
}

/// Reads the whole diff, including changes below fields that a document does not have.
fn check(diff: &SubDiff<'_>) -> Result<()> {
    // The diff is validated BSON, whose depth bounds the recursion.
    match diff {
        SubDiff::Document(diff) => field_changes(diff)?
            .values()
            .try_for_each(|change| if let FieldChange::Sub(sub) = change { check(sub) } else { Ok(()) }),
        SubDiff::Array(diff) => diff
            .entries()
            .try_for_each(|entry| if let (_, ArrayEntry::Sub(sub)) = entry? { check(&sub) } else { Ok(()) }),
    }
}

/// Collects the change of each named field. Errors: 4728000 for a duplicate name.
fn field_changes<'a>(diff: &DocumentDiff<'a>) -> Result<FieldChanges<'a>> {
    let mut field_changes = FieldChanges::default();
    let mut add = |name: &'a str, change| match field_changes.insert(name.as_bytes(), change) {
        None => Ok(()),
        Some(_) => Err(err!(4728000, "duplicate field name in diff: {name}")),
    };
    for element in diff.deletes {
        add(element.name(), FieldChange::Delete)?;
    }
    for element in diff.updates {
        add(element.name(), FieldChange::Update(element))?;
    }
    for element in diff.inserts {
        add(element.name(), FieldChange::Insert)?;
    }
    for sub in diff.sub_diffs() {
        let (name, sub) = sub?;
        add(name, FieldChange::Sub(sub))?;
    }
    Ok(field_changes)
}

/// Writes the fields of a document after the diff. Inserted fields move to the end even if they exist.
fn fields(before: Document<'_>, diff: &DocumentDiff<'_>, out: &mut Builder) -> Result<()> {
    let mut field_changes = field_changes(diff)?;
    for element in before {
        // A second field with an equal name is not changed, as in updates.
        match field_changes.remove(element.name_bytes()) {
            None => {
                out.append_element(&element);
            }
            Some(FieldChange::Delete | FieldChange::Insert) => {}
            Some(FieldChange::Update(value)) => {
                out.append_element(&value);
            }
            Some(FieldChange::Sub(sub)) => within(element, &sub, out)?,
        }
    }
    for element in diff.updates {
        if field_changes.contains_key(element.name_bytes()) {
            out.append_element(&element);
        }
    }
    for element in diff.inserts {
        out.append_element(&element);
    }
    Ok(())
}

/// Applies a nested diff. A value of another type becomes null, because a later oplog entry will write it.
fn within(element: Element<'_>, sub: &SubDiff<'_>, out: &mut Builder) -> Result<()> {
    let name = element.field_name();
    // The diff is validated BSON, whose depth bounds the recursion.
    match (sub, element.value()) {
        (SubDiff::Document(diff), Value::Document(inner)) => {
            out.begin_document(name);
            fields(inner, diff, out)?;
            out.end();
        }
        (SubDiff::Array(diff), Value::Array(inner)) => {
            out.begin_array(name);
            items(inner, diff, out)?;
            out.end();
        }
        _ => {
            out.append(name, Value::Null);
        }
    }
    Ok(())
}

/// Writes the elements of an array after the diff. Positions between the old end and a new element become null.
///
/// Errors: 4728000 for a duplicate position, CannotBackfillArray beyond the limit of nulls.
fn items(before: Array<'_>, diff: &ArrayDiff<'_>, out: &mut Builder) -> Result<()> {
    let mut entries = HashMap::<usize, ArrayEntry<'_>, foldhash::fast::RandomState>::default();
    let mut end = 0;
    for entry in diff.entries() {
        let (position, entry) = entry?;
        end = end.max(position.saturating_add(1));
        if entries.insert(position, entry).is_some() {
            bail!(4728000, "duplicate field name in diff: {position}");
        }
    }
    let mut length = 0;
    for element in before.elements().take(diff.length.unwrap_or(usize::MAX)) {
        match entries.get(&length) {
            None => {
                out.append_element(&element);
            }
            Some(ArrayEntry::Value(value)) => {
                out.append_renamed(element.field_name(), value);
            }
            Some(ArrayEntry::Sub(sub)) => within(element, sub, out)?,
        }
        length += 1;
    }
    let end = end.min(diff.length.unwrap_or(usize::MAX));
    if end.saturating_sub(length) > PADDING_MAX + entries.len() {
        bail!(CannotBackfillArray, "can't backfill more than {PADDING_MAX} elements");
    }
    for position in length..end {
        let name = FieldNameBuf::of_number(position);
        match entries.get(&position) {
            Some(ArrayEntry::Value(value)) => {
                out.append_renamed(&name, value);
            }
            Some(ArrayEntry::Sub(_)) | None => {
                out.append(&name, Value::Null);
            }
        }
    }
    Ok(())
}

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
