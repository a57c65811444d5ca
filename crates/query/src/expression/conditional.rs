//! `$cond $ifNull $switch`: evaluate only the branch that is taken.
//!
//! ```text
//! {$cond: [<if>, <then>, <else>]}    {$cond: {if: <if>, then: <then>, else: <else>}}
//! {$ifNull: [<expression>, …, <replacement>]}
//! {$switch: {branches: [{case: <expression>, then: <expression>}, …], default: <expression>}}
//! ```

use super::evaluate::{Call, Computed};
use super::logic::truthy;
use super::named::{self, error_template, required};
use super::node::{CallNode, Node, append};
use super::parse::Parser;
use super::table::Operator;
use base::bson::{Builder, FieldName, Value};
use base::{Result, bail, err};

/// Parses `$cond`, as three arguments or as `{if, then, else}`.
///
/// Errors: 17080 to 17083 for the named form, 16020 for the other.
pub(super) fn parse_cond(
    parser: &mut Parser<'_>,
    operator: &'static Operator,
    argument: Value<'_>,
) -> Result<Node> {
    let Value::Document(argument) = argument else {
        let node = parser.positional(operator, argument)?;
        let count = node.children().count();
        return if count == 3 {
            Ok(node)
        } else {
            Err(err!(16020, "Expression $cond takes exactly 3 arguments. {count} were passed in."))
        };
    };
    let parameters = [
        required("if", 17080, "Missing 'if' parameter to $cond"),
        required("then", 17081, "Missing 'then' parameter to $cond"),
        required("else", 17082, "Missing 'else' parameter to $cond"),
    ];
    let unknown = error_template(17083, "Unrecognized parameter to $cond: {}");
    Ok(Node::call(operator, named::operands(parser, &parameters, unknown, argument)?))
}

pub(super) fn cond<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    call.get(if truthy(call.get(0)?) { 1 } else { 2 })
}

/// Parses `$ifNull`, which takes two arguments or more. Errors: 1257300 for fewer.
pub(super) fn parse_if_null(
    parser: &mut Parser<'_>,
    operator: &'static Operator,
    argument: Value<'_>,
) -> Result<Node> {
    let node = parser.positional(operator, argument)?;
    let count = node.children().count();
    if count < 2 {
        bail!(1257300, "$ifNull needs at least two arguments, had: {count}");
    }
    Ok(node)
}

/// `$ifNull`: the first operand that is neither null nor missing, otherwise the last operand.
pub(super) fn if_null<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let last = call.len().saturating_sub(1);
    for position in 0..last {
        if let Some(value) = call.get_non_null(position)? {
            return Ok(Some(value));
        }
    }
    call.get(last)
}

/// Parses `$switch`. The operands are `case` and `then` of each branch, followed by the default (or absent).
///
/// Errors: 40060 to 40068 for malformed arguments.
pub(super) fn parse_switch(
    parser: &mut Parser<'_>,
    operator: &'static Operator,
    argument: Value<'_>,
) -> Result<Node> {
    let Value::Document(argument) = argument else {
        bail!(40060, "$switch requires an object as an argument, found: {}", argument.kind());
    };
    let (mut operands, mut default) = (Vec::new(), Node::Absent);
    for element in argument {
        match (element.name(), element.value()) {
            ("branches", Value::Array(branches)) => {
                for branch in branches.iter() {
                    parse_branch(parser, branch, &mut operands)?;
                }
            }
            ("branches", other) => {
                bail!(40061, "$switch expected an array for 'branches', found: {}", other.kind());
            }
            ("default", value) => default = parser.operand(value)?,
            (other, _) => bail!(40067, "$switch found an unknown argument: {other}"),
        }
    }
    if operands.is_empty() {
        bail!(40068, "$switch requires at least one branch.");
    }
    operands.push(default);
    Ok(Node::call(operator, operands))
}

/// Parses a branch and pushes its `case` and `then`. Errors: 40062 to 40065.
fn parse_branch(parser: &mut Parser<'_>, branch: Value<'_>, operands: &mut Vec<Node>) -> Result<()> {
    let Value::Document(branch) = branch else {
        bail!(40062, "$switch expected each branch to be an object, found: {}", branch.kind());
    };
    let parameters = [
        required("case", 40064, "$switch requires each branch have a 'case' expression"),
        required("then", 40065, "$switch requires each branch have a 'then' expression."),
    ];
    let unknown = error_template(40063, "$switch found an unknown argument to a branch: {}");
    operands.extend(named::operands(parser, &parameters, unknown, branch)?);
    Ok(())
}

/// Checks a `$switch` with constant cases. Errors: 40069 if no branch can match and it has no default.
pub(super) fn check_switch(call: &Call<'_, '_>) -> Result<bool> {
    let default = call.len().saturating_sub(1);
    if call.has_argument(default) {
        return Ok(false);
    }
    for case in (0..default).step_by(2) {
        if !call.is_constant(case) || truthy(call.get(case)?) {
            return Ok(false);
        }
    }
    Err(err!(
        40069,
        "Cannot execute a switch statement where all the cases evaluate to false without a default"
    ))
}

