//! Trigonometry: `$sin` and related operators, over doubles, or decimals if the operand is a decimal.

use super::super::evaluate::{Call, Computed, null, value};
use super::super::show;
use super::{non_null, numeric_operand};
use base::bson::{Decimal128, Number, Value};
use base::{bail, err};
use std::cmp::Ordering;

/// The domain of a function, as its error prints it.
#[derive(Clone, Copy)]
enum Domain {
    All,
    Finite,
    MinusOneToOne,
    FromOne,
}

impl Domain {
    fn holds(self, x: f64) -> bool {
        match self {
            Domain::All => true,
            Domain::Finite => !x.is_infinite(),
            Domain::MinusOneToOne => x.is_nan() || (-1.0..=1.0).contains(&x),
            Domain::FromOne => x.is_nan() || x >= 1.0,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Domain::All => "[-inf,inf]",
            Domain::Finite => "(-inf,inf)",
            Domain::MinusOneToOne => "[-1,1]",
            Domain::FromOne => "[1,inf]",
        }
    }
}

/// Applies a function. Errors: 28765 for a value that is not a number, 50989 for a value outside the domain.
fn apply<'a>(
    call: &Call<'_, 'a>,
    domain: Domain,
    function: fn(f64) -> f64,
    of_decimal: fn(Decimal128) -> Decimal128,
) -> Computed<'a> {
    let Some(operand) = numeric_operand(call)? else { return null() };
    if !domain.holds(nearest_inside(operand)) {
        bail!(
            50989,
            "cannot apply {} to {}, value must in {}",
            call.name(),
            show::value(Value::from(operand)),
            domain.text()
        );
    }
    match operand {
        Number::Decimal128(operand) => value(of_decimal(operand)),
        other => value(function(other.to_f64())),
    }
}

/// Returns the operand as a double on the same side of −1 and 1. Decimals may be closer to these than any double.
fn nearest_inside(operand: Number) -> f64 {
    let double = operand.to_f64();
    let Number::Decimal128(operand) = operand else { return double };
    match operand.compare_f64(double.signum()) {
        Ordering::Less if double.abs() == 1.0 => double.next_down(),
        Ordering::Greater if double.abs() == 1.0 => double.next_up(),
        _ => double,
    }
}

macro_rules! functions {
    ($($name:ident, $domain:ident, $function:expr, $of_decimal:expr;)+) => {
        $(pub(in super::super) fn $name<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
            apply(call, Domain::$domain, $function, $of_decimal)
        })+
    };
}

functions! {
    acos, MinusOneToOne, f64::acos, Decimal128::arc_cosine;
    acosh, FromOne, f64::acosh, Decimal128::inverse_hyperbolic_cosine;
    asin, MinusOneToOne, f64::asin, Decimal128::arc_sine;
    asinh, All, f64::asinh, Decimal128::inverse_hyperbolic_sine;
    atan, All, f64::atan, Decimal128::arc_tangent;
    atanh, MinusOneToOne, f64::atanh, Decimal128::inverse_hyperbolic_tangent;
    cos, Finite, f64::cos, Decimal128::cosine;
    cosh, All, f64::cosh, Decimal128::hyperbolic_cosine;
    sin, Finite, f64::sin, Decimal128::sine;
    sinh, All, f64::sinh, Decimal128::hyperbolic_sine;
    tan, Finite, f64::tan, Decimal128::tangent;
    tanh, All, f64::tanh, Decimal128::hyperbolic_tangent;
}

/// `$atan2`. Errors: 51044 and 51045 for a value that is not a number.
pub(in super::super) fn atan2<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let found =
        |value: Value<'_>| format!("$atan2 only supports numeric types, not {}", value.kind().alias());
    let Some(y) = non_null(call.get(0)?) else { return null() };
    let y = y.as_number().ok_or_else(|| err!(51044, "{}", found(y)))?;
    let Some(x) = non_null(call.get(1)?) else { return null() };
    let x = x.as_number().ok_or_else(|| err!(51045, "{}", found(x)))?;
    if y.is_decimal() || x.is_decimal() {
        return value(y.to_decimal().angle(x.to_decimal()));
    }
    value(y.to_f64().atan2(x.to_f64()))
}

/// Multiplies the operand by a constant, given as a double and, with all digits, as a decimal.
fn scale<'a>(call: &Call<'_, 'a>, factor: f64, decimal: &str) -> Computed<'a> {
    let Some(operand) = numeric_operand(call)? else { return null() };
    match operand {
        Number::Decimal128(operand) => {
            let factor = Decimal128::parse(decimal).unwrap_or(Decimal128::from_f64_exact(factor));
            value(operand.times(factor))
        }
        other => value(other.to_f64() * factor),
    }
}

/// `$degreesToRadians`. Errors: 28765 for a value that is not a number.
pub(in super::super) fn degrees_to_radians<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    scale(call, std::f64::consts::PI / 180.0, "0.01745329251994329576923690768488613")
}

/// `$radiansToDegrees`. Errors: 28765 for a value that is not a number.
pub(in super::super) fn radians_to_degrees<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    scale(call, 180.0 / std::f64::consts::PI, "57.29577951308232087679815481410517")
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{check, check_close, check_error};

    #[test]
    fn functions_and_their_domains() {
        check("{$sin: 0}", "{}", "0.0");
        check("{$cos: null}", "{}", "null");
        check_close("{$acos: -1}", "{}", std::f64::consts::PI);
        check_close("{$atan2: [1, 1]}", "{}", std::f64::consts::FRAC_PI_4);
        check_close("{$degreesToRadians: 180}", "{}", std::f64::consts::PI);
        check_close("{$radiansToDegrees: 1}", "{}", 57.295_779_513_082_32);
        check("{$sin: NumberDecimal('1')}", "{}", "NumberDecimal('0.8414709848078965066525023216302990')");
        check("{$sin: NumberDecimal('0')}", "{}", "NumberDecimal('0')");
        check(
            "{$atan2: [1, NumberDecimal('-2')]}",
            "{}",
            "NumberDecimal('2.677945044588987122248387151818288')",
        );
        check_error("{$acos: NumberDecimal('1.0000000000000000000000000000001')}", "{}", 50989);
        check_error("{$acosh: NumberDecimal('0.9999999999999999999999999999999')}", "{}", 50989);
        check_error("{$cos: Infinity}", "{}", 50989);
        check_error("{$acosh: 0}", "{}", 50989);
        check_error("{$atanh: 2}", "{}", 50989);
        check_error("{$tan: 'x'}", "{}", 28765);
        check_error("{$atan2: ['x', 1]}", "{}", 51044);
    }
}
