//! Decimal rounding for expressions.

use base::bson::{Decimal128, DecimalParts, Rounding};

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
