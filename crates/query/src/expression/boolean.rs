//! `$and $or $not`, with short-circuit evaluation.

use super::evaluate::{Call, Computed, value};
use base::Result;
use base::bson::Value;

/// Whether a value counts as true; a missing value does not.
pub(super) fn truthy(value: Option<Value<'_>>) -> bool {
    value.is_some_and(|value| value.is_truthy())
}

fn any(call: &Call<'_, '_>, truth: bool) -> Result<bool> {
    for operand in call.values() {
        if truthy(operand?) == truth {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(super) fn and<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    value(!any(call, false)?)
}

pub(super) fn or<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    value(any(call, true)?)
}

pub(super) fn not<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    value(!truthy(call.get(0)?))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, check_parse_error};

    #[test]
    fn the_first_deciding_operand_ends_it() {
        check("{$and: []}", "{}", "true");
        check("{$or: []}", "{}", "false");
        check("{$and: ['$a', {$divide: ['$b', 0]}]}", "{a: 0, b: 1}", "false");
        check("{$or: ['$a', '$b']}", "{b: []}", "true");
        check("{$not: ['$a']}", "{}", "true");
        check("{$not: '$a'}", "{a: ''}", "false");
        check_parse_error("{$not: [1, 2]}", 16020);
    }
}
