//! Equality that ignores the order of fields, for `enum` and `uniqueItems`.
//!
//! Values are rewritten with the fields of every document sorted by name. The normal comparison then applies.

use base::bson::{Builder, Document, FieldName, Value, ValueBuf, compare, equal};

/// Returns the value with the fields of every nested document sorted by name.
pub(super) fn normalise(value: Value<'_>) -> ValueBuf {
    match value {
        Value::Document(_) | Value::Array(_) => {
            let mut builder = Builder::new();
            append(c"".into(), value, &mut builder);
            let wrapped = builder.finish();
            wrapped.view().get("").map_or_else(ValueBuf::null, |value| value.to_owned())
        }
        scalar => scalar.to_owned(),
    }
}

/// Sorts normalised values and removes duplicates.
pub(super) fn sort_unique(values: &mut Vec<ValueBuf>) {
    values.sort_by(|a, b| compare(a.view(), b.view()));
    values.dedup_by(|a, b| equal(a.view(), b.view()));
}

/// Appends a normalised copy. Recursion is bounded by the depth of the value, which validation limits.
fn append(name: FieldName<'_>, value: Value<'_>, out: &mut Builder) {
    match value {
        Value::Document(document) => {
            out.begin_document(name);
            append_sorted(document, out);
            out.end();
        }
        Value::Array(array) => {
            out.begin_array(name);
            array.elements().for_each(|element| append(element.field_name(), element.value(), out));
            out.end();
        }
        scalar => {
            out.append(name, scalar);
        }
    }
}

fn append_sorted(document: Document<'_>, out: &mut Builder) {
    let mut elements: Vec<_> = document.iter().collect();
    elements.sort_by_key(|element| element.name_bytes());
    elements.iter().for_each(|element| append(element.field_name(), element.value(), out));
}
