//! Arithmetic of dates in units: `$dateAdd $dateSubtract $dateDiff $dateTrunc`.
//!
//! ```text
//! {$dateAdd: {startDate: <date>, unit: <unit>, amount: <integer>, timezone: <zone>}}
//! {$dateDiff: {startDate: <date>, endDate: <date>, unit: <unit>, timezone: <zone>, startOfWeek: <day>}}
//! {$dateTrunc: {date: <date>, unit: <unit>, binSize: <integer>, timezone: <zone>, startOfWeek: <day>}}
//! ```
//!
//! `$dateDiff` counts the boundaries of units between two dates. `$dateTrunc` returns the start of a date's bin. Bins
//! are counted from 2000-01-01, as MongoDB documents. Bins of weeks are counted from the first start of a week on or
//! after it.

use super::super::evaluate::{Call, Computed, null, value};
use super::super::named::{Named, error_template, optional, required};
use super::super::show;
use super::calendar::{self, Civil, DAY, Length, Unit, days_in_month, to_days};
use super::zone::Zone;
use super::{is_constant_null, to_millis, zone};
use base::bson::Value;
use base::{Error, ErrorCode, Result, bail, err};

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

/// Checks the constant operands of `$dateAdd` and `$dateSubtract`; returns whether one is null. Errors: errors of units
/// and zones.
pub(in super::super) fn check_shift(call: &Call<'_, '_>) -> Result<bool> {
    Ok(is_constant_null(call, 1, calendar::operand)? || is_constant_null(call, 3, zone)?)
}

/// Evaluates `$dateAdd` and `$dateSubtract`.
///
/// Errors: errors of units and zones, 5166403 and 5166405 for other operands, those of [`shift`], 6045000 for an amount
/// without a negative.
pub(in super::super) fn shift_by<'a>(call: &Call<'_, 'a>, sign: i64) -> Computed<'a> {
    let name = call.name();
    let Some(start) = call.get_non_null(0)? else { return null() };
    let Some(unit) = calendar::operand(call, 1)? else { return null() };
    let Some(amount) = call.get_non_null(2)? else { return null() };
    let Some(zone) = zone(call, 3)? else { return null() };
    let start = to_millis(start)
        .ok_or_else(|| err!(5166403, "{name} requires startDate to be convertible to a date"))?;
    let amount =
        amount.as_i64().ok_or_else(|| err!(5166405, "{name} expects integer amount of time units"))?;
    let Some(amount) = amount.checked_mul(sign) else {
        bail!(6045000, "invalid {name} 'amount' parameter value: {amount}");
    };
    value(Value::DateTime(shift(start, unit, amount, &zone)?))
}

impl Unit {
    /// Adds `amount` units to a date in UTC, as [`shift`] does.
    pub(crate) fn add(self, date: i64, amount: i64) -> Option<i64> {
        moved(date, self, amount, &Zone::UTC)
    }

    /// Returns the least amount that `$dateAdd` refuses; `None` for milliseconds.
    fn amount_limit(self) -> Option<i64> {
        // All dates span as many days, and at most this number of years.
        const DAYS: i64 = (u64::MAX / DAY.cast_unsigned()).cast_signed() + 1;
        const YEARS: i64 = DAYS / 365 + 1;
        match (self, self.length()) {
            (Unit::Millisecond, _) => None,
            (_, Length::Months(months)) => Some(YEARS * (12 / months)),
            (_, Length::Days(days)) => Some(DAYS / days),
            (_, Length::Millis(millis)) => Some(DAYS * (DAY / millis)),
        }
    }
}

/// Adds `amount` units on the zone's calendar.
///
/// Errors: 5976500 for an amount that no two dates span, 5166406 out of range, DurationOverflow for milliseconds.
fn shift(start: i64, unit: Unit, amount: i64, zone: &Zone) -> Result<i64> {
    if unit.amount_limit().is_some_and(|limit| amount <= -limit || limit <= amount) {
        bail!(5976500, "invalid dateAdd 'amount' parameter value: {amount} {}", unit.name());
    }
    moved(start, unit, amount, zone).ok_or_else(|| match unit {
        Unit::Millisecond => err!(DurationOverflow, "dateAdd overflowed: the result is no date"),
        _ => err!(5166406, "dateAdd overflowed"),
    })
}

