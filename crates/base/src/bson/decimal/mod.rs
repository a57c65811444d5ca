//! Decimal128: the BSON encoding (binary integer significand), IEEE arithmetic, MongoDB's text.
//!
//! Comparisons, conversions and common sums use coefficient and exponent as integers. The decNumber library computes
//! roundings and series.

mod arithmetic;
mod convert;
mod rounding;
#[cfg(test)]
mod tests;
mod text;
mod trigonometry;

pub use rounding::Rounding;
use std::cmp::Ordering;

/// A 128-bit IEEE decimal as BSON stores it: little-endian, binary integer significand.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Decimal128([u8; 16]);

/// The decoded bits of a decimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Parts {
    /// Sign, coefficient below 10^34 and exponent of ten.
    Finite { negative: bool, coefficient: u128, exponent: i32 },
    /// Either infinity.
    Infinity { negative: bool },
    /// Not a number.
    NaN,
}

const EXPONENT_BIAS: i32 = 6176;
const EXPONENT_MIN: i32 = -6176;
const EXPONENT_MAX: i32 = 6111;
const DIGITS_MAX: u32 = 34;
const COEFFICIENT_MAX: u128 = 9_999_999_999_999_999_999_999_999_999_999_999;

impl Decimal128 {
    /// Not a number.
    pub const NAN: Decimal128 = Decimal128((0x1Fu128 << 122).to_le_bytes());
    /// Positive infinity.
    pub const INFINITY: Decimal128 = Decimal128((0x1Eu128 << 122).to_le_bytes());
    /// Zero with exponent zero.
    pub const ZERO: Decimal128 = Decimal128(((EXPONENT_BIAS as u128) << 113).to_le_bytes());

    /// Takes the sixteen bytes of the BSON value.
    pub fn from_bytes(bytes: [u8; 16]) -> Decimal128 {
        Decimal128(bytes)
    }

    /// The sixteen bytes of the BSON value.
    pub fn bytes(self) -> [u8; 16] {
        self.0
    }

    /// Decodes the bits. Coefficients above 10^34 − 1 count as zero, as IEEE requires.
    pub fn parts(self) -> Parts {
        let bits = u128::from_le_bytes(self.0);
        let negative = bits >> 127 == 1;
        if (bits >> 122) & 0x1F == 0x1F {
            return Parts::NaN;
        }
        if (bits >> 122) & 0x1F == 0x1E {
            return Parts::Infinity { negative };
        }
        let (exponent, coefficient) = if (bits >> 125) & 3 == 3 {
            ((bits >> 111) & 0x3FFF, 0)
        } else {
            let coefficient = bits & ((1 << 113) - 1);
            ((bits >> 113) & 0x3FFF, if coefficient > COEFFICIENT_MAX { 0 } else { coefficient })
        };
        Parts::Finite { negative, coefficient, exponent: exponent as i32 - EXPONENT_BIAS }
    }

    /// Encodes a decimal. The coefficient must be below 10^34 and the exponent within −6176..=6111.
    pub fn from_parts(parts: Parts) -> Decimal128 {
        let bits = match parts {
            Parts::NaN => return Decimal128::NAN,
            Parts::Infinity { negative } => (u128::from(negative) << 127) | (0x1Eu128 << 122),
            Parts::Finite { negative, coefficient, exponent } => {
                debug_assert!(coefficient <= COEFFICIENT_MAX);
                debug_assert!((EXPONENT_MIN..=EXPONENT_MAX).contains(&exponent));
                let biased = (exponent + EXPONENT_BIAS).clamp(0, 0x2FFF) as u128;
                (u128::from(negative) << 127) | (biased << 113) | coefficient
            }
        };
        Decimal128(bits.to_le_bytes())
    }

    /// Whether this is a zero of either sign and any exponent.
    pub fn is_zero(self) -> bool {
        matches!(self.parts(), Parts::Finite { coefficient: 0, .. })
    }

    /// Whether the value is NaN.
    pub fn is_nan(self) -> bool {
        self.parts() == Parts::NaN
    }

    /// Whether the value is either infinity.
    pub fn is_infinite(self) -> bool {
        matches!(self.parts(), Parts::Infinity { .. })
    }

    /// Whether the sign is minus, also of zero and infinity; a NaN has no sign.
    pub fn is_negative(self) -> bool {
        match self.parts() {
            Parts::Finite { negative, .. } | Parts::Infinity { negative } => negative,
            Parts::NaN => false,
        }
    }

    /// The value without its sign.
    pub fn abs(self) -> Decimal128 {
        if self.is_negative() { self.negate() } else { self }
    }

    /// The value with the opposite sign; NaN is unchanged.
    pub fn negate(self) -> Decimal128 {
        if self.is_nan() {
            return self;
        }
        Decimal128((u128::from_le_bytes(self.0) ^ 1 << 127).to_le_bytes())
    }

    /// MongoDB's order: by value, NaN before all others and equal to itself, zeros equal.
    pub fn compare(self, other: Decimal128) -> Ordering {
        match (self.rank(), other.rank()) {
            (3, 3) => convert::compare_magnitudes(self.magnitude(), other.magnitude()),
            (-3, -3) => convert::compare_magnitudes(other.magnitude(), self.magnitude()),
            (a, b) => a.cmp(&b),
        }
    }

    /// The rank of the value's kind in the order: NaN, −∞, negative, zero, positive, ∞.
    fn rank(self) -> i8 {
        match self.parts() {
            Parts::NaN => -5,
            Parts::Infinity { negative } => {
                if negative {
                    -4
                } else {
                    4
                }
            }
            Parts::Finite { coefficient: 0, .. } => 0,
            Parts::Finite { negative, .. } => {
                if negative {
                    -3
                } else {
                    3
                }
            }
        }
    }

    fn magnitude(self) -> (u128, i32) {
        match self.parts() {
            Parts::Finite { coefficient, exponent, .. } => (coefficient, exponent),
            _ => (0, 0),
        }
    }
}
