//! `$bit`: and, or, xor on integers, in sequence.
//!
//! ```text
//! {$bit: {<path>: {and | or | xor: <integer>, …}}}
//! ```

use super::{Change, Operator};
use crate::Context;
use crate::update::apply::FieldContext;
use base::bson::{Element, Number, Value};
use base::{Result, bail, err};
use std::sync::Arc;

/// A bitwise operation.
type Operation = fn(i64, i64) -> i64;

/// A parsed `$bit` with its operations in order.
#[derive(Debug)]
struct Bit {
    operations: Vec<(Operation, Number)>,
}

/// Parses the operations in order. Errors: BadValue.
pub(super) fn parse(argument: &Element<'_>, _context: &Context) -> Result<Arc<dyn Operator>> {
    let Value::Document(arguments) = argument.value() else {
        bail!(
            BadValue,
            "The $bit modifier is not compatible with a {}. You must pass in an embedded document: {{$bit: \
             {{field: {{and/or/xor: #}}}}",
            argument.kind().alias()
        );
    };
    let operations = arguments.iter().map(|part| parse_operation(&part)).collect::<Result<Vec<_>>>()?;
    if operations.is_empty() {
        bail!(
            BadValue,
            "You must pass in at least one bitwise operation. The format is: {{$bit: {{field: {{and/or/xor: \
             #}}}}"
        );
    }
    Ok(Arc::new(Bit { operations }))
}

/// Parses one operation with an int32 or int64.
fn parse_operation(part: &Element<'_>) -> Result<(Operation, Number)> {
    let operation: Operation = match part.name() {
        "and" => |a, b| a & b,
        "or" => |a, b| a | b,
        "xor" => |a, b| a ^ b,
        other => {
            bail!(
                BadValue,
                "The $bit modifier only supports 'and', 'or', and 'xor', not '{other}' which is an unknown \
                 operator: {{{part}}}"
            );
        }
    };
    match part.value().as_number() {
        Some(number) if number.is_integer() => Ok((operation, number)),
        _ => Err(err!(
            BadValue,
            "The $bit modifier field must be an Integer(32/64 bit); a '{}' is not supported here: {{{part}}}",
            part.kind().alias()
        )),
    }
}

impl Bit {
    fn compute(&self, start: Number) -> Value<'static> {
        let mut wide = matches!(start, Number::Int64(_));
        let mut bits = start.to_i64_clamped();
        for (operation, operand) in &self.operations {
            wide |= matches!(operand, Number::Int64(_));
            bits = operation(bits, operand.to_i64_clamped());
        }
        match i32::try_from(bits) {
            Ok(narrow) if !wide => Value::Int32(narrow),
            _ => Value::Int64(bits),
        }
    }
}

impl Operator for Bit {
    fn existing<'v>(&'v self, value: Value<'v>, field: &FieldContext<'v>) -> Result<Change<'v>> {
        match value.as_number().filter(|number| number.is_integer()) {
            Some(number) => Ok(Change::Value(self.compute(number))),
            None => Err(err!(
                BadValue,
                "Cannot apply $bit to a value of non-integral type.{{{}}} has the field {} of non-integer type {}",
                field.id_text(),
                field.name,
                value.kind().alias()
            )),
        }
    }

    fn missing<'v>(&'v self, _field: &FieldContext<'v>) -> Result<Change<'v>> {
        Ok(Change::Value(self.compute(Number::Int32(0))))
    }

    fn creates(&self, _field: &FieldContext<'_>) -> Result<bool> {
        Ok(true)
    }
}
