//! `$replaceOne` and `$replaceAll`. `find` may be a regular expression since MongoDB 8.3.
//!
//! ```text
//! {$replaceOne: {input: <string>, find: <string or regex>, replacement: <string>}}
//! ```

use super::super::evaluate::{Call, Computed, null};
use super::super::named::{Named, error_template, required};
use super::super::show;
use super::regex;
use base::bson::Value;
use base::{CompatibleWith, Error, ErrorCode, Result, bail};

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

/// Replaces at most `most` matches. Errors: 10503901 to 10503904 for a value of another type.
pub(in super::super) fn replace<'a>(call: &Call<'_, 'a>, most: usize) -> Computed<'a> {
    let input = text(call, 0, 10503904, "input")?;
    if call.scope.context.compatible_with >= CompatibleWith::V9_0 {
        match call.get_non_null(1)? {
            None | Some(Value::String(_)) => {}
            Some(Value::Regex { pattern, options }) => {
                let regex = regex::compile(call.name(), pattern.as_str(), options.as_str())?;
                let Some((input, replacement)) = input.zip(text(call, 2, 10503902, "replacement")?) else {
                    return null();
                };
                let (mut result, mut end) = (String::new(), 0);
                regex::each_match(&regex, input, most, call, |before, captures| {
                    result.push_str(before);
                    result.push_str(replacement);
                    end = captures.span.end;
                    call.scope.check_memory(result.len())
                })?;
                result.push_str(input.get(end..).unwrap_or_default());
                return call.scope.text(&result);
            }
            Some(other) => bail!(
                10503903,
                "{} requires that 'find' be a string or regular expression, found: {}",
                call.name(),
                show::value(other)
            ),
        }
    }
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
    use super::super::super::testing::{check, check_error, check_newer, check_parse_error};

    #[test]
    fn replacing() {
        check("{$replaceOne: {input: 'aXbX', find: 'X', replacement: '-'}}", "{}", "'a-bX'");
        check("{$replaceAll: {input: 'aXbX', find: 'X', replacement: ''}}", "{}", "'ab'");
        check("{$replaceAll: {input: '$a', find: 'X', replacement: ''}}", "{}", "null");
        check_error("{$replaceAll: {input: 1, find: 'X', replacement: ''}}", "{}", 10503904);
        check_error("{$replaceAll: {input: 'a', find: 1, replacement: ''}}", "{}", 10503901);
        check_error("{$replaceAll: {input: 'a', find: 'X', replacement: 1}}", "{}", 10503902);
        check_error("{$replaceAll: {input: 'a', find: /X/, replacement: ''}}", "{}", 10503901);
        check_newer("{$replaceAll: {input: 'aXbx', find: /x/i, replacement: '-'}}", "{}", "'a-b-'");
        check_newer("{$replaceOne: {input: 'aXbX', find: /x/i, replacement: '-'}}", "{}", "'a-bX'");
        check_newer("{$replaceAll: {input: 'ab', find: /x*/, replacement: '-'}}", "{}", "'-a-b-'");
        check_newer("{$replaceAll: {input: '$a', find: /x/, replacement: '-'}}", "{}", "null");
        check_parse_error("{$replaceOne: 1}", 51751);
        check_parse_error("{$replaceOne: {input: 'a', find: 'X'}}", 51747);
    }
}
