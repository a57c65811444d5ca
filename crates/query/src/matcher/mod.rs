//! The filter language: `{a: 1, b: {$gt: 2}}` and all its operators.
//!
//! The parser turns a filter once into a small tree of [`Node`]s. It reports unknown operators and bad arguments before
//! any document is read. The tree is evaluated over raw BSON in place: [`walk`] finds the values at a path. Each family
//! of operators has a file that parses its arguments and tests a value. [`operators`] lists all operators.

mod array;
mod comparison;
mod describe;
mod evaluate;
mod geo;
mod integer;
mod json_schema;
mod membership;
mod near;
mod node;
pub mod operators;
mod optimize;
mod parse;
mod part;
mod regex_match;
mod siblings;
#[cfg(test)]
mod tests;
mod top_level;
pub(crate) mod unparsed;
mod walk;

pub use array::{Size, TypeSet};
pub use comparison::{Comparison, ComparisonOp};
pub use geo::{Geo, Relation};
pub use integer::{BitTest, BitsOp, Modulo};
pub use json_schema::Schema;
pub use membership::In;
pub use near::{Center, Near};
pub use node::{Node, Predicate};
pub use part::Part;
pub use regex_match::RegexMatch;
pub(crate) use siblings::fields_by_name;
pub use top_level::Expr;
pub use unparsed::mentions_expr;

use crate::{Collation, Context};
use base::bson::{Builder, Document, DocumentBuf, Path, Value};
use base::{CompatibleWith, Result, err};
use evaluate::{Evaluation, Subject};
use std::sync::Arc;

/// A parsed filter.
#[derive(Debug)]
pub struct Matcher {
    root: Arc<Node>,
    /// The collation of string comparisons. It is the filter's and not the operation's: a validator's filter has its
    /// own.
    collation: Collation,
    /// Whether the filter contains `$text`.
    searches_text: bool,
    /// Result of `$text`: true for documents that a text index has found.
    text_found: bool,
}

/// The result of a match.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Match {
    /// The array position that the positional operator `$` of an update or projection refers to. `None` if the filter
    /// traversed no array.
    pub position: Option<usize>,
}

impl Matcher {
    /// Parses and normalises a filter that depends on documents alone.
    ///
    /// Errors: MongoDB's errors for unknown or misplaced operators and bad arguments (mostly BadValue); NotImplemented
    /// for known but unsupported operators.
    pub fn parse(filter: Document<'_>, context: &Context) -> Result<Matcher> {
        let matcher = Matcher::parse_any(filter, context)?;
        near::refuse(&matcher.root)?;
        match matcher.searches_text {
            true => Err(err!(BadValue, "$text is not allowed in this context")),
            false => Ok(matcher),
        }
    }

    /// Parses a filter for a query plan, which may contain `$near` and `$text`.
    ///
    /// Errors: as [`parse`](Self::parse); BadValue if one of these operators is not at the top.
    pub fn parse_query(filter: Document<'_>, context: &Context) -> Result<Matcher> {
        let matcher = Matcher::parse_any(filter, context)?;
        near::check_place(&matcher.root)?;
        Ok(matcher)
    }

    fn parse_any(filter: Document<'_>, context: &Context) -> Result<Matcher> {
        let root = parse::Parser::new(context).filter(filter)?;
        let mut root = optimize::normalise(root, context)?;
        if context.compatible_with >= CompatibleWith::V9_0 {
            root.find_gaps();
        }
        Ok(Matcher::of(root, context.collation.clone()))
    }

    /// Copies the filter with the rule of MongoDB 9.0 for null: a value that is no document, in an array on a path, is
    /// a missing value, and so is an empty array.
    pub fn with_gaps(&self) -> Matcher {
        let mut root = (*self.root).clone();
        root.find_gaps();
        let (collation, root) = (self.collation.clone(), Arc::new(root));
        Matcher { root, collation, searches_text: self.searches_text, text_found: self.text_found }
    }

    fn of(root: Node, collation: Collation) -> Matcher {
        let searches_text = root.any(&|node| matches!(node, Node::Text(_)));
        Matcher { root: Arc::new(root), collation, searches_text, text_found: true }
    }

    /// The filter `{}`.
    pub fn every(context: &Context) -> Matcher {
        Matcher::of(Node::And(Vec::new()), context.collation.clone())
    }

    /// Returns the conjunction of filters that were parsed in one context; `None` without filters.
    pub(crate) fn all<'m>(
        parts: impl ExactSizeIterator<Item = &'m Arc<Matcher>> + Clone,
    ) -> Option<Arc<Matcher>> {
        let first = parts.clone().next()?;
        if parts.len() == 1 {
            return Some(first.clone());
        }
        let root = optimize::and(parts.map(|part| Node::clone(&part.root)));
        Some(Arc::new(Matcher::of(root, first.collation.clone())))
    }

    /// Parses a filter that may only inspect fields.
    ///
    /// Errors: QueryFeatureNotAllowed for `$expr` and `$jsonSchema`, BadValue for `$text` and `$where`, and the errors
    /// of [`parse`](Self::parse).
    pub fn parse_plain(filter: Document<'_>, context: &Context) -> Result<Matcher> {
        match unparsed::first_special(filter) {
            Some(name @ ("$text" | "$where")) => Err(err!(BadValue, "{name} is not allowed in this context")),
            Some(name) => Err(err!(QueryFeatureNotAllowed, "{name} is not allowed in this context")),
            None => Matcher::parse(filter, context),
        }
    }

    /// Returns the near condition and its path.
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
    /// Errors: the errors of `$expr`; 51156 for a regular expression that takes too long.
    #[inline]
    pub fn matches(&self, document: Document<'_>, context: &Context) -> Result<bool> {
        Evaluation::new(self, context).matches(&self.root, Subject::Document(document))
    }

    /// Returns the match, with its array position, if the document satisfies the filter.
    ///
    /// Errors: as [`matches`](Self::matches).
    pub fn matches_at(&self, document: Document<'_>, context: &Context) -> Result<Option<Match>> {
        let mut evaluation = Evaluation::new(self, context);
        let matched = evaluation.matches(&self.root, Subject::Document(document))?;
        Ok(matched.then_some(Match { position: evaluation.position }))
    }

    /// Whether one value satisfies the filter. All paths begin with a name that represents the value: `{x: {$gt: 3}}`
    /// or `{"x.y": 1}`, for arrayFilters and `$pull`.
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

    /// The collation of string comparisons.
    pub fn collation(&self) -> &Collation {
        &self.collation
    }

    /// Whether the filter has no conditions, so every document matches.
    pub fn is_empty(&self) -> bool {
        matches!(&*self.root, Node::And(children) if children.is_empty())
    }

    /// The filter in the normalised form that explain prints as `parsedQuery`.
    pub fn describe(&self) -> DocumentBuf {
        let mut builder = Builder::new();
        describe::describe(&self.root, &mut builder);
        builder.finish()
    }

    /// The filter in the form of [`describe`](Self::describe) without its near condition, which plans handle first.
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

    /// Returns the equalities at the top or within `$and`. An upsert puts their fields into its new document.
    ///
    /// Errors: NotSingleValueField if two of them name one path, or a path and a path below it.
    pub fn equalities(&self) -> Result<Vec<(&Path, Value<'_>)>> {
        part::equalities(&self.root)
    }

    /// Returns the operand of the equality of `_id` at the top or within `$and`. A replacement takes only this one.
    ///
    /// Errors: NotExactValueField for an equality below `_id`; NotSingleValueField for two equalities.
    pub fn id_equality(&self) -> Result<Option<Value<'_>>> {
        part::id_equality(&self.root)
    }
}
