//! Normalises the tree: different spellings of a filter become one shape, which simplifies the planner. Evaluation
//! returns equal results before and after.

use super::comparison::{Comparison, ComparisonOp};
use super::integer::BitsOp;
use super::membership::In;
use super::node::{Node, Predicate};
use crate::Context;
use base::Result;
use base::bson::{Path, Type, ValueBuf};
use std::cmp::Ordering;

/// Normalises a tree, children first. [`node`](super::node) describes the result.
pub(super) fn normalise(node: Node, context: &Context) -> Result<Node> {
    Ok(match node {
        Node::And(children) => and(normalise_all(children, context)?.into_iter()),
        Node::Or(children) => or(normalise_all(children, context)?, context)?,
        Node::Nor(children) => nor(normalise_all(children, context)?),
        Node::Not(child) => not(normalise(*child, context)?),
        Node::Field { path, predicate } => field(path, predicate, context)?,
        other => other,
    })
}

/// Normalises the children of a group, with interruption checks.
fn normalise_all(children: Vec<Node>, context: &Context) -> Result<Vec<Node>> {
    let each = |(position, child)| {
        // A filter may have a million conditions.
        if position % 1024 == 1023 {
            context.interrupt.check()?;
        }
        normalise(child, context)
    };
    children.into_iter().enumerate().map(each).collect()
}

/// Builds a conjunction: flattens nested `$and` and evaluates constants.
/// Returns the conjunction of normalised trees.
pub(super) fn and(children: impl ExactSizeIterator<Item = Node>) -> Node {
    let mut flat = Vec::with_capacity(children.len());
    for child in children {
        match child {
            Node::And(inner) => flat.extend(inner),
            Node::AlwaysTrue => {}
            Node::AlwaysFalse => return Node::AlwaysFalse,
            other => flat.push(other),
        }
    }
    single_or(flat, Node::And)
}

/// Builds a disjunction: flattens nested `$or`, evaluates constants, and turns equalities of one path into `$in`.
fn or(children: Vec<Node>, context: &Context) -> Result<Node> {
    let mut flat = Vec::with_capacity(children.len());
    for child in children {
        match child {
            Node::Or(inner) => flat.extend(inner),
            Node::AlwaysFalse => {}
            always if is_always(&always) => return Ok(Node::AlwaysTrue),
            other => flat.push(other),
        }
    }
    if flat.is_empty() {
        return Ok(Node::AlwaysFalse);
    }
    if let Some(path) = equalities_of_one_path(&flat) {
        return to_in(path, flat, context);
    }
    Ok(single_or(flat, Node::Or))
}

/// Builds a negated disjunction: evaluates constants and sorts the children.
fn nor(mut children: Vec<Node>) -> Node {
    if children.iter().any(is_always) {
        return Node::AlwaysFalse;
    }
    children.retain(|child| !matches!(child, Node::AlwaysFalse));
    if children.is_empty() {
        return Node::AlwaysTrue;
    }
    children.sort_by(order);
    Node::Nor(children)
}

/// Whether every document matches a normalised tree, as with an empty filter.
fn is_always(node: &Node) -> bool {
    match node {
        Node::AlwaysTrue => true,
        Node::And(children) => children.is_empty(),
        _ => false,
    }
}

/// Returns the children in canonical order as a group, or a single child itself.
fn single_or(mut children: Vec<Node>, group: fn(Vec<Node>) -> Node) -> Node {
    match children.len() {
        1 => children.swap_remove(0),
        _ => {
            children.sort_by(order);
            group(children)
        }
    }
}

/// Returns the path if all of two or more children are equalities or patterns of this path.
fn equalities_of_one_path(children: &[Node]) -> Option<Path> {
    let Some(Node::Field { path: first, .. }) = children.first() else { return None };
    let fits = |child: &Node| match child {
        Node::Field { path, predicate } if path == first => match predicate {
            // A regex in an $in would be a pattern, not a value.
            Predicate::Compare(c) => c.op == ComparisonOp::Eq && c.operand.kind() != Type::Regex,
            Predicate::In(_) | Predicate::Regex(_) => true,
            _ => false,
        },
        _ => false,
    };
    (children.len() > 1 && children.iter().all(fits)).then(|| first.clone())
}

/// Merges equalities and patterns of one path into an `$in`.
fn to_in(path: Path, children: Vec<Node>, context: &Context) -> Result<Node> {
    let (mut values, mut regexes) = (Vec::<ValueBuf>::new(), Vec::new());
    for child in children {
        let Node::Field { predicate, .. } = child else { continue };
        match predicate {
            Predicate::Compare(comparison) => values.push(comparison.operand),
            Predicate::In(inner) => {
                values.extend(inner.values);
                regexes.extend(inner.regexes);
            }
            Predicate::Regex(regex) => regexes.push(regex),
            _ => {}
        }
    }
    field(path, Predicate::In(In::new(values, regexes, context)?), context)
}

