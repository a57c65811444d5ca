//! `$bitAnd $bitOr $bitXor $bitNot` over int32 and int64.

use super::evaluate::{Call, Computed, null, value};
use base::bson::Value;
use base::{bail, err};

/// Combines the operands; the result is an int64 if any operand is one.
///
/// Errors: 14 for other types.
pub(super) fn combine<'a>(call: &Call<'_, 'a>, start: i64, operation: fn(i64, i64) -> i64) -> Computed<'a> {
    let (mut bits, mut wide) = (start, false);
    let mut nullish = false;
    for operand in call.values() {
        bits = match operand? {
            Some(Value::Int32(operand)) => operation(bits, i64::from(operand)),
            Some(Value::Int64(operand)) => {
                wide = true;
                operation(bits, operand)
            }
            None | Some(Value::Null | Value::Undefined) => {
                nullish = true;
                bits
            }
            Some(_) => {
                bail!(TypeMismatch, "{} only supports int and long operands.", call.name());
            }
        };
    }
    match (nullish, wide) {
        (true, _) => null(),
        (false, true) => value(bits),
        // Sign extension keeps int32 operands within int32.
        (false, false) => value(bits as i32),
    }
}

/// `$bitNot`. Errors: 14 for other types.
pub(super) fn not<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    match call.get_non_null(0)? {
        None => null(),
        Some(Value::Int32(operand)) => value(!operand),
        Some(Value::Int64(operand)) => value(!operand),
        Some(other) => {
            let found = other.kind().alias();
            Err(err!(TypeMismatch, "$bitNot only supports int and long, not: {found}."))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, check_error};

    #[test]
    fn bits() {
        check("{$bitAnd: [12, 10]}", "{}", "8");
        check("{$bitOr: [12, NumberLong(3)]}", "{}", "NumberLong(15)");
        check("{$bitXor: []}", "{}", "0");
        check("{$bitAnd: []}", "{}", "-1");
        check("{$bitNot: 0}", "{}", "-1");
        check("{$bitAnd: [1, null]}", "{}", "null");
        check_error("{$bitAnd: [1, 1.5]}", "{}", 14);
        check_error("{$bitNot: 'x'}", "{}", 14);
    }
}
