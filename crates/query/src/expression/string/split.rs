//! `$split`.

use super::super::evaluate::{Call, Computed, null};
use base::bail;
use base::bson::{Builder, Value};

/// Evaluates `$split`. Errors: 40085 and 10503900 for a value that is not a string, 40087 for an empty separator.
pub(in super::super) fn split<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let (Some(text), Some(separator)) = (call.get_non_null(0)?, call.get_non_null(1)?) else { return null() };
    let Value::String(text) = text else {
        let found = text.kind().alias();
        bail!(
            40085,
            "$split requires an expression that evaluates to a string as a first argument, found: {found}"
        );
    };
    let Value::String(separator) = separator else {
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
    use super::super::super::testing::{check, check_error};

    #[test]
    fn splitting() {
        check("{$split: ['a-b--c', '-']}", "{}", "['a', 'b', '', 'c']");
        check("{$split: ['abc', '-']}", "{}", "['abc']");
        check("{$split: ['$a', '-']}", "{}", "null");
        check_error("{$split: [1, '-']}", "{}", 40085);
        check_error("{$split: ['a', 1]}", "{}", 10503900);
        check_error("{$split: ['a', '']}", "{}", 40087);
    }
}
