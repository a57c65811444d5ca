//! Sets a value at a path of a document, and reads options of specifications.

use base::bson::{Builder, Document, DocumentBuf, Element, FieldName, Path, PathComponent, Value, ValueBuf};
use base::{Error, Result, err};
use foldhash::HashMap;

/// Returns the document with a value at the path, or without it for `None`. Values on the path that are not documents
/// are replaced by documents; arrays are not traversed.
pub fn set_path(document: Document<'_>, path: &Path, value: Option<Value<'_>>) -> DocumentBuf {
    let mut builder = Builder::new();
    set_components(document, path.components(), value, false, &mut builder);
    builder.finish()
}

/// As [`set_path`], but sets the field in every element of an array on the path, as `$addFields` does. Elements that
/// are not documents are replaced by documents.
pub(crate) fn set_path_in_arrays(
    document: Document<'_>,
    path: &Path,
    value: Option<Value<'_>>,
) -> DocumentBuf {
    let mut builder = Builder::new();
    set_components(document, path.components(), value, true, &mut builder);
    builder.finish()
}

/// Positions of fields by name.
pub(crate) type Positions = HashMap<Box<[u8]>, usize>;

/// As [`set_path`], for several top-level fields in one pass over the document. `positions` are the positions in
/// `fields`.
pub(crate) fn set_fields(
    document: Document<'_>,
    positions: &Positions,
    fields: &[(FieldName<'_>, Option<ValueBuf>)],
) -> DocumentBuf {
    let (mut builder, mut is_new) = (Builder::new(), vec![true; fields.len()]);
    for element in document {
        let at = positions.get(element.name_bytes()).copied();
        match at.and_then(|at| is_new.get_mut(at).zip(fields.get(at))) {
            Some((is_new, (name, value))) if *is_new => {
                *is_new = false;
                builder.append_optional(*name, value.as_ref());
            }
            _ => {
                builder.append_element(&element);
            }
        }
    }
    for ((name, value), _) in fields.iter().zip(is_new).filter(|(_, is_new)| *is_new) {
        builder.append_optional(*name, value.as_ref());
    }
    builder.finish()
}

/// Copies a document with the value set at the first field of the name; a new field is appended.
fn set_components(
    document: Document<'_>,
    components: &[PathComponent],
    value: Option<Value<'_>>,
    in_arrays: bool,
    builder: &mut Builder,
) {
    let Some((first, rest)) = components.split_first() else { return };
    let mut exists = false;
    for element in document {
        if exists || element.name() != first.name() {
            builder.append_element(&element);
            continue;
        }
        exists = true;
        append_at(first.into(), Some(element.value()), rest, value, in_arrays, builder);
    }
    if !exists && value.is_some() {
        append_at(first.into(), None, rest, value, in_arrays, builder);
    }
}

/// Appends a field with the value set below it; creates missing documents.
fn append_at(
    name: FieldName<'_>,
    inner: Option<Value<'_>>,
    rest: &[PathComponent],
    value: Option<Value<'_>>,
    in_arrays: bool,
    builder: &mut Builder,
) {
    if rest.is_empty() {
        builder.append_optional(name, value);
        return;
    }
    append_below(Some(name), inner, rest, value, in_arrays, builder);
}

/// Appends a document with the value set below it, or an array of such documents. The document's depth bounds the
/// recursion.
fn append_below(
    slot: Option<FieldName<'_>>,
    inner: Option<Value<'_>>,
    rest: &[PathComponent],
    value: Option<Value<'_>>,
    in_arrays: bool,
    builder: &mut Builder,
) {
    match inner {
        Some(Value::Array(array)) if in_arrays => {
            builder.begin_array_at(slot);
            for item in array.iter() {
                append_below(None, Some(item), rest, value, in_arrays, builder);
            }
        }
        _ => {
            let document = inner.and_then(|inner| inner.as_document()).unwrap_or(Document::EMPTY);
            builder.begin_document_at(slot);
            set_components(document, rest, value, in_arrays, builder);
        }
    }
    builder.end();
}

/// Calls `visit` for every value at the path, as `$lookup` reads its local field. Arrays are traversed, and an array at
/// the end yields its elements.
pub(crate) fn visit_values<'a>(
    value: Value<'a>,
    components: &[PathComponent],
    visit: &mut dyn FnMut(Value<'a>),
) {
    let Some((first, rest)) = components.split_first() else {
        match value {
            Value::Array(array) => array.iter().for_each(&mut *visit),
            value => visit(value),
        }
        return;
    };
    match value {
        Value::Document(document) => {
            if let Some(inner) = document.get(first.name()) {
                visit_values(inner, rest, visit);
            }
        }
        Value::Array(array) => {
            for element in array.iter() {
                if let Value::Document(_) = element {
                    visit_values(element, components, visit);
                }
            }
            if let Some(inner) = first.index().and_then(|index| array.get(index)) {
                visit_values(inner, rest, visit);
            }
        }
        _ => {}
    }
}

/// Refuses options other than `known`. Errors: 40415, naming the stage and the option.
pub(crate) fn check_options(stage: &str, options: Document<'_>, known: &[&str]) -> Result<()> {
    match options.iter().find(|option| !known.contains(&option.name())) {
        Some(option) => Err(Error::unknown_field(format_args!("{stage}.{}", option.name()))),
        None => Ok(()),
    }
}

/// Returns an option. Errors: 40414, naming the stage and the option, if it is absent.
pub(crate) fn required_option<'a>(stage: &str, options: Document<'a>, name: &str) -> Result<Value<'a>> {
    options.get(name).ok_or_else(|| Error::missing_field(format_args!("{stage}.{name}")))
}

