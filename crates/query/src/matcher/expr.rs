//! `$expr`: an aggregation expression as a condition.

use super::node::Node;
use super::parse::Parser;
use crate::expression::ErrorPrefix;
use crate::{Arena, Context, Expression};
use base::bson::{Document, Element, ValueBuf};
use base::{Result, bail};

/// An aggregation expression that must be true for the document.
#[derive(Clone, Debug)]
pub struct Expr {
    /// The expression as given.
    pub source: ValueBuf,
    /// The parsed expression. The planner derives bounds from its comparisons of a path with a constant.
    pub expression: Expression,
}

impl Expr {
    pub(super) fn test(&self, document: Document<'_>, context: &Context) -> Result<bool> {
        let arena = Arena::new();
        let value = self.expression.evaluate(document, context, &arena)?;
        Ok(value.is_some_and(|value| value.is_truthy()))
    }
}

/// Parses the expression. A constant expression becomes its boolean value.
pub(super) fn parse_expr(parser: &Parser<'_>, element: &Element<'_>) -> Result<Option<Node>> {
    parser.require_top_level("$expr")?;
    let expression = Expression::parse_at(element.value(), parser.context, ErrorPrefix::Filter)?;
    if expression.reads_metadata() {
        bail!(NotImplemented, "$meta is not supported in $expr");
    }
    Ok(Some(match (expression.is_constant(), expression.constant()) {
        (true, Some(value)) if value.is_truthy() => Node::AlwaysTrue,
        (true, _) => Node::AlwaysFalse,
        (false, _) => Node::Expr(Expr { source: element.value().to_owned(), expression }),
    }))
}
