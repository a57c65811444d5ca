//! What expressions need of decimals beyond what decimals themselves offer.

use base::bson::{Decimal128, Rounding};

/// The value with so many decimal places; as it is where that takes over 34 digits.
pub(crate) fn round_to_places(value: Decimal128, places: i32, rounding: Rounding) -> Decimal128 {
    let rounded = value.quantize(-places, rounding);
    if rounded.is_nan() { value } else { rounded }
}

/// A function known for doubles only, as near as a double comes.
pub(crate) fn by_double(value: Decimal128, function: fn(f64) -> f64) -> Decimal128 {
    Decimal128::from_f64_exact(function(value.to_f64()))
}
