//! `granularity` of `$bucketAuto`: rounds bounds to a series of preferred numbers, or to powers of two.
//!
//! The series are the Renard series of ISO 3, the E series of IEC 60063 and 1-2-5, each for one decade. Powers of ten
//! scale them to other decades. Rounding always moves a bound: it is above all values of its bucket, and below all
//! values of the next.

use base::bson::{Decimal128, Number, Value};
use base::{Result, bail};

/// A parsed granularity.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Granularity {
    /// One decade of preferred numbers, ascending.
    Series(Vec<f64>),
    PowersOfTwo,
}

const R5: &[u16] = &[10, 16, 25, 40, 63];
const R10: &[u16] = &[100, 125, 160, 200, 250, 315, 400, 500, 630, 800];
const R20: &[u16] =
    &[100, 112, 125, 140, 160, 180, 200, 224, 250, 280, 315, 355, 400, 450, 500, 560, 630, 710, 800, 900];
// MongoDB's R40 lacks 335. Its R80 has only the numbers between those of R40, and 575 instead of 580.
const R40: &[u16] = &[
    100, 106, 112, 118, 125, 132, 140, 150, 160, 170, 180, 190, 200, 212, 224, 236, 250, 265, 280, 300, 315,
    355, 375, 400, 425, 450, 475, 500, 530, 560, 600, 630, 670, 710, 750, 800, 850, 900, 950,
];
const R80: &[u16] = &[
    103, 109, 115, 122, 128, 136, 145, 155, 165, 175, 185, 195, 206, 218, 230, 243, 258, 272, 290, 307, 325,
    345, 365, 387, 412, 437, 462, 487, 515, 545, 575, 615, 650, 690, 730, 775, 825, 875, 925, 975,
];
const E24: &[u16] =
    &[10, 11, 12, 13, 15, 16, 18, 20, 22, 24, 27, 30, 33, 36, 39, 43, 47, 51, 56, 62, 68, 75, 82, 91];

impl Granularity {
    /// Parses a granularity. Errors: 40261 for a value that is not a string, 40257 for an unknown name.
    pub(super) fn parse(value: Value<'_>) -> Result<Granularity> {
        let Value::String(name) = value else {
            let found = value.kind().alias();
            bail!(40261, "The $bucketAuto 'granularity' field must be a string, but found type: {found}.");
        };
        let series = |numbers: &[u16]| Granularity::Series(numbers.iter().map(|n| f64::from(*n)).collect());
        Ok(match name {
            "R5" => series(R5),
            "R10" => series(R10),
            "R20" => series(R20),
            "R40" => series(R40),
            "R80" => series(R80),
            "1-2-5" => series(&[10, 20, 50]),
            "E6" => series(&every(E24, 4)),
            "E12" => series(&every(E24, 2)),
            "E24" => series(E24),
            "E48" => series(&every(&e192(), 4)),
            "E96" => series(&every(&e192(), 2)),
            "E192" => series(&e192()),
            "POWERSOF2" => Granularity::PowersOfTwo,
            _ => bail!(40257, "Unknown rounding granularity '{name}'"),
        })
    }

    /// Returns the least number of the series above a value that [`checked`] has accepted; zero is unchanged.
    pub(super) fn round_up(&self, value: Number) -> Number {
        match (self, value) {
            _ if value.is_zero() => value,
            (Granularity::Series(series), value) => above(series, value),
            (Granularity::PowersOfTwo, value) => match to_integer(value) {
                Some(integer) => power_of_two(value, f64::from(integer.ilog2()) + 1.0),
                None => power_of_two(value, value.to_f64().log2().floor() + 1.0),
            },
        }
    }

    /// Returns the greatest number of the series below a value that [`checked`] has accepted; zero is unchanged.
    pub(super) fn round_down(&self, value: Number) -> Number {
        match (self, value) {
            _ if value.is_zero() => value,
            (Granularity::Series(series), value) => below(series, value),
            (Granularity::PowersOfTwo, value) => match to_integer(value) {
                Some(integer) => {
                    let itself = f64::from(u8::from(integer.is_power_of_two()));
                    power_of_two(value, f64::from(integer.ilog2()) - itself)
                }
                None => power_of_two(value, value.to_f64().log2().ceil() - 1.0),
            },
        }
    }
}

