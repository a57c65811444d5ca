//! Random values for property tests: all types, nested, with many edge cases.

use crate::bson::{
    Builder, Decimal128, DecimalParts, DocumentBuf, FieldName, ObjectId, RegexText, Value, ValueBuf,
};
use proptest::prelude::*;

/// Text with NULs, control characters and characters outside ASCII.
pub(crate) fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-c]{0,3}", "[\u{0}\u{1}\u{2}a]{0,4}", ".{0,8}"]
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![4 => "[a-c]{1,2}", 1 => "[^\u{0}]{0,5}"]
}

fn double() -> impl Strategy<Value = f64> {
    prop_oneof![
        (-20i32..20).prop_map(f64::from),
        (-2000i32..2000).prop_map(|n| f64::from(n) / 64.0),
        (-2000i32..2000).prop_map(|n| f64::from(n) / 100.0),
        any::<i64>().prop_map(|n| n as f64),
        any::<u64>().prop_map(f64::from_bits),
        prop::sample::select(vec![
            0.0,
            -0.0,
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::MAX,
            f64::MIN_POSITIVE,
            5e-324,
            -5e-324,
            9_223_372_036_854_775_808.0,
            -9_223_372_036_854_775_808.0,
            9_007_199_254_740_992.0,
            0.1,
        ]),
    ]
}

fn long() -> impl Strategy<Value = i64> {
    prop_oneof![
        -300i64..300,
        any::<i64>(),
        any::<i64>().prop_map(|n| n >> 10),
        prop::sample::select(vec![
            i64::MIN,
            i64::MIN + 1,
            i64::MAX,
            (1 << 53) + 1,
            1 << 53,
            -(1 << 53) - 1,
            1 << 31,
            -(1 << 31) - 1,
        ]),
    ]
}

fn decimal() -> impl Strategy<Value = Decimal128> {
    let finite = |negative, coefficient, exponent| {
        Decimal128::from_parts(DecimalParts::Finite { negative, coefficient, exponent })
    };
    prop_oneof![
        (any::<bool>(), 0u128..3000, -4i32..3).prop_map(move |(n, c, e)| finite(n, c, e)),
        (any::<bool>(), any::<u64>(), -25i32..5).prop_map(move |(n, c, e)| finite(n, u128::from(c), e)),
        (any::<bool>(), 0..=Decimal128::COEFFICIENT_MAX, -6176i32..=6111)
            .prop_map(move |(n, c, e)| finite(n, c, e)),
        (any::<bool>(), 0..=Decimal128::COEFFICIENT_MAX, -50i32..=10)
            .prop_map(move |(n, c, e)| finite(n, c, e)),
        // Decimals as close to doubles as possible, on both sides.
        (double(), -1i64..=1).prop_map(move |(double, step)| {
            let nearest = Decimal128::from_f64_exact(double);
            match nearest.parts() {
                DecimalParts::Finite { negative, coefficient, exponent } => {
                    let shifted = coefficient.saturating_add_signed(i128::from(step));
                    finite(negative, shifted.min(Decimal128::COEFFICIENT_MAX), exponent)
                }
                _ => nearest,
            }
        }),
        long().prop_map(Decimal128::from_i64),
        any::<[u8; 16]>().prop_map(Decimal128::from_bytes),
    ]
}

/// Numbers of the four types, often close to each other.
pub(crate) fn number() -> BoxedStrategy<ValueBuf> {
    prop_oneof![
        any::<i32>().prop_map(|n| Value::Int32(n).to_owned()),
        (-30i32..30).prop_map(|n| Value::Int32(n).to_owned()),
        long().prop_map(|n| Value::Int64(n).to_owned()),
        double().prop_map(|n| Value::Double(n).to_owned()),
        decimal().prop_map(|n| Value::Decimal128(n).to_owned()),
    ]
    .boxed()
}

fn regex<'a>(pattern: &'a str, options: &'a str) -> Value<'a> {
    Value::Regex { pattern: RegexText::new(pattern).unwrap(), options: RegexText::new(options).unwrap() }
}

fn scalar() -> impl Strategy<Value = ValueBuf> {
    prop_oneof![
        6 => number(),
        3 => text().prop_map(|t| Value::String(&t).to_owned()),
        1 => text().prop_map(|t| Value::Symbol(&t).to_owned()),
        1 => text().prop_map(|t| Value::JavaScript(&t).to_owned()),
        1 => (0u8..6, prop::collection::vec(any::<u8>(), 0..4))
            .prop_filter("the old subtype has a length inside", |(s, _)| *s != 2)
            .prop_map(|(subtype, bytes)| Value::Binary { subtype, bytes: &bytes }.to_owned()),
        1 => prop::collection::vec(any::<u8>(), 250..260)
            .prop_map(|bytes| Value::Binary { subtype: 0x80, bytes: &bytes }.to_owned()),
        1 => any::<[u8; 12]>().prop_map(|id| Value::ObjectId(ObjectId(id)).to_owned()),
        1 => any::<bool>().prop_map(|b| Value::Boolean(b).to_owned()),
        1 => long().prop_map(|t| Value::DateTime(t).to_owned()),
        1 => any::<u64>().prop_map(|t| Value::Timestamp(t).to_owned()),
        1 => (name(), "[imsx]{0,2}").prop_map(|(p, o)| regex(&p, &o).to_owned()),
        1 => (text(), any::<[u8; 12]>())
            .prop_map(|(n, id)| Value::DbPointer { namespace: &n, id: ObjectId(id) }.to_owned()),
        1 => prop::sample::select(vec![Value::Null, Value::Undefined, Value::MinKey, Value::MaxKey])
            .prop_map(|v| v.to_owned()),
    ]
}

fn assemble(fields: &[(String, ValueBuf)]) -> DocumentBuf {
    let mut builder = Builder::new();
    for (name, value) in fields {
        builder.append(FieldName::new(name).unwrap(), value);
    }
    builder.finish()
}

/// Values of every type, with nested documents and arrays.
pub(crate) fn any_value() -> impl Strategy<Value = ValueBuf> {
    scalar().prop_recursive(3, 16, 4, |inner| {
        let fields = prop::collection::vec((name(), inner.clone()), 0..4).boxed();
        prop_oneof![
            fields.clone().prop_map(|f| Value::Document(assemble(&f).view()).to_owned()),
            (text(), fields).prop_map(|(code, f)| {
                Value::JavaScriptWithScope { code: &code, scope: assemble(&f).view() }.to_owned()
            }),
            prop::collection::vec(inner, 0..4).prop_map(|values| {
                let mut builder = Builder::new();
                builder.begin_array(c"a");
                for value in &values {
                    builder.push(value);
                }
                builder.end();
                builder.finish().view().get("a").unwrap().to_owned()
            }),
        ]
    })
}

/// Whole documents.
pub(crate) fn any_document() -> impl Strategy<Value = DocumentBuf> {
    prop::collection::vec((name(), any_value()), 0..5).prop_map(|fields| assemble(&fields))
}
