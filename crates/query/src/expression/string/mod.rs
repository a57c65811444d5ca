//! String operators: concatenation, case, length and comparison. Submodules hold substrings, trimming, search,
//! replacement and regular expressions.

pub(super) mod edit;
pub(super) mod regex;
pub(super) mod substring;

use super::convert::to_text;
use super::evaluate::{Call, Computed, null, type_name, value};
use super::show;
use base::bson::Value;
use base::{Result, bail, err};

/// `$concat`. Errors: 16702 for a value that is not a string.
pub(super) fn concat<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let mut text = String::new();
    for operand in call.values() {
        match operand?.filter(|value| !value.is_nullish()) {
            None => return null(),
            Some(Value::String(part) | Value::Symbol(part)) => text.push_str(part),
            Some(other) => {
                bail!(16702, "$concat only supports strings, not {}", other.kind().alias());
            }
        }
        call.scope.check_memory(text.len())?;
    }
    call.scope.text(&text)
}

/// Evaluates an operand as text, as `$toLower`, `$substr` and others do. Null is empty; numbers and dates are printed,
/// doubles with six digits.
///
/// Errors: 16007 for other types.
pub(super) fn coerced(call: &Call<'_, '_>, position: usize) -> Result<String> {
    match call.get_non_null(position)? {
        None => Ok(String::new()),
        Some(Value::String(text) | Value::Symbol(text) | Value::JavaScript(text)) => Ok(text.to_string()),
        Some(Value::Double(number)) => Ok(show::double(number)),
        Some(Value::Timestamp(time)) => Ok(show::ctime(time)),
        Some(other) => {
            let printable = !matches!(other, Value::ObjectId(_) | Value::Boolean(_));
            to_text(other)
                .filter(|_| printable)
                .ok_or_else(|| err!(16007, "can't convert from BSON type {} to String", other.kind().alias()))
        }
    }
}

/// `$toLower`: affects ASCII letters only, as in MongoDB. Errors: 16007.
pub(super) fn to_lower<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    call.scope.text(&coerced(call, 0)?.to_ascii_lowercase())
}

/// `$toUpper`: affects ASCII letters only, as in MongoDB. Errors: 16007.
pub(super) fn to_upper<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    call.scope.text(&coerced(call, 0)?.to_ascii_uppercase())
}

/// `$strcasecmp`: −1, 0 or 1, ignoring the case of ASCII letters. Errors: 16007.
pub(super) fn compare_ignoring_case<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let (a, b) = (coerced(call, 0)?.to_ascii_uppercase(), coerced(call, 1)?.to_ascii_uppercase());
    value(a.cmp(&b) as i32)
}

/// `$strLenBytes`. Errors: 34473 for a value that is not a string, including null and missing.
pub(super) fn length_bytes<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    match call.get(0)? {
        Some(Value::String(text)) => value(text.len() as i32),
        other => Err(err!(34473, "$strLenBytes requires a string argument, found: {}", type_name(other))),
    }
}

/// `$strLenCP`. Errors: 34471 for a value that is not a string, including null and missing.
pub(super) fn length_code_points<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    match call.get(0)? {
        Some(Value::String(text)) => value(text.chars().count() as i32),
        other => Err(err!(34471, "$strLenCP requires a string argument, found: {}", type_name(other))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, check_error};

    #[test]
    fn joining() {
        check("{$concat: ['a', '$b', 'c']}", "{b: 'é'}", "'aéc'");
        check("{$concat: ['a', '$b']}", "{}", "null");
        check("{$concat: []}", "{}", "''");
        check_error("{$concat: ['a', 1]}", "{}", 16702);
    }

    #[test]
    fn case_is_of_ascii_letters() {
        check("{$toUpper: '$a'}", "{a: 'aé1'}", "'Aé1'");
        check("{$toLower: null}", "{}", "''");
        check("{$toLower: 12}", "{}", "'12'");
        check("{$toUpper: ISODate('2020-01-02T03:04:05.006Z')}", "{}", "'2020-01-02T03:04:05.006Z'");
        // Doubles have six digits here and all digits in `$toString`.
        check("{$toLower: 123456.789}", "{}", "'123457'");
        check("{$toUpper: 1000000.0}", "{}", "'1E+06'");
        check("{$toUpper: Timestamp(0, 42)}", "{}", "'JAN  1 00:00:00:42'");
        check_error("{$toUpper: '$a'}", "{a: []}", 16007);
        check("{$strcasecmp: ['aB', 'Ab']}", "{}", "0");
        check("{$strcasecmp: ['a', 'b']}", "{}", "-1");
    }

    #[test]
    fn lengths() {
        check("{$strLenBytes: 'é€'}", "{}", "5");
        check("{$strLenCP: 'é€'}", "{}", "2");
        check_error("{$strLenCP: null}", "{}", 34471);
        check_error("{$strLenBytes: 1}", "{}", 34473);
    }
}
