//! `$mergeObjects $getField $setField $unsetField`, and the document that operators build field by field.
//!
//! ```text
//! {$mergeObjects: [<document>, …]}
//! {$getField: {field: <string>, input: <document>}}    {$getField: <string>}
//! {$setField: {field: <constant string>, input: <document>, value: <expression>}}
//! {$unsetField: {field: <constant string>, input: <document>}}
//! ```

use super::evaluate::{Call, Computed, null, type_name};
use super::named::{self, error_template, required};
use super::node::{FieldNode, Node, Source};
use super::parse::Parser;
use super::show;
use super::table::Operator;
use base::bson::{Builder, Document, FieldName, Value};
use base::{Error, ErrorCode, Result, bail, err};
use std::collections::HashMap;

/// `$mergeObjects`: later values win, in the position of the first. Null and missing are ignored.
///
/// Errors: 40400 for a value that is not a document.
pub(super) fn merge<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let mut merged = OrderedFields::default();
    for operand in call.values() {
        match operand?.filter(|value| !value.is_nullish()) {
            None => {}
            Some(Value::Document(document)) => merge_into(call, &mut merged, document)?,
            Some(Value::Array(array)) if call.len() == 1 => {
                for element in array.iter().filter(|element| !element.is_nullish()) {
                    let Value::Document(document) = element else { return Err(not_an_object(element)) };
                    merge_into(call, &mut merged, document)?;
                }
            }
            Some(other) => return Err(not_an_object(other)),
        }
    }
    call.scope.document(merged.build())
}

/// Merges a document into the result. Errors: interruption.
fn merge_into<'a>(call: &Call<'_, 'a>, merged: &mut OrderedFields<'a>, document: Document<'a>) -> Result<()> {
    for element in document {
        call.scope.context.steps(1)?;
        merged.set(element.field_name(), element.value());
    }
    Ok(())
}

fn not_an_object(found: Value<'_>) -> Error {
    let (value, kind) = (show::value(found), found.kind().alias());
    err!(40400, "$mergeObjects requires object inputs, but input {value} is of type {kind}")
}

/// Parses `$getField`, as `{field, input}` or as the field alone; the input is the document by default.
///
/// Errors: 3041701 to 3041703 for malformed arguments.
pub(super) fn parse_get(
    parser: &mut Parser<'_>,
    operator: &'static Operator,
    argument: Value<'_>,
) -> Result<Node> {
    let current = Node::Field(FieldNode { source: Source::Root, path: None, name: "CURRENT".into() });
    let long = match argument {
        Value::Document(document) => {
            document.first().filter(|first| !first.name().starts_with('$')).map(|_| document)
        }
        _ => None,
    };
    let Some(argument) = long else {
        let field = parser.operand(argument)?;
        return Ok(Node::call(operator, vec![field, current]));
    };
    let parameters = [
        required("field", 3041702, "$getField requires 'field' to be specified"),
        required("input", 3041703, "$getField requires 'input' to be specified"),
    ];
    let unknown = error_template(3041701, "$getField found an unknown argument: {}");
    Ok(Node::call(operator, named::operands(parser, &parameters, unknown, argument)?))
}

/// `$getField`: the field with this name, which may contain dots and dollar signs. Null for null input, missing for
/// other types.
///
/// Errors: 3041704 if the name is not a string.
pub(super) fn get<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let field = call.get(0)?;
    let Some(Value::String(field)) = field else {
        let found = type_name(field);
        bail!(3041704, "$getField requires 'field' to evaluate to type String, but got {found}");
    };
    match call.get(1)? {
        Some(Value::Document(document)) => Ok(document.get(field)),
        Some(nullish) if nullish.is_nullish() => null(),
        _ => Ok(None),
    }
}

