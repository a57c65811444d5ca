//! `$slice`: part of an array by count, or by position and count.
//!
//! ```text
//! {$slice: [<array>, <count>]}    {$slice: [<array>, <position>, <count>]}
//! ```

use super::super::arithmetic::divide::as_int32;
use super::super::evaluate::{Call, Computed, null};
use super::super::show;
use base::bson::{Builder, Value};
use base::{Error, ErrorCode, Result, bail};

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
        let found = array.kind().alias();
        bail!(28724, "First argument to $slice must be an array, but is of type: {found}");
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
}
