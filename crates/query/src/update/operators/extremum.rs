//! `$min` and `$max`: the field keeps the lesser or the greater value, in the order of all types.
//!
//! ```text
//! {$min: {<path>: <value>}}    {$max: {<path>: <value>}}
//! ```

use super::{Change, Operator, depth};
use crate::Context;
use crate::update::apply::FieldContext;
use base::Result;
use base::bson::{Element, Value, ValueBuf};
use std::cmp::Ordering;
use std::sync::Arc;

/// A parsed `$min` or `$max`.
#[derive(Debug)]
struct Extremum {
    value: ValueBuf,
    /// The order of argument and field in which the argument replaces the field.
    replaces: Ordering,
}

pub(super) fn parse_min(argument: &Element<'_>, _context: &Context) -> Result<Arc<dyn Operator>> {
    Ok(Arc::new(Extremum { value: argument.value().to_owned(), replaces: Ordering::Less }))
}

pub(super) fn parse_max(argument: &Element<'_>, _context: &Context) -> Result<Arc<dyn Operator>> {
    Ok(Arc::new(Extremum { value: argument.value().to_owned(), replaces: Ordering::Greater }))
}

impl Operator for Extremum {
    fn existing<'v>(&'v self, value: Value<'v>, field: &FieldContext<'v>) -> Result<Change<'v>> {
        let argument = self.value.view();
        let order = field.context.collation.compare(argument, value);
        Ok(if order == self.replaces { Change::Value(argument) } else { Change::Keep })
    }

    fn missing<'v>(&'v self, _field: &FieldContext<'v>) -> Result<Change<'v>> {
        Ok(Change::Value(self.value.view()))
    }

    fn creates(&self, _field: &FieldContext<'_>) -> Result<bool> {
        Ok(true)
    }

    fn depth(&self) -> Option<usize> {
        Some(depth(self.value.view()))
    }
}
