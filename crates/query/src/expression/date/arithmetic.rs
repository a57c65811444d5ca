//! `$dateAdd` and `$dateSubtract`.
//!
//! ```text
//! {$dateAdd: {startDate: <date>, unit: <unit>, amount: <integer>, timezone: <zone>}}
//! ```

use super::super::evaluate::{Call, Computed, null, value};
use super::super::named::{Named, error_template, optional, required};
use super::calendar::{Civil, DAY, days_in_month};
use super::unit::{Length, Unit};
use super::zone::Zone;
use super::{to_millis, zone};
use base::bson::Value;
use base::{bail, err};

macro_rules! arguments {
    ($name:ident, $operator:literal) => {
        pub(in super::super) static $name: Named = Named {
            parameters: &[
                required(
                    "startDate",
                    5166402,
                    concat!($operator, " requires startDate, unit, and amount to be present"),
                ),
                required(
                    "unit",
                    5166402,
                    concat!($operator, " requires startDate, unit, and amount to be present"),
                ),
                required(
                    "amount",
                    5166402,
                    concat!($operator, " requires startDate, unit, and amount to be present"),
                ),
                optional("timezone"),
            ],
            no_object: error_template(
                5166400,
                concat!($operator, " expects an object as its argument.found {}"),
            ),
            unknown: error_template(
                5166401,
                concat!(
                    "Unrecognized argument to ",
                    $operator,
                    ": {}. Expected arguments are startDate, unit, amount, and optionally timezone."
                ),
            ),
        };
    };
}
arguments!(ADD, "$dateAdd");
arguments!(SUBTRACT, "$dateSubtract");

/// Evaluates `$dateAdd` and `$dateSubtract`.
///
/// Errors: 5166403, 5166405 and 5439013 for the operands, errors of units and zones, DurationOverflow, 5976500 for more
/// months than an int32 holds.
pub(in super::super) fn shift_by<'a>(call: &Call<'_, 'a>, sign: i64) -> Computed<'a> {
    let name = call.name();
    let start = call.get_non_null(0)?;
    let unit = match call.get_non_null(1)? {
        None => None,
        Some(Value::String(text)) => {
            Some(Unit::parse(text).ok_or_else(|| err!(FailedToParse, "unknown time unit value: {text}"))?)
        }
        Some(other) => {
            bail!(5439013, "{name} requires 'unit' to be a string, but got {}", other.kind().alias());
        }
    };
    let amount = call.get_non_null(2)?;
    let (Some(start), Some(unit), Some(amount), Some(zone)) = (start, unit, amount, zone(call, 3)?) else {
        return null();
    };
    let start = to_millis(start)
        .ok_or_else(|| err!(5166403, "{name} requires startDate to be convertible to a date"))?;
    let amount =
        amount.as_i64().ok_or_else(|| err!(5166405, "{name} expects integer amount of time units"))?;
    let months = matches!(unit.length(), Length::Months(_));
    if months && i32::try_from(amount).is_err() {
        bail!(5976500, "{name} overflowed: {amount} is out of the range of 'amount'");
    }
    let moved = amount.checked_mul(sign).and_then(|amount| shift(start, unit, amount, &zone));
    match moved {
        Some(millis) => value(Value::DateTime(millis)),
        None => Err(err!(DurationOverflow, "{name} overflowed: the result is no date")),
    }
}

/// Adds `amount` units on the zone's calendar. A day that the month does not have becomes its last day. `None` out of
/// range.
pub(crate) fn shift(start: i64, unit: Unit, amount: i64, zone: &Zone) -> Option<i64> {
    let local = zone.to_local(start);
    match unit.length() {
        Length::Millis(millis) => start.checked_add(amount.checked_mul(millis)?),
        Length::Days(days) => {
            let moved = local.checked_add(amount.checked_mul(days)?.checked_mul(DAY)?)?;
            Some(zone.to_utc(moved))
        }
        Length::Months(months) => {
            let civil = Civil::from_local(local);
            let count = civil.year.checked_mul(12)?.checked_add(civil.month - 1)?;
            let count = count.checked_add(amount.checked_mul(months)?)?;
            let (year, month) = (count.div_euclid(12), count.rem_euclid(12) + 1);
            if year.abs() > 300_000_000 {
                return None;
            }
            let day = civil.day.min(days_in_month(year, month));
            Some(zone.to_utc(Civil { year, month, day, ..civil }.to_local()?))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{check, check_error, check_parse_error};

    const DATE: &str = "{d: ISODate('2020-01-31T12:00:00Z')}";

    #[test]
    fn moving_dates() {
        check(
            "{$dateAdd: {startDate: '$d', unit: 'month', amount: 1}}",
            DATE,
            "ISODate('2020-02-29T12:00:00Z')",
        );
        check(
            "{$dateAdd: {startDate: '$d', unit: 'year', amount: 1}}",
            DATE,
            "ISODate('2021-01-31T12:00:00Z')",
        );
        check(
            "{$dateAdd: {startDate: '$d', unit: 'quarter', amount: 1}}",
            DATE,
            "ISODate('2020-04-30T12:00:00Z')",
        );
        check(
            "{$dateSubtract: {startDate: '$d', unit: 'week', amount: 1}}",
            DATE,
            "ISODate('2020-01-24T12:00:00Z')",
        );
        check(
            "{$dateSubtract: {startDate: '$d', unit: 'millisecond', amount: 1}}",
            DATE,
            "ISODate('2020-01-31T11:59:59.999Z')",
        );
        // A day across a clock change is a day of local time.
        check(
            "{$dateAdd: {startDate: ISODate('2020-03-07T17:00:00Z'), unit: 'day', amount: 1, timezone: 'America/New_York'}}",
            "{}",
            "ISODate('2020-03-08T16:00:00Z')",
        );
        check("{$dateAdd: {startDate: '$d', unit: 'hour', amount: null}}", DATE, "null");
    }

    #[test]
    fn errors() {
        check_error("{$dateAdd: {startDate: 'x', unit: 'hour', amount: 1}}", DATE, 5166403);
        check_error("{$dateAdd: {startDate: '$d', unit: 1, amount: 1}}", DATE, 5439013);
        check_error("{$dateAdd: {startDate: '$d', unit: 'eon', amount: 1}}", DATE, 9);
        check_error("{$dateAdd: {startDate: '$d', unit: 'hour', amount: 1.5}}", DATE, 5166405);
        check_error(
            "{$dateAdd: {startDate: '$d', unit: 'year', amount: NumberLong('9223372036854775807')}}",
            DATE,
            5976500,
        );
        check_parse_error("{$dateAdd: 1}", 5166400);
        check_parse_error("{$dateAdd: {x: 1}}", 5166401);
        check_parse_error("{$dateAdd: {unit: 'day'}}", 5166402);
    }
}
