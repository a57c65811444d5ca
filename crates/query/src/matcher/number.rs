//! Parses integer arguments.

use base::bson::Value;
use base::{Result, bail, err};

/// Parses an integer of any numeric type.
///
/// Errors: FailedToParse, naming the argument and its value.
pub(super) fn parse_integer(name: &str, value: Value<'_>) -> Result<i64> {
    let Some(number) = value.as_number() else {
        bail!(FailedToParse, "Expected a number in: {name}: {value}");
    };
    if number.is_nan() {
        bail!(FailedToParse, "Expected an integer, but found NaN in: {name}: {value}");
    }
    if let Some(exact) = number.to_i64_exact() {
        return Ok(exact);
    }
    let float = number.to_f64();
    if !(-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&float) && !number.is_integer() {
        bail!(FailedToParse, "Cannot represent as a 64-bit integer: {name}: {value}");
    }
    Err(err!(FailedToParse, "Expected an integer: {name}: {value}"))
}

/// Parses a non-negative integer.
pub(super) fn parse_non_negative(name: &str, value: Value<'_>) -> Result<i64> {
    let number = parse_integer(name, value)?;
    if number < 0 {
        bail!(FailedToParse, "Expected a non-negative number in: {name}: {value}");
    }
    Ok(number)
}
