//! `$dateTrunc`: the start of the bin that contains a date.
//!
//! Bins are counted from 2000-01-01, as MongoDB documents. Bins of weeks are counted from the first start of a week on
//! or after it.
//!
//! ```text
//! {$dateTrunc: {date: <date>, unit: <unit>, binSize: <integer>, timezone: <zone>, startOfWeek: <day>}}
//! ```

use super::super::evaluate::{Call, Computed, null, value};
use super::super::named::{Named, error_template, optional, required};
use super::super::show;
use super::calendar::{Civil, DAY, to_days};
use super::unit::{self, Length, Unit};
use super::zone::Zone;
use super::{to_millis, zone};
use base::bson::Value;
use base::{ErrorCode, Result, bail, err};

/// The arguments in the order of their evaluation.
pub(in super::super) static ARGUMENTS: Named = Named {
    parameters: &[
        required("date", 5439009, "Missing 'date' parameter to $dateTrunc"),
        required("unit", 5439010, "Missing 'unit' parameter to $dateTrunc"),
        optional("binSize"),
        optional("timezone"),
        optional("startOfWeek"),
    ],
    no_object: error_template(5439007, "$dateTrunc only supports an object as its argument"),
    unknown: error_template(
        5439008,
        "Unrecognized argument to $dateTrunc: {}. Expected arguments are date, unit, and optionally, binSize, timezone, startOfWeek",
    ),
};

/// Evaluates `$dateTrunc`.
///
/// Errors: 5166307 for a value that is not a date, 5439013 and FailedToParse for the unit, 5439017 and 5439018 for the
/// bin, errors of zones and days of the week.
pub(in super::super) fn truncate<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let date = match call.get_non_null(0)? {
        None => None,
        Some(found) => Some(to_millis(found).ok_or_else(|| {
            err!(5166307, "$dateTrunc requires 'date' to be a date, but got {}", found.kind().alias())
        })?),
    };
    let unit = unit::operand(call, 1).map_err(|error| match error.code() {
        // MongoDB 8.2 reports an unknown unit with the error of its unit parser.
        ErrorCode::Location(5439014) => err!(FailedToParse, "{}", error.message()),
        _ => error,
    })?;
    let (bin, zone) = (bin_size(call)?, zone(call, 3)?);
    let (Some(date), Some(unit), Some(bin), Some(zone)) = (date, unit, bin, zone) else { return null() };
    if call.has_argument(4) && call.get_non_null(4)?.is_none() {
        return null();
    }
    let first_day = if unit == Unit::Week { unit::start_of_week(call, 4)? } else { Some(0) };
    let Some(first_day) = first_day else { return null() };
    match bin_start(date, unit, bin, &zone, first_day) {
        Some(start) => value(Value::DateTime(start)),
        None => Err(err!(DurationOverflow, "$dateTrunc overflowed")),
    }
}

/// Evaluates the bin size: 1 by default, `None` for null. Errors: 5439017 for a value that is not an int64, 5439018
/// unless positive.
fn bin_size(call: &Call<'_, '_>) -> Result<Option<i64>> {
    if !call.has_argument(2) {
        return Ok(Some(1));
    }
    let Some(found) = call.get_non_null(2)? else { return Ok(None) };
    let size = found.as_i64().ok_or_else(|| {
        let (value, kind) = (show::value(found), found.kind().alias());
        err!(
            5439017,
            "$dateTrunc requires 'binSize' to be a 64-bit integer, but got value '{value}' of type {kind}"
        )
    })?;
    if size <= 0 {
        bail!(5439018, "$dateTrunc requires 'binSize' to be greater than 0, but got value {size}");
    }
    Ok(Some(size))
}

/// Returns the start of the bin; `None` out of range.
pub(crate) fn bin_start(date: i64, unit: Unit, bin: i64, zone: &Zone, first_day: i64) -> Option<i64> {
    let local = zone.to_local(date);
    let reference = to_days(2000, 1, 1)?;
    match unit.length() {
        Length::Millis(millis) => {
            let origin = zone.to_utc(reference * DAY);
            let size = bin.checked_mul(millis)?;
            let since = date.checked_sub(origin)?;
            origin.checked_add(since.checked_sub(since.rem_euclid(size))?)
        }
        Length::Days(days) => {
            // 2000-01-01 was a Saturday, day 5 if Monday is 0.
            let origin = if days == 7 { reference + (first_day - 5).rem_euclid(7) } else { reference };
            let size = bin.checked_mul(days)?;
            let since = local.div_euclid(DAY) - origin;
            let day = origin.checked_add(since.div_euclid(size).checked_mul(size)?)?;
            Some(zone.to_utc(day.checked_mul(DAY)?))
        }
        Length::Months(months) => {
            let civil = Civil::from_local(local);
            let size = bin.checked_mul(months)?;
            let since = (civil.year - 2000) * 12 + civil.month - 1;
            let start = since.div_euclid(size).checked_mul(size)?;
            let day = to_days(2000, start.checked_add(1)?, 1)?;
            Some(zone.to_utc(day.checked_mul(DAY)?))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{check, check_error, check_parse_error};

    const DATE: &str = "{d: ISODate('2021-03-20T11:30:05.123Z')}";

    #[test]
    fn bins() {
        let cases = [
            ("unit: 'year'", "2021-01-01T00:00:00Z"),
            ("unit: 'quarter'", "2021-01-01T00:00:00Z"),
            ("unit: 'month', binSize: 2", "2021-03-01T00:00:00Z"),
            ("unit: 'week'", "2021-03-14T00:00:00Z"),
            ("unit: 'week', startOfWeek: 'monday'", "2021-03-15T00:00:00Z"),
            ("unit: 'week', startOfWeek: 'monday', binSize: 2", "2021-03-15T00:00:00Z"),
            ("unit: 'day'", "2021-03-20T00:00:00Z"),
            ("unit: 'hour', binSize: 2", "2021-03-20T10:00:00Z"),
            ("unit: 'minute'", "2021-03-20T11:30:00Z"),
            ("unit: 'second'", "2021-03-20T11:30:05Z"),
            ("unit: 'millisecond'", "2021-03-20T11:30:05.123Z"),
            ("unit: 'day', timezone: 'America/New_York'", "2021-03-20T04:00:00Z"),
        ];
        for (arguments, expected) in cases {
            check(
                &format!("{{$dateTrunc: {{date: '$d', {arguments}}}}}"),
                DATE,
                &format!("ISODate('{expected}')"),
            );
        }
        check("{$dateTrunc: {date: '$d', unit: 'day', startOfWeek: null}}", DATE, "null");
        check("{$dateTrunc: {date: null, unit: 'day'}}", DATE, "null");
    }

    #[test]
    fn errors() {
        check_error("{$dateTrunc: {date: 1, unit: 'day'}}", DATE, 5166307);
        check_error("{$dateTrunc: {date: '$d', unit: 1}}", DATE, 5439013);
        check_error("{$dateTrunc: {date: '$d', unit: 'eon'}}", DATE, 9);
        check_error("{$dateTrunc: {date: '$d', unit: 'day', binSize: 'x'}}", DATE, 5439017);
        check_error("{$dateTrunc: {date: '$d', unit: 'day', binSize: 0}}", DATE, 5439018);
        check_parse_error("{$dateTrunc: {date: '$d'}}", 5439010);
    }
}
