//! The tree of a parsed expression: a few kinds of nodes for all operators. The tree shows the paths that it reads, and
//! its form as BSON, which MongoDB's explain prints.

use super::members::Members;
use super::table::{Arity, Form, Operator};
use base::bson::{Builder, FieldName, FieldNameBuf, Path, Value, ValueBuf};
use std::sync::Arc;

/// One node of a parsed expression.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    /// An optional named argument that is absent.
    Absent,
    /// A constant; `None` means missing.
    Constant(Option<ValueBuf>),
    /// `"$a.b"`, `"$$name"`, `"$$name.a.b"`.
    Field(FieldNode),
    /// `{a: …, b: …}`.
    Object(Vec<(FieldNameBuf, Node)>),
    /// `[…, …]`.
    Array(Vec<Node>),
    /// `{$operator: …}`.
    Call(CallNode),
}

/// A variable, or the document itself, with an optional path into it.
#[derive(Clone, Debug)]
pub(crate) struct FieldNode {
    pub(crate) source: Source,
    pub(crate) path: Option<Path>,
    /// The variable's name as written, for explain; empty for plain `"$a"`.
    pub(crate) name: Box<str>,
}

/// The start of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// The document: plain paths, `$$ROOT` and `$$CURRENT`.
    Root,
    /// `$$ROOT` in `$redact`, where plain paths read a part of the document.
    Whole,
    /// A variable bound within the expression, by slot.
    Slot(usize),
    /// A variable of the command's `let`, by its position in the context.
    Let(usize),
    /// `$$NOW`.
    Now,
    /// `$$CLUSTER_TIME`.
    ClusterTime,
    /// `$$USER_ROLES`.
    UserRoles,
}

/// An operator with its operands, which the operator itself evaluates.
#[derive(Clone, Debug)]
pub(crate) struct CallNode {
    pub(crate) operator: &'static Operator,
    /// Positional arguments as given. Named arguments are in the operator's order, with [`Node::Absent`] for absent
    /// ones.
    pub(crate) operands: Vec<Node>,
    /// The variables that the call binds while it evaluates some operands.
    pub(crate) bindings: Bindings,
    /// The sorted elements of the second operand, if the operator searches a long constant array. The boundaries of a
    /// `$switch` over ranges.
    pub(crate) members: Option<Arc<Members>>,
}

/// Variables bound by `$let`, `$map`, `$filter`, `$reduce`: consecutive slots from `first`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bindings {
    pub(crate) first: usize,
    pub(crate) names: Vec<Box<str>>,
}

impl Node {
    /// Builds a call without bindings.
    pub(crate) fn call(operator: &'static Operator, operands: Vec<Node>) -> Node {
        Node::Call(CallNode { operator, operands, bindings: Bindings::default(), members: None })
    }

    /// Whether the value is known without a document.
    pub(crate) fn is_constant(&self) -> bool {
        matches!(self, Node::Constant(_) | Node::Absent)
    }

    /// Iterates over the direct children.
    pub(crate) fn children(&self) -> Box<dyn Iterator<Item = &Node> + '_> {
        match self {
            Node::Absent | Node::Constant(_) | Node::Field(_) => Box::new(std::iter::empty()),
            Node::Object(fields) => Box::new(fields.iter().map(|(_, node)| node)),
            Node::Array(nodes) => Box::new(nodes.iter()),
            Node::Call(call) => Box::new(call.operands.iter()),
        }
    }

    /// Iterates mutably over the direct children.
    pub(crate) fn children_mut(&mut self) -> Box<dyn Iterator<Item = &mut Node> + '_> {
        match self {
            Node::Absent | Node::Constant(_) | Node::Field(_) => Box::new(std::iter::empty()),
            Node::Object(fields) => Box::new(fields.iter_mut().map(|(_, node)| node)),
            Node::Array(nodes) => Box::new(nodes.iter_mut()),
            Node::Call(call) => Box::new(call.operands.iter_mut()),
        }
    }
}

/// The paths that an expression reads, or the whole document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dependencies {
    /// Only these paths.
    Paths(Vec<Path>),
    /// Possibly anything (`$$ROOT`).
    Whole,
}

/// Collects the paths below `node`.
pub(super) fn dependencies(node: &Node) -> Dependencies {
    let mut paths = Vec::new();
    if collect_paths(node, &mut paths) { Dependencies::Paths(paths) } else { Dependencies::Whole }
}

/// Collects paths; returns false if the whole document is read.
fn collect_paths(node: &Node, paths: &mut Vec<Path>) -> bool {
    if let Node::Field(field) = node
        && field.source == Source::Whole
    {
        return false;
    }
    if let Node::Field(field) = node
        && field.source == Source::Root
    {
        let Some(path) = &field.path else { return false };
        if !paths.contains(path) {
            paths.push(path.clone());
        }
    }
    node.children().all(|child| collect_paths(child, paths))
}

/// Returns a value that parses to this node again.
pub(super) fn describe(node: &Node) -> ValueBuf {
    let mut builder = Builder::new();
    append(node, c"v".into(), &mut builder);
    let document = builder.finish();
    document.view().get("v").unwrap_or(Value::Null).to_owned()
}

/// Appends a node as an element. Absent arguments are omitted, and a missing constant is `$$REMOVE`.
pub(super) fn append(node: &Node, name: FieldName<'_>, out: &mut Builder) {
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
        (_, Form::Own(describe)) => describe(call, operator_name, out),
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
    use super::*;

    #[test]
    fn paths_are_listed_once() {
        let expression = parse("{$add: ['$a.b', '$c', {$let: {vars: {x: '$a.b'}, in: '$$x.d'}}]}");
        let expected = vec![Path::new(c"a.b"), Path::new(c"c")];
        assert_eq!(expression.dependencies(), Dependencies::Paths(expected));
        assert_eq!(parse("{$add: ['$a', '$$ROOT.b']}").dependencies(), {
            Dependencies::Paths(vec![Path::new(c"a"), Path::new(c"b")])
        });
        assert_eq!(parse("['$$ROOT']").dependencies(), Dependencies::Whole);
    }

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
