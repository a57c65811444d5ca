//! The tree of a parsed filter. Evaluation walks it, the planner reads it and explain prints it.
//!
//! [`Matcher::parse`](super::Matcher::parse) normalises the tree:
//! - Nested `$and` and `$or` are flattened, and the children of every group are in MongoDB's canonical order.
//! - `$ne`, `$nin` and `{$exists: false}` are a [`Node::Not`] around the positive form.
//! - `$all` is a [`Node::And`] of its parts.
//! - An `$in` or `$or` of one constant is an equality.
//! - An `$or` of equalities of one path is an `$in`.

use super::array::{Size, TypeSet};
use super::comparison::Comparison;
use super::geo::Geo;
use super::integer::{BitTest, Modulo};
use super::json_schema::Schema;
use super::membership::In;
use super::near::Near;
use super::regex_match::RegexMatch;
use super::top_level::Expr;
use super::walk::LeafArrays;
use crate::text::TextQuery;
use base::bson::Path;
use std::sync::Arc;

/// One condition on a document, or a combination of conditions.
#[derive(Clone, Debug)]
pub enum Node {
    /// All children match. Without children, every document matches (the filter `{}`).
    And(Vec<Node>),
    /// At least one child matches.
    Or(Vec<Node>),
    /// No child matches.
    Nor(Vec<Node>),
    /// The inner condition does not match; on arrays, it matches no element (`$ne`, `$nin`, `$not`).
    Not(Box<Node>),
    /// A predicate on the values at a path.
    Field {
        /// The path. Arrays on the path are traversed implicitly.
        path: Path,
        /// The predicate that one of the found values must satisfy.
        predicate: Predicate,
    },
    /// `$expr`: an aggregation expression that must be true.
    Expr(Expr),
    /// `$jsonSchema`: the whole document against a schema.
    Schema(Arc<Schema>),
    /// `$text`: the search of a text index; true for documents that the index has found.
    Text(Arc<TextQuery>),
    /// `$sampleRate`: true at random with this probability.
    SampleRate(f64),
    /// Matches every document (`$alwaysTrue`).
    AlwaysTrue,
    /// Matches no document (`$alwaysFalse`, an empty `$in` or `$all`).
    AlwaysFalse,
}

/// A condition on a value at a path.
///
/// A path that ends in an array finds each of its elements and the array itself, unless a variant states otherwise. A
/// path without a value finds one missing value.
#[derive(Clone, Debug)]
pub enum Predicate {
    /// `$eq $lt $lte $gt $gte` with a constant, within the constant's type bracket.
    Compare(Comparison),
    /// `$in`: the value equals one of several constants, or matches one of several patterns.
    In(In),
    /// A regular expression: matches strings, and equals an identical stored regex.
    Regex(RegexMatch),
    /// The value exists.
    Exists,
    /// `$type`.
    Type(TypeSet),
    /// `$mod`.
    Mod(Modulo),
    /// `$bitsAllSet` and the related operators.
    Bits(BitTest),
    /// `$geoWithin` and `$geoIntersects`.
    Geo(Arc<Geo>),
    /// `$near`, `$nearSphere` and `$geoNear`: matches every document and requires an order.
    Near(Box<Near>),
    /// `$size`: applies to the array itself, not to its elements.
    Size(Size),
    /// `$elemMatch` with a filter: the filter matches an element that is a document or array. Its paths are relative to
    /// the element.
    ElemMatchObject(Box<Node>),
    /// `$elemMatch` with operators: one element of the array satisfies them all. The fields inside repeat the path of
    /// the array. Evaluation passes them the element and never traverses it.
    ElemMatchValue(Box<Node>),
}

impl Node {
    /// The path of a field's condition, also below a [`Node::Not`].
    pub fn path(&self) -> Option<&Path> {
        match self {
            Node::Field { path, .. } => Some(path),
            Node::Not(inner) => inner.path(),
            Node::And(children) if !children.is_empty() => {
                let first = children.first()?.path()?;
                children.iter().all(|child| child.path() == Some(first)).then_some(first)
            }
            _ => None,
        }
    }

    /// Lets conditions that a missing value satisfies find gaps in arrays: see [`LeafArrays::TraverseGaps`].
    pub(super) fn find_gaps(&mut self) {
        match self {
            Node::And(children) | Node::Or(children) | Node::Nor(children) => {
                children.iter_mut().for_each(Node::find_gaps);
            }
            Node::Not(child) => child.find_gaps(),
            Node::Field { predicate, .. } => match predicate {
                Predicate::Compare(comparison) if comparison.matches_missing() => {
                    comparison.arrays = LeafArrays::TraverseGaps;
                }
                Predicate::In(within) if within.has_null() => within.arrays = LeafArrays::TraverseGaps,
                Predicate::ElemMatchObject(inner) | Predicate::ElemMatchValue(inner) => inner.find_gaps(),
                _ => {}
            },
            _ => {}
        }
    }

    /// The children of `$and`, `$or` and `$nor`, or the child of `$not`; otherwise empty.
    pub fn children(&self) -> &[Node] {
        match self {
            Node::And(children) | Node::Or(children) | Node::Nor(children) => children,
            Node::Not(child) => std::slice::from_ref(child),
            _ => &[],
        }
    }

    /// Counts this condition and the conditions below it, including `$elemMatch`, that satisfy `test`.
    pub fn count(&self, test: &dyn Fn(&Node) -> bool) -> usize {
        let below = match self {
            Node::Field {
                predicate: Predicate::ElemMatchObject(inner) | Predicate::ElemMatchValue(inner),
                ..
            } => inner.count(test),
            _ => self.children().iter().map(|child| child.count(test)).sum(),
        };
        below + usize::from(test(self))
    }

    /// Whether this condition or any condition below it, including `$elemMatch`, satisfies `test`.
    pub fn any(&self, test: &dyn Fn(&Node) -> bool) -> bool {
        if test(self) {
            return true;
        }
        match self {
            Node::Field {
                predicate: Predicate::ElemMatchObject(inner) | Predicate::ElemMatchValue(inner),
                ..
            } => inner.any(test),
            _ => self.children().iter().any(|child| child.any(test)),
        }
    }
}
