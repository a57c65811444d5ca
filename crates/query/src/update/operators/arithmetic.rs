//! `$inc` and `$mul`: integers widen to int64 if needed; int64 overflow is an error.
//!
//! ```text
//! {$inc: {<path>: <number>}}    {$mul: {<path>: <number>}}
//! ```

use super::{Change, Operator};
use crate::Context;
use crate::update::apply::FieldContext;
use base::bson::{Element, Number, Value};
use base::{Result, bail, err};
use std::sync::Arc;

/// A parsed `$inc` or `$mul`.
#[derive(Debug)]
struct Arithmetic {
    name: &'static str,
    operand: Number,
    apply: fn(Number, Number) -> Option<Number>,
    /// The value of a missing field.
    initial: Number,
}

pub(super) fn parse_inc(argument: &Element<'_>, _context: &Context) -> Result<Arc<dyn Operator>> {
    let operand = number(argument, "increment")?;
    Ok(Arc::new(Arithmetic { name: "$inc", operand, apply: Number::add_checked, initial: operand }))
}

pub(super) fn parse_mul(argument: &Element<'_>, _context: &Context) -> Result<Arc<dyn Operator>> {
    let operand = number(argument, "multiply")?;
    let initial = Number::Int32(0).times(operand);
    Ok(Arc::new(Arithmetic { name: "$mul", operand, apply: Number::multiply_checked, initial }))
}

fn number(argument: &Element<'_>, verb: &str) -> Result<Number> {
    let value = argument.value();
    value
        .as_number()
        .ok_or_else(|| err!(TypeMismatch, "Cannot {verb} with non-numeric argument: {{{argument}}}"))
}

impl Operator for Arithmetic {
    fn existing<'v>(&'v self, value: Value<'v>, field: &FieldContext<'v>) -> Result<Change<'v>> {
        let Some(current) = value.as_number() else {
            bail!(
                TypeMismatch,
                "Cannot apply {} to a value of non-numeric type. {{{}}} has the field '{}' of non-numeric type {}",
                self.name,
                field.id_text(),
                field.name,
                value.kind().alias()
            );
        };
        match (self.apply)(current, self.operand) {
            // An operation without effect keeps even a negative zero.
            Some(result) if result.same_type(current) && result.compare(current).is_eq() => Ok(Change::Keep),
            Some(result) => Ok(Change::Value(result.into())),
            None => Err(err!(
                BadValue,
                "Failed to apply {} operations to current value ({}{value}) for document {{{}}}",
                self.name,
                type_text(current),
                field.id_text()
            )),
        }
    }

    fn missing<'v>(&'v self, _field: &FieldContext<'v>) -> Result<Change<'v>> {
        Ok(Change::Value(self.initial.into()))
    }

    fn creates(&self, _field: &FieldContext<'_>) -> Result<bool> {
        Ok(true)
    }
}

fn type_text(number: Number) -> &'static str {
    match number {
        Number::Int32(_) => "(NumberInt)",
        Number::Int64(_) => "(NumberLong)",
        Number::Double(_) => "(NumberDouble)",
        Number::Decimal128(_) => "(NumberDecimal)",
    }
}
