//! Copying documents with some of their values replaced.

use base::bson::{Array, Builder, Document, DocumentBuf, FieldName, Value, ValueBuf};

/// What becomes of a value.
pub(crate) enum Change {
    /// It stays as it is, with all that is in it.
    Keep,
    /// It is looked into if there is anything in it, and stays if not.
    Into,
    /// Another one takes its place.
    To(ValueBuf),
    /// It is left out; in an array it becomes null.
    Drop,
}

/// A value on the way: the names that lead to it, positions in arrays among them, its own last.
pub(crate) type Visit<'v> = dyn FnMut(&[&str], &Value<'_>) -> Change + 'v;

/// A copy of the document, with each value as `visit` wants it; `path` leads to the document.
pub(crate) fn copy<'a>(
    document: Document<'a>,
    path: &mut Vec<&'a str>,
    visit: &mut Visit<'_>,
) -> DocumentBuf {
    let mut out = Builder::new();
    fill(document, path, visit, &mut out);
    out.finish()
}

fn fill<'a>(document: Document<'a>, path: &mut Vec<&'a str>, visit: &mut Visit<'_>, out: &mut Builder) {
    for element in document {
        let (name, value) = (element.name(), element.value());
        path.push(name);
        match (visit(path, &value), value) {
            (Change::Drop, _) => {}
            (Change::To(other), _) => {
                out.append(FieldName::known(name), other.view());
            }
            (Change::Into, Value::Document(inner)) => {
                out.begin_document(FieldName::known(name));
                fill(inner, path, visit, out);
                out.end();
            }
            (Change::Into, Value::Array(inner)) => {
                out.begin_array(FieldName::known(name));
                each(inner, path, visit, out);
                out.end();
            }
            (Change::Keep | Change::Into, _) => {
                out.append_element(&element);
            }
        }
        path.pop();
    }
}

fn each<'a>(array: Array<'a>, path: &mut Vec<&'a str>, visit: &mut Visit<'_>, out: &mut Builder) {
    for element in array.elements() {
        let value = element.value();
        path.push(element.name());
        match (visit(path, &value), value) {
            (Change::Drop, _) => {
                out.push(Value::Null);
            }
            (Change::To(other), _) => {
                out.push(other.view());
            }
            (Change::Into, Value::Document(inner)) => {
                out.push_document();
                fill(inner, path, visit, out);
                out.end();
            }
            (Change::Into, Value::Array(inner)) => {
                out.push_array();
                each(inner, path, visit, out);
                out.end();
            }
            (Change::Keep | Change::Into, value) => {
                out.push(value);
            }
        }
        path.pop();
    }
}

/// Shows every value inside, with the names that lead to it; `visit` tells whether to look into it.
pub(crate) fn look<'a>(
    document: Document<'a>,
    path: &mut Vec<&'a str>,
    visit: &mut dyn FnMut(&[&str], &Value<'a>) -> bool,
) {
    for element in document {
        let value = element.value();
        path.push(element.name());
        if visit(path, &value) {
            match value {
                Value::Document(inner) => look(inner, path, visit),
                Value::Array(inner) => look(inner.as_document(), path, visit),
                _ => {}
            }
        }
        path.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::bson::extended_json::parse;

    #[test]
    fn values_are_kept_replaced_and_dropped_by_their_paths() {
        let before = parse("{a: 1, b: [1, {c: 2, d: {e: 3}}], f: {c: 5}}").unwrap();
        let after = copy(before.view(), &mut Vec::new(), &mut |path, _| match path {
            ["a"] => Change::Drop,
            [.., "c"] => Change::To(Value::String("x").to_owned()),
            [.., "d"] => Change::Keep,
            _ => Change::Into,
        });
        assert_eq!(after.bytes(), parse("{b: [1, {c: 'x', d: {e: 3}}], f: {c: 'x'}}").unwrap().bytes());
    }

    #[test]
    fn every_value_is_shown() {
        let document = parse("{a: [1, {b: 2}], c: {d: 3}}").unwrap();
        let mut seen = Vec::new();
        look(document.view(), &mut Vec::new(), &mut |path, _| {
            seen.push(path.join("."));
            path != ["c"]
        });
        assert_eq!(seen, ["a", "a.0", "a.1", "a.1.b", "c"]);
    }
}
