//! Aggregation expressions: `{$add: ["$a", 1]}` and all the others.
//!
//! An expression is parsed once into a small tree ([`node`]) of constants, field paths, object
//! and array literals, and calls of operators. The operators live in one sorted table
//! ([`table`]); each is a plain function that evaluates the operands it wants, so short-circuit
//! and looping operators need no shape of their own. Parsing reports every mistake before a
//! document is read, and then folds constant parts, whose errors appear at once as well.
//!
//! Evaluation runs over raw bytes: a value borrows from the document, from the expression's
//! constants, or from the [`Arena`], where computed strings, arrays and documents are put.
//! A missing value is `None` throughout.

mod accumulators;
mod arithmetic;
mod array;
mod array_literal;
mod bits;
mod boolean;
mod comparison;
mod conditional;
mod convert;
pub(crate) mod date;
mod dependencies;
mod describe;
mod evaluate;
mod field_path;
mod fold;
mod literal;
mod misc;
mod named;
mod node;
mod object;
mod object_literal;
mod ordered_fields;
mod parse;
mod set;
mod show;
mod string;
mod table;
mod variables;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use dependencies::Dependencies;
pub use named::{Complaint, Named, Parameter};
pub use table::{Arity, OPERATORS, Operator};
pub use variables::check_name_for_binding;

use crate::{Arena, Context};
use base::Result;
use base::bson::{Document, Path, Value, ValueBuf};
use evaluate::Scope;
use node::{Node, Source};
use parse::Parser;

/// Where a parsed expression stands, which decides how an error of a constant part is reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// In a stage of a pipeline: `Failed to optimize pipeline :: caused by :: …`.
    Pipeline,
    /// Within `$expr` of a filter: `Failed to optimize expression :: caused by :: …`.
    Filter,
    /// Anywhere else (the projection of a find): the error as it is.
    Plain,
}

/// A parsed aggregation expression.
#[derive(Clone, Debug)]
pub struct Expression {
    node: Node,
}

impl Expression {
    /// Parses an expression of a pipeline, reporting every mistake that can be seen without a
    /// document, and computes its constant parts.
    ///
    /// Errors: MongoDB's of the operators; 168 for an unknown one; those of constant parts.
    pub fn parse(value: Value<'_>, context: &Context) -> Result<Expression> {
        Expression::parse_at(value, context, Place::Pipeline)
    }

    /// Parses as [`parse`](Self::parse) does, for another place than a pipeline.
    pub fn parse_at(value: Value<'_>, context: &Context, place: Place) -> Result<Expression> {
        let node = Parser::new(context).operand(value)?;
        Expression::folded(node, context, place)
    }

    /// Parses the expression of `$redact`, where `$$DESCEND`, `$$PRUNE` and `$$KEEP` stand for
    /// the strings `descend`, `prune` and `keep`.
    pub fn parse_redact(value: Value<'_>, context: &Context) -> Result<Expression> {
        let node = Parser::new(context).allow_redact().operand(value)?;
        Expression::folded(node, context, Place::Pipeline)
    }

    fn folded(mut node: Node, context: &Context, place: Place) -> Result<Expression> {
        fold::fold(&mut node, context).map_err(|error| match place {
            Place::Pipeline => error.context("Failed to optimize pipeline"),
            Place::Filter => error.context("Failed to optimize expression"),
            Place::Plain => error,
        })?;
        Ok(Expression { node })
    }

    /// An expression that is always this value.
    pub fn from_constant(value: Value<'_>) -> Expression {
        Expression { node: Node::Constant(Some(value.to_owned())) }
    }

    /// The value for one document; `None` is missing. What is computed lives in `arena`.
    ///
    /// Errors: MongoDB's of the operators; 146 where computed values pass 100 MB.
    pub fn evaluate<'a>(
        &'a self,
        root: Document<'a>,
        context: &'a Context,
        arena: &'a Arena,
    ) -> Result<Option<Value<'a>>> {
        self.node.evaluate(&Scope::new(root, context, arena))
    }

    /// Whether the value is the same for every document.
    pub fn is_constant(&self) -> bool {
        matches!(self.node, Node::Constant(_))
    }

    /// The value, where it is the same for every document; `None` also where that is missing.
    pub fn constant(&self) -> Option<Value<'_>> {
        if let Node::Constant(value) = &self.node { value.as_ref().map(ValueBuf::view) } else { None }
    }

    /// The path, where the expression is nothing but `"$a.b"`.
    pub fn field_path(&self) -> Option<&Path> {
        match &self.node {
            Node::Field(field) if field.source == Source::Root => field.path.as_ref(),
            _ => None,
        }
    }

    /// Whether it reads what is known of the document beside its fields (`$meta`).
    pub fn reads_metadata(&self) -> bool {
        fn reads(node: &Node) -> bool {
            let is_meta = matches!(node, Node::Call(call) if call.operator.name == "$meta");
            is_meta || node.children().any(reads)
        }
        reads(&self.node)
    }

    /// What the expression reads of the document.
    pub fn dependencies(&self) -> Dependencies {
        dependencies::of(&self.node)
    }

    /// The expression as explain prints it: constants as `{$const: …}`, arguments as arrays.
    pub fn describe(&self) -> ValueBuf {
        describe::describe(&self.node)
    }

    /// The operator called at the top, its name and its operands, for planning `$expr`.
    pub fn as_call(&self) -> Option<(&'static str, Vec<Expression>)> {
        let Node::Call(call) = &self.node else { return None };
        Some((call.operator.name, call.operands.iter().cloned().map(|node| Expression { node }).collect()))
    }
}
