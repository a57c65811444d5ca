//! The shape of a query: a `find`, `distinct` or `aggregate` command without its constants.
//!
//! MongoDB keeps query settings by shape. Each constant becomes a placeholder with its type, such as `"?number"`.
//! Paths, operators, sort orders and the names of collections remain. Fields that do not change the result, such as
//! `batchSize` and `hint`, are left out.

use base::bson::{Array, Builder, Document, DocumentBuf, Element, FieldName, Value};

/// Fields of `find` whose presence or value is a part of its shape, in the order of the shape.
const FIND: [(&str, Part); 13] = [
    ("filter", Part::Filter),
    ("projection", Part::Expression),
    ("sort", Part::Verbatim),
    ("limit", Part::Constant),
    ("skip", Part::Constant),
    ("min", Part::Constants),
    ("max", Part::Constants),
    ("collation", Part::Verbatim),
    ("let", Part::Expression),
    ("returnKey", Part::Verbatim),
    ("showRecordId", Part::Verbatim),
    ("singleBatch", Part::Verbatim),
    ("tailable", Part::Verbatim),
];
const DISTINCT: [(&str, Part); 3] =
    [("key", Part::Verbatim), ("query", Part::Filter), ("collation", Part::Verbatim)];
const AGGREGATE: [(&str, Part); 3] =
    [("pipeline", Part::Pipeline), ("collation", Part::Verbatim), ("let", Part::Expression)];

/// Fields of stages that name collections, fields or modes. Their strings are no constants.
const NAMES: [&str; 16] = [
    "as",
    "coll",
    "connectFromField",
    "connectToField",
    "db",
    "depthField",
    "distanceField",
    "foreignField",
    "from",
    "includeArrayIndex",
    "into",
    "key",
    "localField",
    "path",
    "unit",
    "whenMatched",
];

/// How a field enters the shape.
#[derive(Clone, Copy)]
enum Part {
    Filter,
    Expression,
    Pipeline,
    /// As it is.
    Verbatim,
    /// As a placeholder.
    Constant,
    /// A document of constants.
    Constants,
}

/// The shape of a command on a database: the namespace, the command's name and its parts. Returns `None` for commands
/// without a shape.
pub fn of_command(database: &str, command: Document<'_>) -> Option<DocumentBuf> {
    let first = command.first()?;
    let parts: &[(&str, Part)] = match first.name() {
        "find" => &FIND,
        "distinct" => &DISTINCT,
        "aggregate" => &AGGREGATE,
        _ => return None,
    };
    let mut out = Builder::new();
    out.begin_document(c"cmdNs").append(c"db", database);
    out.append(c"coll", first.value().as_str().unwrap_or("$cmd.aggregate")).end();
    out.append(c"command", first.name());
    for (name, part) in parts {
        if let Some(value) = command.get(name).filter(|value| !value.is_nullish()) {
            append(&mut out, FieldName::literal(name), value, *part);
        }
    }
    Some(out.finish())
}

fn append(out: &mut Builder, name: FieldName<'_>, value: Value<'_>, part: Part) {
    match (part, value) {
        (Part::Filter, Value::Document(filter)) => append_filter(out, name, filter),
        (Part::Pipeline, Value::Array(stages)) => append_pipeline(out, name, stages),
        (Part::Constants, Value::Document(bounds)) => {
            out.begin_document(name);
            bounds.iter().for_each(|bound| append_constant(out, bound.field_name(), bound.value()));
            out.end();
        }
        (Part::Verbatim, value) => _ = out.append(name, value),
        (Part::Expression, value) => append_expression(out, name, value),
        (_, value) => append_constant(out, name, value),
    }
}

/// A filter. Several conditions become an `$and`, as if it had been written.
fn append_filter(out: &mut Builder, name: FieldName<'_>, filter: Document<'_>) {
    out.begin_document(name);
    match filter.iter().nth(1) {
        None => filter.iter().for_each(|condition| append_condition(out, &condition)),
        Some(_) => {
            out.begin_array(c"$and");
            for condition in filter {
                out.push_document();
                append_condition(out, &condition);
                out.end();
            }
            out.end();
        }
    }
    out.end();
}

