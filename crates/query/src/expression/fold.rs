//! Constant folding while an expression is parsed.
//!
//! As in MongoDB, the whole expression is parsed before any part is computed. Any malformed part is therefore reported
//! before an error of a constant.

use super::evaluate::{Call, Scope};
use super::logic::truthy;
use super::members::Members;
use super::node::{FieldNode, Node, Source};
use crate::{Arena, Context};
use base::Result;
use base::bson::{Document, Value, ValueBuf};
use std::sync::Arc;

/// Replaces constant nodes by their values, from the leaves up. A failing node stays unchanged if the context defers
/// errors of constants.
pub(super) fn fold(node: &mut Node, context: &Context) -> Result<()> {
    fold_operands(node, context)?;
    let foldable = match &*node {
        Node::Absent | Node::Constant(_) => false,
        // A variable of the command's `let` is constant.
        Node::Field(FieldNode { source: Source::Let(position), .. }) => {
            context.variables.get(*position).is_some_and(|(_, value)| value.is_some())
        }
        Node::Field(_) => false,
        Node::Call(call) if !call.operator.pure => false,
        _ => node.children().all(Node::is_constant),
    };
    let arena = Arena::new();
    if !context.defers_constants
        && let Node::Call(call) = &*node
        && let Some(check) = call.operator.check
        && check(&Call::new(call, &Scope::new(Document::EMPTY, context, &arena)))?
    {
        *node = Node::Constant(Some(Value::Null.to_owned()));
        return Ok(());
    }
    if foldable {
        context.interrupt.check()?;
        let value = node.evaluate(&Scope::new(Document::EMPTY, context, &arena));
        if let Some(value) = deferred(value, context)? {
            *node = Node::Constant(value.map(|value| value.to_owned()));
        }
    }
    sort_members(node, context)
}

/// Sorts the constants that an operator searches. Errors: interruption.
fn sort_members(node: &mut Node, context: &Context) -> Result<()> {
    if let Node::Call(call) = node
        && call.operator.name == "$switch"
    {
        let boundaries =
            boundaries(&call.operands).and_then(|all| Members::of_ranges(all, &context.collation));
        call.members = boundaries.map(Arc::new);
    } else if let Node::Call(call) = node
        && matches!(call.operator.name, "$in" | "$setIsSubset")
        && let Some(Node::Constant(Some(constant))) = call.operands.get(1)
        && let Value::Array(array) = constant.view()
    {
        call.members = Members::new(array, context)?.map(Arc::new);
    }
    Ok(())
}

/// Returns the boundaries of the cases of a `$switch`, if they are adjacent ranges of one field, as `$bucket` makes
/// them.
fn boundaries(operands: &[Node]) -> Option<Vec<&ValueBuf>> {
    let (branches, _) = operands.as_chunks::<2>();
    let (mut first, mut boundaries) = (None, Vec::new());
    for [case, _] in branches {
        let (field, lower, upper) = range(case)?;
        let known = *first.get_or_insert(field);
        if (known.source, &known.path) != (field.source, &field.path) {
            return None;
        }
        match boundaries.last() {
            None => boundaries.push(lower),
            Some(last) if *last == lower => {}
            Some(_) => return None,
        }
        boundaries.push(upper);
    }
    Some(boundaries)
}

/// Splits `{$and: [{$gte: [<field>, <constant>]}, {$lt: [<field>, <constant>]}]}`.
fn range(case: &Node) -> Option<(&FieldNode, &ValueBuf, &ValueBuf)> {
    fn operands<'n>(node: &'n Node, name: &str) -> Option<&'n [Node]> {
        match node {
            Node::Call(call) if call.operator.name == name => Some(&call.operands),
            _ => None,
        }
    }
    let [lower, upper] = operands(case, "$and")? else { return None };
    match (operands(lower, "$gte")?, operands(upper, "$lt")?) {
        ([Node::Field(a), Node::Constant(Some(lower))], [Node::Field(b), Node::Constant(Some(upper))])
            if (a.source, &a.path) == (b.source, &b.path) =>
        {
            Some((a, lower, upper))
        }
        _ => None,
    }
}

/// Folds operands. Operands that are never evaluated stay unchanged: `$switch` drops false cases and ends with a true
/// one, as in MongoDB.
fn fold_operands(node: &mut Node, context: &Context) -> Result<()> {
    let Node::Call(call) = node else {
        return node.children_mut().try_for_each(|child| fold(child, context));
    };
    if call.operator.name != "$switch" {
        return call.operands.iter_mut().try_for_each(|operand| fold(operand, context));
    }
    let (branches, default) = call.operands.as_chunks_mut::<2>();
    for [case, then] in branches {
        fold(case, context)?;
        match case {
            Node::Constant(found) if !truthy(found.as_ref().map(|found| found.view())) => {}
            Node::Constant(_) => {
                fold(then, context)?;
                break;
            }
            _ => fold(then, context)?,
        }
    }
    default.iter_mut().try_for_each(|operand| fold(operand, context))
}

/// Returns `None` instead of an error that the context defers.
fn deferred<T>(outcome: Result<T>, context: &Context) -> Result<Option<T>> {
    match outcome {
        Err(_) if context.defers_constants => context.interrupt.check().map(|()| None),
        outcome => outcome.map(Some),
    }
}
