//! The order of array elements in `$push` with `$sort` and in `$sortArray`: by whole values or by fields of embedded
//! documents.
//!
//! Unlike in a query's sort, an array-valued field compares as an array, not by its least or greatest element. A value
//! that is not a document has no fields.

use crate::Collation;
use base::bson::{Document, Path, Value};
use base::{Result, bail, err, ordered_by};
use std::cmp::Ordering;

/// A value in the order of a collation.
pub(crate) struct Ordered<'a>(pub(crate) Value<'a>, pub(crate) &'a Collation);

ordered_by!(Ordered<'_>, |one, other| one.1.compare(one.0, other.0));

/// The sort key of the elements.
#[derive(Debug)]
pub(crate) enum ElementOrder {
    Whole(Direction),
    Fields(Vec<(Path, Direction)>),
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Direction {
    Ascending,
    Descending,
}

impl ElementOrder {
    /// Parses 1, -1 or a document of fields.
    ///
    /// Errors: BadValue with the messages of `$push`.
    pub(crate) fn parse(value: Value<'_>) -> Result<ElementOrder> {
        match value {
            Value::Document(fields) => parse_fields(fields).map(ElementOrder::Fields),
            _ => direction(value).map(ElementOrder::Whole).ok_or_else(|| match value.as_number() {
                Some(_) => err!(BadValue, "The $sort element value must be either 1 or -1"),
                None => err!(
                    BadValue,
                    "The $sort is invalid: use 1/-1 to sort the whole element, or {{field:1/-1}} to sort \
                     embedded fields"
                ),
            }),
        }
    }

    /// Compares two elements.
    pub(crate) fn compare(&self, a: Value<'_>, b: Value<'_>, collation: &Collation) -> Ordering {
        let fields = match self {
            ElementOrder::Whole(direction) => return direction.apply(collation.compare(a, b)),
            ElementOrder::Fields(fields) => fields,
        };
        fields
            .iter()
            .map(|(path, direction)| direction.apply(collation.compare(field(a, path), field(b, path))))
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal)
    }
}

/// Parses the fields of a sort document. Errors: BadValue for an empty document, an invalid direction or an invalid
/// path.
fn parse_fields(fields: Document<'_>) -> Result<Vec<(Path, Direction)>> {
    if fields.is_empty() {
        bail!(BadValue, "The $sort pattern is empty when it should be a set of fields.");
    }
    let mut order = Vec::new();
    for field in fields {
        let name = field.name();
        let direction = direction(field.value())
            .ok_or_else(|| err!(BadValue, "The $sort element value must be either 1 or -1"))?;
        if name.is_empty() {
            bail!(BadValue, "The $sort field cannot be empty");
        }
        if name.split('.').any(str::is_empty) {
            bail!(BadValue, "The $sort field is a dotted field but has an empty part: {name}");
        }
        order.push((Path::new(field.field_name()), direction));
    }
    Ok(order)
}

fn direction(value: Value<'_>) -> Option<Direction> {
    match value.as_i64()? {
        1 => Some(Direction::Ascending),
        -1 => Some(Direction::Descending),
        _ => None,
    }
}

impl Direction {
    fn apply(self, order: Ordering) -> Ordering {
        if matches!(self, Direction::Ascending) { order } else { order.reverse() }
    }
}

/// Returns the sort field. A value that is not a document has no fields, and missing sorts as null.
fn field<'v>(value: Value<'v>, path: &Path) -> Value<'v> {
    value.as_document().and_then(|document| path.get(document)).unwrap_or(Value::Null)
}
