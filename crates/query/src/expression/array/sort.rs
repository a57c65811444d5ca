//! `$sortArray`: by whole values, or by fields of the elements.
//!
//! ```text
//! {$sortArray: {input: <array>, sortBy: 1 | -1 | {<path>: 1 | -1, …}}}
//! ```

use super::super::evaluate::{Call, Computed, null};
use super::super::node::{CallNode, Node};
use super::super::parse::Parser;
use super::super::table::Operator;
use super::array_or_null;
use crate::element_order::ElementOrder;
use crate::sort_runs::sort_in_runs;
use base::bson::{Builder, FieldName, Value};
use base::{Result, bail, err};

/// Parses `$sortArray`. The operands are `input` and the constant `sortBy`.
///
/// Errors: 2942500 to 2942503 for malformed arguments, 2942505 to 2942507 for the order.
pub(in super::super) fn parse(
    parser: &mut Parser<'_>,
    operator: &'static Operator,
    argument: Value<'_>,
) -> Result<Node> {
    let Value::Document(argument) = argument else {
        let found = argument.kind().alias();
        bail!(2942500, "$sortArray requires an object as an argument, found: {found}");
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
pub(in super::super) fn describe(
    call: &CallNode,
    name: FieldName<'_>,
    out: &mut Builder,
    append: &dyn Fn(&Node, FieldName<'_>, &mut Builder),
) {
    out.begin_document(name);
    if let [input, Node::Constant(Some(by))] = &call.operands[..] {
        append(input, c"input".into(), out);
        out.append(c"sortBy", by);
    }
    out.end();
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
}
