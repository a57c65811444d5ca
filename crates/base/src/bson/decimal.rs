//! Decimal128: the BSON encoding (binary integer significand) and IEEE arithmetic.

use dec::Context;
use std::cmp::Ordering;
use std::fmt;

/// A 128-bit IEEE decimal as BSON stores it: little-endian, binary integer significand.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Decimal128([u8; 16]);

/// What the bits of a decimal say.
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
const COEFFICIENT_MAX: u128 = 9_999_999_999_999_999_999_999_999_999_999_999;

impl Decimal128 {
    /// Takes the sixteen bytes of the BSON value.
    pub fn from_bytes(bytes: [u8; 16]) -> Decimal128 {
        Decimal128(bytes)
    }

    /// The sixteen bytes of the BSON value.
    pub fn bytes(self) -> [u8; 16] {
        self.0
    }

    /// Takes the bits apart. Coefficients above 10^34 − 1 are zero, as IEEE says of them.
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

    /// Puts a decimal together. The coefficient must be below 10^34 and the exponent within
    /// −6176..=6111.
    pub fn from_parts(parts: Parts) -> Decimal128 {
        let bits = match parts {
            Parts::NaN => 0x1Fu128 << 122,
            Parts::Infinity { negative } => (u128::from(negative) << 127) | (0x1Eu128 << 122),
            Parts::Finite { negative, coefficient, exponent } => {
                debug_assert!(coefficient <= COEFFICIENT_MAX);
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

    /// Whether this is not a number.
    pub fn is_nan(self) -> bool {
        self.parts() == Parts::NaN
    }

    /// The integer as a decimal, exactly.
    pub fn from_i64(value: i64) -> Decimal128 {
        Decimal128::from_parts(Parts::Finite {
            negative: value < 0,
            coefficient: u128::from(value.unsigned_abs()),
            exponent: 0,
        })
    }
}

/// The library's decimal of the same value (it encodes the significand in tens of bits).
fn to_library(value: Decimal128) -> dec::Decimal128 {
    let text = match value.parts() {
        Parts::NaN => "NaN".to_string(),
        Parts::Infinity { negative } => format!("{}Infinity", sign(negative)),
        Parts::Finite { negative, coefficient, exponent } => {
            format!("{}{coefficient}E{exponent}", sign(negative))
        }
    };
    Context::<dec::Decimal128>::default().parse(text).unwrap_or(dec::Decimal128::NAN)
}

fn sign(negative: bool) -> &'static str {
    if negative { "-" } else { "" }
}

/// The value of a library decimal in BSON's encoding.
fn from_library(value: dec::Decimal128) -> Decimal128 {
    if value.is_nan() {
        return Decimal128::from_parts(Parts::NaN);
    }
    let negative = value.is_signed();
    if value.is_infinite() {
        return Decimal128::from_parts(Parts::Infinity { negative });
    }
    let coefficient = value.coefficient().unsigned_abs();
    Decimal128::from_parts(Parts::Finite { negative, coefficient, exponent: value.exponent() })
}

impl Decimal128 {
    /// The IEEE sum, rounded half to even to 34 digits.
    pub fn plus(self, other: Decimal128) -> Decimal128 {
        let mut context = Context::<dec::Decimal128>::default();
        from_library(context.add(to_library(self), to_library(other)))
    }

    /// The IEEE difference.
    pub fn minus(self, other: Decimal128) -> Decimal128 {
        let mut context = Context::<dec::Decimal128>::default();
        from_library(context.sub(to_library(self), to_library(other)))
    }

    /// The IEEE product.
    pub fn times(self, other: Decimal128) -> Decimal128 {
        let mut context = Context::<dec::Decimal128>::default();
        from_library(context.mul(to_library(self), to_library(other)))
    }

    /// MongoDB's order: by value, NaN before all others and equal to itself.
    pub fn compare(self, other: Decimal128) -> Ordering {
        match (self.is_nan(), other.is_nan()) {
            (false, false) => to_library(self).partial_cmp(&to_library(other)).unwrap_or(Ordering::Equal),
            (a, b) => b.cmp(&a),
        }
    }

    /// The nearest double; infinities where out of range.
    pub fn to_f64(self) -> f64 {
        match self.parts() {
            Parts::NaN => f64::NAN,
            Parts::Infinity { negative: true } => f64::NEG_INFINITY,
            Parts::Infinity { negative: false } => f64::INFINITY,
            Parts::Finite { negative, coefficient, exponent } => {
                format!("{}{coefficient}e{exponent}", sign(negative)).parse().unwrap_or(f64::NAN)
            }
        }
    }

    /// The double as a decimal of 15 significant digits, as MongoDB converts.
    pub fn from_f64(value: f64) -> Decimal128 {
        Decimal128::parse(&format!("{value:.14e}")).unwrap_or(Decimal128::from_parts(Parts::NaN))
    }

    /// The double as a decimal with as many of its digits as fit (34), for exact comparison.
    pub fn from_f64_exact(value: f64) -> Decimal128 {
        Decimal128::parse(&format!("{value:.40e}")).unwrap_or(Decimal128::from_parts(Parts::NaN))
    }

    /// Reads decimal text: digits, point, exponent, `Infinity`, `NaN`; `None` where it is none.
    pub fn parse(text: &str) -> Option<Decimal128> {
        let mut context = Context::<dec::Decimal128>::default();
        let value = context.parse(text).ok()?;
        Some(from_library(value))
    }

    /// The int64 with exactly this value, if there is one.
    pub fn to_i64_exact(self) -> Option<i64> {
        let Parts::Finite { negative, mut coefficient, mut exponent } = self.parts() else { return None };
        while exponent < 0 && coefficient != 0 {
            if coefficient % 10 != 0 {
                return None;
            }
            coefficient /= 10;
            exponent += 1;
        }
        if coefficient == 0 {
            return Some(0);
        }
        let scale = 10i128.checked_pow(u32::try_from(exponent).ok()?)?;
        let magnitude = i128::try_from(coefficient).ok()?.checked_mul(scale)?;
        i64::try_from(if negative { -magnitude } else { magnitude }).ok()
    }
}

impl fmt::Display for Decimal128 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", to_library(*self))
    }
}

impl fmt::Debug for Decimal128 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Decimal128('{self}')")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn d(text: &str) -> Decimal128 {
        Decimal128::parse(text).unwrap()
    }

    #[test]
    fn text_and_arithmetic() {
        assert_eq!(d("1.10").plus(d("2.20")).to_string(), "3.30");
        assert_eq!(d("-0").to_string(), "-0");
        assert_eq!(d("9".repeat(34).as_str()).to_i64_exact(), None);
        assert_eq!(d("12E1").to_i64_exact(), Some(120));
        assert_eq!(d("1.5").to_i64_exact(), None);
        assert_eq!(d("NaN").compare(d("-Infinity")), Ordering::Less);
        assert_eq!(d("1.0").compare(d("1")), Ordering::Equal);
        assert_eq!(Decimal128::from_f64(0.1).to_string(), "0.100000000000000");
        assert_eq!(d("1E-6176").to_f64(), 0.0);
    }
}
