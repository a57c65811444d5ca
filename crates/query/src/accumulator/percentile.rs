//! `$percentile` and `$median`: values by rank among the numbers.
//!
//! ```text
//! {$percentile: {input: <expression>, p: [<rank>, …], method: "approximate"}}
//! {$median: {input: <expression>, method: "approximate"}}
//! ```

use super::{Accumulation, Argument};
use crate::Context;
use crate::accumulator_state::{Accumulator, Ranked};
use crate::expression::Expression;
use base::bson::{Element, Value};
use base::{Error, ErrorCode, Result, bail, err};
use std::sync::Arc;

/// Parses both accumulators.
///
/// Errors: 7436100 and 7429703 for a value that is not an object, 40415 and 40414 for unknown and missing fields.
/// 7750300 to 7750303 for an invalid `p`, TypeMismatch and BadValue for a method other than "approximate".
pub(super) fn parse(name: &'static str, spec: &Element<'_>, context: &Context) -> Result<Accumulation> {
    let Value::Document(fields) = spec.value() else {
        let code = if name == "$median" { 7436100 } else { 7429703 };
        return Err(Error::new(
            ErrorCode::Location(code),
            format!("specification must be an object; found {spec}"),
        ));
    };
    let median = name == "$median";
    let (mut input, mut ranked, mut method) = (None, median.then(Ranked::median), false);
    for field in fields {
        match field.name() {
            "input" => input = Some(Expression::parse(field.value(), context)?),
            "p" if !median => ranked = Some(parse_ranks(&field, context)?),
            "method" => method = check_method(name, &field)?,
            other => return Err(Error::unknown_field(format_args!("{name}.{other}"))),
        }
    }
    let missing = |field: &str| Error::missing_field(format_args!("{name}.{field}"));
    let input = input.ok_or_else(|| missing("input"))?;
    let ranked = ranked.ok_or_else(|| missing("p"))?.limited(context.limits.several);
    if !method {
        return Err(missing("method"));
    }
    let make = move |_| -> Box<dyn Accumulator> { Box::new(ranked.clone()) };
    Ok(Accumulation::of(Argument::Value(input), Arc::new(make)))
}

/// Parses `p`. Errors: 7750300 unless it is constant, 7750301 unless it is a non-empty array, and the errors of
/// [`Ranked::percentiles`].
fn parse_ranks(field: &Element<'_>, context: &Context) -> Result<Ranked> {
    let expression = Expression::parse(field.value(), context)?;
    if !expression.is_constant() {
        bail!(
            7750300,
            "The $percentile 'p' field must be an array of constant values, but found value: {}.",
            field.value()
        );
    }
    let Some(Value::Array(ranks)) =
        expression.constant().filter(|value| value.as_array().is_some_and(|ranks| !ranks.is_empty()))
    else {
        bail!(
            7750301,
            "The $percentile 'p' field must be an array of numbers from [0.0, 1.0], but found: {}",
            field.value()
        );
    };
    Ranked::percentiles(ranks)
}

fn check_method(name: &str, field: &Element<'_>) -> Result<bool> {
    match field.value() {
        Value::String("approximate") => Ok(true),
        other if other.as_str().is_none() => {
            Err(Error::wrong_type(format_args!("{name}.method"), other.kind(), "string"))
        }
        _ => Err(err!(BadValue, "Currently only 'approximate' can be used as a percentile 'method'.")),
    }
}

#[cfg(test)]
mod tests {
    use crate::accumulator::testing::{folds, refuses};

    #[test]
    fn looks_ranks_up() {
        folds("{$median: {input: '$a', method: 'approximate'}}", "[4, 1, 3, 'x', 2]", "2.0");
        folds("{$median: {input: '$a', method: 'approximate'}}", "['x']", "null");
        let ranks = "{$percentile: {input: '$a', p: [0, 0.9, 1], method: 'approximate'}}";
        folds(ranks, "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]", "[1.0, 9.0, 10.0]");
        folds(ranks, "[]", "[null, null, null]");
    }

    #[test]
    fn refuses_bad_ranks_and_methods() {
        refuses("{$percentile: {input: 1, p: [2], method: 'approximate'}}", 7750303, "from [0.0, 1.0]");
        refuses("{$percentile: {input: 1, p: [], method: 'approximate'}}", 7750301, "from [0.0, 1.0]");
        refuses("{$percentile: {input: 1, p: ['x'], method: 'approximate'}}", 7750302, "from [0.0, 1.0]");
        refuses("{$median: {input: 1, method: 'exact'}}", 2, "only 'approximate'");
        refuses("{$median: {input: 1, method: false}}", 14, "expected type 'string'");
        refuses("{$median: {input: 1}}", 40414, "'$median.method' is missing");
    }
}
