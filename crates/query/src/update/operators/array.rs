//! Update operators on arrays.
//!
//! ```text
//! {$addToSet: {<path>: <value> | {$each: [<value>, …]}}}              appends values that the array lacks
//! {$pop: {<path>: 1 | -1}}                                            removes the last or the first element
//! {$pull: {<path>: <value> | <filter> | {<operator>: <argument>}}}    removes matching elements
//! {$pullAll: {<path>: [<value>, …]}}
//! {$push: {<path>: <value>}}
//! {$push: {<path>: {                                                  in the order of these options
//!     $each: [<value>, …],
//!     $position: <integer>,                   optional: the end by default
//!     $sort: 1 | -1 | {<path>: 1 | -1, …},    optional
//!     $slice: <integer>,                      optional: negative values keep the last elements
//! }}}
//! ```

use super::{Change, Operator, depth};
use crate::element_order::{ElementOrder, Ordered};
use crate::update::apply::FieldContext;
use crate::{Collation, Context, Matcher};
use base::bson::{Array, Builder, Document, DocumentBuf, Element, FieldName, Value, ValueBuf};
use base::{Result, bail, err};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A parsed `$addToSet` with its distinct values.
#[derive(Debug)]
struct AddToSet {
    values: Vec<ValueBuf>,
}

/// Parses a value, or `$each` with several values, whose duplicates are removed.
pub(super) fn parse_add_to_set(argument: &Element<'_>, context: &Context) -> Result<Arc<dyn Operator>> {
    let value = argument.value();
    let values = match value.as_document().and_then(|document| document.first()) {
        Some(each) if each.name() == "$each" => {
            distinct(each_values(argument, &each)?.iter(), &context.collation)
        }
        _ => vec![value.to_owned()],
    };
    Ok(Arc::new(AddToSet { values }))
}

/// Returns the array of `$each`, which allows no other fields. Errors: TypeMismatch, BadValue.
fn each_values<'a>(argument: &Element<'a>, each: &Element<'a>) -> Result<Array<'a>> {
    let Value::Array(values) = each.value() else {
        bail!(
            TypeMismatch,
            "The argument to $each in $addToSet must be an array but it was of type {}",
            each.kind().alias()
        );
    };
    if argument.value().as_document().is_some_and(|document| document.iter().count() > 1) {
        bail!(BadValue, "Found unexpected fields after $each in $addToSet: {}", argument.value());
    }
    Ok(values)
}

fn distinct<'v>(values: impl Iterator<Item = Value<'v>>, collation: &Collation) -> Vec<ValueBuf> {
    let mut seen = BTreeSet::new();
    values.filter(|value| seen.insert(Ordered(*value, collation))).map(|value| value.to_owned()).collect()
}

/// Number of values from which sorting the array's elements first is faster.
const MANY: usize = 8;

impl Operator for AddToSet {
    fn existing<'v>(&'v self, value: Value<'v>, field: &FieldContext<'v>) -> Result<Change<'v>> {
        let Value::Array(array) = value else {
            bail!(
                BadValue,
                "Cannot apply $addToSet to non-array field. Field named '{}' has non-array type {}",
                field.name,
                value.kind().alias()
            );
        };
        let collation = &field.context.collation;
        let values = self.values.iter().map(ValueBuf::view);
        let added: Vec<_> = if self.values.len() < MANY {
            values.filter(|value| !array.iter().any(|element| collation.equal(element, *value))).collect()
        } else {
            let elements: BTreeSet<_> = array.iter().map(|element| Ordered(element, collation)).collect();
            values.filter(|value| !elements.contains(&Ordered(*value, collation))).collect()
        };
        Ok(if added.is_empty() { Change::Keep } else { Change::Append(array, added) })
    }

    fn missing<'v>(&'v self, _field: &FieldContext<'v>) -> Result<Change<'v>> {
        Ok(Change::Array(self.values.iter().map(ValueBuf::view).collect()))
    }

    fn creates(&self, _field: &FieldContext<'_>) -> Result<bool> {
        Ok(true)
    }

    fn depth(&self) -> Option<usize> {
        Some(1 + self.values.iter().map(|value| depth(value.view())).max().unwrap_or(0))
    }
}

/// A parsed `$pop`.
#[derive(Debug)]
struct Pop {
    first: bool,
}

/// Parses 1 (the last element) or -1 (the first). Errors: FailedToParse.
pub(super) fn parse_pop(argument: &Element<'_>, _context: &Context) -> Result<Arc<dyn Operator>> {
    let Some(number) = argument.value().as_number() else {
        bail!(FailedToParse, "Expected a number in: {argument}");
    };
    let Some(integer) = number.to_i64_exact() else {
        bail!(FailedToParse, "Expected an integer: {argument}");
    };
    match integer {
        1 => Ok(Arc::new(Pop { first: false })),
        -1 => Ok(Arc::new(Pop { first: true })),
        other => Err(err!(FailedToParse, "$pop expects 1 or -1, found: {other}")),
    }
}