/// Bounded by the nesting of documents.
fn append_condition(out: &mut Builder, condition: &Element<'_>) {
    let name = condition.field_name();
    match (condition.name(), condition.value()) {
        ("$and" | "$or" | "$nor", Value::Array(branches)) => {
            out.begin_array(name);
            for branch in branches.iter().filter_map(|branch| branch.as_document()) {
                out.push_document();
                branch.iter().for_each(|condition| append_condition(out, &condition));
                out.end();
            }
            out.end();
        }
        ("$expr", expression) => append_expression(out, name, expression),
        ("$comment", _) => {}
        (path, value) if path.starts_with('$') => append_constant(out, name, value),
        (_, Value::Document(operators)) if is_operator(operators) => {
            out.begin_document(name);
            operators.iter().for_each(|operator| append_operator(out, &operator));
            out.end();
        }
        (_, Value::Regex { .. }) => {
            out.begin_document(name).append(c"$regex", "?string").end();
        }
        (_, value) => {
            out.begin_document(name);
            append_constant(out, FieldName::literal("$eq"), value);
            out.end();
        }
    }
}

fn append_operator(out: &mut Builder, operator: &Element<'_>) {
    let name = operator.field_name();
    match (operator.name(), operator.value()) {
        ("$not", Value::Document(operators)) => {
            out.begin_document(name);
            operators.iter().for_each(|operator| append_operator(out, &operator));
            out.end();
        }
        ("$elemMatch", Value::Document(inner)) if is_operator(inner) => {
            out.begin_document(name);
            inner.iter().for_each(|operator| append_operator(out, &operator));
            out.end();
        }
        ("$elemMatch", Value::Document(inner)) => append_filter(out, name, inner),
        (_, value) => append_constant(out, name, value),
    }
}

fn is_operator(document: Document<'_>) -> bool {
    let names_operator = |name: &str| name.starts_with('$') && !matches!(name, "$ref" | "$id" | "$db");
    document.first().is_some_and(|first| names_operator(first.name()))
}

fn append_pipeline(out: &mut Builder, name: FieldName<'_>, stages: Array<'_>) {
    out.begin_array(name);
    for stage in stages.iter().filter_map(|stage| stage.as_document()) {
        out.push_document();
        for spec in stage {
            match (spec.name(), spec.value()) {
                ("$match", Value::Document(filter)) => append_filter(out, spec.field_name(), filter),
                ("$sort" | "$unset" | "$unwind" | "$count", value) => {
                    _ = out.append(spec.field_name(), value)
                }
                ("$facet", Value::Document(facets)) => {
                    out.begin_document(spec.field_name());
                    facets.iter().for_each(|facet| {
                        append(out, facet.field_name(), facet.value(), Part::Pipeline);
                    });
                    out.end();
                }
                (_, value) => append_expression(out, spec.field_name(), value),
            }
        }
        out.end();
    }
    out.end();
}

/// An expression, or the specification of a stage. Strings remain if they are paths, variables or names; booleans
/// remain, since projections consist of them. Bounded by the nesting of documents.
fn append_expression(out: &mut Builder, name: FieldName<'_>, value: Value<'_>) {
    let names = |text: &str| text.starts_with('$') || NAMES.contains(&name.as_str());
    match value {
        Value::Array(stages) if name.as_str() == "pipeline" => append_pipeline(out, name, stages),
        Value::Document(fields) if name.as_str() != "$literal" => {
            out.begin_document(name);
            fields.iter().for_each(|field| append_expression(out, field.field_name(), field.value()));
            out.end();
        }
        Value::Array(parts) if parts.iter().any(is_compound) => {
            out.begin_array(name);
            parts.elements().for_each(|part| append_expression(out, part.field_name(), part.value()));
            out.end();
        }
        Value::String(text) if names(text) => _ = out.append(name, text),
        Value::Boolean(flag) => _ = out.append(name, flag),
        other => append_constant(out, name, other),
    }
}