/// Returns a string option.
///
/// Errors: FailedToParse, naming stage and option, for other types.
pub(crate) fn text_option<'a>(stage: &str, option: &Element<'a>) -> Result<&'a str> {
    option.value().as_str().ok_or_else(|| {
        err!(FailedToParse, "{stage} argument '{option}' must be a string, is type {}", option.kind().alias())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::bson::extended_json::parse;

    fn set(document: &str, path: &str, value: Option<Value<'_>>, expected: &str) {
        let document = parse(document).unwrap();
        assert_eq!(
            set_path(document.view(), &Path::new(FieldName::new(path).unwrap()), value),
            parse(expected).unwrap(),
            "{path}"
        );
    }

    #[test]
    fn sets_and_removes_at_paths() {
        set("{a: 1, b: 2}", "a", Some(Value::Int32(5)), "{a: 5, b: 2}");
        set("{a: 1, b: 2}", "a", None, "{b: 2}");
        set("{a: {x: 1, y: 2}}", "a.x", Some(Value::Null), "{a: {x: null, y: 2}}");
        set("{a: {x: 1, y: 2}}", "a.x", None, "{a: {y: 2}}");
        set("{a: 1}", "a.x", Some(Value::Null), "{a: {x: null}}");
        set("{a: 1}", "b.c", Some(Value::Null), "{a: 1, b: {c: null}}");
        set("{a: 1}", "b.c", None, "{a: 1}");
    }

    #[test]
    fn sets_several_fields_in_one_pass() {
        let document = parse("{a: 1, b: 2, c: 3, d: 4, b: 5}").unwrap();
        let (one, name) = (Some(Value::Int32(1).to_owned()), |name| FieldName::new(name).unwrap());
        let fields = [(name("x"), one.clone()), (name("b"), one), (name("y"), None), (name("c"), None)];
        let positions = (0..).zip(&fields).map(|(at, (name, _))| (name.bytes().into(), at)).collect();
        assert_eq!(
            set_fields(document.view(), &positions, &fields),
            parse("{a: 1, b: 1, d: 4, b: 5, x: 1}").unwrap()
        );
    }

    #[test]
    fn visits_values_through_arrays() {
        let seen = |document: &str, path: &str| {
            let document = parse(document).unwrap();
            let mut seen = Vec::new();
            visit_values(
                Value::Document(document.view()),
                Path::new(FieldName::new(path).unwrap()).components(),
                &mut |value| {
                    seen.push(value.to_string());
                },
            );
            seen.join(" ")
        };
        assert_eq!(seen("{a: [{b: 1}, {b: [2, 3]}, 4]}", "a.b"), "1 2 3");
        assert_eq!(seen("{a: 1}", "a"), "1");
        assert_eq!(seen("{a: [[1]]}", "a"), "[ 1 ]");
        assert_eq!(seen("{a: 1}", "b"), "");
        assert_eq!(seen("{a: [{b: 1}, {b: 2}]}", "a.1.b"), "2");
    }
}
