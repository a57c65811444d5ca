//! Trigonometric and hyperbolic functions, correctly rounded to 34 digits.
//!
//! The decNumber library has no such functions. dashu-float computes them to any precision, for operands of any size.

use super::rounding::{digits, pack};
use super::{DIGITS_MAX, Decimal128, Parts};
use dashu_float::round::mode::HalfEven;
use dashu_float::{ConstCache, Context, FBig, FpError, FpResult, Repr};
use dashu_int::{IBig, Sign, UBig};

/// A function of the library: precision, operand, and a cache of constants, which is not used.
type Function = fn(&Context<HalfEven>, &Repr<10>, Option<&mut ConstCache>) -> FpResult<FBig<HalfEven, 10>>;

/// Most digits before the point of an angle. The library needs 0.2 s for one of 6145 digits, and 1 ms for this limit.
const HUGE: i32 = 400;

/// The multiples of π/4 up to π.
const EIGHTHS: [&str; 5] = [
    "0",
    "0.7853981633974483096156608458198757",
    "1.570796326794896619231321691639751",
    "2.356194490192344928846982537459627",
    "3.141592653589793238462643383279503",
];

/// Converts a number that is not NaN.
fn to_library(value: Decimal128) -> Repr<10> {
    match value.parts() {
        Parts::Finite { negative, coefficient, exponent } => {
            let sign = if negative { Sign::Negative } else { Sign::Positive };
            Repr::new(IBig::from_parts(sign, UBig::from(coefficient)), exponent as isize)
        }
        _ if value.is_negative() => Repr::neg_infinity(),
        _ => Repr::infinity(),
    }
}

/// Converts a result, which has all its digits. Operands outside of the domain yield NaN.
fn from_library(result: FpResult<FBig<HalfEven, 10>>) -> Decimal128 {
    let value = match result {
        Ok(value) => value.value(),
        Err(FpError::Overflow(sign)) => return infinity(sign),
        Err(FpError::Underflow(sign)) => return pack(sign == Sign::Negative, 0, 0, false),
        Err(_) => return Decimal128::NAN,
    };
    if value.repr().is_infinite() {
        return infinity(value.repr().sign());
    }
    let (significand, exponent) = value.into_repr().into_parts();
    let (sign, magnitude) = significand.into_parts();
    let Ok(coefficient) = u128::try_from(magnitude) else { return Decimal128::NAN };
    let exponent = exponent.clamp(i32::MIN as isize, i32::MAX as isize) as i32;
    pack(sign == Sign::Negative, coefficient, exponent, false).with_all_digits()
}

fn infinity(sign: Sign) -> Decimal128 {
    Decimal128::from_parts(Parts::Infinity { negative: sign == Sign::Negative })
}

fn context() -> Context<HalfEven> {
    Context::new(DIGITS_MAX as usize)
}

impl Decimal128 {
    /// Returns a zero without decimal places, of the same sign.
    fn plain_zero(self) -> Decimal128 {
        if self.is_negative() { Decimal128::ZERO.negate() } else { Decimal128::ZERO }
    }

    fn compute(self, function: Function) -> Decimal128 {
        if self.is_nan() { self } else { from_library(function(&context(), &to_library(self), None)) }
    }

    /// Applies a periodic function; NaN for infinities and for huge operands.
    fn periodic(self, function: Function) -> Decimal128 {
        let (coefficient, exponent) = self.magnitude();
        let is_huge = exponent + digits(coefficient) as i32 > HUGE;
        if is_huge { Decimal128::NAN } else { self.compute(function) }
    }

    /// Applies a function that is zero at zero.
    fn odd(self, function: Function) -> Decimal128 {
        if self.is_zero() { self.plain_zero() } else { self.compute(function) }
    }

    /// The sine of an angle in radians; NaN for infinities.
    pub fn sine(self) -> Decimal128 {
        if self.is_zero() { self.plain_zero() } else { self.periodic(Context::sin) }
    }

    /// The cosine of an angle in radians; NaN for infinities.
    pub fn cosine(self) -> Decimal128 {
        if self.is_zero() { Decimal128::from_i64(1) } else { self.periodic(Context::cos) }
    }

    /// The tangent of an angle in radians; NaN for infinities.
    pub fn tangent(self) -> Decimal128 {
        if self.is_zero() { self.plain_zero() } else { self.periodic(Context::tan) }
    }

    /// The arc sine in radians; NaN outside −1 to 1.
    pub fn arc_sine(self) -> Decimal128 {
        self.odd(Context::asin)
    }

