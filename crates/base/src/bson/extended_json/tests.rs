//! Tests of extended JSON: fixed forms, and round trips of random documents.

use super::*;
use crate::bson::{Value, validate};
use crate::testing::any_document;
use proptest::prelude::*;

#[test]
fn the_forms_side_by_side() {
    let text = r#"{
        _id: ObjectId('0102030405060708090a0b0c'), 'quoted name': "a\n\u00e9\ud83d\ude00", i: 1, l: NumberLong("5"),
        big: 5000000000, d: 1.50, e: 1e3, dec: NumberDecimal('1.10'), t: true, n: null, u: undefined,
        date: ISODate("2024-02-29T12:00:00.5+01:00"), ts: Timestamp(1, 2), r: /a\/b+/i, a: [1, [], {},],
        b: BinData(0, "AQI="), id: UUID("00112233-4455-6677-8899-aabbccddeeff"), m: [MinKey, MaxKey()],
        s: Symbol("x"), c: Code("f"), cs: Code("f", {x: 1}), nan: NaN, inf: -Infinity, q: {$regex: "a", $options: "i"},
    }"#;
    let document = parse(text).unwrap();
    validate(document.bytes()).unwrap();
    assert_eq!(
        to_shell(document.view()),
        "{_id: ObjectId(\"0102030405060708090a0b0c\"), \"quoted name\": \"a\\né😀\", i: 1, l: NumberLong(5), \
         big: NumberLong(5000000000), d: 1.5, e: 1000.0, dec: NumberDecimal(\"1.10\"), t: true, n: null, \
         u: undefined, date: ISODate(\"2024-02-29T11:00:00.500Z\"), ts: Timestamp(1, 2), r: /a\\/b+/i, \
         a: [1, [], {}], b: BinData(0, \"AQI=\"), id: UUID(\"00112233-4455-6677-8899-aabbccddeeff\"), \
         m: [MinKey, MaxKey], s: Symbol(\"x\"), c: Code(\"f\"), cs: Code(\"f\", {x: 1}), nan: NaN, inf: -Infinity, \
         q: {$regex: \"a\", $options: \"i\"}}"
            .replace("/a\\/b+/i", "RegExp(\"a\\\\/b+\", \"i\")")
    );
    let small = parse(
        "{a: NumberLong(1), d: ISODate('1970-01-02'), x: 2.0, o: ObjectId('000000000000000000000000')}",
    );
    let small = small.unwrap();
    assert_eq!(
        to_canonical(small.view()),
        r#"{"a":{"$numberLong":"1"},"d":{"$date":{"$numberLong":"86400000"}},"x":{"$numberDouble":"2.0"},"o":{"$oid":"000000000000000000000000"}}"#
    );
    assert_eq!(
        to_relaxed(small.view()),
        r#"{"a":1,"d":{"$date":"1970-01-02T00:00:00Z"},"x":2.0,"o":{"$oid":"000000000000000000000000"}}"#
    );
}

#[test]
fn typed_values_and_lookalikes() {
    let typed = r#"{"a":{"$binary":"AQI=","$type":"05"},"b":{"$uuid":"00112233445566778899aabbccddeeff"}}"#;
    let document = parse(typed).unwrap();
    assert!(matches!(document.view().get("a"), Some(Value::Binary { subtype: 5, bytes: [1, 2] })));
    assert!(
        matches!(document.view().get("b"), Some(Value::Binary { subtype: 4, bytes }) if bytes.len() == 16)
    );
    let plain = parse("{a: {x: 1, $oid: 'not first'}, b: {$type: 'int'}, c: {$ref: 'c', $id: 1}}").unwrap();
    assert!(plain.view().iter().all(|element| element.value().as_document().is_some()));
}

#[test]
fn mistakes_are_errors() {
    for text in [
        "",
        "{",
        "{a}",
        "{a:}",
        "{a: 1 b: 2}",
        "{a: 1}}",
        "{a: {$oid: 'x'}}",
        "{a: {$numberInt: '1', b: 2}}",
        "{: 1}",
        "{a: 'x}",
        "{a: '\\q'}",
        "{a: '\\ud800'}",
        "{a: foo}",
        "{a: Foo(1)}",
        "{a: ObjectId()}",
        "{a: 1.2.3}",
        "{a: /x}",
        "{'a\\u0000b': 1}",
        "{a: ISODate('2023-02-29')}",
        "{a: {$numberDouble: 'inf'}}",
        "{a: -}",
        "{a: {$date: 'yesterday'}}",
        "[1]",
        "{a: infinity}",
        "{a: +inf}",
    ] {
        assert!(parse(text).is_err(), "{text}");
    }
    let deep = format!("{}1{}", "{a: ".repeat(100_000), "}".repeat(100_000));
    assert!(parse(&deep).is_err());
    let (first, rest) = parse_prefix("{a: 1} and more").unwrap();
    assert_eq!((to_shell(first.view()).as_str(), rest), ("{a: 1}", " and more"));
    assert_eq!(value_to_shell(parse_value(" [1, 'a'] ").unwrap().view()), "[1, \"a\"]");
}

#[test]
fn dates_there_and_back() {
    for (millis, text) in [
        (0, "1970-01-01T00:00:00Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (951_782_400_000, "2000-02-29T00:00:00Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (-62_135_596_800_000, "0001-01-01T00:00:00Z"),
    ] {
        assert_eq!(format_millis(millis).as_deref(), Some(text));
        assert_eq!(parse_millis(text), Some(millis));
    }
    assert_eq!(format_millis(i64::MAX), None);
    assert_eq!(parse_millis("2024-01-01T00:00:00.1234567Z"), Some(1_704_067_200_123));
    assert_eq!(parse_millis("2024-01-01T01:00-0130"), Some(1_704_067_200_000 + 9_000_000));
    assert_eq!(parse_millis("2024-01-01T01:00:61Z"), None);
}

/// Text loses the payload of NaNs and the non-canonical zeros of decimals. Both sides are therefore also compared as
/// canonical text.
fn same(text: &str, expected: &str) -> bool {
    let read = parse(text).unwrap();
    validate(read.bytes()).is_ok() && to_canonical(read.view()) == expected
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn random_documents_there_and_back(document in any_document()) {
        let canonical = to_canonical(document.view());
        // A document with such names is indistinguishable from a typed value.
        prop_assume!(names_are_plain(document.view()));
        prop_assert!(same(&canonical, &canonical));
        prop_assert!(same(&to_shell(document.view()), &canonical), "{}", to_shell(document.view()));
        let relaxed = parse(&to_relaxed(document.view())).unwrap();
        prop_assert_eq!(to_relaxed(relaxed.view()), to_relaxed(document.view()));
    }

    #[test]
    fn any_text_gives_a_document_or_an_error(text in "[{}\\[\\]a$:,'\"0-9.eE/\\\\() +-]{0,30}") {
        let _ = parse(&text);
    }
}

fn names_are_plain(document: crate::bson::Document<'_>) -> bool {
    document.iter().all(|element| {
        !element.name().starts_with('$')
            && match element.value() {
                Value::Document(inner) | Value::JavaScriptWithScope { scope: inner, .. } => {
                    names_are_plain(inner)
                }
                Value::Array(inner) => names_are_plain(inner.as_document()),
                _ => true,
            }
    })
}
