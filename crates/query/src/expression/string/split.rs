//! `$split`.

use super::super::evaluate::{Call, Computed, null};
use super::regex;
use base::bson::{Builder, Value};
use base::{CompatibleWith, bail};

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

#[cfg(test)]
mod tests {
    use super::super::super::testing::{check, check_error, check_newer};

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
}
