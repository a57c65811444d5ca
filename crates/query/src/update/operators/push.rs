//! `$push`: inserts values into an array, with `$each`, `$position`, `$sort` and `$slice` in that order.
//!
//! ```text
//! {$push: {<path>: <value>}}
//! {$push: {<path>: {
//!     $each: [<value>, …],
//!     $position: <integer>,                   optional: the end by default
//!     $sort: 1 | -1 | {<path>: 1 | -1, …},    optional
//!     $slice: <integer>,                      optional: negative values keep the last elements
//! }}}
//! ```

use super::{Change, Operator, depth};
use crate::element_order::ElementOrder;
use crate::update::apply::FieldContext;
use crate::{Collation, Context};
use base::bson::{Document, Element, Value, ValueBuf};
use base::{Result, bail, err};
use std::sync::Arc;

/// A parsed `$push`.
#[derive(Debug, Default)]
struct Push {
    values: Vec<ValueBuf>,
    position: Option<i64>,
    sort: Option<ElementOrder>,
    slice: Option<i64>,
}

pub(super) fn parse(argument: &Element<'_>, _context: &Context) -> Result<Arc<dyn Operator>> {
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
