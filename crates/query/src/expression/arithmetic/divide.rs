//! `$divide` and `$mod`.

use super::super::evaluate::{Call, Computed, null, number};
use super::non_null;
use base::bson::{Number, Value};
use base::{Result, bail, err};

/// `$divide`: a double, or a decimal if either operand is one; never an integer.
///
/// Errors: 2 for a zero divisor, 14 for a value that is not a number.
pub(in super::super) fn divide<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let (Some(left), Some(right)) = (non_null(call.get(0)?), non_null(call.get(1)?)) else { return null() };
    number(quotient(left, right)?)
}

/// Returns a quotient as `$divide` does, of operands that are not null.
///
/// Errors: 2 for a zero divisor, 14 for a value that is not a number.
pub(crate) fn quotient(left: Value<'_>, right: Value<'_>) -> Result<Number> {
    let (Some(a), Some(b)) = (left.as_number(), right.as_number()) else {
        bail!(
            TypeMismatch,
            "$divide only supports numeric types, not {} and {}",
            left.kind().alias(),
            right.kind().alias()
        );
    };
    if b.is_zero() {
        bail!(BadValue, "can't $divide by zero");
    }
    if a.is_decimal() || b.is_decimal() {
        return Ok(Number::Decimal128(a.to_decimal().divided_by(b.to_decimal())));
    }
    Ok(Number::Double(a.to_f64() / b.to_f64()))
}

/// `$mod`: the remainder with the sign of the dividend. The result is a double if an operand is a double.
///
/// Errors: 16611 for a value that is not a number. 16610 for a zero divisor, 5733415 if either operand is a decimal.
pub(in super::super) fn modulo<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let (Some(left), Some(right)) = (non_null(call.get(0)?), non_null(call.get(1)?)) else { return null() };
    let (Some(a), Some(b)) = (left.as_number(), right.as_number()) else {
        bail!(
            16611,
            "$mod only supports numeric types, not {} and {}",
            left.kind().alias(),
            right.kind().alias()
        );
    };
    if b.is_zero() {
        return Err(match a.is_decimal() || b.is_decimal() {
            true => err!(5733415, "can't $mod by zero"),
            false => err!(16610, "can't $mod by zero"),
        });
    }
    number(remainder(a, b))
}

/// Returns the remainder in the widest type of the operands. The least integer modulo -1 is 0 without overflow.
fn remainder(a: Number, b: Number) -> Number {
    if a.is_decimal() || b.is_decimal() {
        return Number::Decimal128(a.to_decimal().remainder(b.to_decimal()));
    }
    match (a, b) {
        (Number::Int32(a), Number::Int32(b)) => Number::Int32(a.wrapping_rem(b)),
        (Number::Int32(_) | Number::Int64(_), Number::Int32(_) | Number::Int64(_)) => {
            Number::Int64(a.to_i64_clamped().wrapping_rem(b.to_i64_clamped()))
        }
        (a, b) => Number::Double(a.to_f64() % b.to_f64()),
    }
}

/// The number as an int32, if its value is one.
fn small_integer(number: Number) -> Option<i32> {
    number.to_i64_exact().and_then(|value| i32::try_from(value).ok())
}

/// The value as an int32, if it is integral. Many operators read positions this way.
pub(in super::super) fn as_int32(value: Value<'_>) -> Option<i32> {
    value.as_number().and_then(small_integer)
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{check, check_error};

    #[test]
    fn quotients_are_doubles() {
        check("{$divide: [6, 3]}", "{}", "2.0");
        check("{$divide: [1, '$a']}", "{a: null}", "null");
        check("{$divide: [NumberDecimal('1'), 4]}", "{}", "NumberDecimal('0.25')");
        check_error("{$divide: [1, '$a']}", "{a: 0}", 2);
        check_error("{$divide: ['x', 1]}", "{}", 14);
    }

    #[test]
    fn remainders_keep_the_sign_of_the_dividend() {
        check("{$mod: [-7, 3]}", "{}", "-1");
        check("{$mod: [7, 2.5]}", "{}", "2.0");
        check("{$mod: [7, 3.0]}", "{}", "1.0");
        check("{$mod: [7.5, 2]}", "{}", "1.5");
        check("{$mod: [7, NumberLong(3)]}", "{}", "NumberLong(1)");
        check("{$mod: [NumberLong('-9223372036854775808'), -1]}", "{}", "NumberLong(0)");
        check("{$mod: [NumberDecimal('7.5'), 2]}", "{}", "NumberDecimal('1.5')");
        check_error("{$mod: [1, 0.0]}", "{}", 16610);
        check_error("{$mod: [1, NumberDecimal('0')]}", "{}", 5733415);
        check_error("{$mod: [1, 'a']}", "{}", 16611);
    }
}