/// Adds `amount` units on the zone's calendar. A day that the month does not have becomes its last day. `None` out of
/// range.
fn moved(start: i64, unit: Unit, amount: i64, zone: &Zone) -> Option<i64> {
    let local = zone.to_local(start);
    match unit.length() {
        Length::Millis(millis) => start.checked_add(amount.checked_mul(millis)?),
        Length::Days(days) => {
            let moved = local.checked_add(amount.checked_mul(days)?.checked_mul(DAY)?)?;
            Some(zone.to_utc(moved, start))
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
            Some(zone.to_utc(Civil { year, month, day, ..civil }.to_local()?, start))
        }
    }
}

/// The arguments of `$dateDiff`. `startOfWeek` is evaluated before `timezone`.
pub(in super::super) static DIFFERENCE: Named = Named {
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

/// Checks the constant operands of `$dateDiff`; returns whether one is null. Errors: errors of units, zones and days of
/// the week.
pub(in super::super) fn check_difference(call: &Call<'_, '_>) -> Result<bool> {
    Ok(is_constant_null(call, 2, calendar::operand)?
        || is_constant_null(call, 4, calendar::start_of_week)?
        || is_constant_null(call, 3, timezone)?)
}

/// Evaluates `$dateDiff`. Errors: errors of units, zones and days of the week, 5166307 for a value that is not a date,
/// 5166308 for too many milliseconds.
pub(in super::super) fn difference<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let Some(start) = call.get_non_null(0)? else { return null() };
    let Some(end) = call.get_non_null(1)? else { return null() };
    let Some(unit) = calendar::operand(call, 2)? else { return null() };
    let Some(first_day) = first_day(call, unit)? else { return null() };
    let Some(zone) = timezone(call, 3)? else { return null() };
    let (start, end) = (date(call, start, "startDate")?, date(call, end, "endDate")?);
    match bounds_between(start, end, unit, &zone, first_day) {
        Some(count) => value(count),
        None => Err(err!(5166308, "dateDiff overflowed")),
    }
}

/// Converts the argument `which`. Errors: 5166307 for a value that is not a date.
fn date(call: &Call<'_, '_>, found: Value<'_>, which: &str) -> Result<i64> {
    let name = call.name();
    to_millis(found).ok_or_else(|| {
        err!(5166307, "{name} requires '{which}' to be a date, but got {}", found.kind().alias())
    })
}

/// Evaluates the zone of `$dateDiff` and `$dateTrunc`. Errors: as [`zone`].
fn timezone(call: &Call<'_, '_>, position: usize) -> Result<Option<Zone>> {
    let name = call.name();
    zone(call, position)
        .map_err(|error| error.context(&format!("{name} parameter 'timezone' value parsing failed")))
}

/// Evaluates the first day of the week of `$dateDiff` and `$dateTrunc`, which only weeks need.
fn first_day(call: &Call<'_, '_>, unit: Unit) -> Result<Option<i64>> {
    if unit == Unit::Week { calendar::start_of_week(call, 4) } else { Ok(Some(0)) }
}

/// Counts the boundaries between two instants, negative if `end` is earlier. Days and longer units count on the local
/// calendar, shorter units in elapsed time. `None` if milliseconds overflow.
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
        // The boundaries of the local clock count, corrected by whole units of the difference of the offsets.
        Unit::Hour | Unit::Minute | Unit::Second => {
            let millis = unit.milliseconds()?;
            let correction = (zone.offset_at(start) - zone.offset_at(end)) / millis;
            Some(b.div_euclid(millis) - a.div_euclid(millis) + correction)
        }
        Unit::Millisecond => end.checked_sub(start),
    }
}

