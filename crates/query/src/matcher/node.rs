//! The tree that a filter is parsed into: what evaluation walks, the planner reads and explain
//! prints.
//!
//! After [`Matcher::parse`](super::Matcher::parse) the tree is normalised: nested `$and` and
//! `$or` are flattened, the children of every group stand in MongoDB's canonical order, `$ne`,
//! `$nin` and `{$exists: false}` are a [`Node::Not`] around the positive form, `$all` is a
//! [`Node::And`] of its parts, an `$in` or `$or` of one constant is an equality, and an `$or` of
//! equalities of one path is an `$in`.

use super::array::Size;
use super::bits::BitTest;
use super::comparison::Comparison;
use super::element::TypeSet;
use super::expr::Expr;
use super::geo::Geo;
use super::json_schema::Schema;
use super::membership::In;
use super::modulo::Modulo;
use super::near::Near;
use super::regex_match::RegexMatch;
use crate::text::TextQuery;
use base::bson::Path;

/// One condition on a document, or a combination of conditions.
#[derive(Debug)]
pub enum Node {
    /// All hold; with no children, true of every document (the filter `{}`).
    And(Vec<Node>),
    /// At least one holds.
    Or(Vec<Node>),
    /// None holds.
    Nor(Vec<Node>),
    /// The inner condition doesn't hold; over arrays, that of no element (`$ne`, `$nin`, `$not`).
    Not(Box<Node>),
    /// A predicate on the values at a path.
    Field {
        /// The path, arrays on the way being traversed implicitly.
        path: Path,
        /// What one of the values found must satisfy.
        predicate: Predicate,
    },
    /// `$expr`: an aggregation expression that must be true.
    Expr(Expr),
    /// `$jsonSchema`: the whole document against a schema.
    Schema(Box<Schema>),
    /// `$text`: found by a text index, and true of what that has found.
    Text(Box<TextQuery>),
    /// `$sampleRate`: true at random with this probability.
    SampleRate(f64),
    /// Holds for every document (`$alwaysTrue`).
    AlwaysTrue,
    /// Holds for no document (`$alwaysFalse`, an empty `$in` or `$all`).
    AlwaysFalse,
}

/// What a value found at a path must satisfy.
///
/// The values found at a path ending in an array are each of its elements and the array itself,
/// except where a variant says otherwise. A path that leads nowhere finds one value, missing.
#[derive(Debug)]
pub enum Predicate {
    /// `$eq $lt $lte $gt $gte` with a constant, within the constant's type bracket.
    Compare(Comparison),
    /// `$in`: equal to one of several constants, or matched by one of several patterns.
    In(In),
    /// A regular expression: matches strings, and equals the same stored regex.
    Regex(RegexMatch),
    /// There is a value at all.
    Exists,
    /// `$type`.
    Type(TypeSet),
    /// `$mod`.
    Mod(Modulo),
    /// `$bitsAllSet` and its kin.
    Bits(BitTest),
    /// `$geoWithin` and `$geoIntersects`.
    Geo(Box<Geo>),
    /// `$near`, `$nearSphere` and `$geoNear`: holds of every document, and asks for an order.
    Near(Box<Near>),
    /// `$size`: on the array itself, not on its elements.
    Size(Size),
    /// `$elemMatch` of a filter: an element of the array is a document (or array) that the
    /// filter matches, its paths being relative to the element.
    ElemMatchObject(Box<Node>),
    /// `$elemMatch` of operators: one element of the array satisfies them all. The fields inside
    /// repeat the path of the array; evaluation gives them the element, never traversing it.
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

    /// The children of `$and`, `$or` and `$nor`, the child of `$not`; else nothing.
    pub fn children(&self) -> &[Node] {
        match self {
            Node::And(children) | Node::Or(children) | Node::Nor(children) => children,
            Node::Not(child) => std::slice::from_ref(child),
            _ => &[],
        }
    }

    /// How many of this and the conditions below satisfy `test`, those inside `$elemMatch` included.
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

    /// Whether this or any condition below satisfies `test`, those inside `$elemMatch` included.
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
