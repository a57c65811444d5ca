//! Tests of `$convert` for all pairs of types, and of its errors.

use super::super::testing::{check, check_error, check_parse_error};
use super::to_text;
use base::bson::Value;

fn converts(input: &str, to: &str, expected: &str) {
    check(&format!("{{$convert: {{input: {input}, to: '{to}'}}}}"), "{}", expected);
}

fn fails(input: &str, to: &str) {
    check_error(&format!("{{$convert: {{input: {input}, to: '{to}'}}}}"), "{}", 241);
}

const ID: &str = "ObjectId('58c7cba47bbadf523cf2c313')";
const DATE: &str = "ISODate('2017-01-01T00:00:00Z')";

#[test]
fn to_numbers() {
    converts("1.9", "int", "1");
    converts("-1.9", "long", "NumberLong(-1)");
    converts("true", "int", "1");
    converts("false", "double", "0.0");
    converts("'-12'", "int", "-12");
    converts("'1.5e3'", "double", "1500.0");
    converts("'1.50'", "decimal", "NumberDecimal('1.50')");
    converts("NumberDecimal('2.9')", "int", "2");
    converts("3", "decimal", "NumberDecimal('3')");
    converts("2.5", "decimal", "NumberDecimal('2.50000000000000')");
    converts(DATE, "long", "NumberLong('1483228800000')");
    converts(DATE, "double", "1483228800000.0");
    for (input, to) in [
        ("1e10", "int"),
        ("1e300", "long"),
        ("NaN", "int"),
        ("Infinity", "long"),
        ("'5.5'", "int"),
        ("'0x11'", "int"),
        ("' 1'", "double"),
        ("''", "int"),
        ("'x'", "decimal"),
        ("'99999999999'", "int"),
        ("NumberDecimal('1E400')", "double"),
        (DATE, "int"),
        (ID, "int"),
        ("[]", "double"),
    ] {
        fails(input, to);
    }
}

#[test]
fn to_bool_date_and_id() {
    for input in ["1", "-0.5", "'false'", ID, DATE, "[]", "{}"] {
        converts(input, "bool", "true");
    }
    for input in ["0", "-0.0", "false", "NumberDecimal('0')"] {
        converts(input, "bool", "false");
    }
    converts("NumberLong('1483228800000')", "date", DATE);
    converts("1483228800000.9", "date", DATE);
    converts("'2017-01-01'", "date", DATE);
    converts(ID, "date", "ISODate('2017-03-14T10:53:24Z')");
    converts("Timestamp(1483228800, 1)", "date", DATE);
    converts("'58c7cba47bbadf523cf2c313'", "objectId", ID);
    for (input, to) in
        [("1", "date"), ("true", "date"), ("'x'", "date"), ("'xyz'", "objectId"), ("1", "objectId")]
    {
        fails(input, to);
    }
}

#[test]
fn to_strings() {
    converts("1", "string", "'1'");
    converts("2.5", "string", "'2.5'");
    converts("true", "string", "'true'");
    converts("NumberDecimal('1.50')", "string", "'1.50'");
    converts(ID, "string", "'58c7cba47bbadf523cf2c313'");
    converts(DATE, "string", "'2017-01-01T00:00:00.000Z'");
    check(
        "{$toString: UUID('00112233-4455-6677-8899-aabbccddeeff')}",
        "{}",
        "'00112233-4455-6677-8899-aabbccddeeff'",
    );
    check("{$toString: BinData(0, 'AQI=')}", "{}", "'AQI='");
    fails("[1]", "string");
    fails("{}", "string");
}

#[test]
fn binaries_by_format() {
    let from = |text: &str, format: &str| {
        format!("{{$convert: {{input: '{text}', to: {{type: 'binData', subtype: 0}}, format: '{format}'}}}}")
    };
    check(&from("AQI=", "base64"), "{}", "BinData(0, 'AQI=')");
    check(&from("AQI", "base64url"), "{}", "BinData(0, 'AQI=')");
    check(&from("0102", "hex"), "{}", "BinData(0, 'AQI=')");
    check(&from("hi!", "utf8"), "{}", "BinData(0, 'aGkh')");
    check_error(&from("AQI", "base64"), "{}", 241);
    check_error(&from("x", "nothing"), "{}", 4341125);
    check("{$convert: {input: BinData(0, 'aGkh'), to: 'string', format: 'utf8'}}", "{}", "'hi!'");
    check("{$convert: {input: BinData(0, 'AQI='), to: 'string', format: 'hex'}}", "{}", "'0102'");
    check(
        "{$toUUID: '00112233-4455-6677-8899-aabbccddeeff'}",
        "{}",
        "UUID('00112233-4455-6677-8899-aabbccddeeff')",
    );
    check_error("{$toUUID: 'x'}", "{}", 241);
    check_error("{$convert: {input: 'x', to: 'binData'}}", "{}", 4341115);
}

