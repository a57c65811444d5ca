//! Formats an expression as BSON, as MongoDB's explain prints it.

use super::node::{CallNode, FieldNode, Node};
use super::table::{Arity, Form};
use base::bson::{Builder, FieldName, FieldNameBuf, Value, ValueBuf};

/// Returns a value that parses to this node again.
pub(super) fn describe(node: &Node) -> ValueBuf {
    let mut builder = Builder::new();
    append(node, c"v".into(), &mut builder);
    let document = builder.finish();
    document.view().get("v").unwrap_or(Value::Null).to_owned()
}

/// Appends a node as an element. Absent arguments are omitted, and a missing constant is `$$REMOVE`.
fn append(node: &Node, name: FieldName<'_>, out: &mut Builder) {
    match node {
        Node::Absent => {}
        Node::Constant(None) => {
            out.append(name, "$$REMOVE");
        }
        Node::Constant(Some(value)) => {
            out.begin_document(name).append(c"$const", value).end();
        }
        Node::Field(field) => {
            out.append(name, &field_text(field));
        }
        Node::Object(fields) => {
            out.begin_document(name);
            fields.iter().for_each(|(name, node)| append(node, name.view(), out));
            out.end();
        }
        Node::Array(nodes) => append_array(nodes, name, out),
        Node::Call(call) => append_call(call, name, out),
    }
}

fn append_array(nodes: &[Node], name: FieldName<'_>, out: &mut Builder) {
    out.begin_array(name);
    for (index, node) in nodes.iter().enumerate() {
        append(node, FieldNameBuf::of_number(index).view(), out);
    }
    out.end();
}

/// Appends a call in the form that its operator parses.
fn append_call(call: &CallNode, name: FieldName<'_>, out: &mut Builder) {
    let operator = call.operator;
    let operator_name = FieldName::literal(operator.name);
    out.begin_document(name);
    match (operator.arity, &operator.form) {
        (Arity::Named(declared), _) => {
            append_named(declared.parameters.iter().map(|parameter| parameter.name), call, out);
        }
        (_, Form::Named(names)) => append_named(names.iter().copied(), call, out),
        (_, Form::Own(describe)) => describe(call, operator_name, out, &append),
        (_, Form::Positional) => append_array(&call.operands, operator_name, out),
    }
    out.end();
}

/// Appends a call with names for its operands.
fn append_named(names: impl Iterator<Item = &'static str>, call: &CallNode, out: &mut Builder) {
    out.begin_document(FieldName::literal(call.operator.name));
    for (name, node) in names.zip(&call.operands) {
        append(node, FieldName::literal(name), out);
    }
    out.end();
}

fn field_text(field: &FieldNode) -> String {
    match (&*field.name, &field.path) {
        ("", Some(path)) => format!("${path}"),
        (name, Some(path)) => format!("$${name}.{path}"),
        (name, None) => format!("$${name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_described, parse};

    #[test]
    fn descriptions_parse_to_equal_expressions() {
        check_described("{$add: ['$a.b', 1]}", "{$add: ['$a.b', {$const: 1}]}");
        check_described("{x: ['$$ROOT', '$$NOW']}", "{x: ['$$ROOT', '$$NOW']}");
        check_described(
            "{$let: {vars: {y: '$b'}, in: {$and: ['$$y', '$$y.z']}}}",
            "{$let: {vars: {y: '$b'}, in: {$and: ['$$y', '$$y.z']}}}",
        );
        assert!(parse("{$add: [1, 2]}").is_constant());
    }
}
