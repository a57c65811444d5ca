//! Constant folding while an expression is parsed.
//!
//! As in MongoDB, the whole expression is parsed before any part is computed. Any malformed part is therefore reported
//! before an error of a constant.

use super::boolean::truthy;
use super::evaluate::{Call, Scope};
use super::members::Members;
use super::node::Node;
use crate::{Arena, Context};
use base::Result;
use base::bson::{Document, Value};
use std::sync::Arc;

/// Replaces constant nodes by their values, from the leaves up. A failing node stays unchanged if the context defers
/// errors of constants.
pub(super) fn fold(node: &mut Node, context: &Context) -> Result<()> {
    fold_operands(node, context)?;
    let foldable = match &*node {
        Node::Absent | Node::Constant(_) | Node::Field(_) => false,
        Node::Call(call) if !call.operator.pure => false,
        _ => node.children().all(Node::is_constant),
    };
    let arena = Arena::new();
    if let Node::Call(call) = &*node
        && let Some(check) = call.operator.check
    {
        let checked = check(&Call::new(call, &Scope::new(Document::EMPTY, context, &arena)));
        deferred(checked, context)?;
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

/// Sorts the constant array that an operator searches. Errors: interruption.
fn sort_members(node: &mut Node, context: &Context) -> Result<()> {
    if let Node::Call(call) = node
        && matches!(call.operator.name, "$in" | "$setIsSubset")
        && let Some(Node::Constant(Some(constant))) = call.operands.get(1)
        && let Value::Array(array) = constant.view()
    {
        call.members = Members::new(array, context)?.map(Arc::new);
    }
    Ok(())
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
