//! `$mod`: the remainder of a division, both truncated towards zero.
//!
//! ```text
//! {<path>: {$mod: [<divisor>, <remainder>]}}
//! ```

use super::node::{Node, Predicate};
use super::operators::FieldArgument;
use super::parse::Parser;
use base::bson::{Element, Number, Value};
use base::{Result, bail, err};

/// A divisor and the required remainder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Modulo {
    /// The divisor; never zero.
    pub divisor: i64,
    /// The required remainder; it has the sign of the dividend.
    pub remainder: i64,
}

impl Modulo {
    pub(super) fn test(self, element: Option<&Element<'_>>) -> bool {
        let dividend = element.and_then(|element| element.value().as_number()).and_then(|n| truncate(n).ok());
        // A divisor of -1 would overflow for the least int64; the remainder is 0.
        dividend.is_some_and(|dividend| dividend.checked_rem(self.divisor).unwrap_or(0) == self.remainder)
    }
}

/// Returns the number without its fraction, or the reason why it does not fit an int64.
fn truncate(number: Number) -> std::result::Result<i64, &'static str> {
    const OUT_OF_BOUNDS: &str = "Out of bounds coercing to integral value";
    if number.is_integer() {
        return Ok(number.to_i64_clamped());
    }
    let float = number.to_f64();
    if float.is_nan() || float.is_infinite() {
        return Err("Unable to coerce NaN/Inf to integral type");
    }
    if !(-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&float) {
        return Err(OUT_OF_BOUNDS);
    }
    // An integral decimal keeps digits that a double would lose.
    Ok(number.to_i64_exact().unwrap_or_else(|| number.to_i64_clamped()))
}

/// `$mod`: an array of a divisor and a remainder. Errors: BadValue, also for a zero divisor.
pub(super) fn parse_mod(_: &Parser<'_>, argument: &FieldArgument<'_>) -> Result<Option<Node>> {
    let Value::Array(array) = argument.value() else {
        bail!(BadValue, "malformed mod, needs to be an array");
    };
    let mut values = array.iter();
    let divisor = part("divisor", values.next())?;
    let remainder = part("remainder", values.next())?;
    if values.next().is_some() {
        bail!(BadValue, "malformed mod, too many elements");
    }
    if divisor == 0 {
        bail!(BadValue, "divisor cannot be 0");
    }
    let predicate = Predicate::Mod(Modulo { divisor, remainder });
    Ok(Some(Node::Field { path: argument.path.clone(), predicate }))
}

fn part(operand: &str, value: Option<Value<'_>>) -> Result<i64> {
    let value = value.ok_or_else(|| err!(BadValue, "malformed mod, not enough elements"))?;
    let Some(number) = value.as_number() else {
        bail!(BadValue, "malformed mod, {operand} not a number");
    };
    truncate(number)
        .map_err(|why| err!(BadValue, "malformed mod, {operand} value is invalid :: caused by :: {why}"))
}
