//! `$regexMatch $regexFind $regexFindAll`.
//!
//! ```text
//! {$regexMatch: {input: <string>, regex: <string or regex>, options: <string>}}
//! ```

use super::super::evaluate::{Call, Computed, null, value};
use super::super::named::{Named, error_template, optional, required};
use crate::regex::{Captures, Regex};
use base::bson::{Builder, Value};
use base::{Error, ErrorCode, Result, bail, err};

macro_rules! arguments {
    ($name:ident, $operator:literal) => {
        pub(in super::super) static $name: Named = Named {
            parameters: &[
                required("input", 31022, concat!($operator, " requires 'input' parameter")),
                required("regex", 31023, concat!($operator, " requires 'regex' parameter")),
                optional("options"),
            ],
            no_object: error_template(
                51103,
                concat!($operator, " expects an object of named arguments but found: {}"),
            ),
            unknown: error_template(31024, concat!($operator, " found an unknown argument: {}")),
        };
    };
}
arguments!(MATCH, "$regexMatch");
arguments!(FIND, "$regexFind");
arguments!(FIND_ALL, "$regexFindAll");

/// Size limit of all matches of one `$regexFindAll` in bytes, as computed by `approximate_size`.
const FOUND_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Evaluates the text and compiles the pattern; `None` if either is null.
///
/// Errors: 51104 to 51110 for the operands, 51111 for an invalid pattern.
fn operands<'a>(call: &Call<'_, 'a>) -> Result<Option<(&'a str, Regex)>> {
    let text = match call.get_non_null(0)? {
        None => None,
        Some(Value::String(text)) => Some(text),
        Some(_) => bail!(51104, "{} needs 'input' to be of type string", call.name()),
    };
    let regex = pattern(call)?;
    Ok(text.zip(regex))
}

/// Checks constant patterns and options while parsing.
pub(in super::super) fn check(call: &Call<'_, '_>) -> Result<bool> {
    if call.is_constant(1) && call.is_constant(2) {
        pattern(call)?;
    }
    Ok(false)
}

/// Compiles the pattern; `None` for null.
fn pattern(call: &Call<'_, '_>) -> Result<Option<Regex>> {
    let name = call.name();
    let regex = call.get_non_null(1)?;
    let given = match call.get_non_null(2)? {
        None => None,
        Some(Value::String(options)) => Some(options),
        Some(_) => bail!(51106, "{name} needs 'options' to be of type string"),
    };
    let (pattern, options) = match regex {
        None => return Ok(None),
        Some(Value::String(pattern)) => (pattern, given.unwrap_or("")),
        Some(Value::Regex { pattern, options }) => {
            if given.is_some() && !options.is_empty() {
                bail!(51107, "{name}: found regex option(s) specified in both 'regex' and 'option' fields");
            }
            (pattern.as_str(), given.unwrap_or(options.as_str()))
        }
        Some(_) => bail!(51105, "{name} needs 'regex' to be of type string or regex"),
    };
    compile(name, pattern, options).map(Some)
}

fn check_options(name: &str, options: &str) -> Result<()> {
    if options.contains('\0') {
        bail!(51110, "{name}: regular expression options cannot contain an embedded null byte");
    }
    match options.chars().find(|flag| !"imsxu".contains(*flag)) {
        Some(bad) => Err(err!(51108, "{name} invalid flag in regex options: {bad}")),
        None => Ok(()),
    }
}

/// Compiles a pattern for the operator `name`. Errors: 51109 for a NUL, 51108 for an unknown option, 51111 for an
/// invalid pattern.
pub(super) fn compile(name: &str, pattern: &str, options: &str) -> Result<Regex> {
    if pattern.contains('\0') {
        bail!(51109, "{name}: regular expression cannot contain an embedded null byte");
    }
    check_options(name, options)?;
    Regex::new(pattern, options).map_err(|error| {
        let reason = error.message().rsplit(": ").next().unwrap_or_default().to_string();
        Error::new(ErrorCode::Location(51111), format!("Invalid Regex in {name}: {reason}"))
    })
}

/// `$regexMatch`: false if the text or the pattern is null.
pub(in super::super) fn is_match<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    value(
        operands(call)?
            .map_or(Ok(false), |(text, regex)| regex.is_match(text, &*call.scope.context.interrupt))?,
    )
}

/// `$regexFind`: the first match as `{match, idx, captures}`, or null.
pub(in super::super) fn find<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let Some((text, regex)) = operands(call)? else { return null() };
    let interrupt = &*call.scope.context.interrupt;
    let Some(captures) = regex.find_at(text, 0, interrupt)? else { return null() };
    let mut builder = Builder::new();
    append(&mut builder, text, &captures, position(text, 0, captures.span.start));
    call.scope.document(builder)
}

