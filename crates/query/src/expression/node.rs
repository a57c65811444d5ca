//! The tree an expression is parsed into: five kinds of nodes, whatever the operator.

use super::table::Operator;
use base::bson::{FieldNameBuf, Path, ValueBuf};

/// One node of a parsed expression.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    /// An optional named argument that was not given.
    Absent,
    /// The same value for every document; `None` is missing.
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

/// A variable (or the document itself) and possibly a path into it.
#[derive(Clone, Debug)]
pub(crate) struct FieldNode {
    pub(crate) source: Source,
    pub(crate) path: Option<Path>,
    /// The name of the variable as written, for explain; empty for plain `"$a"`.
    pub(crate) name: Box<str>,
}

/// Where a path starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// The document: plain paths, `$$ROOT` and `$$CURRENT`.
    Root,
    /// A variable bound within the expression, by its slot.
    Slot(usize),
    /// A variable of the command's `let`, by its position in the context.
    Let(usize),
    /// `$$NOW`.
    Now,
    /// `$$CLUSTER_TIME`.
    ClusterTime,
}

/// An operator with its operands, which the operator evaluates itself.
#[derive(Clone, Debug)]
pub(crate) struct CallNode {
    pub(crate) operator: &'static Operator,
    /// Positional arguments as given; named ones in the order the operator declares, with
    /// [`Node::Absent`] where not given.
    pub(crate) operands: Vec<Node>,
    /// The variables that the call binds while it evaluates some of its operands.
    pub(crate) bindings: Bindings,
}

/// Variables bound by `$let`, `$map`, `$filter`, `$reduce`: neighbours in the slots from `first`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bindings {
    pub(crate) first: usize,
    pub(crate) names: Vec<Box<str>>,
}

impl Node {
    /// A call that binds no variables.
    pub(crate) fn call(operator: &'static Operator, operands: Vec<Node>) -> Node {
        Node::Call(CallNode { operator, operands, bindings: Bindings::default() })
    }

    /// Whether the value is known without a document.
    pub(crate) fn is_constant(&self) -> bool {
        matches!(self, Node::Constant(_) | Node::Absent)
    }

    /// The nodes directly below.
    pub(crate) fn children(&self) -> Box<dyn Iterator<Item = &Node> + '_> {
        match self {
            Node::Absent | Node::Constant(_) | Node::Field(_) => Box::new(std::iter::empty()),
            Node::Object(fields) => Box::new(fields.iter().map(|(_, node)| node)),
            Node::Array(nodes) => Box::new(nodes.iter()),
            Node::Call(call) => Box::new(call.operands.iter()),
        }
    }

    /// The nodes directly below, to be changed.
    pub(crate) fn children_mut(&mut self) -> Box<dyn Iterator<Item = &mut Node> + '_> {
        match self {
            Node::Absent | Node::Constant(_) | Node::Field(_) => Box::new(std::iter::empty()),
            Node::Object(fields) => Box::new(fields.iter_mut().map(|(_, node)| node)),
            Node::Array(nodes) => Box::new(nodes.iter_mut()),
            Node::Call(call) => Box::new(call.operands.iter_mut()),
        }
    }
}