/// Checks that a value can be rounded.
///
/// Errors: 40258 for a value that is not a number, 40259 for NaN, 40260 below zero, 11785400 for infinity.
pub(super) fn checked(value: Option<Value<'_>>) -> Result<Number> {
    let Some(number) = value.and_then(|value| value.as_number()) else {
        let found = value.map_or("missing", |value| value.kind().alias());
        bail!(
            40258,
            "$bucketAuto can specify a 'granularity' with numeric boundaries only, but found a value with \
             type: {found}"
        );
    };
    if number.is_nan() {
        bail!(40259, "$bucketAuto can specify a 'granularity' with numeric boundaries only, but found a NaN");
    }
    if number.compare(Number::Int32(0)).is_lt() {
        bail!(
            40260,
            "$bucketAuto can specify a 'granularity' with non-negative numbers only, but found a negative number"
        );
    }
    let infinite = match number {
        Number::Double(number) => number.is_infinite(),
        Number::Decimal128(number) => number.is_infinite(),
        Number::Int32(_) | Number::Int64(_) => false,
    };
    if infinite {
        bail!(11785400, "A granularity rounder can only round finite numbers");
    }
    Ok(number)
}

fn every(numbers: &[u16], step: usize) -> Vec<u16> {
    numbers.iter().copied().step_by(step).collect()
}

/// Computes the E192 series: a decade divided evenly by ratio, in three digits. The standard rounds one number
/// differently.
fn e192() -> Vec<u16> {
    let number = |i: u32| match i {
        185 => 920,
        _ => (100.0 * 10f64.powf(f64::from(i) / 192.0)).round() as u16,
    };
    (0..192).map(number).collect()
}

/// Returns a double as a number of the same type as `model`, which is a double or a decimal. Decimals get the fifteen
/// digits of the double.
fn like(model: Number, value: f64) -> Number {
    if model.is_decimal() { Number::Decimal128(Decimal128::from_f64(value)) } else { Number::Double(value) }
}

/// Divides a double or a decimal by ten.
fn tenth(value: Number) -> Number {
    match value {
        Number::Decimal128(value) => Number::Decimal128(value.divided_by(Decimal128::from_i64(10))),
        value => Number::Double(value.to_f64() / 10.0),
    }
}

/// Returns a value, the numbers of a series and the scale 1: decimals for a decimal, doubles for another number.
fn in_one_type(series: &[f64], value: Number) -> (Number, Vec<Number>, Number) {
    let (value, one) = match value {
        Number::Decimal128(_) => (value, Number::Decimal128(Decimal128::from_i64(1))),
        value => (Number::Double(value.to_f64()), Number::Double(1.0)),
    };
    (value, series.iter().map(|number| like(value, *number)).collect(), one)
}

/// Returns the least multiple of the series above a positive number. As in MongoDB, the scale starts at 1 and moves by
/// factors of ten, so that results are equal in the last digit. The exponents of the number's type bound the loops.
fn above(series: &[f64], value: Number) -> Number {
    let (value, numbers, mut scale) = in_one_type(series, value);
    let (Some(&first), Some(&last)) = (numbers.first(), numbers.last()) else { return value };
    while value.compare(last.times(scale)).is_ge() {
        scale = scale.times(Number::Int32(10));
    }
    while value.compare(first.times(scale)).is_lt() {
        let edge = first.times(scale);
        scale = tenth(scale);
        // The value is between two decades.
        if value.compare(last.times(scale)).is_ge() {
            return edge;
        }
    }
    let mut multiples = numbers.into_iter().map(|number| number.times(scale));
    multiples.find(|multiple| value.compare(*multiple).is_lt()).unwrap_or(value)
}

/// Returns the greatest multiple of the series below a positive number, as [`above`]; zero for the least numbers.
fn below(series: &[f64], value: Number) -> Number {
    let (value, numbers, mut scale) = in_one_type(series, value);
    let (Some(&first), Some(&last)) = (numbers.first(), numbers.last()) else { return value };
    while value.compare(first.times(scale)).is_le() {
        scale = tenth(scale);
    }
    if scale.is_zero() {
        return scale;
    }
    while value.compare(last.times(scale)).is_gt() {
        let edge = last.times(scale);
        scale = scale.times(Number::Int32(10));
        if value.compare(first.times(scale)).is_le() {
            return edge;
        }
    }
    let multiples = numbers.into_iter().map(|number| number.times(scale));
    multiples.rev().find(|multiple| multiple.compare(value).is_lt()).unwrap_or(value)
}

/// Returns the value of an integer.
fn to_integer(value: Number) -> Option<u64> {
    match value {
        Number::Int32(value) => u64::try_from(value).ok(),
        Number::Int64(value) => u64::try_from(value).ok(),
        Number::Double(_) | Number::Decimal128(_) => None,
    }
}

