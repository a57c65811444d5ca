//! Operators on truth, order and bits.
//!
//! - `$and $or $not`, with short-circuit evaluation
//! - `$eq $ne $lt $lte $gt $gte $cmp`: MongoDB's order across all types; missing sorts first
//! - `$bitAnd $bitOr $bitXor $bitNot` over int32 and int64

use super::evaluate::{Call, Computed, null, value};
use base::bson::Value;
use base::{Result, bail, err};
use std::cmp::Ordering;

/// Whether a value counts as true; a missing value does not.
pub(super) fn truthy(value: Option<Value<'_>>) -> bool {
    value.is_some_and(|value| value.is_truthy())
}

fn any(call: &Call<'_, '_>, truth: bool) -> Result<bool> {
    for operand in call.values() {
        if truthy(operand?) == truth {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(super) fn and<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    value(!any(call, false)?)
}

pub(super) fn or<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    value(any(call, true)?)
}

pub(super) fn not<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    value(!truthy(call.get(0)?))
}

/// Returns the order of the two operands.
pub(super) fn order(call: &Call<'_, '_>) -> Result<Ordering> {
    let (a, b) = (call.get(0)?, call.get(1)?);
    Ok(call.collation().compare_optional(a, b))
}

/// `$cmp`: −1, 0 or 1.
pub(super) fn cmp<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    value(order(call)? as i32)
}

/// Combines the operands; the result is an int64 if any operand is one.
///
/// Errors: 14 for other types.
pub(super) fn combine_bits<'a>(
    call: &Call<'_, 'a>,
    start: i64,
    operation: fn(i64, i64) -> i64,
) -> Computed<'a> {
    let (mut bits, mut wide) = (start, false);
    let mut nullish = false;
    for operand in call.values() {
        bits = match operand? {
            Some(Value::Int32(operand)) => operation(bits, i64::from(operand)),
            Some(Value::Int64(operand)) => {
                wide = true;
                operation(bits, operand)
            }
            None | Some(Value::Null | Value::Undefined) => {
                nullish = true;
                bits
            }
            Some(_) => {
                bail!(TypeMismatch, "{} only supports int and long operands.", call.name());
            }
        };
    }
    match (nullish, wide) {
        (true, _) => null(),
        (false, true) => value(bits),
        // Sign extension keeps int32 operands within int32.
        (false, false) => value(bits as i32),
    }
}

/// `$bitNot`. Errors: 14 for other types.
pub(super) fn bit_not<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    match call.get_non_null(0)? {
        None => null(),
        Some(Value::Int32(operand)) => value(!operand),
        Some(Value::Int64(operand)) => value(!operand),
        Some(other) => Err(err!(TypeMismatch, "$bitNot only supports int and long, not: {}.", other.kind())),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, check_error, check_parse_error};

    #[test]
    fn the_first_deciding_operand_ends_it() {
        check("{$and: []}", "{}", "true");
        check("{$or: []}", "{}", "false");
        check("{$and: ['$a', {$divide: ['$b', 0]}]}", "{a: 0, b: 1}", "false");
        check("{$or: ['$a', '$b']}", "{b: []}", "true");
        check("{$not: ['$a']}", "{}", "true");
        check("{$not: '$a'}", "{a: ''}", "false");
        check_parse_error("{$not: [1, 2]}", 16020);
    }

    #[test]
    fn values_compare_across_types() {
        check("{$eq: ['$a', 1.0]}", "{a: 1}", "true");
        check("{$gt: ['$a', 5]}", "{a: 'x'}", "true");
        check("{$lt: ['$missing', null]}", "{}", "true");
        check("{$cmp: ['$a', 2]}", "{a: 1}", "-1");
        check("{$cmp: ['$a', 2]}", "{a: 3}", "1");
        check("{$gte: [[1, 2], [1]]}", "{}", "true");
        check("{$ne: [{a: 1, b: 2}, {b: 2, a: 1}]}", "{}", "true");
        check_parse_error("{$eq: [1]}", 16020);
        check_parse_error("{$lte: 1}", 16020);
    }

    #[test]
    fn bits() {
        check("{$bitAnd: [12, 10]}", "{}", "8");
        check("{$bitOr: [12, NumberLong(3)]}", "{}", "NumberLong(15)");
        check("{$bitXor: []}", "{}", "0");
        check("{$bitAnd: []}", "{}", "-1");
        check("{$bitNot: 0}", "{}", "-1");
        check("{$bitAnd: [1, null]}", "{}", "null");
        check_error("{$bitAnd: [1, 1.5]}", "{}", 14);
        check_error("{$bitNot: 'x'}", "{}", 14);
    }
}