impl Operator for Pop {
    fn existing<'v>(&'v self, value: Value<'v>, field: &FieldContext<'v>) -> Result<Change<'v>> {
        let Value::Array(array) = value else {
            bail!(
                TypeMismatch,
                "Path '{}' contains an element of non-array type '{}'",
                field.path,
                value.kind().alias()
            );
        };
        let mut values: Vec<_> = array.iter().collect();
        if values.is_empty() {
            return Ok(Change::Keep);
        }
        if self.first {
            values.remove(0);
        } else {
            values.pop();
        }
        Ok(Change::Array(values))
    }

    fn checks_path(&self) -> bool {
        true
    }
}

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
pub(super) fn parse_pull(argument: &Element<'_>, context: &Context) -> Result<Arc<dyn Operator>> {
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
pub(super) fn parse_pull_all(argument: &Element<'_>, context: &Context) -> Result<Arc<dyn Operator>> {
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

/// A parsed `$push`.
#[derive(Debug, Default)]
struct Push {
    values: Vec<ValueBuf>,
    position: Option<i64>,
    sort: Option<ElementOrder>,
    slice: Option<i64>,
}

pub(super) fn parse_push(argument: &Element<'_>, _context: &Context) -> Result<Arc<dyn Operator>> {
    let clauses = argument.value().as_document().filter(|clauses| clauses.find("$each").is_some());
    Ok(Arc::new(match clauses {
        Some(clauses) => parse_clauses(clauses)?,
        None => Push { values: vec![argument.value().to_owned()], ..Push::default() },
    }))
}

/// Parses `$each` and its modifiers. Errors: BadValue for an unknown modifier.
fn parse_clauses(clauses: Document<'_>) -> Result<Push> {
    let mut push = Push::default();
    for clause in clauses {
        match clause.name() {
            "$each" => push.values = parse_each(&clause)?,
            "$slice" => push.slice = Some(parse_integer(&clause, "but was given type:")?),
            "$position" => push.position = Some(parse_integer(&clause, "not of type:")?),
            "$sort" => push.sort = Some(ElementOrder::parse(clause.value())?),
            other => bail!(BadValue, "Unrecognized clause in $push: {other}"),
        }
    }
    Ok(push)
}

/// Parses the array of `$each`. Errors: BadValue.
fn parse_each(clause: &Element<'_>) -> Result<Vec<ValueBuf>> {
    let Value::Array(values) = clause.value() else {
        bail!(
            BadValue,
            "The argument to $each in $push must be an array but it was of type: {}",
            clause.kind().alias()
        );
    };
    Ok(values.iter().map(|value| value.to_owned()).collect())
}

/// Parses the integer of `$slice` or `$position`; `but` continues MongoDB's message.
fn parse_integer(clause: &Element<'_>, but: &str) -> Result<i64> {
    let comma = if but.starts_with("not") { "," } else { "" };
    clause.value().as_i64().ok_or_else(|| {
        err!(
            BadValue,
            "The value for {} must be an integer value{comma} {but} {}",
            clause.name(),
            clause.kind().alias()
        )
    })
}

impl Push {
    /// Inserts, sorts and slices. Negative positions and slices count from the end.
    fn pushed<'v>(&'v self, mut array: Vec<Value<'v>>, collation: &Collation) -> Change<'v> {
        let at = match self.position {
            None => array.len(),
            Some(position) if position >= 0 => array.len().min(position as usize),
            Some(from_end) => array.len().saturating_sub(from_end.unsigned_abs() as usize),
        };
        array.splice(at..at, self.values.iter().map(ValueBuf::view));
        if let Some(order) = &self.sort {
            array.sort_by(|a, b| order.compare(*a, *b, collation));
        }
        match self.slice {
            None => {}
            Some(slice) if slice >= 0 => array.truncate(usize::try_from(slice).unwrap_or(usize::MAX)),
            Some(from_end) => {
                let cut = array.len().saturating_sub(from_end.unsigned_abs() as usize);
                array.drain(..cut);
            }
        }
        Change::Array(array)
    }
}

impl Operator for Push {
    fn existing<'v>(&'v self, value: Value<'v>, field: &FieldContext<'v>) -> Result<Change<'v>> {
        let Value::Array(array) = value else {
            bail!(
                BadValue,
                "The field '{}' must be an array but is of type {} in document {{{}}}",
                field.path,
                value.kind().alias(),
                field.id_text()
            );
        };
        let cuts = self.slice.is_some_and(|slice| array.len() as u64 > slice.unsigned_abs());
        if self.values.is_empty() && self.sort.is_none() && !cuts {
            return Ok(Change::Keep);
        }
        if self.position.is_none() && self.sort.is_none() && self.slice.is_none() {
            return Ok(Change::Append(array, self.values.iter().map(ValueBuf::view).collect()));
        }
        Ok(self.pushed(array.iter().collect(), &field.context.collation))
    }

    fn missing<'v>(&'v self, field: &FieldContext<'v>) -> Result<Change<'v>> {
        Ok(self.pushed(Vec::new(), &field.context.collation))
    }

    fn creates(&self, _field: &FieldContext<'_>) -> Result<bool> {
        Ok(true)
    }

    fn appended(&self, length: usize) -> Option<usize> {
        // As in MongoDB, a position at the end, or an empty array, is not logged as appending.
        let behind = self.position.is_none_or(|at| usize::try_from(at).is_ok_and(|at| at > length));
        (behind && self.sort.is_none() && length > 0).then_some(self.values.len())
    }

    fn depth(&self) -> Option<usize> {
        Some(1 + self.values.iter().map(|value| depth(value.view())).max().unwrap_or(0))
    }
}
