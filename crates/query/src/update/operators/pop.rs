//! `$pop`: removes the last (1) or first (-1) element of an array.
//!
//! ```text
//! {$pop: {<path>: 1 | -1}}
//! ```

use super::{Change, Operator};
use crate::Context;
use crate::update::apply::FieldContext;
use base::bson::{Element, Value};
use base::{Result, bail, err};
use std::sync::Arc;

/// A parsed `$pop`.
#[derive(Debug)]
struct Pop {
    first: bool,
}

/// Parses 1 (the last element) or -1 (the first). Errors: FailedToParse.
pub(super) fn parse(argument: &Element<'_>, _context: &Context) -> Result<Arc<dyn Operator>> {
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
