//! `$and $or $nor`, and `$not` on a field.
//!
//! ```text
//! {$and: [<filter>, …]}    {$or: [<filter>, …]}    {$nor: [<filter>, …]}
//! {<path>: {$not: <regex> | {<operator>: <argument>, …}}}
//! ```

use super::node::Node;
use super::operators::FieldArgument;
use super::parse::Parser;
use super::regex_match;
use base::bson::{Element, Value};
use base::{Result, bail, err};

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
