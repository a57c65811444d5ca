//! The filter language: `{a: 1, b: {$gt: 2}}` and all that goes with it.
//!
//! A filter is parsed once into a small tree of [`Node`]s, which reports every unknown operator
//! and bad argument before any document is read, and is then evaluated over raw BSON, in place:
//! [`walk`] finds the values at a path, and each family of operators has one file that parses
//! its arguments and tests a value. [`operators`] lists them all.

mod array;
mod bits;
mod comparison;
mod constant;
mod describe;
mod element;
mod equalities;
mod evaluate;
mod expr;
mod geo;
mod json_schema;
mod logical;
mod membership;
mod modulo;
mod near;
mod node;
mod number;
pub mod operators;
mod optimize;
mod parse;
mod part;
mod refused;
mod regex_match;
mod siblings;
mod special;
#[cfg(test)]
mod tests;
mod text;
mod walk;

pub use array::Size;
pub use bits::{BitTest, BitsOp};
pub use comparison::{Comparison, ComparisonOp};
pub use element::TypeSet;
pub use expr::Expr;
pub use geo::{Geo, Relation};
pub use json_schema::Schema;
pub use membership::In;
pub use modulo::Modulo;
pub use near::{Center, Near};
pub use node::{Node, Predicate};
pub use part::Part;
pub use regex_match::RegexMatch;
pub use special::mentions_expr;

use crate::{Collation, Context};
use base::bson::{Builder, Document, DocumentBuf, Path, Value};
use base::{Result, err};
use evaluate::{Evaluation, Subject};
use std::sync::Arc;

/// A parsed filter.
#[derive(Debug)]
pub struct Matcher {
    root: Arc<Node>,
    /// What strings compare by, whatever the surroundings that a document is held against it in:
    /// a validator's filter is not a command's.
    collation: Collation,
    /// Whether it has `$text`.
    searches_text: bool,
    /// Whether `$text` holds: of what a text index has found, it does.
    text_found: bool,
}

/// What a filter found besides that the document matches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Match {
    /// The position in the array that the filter looked through, which the positional operator
    /// `$` of an update or projection stands for; `None` where it looked through none.
    pub position: Option<usize>,
}

impl Matcher {
    /// Parses a filter that is told from documents alone, and normalises it.
    ///
    /// Errors: MongoDB's for every operator that is unknown, misplaced or has a bad argument
    /// (mostly BadValue); NotImplemented for operators that are known but not supported.
    pub fn parse(filter: Document<'_>, context: &Context) -> Result<Matcher> {
        let matcher = Matcher::parse_any(filter, context)?;
        near::refuse(&matcher.root)?;
        match matcher.searches_text {
            true => Err(err!(BadValue, "$text is not allowed in this context")),
            false => Ok(matcher),
        }
    }

    /// The same for what finds documents by a plan, which may ask for them to be near to a place, or
    /// to have words.
    ///
    /// Errors: as [`parse`](Self::parse); BadValue where such an operator isn't at the top.
    pub fn parse_query(filter: Document<'_>, context: &Context) -> Result<Matcher> {
        let matcher = Matcher::parse_any(filter, context)?;
        near::check_place(&matcher.root)?;
        Ok(matcher)
    }

    fn parse_any(filter: Document<'_>, context: &Context) -> Result<Matcher> {
        let root = parse::Parser::new(context).filter(filter)?;
        let collation = context.collation.clone();
        let root = Arc::new(optimize::normalise(root, context)?);
        let searches_text = root.any(&|node| matches!(node, Node::Text(_)));
        Ok(Matcher { root, collation, searches_text, text_found: true })
    }

