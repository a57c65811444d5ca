//! `$unset`: removes the field; the argument is ignored.

use super::{Change, Operator};
use crate::Context;
use crate::update::apply::FieldContext;
use base::Result;
use base::bson::{Element, Value};
use std::sync::Arc;

/// Removes a field; also the source side of a `$rename`.
#[derive(Debug)]
pub(super) struct Unset;

pub(super) fn parse(_argument: &Element<'_>, _context: &Context) -> Result<Arc<dyn Operator>> {
    Ok(Arc::new(Unset))
}

impl Operator for Unset {
    fn existing<'v>(&'v self, _value: Value<'v>, _field: &FieldContext<'v>) -> Result<Change<'v>> {
        Ok(Change::Remove)
    }
}
