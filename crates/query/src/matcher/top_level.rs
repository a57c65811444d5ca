//! Operators in the place of a field: constants, groups of filters, expressions, text searches.
//!
//! ```text
//! {$and: [<filter>, …]}    {$or: [<filter>, …]}    {$nor: [<filter>, …]}
//! {<path>: {$not: <regex> | {<operator>: <argument>, …}}}
//! {$alwaysTrue: 1}    {$alwaysFalse: 1}    {$comment: <any>}    {$sampleRate: <number>}
//! {$ref: <value>}    {$id: <value>}    {$db: <value>}         parts of a database reference: names of fields
//! {$expr: <expression>}
//! {$text: {$search: <string>, $language: <string>, $caseSensitive: <boolean>, $diacriticSensitive: <boolean>}}
//! ```
//!
//! The evaluation of `$text` only reports whether the text index has found the document.

use super::comparison::{self, ComparisonOp};
use super::node::Node;
use super::operators::FieldArgument;
use super::parse::Parser;
use super::{Matcher, integer, regex_match};
use crate::expression::ErrorPrefix;
use crate::text::TextQuery;
use crate::{Arena, Context, Expression};
use base::bson::{Document, Element, Path, Value, ValueBuf};
use base::{Result, bail, err};
use std::sync::Arc;

/// Parses the filters of `$and`, `$or` and `$nor`. Errors: BadValue unless the argument is a non-empty array of
/// documents.
pub(super) fn parse_group(parser: &Parser<'_>, element: &Element<'_>) -> Result<Vec<Node>> {
    let name = element.name();
    let Value::Array(array) = element.value() else {
        bail!(BadValue, "{name} argument must be an array");
    };
    if array.is_empty() {
        bail!(BadValue, "{name} argument must be a non-empty array");
    }
    let inner = parser.deeper()?;
    array
        .iter()
        .enumerate()
        .map(|(position, value)| match value {
            Value::Document(filter) => {
                inner.check_at_intervals(position)?;
                inner.filter(filter)
            }
            _ => Err(err!(BadValue, "{name} argument's entries must be objects")),
        })
        .collect()
}

/// `$not`: negates a regular expression, or the conjunction of a document of operators.
pub(super) fn parse_not(parser: &Parser<'_>, argument: &FieldArgument<'_>) -> Result<Option<Node>> {
    let inner = match argument.value() {
        Value::Regex { pattern, options } => regex_match::field(argument.path, &pattern, &options)?,
        Value::Document(operators) if operators.is_empty() => {
            bail!(BadValue, "$not argument must be a non-empty object");
        }
        Value::Document(operators) => Node::And(parser.deeper()?.field_operators(argument.path, operators)?),
        _ => bail!(BadValue, "$not argument must be a regex or an object"),
    };
    Ok(Some(Node::Not(Box::new(inner))))
}

/// `$comment`: for logs and profilers; no condition.
pub(super) fn parse_comment(_: &Parser<'_>, _: &Element<'_>) -> Result<Option<Node>> {
    Ok(None)
}

pub(super) fn parse_always_true(_: &Parser<'_>, element: &Element<'_>) -> Result<Option<Node>> {
    require_one(element)?;
    Ok(Some(Node::AlwaysTrue))
}

pub(super) fn parse_always_false(_: &Parser<'_>, element: &Element<'_>) -> Result<Option<Node>> {
    require_one(element)?;
    Ok(Some(Node::AlwaysFalse))
}

fn require_one(element: &Element<'_>) -> Result<()> {
    let name = element.name();
    match integer::parse_integer(name, element.value())? {
        1 => Ok(()),
        _ => Err(err!(FailedToParse, "{name} must be an integer value of 1")),
    }
}

/// `$sampleRate`: matches each document with the given probability.
pub(super) fn parse_sample_rate(_: &Parser<'_>, element: &Element<'_>) -> Result<Option<Node>> {
    let Some(number) = element.value().as_number() else {
        bail!(BadValue, "argument to $sampleRate must be a numeric type");
    };
    let rate = number.to_f64();
    if !(0.0..=1.0).contains(&rate) {
        bail!(BadValue, "numeric argument to $sampleRate must be in [0, 1]");
    }
    Ok(Some(Node::SampleRate(rate)))
}

/// `$ref $id $db`: equality with a part of a database reference.
pub(super) fn parse_reference(_: &Parser<'_>, element: &Element<'_>) -> Result<Option<Node>> {
    comparison::field(&Path::new(element.field_name()), ComparisonOp::Eq, element.value()).map(Some)
}

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

/// Parses `$text`.
///
/// Errors: as [`TextQuery::parse`].
pub(super) fn parse_text(parser: &Parser<'_>, element: &Element<'_>) -> Result<Option<Node>> {
    parser.require_top_level("$text")?;
    Ok(Some(Node::Text(Arc::new(TextQuery::parse(element)?))))
}

impl Matcher {
    /// Whether the filter contains `$text`.
    pub fn searches_text(&self) -> bool {
        self.searches_text
    }

    /// Refuses `$text` for an operation without a text index; `reason` may be empty.
    ///
    /// Errors: IndexNotFound if the filter contains `$text`; the errors of [`text`](Self::text).
    pub fn refuse_text(&self, reason: &dyn std::fmt::Display) -> Result<()> {
        match self.text()? {
            Some(_) => Err(err!(IndexNotFound, "text index required for $text query{reason}")),
            None => Ok(()),
        }
    }

    /// Returns the `$text` of the filter at any depth.
    ///
    /// Errors: BadValue for several `$text`, or for a `$text` that must not match.
    pub fn text(&self) -> Result<Option<&TextQuery>> {
        if !self.searches_text {
            return Ok(None);
        }
        let mut queries = Vec::new();
        collect_texts(&self.root, &mut queries);
        if queries.len() > 1 {
            bail!(BadValue, "Too many text expressions");
        }
        let within = |node: &Node| node.any(&|node| matches!(node, Node::Text(_)));
        if self.root.any(&|node| matches!(node, Node::Nor(_) | Node::Not(_)) && within(node)) {
            bail!(BadValue, "text expression not allowed in nor");
        }
        Ok(queries.pop())
    }

    /// Returns the filter for documents that the text index did not find, for `$text` within `$or`.
    pub fn without_text(&self) -> Matcher {
        let (root, collation) = (self.root.clone(), self.collation.clone());
        Matcher { root, collation, searches_text: true, text_found: false }
    }
}

fn collect_texts<'n>(node: &'n Node, queries: &mut Vec<&'n TextQuery>) {
    if let Node::Text(query) = node {
        queries.push(query);
    }
    node.children().iter().for_each(|child| collect_texts(child, queries));
}

/// `$where`: MongoDB's error when it runs without JavaScript.
pub(super) fn parse_where(_: &Parser<'_>, _: &Element<'_>) -> Result<Option<Node>> {
    Err(err!(BadValue, "$where is not supported: no globalScriptEngine in $where parsing"))
}
