//! Find's positional `$`: the first array on the path keeps only the matching element.

use base::bson::{Builder, Document, DocumentBuf, FieldName, PathComponent, Value};
use base::{Result, err};

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
