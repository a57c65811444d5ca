//! Tests of decimals: text, arithmetic, exact comparison, conversions.

use super::*;

fn d(text: &str) -> Decimal128 {
    Decimal128::parse(text).unwrap()
}

#[test]
fn text_as_mongodb_prints_it() {
    for text in [
        "0",
        "-0",
        "1",
        "-1.50",
        "0.001",
        "0.000001",
        "1E-7",
        "1.2E-7",
        "1E+3",
        "1.23E+5",
        "NaN",
        "Infinity",
        "-Infinity",
        "0E+3",
        "0E-8",
        "0.00",
        "9.999999999999999999999999999999999E+6144",
        "1E-6176",
        "12345678901234567890.12345678901234",
    ] {
        assert_eq!(d(text).to_string(), text);
    }
    for (text, printed) in [
        ("+1", "1"),
        (".5", "0.5"),
        ("5.", "5"),
        ("inf", "Infinity"),
        ("nAn", "NaN"),
        ("1e3", "1E+3"),
        ("1E6144", "1.000000000000000000000000000000000E+6144"),
        ("1E6145", "Infinity"),
        ("1E99999999999", "Infinity"),
        ("-1E-99999999999", "-0E-6176"),
        ("12345678901234567890123456789012345", "1.234567890123456789012345678901234E+34"),
        ("12345678901234567890123456789012355", "1.234567890123456789012345678901236E+34"),
        ("99999999999999999999999999999999999999999", "1.000000000000000000000000000000000E+41"),
        ("12345678901234567890123456789012345000000000001", "1.234567890123456789012345678901235E+46"),
    ] {
        assert_eq!(d(text).to_string(), printed, "{text}");
    }
    for text in ["", "-", ".", "e5", "1e", "1e+", "1 ", "0x1", "1.2.3", "infinit", "--1"] {
        assert!(Decimal128::parse(text).is_none(), "{text}");
    }
}

#[test]
fn arithmetic() {
    assert_eq!(d("1.10").plus(d("2.20")).to_string(), "3.30");
    assert_eq!(d("1").plus(d("1E-40")).to_string(), "1.000000000000000000000000000000000");
    assert_eq!(d("1").minus(d("1")).to_string(), "0");
    assert_eq!(d("1").minus(d("Infinity")).to_string(), "-Infinity");
    assert_eq!(d("1.1").times(d("-1.10")).to_string(), "-1.210");
    assert_eq!(d("9E+6144").times(d("10")).to_string(), "Infinity");
    assert_eq!(d("1").divided_by(d("3")).to_string(), "0.3333333333333333333333333333333333");
    assert_eq!(d("1").divided_by(d("0")).to_string(), "Infinity");
    assert_eq!(d("6").divided_by(d("2")).to_string(), "3");
    assert_eq!(d("7.5").remainder(d("2")).to_string(), "1.5");
    assert_eq!(d("-7.5").remainder(d("2")).to_string(), "-1.5");
    assert_eq!(d("1E+6000").remainder(d("7")).to_string(), "1");
    assert_eq!(d("5").remainder(d("1E+6000")).to_string(), "5");
    assert_eq!(d("5").remainder(d("0")).to_string(), "NaN");
    assert_eq!(d("2").power(d("3")).to_string(), "8");
    assert_eq!(d("10").power(d("-2")).to_string(), "0.01");
    assert_eq!(d("-8").power(d("0.5")).to_string(), "NaN");
    assert_eq!(d("4").square_root().to_string(), "2");
    assert_eq!(d("2").square_root().to_string(), "1.414213562373095048801688724209698");
    assert_eq!(d("1").exponential().to_string(), "2.718281828459045235360287471352662");
    assert_eq!(d("1").natural_logarithm().to_string(), "0");
    assert_eq!(d("2").natural_logarithm().to_string(), "0.6931471805599453094172321214581766");
    assert_eq!(d("1000").logarithm_10().to_string(), "3");
    assert_eq!(d("-0").negate().to_string(), "0");
    assert_eq!(d("-3").abs().to_string(), "3");
}