/// Parses `$setField` and `$unsetField`. The operands are `field` (a constant), `input` and `value`.
///
/// Errors: 4161100 to 4161109 for malformed arguments.
pub(super) fn parse_set(
    parser: &mut Parser<'_>,
    operator: &'static Operator,
    argument: Value<'_>,
) -> Result<Node> {
    let name = operator.name;
    let Value::Document(argument) = argument else {
        bail!(4161100, "{name} only supports an object as an argument, found {}", argument.kind());
    };
    let takes_value = name == "$setField";
    let (mut field, mut input, mut value) = (None, None, None);
    for element in argument {
        match element.name() {
            "field" => field = Some(element.value()),
            "input" => input = Some(parser.operand(element.value())?),
            "value" if takes_value => value = Some(parser.operand(element.value())?),
            other => bail!(4161101, "{name} found an unknown argument: {other}"),
        }
    }
    let absent = |code, which: &str| {
        Error::new(ErrorCode::Location(code), format!("{name} requires '{which}' to be specified"))
    };
    let field = field.ok_or_else(|| absent(4161102, "field"))?;
    let value = match value {
        None if takes_value => return Err(absent(4161103, "value")),
        value => value.unwrap_or(Node::Absent),
    };
    let input = input.ok_or_else(|| absent(4161109, "input"))?;
    // Parsed last, because MongoDB reports errors of all other arguments first.
    let field = constant_name(parser, name, field)?;
    Ok(Node::call(operator, vec![field, input, value]))
}

/// Parses a constant name: a string, or a `$literal` if it starts with a dollar sign.
fn constant_name(parser: &mut Parser<'_>, name: &str, value: Value<'_>) -> Result<Node> {
    match parser.operand(value)? {
        Node::Constant(Some(constant)) if constant.view().as_str().is_some() => {
            checked_name(name, constant.view().as_str().unwrap_or_default())?;
            Ok(Node::Constant(Some(constant)))
        }
        Node::Constant(found) => {
            let found = type_name(found.as_ref().map(|found| found.view()));
            Err(err!(4161107, "{name} requires 'field' to evaluate to type String, but got {found}"))
        }
        Node::Field(_) => Err(err!(
            4161108,
            "'{}' is a field path reference which is not allowed in this context. Did you mean {{$literal: '{}'}}?",
            value.as_str().unwrap_or_default(),
            value.as_str().unwrap_or_default()
        )),
        Node::Object(fields) if fields.is_empty() => {
            Err(err!(4161107, "{name} requires 'field' to evaluate to type String, but got object"))
        }
        _ => Err(err!(
            4161106,
            "{name} requires 'field' to evaluate to a constant, but got a non-constant argument"
        )),
    }
}

/// Checks a name. Errors: 9534700 for a zero byte.
fn checked_name<'f>(name: &str, field: &'f str) -> Result<FieldName<'f>> {
    FieldName::new(field).map_err(|_| err!(9534700, "{name} requires 'field' to not contain null bytes"))
}

/// Sets one field of a document; `$$REMOVE` as the value (and `$unsetField`) removes it.
///
/// Errors: 4161105 for an input that is not a document.
pub(super) fn set<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let Some(Value::String(field)) = call.get(0)? else { return null() };
    let document = match call.get_non_null(1)? {
        None => return null(),
        Some(Value::Document(document)) => document,
        Some(other) => {
            let (name, found) = (call.name(), other.kind().alias());
            bail!(4161105, "{name} requires 'input' to evaluate to type Object, but got {found}");
        }
    };
    let value = call.get(2)?;
    let field = checked_name(call.name(), field)?;
    let mut builder = Builder::new();
    let mut exists = false;
    for element in document {
        if element.field_name() == field {
            exists = true;
            builder.append_optional(field, value);
        } else {
            builder.append_element(&element);
        }
    }
    if !exists {
        builder.append_optional(field, value);
    }
    call.scope.document(builder)
}

/// Number of fields up to which linear search is faster than hashing.
const SMALL: usize = 16;

/// The fields of a document under construction. Later values replace earlier ones.
#[derive(Default)]
pub(super) struct OrderedFields<'a> {
    entries: Vec<(FieldName<'a>, Value<'a>)>,
    /// The position of each field; empty while they are few.
    positions: HashMap<FieldName<'a>, usize>,
}

impl<'a> OrderedFields<'a> {
    /// Sets a field; returns whether it existed.
    pub(super) fn set(&mut self, name: FieldName<'a>, value: Value<'a>) -> bool {
        let position = if self.positions.is_empty() {
            self.entries.iter().position(|(known, _)| *known == name)
        } else {
            self.positions.get(&name).copied()
        };
        if let Some(entry) = position.and_then(|position| self.entries.get_mut(position)) {
            entry.1 = value;
            return true;
        }
        self.entries.push((name, value));
        if self.entries.len() == SMALL {
            self.positions =
                self.entries.iter().enumerate().map(|(position, (name, _))| (*name, position)).collect();
        } else if self.entries.len() > SMALL {
            self.positions.insert(name, self.entries.len() - 1);
        }
        false
    }

