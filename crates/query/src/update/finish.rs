//! Final checks of an updated document before it is stored.

use super::tree::{Child, Fields, Node};
use crate::Context;
use base::bson::{
    Builder, Document, DocumentBuf, Element, MAX_DOCUMENT_SIZE, MAX_STORED_DEPTH, Type, Value, equal,
    nests_deeper,
};
use base::{CompatibleWith, Result, bail, err};

/// Checks `_id` and the top-level names after an update by operators.
///
/// Errors: ImmutableField with the message for the path that changed `_id`; DollarPrefixedFieldName; InvalidDBRef.
pub(super) fn check_operators(
    tree: &Fields,
    before: Document<'_>,
    after: Document<'_>,
    is_insert: bool,
) -> Result<()> {
    for child in &tree.children {
        if &*child.name == "_id" {
            check_id(child, before, after)?;
        } else if child.name.starts_with('$') && !is_insert {
            check_name(&child.name, before, after)?;
        }
    }
    Ok(())
}

/// Checks that `_id` is unchanged. Errors: ImmutableField, with the path of the operator that changed it.
fn check_id(child: &Child, before: Document<'_>, after: Document<'_>) -> Result<()> {
    let Some(old) = before.find("_id") else { return Ok(()) };
    let new = after.find("_id");
    if new.is_some_and(|new| equal(new.value(), old.value())) {
        return Ok(());
    }
    let mut path = String::from("_id");
    child.node.for_each_operator("_id", &mut |leaf, _| leaf.clone_into(&mut path));
    match (new, &child.node) {
        (Some(new), Node::Fields(_)) if !exists(old, &path) => Err(err!(
            ImmutableField,
            "Updating the path '_id' to {new} would modify the immutable field '_id'"
        )),
        _ => Err(err!(
            ImmutableField,
            "Performing an update on the path '{path}' would modify the immutable field '_id'"
        )),
    }
}

/// Whether a path that begins with `_id` leads to a value in the old `_id`.
fn exists(id: Element<'_>, path: &str) -> bool {
    let mut value = Some(id.value());
    for component in path.split('.').skip(1) {
        value = value.and_then(|value| value.as_document()?.get(component));
    }
    value.is_some()
}

fn check_name(name: &str, before: Document<'_>, after: Document<'_>) -> Result<()> {
    let written = after.find(name);
    let same = match (before.find(name), written) {
        (Some(old), Some(new)) => old.kind() == new.kind() && old.value_bytes() == new.value_bytes(),
        (_, None) => true,
        (None, Some(_)) => false,
    };
    if same {
        return Ok(());
    }
    let fields: Vec<Element<'_>> = after.iter().collect();
    let at = fields.iter().position(|field| field.name() == name).unwrap_or(0);
    check_reference(&fields, at, name)
}

