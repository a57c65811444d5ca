//! `$indexOfArray`, and the bounds it shares with `$indexOfBytes` and `$indexOfCP`.

use super::super::arithmetic::divide::as_int32;
use super::super::evaluate::{Call, Computed, null, value};
use super::super::show;
use super::array_or_null;
use base::bson::Value;
use base::{Result, err};

/// The optional third and fourth operands: where to start and where to end.
///
/// Errors: 40096 for what is no whole number, 40097 below zero.
pub(in super::super) fn bounds(call: &Call<'_, '_>) -> Result<(usize, Option<usize>)> {
    let start = if call.len() > 2 { bound(call.name(), "starting", call.get(2)?)? } else { 0 };
    let end = if call.len() > 3 { Some(bound(call.name(), "ending", call.get(3)?)?) } else { None };
    Ok((start, end))
}

fn bound(name: &str, which: &str, found: Option<Value<'_>>) -> Result<usize> {
    let whole = found.and_then(as_int32).ok_or_else(|| {
        // No space after the name: the message is MongoDB's to the letter.
        err!(
            40096,
            "{name}requires an integral {which} index, found a value of type: {}, with value: {}",
            super::super::evaluate::type_name(found),
            show::optional(found)
        )
    })?;
    usize::try_from(whole)
        .map_err(|_| err!(40097, "{name} requires a nonnegative {which} index, found: {whole}"))
}

/// `$indexOfArray`: the first position of a value within the bounds, or −1.
///
/// Errors: 40090 for what is no array, those of [`bounds`].
pub(in super::super) fn index_of<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let array = array_or_null(call, 0, |found| {
        err!(40090, "$indexOfArray requires an array as a first argument, found: {found}")
    })?;
    let Some(array) = array else { return null() };
    let wanted = call.get(1)?;
    let (start, end) = bounds(call)?;
    let end = end.unwrap_or(usize::MAX);
    let position = array
        .iter()
        .enumerate()
        .take(end)
        .skip(start)
        .find(|(_, element)| wanted.is_some_and(|wanted| call.collation().equal(*element, wanted)));
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
        check_error("{$indexOfArray: [[1], 2, 'x']}", "{}", 40096);
        check_error("{$indexOfArray: [[1], 2, -1]}", "{}", 40097);
        check_error("{$indexOfArray: [[1]]}", "{}", 28667);
    }
}
