//! Parts of a string by position, in bytes or in code points, and the position of a part.
//!
//! ```text
//! {$substrBytes: [<string>, <start>, <length>]}               also $substr and $substrCP
//! {$indexOfBytes: [<string>, <part>, <start>, <end>]}         also $indexOfCP; start and end are optional
//! ```

use super::super::arithmetic::divide::as_int32;
use super::super::array::position::bounds;
use super::super::evaluate::{Call, Computed, null, type_name, value};
use super::super::show;
use super::coerced;
use base::bson::{Number, Value};
use base::{Error, ErrorCode, Result, bail, err};

/// `$substrBytes`: a negative length means up to the end; a range beyond the end is empty.
///
/// Errors: 16034 and 16035 for a value that is not a number, 50752 for a negative start, 28656 and 28657 for a range
/// that splits a character.
pub(in super::super) fn bytes<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let name = call.name();
    let text = coerced(call, 0)?;
    let (start, length) = (call.get(1)?, call.get(2)?);
    let start = integer(start).ok_or_else(|| {
        err!(16034, "{name}:  starting index must be a numeric type (is BSON type {})", type_name(start))
    })?;
    let length = integer(length).ok_or_else(|| {
        err!(16035, "{name}:  length must be a numeric type (is BSON type {})", type_name(length))
    })?;
    let Ok(start) = usize::try_from(start) else {
        bail!(50752, "{name}:  starting index must be non-negative (got: {start})");
    };
    if start >= text.len() {
        return call.scope.text("");
    }
    let end =
        usize::try_from(length).map_or(text.len(), |length| start.saturating_add(length).min(text.len()));
    if !text.is_char_boundary(start) {
        bail!(28656, "{name}:  Invalid range, starting index is a UTF-8 continuation byte.");
    }
    let cut = text.get(start..end).ok_or_else(|| {
        err!(28657, "{name}:  Invalid range, ending index is in the middle of a UTF-8 character.")
    })?;
    call.scope.text(cut)
}

/// Converts a position or length: doubles are truncated, decimals are rounded, and a decimal NaN is negative.
fn integer(value: Option<Value<'_>>) -> Option<i64> {
    Some(match value?.as_number()? {
        Number::Decimal128(number) if number.is_nan() => -1,
        number => number.to_i64_coerced(),
    })
}

/// `$substrCP`: positions in code points.
///
/// Errors: 34450 to 34455 for start and length.
pub(in super::super) fn code_points<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let text = coerced(call, 0)?;
    let start = count(call, 1, (34450, 34451), "starting index")?;
    let length = count(call, 2, (34452, 34453), "length")?;
    let length = usize::try_from(length)
        .map_err(|_| err!(34454, "$substrCP: length must be a nonnegative integer."))?;
    let start = usize::try_from(start)
        .map_err(|_| err!(34455, "$substrCP: the starting index must be a nonnegative integer."))?;
    let cut: String = text.chars().skip(start).take(length).collect();
    call.scope.text(&cut)
}

/// Evaluates an int32 argument. The first code is for a value that is not a number, the second for other numbers.
fn count(call: &Call<'_, '_>, position: usize, codes: (i32, i32), which: &str) -> Result<i32> {
    let found = call.get(position)?;
    let error = |code, message| Error::new(ErrorCode::Location(code), message);
    if found.and_then(|value| value.as_number()).is_none() {
        let kind = type_name(found);
        let message = format!("$substrCP: {which} must be a numeric type (is BSON type {kind})");
        return Err(error(codes.0, message));
    }
    found.and_then(as_int32).ok_or_else(|| {
        let found = show::optional(found);
        error(
            codes.1,
            format!("$substrCP: {which} cannot be represented as a 32-bit integral value: {found}"),
        )
    })
}

/// Evaluates the text (`None` for null) and the searched text.
fn operands<'a>(call: &Call<'_, 'a>, codes: (i32, i32)) -> Result<Option<(&'a str, &'a str)>> {
    let error = |code, which: &str, found| {
        let message = format!("{} requires a string as the {which} argument, found: {found}", call.name());
        Error::new(ErrorCode::Location(code), message)
    };
    let text = match call.get_non_null(0)? {
        None => return Ok(None),
        Some(Value::String(text)) => text,
        Some(other) => return Err(error(codes.0, "first", other.kind().alias())),
    };
    match call.get(1)? {
        Some(Value::String(substring)) => Ok(Some((text, substring))),
        other => Err(error(codes.1, "second", type_name(other))),
    }
}

