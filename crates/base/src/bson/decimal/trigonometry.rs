//! Trigonometric and hyperbolic functions to all 34 digits.
//!
//! The decNumber library has exponentials, logarithms and roots of any precision, but no trigonometric functions. This
//! module computes them from those and from Taylor series. Extra digits make up for cancellation: 150 while a multiple
//! of π is subtracted, which covers operands up to 10^60. Neighbouring decimals beyond 10^60 are many turns apart, so a
//! double's result is as good.

use super::library::{from_library, to_library};
use super::{Decimal128, Parts};
use dec::{Context, Decimal};

/// Holds 150 digits.
type Wide = Decimal<50>;

const PI: &str = "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798214808651328230664709384460955058223172535940812848";

/// Digits for subtracting multiples of π.
const REDUCING: usize = 150;
/// Digits for all other steps. Cancellation leaves more than twice the needed digits, because operands below [`TINY`]
/// take a separate path.
const WORKING: usize = 100;
/// Operands with smaller exponents use two terms of the series.
const TINY: i32 = -20;
/// Operands with greater exponents are not reduced.
const HUGE: i32 = 60;
/// Upper bound of a series' terms; about thirty are needed.
const TERMS_MAX: u32 = 400;

/// The library's functions on values instead of references.
struct Calculator(Context<Wide>);

impl Calculator {
    fn new(digits: usize) -> Calculator {
        let mut context = Context::<Wide>::default();
        // The limits of the library's exponentials and logarithms. All three values are within its bounds.
        let limited = context.set_precision(digits).is_ok()
            && context.set_max_exponent(99_999).is_ok()
            && context.set_min_exponent(-99_999).is_ok();
        debug_assert!(limited);
        Calculator(context)
    }

    fn integer(&mut self, value: i32) -> Wide {
        self.0.from_i32(value)
    }

    fn pi(&mut self) -> Wide {
        self.0.parse(PI).unwrap_or_else(|_| Wide::nan())
    }

    fn add(&mut self, mut a: Wide, b: &Wide) -> Wide {
        self.0.add(&mut a, b);
        a
    }

    fn subtract(&mut self, mut a: Wide, b: &Wide) -> Wide {
        self.0.sub(&mut a, b);
        a
    }

    fn multiply(&mut self, mut a: Wide, b: &Wide) -> Wide {
        self.0.mul(&mut a, b);
        a
    }

    fn divide(&mut self, mut a: Wide, b: &Wide) -> Wide {
        self.0.div(&mut a, b);
        a
    }

    fn divide_by(&mut self, a: Wide, b: i32) -> Wide {
        let b = self.integer(b);
        self.divide(a, &b)
    }

    fn square(&mut self, a: Wide) -> Wide {
        self.multiply(a, &a)
    }

    fn root(&mut self, mut a: Wide) -> Wide {
        self.0.sqrt(&mut a);
        a
    }

    fn exponential(&mut self, mut a: Wide) -> Wide {
        self.0.exp(&mut a);
        a
    }

    fn logarithm(&mut self, mut a: Wide) -> Wide {
        self.0.ln(&mut a);
        a
    }

    fn negate(&mut self, mut a: Wide) -> Wide {
        self.0.minus(&mut a);
        a
    }

    /// Sums a series from `first`. `next` makes each term from the preceding term and its number. The sum ends when a
    /// term no longer changes it.
    fn series(
        &mut self,
        first: Wide,
        mut next: impl FnMut(&mut Calculator, Wide, i32) -> (Wide, Wide),
    ) -> Wide {
        let (mut sum, mut term) = (first, first);
        for number in 1..TERMS_MAX as i32 {
            let (following, addend) = next(self, term, number);
            let more = self.add(sum, &addend);
            if self.0.partial_cmp(&more, &sum).is_none_or(|order| order.is_eq()) {
                break;
            }
            (sum, term) = (more, following);
        }
        sum
    }

