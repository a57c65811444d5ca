//! Accumulators as expressions: over their arguments, or over the elements of a single array argument.

use super::evaluate::{Call, Computed, null, number, value};
use crate::accumulator_state::{Accumulator, Ranked, Total};
use base::Result;
use base::bson::{Decimal128, Value};
use std::cmp::Ordering;

/// Calls `each` with each operand, or with each element of a single operand that is an array.
fn each<'a>(call: &Call<'_, 'a>, mut each: impl FnMut(Value<'a>) -> Result<()>) -> Result<()> {
    if call.len() == 1
        && let Some(Value::Array(array)) = call.get(0)?
    {
        return array.iter().try_for_each(|element| {
            call.scope.context.steps(1)?;
            each(element)
        });
    }
    for operand in call.values() {
        if let Some(operand) = operand? {
            each(operand)?;
        }
    }
    Ok(())
}

/// Returns the sum and the count of the numbers.
fn total(call: &Call<'_, '_>) -> Result<(Total, i64)> {
    let (mut total, mut count) = (Total::default(), 0);
    each(call, |operand| {
        if let Some(number) = operand.as_number() {
            total.add(number);
            count += 1;
        }
        Ok(())
    })?;
    Ok((total, count))
}

/// `$sum`: the sum of the numbers among the operands.
pub(super) fn sum<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    number(total(call)?.0.number())
}

/// `$avg`: the mean of the numbers among the operands, or null.
pub(super) fn avg<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let (total, count) = total(call)?;
    match (count, total.as_decimal()) {
        (0, _) => null(),
        (_, Some(sum)) => value(sum.divided_by(Decimal128::from_i64(count))),
        (_, None) => value(total.as_double() / count as f64),
    }
}

/// `$min` and `$max`: the least or greatest operand by the collation; null and missing are ignored.
pub(super) fn extreme<'a>(call: &Call<'_, 'a>, better_order: Ordering) -> Computed<'a> {
    let mut best: Option<Value<'a>> = None;
    each(call, |operand| {
        if !operand.is_nullish()
            && best.is_none_or(|best| call.collation().compare(operand, best) == better_order)
        {
            best = Some(operand);
        }
        Ok(())
    })?;
    Ok(Some(best.unwrap_or(Value::Null)))
}

/// `$stdDevPop` and `$stdDevSamp`: the standard deviation of the population or of a sample.
pub(super) fn accumulate<'a>(call: &Call<'_, 'a>, mut accumulator: impl Accumulator) -> Computed<'a> {
    each(call, |operand| accumulator.add(Some(operand)))?;
    call.scope.copy_value(accumulator.finish()?.view()).map(Some)
}

pub(super) mod ranks {
    //! `$median` and `$percentile`: `{input, p, method}`; the input is an array or a single number.

    use super::super::evaluate::{Call, Computed};
    use super::super::named::{ErrorTemplate, Named, Parameter};
    use super::{Accumulator, Ranked};
    use base::bson::Value;
    use base::{Error, ErrorCode, Result, bail, err};

    macro_rules! arguments {
        ($name:ident, $operator:literal, $no_object:literal, $($parameter:literal),+) => {
            pub(in super::super) static $name: Named = Named {
                parameters: &[$(Parameter {
                    name: $parameter,
                    missing: Some(ErrorTemplate(ErrorCode::Location(40414), concat!(
                        "BSON field '", $operator, ".", $parameter, "' is missing but a required field"
                    ))),
                }),+],
                no_object: ErrorTemplate(
                    ErrorCode::Location($no_object),
                    "specification must be an object; found {element}",
                ),
                unknown: ErrorTemplate(
                    ErrorCode::Location(40415),
                    concat!("BSON field '", $operator, ".{}' is an unknown field."),
                ),
            };
        };
    }
    arguments!(MEDIAN, "$median", 7436201, "input", "method");
    arguments!(PERCENTILE, "$percentile", 7436200, "input", "method", "p");

    /// Evaluates `$median`. Errors: BadValue for a method other than "approximate".
    pub(in super::super) fn median<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
        run(call, Ranked::median())
    }

    /// Evaluates `$percentile`. Errors: BadValue for the method, 7750301 to 7750303 for `p`.
    pub(in super::super) fn percentile<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
        let ranks = call.get(2)?.and_then(|ranks| ranks.as_array()).filter(|ranks| !ranks.is_empty());
        let Some(ranks) = ranks else {
            bail!(
                7750301,
                "The $percentile 'p' field must be an array of numbers from [0.0, 1.0], but found: {}",
                super::super::show::optional(call.get(2)?)
            );
        };
        run(call, Ranked::percentiles(ranks)?)
    }

    /// Adds the input, an array or a single number, and returns the result.
    fn run<'a>(call: &Call<'_, 'a>, mut ranked: Ranked) -> Computed<'a> {
        check_method(call)?;
        match call.get(0)? {
            Some(Value::Array(numbers)) => {
                numbers.iter().try_for_each(|number| ranked.add(Some(number)))?;
            }
            single => ranked.add(single)?,
        }
        call.scope.copy_value(ranked.finish()?.view()).map(Some)
    }

    fn check_method(call: &Call<'_, '_>) -> Result<()> {
        match call.get(1)? {
            Some(Value::String("approximate")) => Ok(()),
            Some(other) if call.is_constant(1) && other.as_str().is_none() => {
                Err(Error::wrong_type(format_args!("{}.method", call.name()), other.kind(), "string"))
            }
            _ => Err(err!(BadValue, "Currently only 'approximate' can be used as a percentile 'method'.")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, check_error, check_parse_error};

    #[test]
    fn over_operands_or_one_array() {
        check("{$sum: ['$a', 2, 'x', null]}", "{a: 1}", "3");
        check("{$sum: '$a'}", "{a: [1, 2.5, 'x']}", "3.5");
        check("{$sum: ['$a', 1]}", "{a: [5]}", "1");
        check("{$avg: '$a'}", "{a: [1, 2]}", "1.5");
        check("{$avg: ['x']}", "{}", "null");
        check("{$min: '$a'}", "{a: [3, null, 1]}", "1");
        check("{$max: [1, '$a', 'x']}", "{a: 3}", "'x'");
        check("{$max: '$a'}", "{a: []}", "null");
        check("{$stdDevPop: '$a'}", "{a: [1, 3]}", "1.0");
        check("{$stdDevSamp: [1, 3, 5]}", "{}", "2.0");
    }

    #[test]
    fn ranks() {
        check("{$median: {input: '$a', method: 'approximate'}}", "{a: [3, 1, 2]}", "2.0");
        check(
            "{$percentile: {input: '$a', p: [0.5, 1], method: 'approximate'}}",
            "{a: [3, 1, 2]}",
            "[2.0, 3.0]",
        );
        check("{$median: {input: '$a', method: 'approximate'}}", "{}", "null");
        check_error("{$median: {input: '$a', method: 'x'}}", "{}", 2);
        check_error("{$percentile: {input: '$a', p: 1, method: 'approximate'}}", "{}", 7750301);
        check_parse_error("{$median: {input: '$a'}}", 40414);
        check_parse_error("{$median: {input: '$a', x: 1}}", 40415);
    }
}
