//! `$map $filter $reduce`: evaluate an expression for each element, bound to a variable.
//!
//! ```text
//! {$map: {input: <array>, as: <name>, arrayIndexAs: <name>, in: <expression>}}
//! {$filter: {input: <array>, as: <name>, arrayIndexAs: <name>, cond: <expression>, limit: <integer>}}
//! {$reduce: {input: <array>, initialValue: <expression>, as: <name>, valueAs: <name>, arrayIndexAs: <name>,
//!            in: <expression>}}
//! ```
//!
//! The position of the element is `$$IDX` by default. A call binds the position, the element and the value, in this
//! order.
//!
//! Each operator has a parser, an evaluation and a case in [`describe`]. A new argument changes all three.

use super::super::arithmetic::divide::as_int32;
use super::super::evaluate::{Call, Computed, null};
use super::super::logic::truthy;
use super::super::node::{CallNode, Node, append};
use super::super::parse::Parser;
use super::super::table::Operator;
use super::super::{reference, show};
use super::array_or_null;
use crate::Arena;
use base::bson::{Array, Builder, FieldName, Value};
use base::{Error, ErrorCode, Result, bail, err};
use std::ffi::CStr;

/// Parses `$map`. The operands are `input` and `in`. `in` sees the variable `as`, by default `this`.
///
/// Errors: 16878 to 16882 and 9375801 for malformed arguments, errors of variable names.
pub(in super::super) fn parse_map(
    parser: &mut Parser<'_>,
    operator: &'static Operator,
    argument: Value<'_>,
) -> Result<Node> {
    let Value::Document(argument) = argument else {
        bail!(16878, "$map only supports an object as its argument");
    };
    let (mut input, mut name, mut index, mut body) = (None, None, None, None);
    for element in argument {
        match element.name() {
            "input" => input = Some(element.value()),
            "as" => name = Some(element.value()),
            "arrayIndexAs" => index = Some(element.value()),
            "in" => body = Some(element.value()),
            other => bail!(16879, "Unrecognized parameter to $map: {other}"),
        }
    }
    let input = input.ok_or_else(|| err!(16880, "Missing 'input' parameter to $map"))?;
    let body = body.ok_or_else(|| err!(16882, "Missing 'in' parameter to $map"))?;
    let input = parser.operand(input)?;
    let names = variables_of(name, index, 9375801)?;
    let (bindings, body) = parser.binding(&names, |parser| parser.operand(body))?;
    Ok(Parser::binding_call(operator, vec![input, body], bindings))
}

/// Default name of the position.
const INDEX: &str = "IDX";

/// Returns the names of the position and of the element. Errors: errors of names; `code` for equal names.
fn variables_of<'v>(name: Option<Value<'v>>, index: Option<Value<'v>>, code: i32) -> Result<[&'v str; 2]> {
    let names = [variable("arrayIndexAs", index, INDEX)?, variable("as", name, "this")?];
    if names[0] == names[1] {
        let message = "'as' and 'arrayIndexAs' cannot have the same name";
        return Err(Error::new(ErrorCode::Location(code), message.to_string()));
    }
    Ok(names)
}

/// Returns the name that an argument gives to a variable.
fn variable<'v>(argument: &str, name: Option<Value<'v>>, default: &'static str) -> Result<&'v str> {
    let name = match name {
        None => return Ok(default),
        Some(Value::String(name)) => name,
        Some(other) => {
            bail!(FailedToParse, "'{argument}' must be a string, found: {}", other.kind().alias());
        }
    };
    reference::check_name_for_binding(name)?;
    Ok(name)
}

/// Returns the elements with their positions.
pub(super) fn with_positions<'a>(array: Array<'a>) -> impl Iterator<Item = (Option<Value<'a>>, Value<'a>)> {
    (0i32..).map(|position| Some(Value::Int32(position))).zip(array.iter())
}

/// Evaluates `$map`. Errors: 16883 for a value that is not an array.
pub(in super::super) fn map<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let input = array_or_null(call, 0, |found| err!(16883, "input to $map must be an array not {found}"))?;
    let Some(input) = input else { return null() };
    let mut builder = Builder::new();
    // The values of each iteration are copied out, so all iterations share one arena.
    let mut arena = Arena::new();
    for (position, element) in with_positions(input) {
        call.scope.context.steps(1)?;
        let result = call.get_with(1, &[position, Some(element)], &arena)?;
        builder.push(result.unwrap_or(Value::Null));
        check_size(call, &builder)?;
        arena.reset();
    }
    call.scope.array(builder)
}