/// Checks a field whose name begins with a dollar sign. Only the fields of a DBRef are allowed, in their order.
///
/// Errors: InvalidDBRef for a misplaced part or a part that is not a string; DollarPrefixedFieldName with the path.
fn check_reference(fields: &[Element<'_>], at: usize, path: &str) -> Result<()> {
    let Some(field) = fields.get(at) else { return Ok(()) };
    let name = field.name();
    let is_named =
        |at: Option<usize>, name| at.and_then(|at| fields.get(at)).is_some_and(|f| f.name() == name);
    let misplaced = |before: &str| {
        err!(InvalidDBRef, "Found {name} field without a {before} before it, which is invalid.")
    };
    match name {
        "$ref" | "$db" if field.kind() != Type::String => {
            let kind = field.kind().alias();
            Err(err!(InvalidDBRef, "The DBRef {name} field must be a String, not a {kind}"))
        }
        "$ref" if !is_named(Some(at + 1), "$id") => {
            Err(err!(InvalidDBRef, "The DBRef $ref field must be followed by a $id field"))
        }
        "$id" if !is_named(at.checked_sub(1), "$ref") => Err(misplaced("$ref")),
        "$db" if !is_named(at.checked_sub(1), "$id") => Err(misplaced("$id")),
        "$ref" | "$id" | "$db" => Ok(()),
        _ => Err(dollar_prefixed(name, path)),
    }
}

/// Returns the error for a name that begins with a dollar sign.
pub(super) fn dollar_prefixed(name: &str, path: &str) -> base::Error {
    err!(
        DollarPrefixedFieldName,
        "The dollar ($) prefixed field '{name}' in '{path}' is not allowed in the context of an update's \
         replacement document. Consider using an aggregation pipeline with $replaceWith."
    )
}

/// An updated document before the last checks.
pub(super) struct Updated {
    pub(super) document: DocumentBuf,
    /// Whether the document may exceed the nesting limit.
    pub(super) may_deepen: bool,
    /// Whether the update counts as a modification even if the bytes are equal.
    pub(super) counts: bool,
}

/// Moves `_id` to the front, checks the limits and compares with the old document.
///
/// Errors: 17419 above 16 MiB, and for an upsert 17420 or, in MongoDB 9.0, BSONObjectTooLarge; Overflow for excessive
/// nesting, checked only if the update may deepen the document.
pub(super) fn finish(
    before: Document<'_>,
    updated: Updated,
    is_insert: bool,
    context: &Context,
) -> Result<Option<DocumentBuf>> {
    let after = id_first(updated.document);
    if after.bytes() == before.bytes() && !updated.counts {
        return Ok(None);
    }
    if after.bytes().len() > MAX_DOCUMENT_SIZE {
        return Err(if is_insert && context.compatible_with >= CompatibleWith::V9_0 {
            err!(BSONObjectTooLarge, "Document to upsert is larger than {MAX_DOCUMENT_SIZE}")
        } else if is_insert {
            err!(17420, "Document to upsert is larger than {MAX_DOCUMENT_SIZE}")
        } else {
            err!(17419, "Resulting document after update is larger than {MAX_DOCUMENT_SIZE}")
        });
    }
    if updated.may_deepen {
        check_depth(after.view())?;
    }
    Ok(Some(after))
}

fn check_depth(document: Document<'_>) -> Result<()> {
    if nests_deeper(document, MAX_STORED_DEPTH) {
        bail!(Overflow, "Document exceeds maximum nesting depth of {MAX_STORED_DEPTH}");
    }
    Ok(())
}

/// Checks an `_id` that an update sets. Its names may have a dollar sign only in a DBRef, at every level.
///
/// Errors: InvalidIdField; Overflow for excessive nesting; InvalidDBRef; DollarPrefixedFieldName.
pub(super) fn check_new_id(id: &Element<'_>) -> Result<()> {
    match id.value() {
        Value::Array(_) | Value::Regex { .. } | Value::Undefined => {
            Err(err!(InvalidIdField, "The '_id' value cannot be of type {}", id.kind().alias()))
        }
        Value::Document(document) => {
            check_depth(document)?;
            check_names(&mut "_id".to_string(), document)
        }
        _ => Ok(()),
    }
}

/// Checks the names of a document in an `_id`, and of the documents in it. The nesting limit bounds the recursion.
fn check_names(path: &mut String, document: Document<'_>) -> Result<()> {
    let fields: Vec<Element<'_>> = document.iter().collect();
    let length = path.len();
    for (at, field) in fields.iter().enumerate() {
        let name = field.name();
        path.push('.');
        path.push_str(name);
        if name.starts_with('$') {
            check_reference(&fields, at, path)?;
        }
        if matches!(field.kind(), Type::Document | Type::Array) {
            check_names(path, Document::from_valid(field.value_bytes()))?;
        }
        path.truncate(length);
    }
    Ok(())
}

/// Moves the first `_id` to the front.
pub(super) fn id_first(document: DocumentBuf) -> DocumentBuf {
    let view = document.view();
    if view.first().is_none_or(|first| first.name() == "_id") {
        return document;
    }
    let Some(id) = view.find("_id") else { return document };
    let mut out = Builder::with_buffer(Vec::with_capacity(view.bytes().len()));
    out.append_element(&id);
    let mut moved = false;
    for element in view {
        if !moved && element.name() == "_id" {
            moved = true;
        } else {
            out.append_element(&element);
        }
    }
    out.finish()
}
