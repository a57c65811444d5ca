//! `$indexOfArray`, and the bounds shared with `$indexOfBytes` and `$indexOfCP`.
//!
//! ```text
//! {$indexOfArray: [<array>, <value>, <start>, <end>]}    start and end are optional
//! ```

use super::super::arithmetic::divide::as_int32;
use super::super::evaluate::{Call, Computed, null, type_name, value};
use super::super::show;
use super::array_or_null;
use base::bson::Value;
use base::{Error, ErrorCode, Result, err};

/// Evaluates the optional third and fourth operands: start and end.
///
/// Errors: the first code for a value that is not an integer, the second for a negative value.
pub(in super::super) fn bounds(call: &Call<'_, '_>, codes: (i32, i32)) -> Result<(usize, Option<usize>)> {
    let bound = |position: usize, which: &str| -> Result<Option<usize>> {
        match call.len() > position {
            true => bound(call.name(), which, call.get(position)?, codes).map(Some),
            false => Ok(None),
        }
    };
    Ok((bound(2, "starting")?.unwrap_or(0), bound(3, "ending")?))
}

/// Reads one bound: a non-negative int32.
fn bound(name: &str, which: &str, found: Option<Value<'_>>, codes: (i32, i32)) -> Result<usize> {
    let error = |code, message| Error::new(ErrorCode::Location(code), message);
    let index = found.and_then(as_int32).ok_or_else(|| {
        // The missing space after the name matches MongoDB's message.
        let (kind, value) = (type_name(found), show::optional(found));
        error(
            codes.0,
            format!(
                "{name}requires an integral {which} index, found a value of type: {kind}, with value: {value}"
            ),
        )
    })?;
    usize::try_from(index)
        .map_err(|_| error(codes.1, format!("{name} requires a nonnegative {which} index, found: {index}")))
}

/// `$indexOfArray`: the first position of a value within the bounds, or −1.
///
/// Errors: 40090 for a value that is not an array, and the errors of [`bounds`].
pub(in super::super) fn index_of<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let array = array_or_null(call, 0, |found| {
        err!(40090, "$indexOfArray requires an array as a first argument, found: {found}")
    })?;
    let Some(array) = array else { return null() };
    let search_value = call.get(1)?;
    let (start, end) = bounds(call, (9711600, 9711601))?;
    let end = end.unwrap_or(usize::MAX);
    let position = array.iter().enumerate().take(end).skip(start).find(|(_, element)| {
        search_value.is_some_and(|search_value| call.collation().equal(*element, search_value))
    });
    value(position.map_or(-1, |(position, _)| position as i32))
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{check, check_error};

    #[test]
    fn positions() {
        check("{$indexOfArray: ['$a', 2]}", "{a: [1, 2, 3, 2]}", "1");
        check("{$indexOfArray: ['$a', 2, 2]}", "{a: [1, 2, 3, 2]}", "3");
        check("{$indexOfArray: ['$a', 2, 2, 3]}", "{a: [1, 2, 3, 2]}", "-1");
        check("{$indexOfArray: ['$a', 2, 5, 1]}", "{a: [1, 2]}", "-1");
        check("{$indexOfArray: [null, 2]}", "{}", "null");
        check_error("{$indexOfArray: ['x', 2]}", "{}", 40090);
        check_error("{$indexOfArray: [[1], 2, 'x']}", "{}", 9711600);
        check_error("{$indexOfArray: [[1], 2, -1]}", "{}", 9711601);
        check_error("{$indexOfArray: [[1]]}", "{}", 28667);
    }
}
