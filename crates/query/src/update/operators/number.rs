//! Update operators that compute a field's new value from its old one: sums, products, bits, the lesser or greater.
//!
//! ```text
//! {$inc: {<path>: <number>}}    {$mul: {<path>: <number>}}    {$min: {<path>: <value>}}    {$max: {<path>: <value>}}
//! {$bit: {<path>: {and | or | xor: <integer>, …}}}            in sequence
//! ```
//!
//! Integers widen to int64 if needed; int64 overflow is an error. `$min` and `$max` compare in the order of all types.

use super::{Change, Operator, depth};
use crate::Context;
use crate::update::apply::FieldContext;
use base::bson::{Element, Number, Value, ValueBuf};
use base::{Result, bail, err};
use std::cmp::Ordering;
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

/// A bitwise operation.
type Operation = fn(i64, i64) -> i64;

/// A parsed `$bit` with its operations in order.
#[derive(Debug)]
struct Bit {
    operations: Vec<(Operation, Number)>,
}

/// Parses the operations in order. Errors: BadValue.
pub(super) fn parse_bit(argument: &Element<'_>, _context: &Context) -> Result<Arc<dyn Operator>> {
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
