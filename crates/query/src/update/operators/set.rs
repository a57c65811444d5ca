//! `$set` and `$setOnInsert`: set the field to a value.
//!
//! ```text
//! {$set: {<path>: <value>}}    {$setOnInsert: {<path>: <value>}}
//! ```

use super::{Change, Operator, depth};
use crate::Context;
use crate::update::apply::FieldContext;
use base::Result;
use base::bson::{Element, Value, ValueBuf};
use std::sync::Arc;

/// A parsed `$set` or `$setOnInsert`.
#[derive(Debug)]
struct Set {
    value: ValueBuf,
    only_on_insert: bool,
}

pub(super) fn parse(argument: &Element<'_>, _context: &Context) -> Result<Arc<dyn Operator>> {
    Ok(to(argument.value()))
}

pub(super) fn parse_on_insert(argument: &Element<'_>, _context: &Context) -> Result<Arc<dyn Operator>> {
    Ok(Arc::new(Set { value: argument.value().to_owned(), only_on_insert: true }))
}

/// Returns an operator that sets the field to a value.
pub(crate) fn to(value: Value<'_>) -> Arc<dyn Operator> {
    Arc::new(Set { value: value.to_owned(), only_on_insert: false })
}

impl Operator for Set {
    fn existing<'v>(&'v self, _value: Value<'v>, field: &FieldContext<'v>) -> Result<Change<'v>> {
        Ok(if self.creates(field)? { Change::Value(self.value.view()) } else { Change::Keep })
    }

    fn missing<'v>(&'v self, _field: &FieldContext<'v>) -> Result<Change<'v>> {
        Ok(Change::Value(self.value.view()))
    }

    fn creates(&self, field: &FieldContext<'_>) -> Result<bool> {
        Ok(field.is_insert || !self.only_on_insert)
    }

    fn depth(&self) -> Option<usize> {
        Some(depth(self.value.view()))
    }
}
