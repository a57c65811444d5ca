//! `$currentDate`: the operation's time as a date or a timestamp.
//!
//! ```text
//! {$currentDate: {<path>: true}}
//! {$currentDate: {<path>: {$type: "date" | "timestamp"}}}
//! ```

use super::{Change, Operator};
use crate::Context;
use crate::update::apply::FieldContext;
use base::bson::{Document, Element, Value};
use base::{Result, bail, err};
use std::sync::Arc;

/// A parsed `$currentDate`.
#[derive(Debug)]
struct CurrentDate {
    as_timestamp: bool,
}

/// Parses a boolean, which means a date, or a `$type`. Errors: BadValue.
pub(super) fn parse(argument: &Element<'_>, _context: &Context) -> Result<Arc<dyn Operator>> {
    let as_timestamp = match argument.value() {
        // False means true, as in MongoDB.
        Value::Boolean(_) => false,
        Value::Document(options) => wants_timestamp(options)?,
        other => {
            bail!(
                BadValue,
                "{} is not valid type for $currentDate. Please use a boolean ('true') or a $type expression \
                 ({{$type: 'timestamp/date'}}).",
                other.kind().alias()
            );
        }
    };
    Ok(Arc::new(CurrentDate { as_timestamp }))
}

/// Parses `$type`: `date` or `timestamp`. Errors: BadValue.
fn wants_timestamp(options: Document<'_>) -> Result<bool> {
    let mut type_name = None;
    for option in options {
        if option.name() != "$type" {
            bail!(BadValue, "Unrecognized $currentDate option: {}", option.name());
        }
        type_name = option.value().as_str();
    }
    match type_name {
        Some("date") => Ok(false),
        Some("timestamp") => Ok(true),
        _ => Err(err!(
            BadValue,
            "The '$type' string field is required to be 'date' or 'timestamp': {{$currentDate: {{field : \
             {{$type: 'date'}}}}}}"
        )),
    }
}

impl CurrentDate {
    fn now(&self, field: &FieldContext<'_>) -> Value<'static> {
        if self.as_timestamp {
            Value::Timestamp(super::super::timestamp(field.context))
        } else {
            Value::DateTime(field.context.now_millis)
        }
    }
}

impl Operator for CurrentDate {
    fn existing<'v>(&'v self, _value: Value<'v>, field: &FieldContext<'v>) -> Result<Change<'v>> {
        Ok(Change::Value(self.now(field)))
    }

    fn missing<'v>(&'v self, field: &FieldContext<'v>) -> Result<Change<'v>> {
        Ok(Change::Value(self.now(field)))
    }

    fn creates(&self, _field: &FieldContext<'_>) -> Result<bool> {
        Ok(true)
    }
}