    /// The sine (`odd` is 1) or cosine (0) of at most a quarter turn.
    fn circular(&mut self, x: Wide, odd: i32) -> Wide {
        let square = self.square(x);
        let square = self.negate(square);
        let first = if odd == 1 { x } else { self.integer(1) };
        self.series(first, |this, term, number| {
            let term = this.multiply(term, &square);
            let term = this.divide_by(term, (2 * number + odd) * (2 * number + odd - 1));
            (term, term)
        })
    }

    /// Subtracts quarter turns until at most half of one remains. Returns the remainder and the number of quarter turns
    /// modulo four.
    fn reduce(&mut self, x: Wide) -> (Wide, i32) {
        let pi = self.pi();
        let quarter = self.divide_by(pi, 2);
        let mut turns = self.divide(x, &quarter);
        self.0.round(&mut turns);
        let away = self.multiply(turns, &quarter);
        let left = self.subtract(x, &away);
        let four = self.integer(4);
        self.0.rem(&mut turns, &four);
        // Earlier operations were inexact, and the conversion would report that status as an error.
        self.0.clear_status();
        let turns = self.0.try_into_i32(turns).unwrap_or(0);
        (left, turns.rem_euclid(4))
    }

    /// Returns sine and cosine of any angle: reduces it to half a quarter turn, then swaps and negates by quadrant.
    fn sine_and_cosine(x: Wide) -> (Wide, Wide) {
        let (left, turns) = Calculator::new(REDUCING).reduce(x);
        let mut this = Calculator::new(WORKING);
        let (sine, cosine) = (this.circular(left, 1), this.circular(left, 0));
        match turns {
            0 => (sine, cosine),
            1 => (cosine, this.negate(sine)),
            2 => (this.negate(sine), this.negate(cosine)),
            _ => (this.negate(cosine), sine),
        }
    }

    /// The arc tangent of any magnitude, in the first quadrant.
    fn arc_tangent(&mut self, x: Wide) -> Wide {
        let one = self.integer(1);
        if self.0.partial_cmp(&x, &one).is_some_and(|order| order.is_gt()) {
            let inverse = self.divide(one, &x);
            let rest = self.arc_tangent_of_small(inverse);
            let pi = self.pi();
            let quarter = self.divide_by(pi, 2);
            return self.subtract(quarter, &rest);
        }
        self.arc_tangent_of_small(x)
    }

    /// Computes a small arc tangent: halves the angle four times before summing the series.
    fn arc_tangent_of_small(&mut self, mut x: Wide) -> Wide {
        let one = self.integer(1);
        for _ in 0..4 {
            let square = self.square(x);
            let hypotenuse = self.add(square, &one);
            let hypotenuse = self.root(hypotenuse);
            let below = self.add(hypotenuse, &one);
            x = self.divide(x, &below);
        }
        let square = self.square(x);
        let square = self.negate(square);
        let angle = self.series(x, |this, power, number| {
            let power = this.multiply(power, &square);
            let term = this.divide_by(power, 2 * number + 1);
            (power, term)
        });
        let sixteen = self.integer(16);
        self.multiply(angle, &sixteen)
    }

    /// Returns `1 - x` and `1 + x`.
    fn around_one(&mut self, x: &Wide) -> (Wide, Wide) {
        let one = self.integer(1);
        (self.subtract(one, x), self.add(one, x))
    }

    /// Returns `x + x³ / by`, the approximation of every odd function near zero.
    fn nearly(&mut self, x: Wide, by: i32) -> Wide {
        let square = self.square(x);
        let cube = self.multiply(square, &x);
        let bend = self.divide_by(cube, by);
        self.add(x, &bend)
    }

    /// Returns e to the powers of `x` and `-x`.
    fn exponentials(&mut self, x: Wide) -> (Wide, Wide) {
        let up = self.exponential(x);
        let minus = self.negate(x);
        (up, self.exponential(minus))
    }

    fn hyperbolic_sine(&mut self, x: Wide) -> Wide {
        let (up, down) = self.exponentials(x);
        let twice = self.subtract(up, &down);
        self.divide_by(twice, 2)
    }

