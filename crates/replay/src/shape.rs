//! What a request looks like without its values: requests of one shape are counted together.

use crate::message::Parts;
use base::bson::{Document, Value};
use std::fmt::Write as _;

/// Letters that a shape has at the most.
const LENGTH_MAX: usize = 100;

/// How deep a filter is shown.
const DEPTH_MAX: usize = 6;

/// The shape of a request: "find shop.orders {status, total: {$gt}} sort {total}".
pub(super) fn of(parts: &Parts<'_>) -> String {
    let command = parts.command();
    let mut text = command.to_string();
    let collection = match command {
        "getMore" => text_of(parts.body, "collection"),
        _ => parts.body.first().and_then(|element| element.value().as_str()),
    };
    if let Some(collection) = collection {
        let _ = write!(text, " {}.{collection}", text_of(parts.body, "$db").unwrap_or("?"));
    }
    for name in ["filter", "query", "q", "sort", "update"] {
        if let Some(document) = parts.body.get(name).and_then(|value| value.as_document())
            && !document.is_empty()
        {
            text += if matches!(name, "sort" | "update") { name_before(name) } else { " " };
            fields(document, 0, &mut text);
        }
    }
    statements(parts, &mut text);
    if let Some(stages) = parts.body.get("pipeline").and_then(|value| value.as_array()) {
        let names = stages.iter().filter_map(|stage| Some(stage.as_document()?.first()?.name()));
        let _ = write!(text, " [{}]", names.collect::<Vec<_>>().join(" "));
    }
    shortened(text)
}

fn name_before(name: &str) -> &'static str {
    if name == "sort" { " sort " } else { " update " }
}

/// What statements of updates and deletes look like: the first, and whether there are others.
fn statements(parts: &Parts<'_>, text: &mut String) {
    for name in ["updates", "deletes"] {
        let (first, count) = list(parts, name);
        let Some(first) = first else { continue };
        for part in ["q", "u"] {
            if let Some(document) = first.get(part).and_then(|value| value.as_document()) {
                text.push(' ');
                fields(document, 0, text);
            }
        }
        if count > 1 {
            text.push_str(" and others");
        }
    }
}

/// The first document of a list, wherever it stands, and how many there are.
fn list<'a>(parts: &Parts<'a>, name: &str) -> (Option<Document<'a>>, usize) {
    if let Some((_, list)) = parts.sequences.iter().find(|(known, _)| *known == name) {
        return (list.first().copied(), list.len());
    }
    let array = parts.body.get(name).and_then(|value| value.as_array());
    let first = array.and_then(|array| array.get(0)).and_then(|value| value.as_document());
    (first, array.map_or(0, |array| array.len().min(2)))
}

fn text_of<'a>(document: Document<'a>, name: &str) -> Option<&'a str> {
    document.get(name).and_then(|value| value.as_str())
}

/// The names of a document's fields, without their values, but with what is inside.
fn fields(document: Document<'_>, depth: usize, text: &mut String) {
    text.push('{');
    for (at, element) in document.iter().enumerate() {
        if at > 0 {
            text.push_str(", ");
        }
        text.push_str(element.name());
        let inner = match element.value() {
            Value::Document(inner) => Some(inner),
            // Alternatives look alike mostly.
            Value::Array(inner) => inner.get(0).and_then(|value| value.as_document()),
            _ => None,
        };
        if let Some(inner) = inner.filter(|inner| depth < DEPTH_MAX && !inner.is_empty()) {
            text.push_str(": ");
            fields(inner, depth + 1, text);
        }
        if text.len() > LENGTH_MAX {
            break;
        }
    }
    text.push('}');
}

fn shortened(text: String) -> String {
    if text.chars().count() <= LENGTH_MAX {
        return text;
    }
    text.chars().take(LENGTH_MAX - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::bson::extended_json::parse;

    #[test]
    fn shapes_have_names_and_no_values() {
        for (command, shape) in [
            (
                "{find: 'orders', filter: {status: 'new', total: {$gt: 5}}, sort: {total: 1}, $db: 'shop'}",
                "find shop.orders {status, total: {$gt}} sort {total}",
            ),
            (
                "{aggregate: 'orders', pipeline: [{$match: {a: 1}}, {$group: {_id: '$b'}}], $db: 'shop'}",
                "aggregate shop.orders [$match $group]",
            ),
            (
                "{update: 'orders', updates: [{q: {_id: 1}, u: {$set: {secret: 'x'}}}], $db: 'shop'}",
                "update shop.orders {_id} {$set: {secret}}",
            ),
            ("{delete: 'c', deletes: [{q: {}}, {q: {a: 1}}], $db: 'd'}", "delete d.c {} and others"),
            ("{getMore: NumberLong(5), collection: 'orders', $db: 'shop'}", "getMore shop.orders"),
            ("{ping: 1, $db: 'admin'}", "ping"),
            ("{find: 'c', filter: {$or: [{a: 1}, {b: 1}]}, $db: 'd'}", "find d.c {$or: {a}}"),
        ] {
            let body = parse(command).unwrap();
            assert_eq!(of(&Parts { body: body.view(), sequences: Vec::new() }), shape);
        }
    }

    #[test]
    fn long_shapes_are_cut() {
        let names: Vec<String> = (0..100).map(|at| format!("field{at}: 1")).collect();
        let body = parse(&format!("{{find: 'c', filter: {{{}}}, $db: 'd'}}", names.join(", "))).unwrap();
        let shape = of(&Parts { body: body.view(), sequences: Vec::new() });
        assert_eq!(shape.chars().count(), LENGTH_MAX);
    }
}
