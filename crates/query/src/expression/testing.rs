//! Test helpers of the operators: an expression, a document and the expected value in the shell's notation.

use super::{ErrorPrefix, Expression};
use crate::{Arena, Context};
use base::bson::{DocumentBuf, Value, ValueBuf, extended_json};
use base::{CompatibleWith, Result};

fn document(text: &str) -> DocumentBuf {
    extended_json::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn value(text: &str) -> ValueBuf {
    let wrapped = document(&format!("{{v: {text}}}"));
    wrapped.view().get("v").unwrap().to_owned()
}

/// Parses an expression, which must succeed.
pub(super) fn parse(text: &str) -> Expression {
    try_parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn try_parse(text: &str) -> Result<Expression> {
    Expression::parse_at(value(text).view(), &Context::for_tests(), ErrorPrefix::Plain)
}

/// Evaluates an expression for one document.
pub(super) fn evaluate(expression: &str, root: &str) -> Result<Option<ValueBuf>> {
    let expression = try_parse(expression)?;
    let (context, arena, root) = (Context::for_tests(), Arena::new(), document(root));
    let result = expression.evaluate(root.view(), &context, &arena)?;
    Ok(result.map(|value| value.to_owned()))
}

/// Expects a value, including its type.
#[track_caller]
pub(super) fn check(expression: &str, root: &str, expected: &str) {
    let found = evaluate(expression, root).unwrap_or_else(|error| panic!("{expression}: {error}"));
    let expected = value(expected);
    assert!(
        found.as_ref() == Some(&expected),
        "{expression} on {root}: {:?}, not {expected:?}",
        found.as_ref().map(ValueBuf::view)
    );
}

/// Expects a value under the rules of MongoDB 9.0.
#[track_caller]
pub(super) fn check_newer(expression: &str, root: &str, expected: &str) {
    let context = Context::for_tests().with_version(CompatibleWith::V9_0);
    let (arena, root) = (Arena::new(), document(root));
    let parsed = Expression::parse_at(value(expression).view(), &context, ErrorPrefix::Plain);
    let parsed = parsed.unwrap_or_else(|error| panic!("{expression}: {error}"));
    let found = parsed.evaluate(root.view(), &context, &arena);
    let found = found.unwrap_or_else(|error| panic!("{expression}: {error}")).map(|value| value.to_owned());
    let expected = value(expected);
    assert!(
        found.as_ref() == Some(&expected),
        "{expression}: {:?}, not {expected:?}",
        found.as_ref().map(ValueBuf::view)
    );
}

/// Expects a double within a relative error of 1e-12.
#[track_caller]
pub(super) fn check_close(expression: &str, root: &str, expected: f64) {
    let found = evaluate(expression, root).unwrap_or_else(|error| panic!("{expression}: {error}"));
    let Some(Value::Double(found)) = found.as_ref().map(ValueBuf::view) else {
        panic!("{expression}: no double but {found:?}");
    };
    assert!((found - expected).abs() <= expected.abs() * 1e-12, "{expression}: {found}, not {expected}");
}

/// Expects a missing value.
#[track_caller]
pub(super) fn check_missing(expression: &str, root: &str) {
    let found = evaluate(expression, root).unwrap_or_else(|error| panic!("{expression}: {error}"));
    assert!(found.is_none(), "{expression} on {root}: {found:?}, not missing");
}

/// Expects an error with this code, while parsing or evaluating.
#[track_caller]
pub(super) fn check_error(expression: &str, root: &str, code: i32) {
    match evaluate(expression, root) {
        Ok(found) => panic!("{expression} on {root}: {found:?}, not an error"),
        Err(error) => assert_eq!(error.code().number(), code, "{expression}: {error}"),
    }
}

/// Expects an error with this code while parsing.
#[track_caller]
pub(super) fn check_parse_error(expression: &str, code: i32) {
    match try_parse(expression) {
        Ok(_) => panic!("{expression}: no error"),
        Err(error) => assert_eq!(error.code().number(), code, "{expression}: {error}"),
    }
}

/// Expects this output of explain, and checks that it parses to an equal expression.
#[track_caller]
pub(super) fn check_described(expression: &str, expected: &str) {
    let described = parse(expression).describe();
    assert_eq!(described, value(expected), "{expression}: {described:?}");
    let again = Expression::parse_at(described.view(), &Context::for_tests(), ErrorPrefix::Plain).unwrap();
    assert_eq!(again.describe(), described);
}
