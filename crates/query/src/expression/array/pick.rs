//! `$firstN $lastN $maxN $minN` on arrays.
//!
//! ```text
//! {$firstN: {n: <integer>, input: <array>}}
//! ```

use super::super::evaluate::{Call, Computed};
use super::super::named::{Named, Parameter, error_template, required};
use super::super::show;
use crate::sort_runs::sort_in_runs;
use base::bson::{Builder, Value};
use base::{Result, bail, err};

/// The arguments of `$maxN` and `$minN`: `n` and `input`, in this order.
pub(in super::super) static EXTREMES: Named = arguments(5787900);
/// The arguments of `$firstN` and `$lastN`: `n` and `input`, in this order.
pub(in super::super) static ENDS: Named = arguments(5787801);

/// The arguments of all four operators, in the order of their evaluation.
const PARAMETERS: &[Parameter] = &[
    required("n", 5787906, "Missing value for 'n'"),
    required("input", 5787907, "Missing value for 'input'"),
];

const fn arguments(no_object: i32) -> Named {
    Named {
        parameters: PARAMETERS,
        no_object: error_template(no_object, "specification must be an object; found {element}"),
        unknown: error_template(5787901, "Unknown argument for 'n' operator: {}"),
    }
}

/// Evaluates `n`. Errors: 5787902 and 5787903 for a value that is not an integer, 5787908 unless positive.
fn count(found: Option<Value<'_>>) -> Result<usize> {
    let type_error =
        || err!(5787902, "Value for 'n' must be of integral type, but found {}", show::optional(found));
    let number = found.and_then(|value| value.as_number()).ok_or_else(type_error)?;
    let count = number.to_i64_exact().ok_or_else(|| {
        err!(5787903, "Value for 'n' must be of integral type, but found {}", show::optional(found))
    })?;
    match usize::try_from(count) {
        Ok(count) if count > 0 => Ok(count),
        _ => Err(err!(5787908, "'n' must be greater than 0, found {count}")),
    }
}

/// Selects elements. Errors: the errors of `n`; 5788200 for a value that is not an array.
fn pick<'a>(
    call: &Call<'_, 'a>,
    choose: impl FnOnce(&mut Vec<Value<'a>>, usize) -> Result<()>,
) -> Computed<'a> {
    let count = count(call.get(0)?)?;
    let Some(Value::Array(input)) = call.get(1)? else {
        bail!(5788200, "Input must be an array");
    };
    let mut elements: Vec<_> = input.iter().collect();
    choose(&mut elements, count)?;
    let mut builder = Builder::new();
    elements.iter().for_each(|element| {
        builder.push(*element);
    });
    call.scope.array(builder)
}

pub(in super::super) fn first_n<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    pick(call, |elements, count| {
        elements.truncate(count);
        Ok(())
    })
}

pub(in super::super) fn last_n<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    pick(call, |elements, count| {
        elements.drain(..elements.len().saturating_sub(count));
        Ok(())
    })
}

/// `$maxN`: ignores null, as the accumulator does.
pub(in super::super) fn max_n<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let collation = call.collation();
    pick(call, |elements, count| {
        elements.retain(|element| !element.is_nullish());
        sort_in_runs(elements, &*call.scope.context.interrupt, |a, b| collation.compare(*b, *a))?;
        elements.truncate(count);
        Ok(())
    })
}

/// `$minN`: ignores null, as the accumulator does.
pub(in super::super) fn min_n<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let collation = call.collation();
    pick(call, |elements, count| {
        elements.retain(|element| !element.is_nullish());
        sort_in_runs(elements, &*call.scope.context.interrupt, |a, b| collation.compare(*a, *b))?;
        elements.truncate(count);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{check, check_error, check_parse_error};

    #[test]
    fn picking() {
        check("{$firstN: {n: 2, input: '$a'}}", "{a: [3, 1, 2]}", "[3, 1]");
        check("{$lastN: {n: 2, input: '$a'}}", "{a: [3, 1, 2]}", "[1, 2]");
        check("{$maxN: {n: 2, input: '$a'}}", "{a: [3, null, 1, 2]}", "[3, 2]");
        check("{$minN: {n: 9, input: '$a'}}", "{a: [3, null, 1, 2]}", "[1, 2, 3]");
        check_error("{$firstN: {n: 0, input: []}}", "{}", 5787908);
        check_error("{$firstN: {n: 'x', input: []}}", "{}", 5787902);
        check_error("{$firstN: {n: 1, input: 1}}", "{}", 5788200);
        check_parse_error("{$firstN: {input: 1}}", 5787906);
        check_parse_error("{$firstN: {n: 1}}", 5787907);
    }
}
