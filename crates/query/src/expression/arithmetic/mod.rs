//! Arithmetic: sums and products. Submodules hold division, rounding and powers.
//!
//! An int32 overflow becomes int64, an int64 overflow double. A decimal operand makes the result a decimal.

pub(super) mod divide;
pub(super) mod power;
pub(super) mod rounding;
#[cfg(test)]
mod testing;
pub(super) mod trigonometry;

use super::evaluate::{Call, Computed, null, number, type_name, value};
use base::bson::{Number, Rounding, Value};
use base::{Error, Result, bail, err};

/// `$add`: the sum of numbers from left to right, in the widest type so far. With one date operand, the result is the
/// date plus milliseconds.
///
/// Errors: 14 for other types, 16612 for a second date, Overflow for a date out of range.
pub(super) fn add<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let mut sum = Number::Int64(0);
    let (mut date, mut wide) = (None, false);
    for operand in call.values() {
        let Some(operand) = non_null(operand?) else { return null() };
        match (operand, operand.as_number()) {
            (Value::DateTime(_), _) if date.is_some() => {
                bail!(16612, "only one date allowed in an $add expression")
            }
            (Value::DateTime(millis), _) => date = to_millis(sum)?.checked_add(millis),
            (other, None) => {
                bail!(TypeMismatch, "$add only supports numeric or date types, not {}", other.kind())
            }
            (_, Some(number)) => match date {
                // Each number is rounded to milliseconds.
                Some(millis) => date = to_millis(number)?.checked_add(millis),
                None => {
                    wide |= !matches!(number, Number::Int32(_));
                    sum = sum.plus(number);
                    continue;
                }
            },
        }
        if date.is_none() {
            return Err(date_overflow());
        }
    }
    match (date, sum) {
        (Some(date), _) => value(Value::DateTime(date)),
        (None, Number::Int64(integer)) if !wide => number(i32::try_from(integer).map_or(sum, Number::Int32)),
        (None, _) => number(sum),
    }
}

/// `$subtract`: the difference of numbers, a date minus milliseconds, or the milliseconds between dates.
///
/// Errors: 14 for other types, Overflow for a date out of range.
pub(super) fn subtract<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let (left, right) = (call.get(0)?, call.get(1)?);
    let (Some(left), Some(right)) = (non_null(left), non_null(right)) else { return null() };
    value(difference(left, right)?)
}

/// Returns a difference as `$subtract` does, of operands that are not null.
///
/// Errors: 14 for other types, Overflow for a date out of range.
pub(crate) fn difference(left: Value<'_>, right: Value<'_>) -> Result<Value<'static>> {
    if let (Some(a), Some(b)) = (left.as_number(), right.as_number()) {
        return Ok(Value::from(a.minus(b)));
    }
    match (left, right, right.as_number()) {
        (Value::DateTime(a), Value::DateTime(b), _) => {
            a.checked_sub(b).map(Value::Int64).ok_or_else(date_overflow)
        }
        (Value::DateTime(a), _, Some(millis)) => {
            a.checked_sub(to_millis(millis)?).map(Value::DateTime).ok_or_else(date_overflow)
        }
        _ => {
            let from = if let Value::DateTime(_) = left { "Date" } else { left.kind().alias() };
            Err(err!(TypeMismatch, "can't $subtract {} from {from}", right.kind().alias()))
        }
    }
}

/// `$multiply`: the product; 1 without operands.
///
/// Errors: 14 for a value that is not a number.
pub(super) fn multiply<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let mut product = Number::Int32(1);
    for operand in call.values() {
        let Some(operand) = non_null(operand?) else { return null() };
        let factor = operand.as_number().ok_or_else(|| only_numbers("$multiply", Some(operand)))?;
        product = product.times(factor);
    }
    number(product)
}

/// Returns the single operand of a numeric function; `None` if it is null or missing.
///
/// Errors: 28765 for a value that is not a number.
fn numeric_operand(call: &Call<'_, '_>) -> Result<Option<Number>> {
    let Some(operand) = call.get_non_null(0)? else { return Ok(None) };
    let found = operand.kind().alias();
    operand
        .as_number()
        .map(Some)
        .ok_or_else(|| err!(28765, "{} only supports numeric types, not {found}", call.name()))
}

