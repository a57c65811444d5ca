//! Tests sums, differences and products of random integers against a simple model in 128 bits.

use super::super::{ErrorPrefix, Expression};
use crate::{Arena, Context};
use base::bson::{Builder, Document, Value, ValueBuf, equal};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Integer {
    Narrow(i32),
    Wide(i64),
}

impl Integer {
    fn exact(self) -> i128 {
        match self {
            Integer::Narrow(value) => i128::from(value),
            Integer::Wide(value) => i128::from(value),
        }
    }

    fn value(self) -> Value<'static> {
        match self {
            Integer::Narrow(value) => Value::Int32(value),
            Integer::Wide(value) => Value::Int64(value),
        }
    }
}

/// Int32 and int64 values, half of them near the limits.
fn integer() -> impl Strategy<Value = Integer> {
    let narrow = prop_oneof![any::<i32>(), -3..3i32, Just(i32::MAX), Just(i32::MIN)];
    let wide = prop_oneof![any::<i64>(), -3..3i64, Just(i64::MAX), Just(i64::MIN)];
    prop_oneof![narrow.prop_map(Integer::Narrow), wide.prop_map(Integer::Wide)]
}

/// Returns the expected value of an exact result: the narrowest type that the operands allow and that holds it, or a
/// double beyond int64.
fn expected(exact: i128, any_wide: bool) -> Value<'static> {
    match (i32::try_from(exact), i64::try_from(exact)) {
        (Ok(narrow), _) if !any_wide => Value::Int32(narrow),
        (_, Ok(wide)) => Value::Int64(wide),
        _ => Value::Double(exact as f64),
    }
}

fn computed(operator: &str, operands: [Integer; 2]) -> ValueBuf {
    let mut builder = Builder::new();
    builder.begin_array(base::bson::FieldName::new(operator).unwrap());
    operands.iter().for_each(|operand| {
        builder.push(operand.value());
    });
    let spec = builder.finish();
    let (context, arena) = (Context::for_tests(), Arena::new());
    let expression =
        Expression::parse_at(Value::Document(spec.view()), &context, ErrorPrefix::Plain).unwrap();
    expression.evaluate(Document::EMPTY, &context, &arena).unwrap().unwrap().to_owned()
}

proptest! {
    #[test]
    fn integers_promote_like_the_model(a in integer(), b in integer()) {
        let any_wide = matches!(a, Integer::Wide(_)) || matches!(b, Integer::Wide(_));
        let cases = [
            ("$add", a.exact() + b.exact()),
            ("$subtract", a.exact() - b.exact()),
            ("$multiply", a.exact() * b.exact()),
        ];
        for (operator, exact) in cases {
            let expected = expected(exact, any_wide);
            let found = computed(operator, [a, b]);
            if let (Value::Double(found), Value::Double(expected)) = (found.view(), expected) {
                prop_assert!((found - expected).abs() <= expected.abs() * 1e-15, "{operator} {a:?} {b:?}: {found}");
            } else {
                prop_assert_eq!(&found, &expected.to_owned(), "{} {:?} {:?}", operator, a, b);
            }
        }
    }

    #[test]
    fn remainders_agree_with_the_model(a in integer(), b in integer()) {
        prop_assume!(b.exact() != 0);
        let found = computed("$mod", [a, b]);
        prop_assert_eq!(found.view().as_i64().map(i128::from), Some(a.exact() % b.exact()));
    }

    #[test]
    fn comparison_agrees_with_the_model(a in integer(), b in integer()) {
        let found = computed("$cmp", [a, b]);
        prop_assert_eq!(found.view().as_i64(), Some(a.exact().cmp(&b.exact()) as i64));
        prop_assert_eq!(equal(a.value(), b.value()), a.exact() == b.exact());
    }
}
