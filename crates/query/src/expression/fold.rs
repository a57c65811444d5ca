//! Computes the constant parts of an expression once, while it is parsed.
//!
//! As in MongoDB the whole expression is parsed before any part is computed, so a mistake of
//! form anywhere is reported before an error of a constant.

use super::evaluate::{Call, Scope};
use super::node::Node;
use crate::{Arena, Context};
use base::Result;
use base::bson::Document;

/// Replaces, from the leaves up, what depends on no document by its value.
pub(super) fn fold(node: &mut Node, context: &Context) -> Result<()> {
    for child in node.children_mut() {
        fold(child, context)?;
    }
    let foldable = match &*node {
        Node::Absent | Node::Constant(_) | Node::Field(_) => false,
        Node::Call(call) if !call.operator.pure => false,
        _ => node.children().all(Node::is_constant),
    };
    let arena = Arena::new();
    if let Node::Call(call) = &*node
        && let Some(check) = call.operator.check
    {
        check(&Call::new(call, &Scope::new(Document::EMPTY, context, &arena)))?;
    }
    if foldable {
        context.interrupt.check()?;
        let value =
            node.evaluate(&Scope::new(Document::EMPTY, context, &arena))?.map(|value| value.to_owned());
        *node = Node::Constant(value);
    }
    Ok(())
}
