//! Elements of an array in an order: `$sortArray $firstN $lastN $maxN $minN`.
//!
//! ```text
//! {$sortArray: {input: <array>, sortBy: 1 | -1 | {<path>: 1 | -1, …}}}     whole values, or fields of the elements
//! {$firstN: {n: <integer>, input: <array>}}
//! ```

use super::super::evaluate::{Call, Computed, null};
use super::super::named::{Named, Parameter, error_template, required};
use super::super::node::{CallNode, Node, append};
use super::super::parse::Parser;
use super::super::show;
use super::super::table::Operator;
use super::array_or_null;
use crate::element_order::ElementOrder;
use crate::interrupt_check::sort_in_runs;
use base::bson::{Builder, FieldName, Value};
use base::{Result, bail, err};

/// Parses `$sortArray`. The operands are `input` and the constant `sortBy`.
///
/// Errors: 2942500 to 2942503 for malformed arguments, 2942505 to 2942507 for the order.
pub(in super::super) fn parse_sort(
    parser: &mut Parser<'_>,
    operator: &'static Operator,
    argument: Value<'_>,
) -> Result<Node> {
    let Value::Document(argument) = argument else {
        bail!(2942500, "$sortArray requires an object as an argument, found: {}", argument.kind());
    };
    let (mut input, mut by) = (None, None);
    for element in argument {
        match element.name() {
            "input" => input = Some(parser.operand(element.value())?),
            "sortBy" => by = Some(element.value()),
            other => bail!(2942501, "$sortArray found an unknown argument: {other}"),
        }
    }
    let input = input.ok_or_else(|| err!(2942502, "$sortArray requires 'input' to be specified"))?;
    let by = by.ok_or_else(|| err!(2942503, "$sortArray requires 'sortBy' to be specified"))?;
    order(by)?;
    Ok(Node::call(operator, vec![input, Node::Constant(Some(by.to_owned()))]))
}

/// Parses the order. Errors: 2942505 to 2942507, depending on the kind of value.
fn order(by: Value<'_>) -> Result<ElementOrder> {
    ElementOrder::parse(by).map_err(|error| match by {
        Value::Document(_) => err!(2942505, "BadValue: {}", error.message()),
        _ if by.as_number().is_some() => err!(2942506, "{}", error.message()),
        _ => err!(2942507, "{}", error.message()),
    })
}

/// Evaluates `$sortArray`. Errors: 2942504 for a value that is not an array.
pub(in super::super) fn sort<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let input = array_or_null(call, 0, |found| {
        err!(2942504, "The input argument to $sortArray must be an array, but was of type: {found}")
    })?;
    let Some(input) = input else { return null() };
    let Some(by) = call.get(1)? else { return null() };
    let mut elements: Vec<Value<'a>> = input.iter().collect();
    let collation = call.collation();
    let order = order(by)?;
    let interrupt = &*call.scope.context.interrupt;
    sort_in_runs(&mut elements, interrupt, |a, b| order.compare(*a, *b, collation))?;
    let mut builder = Builder::new();
    elements.iter().for_each(|element| {
        builder.push(*element);
    });
    call.scope.array(builder)
}

/// Formats `$sortArray` as BSON.
pub(in super::super) fn describe_sort(call: &CallNode, name: FieldName<'_>, out: &mut Builder) {
    out.begin_document(name);
    if let [input, Node::Constant(Some(by))] = &call.operands[..] {
        append(input, c"input".into(), out);
        out.append(c"sortBy", by);
    }
    out.end();
}

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
    fn sorting() {
        check("{$sortArray: {input: '$a', sortBy: 1}}", "{a: [3, 'x', 1, null]}", "[null, 1, 3, 'x']");
        check("{$sortArray: {input: '$a', sortBy: -1}}", "{a: [1, 3, 2]}", "[3, 2, 1]");
        check(
            "{$sortArray: {input: '$a', sortBy: {x: -1, y: 1}}}",
            "{a: [{x: 1, y: 2}, {x: 2}, {x: 1, y: 1}]}",
            "[{x: 2}, {x: 1, y: 1}, {x: 1, y: 2}]",
        );
        check("{$sortArray: {input: null, sortBy: 1}}", "{}", "null");
        check_error("{$sortArray: {input: 1, sortBy: 1}}", "{}", 2942504);
        check_parse_error("{$sortArray: 1}", 2942500);
        check_parse_error("{$sortArray: {sortBy: 1}}", 2942502);
        check_parse_error("{$sortArray: {input: []}}", 2942503);
        check_parse_error("{$sortArray: {input: [], sortBy: {}}}", 2942505);
        check_parse_error("{$sortArray: {input: [], sortBy: {a: 2}}}", 2942505);
        check_parse_error("{$sortArray: {input: [], sortBy: 2}}", 2942506);
        check_parse_error("{$sortArray: {input: [], sortBy: 'a'}}", 2942507);
    }

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
