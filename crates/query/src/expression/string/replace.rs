//! `$replaceOne` and `$replaceAll` on plain strings.
//!
//! ```text
//! {$replaceOne: {input: <string>, find: <string>, replacement: <string>}}
//! ```

use super::super::evaluate::{Call, Computed, null};
use super::super::named::{Named, error_template, required};
use base::bson::Value;
use base::{Error, ErrorCode, Result};

macro_rules! arguments {
    ($name:ident, $operator:literal) => {
        pub(in super::super) static $name: Named = Named {
            parameters: &[
                required("input", 51749, concat!($operator, " requires 'input' to be specified")),
                required("find", 51748, concat!($operator, " requires 'find' to be specified")),
                required("replacement", 51747, concat!($operator, " requires 'replacement' to be specified")),
            ],
            no_object: error_template(
                51751,
                concat!($operator, " requires an object as an argument, found: {}"),
            ),
            unknown: error_template(51750, concat!($operator, " found an unknown argument: {}")),
        };
    };
}
arguments!(ONE, "$replaceOne");
arguments!(ALL, "$replaceAll");

/// Evaluates a string operand; `None` for null. Errors: the given code for other types.
fn text<'a>(call: &Call<'_, 'a>, position: usize, code: i32, which: &str) -> Result<Option<&'a str>> {
    match call.get_non_null(position)? {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => {
            let found = other.kind().alias();
            let message = format!("{} requires that '{which}' be a string, found: {found}", call.name());
            Err(Error::new(ErrorCode::Location(code), message))
        }
    }
}

/// Replaces at most `most` matches. Errors: 10503904, 10503901 and 10503902 for a value that is not a string.
pub(in super::super) fn replace<'a>(call: &Call<'_, 'a>, most: usize) -> Computed<'a> {
    let input = text(call, 0, 10503904, "input")?;
    let find = text(call, 1, 10503901, "find")?;
    let replacement = text(call, 2, 10503902, "replacement")?;
    let (Some(input), Some(find), Some(replacement)) = (input, find, replacement) else { return null() };
    // The result may be far larger than its parts, so its size is computed first.
    let found = input.matches(find).count().min(most);
    call.scope.check_memory(input.len().saturating_add(found.saturating_mul(replacement.len())))?;
    call.scope.text(&input.replacen(find, replacement, most))
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{check, check_error, check_parse_error};

    #[test]
    fn replacing() {
        check("{$replaceOne: {input: 'aXbX', find: 'X', replacement: '-'}}", "{}", "'a-bX'");
        check("{$replaceAll: {input: 'aXbX', find: 'X', replacement: ''}}", "{}", "'ab'");
        check("{$replaceAll: {input: '$a', find: 'X', replacement: ''}}", "{}", "null");
        check_error("{$replaceAll: {input: 1, find: 'X', replacement: ''}}", "{}", 10503904);
        check_error("{$replaceAll: {input: 'a', find: 1, replacement: ''}}", "{}", 10503901);
        check_error("{$replaceAll: {input: 'a', find: 'X', replacement: 1}}", "{}", 10503902);
        check_parse_error("{$replaceOne: 1}", 51751);
        check_parse_error("{$replaceOne: {input: 'a', find: 'X'}}", 51747);
    }
}