/// Returns an integer power of two in the type of `$pow`: decimal for a decimal, otherwise the narrowest type that
/// holds it.
fn power_of_two(like: Number, exponent: f64) -> Number {
    if let Number::Decimal128(_) = like {
        let exponent = Decimal128::from_i64(exponent as i64);
        return Number::Decimal128(Decimal128::from_i64(2).power(exponent));
    }
    let power = exponent.exp2();
    if (0.0..31.0).contains(&exponent) {
        Number::Int32(power as i32)
    } else if (0.0..63.0).contains(&exponent) {
        Number::Int64(power as i64)
    } else {
        Number::Double(power)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounder(name: &str) -> Granularity {
        Granularity::parse(Value::String(name)).unwrap()
    }

    #[track_caller]
    fn rounds(name: &str, value: f64, down: f64, up: f64) {
        let rounder = rounder(name);
        let value = Number::Double(value);
        assert_eq!(
            (rounder.round_down(value).to_f64(), rounder.round_up(value).to_f64()),
            (down, up),
            "{name}"
        );
    }

    #[test]
    fn series_have_as_many_numbers_as_in_mongodb() {
        for (name, count) in [
            ("R5", 5),
            ("R10", 10),
            ("R20", 20),
            ("R40", 39),
            ("R80", 40),
            ("1-2-5", 3),
            ("E6", 6),
            ("E12", 12),
            ("E24", 24),
            ("E48", 48),
            ("E96", 96),
            ("E192", 192),
        ] {
            let Granularity::Series(series) = rounder(name) else { panic!("{name}") };
            assert_eq!(series.len(), count, "{name}");
            assert!(series.is_sorted(), "{name}");
        }
    }

    #[test]
    fn numbers_of_the_standard() {
        assert_eq!(every(E24, 4), [10, 15, 22, 33, 47, 68]);
        let e192 = e192();
        assert_eq!(e192[..6], [100, 101, 102, 104, 105, 106]);
        assert_eq!(e192[183..], [898, 909, 920, 931, 942, 953, 965, 976, 988]);
        assert_eq!(every(&e192, 4)[..4], [100, 105, 110, 115]);
    }

    #[test]
    fn bounds_always_move() {
        rounds("R5", 10.0, 6.300000000000001, 16.0);
        rounds("R5", 11.0, 10.0, 16.0);
        rounds("R5", 63.0, 40.0, 100.0);
        rounds("R5", 64.0, 63.0, 100.0);
        rounds("R5", 0.8, 0.63, 1.0);
        rounds("1-2-5", 5000.0, 2000.0, 10000.0);
        rounds("E6", 0.07, 0.068, 0.1);
        rounds("R5", 0.0, 0.0, 0.0);
        rounds("R40", 320.0, 315.0, 355.0);
        rounds("R80", 104.0, 103.0, 109.0);
        rounds("R80", 560.0, 545.0, 575.0);
        rounds("R80", 1000.0, 975.0, 1030.0);
        rounds("R80", 5e-324, 0.0, 1.02e-321);
        rounds("R5", 1e-7, 6.300000000000002e-8, 1.0000000000000002e-7);
        rounds("POWERSOF2", 5.5, 4.0, 8.0);
        rounds("POWERSOF2", 4.0, 2.0, 8.0);
        rounds("POWERSOF2", 0.3, 0.25, 0.5);
    }

    #[test]
    fn powers_of_two_keep_to_integers() {
        let rounder = rounder("POWERSOF2");
        let shown = |number: Number| format!("{number:?}");
        assert_eq!(shown(rounder.round_up(Number::Int32(31))), "Int32(32)");
        assert_eq!(shown(rounder.round_up(Number::Int32(i32::MAX))), "Int64(2147483648)");
        assert_eq!(shown(rounder.round_up(Number::Int64(i64::MAX))), "Double(9.223372036854776e18)");
        assert_eq!(shown(rounder.round_down(Number::Int32(1))), "Double(0.5)");
    }

    #[test]
    fn the_ends_of_the_range_are_no_danger() {
        for name in ["R5", "E192", "POWERSOF2"] {
            for value in [f64::MAX, f64::MIN_POSITIVE, 5e-324] {
                let rounder = rounder(name);
                let _ = (rounder.round_up(Number::Double(value)), rounder.round_down(Number::Double(value)));
            }
            for text in ["9.9E6144", "1E-6176"] {
                let value = Number::Decimal128(Decimal128::parse(text).unwrap());
                let _ = (rounder(name).round_up(value), rounder(name).round_down(value));
            }
        }
    }
}
