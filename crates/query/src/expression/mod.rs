//! Aggregation expressions: `{$add: ["$a", 1]}` and all other operators.
//!
//! An expression is parsed once into a small tree ([`node`]) of constants, field paths, object and array literals, and
//! calls of operators. The operators are in one sorted table ([`table`]). Each is a plain function that evaluates the
//! operands it needs, so short-circuit and iterating operators need no special nodes. The parser reports every error
//! before a document is read. It then folds constant parts and reports their errors as well.
//!
//! Evaluation works on raw bytes. A value borrows from the document, from the expression's constants, or from the
//! [`Arena`] of computed strings, arrays and documents. A missing value is always `None`.

mod accumulators;
mod arithmetic;
mod array;
mod conditional;
mod convert;
pub(crate) mod date;
mod evaluate;
mod extended_json;
mod fold;
mod literal;
mod logic;
mod members;
mod misc;
mod named;
mod node;
mod object;
mod parse;
mod reference;
mod set;
mod show;
mod string;
mod table;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub(crate) use arithmetic::difference;
pub(crate) use arithmetic::divide::quotient;
pub(crate) use date::calendar::Unit;
pub use named::{ErrorTemplate, Named, Parameter};
pub use node::Dependencies;
pub use reference::check_name_for_binding;
pub use table::{Arity, OPERATORS, Operator};

use crate::{Arena, Context, RowView};
use base::Result;
use base::bson::{Path, Value, ValueBuf};
use evaluate::Scope;
use node::{Node, Source};
use parse::Parser;

/// Prefix of the error of a constant part of an expression.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorPrefix {
    /// In a stage of a pipeline: `Failed to optimize pipeline :: caused by :: …`.
    Pipeline,
    /// Within `$expr` of a filter: `Failed to optimize expression :: caused by :: …`.
    Filter,
    /// Anywhere else, such as in the projection of a find: no prefix.
    Plain,
}

/// A parsed aggregation expression.
#[derive(Clone, Debug)]
pub struct Expression {
    node: Node,
}

impl Expression {
    /// Parses an expression of a pipeline and computes its constant parts. It reports every error that needs no
    /// document.
    ///
    /// Errors: MongoDB's errors of the operators; 168 for an unknown operator; errors of constant parts.
    pub fn parse(value: Value<'_>, context: &Context) -> Result<Expression> {
        Expression::parse_at(value, context, ErrorPrefix::Pipeline)
    }

    /// Parses as [`parse`](Self::parse), for an expression outside a pipeline.
    pub fn parse_at(value: Value<'_>, context: &Context, prefix: ErrorPrefix) -> Result<Expression> {
        let node = Parser::new(context).operand(value)?;
        Expression::folded(node, context, prefix)
    }

    /// Parses the expression of `$redact`. `$$DESCEND`, `$$PRUNE` and `$$KEEP` represent the strings `descend`, `prune`
    /// and `keep`.
    pub fn parse_redact(value: Value<'_>, context: &Context) -> Result<Expression> {
        let node = Parser::new(context).allow_redact().operand(value)?;
        Expression::folded(node, context, ErrorPrefix::Pipeline)
    }

    fn folded(mut node: Node, context: &Context, prefix: ErrorPrefix) -> Result<Expression> {
        fold::fold(&mut node, context).map_err(|error| match prefix {
            ErrorPrefix::Pipeline => error.context("Failed to optimize pipeline"),
            ErrorPrefix::Filter => error.context("Failed to optimize expression"),
            ErrorPrefix::Plain => error,
        })?;
        Ok(Expression { node })
    }

    /// Evaluates the expression for one row or document; `None` means missing. Computed values live in `arena`.
    ///
    /// Errors: MongoDB's errors of the operators; 146 if computed values exceed 100 MB.
    pub fn evaluate<'a>(
        &'a self,
        root: impl Into<RowView<'a>>,
        context: &'a Context,
        arena: &'a Arena,
    ) -> Result<Option<Value<'a>>> {
        self.node.evaluate(&Scope::new(root, context, arena))
    }

    /// Whether the value is constant.
    pub fn is_constant(&self) -> bool {
        matches!(self.node, Node::Constant(_))
    }

    /// Returns the constant value; `None` also for a missing constant.
    pub fn constant(&self) -> Option<Value<'_>> {
        if let Node::Constant(value) = &self.node { value.as_ref().map(ValueBuf::view) } else { None }
    }

    /// Returns the path, if the expression is only `"$a.b"`.
    pub fn field_path(&self) -> Option<&Path> {
        match &self.node {
            Node::Field(field) if field.source == Source::Root => field.path.as_ref(),
            _ => None,
        }
    }

    /// Whether the expression reads metadata (`$meta`).
    pub fn reads_metadata(&self) -> bool {
        fn reads(node: &Node) -> bool {
            let is_meta = matches!(node, Node::Call(call) if call.operator.name == "$meta");
            is_meta || node.children().any(reads)
        }
        reads(&self.node)
    }

    /// Returns the paths that the expression reads.
    pub fn dependencies(&self) -> Dependencies {
        node::dependencies(&self.node)
    }

    /// Formats the expression as explain prints it: constants as `{$const: …}`, arguments as arrays.
    pub fn describe(&self) -> ValueBuf {
        node::describe(&self.node)
    }

    /// Returns the name and the operands of a call at the top, for planning `$expr`.
    pub fn as_call(&self) -> Option<(&'static str, Vec<Expression>)> {
        let Node::Call(call) = &self.node else { return None };
        Some((call.operator.name, call.operands.iter().cloned().map(|node| Expression { node }).collect()))
    }
}
