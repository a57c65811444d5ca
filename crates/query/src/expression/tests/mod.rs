//! Tests random expressions over random documents against a slow and simple model.

mod model;

use super::Expression;
use crate::{Arena, Context};
use base::bson::{DocumentBuf, extended_json};
use model::{Expr, Model};
use proptest::prelude::*;
use proptest::sample::select;

fn scalar() -> impl Strategy<Value = Model> {
    prop_oneof![
        Just(Model::Null),
        any::<bool>().prop_map(Model::Bool),
        (-3..4i32).prop_map(Model::Int),
        (-3..4i64).prop_map(Model::Long),
        (-6..7i32).prop_map(|halves| Model::Double(f64::from(halves) / 2.0)),
        select(&["", "a", "ab", "b"][..]).prop_map(|text| Model::Text(text.to_string())),
    ]
}

fn any_value() -> impl Strategy<Value = Model> {
    scalar().prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            2 => prop::collection::vec(inner.clone(), 0..4).prop_map(Model::Array),
            1 => prop::collection::btree_map(select(&["a", "b"][..]), inner, 0..3)
                .prop_map(|fields| Model::Object(fields.into_iter().map(|(k, v)| (k.to_string(), v)).collect())),
        ]
    })
}

/// Documents with the optional fields `a`, `b` and `c`.
fn any_document() -> impl Strategy<Value = Model> {
    let field = || prop::option::weighted(0.8, any_value());
    (field(), field(), field()).prop_map(|(a, b, c)| {
        let fields = [("a", a), ("b", b), ("c", c)].into_iter();
        Model::Object(fields.filter_map(|(name, value)| Some((name.to_string(), value?))).collect())
    })
}

fn leaf() -> impl Strategy<Value = Expr> {
    prop_oneof![
        3 => select(&["a", "b", "c", "a.b", "b.a", "a.b.a"][..]).prop_map(Expr::Path),
        2 => scalar().prop_map(Expr::Constant),
        1 => any_value().prop_map(Expr::Constant),
        1 => select(&["this", "value"][..]).prop_map(Expr::Variable),
    ]
}

fn expression() -> impl Strategy<Value = Expr> {
    leaf().prop_recursive(4, 24, 3, |inner| {
        let operands = |least, most| prop::collection::vec(inner.clone(), least..=most);
        let call = |names: &'static [&'static str], least, most| {
            (select(names), operands(least, most)).prop_map(|(name, operands)| Expr::Call(name, operands))
        };
        prop_oneof![
            3 => call(&["$add", "$multiply", "$concat", "$concatArrays", "$and", "$or", "$max", "$min"], 0, 3),
            3 => call(&["$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$cmp"], 2, 2),
            3 => call(&["$subtract", "$arrayElemAt", "$in", "$slice", "$setDifference"], 2, 2),
            2 => call(&["$abs", "$not", "$size", "$isArray", "$type", "$reverseArray", "$strLenCP", "$first"], 1, 1),
            1 => call(&["$cond"], 3, 3),
            1 => call(&["$ifNull"], 2, 3),
            1 => operands(0, 3).prop_map(Expr::List),
            1 => (inner.clone(), inner.clone()).prop_map(|(over, of)| Expr::map(over, of)),
            1 => (inner.clone(), inner.clone()).prop_map(|(over, of)| Expr::filter(over, of)),
            1 => (inner.clone(), inner.clone(), inner.clone())
                .prop_map(|(over, first, of)| Expr::reduce(over, first, of)),
        ]
    })
}

fn parse(text: &str) -> DocumentBuf {
    extended_json::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn expressions_agree_with_the_model(expression in expression(), root in any_document()) {
        // Variables without an outer binding are bound here.
        let bound = expression.bound();
        let (text, document) = (bound.text(), parse(&root.text()));
        let (context, arena) = (Context::for_tests(), Arena::new());
        let holder = parse(&format!("{{e: {text}}}"));
        let parsed = Expression::parse(holder.view().get("e").unwrap(), &context);
        // An error of a constant part is reported while parsing, even if the part is never evaluated.
        prop_assert_eq!(parsed.is_err(), bound.has_bad_constant(), "parsing {}: {:?}", &text, &parsed);
        let Ok(parsed) = parsed else { return Ok(()) };
        let found = parsed.evaluate(document.view(), &context, &arena);
        match (bound.evaluate(&root), found) {
            (Ok(expected), Ok(found)) => {
                let found = found.map(Model::of);
                prop_assert_eq!(expected, found, "{} of {}", text, document.view());
            }
            (expected, found) => prop_assert_eq!(
                expected.is_err(), found.is_err(), "{} of {}: {:?}, {:?}", text, document.view(), expected, found
            ),
        }
    }
}