/// `$regexFindAll`: all non-overlapping matches.
pub(in super::super) fn find_all<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let mut builder = Builder::new();
    let Some((text, regex)) = operands(call)? else { return call.scope.array(builder) };
    // Code points before `counted` bytes; an incremental count scans a long text only once.
    let (mut start, mut counted, mut index, mut bytes) = (0, 0, 0, 0);
    let interrupt = &*call.scope.context.interrupt;
    let mut searcher = regex.searcher(text);
    while let Some(captures) = searcher.find_at(start, interrupt)? {
        interrupt.check()?;
        index += position(text, counted, captures.span.start);
        counted = captures.span.start;
        builder.push_document();
        append(&mut builder, text, &captures, index);
        builder.end();
        bytes += approximate_size(&captures);
        if bytes > FOUND_BYTES_MAX {
            bail!(51151, "$regexFindAll: the size of buffer to store output exceeded the 64MB limit");
        }
        start = captures.span.end;
        if captures.span.end == captures.span.start {
            // After an empty match the search continues at the next character.
            let Some(next) = text.get(start..).and_then(|rest| rest.chars().next()) else { break };
            start += next.len_utf8();
        }
        if start >= text.len() {
            break;
        }
    }
    call.scope.array(builder)
}

/// Calls `found` for at most `most` matches that do not overlap, with the text since the match before.
///
/// Errors: errors of the search and of `found`.
pub(super) fn each_match(
    regex: &Regex,
    text: &str,
    most: usize,
    call: &Call<'_, '_>,
    mut found: impl FnMut(&str, &Captures) -> Result<()>,
) -> Result<()> {
    let interrupt = &*call.scope.context.interrupt;
    let mut searcher = regex.searcher(text);
    let (mut start, mut end) = (0, 0);
    for _ in 0..most {
        interrupt.check()?;
        let Some(captures) = searcher.find_at(start, interrupt)? else { break };
        found(text.get(end..captures.span.start).unwrap_or_default(), &captures)?;
        end = captures.span.end;
        start = end;
        if captures.span.is_empty() {
            // After an empty match the search continues at the next character.
            let Some(next) = text.get(start..).and_then(|rest| rest.chars().next()) else { break };
            start += next.len_utf8();
        }
    }
    Ok(())
}

/// Approximate size of a match in MongoDB's memory: a fixed size for each value, and the texts.
fn approximate_size(captures: &Captures) -> usize {
    const MATCH_BYTES: usize = 128;
    const VALUE_BYTES: usize = 16;
    let groups =
        captures.groups.iter().map(|group| VALUE_BYTES + group.as_ref().map_or(0, |range| range.len()));
    MATCH_BYTES + captures.span.len() + groups.sum::<usize>()
}

/// Counts the code points between two byte positions.
fn position(text: &str, from: usize, to: usize) -> usize {
    text.get(from..to).map_or(0, |between| between.chars().count())
}

/// Appends the fields of a match: `match`, `idx` in code points, and `captures` with null for unused groups.
fn append(out: &mut Builder, text: &str, captures: &Captures, index: usize) {
    let matched = text.get(captures.span.start..captures.span.end).unwrap_or_default();
    out.append(c"match", matched).append(c"idx", index as i32).begin_array(c"captures");
    for group in &captures.groups {
        match group.clone().and_then(|range| text.get(range)) {
            Some(part) => out.push(part),
            None => out.push(Value::Null),
        };
    }
    out.end();
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{check, check_error, check_parse_error};

    #[test]
    fn matches() {
        check("{$regexMatch: {input: 'Hello', regex: 'hel', options: 'i'}}", "{}", "true");
        check("{$regexMatch: {input: '$a', regex: /x/}}", "{}", "false");
        check(
            "{$regexFind: {input: 'éab-ac', regex: /a(b)|(x)/}}",
            "{}",
            "{match: 'ab', idx: 1, captures: ['b', null]}",
        );
        check("{$regexFind: {input: 'x', regex: 'y'}}", "{}", "null");
        check(
            "{$regexFindAll: {input: 'aéa', regex: 'a'}}",
            "{}",
            "[{match: 'a', idx: 0, captures: []}, {match: 'a', idx: 2, captures: []}]",
        );
        check("{$regexFindAll: {input: '$a', regex: 'a'}}", "{}", "[]");
    }

    #[test]
    fn errors() {
        check_error("{$regexMatch: {input: 1, regex: 'a'}}", "{}", 51104);
        check_error("{$regexMatch: {input: 'a', regex: []}}", "{}", 51105);
        check_error("{$regexMatch: {input: 'a', regex: 'a', options: 1}}", "{}", 51106);
        check_error("{$regexMatch: {input: 'a', regex: /a/i, options: 'i'}}", "{}", 51107);
        check_error("{$regexMatch: {input: 'a', regex: 'a', options: 'a'}}", "{}", 51108);
        check_parse_error("{$regexMatch: {input: '$a', regex: '('}}", 51111);
        check("{$regexMatch: {input: 'a', regex: null, options: 'I'}}", "{}", "false");
        check_parse_error("{$regexMatch: null}", 51103);
        check_parse_error("{$regexMatch: {regex: 'a'}}", 31022);
        check_parse_error("{$regexMatch: {input: 'a'}}", 31023);
        check_parse_error("{$regexMatch: {input: 'a', regex: 'a', x: 1}}", 31024);
    }
}
