//! `$eq $ne $lt $lte $gt $gte $cmp`: MongoDB's order across all types; missing sorts first.

use super::evaluate::{Call, Computed, value};
use base::Result;
use std::cmp::Ordering;

/// Returns the order of the two operands.
pub(super) fn order(call: &Call<'_, '_>) -> Result<Ordering> {
    let (a, b) = (call.get(0)?, call.get(1)?);
    Ok(call.collation().compare_optional(a, b))
}

/// `$cmp`: −1, 0 or 1.
pub(super) fn cmp<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    value(order(call)? as i32)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, check_parse_error};

    #[test]
    fn values_compare_across_types() {
        check("{$eq: ['$a', 1.0]}", "{a: 1}", "true");
        check("{$gt: ['$a', 5]}", "{a: 'x'}", "true");
        check("{$lt: ['$missing', null]}", "{}", "true");
        check("{$cmp: ['$a', 2]}", "{a: 1}", "-1");
        check("{$cmp: ['$a', 2]}", "{a: 3}", "1");
        check("{$gte: [[1, 2], [1]]}", "{}", "true");
        check("{$ne: [{a: 1, b: 2}, {b: 2, a: 1}]}", "{}", "true");
        check_parse_error("{$eq: [1]}", 16020);
        check_parse_error("{$lte: 1}", 16020);
    }
}
