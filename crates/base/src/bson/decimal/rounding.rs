//! Rounding: to 34 digits and the exponent's range, to integers, to a number of places.

use super::{COEFFICIENT_MAX, DIGITS_MAX, Decimal128, EXPONENT_MAX, EXPONENT_MIN, Parts};

/// Rounding mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rounding {
    /// To the nearest value; ties go to the even value.
    HalfEven,
    /// Towards zero.
    TowardZero,
    /// Towards negative infinity.
    Floor,
    /// Towards positive infinity.
    Ceiling,
}

impl Rounding {
    /// Whether the magnitude is rounded up. The dropped part is `rest` of `unit`, plus a smaller non-zero part if
    /// `sticky`.
    fn rounds_up(self, negative: bool, odd: bool, rest: u128, unit: u128, sticky: bool) -> bool {
        let inexact = rest != 0 || sticky;
        match self {
            Rounding::TowardZero => false,
            Rounding::Floor => inexact && negative,
            Rounding::Ceiling => inexact && !negative,
            Rounding::HalfEven => {
                // Comparing with the complement avoids a doubling beyond 128 bits.
                match rest.cmp(&(unit - rest)) {
                    std::cmp::Ordering::Greater => true,
                    std::cmp::Ordering::Equal => sticky || odd,
                    std::cmp::Ordering::Less => false,
                }
            }
        }
    }
}

/// Rounds `coefficient × 10^exponent` to a decimal by IEEE's rules for 34 digits. `sticky` marks a non-zero part below
/// one unit of the coefficient.
pub(super) fn pack(negative: bool, coefficient: u128, exponent: i32, sticky: bool) -> Decimal128 {
    pack_by(negative, coefficient, exponent, sticky, Rounding::HalfEven)
}

/// As [`pack`], with another rounding mode.
pub(super) fn pack_by(
    negative: bool,
    coefficient: u128,
    exponent: i32,
    sticky: bool,
    rounding: Rounding,
) -> Decimal128 {
    let digits = digits(coefficient) as i32;
    let drop = (digits - DIGITS_MAX as i32).max(EXPONENT_MIN.saturating_sub(exponent)).max(0);
    let (mut coefficient, mut exponent) = shed(negative, coefficient, exponent, drop, sticky, rounding);
    if coefficient > COEFFICIENT_MAX {
        coefficient /= 10;
        exponent += 1;
    }
    if coefficient == 0 {
        exponent = exponent.clamp(EXPONENT_MIN, EXPONENT_MAX);
    }
    while exponent > EXPONENT_MAX {
        if coefficient > COEFFICIENT_MAX / 10 {
            return Decimal128::from_parts(Parts::Infinity { negative });
        }
        coefficient *= 10;
        exponent -= 1;
    }
    Decimal128::from_parts(Parts::Finite { negative, coefficient, exponent })
}

/// Drops `drop` digits at the end, with rounding.
fn shed(
    negative: bool,
    coefficient: u128,
    exponent: i32,
    drop: i32,
    sticky: bool,
    rounding: Rounding,
) -> (u128, i32) {
    if drop == 0 {
        return (coefficient, exponent);
    }
    let raised = exponent.saturating_add(drop);
    let Some(unit) = 10u128.checked_pow(drop.unsigned_abs()) else {
        // All digits are below half a unit.
        let sticky = sticky || coefficient != 0;
        return (u128::from(rounding.rounds_up(negative, false, 0, 1, sticky)), raised);
    };
    let (quotient, rest) = (coefficient / unit, coefficient % unit);
    let up = rounding.rounds_up(negative, quotient % 2 == 1, rest, unit, sticky);
    (quotient + u128::from(up), raised)
}

/// The number of decimal digits; one for zero.
pub(super) fn digits(coefficient: u128) -> u32 {
    coefficient.checked_ilog10().map_or(1, |log| log + 1)
}

impl Decimal128 {
    /// Returns the value with exactly this exponent, rounded or padded with zeros. NaN if the result needs more than 34
    /// digits. Infinities and NaN are unchanged. (`$round` to n places uses exponent −n.)
    pub fn quantize(self, exponent: i32, rounding: Rounding) -> Decimal128 {
        let Parts::Finite { negative, coefficient, exponent: from } = self.parts() else { return self };
        if !(EXPONENT_MIN..=EXPONENT_MAX).contains(&exponent) {
            return Decimal128::NAN;
        }
        let coefficient = if from >= exponent {
            if coefficient == 0 {
                Some(0)
            } else {
                10u128.checked_pow(from.abs_diff(exponent)).and_then(|power| coefficient.checked_mul(power))
            }
        } else {
            Some(shed(negative, coefficient, from, exponent - from, false, rounding).0)
        };
        match coefficient {
            Some(coefficient) if coefficient <= COEFFICIENT_MAX => {
                Decimal128::from_parts(Parts::Finite { negative, coefficient, exponent })
            }
            _ => Decimal128::NAN,
        }
    }

    /// Returns the same value padded to 34 digits, as far as the exponent's range allows. Zero, infinities and NaN are
    /// unchanged.
    pub fn with_all_digits(self) -> Decimal128 {
        match self.parts() {
            Parts::Finite { coefficient: coefficient @ 1.., exponent, .. } => {
                let padding = i32::try_from(DIGITS_MAX - digits(coefficient)).unwrap_or(0);
                self.quantize((exponent - padding).max(EXPONENT_MIN), Rounding::HalfEven)
            }
            _ => self,
        }
    }

    /// Rounds to an integer; values without a fraction are unchanged.
    pub fn round_to_integer(self, rounding: Rounding) -> Decimal128 {
        match self.parts() {
            Parts::Finite { exponent, .. } if exponent < 0 => self.quantize(0, rounding),
            _ => self,
        }
    }

    /// The greatest integer not above the value.
    pub fn floor(self) -> Decimal128 {
        self.round_to_integer(Rounding::Floor)
    }

    /// The least integer not below the value.
    pub fn ceil(self) -> Decimal128 {
        self.round_to_integer(Rounding::Ceiling)
    }
}
