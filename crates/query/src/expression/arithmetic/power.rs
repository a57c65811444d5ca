//! `$exp $ln $log $log10 $pow $sigmoid $sqrt`.

use super::super::evaluate::{Call, Computed, null, number, value};
use super::super::node::Node;
use super::super::parse::Parser;
use super::super::show;
use super::super::table::Operator;
use super::{non_null, numeric_operand};
use base::bson::{Decimal128, Number, Value};
use base::{Error, Result, bail, err};
use std::cmp::Ordering;

/// Applies a function of decimals or doubles; integers are converted to doubles.
fn apply<'a>(
    operand: Number,
    doubles: fn(f64) -> f64,
    decimal: fn(Decimal128) -> Decimal128,
) -> Computed<'a> {
    match operand {
        Number::Decimal128(operand) => value(decimal(operand)),
        other => value(doubles(other.to_f64())),
    }
}

/// Converts a decimal NaN to a double: MongoDB's logarithms of NaN are doubles.
fn nan_to_double(operand: Number) -> Number {
    if operand.is_nan() { Number::Double(f64::NAN) } else { operand }
}

/// `$exp`. Errors: 28765 for a value that is not a number.
pub(in super::super) fn exp<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let Some(operand) = numeric_operand(call)? else { return null() };
    apply(operand, f64::exp, Decimal128::exponential)
}

/// Parses `$sigmoid`. Its argument is the operand itself: an array is not a list of operands.
pub(in super::super) fn parse_sigmoid(
    parser: &mut Parser<'_>,
    operator: &'static Operator,
    argument: Value<'_>,
) -> Result<Node> {
    Ok(Node::call(operator, vec![parser.operand(argument)?]))
}

/// `$sigmoid`: 1 / (1 + e^−x). Errors: 14 for a value that is not a number.
pub(in super::super) fn sigmoid<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let Some(operand) = call.get_non_null(0)? else { return null() };
    let Some(operand) = operand.as_number() else {
        bail!(TypeMismatch, "$sigmoid only supports numeric types, not {}", operand.kind());
    };
    let one = Decimal128::from_i64(1);
    match operand {
        Number::Decimal128(x) => {
            let power = Decimal128::from_i64(0).minus(x).exponential();
            value(one.divided_by(one.plus(power)))
        }
        other => value(1.0 / (1.0 + (-other.to_f64()).exp())),
    }
}

/// `$sqrt`. Errors: 28765 for a value that is not a number, 28714 below zero.
pub(in super::super) fn sqrt<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let Some(operand) = numeric_operand(call)? else { return null() };
    if !operand.is_nan() && operand.compare(Number::Int32(0)) == Ordering::Less {
        bail!(28714, "$sqrt's argument must be greater than or equal to 0");
    }
    match operand {
        // The root of a negative zero is negative zero, for decimals as for doubles.
        Number::Decimal128(zero) if zero.is_zero() && zero.is_negative() => value(zero),
        operand => apply(operand, f64::sqrt, Decimal128::square_root),
    }
}

fn positive(number: Number) -> bool {
    number.is_nan() || number.compare(Number::Int32(0)) == Ordering::Greater
}

fn printed(number: Number) -> String {
    show::double(number.to_f64())
}

/// `$ln`. Errors: 28765 for a value that is not a number, 28766 unless positive.
pub(in super::super) fn ln<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let Some(operand) = numeric_operand(call)? else { return null() };
    if !positive(operand) {
        bail!(28766, "$ln's argument must be a positive number, but is {}", printed(operand));
    }
    apply(nan_to_double(operand), f64::ln, Decimal128::natural_logarithm)
}

/// `$log10`. Errors: 28765 for a value that is not a number, 28761 unless positive.
pub(in super::super) fn log10<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let Some(operand) = numeric_operand(call)? else { return null() };
    if !positive(operand) {
        bail!(28761, "$log10's argument must be a positive number, but is {}", printed(operand));
    }
    apply(nan_to_double(operand), f64::log10, Decimal128::logarithm_10)
}

/// `$log`: the logarithm to a base.
///
/// Errors: 28756 and 28757 for a value that is not a number, 28758 unless positive, 28759 for an invalid base.
pub(in super::super) fn log<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let (Some(argument), Some(base)) = (non_null(call.get(0)?), non_null(call.get(1)?)) else {
        return null();
    };
    let x = argument
        .as_number()
        .ok_or_else(|| err!(28756, "$log's argument must be numeric, not {}", argument.kind().alias()))?;
    let b = base
        .as_number()
        .ok_or_else(|| err!(28757, "$log's base must be numeric, not {}", base.kind().alias()))?;
    if !positive(x) {
        bail!(28758, "$log's argument must be a positive number, but is {}", printed(x));
    }
    if !positive(b) || b.compare(Number::Int32(1)) == Ordering::Equal {
        let found = printed(b);
        bail!(28759, "$log's base must be a positive number not equal to 1, but is {found}");
    }
    let is_number = !x.is_nan() && !b.is_nan();
    if is_number && (x.is_decimal() || b.is_decimal()) {
        return value(x.to_decimal().natural_logarithm().divided_by(b.to_decimal().natural_logarithm()));
    }
    value(x.to_f64().ln() / b.to_f64().ln())
}

