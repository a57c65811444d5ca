//! `$addToSet`: appends the values that an array does not contain yet. Numbers of different types are equal if their
//! values are.
//!
//! ```text
//! {$addToSet: {<path>: <value>}}
//! {$addToSet: {<path>: {$each: [<value>, …]}}}
//! ```

use super::{Change, Operator, depth};
use crate::element_order::Ordered;
use crate::update::apply::FieldContext;
use crate::{Collation, Context};
use base::bson::{Array, Element, Value, ValueBuf};
use base::{Result, bail};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A parsed `$addToSet` with its distinct values.
#[derive(Debug)]
struct AddToSet {
    values: Vec<ValueBuf>,
}

/// Parses a value, or `$each` with several values, whose duplicates are removed.
pub(super) fn parse(argument: &Element<'_>, context: &Context) -> Result<Arc<dyn Operator>> {
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