#[test]
fn rounding() {
    use Rounding::*;
    for (value, exponent, rounding, expected) in [
        ("2.5", 0, HalfEven, "2"),
        ("3.5", 0, HalfEven, "4"),
        ("-2.5", 0, HalfEven, "-2"),
        ("2.51", 0, HalfEven, "3"),
        ("1.25", -1, HalfEven, "1.2"),
        ("1234", 2, HalfEven, "1.2E+3"),
        ("1.5", -3, HalfEven, "1.500"),
        ("1.59", -1, TowardZero, "1.5"),
        ("-1.51", 0, Floor, "-2"),
        ("-1.51", 0, Ceiling, "-1"),
        ("1E-6000", 0, Ceiling, "1"),
        ("1E-6000", 0, HalfEven, "0"),
        ("1E+40", 0, HalfEven, "NaN"),
        ("0E+40", 0, HalfEven, "0"),
        ("-Infinity", 0, Floor, "-Infinity"),
    ] {
        assert_eq!(d(value).quantize(exponent, rounding).to_string(), expected, "{value}");
    }
    assert_eq!(d("-0.5").ceil().to_string(), "-0");
    assert_eq!(d("-0.5").floor().to_string(), "-1");
    assert_eq!(d("1E+40").floor().to_string(), "1E+40");
}

#[test]
fn conversions() {
    assert_eq!(d("9".repeat(34).as_str()).to_i64_exact(), None);
    assert_eq!(d("12E1").to_i64_exact(), Some(120));
    assert_eq!(d("1.5").to_i64_exact(), None);
    assert_eq!(d("0E+6000").to_i64_exact(), Some(0));
    assert_eq!(d("-9223372036854775808").to_i64_exact(), Some(i64::MIN));
    assert_eq!(d("9223372036854775807.9").to_i64(Rounding::TowardZero), Some(i64::MAX));
    assert_eq!(d("9223372036854775808").to_i64_clamped(), i64::MAX);
    assert_eq!(d("-Infinity").to_i64_clamped(), i64::MIN);
    assert_eq!(d("NaN").to_i64_clamped(), 0);
    for (double, text) in [
        (0.1, "0.100000000000000"),
        (1.0, "1.00000000000000"),
        (0.0, "0"),
        (-0.0, "-0"),
        (1e300, "1.00000000000000E+300"),
        (123_456_789.123_456_79, "123456789.123457"),
        (f64::NEG_INFINITY, "-Infinity"),
        (f64::NAN, "NaN"),
    ] {
        assert_eq!(Decimal128::from_f64(double).to_string(), text);
    }
    assert_eq!(Decimal128::from_f64_exact(0.5).to_string(), "0.5");
    assert_eq!(Decimal128::from_f64_exact(0.1).to_string(), "0.1000000000000000055511151231257827");
    assert_eq!(d("1E-6176").to_f64(), 0.0);
    assert_eq!(d("0.1").to_f64(), 0.1);
    assert_eq!(d("12345678901234567890123").to_f64(), 12345678901234567890123.0);
    assert_eq!(d("1E+400").to_f64(), f64::INFINITY);
}

#[test]
fn comparison() {
    let ascending = [
        "NaN",
        "-Infinity",
        "-1E+6000",
        "-1.5",
        "-1.1",
        "-1E-6176",
        "0",
        "1E-6176",
        "0.99",
        "1.0",
        "1.01",
        "9",
        "10",
        "1E+2",
        "100.5",
        "1E+6000",
        "Infinity",
    ];
    for (i, a) in ascending.iter().enumerate() {
        for (j, b) in ascending.iter().enumerate() {
            assert_eq!(d(a).compare(d(b)), i.cmp(&j), "{a} {b}");
        }
    }
    assert_eq!(d("1.0").compare(d("1")), Ordering::Equal);
    assert_eq!(d("-0").compare(d("0E+5")), Ordering::Equal);
    for (decimal, double, order) in [
        ("0.1", 0.1, Ordering::Less),
        ("-0.1", -0.1, Ordering::Greater),
        ("0.5", 0.5, Ordering::Equal),
        ("1E+23", 1e23, Ordering::Greater),
        ("9007199254740993", 9007199254740992.0, Ordering::Greater),
        ("1E+6000", f64::MAX, Ordering::Greater),
        ("1E+6000", f64::INFINITY, Ordering::Less),
        ("Infinity", f64::INFINITY, Ordering::Equal),
        ("1E-6000", 0.0, Ordering::Greater),
        ("-1E-6000", 0.0, Ordering::Less),
        ("1E-6000", 5e-324, Ordering::Less),
        ("0", -0.0, Ordering::Equal),
        ("NaN", f64::NAN, Ordering::Equal),
        ("NaN", 0.0, Ordering::Less),
        ("0", f64::NAN, Ordering::Greater),
    ] {
        assert_eq!(d(decimal).compare_f64(double), order, "{decimal} {double}");
    }
}
