//! Literals and variables: `$literal` (and its internal form `$const`), documents, arrays, `$let`.
//!
//! ```text
//! {$literal: <value>}
//! {<name>: <expression>, …}    [<expression>, …]
//! {$let: {vars: {<name>: <expression>, …}, in: <expression>}}
//! ```

use super::evaluate::{Call, Computed, Scope};
use super::node::{CallNode, Node, append};
use super::object::OrderedFields;
use super::parse::Parser;
use super::reference;
use super::table::Operator;
use crate::field_path::check_field_name;
use base::bson::{Builder, Document, FieldName, FieldNameBuf, Value};
use base::{Result, bail, err};

/// Parses `$literal`, whose argument is not evaluated.
pub(super) fn parse_literal(_: &mut Parser<'_>, _: &'static Operator, value: Value<'_>) -> Result<Node> {
    Ok(Node::Constant(Some(value.to_owned())))
}

/// Parses `$expr`, which marks an expression in filters and stands for its operand here.
pub(super) fn parse_expr(parser: &mut Parser<'_>, _: &'static Operator, value: Value<'_>) -> Result<Node> {
    parser.operand(value)
}

/// Parses `$let`. The operands are the variables' values in order, then `in`.
///
/// Errors: 16874 to 16877 for malformed arguments, FailedToParse for an invalid name.
pub(super) fn parse_let(
    parser: &mut Parser<'_>,
    operator: &'static Operator,
    value: Value<'_>,
) -> Result<Node> {
    let Value::Document(argument) = value else {
        bail!(16874, "$let only supports an object as its argument");
    };
    let (mut variables, mut body) = (None, None);
    for element in argument {
        match element.name() {
            "vars" => variables = Some(element.value()),
            "in" => body = Some(element.value()),
            other => bail!(16875, "Unrecognized parameter to $let: {other}"),
        }
    }
    let variables = variables.ok_or_else(|| err!(16876, "Missing 'vars' parameter to $let"))?;
    let body = body.ok_or_else(|| err!(16877, "Missing 'in' parameter to $let"))?;
    let Value::Document(variables) = variables else {
        bail!(10065, "invalid parameter: expected an object (vars)");
    };
    let (mut names, mut operands) = (Vec::new(), Vec::new());
    for element in variables {
        reference::check_name_for_binding(element.name())?;
        names.push(element.name());
        operands.push(parser.operand(element.value())?);
    }
    let (bindings, body) = parser.binding(&names, |parser| parser.operand(body))?;
    operands.push(body);
    Ok(Parser::binding_call(operator, operands, bindings))
}

/// Evaluates the variables in the outer scope, then `in` with the variables.
pub(super) fn r#let<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let count = call.bindings();
    let values = call.values().take(count).collect::<Result<Vec<_>>>()?;
    call.get_with(count, &values, call.scope.arena)
}

/// Formats `$let` as BSON.
pub(super) fn describe_let(call: &CallNode, name: FieldName<'_>, out: &mut Builder) {
    out.begin_document(name).begin_document(c"vars");
    for (variable, node) in call.bindings.names.iter().zip(&call.operands) {
        append(node, FieldName::trusted(variable), out);
    }
    out.end();
    if let Some(body) = call.operands.last() {
        append(body, c"in".into(), out);
    }
    out.end();
}

/// Parses the fields of a document without an operator.
///
/// Errors: errors of field names; 16406 for a duplicate name.
pub(super) fn parse_document(parser: &mut Parser<'_>, document: Document<'_>) -> Result<Node> {
    let mut fields: Vec<(FieldNameBuf, Node)> = Vec::new();
    let mut names = OrderedFields::default();
    for element in document {
        let name = element.name();
        check_field_name(name)?;
        if names.set(element.field_name(), Value::Null) {
            bail!(16406, "duplicate field name specified in object literal: {document}");
        }
        fields.push((element.field_name().to_owned(), parser.operand(element.value())?));
    }
    Ok(Node::Object(fields))
}

/// Builds the document; fields with missing values are omitted.
pub(super) fn document<'a>(fields: &'a [(FieldNameBuf, Node)], scope: &Scope<'_, 'a>) -> Computed<'a> {
    let mut builder = Builder::new();
    for (name, node) in fields {
        if let Some(value) = node.evaluate(scope)? {
            let before = builder.len();
            builder.append(name, value);
            scope.charge_growth(before, &builder)?;
        }
    }
    scope.document(builder)
}

/// Builds the array; missing values become null, which keeps the positions.
pub(super) fn array<'a>(nodes: &'a [Node], scope: &Scope<'_, 'a>) -> Computed<'a> {
    let mut builder = Builder::new();
    for node in nodes {
        let value = node.evaluate(scope)?.unwrap_or(Value::Null);
        let before = builder.len();
        builder.push(value);
        scope.charge_growth(before, &builder)?;
    }
    scope.array(builder)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, check_parse_error};

    #[test]
    fn literals_are_not_parsed() {
        check("{$literal: '$a'}", "{a: 1}", "'$a'");
        check("{$literal: {$add: [1, 2]}}", "{}", "{$add: [1, 2]}");
    }

    #[test]
    fn variables_are_seen_within() {
        check("{$let: {vars: {x: '$a', y: 2}, in: {$add: ['$$x', '$$y']}}}", "{a: 3}", "5");
        check(
            "{$let: {vars: {x: 1}, in: {$let: {vars: {x: {$add: ['$$x', '$a']}}, in: '$$x'}}}}",
            "{a: 1}",
            "2",
        );
        check("{$let: {vars: {x: '$a'}, in: '$$x.b'}}", "{a: {b: 7}}", "7");
        check_parse_error("{$let: {vars: {x: 1, y: '$$x'}, in: 1}}", 17276);
        check_parse_error("{$let: 1}", 16874);
        check_parse_error("{$let: {vars: {}}}", 16877);
        check_parse_error("{$let: {in: 1}}", 16876);
        check_parse_error("{$let: {vars: {}, in: 1, x: 1}}", 16875);
    }

    #[test]
    fn missing_fields_are_left_out() {
        check("{a: '$x', b: {c: '$y', d: 1}, e: {}}", "{x: 1}", "{a: 1, b: {d: 1}, e: {}}");
        check_parse_error("{a: 1, $b: 2}", 16410);
        check_parse_error("{a: 1, a: 2}", 16406);
    }
}