/// Evaluates `$switch`. Errors: 40066 if no branch matches and it has no default.
pub(super) fn switch<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let default = call.len().saturating_sub(1);
    let range = call.range()?;
    if let Some(Some(range)) = range {
        return call.get(2 * range + 1);
    }
    let cases = if range.is_some() { 0..0 } else { 0..default };
    for case in cases.step_by(2) {
        if truthy(call.get(case)?) {
            return call.get(case + 1);
        }
    }
    if !call.has_argument(default) {
        bail!(40066, "$switch could not find a matching branch for an input, and no default was specified.");
    }
    call.get(default)
}

/// Formats `$switch` as BSON.
pub(super) fn describe_switch(call: &CallNode, name: FieldName<'_>, out: &mut Builder) {
    out.begin_document(name).begin_array(c"branches");
    for branch in call.operands.chunks_exact(2) {
        out.push_document();
        for (name, node) in [c"case", c"then"].into_iter().zip(branch) {
            append(node, name.into(), out);
        }
        out.end();
    }
    out.end();
    if let Some(default) = call.operands.last() {
        append(default, c"default".into(), out);
    }
    out.end();
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, check_described, check_error, check_missing, check_parse_error};

    #[test]
    fn ranges_of_a_field_are_searched() {
        let branch = |field: &str, lower: &str, upper: &str, then: &str| {
            format!(
                "{{case: {{$and: [{{$gte: ['${field}', {lower}]}}, {{$lt: ['${field}', {upper}]}}]}}, then: {then}}}"
            )
        };
        let of = |branches: &[String]| {
            format!("{{$switch: {{branches: [{}], default: 'd'}}}}", branches.join(", "))
        };
        let ranges = of(&[
            branch("a", "0", "5", "1"),
            branch("a", "5", "7.5", "'$b'"),
            branch("a", "7.5", "'x'", "3"),
        ]);
        for (document, expected) in [
            ("{a: -1}", "'d'"),
            ("{a: 0}", "1"),
            ("{a: 4.9}", "1"),
            ("{a: NumberLong(5), b: 2}", "2"),
            ("{a: NumberDecimal('7.5')}", "3"),
            ("{a: 'a'}", "3"),
            ("{a: 'x'}", "'d'"),
            ("{a: [1]}", "'d'"),
            ("{a: NaN}", "'d'"),
            ("{a: null}", "'d'"),
            ("{}", "'d'"),
        ] {
            check(&ranges, document, expected);
        }
        let gap = of(&[branch("a", "0", "5", "1"), branch("a", "6", "7", "2")]);
        check(&gap, "{a: 5}", "'d'");
        check(&gap, "{a: 6}", "2");
        let overlap =
            of(&[branch("a", "5", "9", "1"), branch("a", "9", "3", "2"), branch("a", "3", "9", "3")]);
        check(&overlap, "{a: 4}", "3");
        let other = of(&[branch("a", "0", "5", "1"), branch("b", "5", "7", "2")]);
        check(&other, "{a: 6, b: 6}", "2");
        let without_default = format!("{{$switch: {{branches: [{}]}}}}", branch("a", "0", "5", "1"));
        check_error(&without_default, "{a: 5}", 40066);
    }

    #[test]
    fn conditions() {
        check("{$cond: ['$a', 1, 2]}", "{a: true}", "1");
        check("{$cond: {if: '$a', then: {$divide: [1, '$z']}, else: 2}}", "{z: 0}", "2");
        check_parse_error("{$cond: [1, 2]}", 16020);
        check_parse_error("{$cond: {then: 1, else: 2}}", 17080);
        check_parse_error("{$cond: {if: 1, else: 2}}", 17081);
        check_parse_error("{$cond: {if: 1, then: 2}}", 17082);
        check_parse_error("{$cond: {if: 1, then: 2, else: 3, x: 4}}", 17083);
    }

    #[test]
    fn defaults_for_null() {
        check("{$ifNull: ['$a', '$b', 3]}", "{b: null}", "3");
        check("{$ifNull: ['$a', 0]}", "{a: false}", "false");
        check_missing("{$ifNull: ['$a', '$b']}", "{}");
        check_parse_error("{$ifNull: [1]}", 1257300);
    }

    #[test]
    fn branches() {
        let two = "{$switch: {branches: [{case: '$a', then: 1}, {case: '$b', then: 2}], default: 3}}";
        check(two, "{a: 1}", "1");
        check(two, "{b: 1}", "2");
        check(two, "{}", "3");
        check_described(
            "{$switch: {branches: [{case: '$a', then: '$b'}], default: '$c'}}",
            "{$switch: {branches: [{case: '$a', then: '$b'}], default: '$c'}}",
        );
        check_error("{$switch: {branches: [{case: '$a', then: 1}]}}", "{}", 40066);
        check_parse_error("{$switch: 1}", 40060);
        check_parse_error("{$switch: {branches: 1}}", 40061);
        check_parse_error("{$switch: {branches: [1]}}", 40062);
        check_parse_error("{$switch: {branches: [{x: 1}]}}", 40063);
        check_parse_error("{$switch: {branches: [{then: 1}]}}", 40064);
        check_parse_error("{$switch: {branches: [{case: 1}]}}", 40065);
        check_parse_error("{$switch: {x: 1}}", 40067);
        check_parse_error("{$switch: {branches: []}}", 40068);
    }
}