    /// Returns the document of these fields.
    pub(super) fn build(&self) -> Builder {
        let mut builder = Builder::new();
        for (name, value) in &self.entries {
            builder.append(*name, *value);
        }
        builder
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, check_described, check_error, check_missing, check_parse_error};
    use super::*;

    #[test]
    fn merging() {
        check("{$mergeObjects: ['$a', null, {y: 3, z: 4}]}", "{a: {x: 1, y: 2}}", "{x: 1, y: 3, z: 4}");
        check("{$mergeObjects: '$a'}", "{a: [{x: 1}, {x: 2}]}", "{x: 2}");
        check("{$mergeObjects: []}", "{}", "{}");
        check_error("{$mergeObjects: [1]}", "{}", 40400);
    }

    #[test]
    fn fields_with_odd_names() {
        check("{$getField: 'a.b'}", "{'a.b': 1}", "1");
        check("{$getField: {field: {$literal: '$x'}, input: '$a'}}", "{a: {$x: 2}}", "2");
        check("{$getField: {field: {$concat: ['a', 'b']}, input: {ab: 3}}}", "{}", "3");
        check("{$getField: {field: 'x', input: null}}", "{}", "null");
        check_missing("{$getField: {field: 'x', input: 1}}", "{}");
        check_described(
            "{$getField: {field: 'x', input: '$a'}}",
            "{$getField: {field: {$const: 'x'}, input: '$a'}}",
        );
        check_error("{$getField: {field: 1, input: '$a'}}", "{}", 3041704);
        check_parse_error("{$getField: {input: 1}}", 3041702);
        check_parse_error("{$getField: {field: 'a'}}", 3041703);
        check_parse_error("{$getField: {field: 'a', x: 1}}", 3041701);
    }

    #[test]
    fn setting_fields() {
        check("{$setField: {field: 'a.b', input: '$x', value: 2}}", "{x: {c: 1}}", "{c: 1, 'a.b': 2}");
        check("{$setField: {field: 'c', input: '$x', value: 2}}", "{x: {c: 1, d: 2}}", "{c: 2, d: 2}");
        check("{$setField: {field: 'c', input: '$x', value: '$$REMOVE'}}", "{x: {c: 1, d: 2}}", "{d: 2}");
        check("{$unsetField: {field: 'c', input: '$x'}}", "{x: {c: 1, d: 2}}", "{d: 2}");
        check("{$unsetField: {field: 'c', input: '$x'}}", "{}", "null");
        check_error("{$setField: {field: 'c', input: 1, value: 1}}", "{}", 4161105);
        check_parse_error("{$setField: {field: '$c', input: 1, value: 1}}", 4161108);
        check_parse_error("{$setField: {field: 1, input: 1, value: 1}}", 4161107);
        for field in ["'a\\u0000'", "'\\u0000'", "{$const: 'a\\u0000b'}", "{$literal: '$a\\u0000b'}"] {
            check_parse_error(&format!("{{$setField: {{field: {field}, input: {{}}, value: 1}}}}"), 9534700);
            check_parse_error(&format!("{{$unsetField: {{field: {field}, input: {{}}}}}}"), 9534700);
        }
        check_parse_error("{$setField: {field: '$a\\u0000', input: {}, value: 1}}", 16411);
        check_parse_error("{$setField: {field: 'c', input: 1}}", 4161103);
        check_parse_error("{$unsetField: {field: 'c', input: 1, value: 2}}", 4161101);
    }

    #[test]
    fn later_values_take_the_first_place() {
        let names: Vec<String> = (0..50).map(|number| format!("f{number}")).collect();
        let mut fields = OrderedFields::default();
        assert!(names.iter().all(|name| !fields.set(FieldName::new(name).unwrap(), Value::Int32(1))));
        assert!(names.iter().all(|name| fields.set(FieldName::new(name).unwrap(), Value::Int32(2))));
        let document = fields.build().finish();
        let found: Vec<_> = document.view().iter().map(|element| element.name().to_string()).collect();
        assert_eq!(found, names);
        assert!(document.view().iter().all(|element| element.value().as_i64() == Some(2)));
    }
}