#[test]
fn numbers_byte_by_byte() {
    let bytes = |input: &str, order: &str| {
        format!("{{$convert: {{input: {input}, to: 'binData', byteOrder: {order}}}}}")
    };
    check(&bytes("258", "'little'"), "{}", "BinData(0, 'AgEAAA==')");
    check(&bytes("258", "'big'"), "{}", "BinData(0, 'AAABAg==')");
    check(&bytes("258", "null"), "{}", "BinData(0, 'AgEAAA==')");
    check(&bytes("NumberLong(-1)", "'big'"), "{}", "BinData(0, '//////////8=')");
    check(&bytes("1.5", "'big'"), "{}", "BinData(0, 'P/gAAAAAAAA=')");
    check_error(&bytes("1", "'middle'"), "{}", 9130002);
    check_error(&bytes("1", "2"), "{}", 9130001);
    check_error(&bytes("NumberDecimal('1')", "'big'"), "{}", 241);
    check("{$convert: {input: BinData(0, 'AAABAg=='), to: 'int', byteOrder: 'big'}}", "{}", "258");
    check("{$toInt: BinData(0, '/w==')}", "{}", "-1");
    check("{$toLong: BinData(0, 'AgEAAA==')}", "{}", "NumberLong(258)");
    check("{$convert: {input: BinData(0, 'P8AAAA=='), to: 'double', byteOrder: 'big'}}", "{}", "1.5");
    for (input, to) in [("'AQID'", "int"), ("'AAAAAAAAAAA='", "int"), ("''", "long"), ("'AQI='", "double")] {
        check_error(&format!("{{$convert: {{input: BinData(0, {input}), to: '{to}'}}}}"), "{}", 241);
    }
    check_error("{$toDecimal: BinData(0, 'AQ==')}", "{}", 241);
}

#[test]
fn null_errors_and_targets() {
    check("{$convert: {input: null, to: 'int', onNull: 'none'}}", "{}", "'none'");
    check("{$convert: {input: '$x', to: 'int'}}", "{}", "null");
    check("{$convert: {input: 1, to: null}}", "{}", "null");
    check("{$convert: {input: 'x', to: 'int', onError: -1}}", "{}", "-1");
    check("{$convert: {input: '5', to: 16}}", "{}", "5");
    check("{$toInt: '$x'}", "{}", "null");
    check("{$toLong: '7'}", "{}", "NumberLong(7)");
    check_error("{$convert: {input: 1, to: 'nothing'}}", "{}", 2);
    check_error("{$convert: {input: 1, to: true}}", "{}", 9);
    check_error("{$convert: {input: 1, to: 1.5}}", "{}", 9);
    check_error("{$convert: {input: 1, to: 99}}", "{}", 9);
    check_parse_error("{$convert: 1}", 9);
    check_parse_error("{$convert: {input: 1}}", 9);
    check_parse_error("{$convert: {to: 'int'}}", 9);
    check_parse_error("{$convert: {input: 1, to: 'int', x: 1}}", 9);
}

#[test]
fn types_have_names() {
    check("{$type: '$a'}", "{a: 1.5}", "'double'");
    check("{$type: '$a'}", "{}", "'missing'");
    check("{$type: [[]]}", "{}", "'array'");
    check("{$isNumber: '$a'}", "{a: NumberLong(1)}", "true");
    check("{$isNumber: '1'}", "{}", "false");
}

#[test]
fn doubles_have_as_many_digits_as_they_need() {
    assert_eq!(to_text(Value::Double(0.1)).as_deref(), Some("0.1"));
    assert_eq!(to_text(Value::Double(2.0)).as_deref(), Some("2"));
    assert_eq!(to_text(Value::Double(0.1 + 0.2)).as_deref(), Some("0.30000000000000004"));
    assert_eq!(to_text(Value::Double(1e15)).as_deref(), Some("1000000000000000"));
    assert_eq!(to_text(Value::Double(-9e-5)).as_deref(), Some("-9e-05"));
    assert_eq!(to_text(Value::Double(5e-324)).as_deref(), Some("5e-324"));
    assert_eq!(to_text(Value::Double(1e21)).as_deref(), Some("1e+21"));
    assert_eq!(to_text(Value::Double(f64::NAN)).as_deref(), Some("NaN"));
    assert_eq!(to_text(Value::Null), None);
}