/// The arguments of `$dateTrunc`. The order of evaluation is `date`, `binSize`, `unit`, `startOfWeek`, `timezone`.
pub(in super::super) static TRUNCATE: Named = Named {
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

/// Checks the constant operands of `$dateTrunc`; returns whether one is null. Errors: errors of units, bins, zones and
/// days of the week.
pub(in super::super) fn check_truncate(call: &Call<'_, '_>) -> Result<bool> {
    Ok(is_constant_null(call, 1, calendar::operand)?
        || is_constant_null(call, 4, calendar::start_of_week)?
        || is_constant_null(call, 3, timezone)?
        || is_constant_null(call, 2, bin_size)?)
}

/// Evaluates `$dateTrunc`.
///
/// Errors: 5166307 for a value that is not a date, 5439013 and FailedToParse for the unit, 5439017 and 5439018 for the
/// bin, errors of zones and days of the week.
pub(in super::super) fn truncate<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let Some(found) = call.get_non_null(0)? else { return null() };
    let Some(bin) = bin_size(call, 2)? else { return null() };
    let Some(unit) = calendar::operand(call, 1)? else { return null() };
    let Some(first_day) = first_day(call, unit)? else { return null() };
    let Some(zone) = timezone(call, 3)? else { return null() };
    let date = date(call, found, "date")?;
    value(Value::DateTime(bin_start(date, unit, bin, &zone, first_day)?))
}

