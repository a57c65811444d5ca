//! `$dateDiff`: the number of unit boundaries between two dates.
//!
//! ```text
//! {$dateDiff: {startDate: <date>, endDate: <date>, unit: <unit>, timezone: <zone>, startOfWeek: <day>}}
//! ```

use super::super::evaluate::{Call, Computed, null, value};
use super::super::named::{Named, error_template, optional, required};
use super::calendar::{Civil, DAY, HOUR, MINUTE, SECOND};
use super::unit::{self, Unit};
use super::zone::Zone;
use super::{to_millis, zone};
use base::{Error, ErrorCode, Result, err};

/// The arguments in the order of their evaluation.
pub(in super::super) static ARGUMENTS: Named = Named {
    parameters: &[
        required("startDate", 5166303, "Missing 'startDate' parameter to $dateDiff"),
        required("endDate", 5166304, "Missing 'endDate' parameter to $dateDiff"),
        required("unit", 5166305, "Missing 'unit' parameter to $dateDiff"),
        optional("timezone"),
        optional("startOfWeek"),
    ],
    no_object: error_template(5166301, "$dateDiff only supports an object as its argument"),
    unknown: error_template(5166302, "Unrecognized argument to $dateDiff: {}"),
};

/// Evaluates `$dateDiff`. Errors: 5166307 for a value that is not a date, errors of units, zones and days of the week.
pub(in super::super) fn difference<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let (start, end) = (date(call, 0, "startDate")?, date(call, 1, "endDate")?);
    let unit = unit::operand(call, 2)?;
    let zone = zone(call, 3)?;
    let (Some(start), Some(end), Some(unit), Some(zone)) = (start, end, unit, zone) else { return null() };
    let first_day = if unit == Unit::Week { unit::start_of_week(call, 4)? } else { Some(0) };
    let Some(first_day) = first_day else { return null() };
    match bounds_between(start, end, unit, &zone, first_day) {
        Some(count) => value(count),
        None => Err(err!(DurationOverflow, "$dateDiff overflowed")),
    }
}

fn date(call: &Call<'_, '_>, position: usize, which: &str) -> Result<Option<i64>> {
    let Some(found) = call.get_non_null(position)? else { return Ok(None) };
    to_millis(found).map(Some).ok_or_else(|| {
        let message = format!("$dateDiff requires '{which}' to be a date, but got {}", found.kind().alias());
        Error::new(ErrorCode::Location(5166307), message)
    })
}

/// Counts the boundaries between two instants, negative if `end` is earlier. Days and longer units count on the local
/// calendar, shorter units in elapsed time.
fn bounds_between(start: i64, end: i64, unit: Unit, zone: &Zone, first_day: i64) -> Option<i64> {
    let (a, b) = (zone.to_local(start), zone.to_local(end));
    let months = |local: i64| {
        let civil = Civil::from_local(local);
        civil.year * 12 + civil.month - 1
    };
    let count = |per: i64, offset: i64| {
        let bound = |local: i64| (local.div_euclid(DAY) + offset).div_euclid(per);
        Some(bound(b) - bound(a))
    };
    match unit {
        Unit::Year => Some(months(b).div_euclid(12) - months(a).div_euclid(12)),
        Unit::Quarter => Some(months(b).div_euclid(3) - months(a).div_euclid(3)),
        Unit::Month => Some(months(b) - months(a)),
        // 1970-01-01 was a Thursday, day 3 if Monday is 0.
        Unit::Week => count(7, 3 - first_day),
        Unit::Day => count(1, 0),
        // The elapsed time counts, between the boundaries of the local clock.
        Unit::Hour => elapsed(start, end, a, b, HOUR),
        Unit::Minute => elapsed(start, end, a, b, MINUTE),
        Unit::Second => elapsed(start, end, a, b, SECOND),
        Unit::Millisecond => end.checked_sub(start),
    }
}

fn elapsed(start: i64, end: i64, local_start: i64, local_end: i64, unit: i64) -> Option<i64> {
    let from = start.checked_sub(local_start.rem_euclid(unit))?;
    let to = end.checked_sub(local_end.rem_euclid(unit))?;
    Some(to.checked_sub(from)?.div_euclid(unit))
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{check, check_error, check_parse_error};

    const DATES: &str = "{a: ISODate('2020-12-31T23:59:59.999Z'), b: ISODate('2021-01-01T00:00:00Z')}";

    #[test]
    fn bounds_are_counted() {
        for unit in ["year", "quarter", "month", "day", "hour", "minute", "second", "millisecond"] {
            let text = format!("{{$dateDiff: {{startDate: '$a', endDate: '$b', unit: '{unit}'}}}}");
            check(&text, DATES, "NumberLong(1)");
            let back = format!("{{$dateDiff: {{startDate: '$b', endDate: '$a', unit: '{unit}'}}}}");
            check(&back, DATES, "NumberLong(-1)");
        }
        check("{$dateDiff: {startDate: '$a', endDate: '$b', unit: 'week'}}", DATES, "NumberLong(0)");
        check(
            "{$dateDiff: {startDate: '$a', endDate: '$b', unit: 'week', startOfWeek: 'fri'}}",
            DATES,
            "NumberLong(1)",
        );
        check("{$dateDiff: {startDate: '$a', endDate: '$x', unit: 'week'}}", DATES, "null");
        check(
            "{$dateDiff: {startDate: '$a', endDate: '$b', unit: 'day', timezone: '+01'}}",
            DATES,
            "NumberLong(0)",
        );
    }

    #[test]
    fn errors() {
        check_error("{$dateDiff: {startDate: 1, endDate: '$b', unit: 'day'}}", DATES, 5166307);
        check_error("{$dateDiff: {startDate: '$a', endDate: '$b', unit: 'eon'}}", DATES, 5439014);
        check_error(
            "{$dateDiff: {startDate: '$a', endDate: '$b', unit: 'week', startOfWeek: 'x'}}",
            DATES,
            5439016,
        );
        check_parse_error("{$dateDiff: {startDate: 1, endDate: 1}}", 5166305);
        check_parse_error("{$dateDiff: 1}", 5166301);
    }
}
