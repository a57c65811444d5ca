//! Tests of integers: `$mod`, and single bits of integers and binary data; the parser of integer arguments.
//!
//! ```text
//! {<path>: {$mod: [<divisor>, <remainder>]}}                              both truncated towards zero
//! {<path>: {$bitsAllSet: <mask> | <binary> | [<position>, …]}}            also $bitsAllClear $bitsAnySet $bitsAnyClear
//! ```
//!
//! Bit positions count from the least significant bit, in binary data from the first byte. A negative number has set
//! bits beyond position 63, as in two's complement.

use super::node::{Node, Predicate};
use super::operators::FieldArgument;
use super::parse::Parser;
use base::bson::{Array, Element, Number, Value};
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

/// Maximum size of a mask in binary form, in bytes. MongoDB has no such limit. A filter has no use for a million bits,
/// and the list of positions takes 32 times the memory of the mask.
const MASK_BYTES_MAX: usize = 1 << 20;

/// Required state of the tested bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum BitsOp {
    AllSet,
    AllClear,
    AnySet,
    AnyClear,
}

/// A test of bits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BitTest {
    /// The required state.
    pub op: BitsOp,
    /// Positions of the tested bits, ascending.
    pub positions: Vec<u32>,
    /// The positions as a mask of an int64. Positions beyond the sign bit count as the sign bit.
    mask: u64,
}

impl BitTest {
    fn new(op: BitsOp, mut positions: Vec<u32>) -> BitTest {
        positions.sort_unstable();
        positions.dedup();
        let mask = positions.iter().fold(0, |mask, &position| mask | 1u64 << position.min(63));
        BitTest { op, positions, mask }
    }

    /// The operator's name.
    pub fn name(&self) -> &'static str {
        match self.op {
            BitsOp::AllSet => "$bitsAllSet",
            BitsOp::AllClear => "$bitsAllClear",
            BitsOp::AnySet => "$bitsAnySet",
            BitsOp::AnyClear => "$bitsAnyClear",
        }
    }

    pub(super) fn test(&self, element: Option<&Element<'_>>) -> bool {
        match element.map(Element::value) {
            Some(Value::Binary { bytes, .. }) => self.test_bytes(bytes),
            Some(value) => value.as_i64().is_some_and(|number| self.test_number(number as u64)),
            None => false,
        }
    }

    fn test_number(&self, number: u64) -> bool {
        let set = number & self.mask;
        match self.op {
            BitsOp::AllSet => set == self.mask,
            BitsOp::AllClear => set == 0,
            BitsOp::AnySet => set != 0,
            BitsOp::AnyClear => set != self.mask,
        }
    }

    /// Tests binary data. Bits beyond the data are clear.
    fn test_bytes(&self, bytes: &[u8]) -> bool {
        let is_set = |position: &u32| {
            let byte = bytes.get((position / 8) as usize).copied().unwrap_or(0);
            byte >> (position % 8) & 1 == 1
        };
        match self.op {
            BitsOp::AllSet => self.positions.iter().all(is_set),
            BitsOp::AllClear => !self.positions.iter().any(is_set),
            BitsOp::AnySet => self.positions.iter().any(is_set),
            BitsOp::AnyClear => !self.positions.iter().all(is_set),
        }
    }
}

/// Parses the mask: an array of positions, a non-negative integer, or binary data.
fn parse_bits(op: BitsOp, argument: &FieldArgument<'_>) -> Result<Option<Node>> {
    let positions = match argument.value() {
        Value::Array(array) => parse_positions(array)?,
        Value::Binary { bytes, .. } if bytes.len() > MASK_BYTES_MAX => {
            bail!(BadValue, "{} mask is longer than {MASK_BYTES_MAX} bytes", argument.name());
        }
        Value::Binary { bytes, .. } => set_bits(bytes),
        value if value.as_number().is_some() => {
            set_bits(&parse_non_negative(argument.name(), value)?.to_le_bytes())
        }
        value => {
            let message = "takes an Array, a number, or a BinData but received";
            let (path, name) = (argument.path, argument.name());
            bail!(BadValue, "{path} {message}: {name}: {value}");
        }
    };
    let predicate = Predicate::Bits(BitTest::new(op, positions));
    Ok(Some(Node::Field { path: argument.path.clone(), predicate }))
}

/// Parses an array of positions, each a non-negative int32.
fn parse_positions(array: Array<'_>) -> Result<Vec<u32>> {
    let parse = |element: Element<'_>| {
        let position = parse_non_negative(element.name(), element.value())
            .map_err(|error| err!(BadValue, "Failed to parse bit position. {}", error.message()))?;
        i32::try_from(position).map(|position| position as u32).map_err(|_| {
            let message = "Failed to parse bit position. Cannot represent as a 32-bit integer";
            err!(BadValue, "{message}: {}: {position}", element.name())
        })
    };
    array.elements().map(parse).collect()
}

fn set_bits(bytes: &[u8]) -> Vec<u32> {
    let bits = bytes
        .iter()
        .zip(0u32..)
        .flat_map(|(&byte, at)| (0..8).filter(move |bit| byte >> bit & 1 == 1).map(move |bit| at * 8 + bit));
    bits.collect()
}

macro_rules! parse_functions {
    ($($name:ident => $op:ident),*) => {
        $(pub(super) fn $name(_: &Parser<'_>, argument: &FieldArgument<'_>) -> Result<Option<Node>> {
            parse_bits(BitsOp::$op, argument)
        })*
    };
}

parse_functions!(
    parse_all_set => AllSet,
    parse_all_clear => AllClear,
    parse_any_set => AnySet,
    parse_any_clear => AnyClear
);