/// `$pow`: an integer to an integer power is an integer if it fits.
///
/// Errors: 28762 and 28763 for a value that is not a number, 28764 for zero to a negative power.
pub(in super::super) fn pow<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let (Some(base), Some(exponent)) = (non_null(call.get(0)?), non_null(call.get(1)?)) else {
        return null();
    };
    let b = base.as_number().ok_or_else(|| not_numeric(28762, "base", base))?;
    let e = exponent.as_number().ok_or_else(|| not_numeric(28763, "exponent", exponent))?;
    if b.is_zero() && e.compare(Number::Int32(0)) == Ordering::Less && !e.is_nan() {
        bail!(28764, "$pow cannot take a base of 0 and a negative exponent");
    }
    if b.is_decimal() || e.is_decimal() {
        return value(b.to_decimal().power(e.to_decimal()).with_all_digits());
    }
    number(integer_power(b, e).unwrap_or_else(|| Number::Double(b.to_f64().powf(e.to_f64()))))
}

fn not_numeric(code: i32, which: &str, found: Value<'_>) -> Error {
    let found = found.kind().alias();
    Error::new(base::ErrorCode::Location(code), format!("$pow's {which} must be numeric, not {found}"))
}

/// Returns the power as an integer, if both operands are integers and the result is an integer that fits.
fn integer_power(base: Number, exponent: Number) -> Option<Number> {
    let (b, e) = match (base, exponent) {
        (Number::Double(_), _) | (_, Number::Double(_)) => return None,
        (b, e) => (b.to_i64_clamped(), e.to_i64_clamped()),
    };
    let power = match (b, e) {
        (1, _) => 1,
        (-1, e) => 1 - 2 * (e & 1),
        (0, e) => i64::from(e == 0),
        (b, e) => b.checked_pow(u32::try_from(e).ok()?)?,
    };
    match (base, exponent, i32::try_from(power)) {
        (Number::Int32(_), Number::Int32(_), Ok(narrow)) => Some(Number::Int32(narrow)),
        _ => Some(Number::Int64(power)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{check, check_close, check_error};

    #[test]
    fn powers() {
        check("{$pow: [2, 10]}", "{}", "1024");
        check("{$pow: [2, 40]}", "{}", "NumberLong('1099511627776')");
        check("{$pow: [2, 64]}", "{}", "18446744073709551616.0");
        check("{$pow: [2, -1]}", "{}", "0.5");
        check("{$pow: [-1, NumberLong(-3)]}", "{}", "NumberLong(-1)");
        check("{$pow: [0, 0]}", "{}", "1");
        check(
            "{$pow: [NumberDecimal('0.5'), 2]}",
            "{}",
            "NumberDecimal('0.2500000000000000000000000000000000')",
        );
        check("{$pow: [2.0, 3]}", "{}", "8.0");
        check("{$pow: [2, null]}", "{}", "null");
        check_error("{$pow: [0, -1]}", "{}", 28764);
        check_error("{$pow: ['a', 1]}", "{}", 28762);
        check_error("{$pow: [1, 'a']}", "{}", 28763);
    }

    #[test]
    fn roots_and_logarithms() {
        check("{$sqrt: 16}", "{}", "4.0");
        check("{$sqrt: null}", "{}", "null");
        check("{$exp: 0}", "{}", "1.0");
        check("{$ln: 1}", "{}", "0.0");
        check("{$log10: 1000}", "{}", "3.0");
        check("{$ln: NumberDecimal('NaN')}", "{}", "NaN");
        check("{$log10: NumberDecimal('NaN')}", "{}", "NaN");
        check("{$log: [8, 2]}", "{}", "3.0");
        check("{$sigmoid: 0}", "{}", "0.5");
        check_error("{$sigmoid: [0]}", "{}", 14);
        check("{$sqrt: NumberDecimal('-0')}", "{}", "NumberDecimal('-0')");
        check_close("{$exp: 1}", "{}", std::f64::consts::E);
        check_error("{$sqrt: -1}", "{}", 28714);
        check_error("{$ln: 0}", "{}", 28766);
        check_error("{$log10: -1}", "{}", 28761);
        check_error("{$log: [1, 1]}", "{}", 28759);
        check_error("{$log: [0, 2]}", "{}", 28758);
        check_error("{$log: ['x', 2]}", "{}", 28756);
    }
}
