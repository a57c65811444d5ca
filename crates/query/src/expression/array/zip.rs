//! `$zip`: an array of the first elements of all arrays, then of their second elements, and so on.
//!
//! ```text
//! {$zip: {inputs: [<array>, …], useLongestLength: <boolean>, defaults: [<expression>, …]}}
//! ```

use super::super::evaluate::{Call, Computed, null};
use super::super::logic::truthy;
use super::super::node::{CallNode, Node, append};
use super::super::parse::Parser;
use super::super::table::Operator;
use base::bson::{Builder, FieldName, Value};
use base::{Result, bail};

/// Parses `$zip`. The operands are the inputs as an array literal, the defaults as another (or absent), and whether the
/// longest array counts.
///
/// Errors: 34460 to 34467 for malformed arguments.
pub(in super::super) fn parse(
    parser: &mut Parser<'_>,
    operator: &'static Operator,
    argument: Value<'_>,
) -> Result<Node> {
    let Value::Document(argument) = argument else {
        bail!(34460, "$zip only supports an object as an argument, found {}", argument.kind());
    };
    let (mut inputs, mut defaults, mut longest) = (Vec::new(), None, false);
    for element in argument {
        match (element.name(), element.value()) {
            ("inputs", Value::Array(array)) => inputs = parser.operands(array)?,
            ("inputs", other) => {
                bail!(34461, "inputs must be an array of expressions, found {}", other.kind());
            }
            ("defaults", Value::Array(array)) => defaults = Some(parser.operands(array)?),
            ("defaults", other) => {
                bail!(34462, "defaults must be an array of expressions, found {}", other.kind());
            }
            ("useLongestLength", Value::Boolean(value)) => longest = value,
            ("useLongestLength", other) => {
                bail!(34463, "useLongestLength must be a bool, found {}", other.kind().alias());
            }
            (other, _) => bail!(34464, "$zip found an unknown argument: {other}"),
        }
    }
    if inputs.is_empty() {
        bail!(34465, "$zip requires at least one input array");
    }
    let defaults = check_defaults(defaults, longest, inputs.len())?;
    let longest = Node::Constant(Some(Value::Boolean(longest).to_owned()));
    Ok(Node::call(operator, vec![Node::Array(inputs), defaults, longest]))
}

/// Checks the defaults. Errors: 34466 without `useLongestLength`, 34467 for another length than the inputs.
fn check_defaults(defaults: Option<Vec<Node>>, longest: bool, inputs: usize) -> Result<Node> {
    let Some(defaults) = defaults else { return Ok(Node::Absent) };
    if !longest && !defaults.is_empty() {
        bail!(34466, "cannot specify defaults unless useLongestLength is true");
    }
    if !defaults.is_empty() && defaults.len() != inputs {
        bail!(34467, "defaults and inputs must have the same length");
    }
    Ok(Node::Array(defaults))
}

/// Evaluates `$zip`. Errors: 34468 for an input that is not an array.
pub(in super::super) fn zip<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let mut columns = Vec::new();
    if let Some(Value::Array(inputs)) = call.get(0)? {
        for input in inputs.iter() {
            match input {
                Value::Array(array) => columns.push(array.iter().collect::<Vec<_>>()),
                nullish if nullish.is_nullish() => return null(),
                other => {
                    bail!(34468, "$zip found a non-array expression in input: {}", other.kind());
                }
            }
        }
    }
    let defaults: Vec<_> = match call.get(1)? {
        Some(Value::Array(defaults)) => defaults.iter().collect(),
        _ => Vec::new(),
    };
    let lengths = columns.iter().map(Vec::len);
    let rows = if truthy(call.get(2)?) { lengths.max() } else { lengths.min() };
    let mut builder = Builder::new();
    for row in 0..rows.unwrap_or(0) {
        call.scope.context.steps(columns.len())?;
        builder.push_array();
        for (index, column) in columns.iter().enumerate() {
            let value = column.get(row).or_else(|| defaults.get(index)).copied();
            builder.push(value.unwrap_or(Value::Null));
        }
        builder.end();
        call.scope.check_memory(builder.len())?;
    }
    call.scope.array(builder)
}

/// Formats `$zip` as BSON.
pub(in super::super) fn describe(call: &CallNode, name: FieldName<'_>, out: &mut Builder) {
    out.begin_document(name);
    for (parameter, node) in [c"inputs", c"defaults", c"useLongestLength"].into_iter().zip(&call.operands) {
        match node {
            Node::Constant(Some(value)) => {
                out.append(parameter, value);
            }
            node => append(node, parameter.into(), out),
        }
    }
    out.end();
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{check, check_error, check_parse_error};

    #[test]
    fn zipping() {
        check("{$zip: {inputs: ['$a', [4, 5]]}}", "{a: [1, 2, 3]}", "[[1, 4], [2, 5]]");
        check("{$zip: {inputs: ['$a', [4]], useLongestLength: true}}", "{a: [1, 2]}", "[[1, 4], [2, null]]");
        check(
            "{$zip: {inputs: ['$a', [4]], useLongestLength: true, defaults: [8, 9]}}",
            "{a: [1, 2]}",
            "[[1, 4], [2, 9]]",
        );
        check("{$zip: {inputs: ['$a', [4]]}}", "{}", "null");
        check_error("{$zip: {inputs: ['$a']}}", "{a: 1}", 34468);
        check_parse_error("{$zip: 1}", 34460);
        check_parse_error("{$zip: {inputs: 1}}", 34461);
        check_parse_error("{$zip: {inputs: []}}", 34465);
        check_parse_error("{$zip: {inputs: [[1]], defaults: [1]}}", 34466);
        check_parse_error("{$zip: {inputs: [[1]], defaults: [1, 2], useLongestLength: true}}", 34467);
    }
}