fn not(child: Node) -> Node {
    match child {
        Node::Not(inner) => *inner,
        Node::AlwaysTrue => Node::AlwaysFalse,
        Node::AlwaysFalse => Node::AlwaysTrue,
        other => Node::Not(Box::new(other)),
    }
}

/// Builds a condition on a path: an `$in` of one value becomes an equality, an empty `$in` matches nothing.
fn field(path: Path, predicate: Predicate, context: &Context) -> Result<Node> {
    let predicate = match predicate {
        Predicate::In(mut within) => match (within.values.len(), within.regexes.len()) {
            (0, 0) => return Ok(Node::AlwaysFalse),
            (1, 0) => {
                let value = within.values.swap_remove(0);
                Predicate::Compare(Comparison::new(ComparisonOp::Eq, value.view(), &path)?)
            }
            (0, 1) => Predicate::Regex(within.regexes.swap_remove(0)),
            _ => Predicate::In(within),
        },
        Predicate::ElemMatchObject(inner) => match normalise(*inner, context)? {
            Node::AlwaysFalse => return Ok(Node::AlwaysFalse),
            inner => Predicate::ElemMatchObject(Box::new(inner)),
        },
        Predicate::ElemMatchValue(inner) => match normalise(*inner, context)? {
            Node::AlwaysFalse => return Ok(Node::AlwaysFalse),
            inner => Predicate::ElemMatchValue(Box::new(inner)),
        },
        other => other,
    };
    Ok(Node::Field { path, predicate })
}

/// Compares siblings in MongoDB's canonical order: by kind of condition, by path, by children. Explain prints this
/// order. The positional operator depends on it, because the last condition that found a position wins.
fn order(a: &Node, b: &Node) -> Ordering {
    rank(a)
        .cmp(&rank(b))
        .then_with(|| own_path(a).cmp(own_path(b)))
        .then_with(|| order_children(inner_nodes(a), inner_nodes(b)))
}

fn order_children(a: &[Node], b: &[Node]) -> Ordering {
    let pairs = a.iter().zip(b).map(|(a, b)| order(a, b));
    pairs.fold(Ordering::Equal, Ordering::then).then(a.len().cmp(&b.len()))
}

fn own_path(node: &Node) -> &str {
    if let Node::Field { path, .. } = node { path.as_str() } else { "" }
}

/// Returns the children that decide the order of equal ranks, including the content of `$elemMatch`.
fn inner_nodes(node: &Node) -> &[Node] {
    match node {
        Node::Field { predicate: Predicate::ElemMatchObject(inner), .. } => std::slice::from_ref(inner),
        Node::Field { predicate: Predicate::ElemMatchValue(inner), .. } => match &**inner {
            Node::And(children) => children,
            single => std::slice::from_ref(single),
        },
        other => other.children(),
    }
}

/// The rank of a condition in MongoDB's canonical order.
fn rank(node: &Node) -> u8 {
    match node {
        Node::And(_) => 0,
        Node::Or(_) => 1,
        Node::Field { predicate, .. } => predicate_rank(predicate),
        Node::Not(_) => 18,
        Node::Nor(_) => 19,
        Node::Expr(_) => 22,
        Node::AlwaysFalse => 23,
        Node::AlwaysTrue => 24,
        Node::Schema(_) => 26,
        Node::SampleRate(_) => 27,
        Node::Text(_) => 28,
    }
}

/// The rank of a predicate in MongoDB's canonical order.
fn predicate_rank(predicate: &Predicate) -> u8 {
    match predicate {
        Predicate::ElemMatchObject(_) => 2,
        Predicate::ElemMatchValue(_) => 3,
        Predicate::Size(_) => 4,
        Predicate::Compare(comparison) => match comparison.op {
            ComparisonOp::Eq => 5,
            ComparisonOp::Lte => 6,
            ComparisonOp::Lt => 7,
            ComparisonOp::Gt => 8,
            ComparisonOp::Gte => 9,
        },
        Predicate::Regex(_) => 10,
        Predicate::Mod(_) => 11,
        Predicate::Exists => 12,
        Predicate::In(_) => 13,
        Predicate::Bits(bits) => match bits.op {
            BitsOp::AllSet => 14,
            BitsOp::AllClear => 15,
            BitsOp::AnySet => 16,
            BitsOp::AnyClear => 17,
        },
        Predicate::Type(_) => 20,
        Predicate::Geo(_) => 21,
        Predicate::Near(_) => 25,
    }
}
