//! `$indexOfBytes` and `$indexOfCP`.

use super::super::array::index_of::bounds;
use super::super::evaluate::{Call, Computed, null, type_name, value};
use base::bson::Value;
use base::{Error, ErrorCode, Result};

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
pub(in super::super) fn bytes<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
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
pub(in super::super) fn code_points<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
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
