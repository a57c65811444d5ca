//! Arrays and positions: `$slice $range $indexOfArray`.
//!
//! ```text
//! {$slice: [<array>, <count>]}    {$slice: [<array>, <position>, <count>]}
//! {$range: [<start>, <end>]}    {$range: [<start>, <end>, <step>]}
//! {$indexOfArray: [<array>, <value>, <start>, <end>]}    start and end are optional
//! ```

use super::super::arithmetic::divide::as_int32;
use super::super::evaluate::{Call, Computed, null, type_name, value};
use super::super::show;
use super::array_or_null;
use base::bson::{Builder, Value};
use base::{Error, ErrorCode, Result, bail, err};

fn error(code: i32, message: String) -> Error {
    Error::new(ErrorCode::Location(code), message)
}

/// Reads an int32; the first code is for a value that is not a number, the second for other numbers.
fn integer_argument(found: Value<'_>, codes: (i32, i32), which: &str, kind: &str) -> Result<i32> {
    if found.as_number().is_none() {
        let type_name = found.kind().alias();
        return Err(error(
            codes.0,
            format!("{which} argument to $slice must be {kind}, but is of type: {type_name}"),
        ));
    }
    as_int32(found).ok_or_else(|| {
        let found = show::value(found);
        error(
            codes.1,
            format!("{which} argument to $slice can't be represented as a 32-bit integer: {found}"),
        )
    })
}

/// Evaluates `$slice`. Errors: 28724 for a value that is not an array, 28725 to 28729 for position and count.
pub(in super::super) fn slice<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let (Some(array), Some(second)) = (call.get_non_null(0)?, call.get_non_null(1)?) else { return null() };
    let Value::Array(array) = array else {
        bail!(28724, "First argument to $slice must be an array, but is of type: {}", array.kind());
    };
    let second = integer_argument(second, (28725, 28726), "Second", "a numeric value")?;
    let length = array.len();
    let from_end = |count: i32| length.saturating_sub(count.unsigned_abs() as usize);
    let (start, count) = if call.len() < 3 {
        match usize::try_from(second) {
            Ok(count) => (0, count),
            Err(_) => (from_end(second), usize::MAX),
        }
    } else {
        let Some(third) = call.get_non_null(2)? else { return null() };
        let count = integer_argument(third, (28727, 28728), "Third", "numeric")?;
        if count <= 0 {
            bail!(28729, "Third argument to $slice must be positive: {count}");
        }
        (usize::try_from(second).unwrap_or_else(|_| from_end(second)), count as usize)
    };
    let mut builder = Builder::new();
    array.iter().skip(start).take(count).for_each(|element| {
        builder.push(element);
    });
    call.scope.array(builder)
}

/// Error codes and messages of one argument.
struct ArgumentErrors {
    codes: (i32, i32),
    numeric: &'static str,
    integral: &'static str,
}

const START: ArgumentErrors = ArgumentErrors {
    codes: (34443, 34444),
    numeric: "a numeric starting value, found value of type: ",
    integral: "a starting value that can be represented as a 32-bit integer, found value: ",
};
const END: ArgumentErrors = ArgumentErrors {
    codes: (34445, 34446),
    numeric: "a numeric ending value, found value of type: ",
    integral: "an ending value that can be represented as a 32-bit integer, found value: ",
};
const STEP: ArgumentErrors = ArgumentErrors {
    codes: (34447, 34448),
    numeric: "a numeric step value, found value of type:",
    integral: "a step value that can be represented as a 32-bit integer, found value: ",
};

/// Minimum size of an element in bytes: its type, its name, its value.
const BYTES_PER_ELEMENT: usize = 7;

/// Evaluates an argument that must be an int32 in value.
fn argument(call: &Call<'_, '_>, position: usize, errors: &ArgumentErrors) -> Result<i64> {
    let found = call.get(position)?;
    let error = |code, message: &str, detail: &str| {
        Error::new(ErrorCode::Location(code), format!("$range requires {message}{detail}"))
    };
    if found.and_then(|value| value.as_number()).is_none() {
        return Err(error(errors.codes.0, errors.numeric, type_name(found)));
    }
    found
        .and_then(as_int32)
        .map(i64::from)
        .ok_or_else(|| error(errors.codes.1, errors.integral, &show::optional(found)))
}

/// Evaluates `$range`. Errors: 34443 to 34449 for the arguments, 146 for an array beyond 100 MB.
pub(in super::super) fn range<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let (start, end) = (argument(call, 0, &START)?, argument(call, 1, &END)?);
    let step = if call.len() > 2 { argument(call, 2, &STEP)? } else { 1 };
    if step == 0 {
        bail!(34449, "$range requires a non-zero step value");
    }
    let mut builder = Builder::new();
    let mut current = start;
    while (step > 0 && current < end) || (step < 0 && current > end) {
        builder.push(current as i32);
        call.scope.check_memory(builder.len())?;
        if builder.len() & 0x3FFF < BYTES_PER_ELEMENT {
            call.scope.context.interrupt.check()?;
        }
        current += step;
    }
    call.scope.array(builder)
}

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
    fn slices() {
        let root = "{a: [1, 2, 3, 4]}";
        check("{$slice: ['$a', 2]}", root, "[1, 2]");
        check("{$slice: ['$a', -2]}", root, "[3, 4]");
        check("{$slice: ['$a', 1, 2]}", root, "[2, 3]");
        check("{$slice: ['$a', -3, 2]}", root, "[2, 3]");
        check("{$slice: ['$a', -9, 2]}", root, "[1, 2]");
        check("{$slice: ['$a', 9, 2]}", root, "[]");
        check("{$slice: ['$a', 0]}", root, "[]");
        check("{$slice: [null, 0]}", root, "null");
        check_error("{$slice: ['$a', 1, 0]}", root, 28729);
        check_error("{$slice: ['$a', 'x']}", root, 28725);
        check_error("{$slice: ['$a', 1.5]}", root, 28726);
        check_error("{$slice: [1, 1]}", root, 28724);
    }

    #[test]
    fn ranges() {
        check("{$range: [0, 3]}", "{}", "[0, 1, 2]");
        check("{$range: [0, 5, 2]}", "{}", "[0, 2, 4]");
        check("{$range: [3, 0, -2]}", "{}", "[3, 1]");
        check("{$range: [3, 0]}", "{}", "[]");
        check_error("{$range: [0]}", "{}", 28667);
        check_error("{$range: ['a', 1]}", "{}", 34443);
        check_error("{$range: [1.5, 2]}", "{}", 34444);
        check_error("{$range: [1, 2, 0]}", "{}", 34449);
        check_error("{$range: [0, 2147483647]}", "{}", 146);
    }

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
