//! `$range`: the integers from a start to an end.
//!
//! ```text
//! {$range: [<start>, <end>]}    {$range: [<start>, <end>, <step>]}
//! ```

use super::super::arithmetic::divide::as_int32;
use super::super::evaluate::{Call, Computed, type_name};
use super::super::show;
use base::bson::Builder;
use base::{Error, ErrorCode, Result, bail};

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

#[cfg(test)]
mod tests {
    use super::super::super::testing::{check, check_error};

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
}
