//! `$abs $ceil $floor $round $trunc`: integers keep their type; `$round` rounds half to even.

use super::super::evaluate::{Call, Computed, null, number};
use super::super::show;
use super::{non_null, numeric_operand};
use base::bson::{Decimal128, DecimalParts, Number, Rounding, Value};
use base::{Result, bail, err};

/// `$abs`. Errors: 28765 for a value that is not a number, 28680 for the smallest int64.
pub(in super::super) fn abs<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let Some(operand) = numeric_operand(call)? else { return null() };
    number(match operand {
        Number::Int32(value) => value.checked_abs().map_or(Number::Int64(-i64::from(value)), Number::Int32),
        Number::Int64(value) => {
            Number::Int64(value.checked_abs().ok_or_else(|| err!(28680, "can't take $abs of long long min"))?)
        }
        Number::Double(value) => Number::Double(value.abs()),
        Number::Decimal128(value) => Number::Decimal128(value.abs()),
    })
}

/// `$ceil`. Errors: 28765 for a value that is not a number.
pub(in super::super) fn ceil<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let Some(operand) = numeric_operand(call)? else { return null() };
    number(to_integral(operand, f64::ceil, Rounding::Ceiling))
}

/// `$floor`. Errors: 28765 for a value that is not a number.
pub(in super::super) fn floor<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let Some(operand) = numeric_operand(call)? else { return null() };
    number(to_integral(operand, f64::floor, Rounding::Floor))
}

fn to_integral(operand: Number, doubles: fn(f64) -> f64, rounding: Rounding) -> Number {
    match operand {
        Number::Double(value) => Number::Double(doubles(value)),
        Number::Decimal128(value) => Number::Decimal128(value.quantize(0, rounding)),
        integer => integer,
    }
}

/// Evaluates `$round` and `$trunc`. Errors: 51081 for a value that is not a number, 16004, 51082 and 51083 for the
/// places, 51080 for an int64 overflow.
pub(in super::super) fn places<'a>(call: &Call<'_, 'a>, rounding: Rounding) -> Computed<'a> {
    let Some(operand) = non_null(call.get(0)?) else { return null() };
    let Some(value) = operand.as_number() else {
        let found = operand.kind().alias();
        bail!(51081, "{} only supports numeric types, not {found}", call.name());
    };
    let places = if call.len() > 1 {
        let Some(precision) = non_null(call.get(1)?) else { return null() };
        read_places(call.name(), precision)?
    } else {
        0
    };
    match value {
        Number::Decimal128(value) => number(Number::Decimal128(round_to_places(value, places, rounding))),
        Number::Double(value) => number(Number::Double(round_double(value, places, rounding))),
        integer if places >= 0 => number(integer),
        integer => round_integer(integer, places, rounding).map_or_else(
            || {
                Err(err!(
                    51080,
                    "invalid conversion from Decimal128 result in {} resulting from arguments: [{}, {places}]",
                    call.name(),
                    show::value(operand)
                ))
            },
            number,
        ),
    }
}

/// Reads the number of places. Errors: 16004 for a value that is not a number, 51082 unless integral, 51083 outside -20
/// to 100.
fn read_places(name: &str, precision: Value<'_>) -> Result<i32> {
    if precision.as_number().is_none() {
        bail!(16004, "can't convert from BSON type {} to long", precision.kind().alias());
    }
    let Some(places) = super::divide::as_int32(precision) else {
        bail!(51082, "precision argument to  {name} must be a integral value");
    };
    if !(-20..=100).contains(&places) {
        bail!(51083, "cannot apply {name} with precision value {places} value must be in [-20, 100]");
    }
    Ok(places)
}

fn round_double(value: f64, places: i32, rounding: Rounding) -> f64 {
    if !value.is_finite() {
        return value;
    }
    // The conversion to decimal makes 2.675 round by its exact digits.
    round_to_places(Decimal128::from_f64_exact(value), places, rounding).to_f64()
}

fn round_integer(value: Number, places: i32, rounding: Rounding) -> Option<Number> {
    let rounded = round_to_places(value.to_decimal(), places, rounding);
    let wide = rounded.to_i64_exact()?;
    Some(match (value, i32::try_from(wide)) {
        (Number::Int32(_), Ok(narrow)) => Number::Int32(narrow),
        _ => Number::Int64(wide),
    })
}

/// Maximum number of digits of a decimal.
const DIGITS_MAX: u32 = 34;

/// Rounds to `places` decimal places, or to as many as fit into 34 digits.
pub(crate) fn round_to_places(value: Decimal128, places: i32, rounding: Rounding) -> Decimal128 {
    let rounded = value.quantize(-places, rounding);
    if !rounded.is_nan() {
        return rounded;
    }
    let DecimalParts::Finite { coefficient, exponent, .. } = value.parts() else { return value };
    let digits = coefficient.checked_ilog10().map_or(1, |log| log + 1);
    let spare_digits = i32::try_from(DIGITS_MAX.saturating_sub(digits)).unwrap_or(0);
    let padded = value.quantize(exponent - spare_digits, rounding);
    if padded.is_nan() { value } else { padded }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{check, check_error};

    #[test]
    fn integers_stay() {
        check("{$abs: '$a'}", "{a: -2147483648}", "NumberLong('2147483648')");
        check("{$abs: -1.5}", "{}", "1.5");
        check("{$ceil: 7}", "{}", "7");
        check("{$ceil: -1.5}", "{}", "-1.0");
        check("{$floor: NumberDecimal('-1.5')}", "{}", "NumberDecimal('-2')");
        check("{$floor: null}", "{}", "null");
        check_error("{$abs: 'x'}", "{}", 28765);
        check_error("{$abs: NumberLong('-9223372036854775808')}", "{}", 28680);
    }

    #[test]
    fn rounding_is_half_to_even_at_any_place() {
        check("{$round: 2.5}", "{}", "2.0");
        check("{$round: 3.5}", "{}", "4.0");
        check("{$round: [1.25, 1]}", "{}", "1.2");
        check("{$round: [1234, -2]}", "{}", "1200");
        check("{$round: [1250, -2]}", "{}", "1200");
        check("{$round: [-5, -1]}", "{}", "0");
        check("{$trunc: [1.29, 1]}", "{}", "1.2");
        check("{$trunc: -1.9}", "{}", "-1.0");
        check("{$round: [NumberDecimal('1.115'), 2]}", "{}", "NumberDecimal('1.12')");
        check("{$round: [1e300, 2]}", "{}", "1e300");
        check("{$round: [1, null]}", "{}", "null");
        check_error("{$round: 'x'}", "{}", 51081);
        check_error("{$round: [1, 'x']}", "{}", 16004);
        check_error("{$round: [1, 1.5]}", "{}", 51082);
        check_error("{$round: [1, 101]}", "{}", 51083);
        check_error("{$round: [NumberLong('9223372036854775806'), -1]}", "{}", 51080);
    }
}