/// Evaluates the bin size: 1 by default, `None` for null. Errors: 5439017 for a value that is not an int64, 5439018
/// unless positive.
fn bin_size(call: &Call<'_, '_>, position: usize) -> Result<Option<i64>> {
    if !call.has_argument(position) {
        return Ok(Some(1));
    }
    let Some(found) = call.get_non_null(position)? else { return Ok(None) };
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

/// Returns the start of the bin.
///
/// Errors: 5439000 to 5439002 for an overflow in units up to hours, 5439004 for one in longer units, 5439006 for a bin
/// of more than 1e11 longer units, and the errors of [`shift`].
fn bin_start(date: i64, unit: Unit, bin: i64, zone: &Zone, first_day: i64) -> Result<i64> {
    let overflow = |code| move || Error::new(ErrorCode::Location(code), "dateTrunc overflowed");
    let utc = to_days(2000, 1, 1).unwrap_or_default() * DAY;
    let reference = utc - zone.offset_at(utc);
    if let Length::Millis(millis) = unit.length() {
        let size = bin.checked_mul(millis).ok_or_else(overflow(5439002))?;
        let since = date.checked_sub(reference).ok_or_else(overflow(5439000))?;
        return date.checked_sub(since.rem_euclid(size)).ok_or_else(overflow(5439001));
    }
    if bin > 100_000_000_000 {
        bail!(5439006, "dateTrunc unsupported binSize value");
    }
    // 2000-01-01 was a Saturday, day 5 if Monday is 0.
    let reference = reference + if unit == Unit::Week { (first_day - 5).rem_euclid(7) * DAY } else { 0 };
    let since = bounds_between(reference, date, unit, zone, first_day).ok_or_else(overflow(5439004))?;
    let start = since.checked_sub(since.rem_euclid(bin)).ok_or_else(overflow(5439004))?;
    shift(reference, unit, start, zone)
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{check, check_error, check_parse_error};
    use super::super::calendar::{DAY, Unit};

    #[test]
    fn months_keep_the_day_if_it_exists() {
        const JANUARY_31_2024: i64 = 1_706_659_200_000;
        const FEBRUARY_29_2024: i64 = 1_709_164_800_000;
        assert_eq!(Unit::Month.add(JANUARY_31_2024, 1), Some(FEBRUARY_29_2024));
        assert_eq!(Unit::Year.add(FEBRUARY_29_2024, -1), Some(1_677_542_400_000));
        assert_eq!(Unit::Month.add(-1, 0), Some(-1));
        assert_eq!(Unit::Day.add(0, 2), Some(2 * DAY));
        assert_eq!(Unit::Year.add(i64::MAX, i64::MAX), None);
    }

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
        // An ambiguous time keeps the state of the start: here standard time.
        check(
            "{$dateAdd: {startDate: ISODate('2024-11-04T06:30:00Z'), unit: 'day', amount: -1, timezone: 'America/New_York'}}",
            "{}",
            "ISODate('2024-11-03T06:30:00Z')",
        );
        check(
            "{$toLong: {$dateAdd: {startDate: '$d', unit: 'month', amount: NumberLong('2147483648')}}}",
            DATE,
            "NumberLong('5647338113803200000')",
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
        let greatest = "NumberLong('9223372036854775807')";
        for (unit, amount, code) in [
            ("quarter", "NumberLong('2339769672')", 5976500),
            ("quarter", "NumberLong('2339769671')", 5166406),
            ("week", "NumberLong('30500568905')", 5976500),
            ("day", "NumberLong('-213503982335')", 5976500),
            ("second", greatest, 5976500),
            ("second", "NumberLong('9223372036854775')", 5166406),
            ("millisecond", greatest, 159),
        ] {
            let text = format!("{{$dateAdd: {{startDate: '$d', unit: '{unit}', amount: {amount}}}}}");
            check_error(&text, DATE, code);
        }
        let least =
            "{$dateSubtract: {startDate: '$d', unit: 'day', amount: NumberLong('-9223372036854775808')}}";
        check_error(least, DATE, 6045000);
        check_parse_error("{$dateAdd: 1}", 5166400);
        check_parse_error("{$dateAdd: {x: 1}}", 5166401);
        check_parse_error("{$dateAdd: {unit: 'day'}}", 5166402);
    }

    #[test]
    fn the_first_null_precedes_errors() {
        check("{$dateTrunc: {date: '$d', unit: '$u'}}", "{u: 'H'}", "null");
        check("{$dateTrunc: {date: '$d', unit: '$u', binSize: '$b'}}", "{d: 1, u: 'x', b: null}", "null");
        check("{$dateTrunc: {date: '$d', unit: 'day', timezone: '$z'}}", "{d: 1}", "null");
        check("{$dateDiff: {startDate: '$s', endDate: '$e', unit: '$u'}}", "{s: 'x', u: 'x'}", "null");
        check("{$dateAdd: {startDate: '$s', unit: '$u', amount: '$a'}}", "{u: 'x', a: 1}", "null");
        check("{$dateAdd: {startDate: '$s', unit: 'day', amount: '$a'}}", "{s: 'x'}", "null");
        check("{$dateSubtract: {startDate: '$s', unit: 'day', amount: 1, timezone: '$z'}}", "{s: 1}", "null");
        check_error("{$dateTrunc: {date: '$d', unit: '$u', timezone: '$z'}}", "{d: 1, u: 'x'}", 9);
        check_error("{$dateTrunc: {date: '$d', unit: 'day', binSize: '$b'}}", "{d: 1, b: 0}", 5439018);
    }

    #[test]
    fn constants_are_checked_before_documents() {
        check_parse_error("{$dateTrunc: {date: '$d', unit: 'x'}}", 9);
        check_parse_error("{$dateTrunc: {date: '$d', unit: '$u', timezone: 'x'}}", 40485);
        check_parse_error("{$dateTrunc: {date: '$d', unit: 'day', binSize: 0}}", 5439018);
        check_parse_error(
            "{$dateDiff: {startDate: '$a', endDate: '$b', unit: 'day', startOfWeek: 'x'}}",
            5439016,
        );
        check_parse_error("{$dateAdd: {startDate: '$s', unit: 1, amount: 1}}", 5439013);
        // A constant null makes the value null for all documents.
        check("{$dateTrunc: {date: '$d', unit: '$u', timezone: null}}", "{d: 1, u: 'x'}", "null");
        check("{$dateTrunc: {date: '$d', unit: 'day', startOfWeek: null}}", BIN_DATE, "null");
        check(
            "{$dateDiff: {startDate: '$s', endDate: '$s', unit: '$u', startOfWeek: null}}",
            "{s: 1, u: 'x'}",
            "null",
        );
        check(
            "{$dateAdd: {startDate: '$s', unit: '$u', amount: 1, timezone: null}}",
            "{s: 1, u: 'x'}",
            "null",
        );
    }

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
    fn hours_between_offsets_that_differ_by_less() {
        let hours = |start, end| {
            let (unit, zone) = ("unit: 'hour'", "timezone: 'Australia/Lord_Howe'");
            format!(
                "{{$dateDiff: {{startDate: ISODate('{start}'), endDate: ISODate('{end}'), {unit}, {zone}}}}}"
            )
        };
        check(&hours("2012-10-06T15:29:59Z", "2012-10-08T17:45:15Z"), "{}", "NumberLong(51)");
        check(&hours("2012-10-08T17:45:15Z", "2012-10-06T15:29:59Z"), "{}", "NumberLong(-51)");
    }

    #[test]
    fn differences_over_the_whole_range() {
        let difference = |unit| {
            let end = "endDate: {$toDate: NumberLong('9223372036854775807')}";
            format!(
                "{{$dateDiff: {{startDate: {{$toDate: NumberLong('-9223372036854775808')}}, {end}, unit: '{unit}'}}}}"
            )
        };
        check(&difference("second"), "{}", "NumberLong('18446744073709551')");
        check(&difference("year"), "{}", "NumberLong('584554049')");
        check_error(&difference("millisecond"), "{}", 5166308);
    }

    #[test]
    fn errors_of_differences() {
        check_error("{$dateDiff: {startDate: 1, endDate: '$b', unit: 'day'}}", DATES, 5166307);
        check_error("{$dateDiff: {startDate: '$a', endDate: '$b', unit: 'eon'}}", DATES, 9);
        check_error(
            "{$dateDiff: {startDate: '$a', endDate: '$b', unit: 'week', startOfWeek: 'x'}}",
            DATES,
            5439016,
        );
        check_parse_error("{$dateDiff: {startDate: 1, endDate: 1}}", 5166305);
        check_parse_error("{$dateDiff: 1}", 5166301);
    }

    const BIN_DATE: &str = "{d: ISODate('2021-03-20T11:30:05.123Z')}";

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
                BIN_DATE,
                &format!("ISODate('{expected}')"),
            );
        }
        // Midnight occurs twice. Standard time is in force on 2000-01-01.
        check(
            "{$dateTrunc: {date: ISODate('2025-11-02T12:00:00Z'), unit: 'day', timezone: 'America/Havana'}}",
            "{}",
            "ISODate('2025-11-02T05:00:00Z')",
        );
        // The unit decides whether the first day of the week is evaluated in a call of constants.
        check(
            "{$dateTrunc: {date: ISODate('2021-03-20T11:30:05Z'), unit: 'day', startOfWeek: null}}",
            "{}",
            "ISODate('2021-03-20T00:00:00Z')",
        );
        check("{$dateTrunc: {date: null, unit: 'day'}}", BIN_DATE, "null");
    }

    #[test]
    fn errors_of_bins() {
        check_error("{$dateTrunc: {date: 1, unit: 'day'}}", BIN_DATE, 5166307);
        check_error("{$dateTrunc: {date: '$d', unit: 1}}", BIN_DATE, 5439013);
        check_error("{$dateTrunc: {date: '$d', unit: 'eon'}}", BIN_DATE, 9);
        check_error("{$dateTrunc: {date: '$d', unit: 'day', binSize: 'x'}}", BIN_DATE, 5439017);
        check_error("{$dateTrunc: {date: '$d', unit: 'day', binSize: 0}}", BIN_DATE, 5439018);
        let (least, all) =
            ("{$toDate: NumberLong('-9223372036854775808')}", "NumberLong('9223372036854775807')");
        for (date, unit, bin, code) in [
            (least, "hour", "1", 5439000),
            (
                "{$toDate: NumberLong('-9222000000000000000')}",
                "millisecond",
                "NumberLong('9000000000000000000')",
                5439001,
            ),
            ("'$d'", "hour", all, 5439002),
            ("'$d'", "day", "NumberLong('100000000001')", 5439006),
            ("ISODate('1999-01-01T00:00:00Z')", "year", "NumberLong('100000000000')", 5976500),
        ] {
            let text = format!("{{$dateTrunc: {{date: {date}, unit: '{unit}', binSize: {bin}}}}}");
            check_error(&text, BIN_DATE, code);
        }
        check_parse_error("{$dateTrunc: {date: '$d'}}", 5439010);
    }
}