/// `$indexOfBytes`: the byte position, or −1.
///
/// Errors: 40091 and 40092 for a value that is not a string, errors of the bounds.
pub(in super::super) fn index_of_bytes<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let Some((text, substring)) = operands(call, (40091, 40092))? else { return null() };
    let (start, end) = bounds(call, (40096, 40097))?;
    let end = end.unwrap_or(text.len()).min(text.len());
    if start > end {
        return value(-1);
    }
    // A match cannot start or end within a character, so the bounds can move to character boundaries.
    let first = (start..=end).find(|at| text.is_char_boundary(*at)).unwrap_or(end);
    let last = (start..=end).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(start);
    let found = text.get(first..last).and_then(|part| part.find(substring));
    value(found.map_or(-1, |position| (first + position) as i32))
}

/// `$indexOfCP`: the position in code points, or −1.
///
/// Errors: 40093 and 40094 for a value that is not a string, errors of the bounds.
pub(in super::super) fn index_of_code_points<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let Some((text, substring)) = operands(call, (40093, 40094))? else { return null() };
    let (start, end) = bounds(call, (40096, 40097))?;
    let length = text.chars().count();
    let end = end.unwrap_or(length).min(length);
    if text.is_empty() && substring.is_empty() && start == 0 {
        return value(0);
    }
    // As in MongoDB, the end limits the start of a match, not its end.
    let first = text.char_indices().nth(start).map(|(byte, _)| byte);
    let found = first.and_then(|first| {
        let rest = text.get(first..)?;
        let before = rest.get(..rest.find(substring)?)?;
        Some(start + before.chars().count()).filter(|position| *position < end)
    });
    value(found.map_or(-1, |position| position as i32))
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{check, check_error};

    #[test]
    fn by_bytes() {
        check("{$substrBytes: ['hello', 1, 3]}", "{}", "'ell'");
        check("{$substr: ['hello', 2, -1]}", "{}", "'llo'");
        check("{$substr: ['hello', NumberDecimal('1.5'), 3]}", "{}", "'llo'");
        check("{$substr: ['hello', 1.5, 3]}", "{}", "'ell'");
        check("{$substr: ['hello', 9, 1]}", "{}", "''");
        check("{$substr: [1234, 1, 2]}", "{}", "'23'");
        check("{$substr: [null, 0, 2]}", "{}", "''");
        check_error("{$substrBytes: ['é', 1, 1]}", "{}", 28656);
        check_error("{$substrBytes: ['é', 0, 1]}", "{}", 28657);
        check_error("{$substrBytes: ['a', -1, 1]}", "{}", 50752);
        check_error("{$substrBytes: ['a', 'b', 1]}", "{}", 16034);
        check_error("{$substrBytes: ['a', 0, 'b']}", "{}", 16035);
    }

    #[test]
    fn by_code_points() {
        check("{$substrCP: ['héllo', 1, 3]}", "{}", "'éll'");
        check("{$substrCP: ['héllo', 4, 9]}", "{}", "'o'");
        check_error("{$substrCP: ['a', 0, -1]}", "{}", 34454);
        check_error("{$substrCP: ['a', -1, 1]}", "{}", 34455);
        check_error("{$substrCP: ['a', 'b', 1]}", "{}", 34450);
        check_error("{$substrCP: ['a', 0, 1.5]}", "{}", 34453);
    }

    #[test]
    fn positions() {
        check("{$indexOfBytes: ['héllo', 'l']}", "{}", "3");
        check("{$indexOfCP: ['héllo', 'l']}", "{}", "2");
        check("{$indexOfCP: ['héllo', 'l', 3]}", "{}", "3");
        check("{$indexOfCP: ['héllo', 'l', 4]}", "{}", "-1");
        check("{$indexOfCP: ['hello', 'llo', 0, 4]}", "{}", "2");
        check("{$indexOfCP: ['hello', '', 4]}", "{}", "4");
        check("{$indexOfCP: ['hello', '', 5]}", "{}", "-1");
        check("{$indexOfBytes: ['foo.bar', '.', 4]}", "{}", "-1");
        check("{$indexOfBytes: ['vanilla', 'll', 0, 2]}", "{}", "-1");
        check("{$indexOfBytes: ['vanilla', 'll', 12]}", "{}", "-1");
        check("{$indexOfBytes: ['vanilla', 'll', 5, 2]}", "{}", "-1");
        check("{$indexOfBytes: ['éx', 'x', 1]}", "{}", "2");
        check("{$indexOfBytes: ['xé', 'é', 0, 2]}", "{}", "-1");
        check("{$indexOfBytes: [null, 'x']}", "{}", "null");
        check_error("{$indexOfBytes: [1, 'x']}", "{}", 40091);
        check_error("{$indexOfBytes: ['x', 1]}", "{}", 40092);
        check_error("{$indexOfCP: [1, 'x']}", "{}", 40093);
        check_error("{$indexOfCP: ['x', 1]}", "{}", 40094);
        check_error("{$indexOfCP: ['x', 'y', -1]}", "{}", 40097);
    }
}