/// Parses `$filter`. The operands are `input`, `limit` and `cond`; `cond` sees the variable.
///
/// Errors: 28646 to 28650 and 9375802 for malformed arguments, errors of variable names.
pub(in super::super) fn parse_filter(
    parser: &mut Parser<'_>,
    operator: &'static Operator,
    argument: Value<'_>,
) -> Result<Node> {
    let Value::Document(argument) = argument else {
        bail!(28646, "$filter only supports an object as its argument");
    };
    let (mut input, mut name, mut index, mut condition, mut limit) = (None, None, None, None, None);
    for element in argument {
        match element.name() {
            "input" => input = Some(element.value()),
            "as" => name = Some(element.value()),
            "arrayIndexAs" => index = Some(element.value()),
            "cond" => condition = Some(element.value()),
            "limit" => limit = Some(element.value()),
            other => bail!(28647, "Unrecognized parameter to $filter: {other}"),
        }
    }
    let input = input.ok_or_else(|| err!(28648, "Missing 'input' parameter to $filter"))?;
    let condition = condition.ok_or_else(|| err!(28650, "Missing 'cond' parameter to $filter"))?;
    let input = parser.operand(input)?;
    let names = variables_of(name, index, 9375802)?;
    let (bindings, condition) = parser.binding(&names, |parser| parser.operand(condition))?;
    let limit = limit.map_or(Ok(Node::Absent), |limit| parser.operand(limit))?;
    Ok(Parser::binding_call(operator, vec![input, limit, condition], bindings))
}

/// Evaluates `$filter`. Errors: 28651 for a value that is not an array, 327391 and 327392 for the limit.
pub(in super::super) fn filter<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let input = array_or_null(call, 0, |found| err!(28651, "input to $filter must be an array not {found}"))?;
    let Some(input) = input else { return null() };
    let mut remaining = limit(call)?;
    let mut builder = Builder::new();
    let mut arena = Arena::new();
    for (position, element) in with_positions(input) {
        call.scope.context.steps(1)?;
        if truthy(call.get_with(2, &[position, Some(element)], &arena)?) {
            builder.push(element);
            remaining -= 1;
            if remaining == 0 {
                break;
            }
        }
        arena.reset();
    }
    call.scope.array(builder)
}

/// Returns the maximum number of elements of `$filter`; null means no limit.
fn limit(call: &Call<'_, '_>) -> Result<usize> {
    let Some(limit) = call.get_non_null(1)? else { return Ok(usize::MAX) };
    let number = as_int32(limit).ok_or_else(|| {
        let found = show::value(limit);
        err!(327391, "$filter: limit must be represented as a 32-bit integral value: {found}")
    })?;
    match usize::try_from(number) {
        Ok(limit) if limit > 0 => Ok(limit),
        _ => Err(err!(327392, "$filter: limit must be greater than 0: {number}")),
    }
}

/// Parses `$reduce`. The operands are `input`, `initialValue` and `in`; `in` sees `this` and `value`.
///
/// Errors: 40075 to 40079 and 9298401 for malformed arguments, errors of variable names.
pub(in super::super) fn parse_reduce(
    parser: &mut Parser<'_>,
    operator: &'static Operator,
    argument: Value<'_>,
) -> Result<Node> {
    let Value::Document(argument) = argument else {
        bail!(40075, "$reduce requires an object as an argument, found: {}", argument.kind());
    };
    let (mut input, mut initial, mut body) = (None, None, None);
    let (mut name, mut value, mut index) = (None, None, None);
    for element in argument {
        match element.name() {
            "input" => input = Some(parser.operand(element.value())?),
            "initialValue" => initial = Some(parser.operand(element.value())?),
            "in" => body = Some(element.value()),
            "as" => name = Some(element.value()),
            "valueAs" => value = Some(element.value()),
            "arrayIndexAs" => index = Some(element.value()),
            other => bail!(40076, "$reduce found an unknown argument: {other}"),
        }
    }
    let [index, name] = variables_of(name, index, 9298401)?;
    let value = variable("valueAs", value, "value")?;
    if value == index || value == name {
        bail!(9298401, "'as', 'valueAs' and 'arrayIndexAs' cannot have the same name");
    }
    let body = match body {
        Some(body) => Some(parser.binding(&[index, name, value], |parser| parser.operand(body))?),
        None => None,
    };
    let input = input.ok_or_else(|| err!(40077, "$reduce requires 'input' to be specified"))?;
    let initial = initial.ok_or_else(|| err!(40078, "$reduce requires 'initialValue' to be specified"))?;
    let (bindings, body) = body.ok_or_else(|| err!(40079, "$reduce requires 'in' to be specified"))?;
    Ok(Parser::binding_call(operator, vec![input, initial, body], bindings))
}

fn check_size(call: &Call<'_, '_>, builder: &Builder) -> Result<()> {
    call.scope.check_memory(builder.len())
}

