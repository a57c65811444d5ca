//! The tree of a parsed expression: a few kinds of nodes for all operators.

use super::members::Members;
use super::table::Operator;
use base::bson::{FieldNameBuf, Path, ValueBuf};
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