    /// The arc cosine in radians; NaN outside −1 to 1.
    pub fn arc_cosine(self) -> Decimal128 {
        self.compute(Context::acos)
    }

    /// The arc tangent in radians.
    pub fn arc_tangent(self) -> Decimal128 {
        if self.is_infinite() { self.angle(Decimal128::from_i64(1)) } else { self.odd(Context::atan) }
    }

    /// The angle of the point `(x, self)`, from −π to π (atan2).
    pub fn angle(self, x: Decimal128) -> Decimal128 {
        if self.is_nan() || x.is_nan() {
            return Decimal128::NAN;
        }
        let eighths = match (self.is_infinite(), x.is_infinite()) {
            (true, true) => {
                if x.is_negative() {
                    3
                } else {
                    1
                }
            }
            (true, false) => 2,
            (false, false) if x.is_zero() && !self.is_zero() => 2,
            (false, false) if !self.is_zero() => {
                return from_library(context().atan2(&to_library(self), &to_library(x), None));
            }
            _ => {
                if x.is_negative() {
                    4
                } else {
                    0
                }
            }
        };
        let angle = Decimal128::parse(EIGHTHS[eighths]).unwrap_or(Decimal128::NAN);
        if self.is_negative() { angle.negate() } else { angle }
    }

    /// The hyperbolic sine.
    pub fn hyperbolic_sine(self) -> Decimal128 {
        self.odd(Context::sinh)
    }

    /// The hyperbolic cosine.
    pub fn hyperbolic_cosine(self) -> Decimal128 {
        if self.is_zero() { Decimal128::from_i64(1) } else { self.compute(Context::cosh) }
    }

    /// The hyperbolic tangent.
    pub fn hyperbolic_tangent(self) -> Decimal128 {
        self.odd(Context::tanh)
    }

    /// The inverse of the hyperbolic sine.
    pub fn inverse_hyperbolic_sine(self) -> Decimal128 {
        self.odd(Context::asinh)
    }

    /// The inverse of the hyperbolic cosine; NaN below one.
    pub fn inverse_hyperbolic_cosine(self) -> Decimal128 {
        self.compute(Context::acosh)
    }