/// Formats `$map`, `$filter` and `$reduce` as BSON.
pub(in super::super) fn describe(call: &CallNode, name: FieldName<'_>, out: &mut Builder) {
    let names: &[&CStr] = match name.as_str() {
        "$map" => &[c"input", c"in"],
        "$filter" => &[c"input", c"limit", c"cond"],
        _ => &[c"input", c"initialValue", c"in"],
    };
    let (is_reduce, variables) = (name == c"$reduce".into(), call.bindings.names.as_slice());
    out.begin_document(name);
    for (at, (parameter, node)) in names.iter().zip(&call.operands).enumerate() {
        append(node, (*parameter).into(), out);
        if at > 0 {
            continue;
        }
        // `$reduce` shows only names that a client gave.
        let shown =
            [(c"arrayIndexAs", INDEX), (c"as", if is_reduce { "this" } else { "" }), (c"valueAs", "value")];
        for ((argument, default), variable) in shown.into_iter().zip(variables) {
            if **variable != *default {
                out.append(argument, &**variable);
            }
        }
    }
    out.end();
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{check, check_described, check_error, check_parse_error};

    #[test]
    fn map() {
        check("{$map: {input: '$a', in: {$add: ['$$this', '$b']}}}", "{a: [1, 2], b: 10}", "[11, 12]");
        check("{$map: {input: '$a', as: 'x', in: '$$x.y'}}", "{a: [{y: 1}, {}]}", "[1, null]");
        check(
            "{$map: {input: '$a', as: 'x', in: {$map: {input: '$$x', as: 'y', in: {$multiply: ['$$y', {$size: '$$x'}]}}}}}",
            "{a: [[1, 2], [3]]}",
            "[[2, 4], [3]]",
        );
        check("{$map: {input: null, in: 1}}", "{}", "null");
        check_described(
            "{$map: {input: '$a', as: 'x', in: '$$x'}}",
            "{$map: {input: '$a', as: 'x', in: '$$x'}}",
        );
        check_error("{$map: {input: 1, in: 1}}", "{}", 16883);
        check_parse_error("{$map: 1}", 16878);
        check_parse_error("{$map: {in: 1}}", 16880);
        check_parse_error("{$map: {input: 1}}", 16882);
        check_parse_error("{$map: {input: 1, in: 1, x: 1}}", 16879);
    }

    #[test]
    fn filter() {
        check("{$filter: {input: '$a', cond: {$gt: ['$$this', 1]}}}", "{a: [1, 2, 3]}", "[2, 3]");
        check("{$filter: {input: '$a', as: 'x', cond: '$$x', limit: 1}}", "{a: [0, 2, 3]}", "[2]");
        check("{$filter: {input: '$a', cond: true, limit: null}}", "{a: [0, 2, 3]}", "[0, 2, 3]");
        check("{$filter: {input: '$a', cond: true}}", "{}", "null");
        check_error("{$filter: {input: 'x', cond: true}}", "{}", 28651);
        check_error("{$filter: {input: [1], cond: true, limit: 0}}", "{}", 327392);
        check_error("{$filter: {input: [1], cond: true, limit: 'x'}}", "{}", 327391);
        check_parse_error("{$filter: {input: '$a', as: '$x', cond: true}}", 9);
    }

    #[test]
    fn positions() {
        check("{$map: {input: '$a', in: '$$IDX'}}", "{a: [7, 8]}", "[0, 1]");
        check(
            "{$map: {input: '$a', arrayIndexAs: 'i', in: {$add: ['$$this', '$$i']}}}",
            "{a: [7, 8]}",
            "[7, 9]",
        );
        check(
            "{$map: {input: '$a', in: {$map: {input: '$a', arrayIndexAs: 'i', in: {$add: ['$$IDX', '$$i']}}}}}",
            "{a: [0, 0]}",
            "[[0, 1], [1, 2]]",
        );
        check(
            "{$filter: {input: '$a', cond: {$eq: ['$$this', '$$IDX']}}}",
            "{a: [0, 7, 2, 5, 4, 0]}",
            "[0, 2, 4]",
        );
        check(
            "{$reduce: {input: '$a', initialValue: 0, in: {$add: [{$multiply: ['$$this', '$$IDX']}, '$$value']}}}",
            "{a: [1, 2, 3]}",
            "8",
        );
        check(
            "{$reduce: {input: '$a', initialValue: 0, as: 'e', valueAs: 'v', in: {$add: ['$$e', '$$v']}}}",
            "{a: [1, 2, 3]}",
            "6",
        );
        check(
            "{$reduce: {input: '$a', initialValue: [], valueAs: 'v', in: {$concatArrays: ['$$v', ['$$IDX']]}}}",
            "{a: [1, 2]}",
            "[0, 1]",
        );
        let reduce = "{$reduce: {input: '$a', arrayIndexAs: 'i', as: 'e', valueAs: 'v', initialValue: '$b', in: '$$e'}}";
        check_described(reduce, reduce);
        check_parse_error("{$map: {input: '$a', arrayIndexAs: 'i', in: '$$IDX'}}", 17276);
        check_parse_error("{$map: {input: '$a', arrayIndexAs: 'IDX', in: 1}}", 9);
        check_parse_error("{$map: {input: '$$IDX', in: 1}}", 17276);
        check_parse_error("{$map: {input: '$a', as: 'i', arrayIndexAs: 'i', in: 1}}", 9375801);
        check_parse_error("{$filter: {input: '$a', as: 'i', arrayIndexAs: 'i', cond: 1}}", 9375802);
        check_parse_error("{$reduce: {input: '$a', initialValue: 0, as: 'i', valueAs: 'i', in: 1}}", 9298401);
    }
}
