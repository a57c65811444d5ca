//! Documents formatted for people: short ones on one line, long ones with one field per line.

use base::bson::extended_json::value_to_shell;
use base::bson::{Builder, DocumentBuf, FieldName, Value};

/// Maximum line length.
const WIDTH: usize = 110;

/// Returns the value in the shell's form, on several lines if it is long.
pub(crate) fn pretty(value: Value<'_>) -> String {
    let mut out = String::new();
    lay_out(value, 0, 0, &mut out);
    out
}

/// `used` is the length of the line before the value.
fn lay_out(value: Value<'_>, indent: usize, used: usize, out: &mut String) {
    let line = value_to_shell(value);
    let (open, close, fields) = match value {
        Value::Document(document) => {
            let fields = document.iter().map(|e| (format!("{}: ", field_name(e.name())), e.value()));
            ('{', '}', fields.collect::<Vec<_>>())
        }
        Value::Array(array) => ('[', ']', array.iter().map(|v| (String::new(), v)).collect()),
        _ => return out.push_str(&line),
    };
    if indent + used + line.len() <= WIDTH || fields.is_empty() {
        return out.push_str(&line);
    }
    out.push(open);
    let inner = indent + 2;
    for (at, (name, value)) in fields.iter().enumerate() {
        out.push_str(if at == 0 { "\n" } else { ",\n" });
        out.push_str(&" ".repeat(inner));
        out.push_str(name);
        lay_out(*value, inner, name.len() + 1, out);
    }
    out.push('\n');
    out.push_str(&" ".repeat(indent));
    out.push(close);
}

/// Returns a field's name in the shell's form.
fn field_name(name: &str) -> String {
    let mut holder = Builder::new();
    holder.append(FieldName::trusted(name), 1i32);
    let text = value_to_shell(Value::Document(holder.finish().view()));
    text.strip_prefix('{').and_then(|t| t.strip_suffix(": 1}")).unwrap_or(name).to_string()
}

/// Returns a copy of a document. `change` gets the name and value of every field at every depth and returns the
/// replacement: `None` removes the field, `Some(None)` keeps it and visits its contents.
pub(crate) fn rewrite(
    document: base::bson::Document<'_>,
    change: &mut dyn FnMut(&str, Value<'_>) -> Option<Option<base::bson::ValueBuf>>,
) -> DocumentBuf {
    let mut out = Builder::new();
    rewrite_fields(document, false, change, &mut out);
    out.finish()
}

fn rewrite_fields(
    document: base::bson::Document<'_>,
    is_array: bool,
    change: &mut dyn FnMut(&str, Value<'_>) -> Option<Option<base::bson::ValueBuf>>,
    out: &mut Builder,
) {
    for element in document {
        let (name, value) = (element.field_name(), element.value());
        match (change(if is_array { "" } else { name.as_str() }, value), value) {
            (None, _) => {}
            (Some(Some(changed)), _) if is_array => {
                out.push(&changed);
            }
            (Some(Some(changed)), _) => {
                out.append(name, &changed);
            }
            (Some(None), Value::Document(inner)) => {
                if is_array {
                    out.push_document()
                } else {
                    out.begin_document(name)
                };
                rewrite_fields(inner, false, change, out);
                out.end();
            }
            (Some(None), Value::Array(inner)) => {
                if is_array {
                    out.push_array()
                } else {
                    out.begin_array(name)
                };
                rewrite_fields(inner.as_document(), true, change, out);
                out.end();
            }
            (Some(None), _) if is_array => {
                out.push(value);
            }
            (Some(None), _) => {
                out.append_element(&element);
            }
        }
    }
}

#[test]
fn long_documents_break_at_their_fields() {
    let text = format!("{{ok: 1, 'a b': [{{x: '{}'}}, {{y: '{}'}}]}}", "x".repeat(60), "y".repeat(60));
    let document = base::bson::extended_json::parse(&text).unwrap();
    let lines = pretty(Value::Document(document.view()));
    assert_eq!(lines.lines().count(), 7, "{lines}");
    assert_eq!(base::bson::extended_json::parse(&lines).unwrap(), document);
}
