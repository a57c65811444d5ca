//! Strings that are split, trimmed or replaced in part.
//!
//! ```text
//! {$split: [<string>, <delimiter>]}
//! {$trim: {input: <string>, chars: <string>}}         also $ltrim $rtrim
//! {$replaceOne: {input: <string>, find: <string or regex>, replacement: <string>}}        also $replaceAll
//! ```
//!
//! `find` may be a regular expression since MongoDB 8.3.

use super::super::evaluate::{Call, Computed, null};
use super::super::named::{Named, error_template, optional, required};
use super::super::show;
use super::regex;
use base::bson::{Builder, Value};
use base::{CompatibleWith, Error, ErrorCode, Result, bail};

/// Evaluates `$split`. The separator may be a regular expression since MongoDB 8.3.
///
/// Errors: 40085, 40086 and 10503900 for a value of another type, 40087 for an empty separator.
pub(in super::super) fn split<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let (Some(text), Some(separator)) = (call.get_non_null(0)?, call.get_non_null(1)?) else { return null() };
    let Value::String(text) = text else {
        let found = text.kind().alias();
        bail!(
            40085,
            "$split requires an expression that evaluates to a string as a first argument, found: {found}"
        );
    };
    let is_newer = call.scope.context.compatible_with >= CompatibleWith::V9_0;
    if let (true, Value::Regex { pattern, options }) = (is_newer, separator) {
        let regex = regex::compile(call.name(), pattern.as_str(), options.as_str())?;
        let mut builder = Builder::new();
        let mut end = 0;
        regex::each_match(&regex, text, usize::MAX, call, |before, captures| {
            builder.push(before);
            for group in &captures.groups {
                // A group without a match is an empty string, as in MongoDB.
                builder.push(group.clone().and_then(|range| text.get(range)).unwrap_or_default());
            }
            end = captures.span.end;
            call.scope.check_memory(builder.len())
        })?;
        builder.push(text.get(end..).unwrap_or_default());
        return call.scope.array(builder);
    }
    let Value::String(separator) = separator else {
        if is_newer {
            bail!(
                40086,
                "$split requires an expression that evaluates to a string or regular expression as a second \
                 argument, found: {}",
                separator.kind().alias()
            );
        }
        let found = separator.kind().alias();
        bail!(
            10503900,
            "$split requires an expression that evaluates to a string as a second argument, found: {found}"
        );
    };
    if separator.is_empty() {
        bail!(40087, "$split requires a non-empty separator");
    }
    let mut builder = Builder::new();
    text.split(separator).for_each(|part| {
        builder.push(part);
    });
    call.scope.array(builder)
}

macro_rules! arguments {
    ($name:ident, $operator:literal) => {
        pub(in super::super) static $name: Named = Named {
            parameters: &[
                required("input", 50695, concat!($operator, " requires an 'input' field")),
                optional("chars"),
            ],
            no_object: error_template(
                50696,
                concat!($operator, " only supports an object as an argument, found {}"),
            ),
            unknown: error_template(50694, concat!($operator, " found an unknown argument: {}")),
        };
    };
}
arguments!(TRIM, "$trim");
arguments!(LEFT, "$ltrim");
arguments!(RIGHT, "$rtrim");

/// Whether a character is trimmed by default: MongoDB's list of white space and NUL.
fn is_blank(c: char) -> bool {
    matches!(c, '\0' | '\t'..='\r' | ' ' | '\u{A0}' | '\u{1680}' | '\u{2000}'..='\u{200A}')
}

/// Evaluates the operators. Errors: 50699 for the input, 50700 for the characters.
pub(in super::super) fn trim<'a>(call: &Call<'_, 'a>, left: bool, right: bool) -> Computed<'a> {
    let Some(input) = call.get_non_null(0)? else { return null() };
    let Value::String(text) = input else {
        let (found, kind) = (show::value(input), input.kind().alias());
        let name = call.name();
        bail!(50699, "{name} requires its input to be a string, got {found} (of type {kind}) instead.");
    };
    let chars = match (call.has_argument(1), call.get_non_null(1)?) {
        (false, _) => None,
        (true, None) => return null(),
        (true, Some(Value::String(chars))) => Some(chars),
        (true, Some(other)) => {
            let (found, kind) = (show::value(other), other.kind().alias());
            let name = call.name();
            bail!(50700, "{name} requires 'chars' to be a string, got {found} (of type {kind}) instead.");
        }
    };
    let unwanted = |c: char| chars.map_or_else(|| is_blank(c), |chars| chars.contains(c));
    let mut text = text;
    if left {
        text = text.trim_start_matches(unwanted);
    }
    if right {
        text = text.trim_end_matches(unwanted);
    }
    Ok(Some(Value::String(text)))
}

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
arguments!(REPLACE_ONE, "$replaceOne");
arguments!(REPLACE_ALL, "$replaceAll");

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
    fn splitting() {
        check("{$split: ['a-b--c', '-']}", "{}", "['a', 'b', '', 'c']");
        check("{$split: ['abc', '-']}", "{}", "['abc']");
        check("{$split: ['$a', '-']}", "{}", "null");
        check_error("{$split: [1, '-']}", "{}", 40085);
        check_error("{$split: ['a', 1]}", "{}", 10503900);
        check_error("{$split: ['a', '']}", "{}", 40087);
        check_error("{$split: ['a', /a/]}", "{}", 10503900);
        check_newer("{$split: ['a1b22c', /[0-9]+/]}", "{}", "['a', 'b', 'c']");
        check_newer("{$split: ['a1b', /([0-9])|(x)/]}", "{}", "['a', '1', '', 'b']");
        check_newer("{$split: ['éa', /x*/]}", "{}", "['', 'é', 'a', '']");
        check_newer("{$split: ['', /x/]}", "{}", "['']");
    }

    #[test]
    fn trimming() {
        check("{$trim: {input: '  a b '}}", "{}", "'a b'");
        check("{$ltrim: {input: '  a '}}", "{}", "'a '");
        check("{$rtrim: {input: '  a '}}", "{}", "'  a'");
        check("{$trim: {input: 'xyaxy', chars: 'yx'}}", "{}", "'a'");
        check("{$trim: {input: '$a'}}", "{}", "null");
        check("{$trim: {input: ' a', chars: null}}", "{}", "null");
        check_error("{$trim: {input: 4}}", "{}", 50699);
        check_error("{$trim: {input: 'a', chars: 4}}", "{}", 50700);
        check_parse_error("{$trim: ' x '}", 50696);
        check_parse_error("{$trim: {chars: 'x'}}", 50695);
        check_parse_error("{$trim: {input: 'x', y: 1}}", 50694);
    }

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
