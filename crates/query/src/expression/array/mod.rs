//! Array operators: access, concatenation and tests. Submodules hold iteration, sorting, selection and conversion.

pub(super) mod iterate;
pub(super) mod order;
pub(super) mod position;
pub(super) mod reduce;
pub(super) mod to_object;
pub(super) mod zip;

use super::arithmetic::divide::as_int32;
use super::evaluate::{Call, Computed, null, type_name, value};
use super::show;
use base::bson::{Array, Builder, Value};
use base::{Error, Result, bail, err};

/// Pushes the raw elements of an array with new positions, within the memory limit.
///
/// Errors: 146 for a result that is too large; interruption.
fn push_all<'a>(
    call: &Call<'_, 'a>,
    elements: impl Iterator<Item = Value<'a>>,
    out: &mut Builder,
) -> Result<()> {
    for value in elements {
        out.push(value);
        call.scope.context.steps(1)?;
        call.scope.check_memory(out.len())?;
    }
    Ok(())
}

/// `$arrayElemAt`: negative positions count from the end; missing if out of range.
///
/// Errors: 28689 for a value that is not an array, 28690 and 28691 for the position.
pub(super) fn element_at<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let (Some(array), Some(position)) = (call.get_non_null(0)?, call.get_non_null(1)?) else { return null() };
    let Value::Array(array) = array else {
        bail!(28689, "$arrayElemAt's first argument must be an array, but is {}", array.kind());
    };
    if position.as_number().is_none() {
        bail!(28690, "$arrayElemAt's second argument must be a numeric value, but is {}", position.kind());
    }
    let position = as_int32(position).ok_or_else(|| {
        let found = show::value(position);
        err!(28691, "$arrayElemAt's second argument must be representable as a 32-bit integer: {found}")
    })?;
    Ok(at(array, position))
}

fn at(array: Array<'_>, position: i32) -> Option<Value<'_>> {
    let from_front = if position >= 0 {
        position as usize
    } else {
        array.len().checked_sub(position.unsigned_abs() as usize)?
    };
    array.get(from_front)
}

/// Returns an element at the end of an array for `$first` and `$last`; null for null.
pub(super) fn end<'a>(call: &Call<'_, 'a>, position: i32) -> Computed<'a> {
    match call.get_non_null(0)? {
        None => null(),
        Some(Value::Array(array)) => Ok(at(array, position)),
        Some(other) => {
            let found = other.kind().alias();
            Err(err!(28689, "{}'s argument must be an array, but is {found}", call.name()))
        }
    }
}

/// `$concatArrays`. Errors: 28664 for other types.
pub(super) fn concat<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let mut builder = Builder::new();
    for operand in call.values() {
        match operand?.filter(|value| !value.is_nullish()) {
            None => return null(),
            Some(Value::Array(array)) => push_all(call, array.iter(), &mut builder)?,
            Some(other) => {
                bail!(28664, "$concatArrays only supports arrays, not {}", other.kind().alias());
            }
        }
    }
    call.scope.array(builder)
}

/// `$in`: whether an array contains a value. Errors: 40081 for a value that is not an array.
pub(super) fn contains<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let (search_value, array) = (call.get(0)?, call.get(1)?);
    let Some(Value::Array(array)) = array else {
        let found = type_name(array);
        bail!(40081, "$in requires an array as a second argument, found: {found}");
    };
    let Some(search_value) = search_value else { return value(false) };
    if let Some(found) = call.has_member(search_value) {
        return value(found);
    }
    for element in array.iter() {
        call.scope.context.steps(1)?;
        if call.collation().equal(element, search_value) {
            return value(true);
        }
    }
    value(false)
}

/// `$isArray`.
pub(super) fn is_array<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    value(matches!(call.get(0)?, Some(Value::Array(_))))
}

/// `$size`. Errors: 17124 for a value that is not an array, including null and missing.
pub(super) fn size<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    match call.get(0)? {
        Some(Value::Array(array)) => {
            let mut elements = 0;
            for _ in array.iter() {
                call.scope.context.steps(1)?;
                elements += 1;
            }
            value(elements)
        }
        other => {
            Err(err!(17124, "The argument to $size must be an array, but was of type: {}", type_name(other)))
        }
    }
}

/// `$reverseArray`. Errors: 34435 for other types.
pub(super) fn reverse<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let array = match call.get_non_null(0)? {
        None => return null(),
        Some(Value::Array(array)) => array,
        Some(other) => {
            bail!(34435, "The argument to $reverseArray must be an array, but was of type: {}", other.kind());
        }
    };
    let mut elements = Vec::new();
    for element in array.iter() {
        call.scope.context.steps(1)?;
        elements.push(element);
    }
    let mut builder = Builder::new();
    push_all(call, elements.into_iter().rev(), &mut builder)?;
    call.scope.array(builder)
}

/// Returns an operand that must be an array or null; `error_template` builds the error for another type's name.
pub(super) fn array_or_null<'a>(
    call: &Call<'_, 'a>,
    position: usize,
    error_template: impl FnOnce(&str) -> Error,
) -> Result<Option<Array<'a>>> {
    match call.get_non_null(position)? {
        None => Ok(None),
        Some(Value::Array(array)) => Ok(Some(array)),
        Some(other) => Err(error_template(other.kind().alias())),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, check_error, check_missing};

    #[test]
    fn elements_by_position() {
        check("{$arrayElemAt: ['$a', 1]}", "{a: [1, 2, 3]}", "2");
        check("{$arrayElemAt: ['$a', -1.0]}", "{a: [1, 2, 3]}", "3");
        check_missing("{$arrayElemAt: ['$a', 3]}", "{a: [1, 2, 3]}");
        check_missing("{$arrayElemAt: ['$a', -4]}", "{a: [1, 2, 3]}");
        check("{$arrayElemAt: [null, 1]}", "{}", "null");
        check_error("{$arrayElemAt: [1, 1]}", "{}", 28689);
        check_error("{$arrayElemAt: [[1], 'x']}", "{}", 28690);
        check_error("{$arrayElemAt: [[1], 1.5]}", "{}", 28691);
        check("{$first: '$a'}", "{a: [1, 2, 3]}", "1");
        check("{$last: '$a'}", "{a: [1, 2, 3]}", "3");
        check_missing("{$last: '$a'}", "{a: []}");
        check_error("{$first: 'x'}", "{}", 28689);
    }

    #[test]
    fn joining_and_looking() {
        check("{$concatArrays: [[1], '$a', []]}", "{a: [2, [3]]}", "[1, 2, [3]]");
        check("{$concatArrays: [[1], '$a']}", "{}", "null");
        check("{$concatArrays: []}", "{}", "[]");
        check_error("{$concatArrays: [[1], 2]}", "{}", 28664);
        check("{$in: [2.0, '$a']}", "{a: [1, 2]}", "true");
        check("{$in: ['$x', '$a']}", "{a: [null]}", "false");
        check_error("{$in: [2, '$a']}", "{}", 40081);
        check("{$isArray: ['$a']}", "{a: []}", "true");
        check("{$isArray: 'x'}", "{}", "false");
        check("{$size: '$a'}", "{a: [1, 2]}", "2");
        check_error("{$size: '$a'}", "{}", 17124);
        check("{$reverseArray: '$a'}", "{a: [1, 2, 3]}", "[3, 2, 1]");
        check("{$reverseArray: null}", "{}", "null");
        check_error("{$reverseArray: 1}", "{}", 34435);
    }
}