    fn hyperbolic_cosine(&mut self, x: Wide) -> Wide {
        let (up, down) = self.exponentials(x);
        let twice = self.add(up, &down);
        self.divide_by(twice, 2)
    }

    /// Returns ln(x + √(x² + offset)).
    fn inverse_hyperbolic(&mut self, x: Wide, offset: i32) -> Wide {
        let square = self.square(x);
        let offset = self.integer(offset);
        let other = self.add(square, &offset);
        let other = self.root(other);
        let sum = self.add(x, &other);
        self.logarithm(sum)
    }
}

fn widen(value: Decimal128) -> Wide {
    Wide::from(to_library(value, &mut Context::default()))
}

fn narrow(value: &Wide) -> Decimal128 {
    from_library(Context::<dec::Decimal128>::default().from_decimal(value))
}

fn compute(value: Decimal128, function: impl Fn(&mut Calculator, Wide) -> Wide) -> Decimal128 {
    narrow(&function(&mut Calculator::new(WORKING), widen(value)))
}

impl Decimal128 {
    /// The exponent of the first digit; the least possible for zero.
    fn magnitude_of_ten(self) -> i32 {
        match self.parts() {
            Parts::Finite { coefficient, exponent, .. } => {
                coefficient.checked_ilog10().map_or(i32::MIN, |digits| digits as i32 + exponent)
            }
            _ => i32::MAX,
        }
    }

    /// Returns a zero without decimal places, of the same sign.
    fn plain_zero(self) -> Decimal128 {
        if self.is_negative() { Decimal128::ZERO.negate() } else { Decimal128::ZERO }
    }

    /// Applies an odd function to the absolute value and restores the sign. Near zero the function is `x + x³ / near`.
    fn odd(self, near: i32, function: impl Fn(&mut Calculator, Wide) -> Wide) -> Decimal128 {
        if self.is_nan() {
            return self;
        }
        let result = match self.abs().magnitude_of_ten() {
            i32::MIN => return self.plain_zero(),
            small if small < TINY => compute(self.abs(), |this, x| this.nearly(x, near)),
            _ => compute(self.abs(), function),
        };
        if self.is_negative() { result.negate() } else { result }
    }

    /// Applies a periodic function; NaN for infinities.
    fn turning(self, double: fn(f64) -> f64, choose: impl Fn(Wide, Wide) -> Wide) -> Decimal128 {
        if self.is_nan() || self.is_infinite() {
            return Decimal128::NAN;
        }
        if self.magnitude_of_ten() >= HUGE {
            return Decimal128::from_f64_exact(double(self.to_f64()));
        }
        let (sine, cosine) = Calculator::sine_and_cosine(widen(self));
        narrow(&choose(sine, cosine))
    }

    /// The sine of an angle in radians; NaN for infinities.
    pub fn sine(self) -> Decimal128 {
        if self.is_zero() { self.plain_zero() } else { self.turning(f64::sin, |sine, _| sine) }
    }

    /// The cosine of an angle in radians; NaN for infinities.
    pub fn cosine(self) -> Decimal128 {
        self.turning(f64::cos, |_, cosine| cosine)
    }

    /// The tangent of an angle in radians; NaN for infinities.
    pub fn tangent(self) -> Decimal128 {
        if self.is_zero() {
            return self.plain_zero();
        }
        self.turning(f64::tan, |sine, cosine| Calculator::new(WORKING).divide(sine, &cosine))
    }

    /// The arc sine in radians; NaN outside −1 to 1.
    pub fn arc_sine(self) -> Decimal128 {
        self.odd(6, |this, x| {
            let (below, above) = this.around_one(&x);
            let square = this.multiply(below, &above);
            let other = this.root(square);
            if other.is_zero() {
                let pi = this.pi();
                return this.divide_by(pi, 2);
            }
            let tangent = this.divide(x, &other);
            this.arc_tangent(tangent)
        })
    }

