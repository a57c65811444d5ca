//! Bridge to the decNumber library, which encodes significands in units of ten bits.

use super::{Decimal128, Parts};
use dec::{Context, Decimal};

/// Holds 36 digits, so a result of 34 digits is rounded from an exact one.
type Wide = Decimal<12>;

/// Converts to the library's encoding (densely packed decimal).
pub(super) fn to_library(value: Decimal128, context: &mut Context<dec::Decimal128>) -> dec::Decimal128 {
    match value.parts() {
        Parts::NaN => dec::Decimal128::NAN,
        Parts::Infinity { negative } => {
            let infinity = context.div(dec::Decimal128::ONE, dec::Decimal128::ZERO);
            if negative { -infinity } else { infinity }
        }
        Parts::Finite { negative, coefficient, exponent } => {
            let mut result = context.from_u128(coefficient);
            context.set_exponent(&mut result, exponent);
            if negative { -result } else { result }
        }
    }
}

/// Converts from the library's encoding. Every NaN becomes the default NaN.
pub(super) fn from_library(value: dec::Decimal128) -> Decimal128 {
    if value.is_nan() {
        return Decimal128::NAN;
    }
    let negative = value.is_signed();
    if value.is_infinite() {
        return Decimal128::from_parts(Parts::Infinity { negative });
    }
    let coefficient = value.coefficient().unsigned_abs();
    Decimal128::from_parts(Parts::Finite { negative, coefficient, exponent: value.exponent() })
}

/// Applies a binary operation.
pub(super) fn binary(
    a: Decimal128,
    b: Decimal128,
    operation: fn(&mut Context<dec::Decimal128>, dec::Decimal128, dec::Decimal128) -> dec::Decimal128,
) -> Decimal128 {
    let mut context = Context::default();
    let (a, b) = (to_library(a, &mut context), to_library(b, &mut context));
    from_library(operation(&mut context, a, b))
}

/// Applies, with 34 digits, an operation that the library offers only for arbitrary precision.
pub(super) fn wide(value: Decimal128, operation: impl Fn(&mut Context<Wide>, &mut Wide)) -> Decimal128 {
    let mut narrow = Context::default();
    let mut number = Wide::from(to_library(value, &mut narrow));
    let mut context = Context::<Wide>::default();
    // 34 digits fit the type's 36, and the exponents are Decimal128's. Series refuse the default, unlimited exponents.
    let limited = context.set_precision(34).is_ok()
        && context.set_max_exponent(6144).is_ok()
        && context.set_min_exponent(-6143).is_ok();
    if !limited {
        return Decimal128::NAN;
    }
    operation(&mut context, &mut number);
    from_library(narrow.from_decimal(&number))
}

/// Widens a second operand.
pub(super) fn widen(value: Decimal128) -> Wide {
    Wide::from(to_library(value, &mut Context::default()))
}
