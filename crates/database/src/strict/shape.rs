//! A read's shape: its filter with every value replaced by `"?"`, and its sort.

use crate::plan::{Read, sort_document};
use base::bson::{Array, Builder, Document, DocumentBuf, FieldName, Value};

/// What stands for a value.
const PLACEHOLDER: &str = "?";
/// Longer shapes than this many bytes lose their filter.
const BYTES_MAX: usize = 4096;
/// How deep operators may lie within each other before they count as values.
const DEPTH_MAX: usize = 16;

/// The shape of a read: `filter`, and `sort` where there is one.
pub(super) fn of_read(read: &Read) -> DocumentBuf {
    let filter = of_filter(read.matcher.describe().view(), DEPTH_MAX);
    let mut out = Builder::new();
    match filter.view().bytes().len() {
        0..=BYTES_MAX => out.append(c"filter", &filter),
        _ => out.append(c"filter", PLACEHOLDER),
    };
    if let Some(sort) = read.sort.as_ref().filter(|sort| sort.orders()) {
        out.append(c"sort", &sort_document(sort));
    }
    out.finish()
}

/// A filter with every value replaced by `"?"`.
pub fn filter_shape(filter: Document<'_>) -> DocumentBuf {
    of_filter(filter, DEPTH_MAX)
}

/// The shape of a filter, or of the operators on one field.
fn of_filter(filter: Document<'_>, depth: usize) -> DocumentBuf {
    let mut out = Builder::new();
    for element in filter {
        match (element.name(), element.value()) {
            ("$and" | "$or" | "$nor", Value::Array(branches)) if depth > 0 => {
                append_branches(&mut out, element.field_name(), branches, depth - 1);
            }
            ("$elemMatch" | "$not", Value::Document(inner)) if depth > 0 => {
                out.append(element.field_name(), &of_filter(inner, depth - 1));
            }
            (name, Value::Document(operators))
                if depth > 0 && !name.starts_with('$') && is_operators(operators) =>
            {
                out.append(element.field_name(), &of_filter(operators, depth - 1));
            }
            _ => _ = out.append(element.field_name(), PLACEHOLDER),
        }
    }
    out.finish()
}

fn is_operators(document: Document<'_>) -> bool {
    document.iter().next().is_some_and(|first| first.name().starts_with('$'))
}

/// Branches of the same shape are one: how many values there are is no part of the shape.
fn append_branches(out: &mut Builder, name: FieldName<'_>, branches: Array<'_>, depth: usize) {
    let mut shapes: Vec<DocumentBuf> = Vec::new();
    for branch in branches.iter().filter_map(|branch| branch.as_document()) {
        let shape = of_filter(branch, depth);
        if !shapes.contains(&shape) {
            shapes.push(shape);
        }
    }
    out.begin_array(name);
    for shape in &shapes {
        out.push(shape);
    }
    out.end();
}