    /// The inverse of the hyperbolic tangent: infinite for −1 and 1, NaN outside.
    pub fn inverse_hyperbolic_tangent(self) -> Decimal128 {
        self.odd(Context::atanh)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Decimal128 {
        Decimal128::parse(text).unwrap()
    }

    /// Expected values come from mpmath with 400 digits.
    #[test]
    fn all_digits_are_right() {
        type Function = fn(Decimal128) -> Decimal128;
        let cases: &[(Function, &str, &str)] = &[
            (Decimal128::sine, "1", "0.8414709848078965066525023216302990"),
            (Decimal128::sine, "0.5", "0.4794255386042030002732879352155714"),
            (Decimal128::sine, "-3", "-0.1411200080598672221007448028081103"),
            (Decimal128::sine, "1E-30", "1.000000000000000000000000000000000E-30"),
            (
                Decimal128::sine,
                "3.141592653589793238462643383279503",
                "-1.158028306006248941790250554076922E-34",
            ),
            (Decimal128::sine, "1E22", "-0.8522008497671888017727058937530294"),
            (Decimal128::sine, "123456789012345678901234567890", "0.9640769308796986260027814932794282"),
            (Decimal128::sine, "1E59", "-0.9952037316418947874522414222224117"),
            (Decimal128::sine, "1.570796326794896619231321691639751", "1.000000000000000000000000000000000"),
            (Decimal128::cosine, "1", "0.5403023058681397174009366074429766"),
            (Decimal128::cosine, "0.5", "0.8775825618903727161162815826038297"),
            (Decimal128::cosine, "-3", "-0.9899924966004454572715727947312613"),
            (
                Decimal128::cosine,
                "1.570796326794896619231321691639751",
                "4.420985846996875529104874722961539E-34",
            ),
            (Decimal128::cosine, "1E22", "0.5232147853951389454975944733847095"),
            (Decimal128::cosine, "0.000001", "0.9999999999995000000000000416666667"),
            (Decimal128::cosine, "9E58", "0.9275266626471978211103689514200994"),
            (Decimal128::tangent, "1", "1.557407724654902230506974807458360"),
            (Decimal128::tangent, "0.5", "0.5463024898437905132551794657802854"),
            (Decimal128::tangent, "-3", "0.1425465430742778052956354105339135"),
            (
                Decimal128::tangent,
                "1.570796326794896619231321691639751",
                "2261938930836633226244288822199802",
            ),
            (Decimal128::tangent, "100000", "-0.03577166295289877341133054456893096"),
            (Decimal128::tangent, "1E-25", "1.000000000000000000000000000000000E-25"),
            (Decimal128::arc_sine, "0.5", "0.5235987755982988730771072305465838"),
            (Decimal128::arc_sine, "-1", "-1.570796326794896619231321691639751"),
            (
                Decimal128::arc_sine,
                "0.9999999999999999999999999999999999",
                "1.570796326794896605089186067908801",
            ),
            (Decimal128::arc_sine, "1E-30", "1.000000000000000000000000000000000E-30"),
            (Decimal128::arc_sine, "0.1", "0.1001674211615597963455231794526933"),
            (Decimal128::arc_cosine, "0.5", "1.047197551196597746154214461093168"),
            (Decimal128::arc_cosine, "-1", "3.141592653589793238462643383279503"),
            (
                Decimal128::arc_cosine,
                "0.9999999999999999999999999999999999",
                "1.414213562373095048801688724209698E-17",
            ),
            (Decimal128::arc_cosine, "1E-10", "1.570796326694896619231321691639585"),
            (Decimal128::arc_cosine, "0", "1.570796326794896619231321691639751"),
            (
                Decimal128::arc_cosine,
                "-0.9999999999999999999999999999999999",
                "3.141592653589793224320507759548552",
            ),
            (Decimal128::arc_tangent, "1", "0.7853981633974483096156608458198757"),
            (Decimal128::arc_tangent, "0.5", "0.4636476090008061162142562314612144"),
            (Decimal128::arc_tangent, "-30", "-1.537475330916649422075173902618357"),
            (Decimal128::arc_tangent, "1E-20", "1.000000000000000000000000000000000E-20"),
            (Decimal128::arc_tangent, "1E40", "1.570796326794896619231321691639751"),
            (Decimal128::arc_tangent, "1E-6000", "1.000000000000000000000000000000000E-6000"),
            (Decimal128::arc_tangent, "1E6000", "1.570796326794896619231321691639751"),
            (Decimal128::hyperbolic_sine, "1", "1.175201193643801456882381850595601"),
            (Decimal128::hyperbolic_sine, "-0.5", "-0.5210953054937473616224256264114916"),
            (Decimal128::hyperbolic_sine, "1E-19", "1.000000000000000000000000000000000E-19"),
            (Decimal128::hyperbolic_sine, "1E-21", "1.000000000000000000000000000000000E-21"),
            (Decimal128::hyperbolic_sine, "10000", "4.403409112831460793630748003822281E+4342"),
            (Decimal128::hyperbolic_sine, "1E-3", "0.001000000166666675000000198412701168"),
            (Decimal128::hyperbolic_cosine, "1", "1.543080634815243778477905620757062"),
            (Decimal128::hyperbolic_cosine, "-0.5", "1.127625965206380785226225161402672"),
            (Decimal128::hyperbolic_cosine, "1E-19", "1.000000000000000000000000000000000"),
            (Decimal128::hyperbolic_cosine, "10000", "4.403409112831460793630748003822281E+4342"),
            (Decimal128::hyperbolic_tangent, "1", "0.7615941559557648881194582826047936"),
            (Decimal128::hyperbolic_tangent, "-0.5", "-0.4621171572600097585023184836436725"),
            (Decimal128::hyperbolic_tangent, "1E-19", "1.000000000000000000000000000000000E-19"),
            (Decimal128::hyperbolic_tangent, "1E-21", "1.000000000000000000000000000000000E-21"),
            (Decimal128::hyperbolic_tangent, "39", "0.9999999999999999999999999999999997"),
            (Decimal128::hyperbolic_tangent, "200", "1.000000000000000000000000000000000"),
            (Decimal128::inverse_hyperbolic_sine, "1", "0.8813735870195430252326093249797923"),
            (Decimal128::inverse_hyperbolic_sine, "-0.5", "-0.4812118250596034474977589134243684"),
            (Decimal128::inverse_hyperbolic_sine, "1E-19", "1.000000000000000000000000000000000E-19"),
            (Decimal128::inverse_hyperbolic_sine, "1E-21", "1.000000000000000000000000000000000E-21"),
            (Decimal128::inverse_hyperbolic_sine, "1E6000", "13816.20370514483404941736596022764"),
            (Decimal128::inverse_hyperbolic_sine, "1E20", "46.74484904044085898977706121514546"),
            (
                Decimal128::inverse_hyperbolic_cosine,
                "1.000000000000000000000000000000001",
                "4.472135954999579392818347337462552E-17",
            ),
            (Decimal128::inverse_hyperbolic_cosine, "2", "1.316957896924816708625046347307968"),
            (Decimal128::inverse_hyperbolic_cosine, "1E6000", "13816.20370514483404941736596022764"),
            (Decimal128::inverse_hyperbolic_tangent, "0.5", "0.5493061443340548456976226184612629"),
            (
                Decimal128::inverse_hyperbolic_tangent,
                "-0.9999999999999999999999999999999999",
                "-39.49052017117874928301447079036328",
            ),
            (Decimal128::inverse_hyperbolic_tangent, "1E-19", "1.000000000000000000000000000000000E-19"),
            (Decimal128::inverse_hyperbolic_tangent, "1E-21", "1.000000000000000000000000000000000E-21"),
        ];
        for (index, (function, operand, expected)) in cases.iter().enumerate() {
            assert_eq!(function(parse(operand)).to_string(), *expected, "case {index}: of {operand}");
        }
    }

    #[test]
    fn angles_are_right_in_all_quarters() {
        for (y, x, expected) in [
            ("1", "1", "0.7853981633974483096156608458198757"),
            ("1", "-2", "2.677945044588987122248387151818288"),
            ("-3", "-4", "-2.498091544796508851659834154562180"),
            ("1E-30", "-1", "3.141592653589793238462643383278503"),
            ("-1", "1E30", "-1.000000000000000000000000000000000E-30"),
            ("0", "5", "0"),
            ("0", "-5", "3.141592653589793238462643383279503"),
            ("-2", "0", "-1.570796326794896619231321691639751"),
            ("Infinity", "-Infinity", "2.356194490192344928846982537459627"),
            ("3", "Infinity", "0"),
            ("NaN", "1", "NaN"),
        ] {
            assert_eq!(parse(y).angle(parse(x)).to_string(), expected, "{y} over {x}");
        }
    }

    #[test]
    fn special_values_stay_special() {
        type Function = fn(Decimal128) -> Decimal128;
        let cases: &[(Function, &str, &str)] = &[
            (Decimal128::sine, "0E-5", "0"),
            (Decimal128::sine, "-0", "-0"),
            (Decimal128::sine, "NaN", "NaN"),
            (Decimal128::sine, "Infinity", "NaN"),
            (Decimal128::cosine, "0", "1"),
            (Decimal128::tangent, "0.00", "0"),
            (Decimal128::arc_sine, "0", "0"),
            (Decimal128::arc_sine, "2", "NaN"),
            (Decimal128::arc_cosine, "1", "0"),
            (Decimal128::arc_tangent, "-Infinity", "-1.570796326794896619231321691639751"),
            (Decimal128::hyperbolic_sine, "-Infinity", "-Infinity"),
            (Decimal128::hyperbolic_sine, "1E5000", "Infinity"),
            (Decimal128::hyperbolic_cosine, "-Infinity", "Infinity"),
            (Decimal128::hyperbolic_cosine, "0", "1"),
            (Decimal128::hyperbolic_tangent, "-Infinity", "-1.000000000000000000000000000000000"),
            (Decimal128::inverse_hyperbolic_sine, "Infinity", "Infinity"),
            (Decimal128::inverse_hyperbolic_cosine, "1", "0"),
            (Decimal128::inverse_hyperbolic_cosine, "0", "NaN"),
            (Decimal128::inverse_hyperbolic_tangent, "1", "Infinity"),
            (Decimal128::inverse_hyperbolic_tangent, "-1", "-Infinity"),
        ];
        for (index, (function, operand, expected)) in cases.iter().enumerate() {
            assert_eq!(function(parse(operand)).to_string(), *expected, "case {index}: of {operand}");
        }
    }

    #[test]
    fn ends_of_the_range_are_possible() {
        for (function, operand, expected) in [
            (Decimal128::sine as fn(Decimal128) -> Decimal128, "1E-6176", "1E-6176"),
            (Decimal128::cosine, "3E-17", "0.9999999999999999999999999999999996"),
            (Decimal128::sine, "1E308", "-0.7876066562047353370150861650681681"),
            (Decimal128::cosine, "1E6144", "NaN"),
            (Decimal128::hyperbolic_cosine, "9E6144", "Infinity"),
            (Decimal128::hyperbolic_tangent, "9E6144", "1.000000000000000000000000000000000"),
        ] {
            assert_eq!(function(parse(operand)).to_string(), expected, "of {operand}");
        }
    }
}
