//! `$pull` and `$pullAll`: remove matching elements of an array.
//!
//! ```text
//! {$pull: {<path>: <value> | <filter> | {<operator>: <argument>}}}
//! {$pullAll: {<path>: [<value>, …]}}
//! ```

use super::{Change, Operator};
use crate::Context;
use crate::Matcher;
use crate::update::apply::FieldContext;
use base::bson::{Builder, Document, DocumentBuf, Element, FieldName, Value, ValueBuf};
use base::{Result, bail};
use std::sync::Arc;

/// Selects the elements to remove.
#[derive(Debug)]
enum Pull {
    /// Elements that equal one of these values, which are sorted.
    Values(Vec<ValueBuf>),
    /// Documents that match a filter.
    Documents(Matcher),
    /// Values that satisfy operators.
    Predicate(Matcher),
}

/// The name that represents the value in the filter of a predicate.
const WRAPPED: &str = "v";

/// Parses `$pull`: a filter of documents, operators or a pattern on values, or a value.
pub(super) fn parse(argument: &Element<'_>, context: &Context) -> Result<Arc<dyn Operator>> {
    let value = argument.value();
    let pull = match value {
        Value::Document(filter) if !is_predicate(filter) => {
            Pull::Documents(Matcher::parse_plain(filter, context)?)
        }
        Value::Document(_) | Value::Regex { .. } => {
            Pull::Predicate(Matcher::parse(wrap(value).view(), context)?)
        }
        other => Pull::Values(vec![other.to_owned()]),
    };
    Ok(Arc::new(pull))
}

/// Parses `$pullAll`. The values are sorted for binary search. Errors: BadValue unless it is an array.
pub(super) fn parse_all(argument: &Element<'_>, context: &Context) -> Result<Arc<dyn Operator>> {
    let Value::Array(values) = argument.value() else {
        bail!(BadValue, "$pullAll requires an array argument but was given a {}", argument.kind().alias());
    };
    let mut values: Vec<ValueBuf> = values.iter().map(|value| value.to_owned()).collect();
    values.sort_by(|a, b| context.collation.compare(a.view(), b.view()));
    Ok(Arc::new(Pull::Values(values)))
}

/// Whether a document contains operators on the element itself, rather than a filter of documents.
fn is_predicate(filter: Document<'_>) -> bool {
    let top_level = ["$and", "$or", "$nor", "$expr", "$where", "$jsonSchema", "$comment", "$text"];
    filter.first().is_some_and(|first| first.name().starts_with('$') && !top_level.contains(&first.name()))
}

fn wrap(value: Value<'_>) -> DocumentBuf {
    let mut builder = Builder::new();
    builder.append(FieldName::literal(WRAPPED), value);
    builder.finish()
}

impl Pull {
    /// Whether an element is removed.
    fn matches(&self, value: Value<'_>, context: &Context) -> Result<bool> {
        match self {
            Pull::Values(values) => {
                Ok(values.binary_search_by(|other| context.collation.compare(other.view(), value)).is_ok())
            }
            Pull::Documents(matcher) => match value {
                Value::Document(document) => matcher.matches(document, context),
                _ => Ok(false),
            },
            Pull::Predicate(matcher) => matcher.matches_value(value, context),
        }
    }
}

impl Operator for Pull {
    fn existing<'v>(&'v self, value: Value<'v>, field: &FieldContext<'v>) -> Result<Change<'v>> {
        let Value::Array(array) = value else {
            bail!(BadValue, "Cannot apply $pull to a non-array value");
        };
        let mut remaining = Vec::new();
        let mut pulled = false;
        for (position, element) in array.iter().enumerate() {
            field.check_at_intervals(position)?;
            if self.matches(element, field.context)? {
                pulled = true;
            } else {
                remaining.push(element);
            }
        }
        Ok(if pulled { Change::Array(remaining) } else { Change::Keep })
    }
}
