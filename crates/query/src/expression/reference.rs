//! References in an expression: field paths, and the names of variables.
//!
//! `"$a.b"` descends through documents and maps over arrays; it has no positions.

use super::evaluate::{Computed, Scope};
use super::node::{FieldNode, Source};
use base::bson::{Array, Builder, PathComponent, Value, ValueBuf};
use base::{Result, bail, err};

/// Evaluates a path or a variable.
///
/// Errors: 51144 for `$$CLUSTER_TIME` in a topology without cluster time.
pub(super) fn evaluate<'a>(field: &'a FieldNode, scope: &Scope<'_, 'a>) -> Computed<'a> {
    let start = match field.source {
        Source::Root => Some(Value::Document(scope.root.document)),
        Source::Whole => Some(Value::Document(scope.root.root())),
        Source::Slot(slot) => scope.slot(slot),
        Source::Let(position) => {
            scope.context.variables.get(position).and_then(|(_, value)| value.as_ref()).map(ValueBuf::view)
        }
        Source::Now => Some(Value::DateTime(scope.context.now_millis)),
        Source::UserRoles => match &scope.context.user_roles {
            Some(roles) => Some(roles.view()),
            None => Some(Value::Array(Array::EMPTY)),
        },
        Source::ClusterTime => match scope.context.cluster_time {
            Some(time) => Some(Value::Timestamp(time)),
            None => bail!(51144, "Builtin variable '$$CLUSTER_TIME' is not available"),
        },
    };
    match (&field.path, start) {
        (Some(path), Some(start)) => walk(start, path.components(), scope),
        (None, start) => Ok(start),
        (_, None) => Ok(None),
    }
}

/// Follows the components through documents and maps over the first array.
fn walk<'a>(start: Value<'a>, components: &[PathComponent], scope: &Scope<'_, 'a>) -> Computed<'a> {
    let mut value = start;
    let mut rest = components;
    while let Some((component, after)) = rest.split_first() {
        value = match value {
            Value::Document(document) => match document.get(component.name()) {
                Some(inner) => inner,
                None => return Ok(None),
            },
            Value::Array(array) => {
                let mut builder = Builder::new();
                map(array, rest, &mut builder);
                return scope.array(builder);
            }
            _ => return Ok(None),
        };
        rest = after;
    }
    Ok(Some(value))
}

/// Pushes the path's value for each document of the array; other elements yield nothing. The number of components
/// bounds the recursion.
fn map(array: Array<'_>, components: &[PathComponent], out: &mut Builder) {
    for element in array.iter() {
        if let Value::Document(_) = element {
            push(element, components, out);
        }
    }
}

/// Pushes the value of one array element. A nested array pushes an array of its own values.
fn push(start: Value<'_>, components: &[PathComponent], out: &mut Builder) {
    let mut value = start;
    let mut rest = components;
    while let Some((component, after)) = rest.split_first() {
        value = match value {
            Value::Document(document) => match document.get(component.name()) {
                Some(inner) => inner,
                None => return,
            },
            Value::Array(array) => {
                out.push_array();
                map(array, rest, out);
                out.end();
                return;
            }
            _ => return,
        };
        rest = after;
    }
    out.push(value);
}

/// Checks a name that `$$name` refers to.
///
/// Errors: FailedToParse for an empty name or an invalid character.
pub(crate) fn check_name_for_reading(name: &str) -> Result<()> {
    check_name(name, |first| first.is_ascii_alphabetic(), "variable name")
}

/// Checks a name that an expression or a command's `let` binds. It starts with a lower-case letter; of the system
/// variables only CURRENT may be bound.
///
/// Errors: FailedToParse for an empty name or an invalid character.
pub fn check_name_for_binding(name: &str) -> Result<()> {
    match name {
        "CURRENT" => Ok(()),
        _ => check_name(name, |first| first.is_ascii_lowercase(), "user variable name"),
    }
}

fn check_name(name: &str, can_start: impl Fn(char) -> bool, kind: &str) -> Result<()> {
    let mut characters = name.chars();
    let Some(first) = characters.next() else {
        bail!(FailedToParse, "empty variable names are not allowed");
    };
    if first.is_ascii() && !can_start(first) {
        bail!(FailedToParse, "'{name}' starts with an invalid character for a {kind}");
    }
    match characters.find(|c| c.is_ascii() && !c.is_ascii_alphanumeric() && *c != '_') {
        Some(bad) => {
            Err(err!(FailedToParse, "'{name}' contains an invalid character for a variable name: '{bad}'"))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, check_missing, check_parse_error};

    #[test]
    fn paths_follow_documents_and_map_over_arrays() {
        check("'$a.b'", "{a: {b: 1}}", "1");
        check_missing("'$a.b'", "{a: 1}");
        check_missing("'$a.0'", "{a: {}}");
        check("'$a.0'", "{a: [1, 2]}", "[]");
        check("'$a.b'", "{a: [{b: 1}, {c: 2}, 3, [{b: 4}], {b: [5]}]}", "[1, [5]]");
        check("'$a.b.c'", "{a: [{b: [{c: 1}, {c: 2}]}, {b: {c: 3}}]}", "[[1, 2], 3]");
        check("'$a.b.c'", "{a: {b: [{c: 1}, {d: 2}]}}", "[1]");
    }

    #[test]
    fn names_of_variables_are_checked() {
        check_parse_error("'$$'", 9);
        check_parse_error("'$$_x'", 9);
        check_parse_error("'$$a-b'", 9);
        check_parse_error("'$$nobody'", 17276);
        check_parse_error("{$let: {vars: {Big: 1}, in: 1}}", 9);
        check_parse_error("{$let: {vars: {'a-b': 1}, in: 1}}", 9);
    }

    #[test]
    fn paths_are_checked() {
        check_parse_error("'$'", 16872);
        check_parse_error("'$a.'", 40353);
        check_parse_error("'$a..b'", 15998);
        check_parse_error("'$a.$b'", 16410);
        check_parse_error("{'a.b': 1}", 16412);
    }

    #[test]
    fn system_variables() {
        check("'$$ROOT.a'", "{a: 1}", "1");
        check("'$$CURRENT.a'", "{a: 1}", "1");
        check("['$$REMOVE', {a: '$$REMOVE'}]", "{}", "[null, {}]");
        check("{$let: {vars: {CURRENT: '$a'}, in: '$b'}}", "{a: {b: 5}, b: 6}", "5");
    }
}