    /// The arc cosine in radians; NaN outside −1 to 1.
    pub fn arc_cosine(self) -> Decimal128 {
        compute(self, |this, x| {
            let (below, above) = this.around_one(&x);
            if above.is_zero() {
                return this.pi();
            }
            let square = this.divide(below, &above);
            let tangent = this.root(square);
            let half = this.arc_tangent(tangent);
            this.add(half, &half)
        })
    }

    /// The arc tangent in radians.
    pub fn arc_tangent(self) -> Decimal128 {
        if self.is_infinite() {
            return self.angle(Decimal128::from_i64(1));
        }
        self.odd(-3, |this, x| this.arc_tangent(x))
    }

    /// The angle of the point `(x, self)`, from −π to π (atan2).
    pub fn angle(self, x: Decimal128) -> Decimal128 {
        if self.is_nan() || x.is_nan() {
            return Decimal128::NAN;
        }
        if self.is_zero() && !x.is_negative() {
            return self.plain_zero();
        }
        let mut this = Calculator::new(WORKING);
        let pi = this.pi();
        let steep = if self.is_infinite() && x.is_infinite() {
            this.divide_by(pi, 4)
        } else if self.is_infinite() || x.is_zero() && !self.is_zero() {
            this.divide_by(pi, 2)
        } else if x.is_infinite() || self.is_zero() {
            this.integer(0)
        } else {
            let tangent = this.divide(widen(self.abs()), &widen(x.abs()));
            this.arc_tangent(tangent)
        };
        let angle = if x.is_negative() { this.subtract(pi, &steep) } else { steep };
        let angle = narrow(&angle);
        if self.is_negative() { angle.negate() } else { angle }
    }

    /// The hyperbolic sine.
    pub fn hyperbolic_sine(self) -> Decimal128 {
        self.odd(6, Calculator::hyperbolic_sine)
    }

    /// The hyperbolic cosine.
    pub fn hyperbolic_cosine(self) -> Decimal128 {
        compute(self, Calculator::hyperbolic_cosine)
    }

    /// The hyperbolic tangent.
    pub fn hyperbolic_tangent(self) -> Decimal128 {
        self.odd(-3, |this, x| {
            // All 34 digits are those of one from here on, and nothing overflows.
            let hundred = this.integer(100);
            if this.0.partial_cmp(&x, &hundred).is_some_and(|order| order.is_gt()) {
                // Written with all its digits, because the result is inexact.
                let one = this.integer(1);
                let mut tiny = this.integer(1);
                tiny.set_exponent(-60);
                return this.subtract(one, &tiny);
            }
            let (sine, cosine) = (this.hyperbolic_sine(x), this.hyperbolic_cosine(x));
            this.divide(sine, &cosine)
        })
    }

    /// The inverse of the hyperbolic sine.
    pub fn inverse_hyperbolic_sine(self) -> Decimal128 {
        self.odd(-6, |this, x| this.inverse_hyperbolic(x, 1))
    }

    /// The inverse of the hyperbolic cosine; NaN below one.
    pub fn inverse_hyperbolic_cosine(self) -> Decimal128 {
        compute(self, |this, x| this.inverse_hyperbolic(x, -1))
    }

    /// The inverse of the hyperbolic tangent: infinite for −1 and 1, NaN outside.
    pub fn inverse_hyperbolic_tangent(self) -> Decimal128 {
        self.odd(3, |this, x| {
            let (below, above) = this.around_one(&x);
            if below.is_zero() {
                return Wide::infinity();
            }
            let ratio = this.divide(above, &below);
            let twice = this.logarithm(ratio);
            this.divide_by(twice, 2)
        })
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
        for (place, (function, operand, expected)) in cases.iter().enumerate() {
            assert_eq!(function(parse(operand)).to_string(), *expected, "case {place}: of {operand}");
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
        for (place, (function, operand, expected)) in cases.iter().enumerate() {
            assert_eq!(function(parse(operand)).to_string(), *expected, "case {place}: of {operand}");
        }
    }
}
