//! Evaluation of a filter's tree against a document.
//!
//! Children are evaluated in order with short-circuiting. Recursion is bounded by the depth of the filter, which the
//! parser limits, and of the document, which validation limits. [`walk`] finds the values at a path, and the file of
//! each predicate tests a value. A new predicate is a case in [`Evaluation::test`].

use super::Matcher;
use super::node::{Node, Predicate};
use super::siblings::{FieldIndex, MANY, Siblings};
use super::top_level::Expr;
use super::walk::{self, LeafArrays, nested};
use crate::{Collation, Context};
use base::Result;
use base::bson::{Builder, Document, Element, Type};

/// Input of a filter.
#[derive(Clone, Copy)]
pub(super) enum Subject<'a> {
    Document(Document<'a>),
    /// A single value, which replaces the first component of the filter's paths.
    Value(Element<'a>),
}

/// State of one evaluation: its context and the array position found so far.
pub(super) struct Evaluation<'c> {
    context: &'c Context,
    collation: &'c Collation,
    /// Whether the text index of `$text` has found the document.
    text_found: bool,
    /// The position that the positional operator `$` refers to.
    pub(super) position: Option<usize>,
}

impl<'c> Evaluation<'c> {
    pub(super) fn new(matcher: &'c Matcher, context: &'c Context) -> Evaluation<'c> {
        let (collation, text_found) = (&matcher.collation, matcher.text_found);
        Evaluation { context, collation, text_found, position: None }
    }

    /// Whether the subject satisfies the condition.
    pub(super) fn matches(&mut self, node: &Node, subject: Subject<'_>) -> Result<bool> {
        match node {
            Node::Field { path, predicate } => {
                let leaf = predicate.leaf_arrays();
                let mut visit = |found: walk::Found<'_>| self.visit(predicate, found);
                match (subject, path.components()) {
                    (Subject::Document(document), components) => {
                        walk::walk(components, document, leaf, &mut visit)
                    }
                    (Subject::Value(element), [_, rest @ ..]) => {
                        walk::walk_from(rest, element, leaf, &mut visit)
                    }
                    (Subject::Value(_), []) => Ok(false),
                }
            }
            Node::Expr(expr) => self.test_expression(expr, as_document(subject, &mut None)),
            Node::Schema(schema) => schema.matches(as_document(subject, &mut None)),
            Node::And(children) | Node::Or(children) | Node::Nor(children) if children.len() > MANY => {
                self.matches_many(node, children, subject)
            }
            Node::Or(branches) | Node::Nor(branches) => self.matches_branches(node, branches, subject),
            _ => self.combine(node, |this, _, child| this.matches(child, subject)),
        }
    }

    /// Evaluates `$or` or `$nor`. Branches on the same first field share one search for it.
    fn matches_branches(&mut self, node: &Node, branches: &[Node], subject: Subject<'_>) -> Result<bool> {
        let siblings = match subject {
            Subject::Document(document) => Siblings::find(branches, document),
            Subject::Value(_) => None,
        };
        let Some(siblings) = siblings else {
            return self.combine(node, |this, _, child| this.matches(child, subject));
        };
        self.combine(node, |this, at, child| match (child, siblings.of(at)) {
            (Node::Field { path, predicate }, Some(Some(element)))
                if element.kind() != Type::Array && path.components().len() == 1 =>
            {
                this.test(predicate, Some(&element))
            }
            (Node::Field { path, predicate }, Some(found)) => {
                let rest = path.components().get(1..).unwrap_or_default();
                let mut visit = |found: walk::Found<'_>| this.visit(predicate, found);
                walk::walk_found(rest, found, predicate.leaf_arrays(), None, &mut visit)
            }
            _ => this.matches(child, subject),
        })
    }

    /// Evaluates many siblings. After the first ones, which often decide, the others use an index of the fields.
    fn matches_many<'n>(
        &mut self,
        node: &'n Node,
        children: &'n [Node],
        subject: Subject<'_>,
    ) -> Result<bool> {
        let Subject::Document(document) = subject else {
            return self.combine(node, |this, _, child| this.matches(child, subject));
        };
        let mut index = None;
        self.combine(node, |this, at, child| {
            let (MANY.., Node::Field { path, predicate }) = (at, child) else {
                return this.matches(child, subject);
            };
            let index = index.get_or_insert_with(|| FieldIndex::new(document));
            let (found, before) = (index.find(path), children.get(at - MANY));
            if let Some(array) = found
                && let Some(in_array) =
                    index.find_in_array(child, before, array, this.context, this.collation)?
            {
                return in_array.map_or(Ok(false), |found| this.visit(predicate, found));
            }
            let rest = path.components().get(1..).unwrap_or_default();
            walk::walk_found(rest, found, predicate.leaf_arrays(), None, &mut |found| {
                this.visit(predicate, found)
            })
        })
    }

    /// Evaluates an expression. It compares by the collation of its context, which must be the filter's.
    fn test_expression(&self, expr: &Expr, document: Document<'_>) -> Result<bool> {
        if self.context.collation == *self.collation {
            return expr.test(document, self.context);
        }
        expr.test(document, &self.context.with_collation(self.collation.clone()))
    }

    /// Whether one element of an array satisfies conditions on values (`$elemMatch`). Every path in them refers to that
    /// element.
    fn matches_element(&mut self, node: &Node, element: &Element<'_>) -> Result<bool> {
        match node {
            Node::Field { predicate, .. } => self.test(predicate, Some(element)),
            // The parser refuses both here.
            Node::Expr(_) | Node::Schema(_) => Ok(false),
            _ => self.combine(node, |this, _, child| this.matches_element(child, element)),
        }
    }

    /// Evaluates a condition that combines other conditions; `matches` also gets the position of each. As in MongoDB,
    /// array positions from failing branches, `$or` and negations are discarded.
    fn combine<'n>(
        &mut self,
        node: &'n Node,
        mut matches: impl FnMut(&mut Self, usize, &'n Node) -> Result<bool>,
    ) -> Result<bool> {
        let before = self.position;
        let matched = match node {
            Node::And(children) => all(children, |at, child| matches(self, at, child))?,
            Node::Or(children) => {
                let any = !all(children, |at, child| Ok(!matches(self, at, child)?))?;
                self.position = before;
                any
            }
            Node::Nor(children) => {
                let none = all(children, |at, child| Ok(!matches(self, at, child)?))?;
                self.position = before;
                none
            }
            Node::Not(child) => {
                let matched = matches(self, 0, child)?;
                self.position = before;
                !matched
            }
            Node::SampleRate(rate) => self.context.random_unit() < *rate,
            Node::AlwaysTrue => true,
            Node::Text(_) => self.text_found,
            _ => false,
        };
        if !matched {
            self.position = before;
        }
        Ok(matched)
    }

    fn visit(&mut self, predicate: &Predicate, found: walk::Found<'_>) -> Result<bool> {
        if !self.test(predicate, found.element.as_ref())? {
            return Ok(false);
        }
        if let Some(digits) = found.position {
            self.position = parse_position(digits);
        }
        Ok(true)
    }

    /// Whether one value satisfies a predicate; `None` is a missing value.
    #[inline]
    fn test(&mut self, predicate: &Predicate, element: Option<&Element<'_>>) -> Result<bool> {
        Ok(match predicate {
            Predicate::Compare(comparison) => comparison.test(element, self.collation),
            Predicate::In(within) => within.test(element, self.collation, &*self.context.interrupt)?,
            Predicate::Regex(regex) => regex.test(element, &*self.context.interrupt)?,
            Predicate::Exists => element.is_some(),
            Predicate::Type(types) => types.test(element),
            Predicate::Mod(modulo) => modulo.test(element),
            Predicate::Bits(bits) => bits.test(element),
            Predicate::Geo(geo) => geo.test(element),
            Predicate::Near(_) => true,
            Predicate::Size(size) => size.test(element),
            Predicate::ElemMatchObject(filter) => {
                self.any_element(element, |this, inner| match inner.kind() {
                    // An array counts as a document whose names are the positions.
                    Type::Document | Type::Array => this.matches(filter, Subject::Document(nested(*inner))),
                    _ => Ok(false),
                })?
            }
            Predicate::ElemMatchValue(operators) => {
                self.any_element(element, |this, inner| this.matches_element(operators, inner))?
            }
        })
    }

    /// Whether any element of an array matches; records its position. Values that are not arrays never match.
    fn any_element(
        &mut self,
        array: Option<&Element<'_>>,
        mut matches: impl FnMut(&mut Self, &Element<'_>) -> Result<bool>,
    ) -> Result<bool> {
        let Some(array) = array.filter(|element| element.kind() == Type::Array) else { return Ok(false) };
        for inner in nested(*array) {
            self.context.steps(1)?;
            if matches(self, &inner)? {
                self.position = parse_position(inner.name_bytes());
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Predicate {
    fn leaf_arrays(&self) -> LeafArrays {
        match self {
            Predicate::Size(_) | Predicate::ElemMatchObject(_) | Predicate::ElemMatchValue(_) => {
                LeafArrays::Keep
            }
            Predicate::Compare(comparison) => comparison.arrays,
            Predicate::In(within) => within.arrays,
            _ => LeafArrays::Traverse,
        }
    }
}

fn all<'n>(children: &'n [Node], mut holds: impl FnMut(usize, &'n Node) -> Result<bool>) -> Result<bool> {
    for (at, child) in children.iter().enumerate() {
        if !holds(at, child)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the document for `$expr` and `$jsonSchema`, which test documents. A single value is wrapped into one.
fn as_document<'a>(subject: Subject<'a>, buffer: &'a mut Option<base::bson::DocumentBuf>) -> Document<'a> {
    match subject {
        Subject::Document(document) => document,
        Subject::Value(element) => {
            let mut builder = Builder::new();
            builder.append_element(&element);
            buffer.insert(builder.finish()).view()
        }
    }
}

fn parse_position(digits: &[u8]) -> Option<usize> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}