    /// Parses a filter that may only look at the fields of what it is held against.
    ///
    /// Errors: QueryFeatureNotAllowed for `$expr` and `$jsonSchema`, BadValue for `$text` and `$where`, and
    /// those of [`parse`](Self::parse).
    pub fn parse_plain(filter: Document<'_>, context: &Context) -> Result<Matcher> {
        match special::first(filter) {
            Some(name @ ("$text" | "$where")) => Err(err!(BadValue, "{name} is not allowed in this context")),
            Some(name) => Err(err!(QueryFeatureNotAllowed, "{name} is not allowed in this context")),
            None => Matcher::parse(filter, context),
        }
    }

    /// The place that documents must be near to, and where theirs is.
    pub fn near(&self) -> Option<(&Path, &Near)> {
        let near = |node: &'_ Node| matches!(node, Node::Field { predicate: Predicate::Near(_), .. });
        let found = match &*self.root {
            Node::And(children) => children.iter().find(|child| near(child)),
            single => Some(single),
        };
        match found {
            Some(Node::Field { path, predicate: Predicate::Near(near) }) => Some((path, near)),
            _ => None,
        }
    }

    /// Whether the document satisfies the filter.
    ///
    /// Errors: those of evaluating `$expr`; 51156 for a regular expression that takes too long.
    #[inline]
    pub fn matches(&self, document: Document<'_>, context: &Context) -> Result<bool> {
        Evaluation::new(self, context).matches(&self.root, Subject::Document(document))
    }

    /// Whether the document satisfies the filter, and at which array position.
    ///
    /// Errors: as [`matches`](Self::matches).
    pub fn matches_at(&self, document: Document<'_>, context: &Context) -> Result<Option<Match>> {
        let mut evaluation = Evaluation::new(self, context);
        let matched = evaluation.matches(&self.root, Subject::Document(document))?;
        Ok(matched.then_some(Match { position: evaluation.position }))
    }

    /// Whether one value satisfies the filter, whose paths all begin with a name that stands for
    /// the value: `{x: {$gt: 3}}` or `{"x.y": 1}`, for arrayFilters and `$pull`.
    ///
    /// Errors: as [`matches`](Self::matches).
    pub fn matches_value(&self, value: Value<'_>, context: &Context) -> Result<bool> {
        let mut builder = Builder::new();
        builder.append(c"", value);
        let document = builder.finish();
        match document.view().first() {
            Some(element) => Evaluation::new(self, context).matches(&self.root, Subject::Value(element)),
            None => Ok(false),
        }
    }

    /// The normalised tree, for the planner.
    pub fn root(&self) -> &Node {
        &self.root
    }

    /// What strings compare by.
    pub fn collation(&self) -> &Collation {
        &self.collation
    }

    /// Whether the filter says nothing, so that every document matches.
    pub fn is_empty(&self) -> bool {
        matches!(&*self.root, Node::And(children) if children.is_empty())
    }

    /// The filter in the normalised form that explain prints as `parsedQuery`.
    pub fn describe(&self) -> DocumentBuf {
        let mut builder = Builder::new();
        describe::describe(&self.root, &mut builder);
        builder.finish()
    }

    /// The same without what the filter says of nearness, which plans see to before anything else.
    pub fn describe_beside_near(&self) -> DocumentBuf {
        let mut builder = Builder::new();
        let members = match &*self.root {
            Node::And(children) => children.as_slice(),
            single => std::slice::from_ref(single),
        };
        let near = |node: &&Node| matches!(node, Node::Field { predicate: Predicate::Near(_), .. });
        let others: Vec<&Node> = members.iter().filter(|node| !near(node)).collect();
        match others.as_slice() {
            [only] => describe::describe(only, &mut builder),
            several => describe::group(c"$and", several.iter().copied(), &mut builder),
        }
        builder.finish()
    }

    /// What the filter says fields equal, at the top or within `$and`: the fields that an upsert
    /// puts into its new document.
    ///
    /// Errors: NotSingleValueField where two of them name one path, or a path and one below it.
    pub fn equalities(&self) -> Result<Vec<(&Path, Value<'_>)>> {
        equalities::equalities(&self.root)
    }
}