/// Whether an element of an array is more than a constant.
fn is_compound(value: Value<'_>) -> bool {
    match value {
        Value::Document(_) | Value::Array(_) => true,
        Value::String(text) => text.starts_with('$'),
        _ => false,
    }
}

fn append_constant(out: &mut Builder, name: FieldName<'_>, value: Value<'_>) {
    out.append(name, placeholder(value).as_str());
}

/// The name of a constant's type behind a question mark. Arrays name the type of their elements if all have the same.
fn placeholder(value: Value<'_>) -> String {
    let Value::Array(elements) = value else {
        let name = match value {
            value if value.as_number().is_some() => "number",
            other => other.kind().alias(),
        };
        return format!("?{name}");
    };
    let mut kinds: Vec<String> = elements.iter().map(placeholder).collect();
    kinds.dedup();
    match kinds.as_slice() {
        [] => "[]".to_string(),
        [kind] => format!("?array<{kind}>"),
        _ => "?array<>".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::bson::extended_json::parse;

    fn shape(command: &str) -> String {
        let command = parse(command).unwrap();
        of_command("d", command.view()).unwrap().view().to_string()
    }

    #[test]
    fn constants_are_no_part_of_a_shape() {
        let same = |a: &str, b: &str| assert_eq!(shape(a), shape(b));
        let other = |a: &str, b: &str| assert_ne!(shape(a), shape(b));
        same(
            "{find: 'c', filter: {a: 1}}",
            "{find: 'c', filter: {a: {$eq: 2.5}}, batchSize: 3, hint: 'a_1'}",
        );
        same("{find: 'c', limit: 1, filter: {a: [1, 2]}}", "{find: 'c', filter: {a: [3]}, limit: 9}");
        same("{find: 'c', filter: {a: 1, b: 'x'}}", "{find: 'c', filter: {$and: [{a: 2}, {b: 'y'}]}}");
        other("{find: 'c', filter: {a: 1}}", "{find: 'c', filter: {a: 'x'}}");
        other("{find: 'c', filter: {a: 1}}", "{find: 'c', filter: {b: 1}}");
        other("{find: 'c', filter: {a: 1}}", "{find: 'd', filter: {a: 1}}");
        other("{find: 'c', sort: {a: 1}}", "{find: 'c', sort: {a: -1}}");
        other("{find: 'c'}", "{find: 'c', limit: 1}");
        other("{distinct: 'c', key: 'a'}", "{distinct: 'c', key: 'b'}");
        same(
            "{aggregate: 'c', pipeline: [{$match: {a: 1}}, {$group: {_id: '$a', n: {$sum: 1}}}], cursor: {}}",
            "{aggregate: 'c', pipeline: [{$match: {a: 2}}, {$group: {_id: '$a', n: {$sum: 5}}}]}",
        );
        other(
            "{aggregate: 'c', pipeline: [{$group: {_id: '$a'}}]}",
            "{aggregate: 'c', pipeline: [{$group: {_id: '$b'}}]}",
        );
        other(
            "{aggregate: 'c', pipeline: [{$lookup: {from: 'd', as: 'x', pipeline: [{$match: {a: 1}}]}}]}",
            "{aggregate: 'c', pipeline: [{$lookup: {from: 'd', as: 'x', pipeline: [{$match: {b: 1}}]}}]}",
        );
        assert!(of_command("d", parse("{count: 'c'}").unwrap().view()).is_none());
    }

    #[test]
    fn constants_become_placeholders() {
        let text =
            "{find: 'c', filter: {a: {$in: [1, 2]}, $or: [{b: /x/}, {c: null}]}, sort: {a: -1}, skip: 3}";
        let expected = "{cmdNs: {db: 'd', coll: 'c'}, command: 'find', filter: {$and: [{a: {$in: '?array<?number>'}}, \
                        {$or: [{b: {$regex: '?string'}}, {c: {$eq: '?null'}}]}]}, sort: {a: -1}, skip: '?number'}";
        assert_eq!(shape(text), parse(expected).unwrap().view().to_string());
    }
}