fn non_null(value: Option<Value<'_>>) -> Option<Value<'_>> {
    value.filter(|value| !value.is_nullish())
}

fn only_numbers(name: &str, found: Option<Value<'_>>) -> Error {
    err!(TypeMismatch, "{name} only supports numeric types, not {}", type_name(found))
}

fn date_overflow() -> Error {
    err!(Overflow, "date overflow")
}

/// Rounds a number to whole milliseconds.
///
/// Errors: Overflow for NaN and values out of range.
fn to_millis(number: Number) -> Result<i64> {
    let rounded = match number {
        Number::Double(value) => Number::Double(value.round()),
        Number::Decimal128(value) => Number::Decimal128(value.round_to_integer(Rounding::HalfEven)),
        integer => integer,
    };
    rounded.to_i64_exact().ok_or_else(date_overflow)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, check_error};

    #[test]
    fn sums() {
        check("{$add: [1, '$a']}", "{a: 2}", "3");
        check("{$add: []}", "{}", "0");
        check("{$add: [2147483647, 1]}", "{}", "NumberLong('2147483648')");
        check("{$add: [NumberLong('9223372036854775807'), 1]}", "{}", "9223372036854775808.0");
        check(
            "{$add: [NumberLong('9223372036854775807'), 1, NumberLong('-9223372036854775807')]}",
            "{}",
            "0.0",
        );
        check("{$add: [2147483647, 1, -1]}", "{}", "2147483647");
        check("{$add: [0.1, 0.2, 0.3]}", "{}", "0.6000000000000001");
        check("{$add: [1.0e16, 1, -1.0e16]}", "{}", "0.0");
        check("{$add: [0.1, NumberDecimal('1')]}", "{}", "NumberDecimal('1.100000000000000')");
        check("{$add: [NumberDecimal('0.1'), 1]}", "{}", "NumberDecimal('1.1')");
        check("{$add: [1, null, 'x']}", "{}", "null");
        check(
            "{$add: ['$a', 1000]}",
            "{a: ISODate('2020-01-01T00:00:00Z')}",
            "ISODate('2020-01-01T00:00:01Z')",
        );
        check(
            "{$add: ['$a', -0.5]}",
            "{a: ISODate('2020-01-01T00:00:00Z')}",
            "ISODate('2019-12-31T23:59:59.999Z')",
        );
        let date = "{a: ISODate('2020-01-01T00:00:00Z')}";
        check("{$add: ['$a', 0.4, 0.4]}", date, "ISODate('2020-01-01T00:00:00Z')");
        check("{$add: [0.4, 0.4, '$a']}", date, "ISODate('2020-01-01T00:00:00.001Z')");
        check_error("{$add: ['$a', NumberLong('9223372036854775807')]}", date, 15);
        check_error("{$add: [1, '$a']}", "{a: 'x'}", 14);
        check_error("{$add: ['$a', '$a']}", "{a: ISODate('2020-01-01T00:00:00Z')}", 16612);
    }

    #[test]
    fn differences() {
        check("{$subtract: [5, 7]}", "{}", "-2");
        check("{$subtract: ['$a', null]}", "{a: 1}", "null");
        let dates = "{a: ISODate('2020-01-01T00:00:01Z'), b: ISODate('2020-01-01T00:00:00Z')}";
        check("{$subtract: ['$a', '$b']}", dates, "NumberLong('1000')");
        check("{$subtract: ['$a', 1000]}", dates, "ISODate('2020-01-01T00:00:00Z')");
        check_error("{$subtract: [1, '$a']}", dates, 14);
    }

    #[test]
    fn products() {
        check("{$multiply: []}", "{}", "1");
        check("{$multiply: [65536, 65536]}", "{}", "NumberLong('4294967296')");
        check("{$multiply: [2, 0.5]}", "{}", "1.0");
        check("{$multiply: [2, '$x']}", "{}", "null");
        check_error("{$multiply: [2, '$x']}", "{x: []}", 14);
    }
}
