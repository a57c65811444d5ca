//! `$trim $ltrim $rtrim`.
//!
//! ```text
//! {$trim: {input: <string>, chars: <string>}}
//! ```

use super::super::evaluate::{Call, Computed, null};
use super::super::named::{Named, error_template, optional, required};
use super::super::show;
use base::bail;
use base::bson::Value;

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

#[cfg(test)]
mod tests {
    use super::super::super::testing::{check, check_error, check_parse_error};

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
}
