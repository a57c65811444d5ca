//! Dates and their parts: `$year`, `$isoWeek` and so on, `$dateToParts`, `$dateFromParts`; the parts of a timestamp.
//!
//! ```text
//! {$dateToParts: {date: <date>, timezone: <zone>, iso8601: <boolean>}}
//! {$dateFromParts: {year: …, month: …, day: …, hour: …, minute: …, second: …, millisecond: …, timezone: <zone>}}
//! {$dateFromParts: {isoWeekYear: …, isoWeek: …, isoDayOfWeek: …, hour: …, …}}
//! ```
//!
//! `$dateFromParts` requires only the year. Parts out of range carry over.

use super::super::evaluate::{Call, Computed, null, value};
use super::super::named::{self, Named, error_template, optional, required};
use super::super::node::{CallNode, Node, append};
use super::super::parse::Parser;
use super::super::show;
use super::super::table::Operator;
use super::calendar::{self, Civil, DAY, IsoDate};
use super::{check_zone, instant, zone};
use base::bson::{Builder, FieldName, Value};
use base::{Error, ErrorCode, Result, bail, err};
use std::ffi::CStr;

/// The operands of a date part.
pub(in super::super) const NAMES: &[&str] = &["date", "timezone"];

/// Parses a date part: `{$year: date}`, `{$year: [date]}` or `{$year: {date, timezone}}`. The operands are the date and
/// the zone.
///
/// Errors: 40536 for an array of another length, 40535 and 40539 for the named form.
pub(in super::super) fn parse(
    parser: &mut Parser<'_>,
    operator: &'static Operator,
    argument: Value<'_>,
) -> Result<Node> {
    let name = operator.name;
    let date = match argument {
        Value::Array(array) => {
            let parts: Vec<_> = array.iter().collect();
            let [single] = parts[..] else {
                let count = parts.len();
                bail!(40536, "{name} accepts exactly one argument if given an array, but was given {count}");
            };
            parser.operand(single)?
        }
        Value::Document(document) if !document.first().is_some_and(|first| first.name().starts_with('$')) => {
            let (mut date, mut zone) = (None, Node::Absent);
            for element in document {
                match element.name() {
                    "date" => date = Some(parser.operand(element.value())?),
                    "timezone" => zone = parser.operand(element.value())?,
                    other => bail!(40535, "unrecognized option to {name}: \"{other}\""),
                }
            }
            let given = Value::Document(document);
            let date = date
                .ok_or_else(|| err!(40539, "missing 'date' argument to {name}, provided: {name}: {given}"))?;
            return Ok(Node::call(operator, vec![date, zone]));
        }
        single => parser.operand(single)?,
    };
    Ok(Node::call(operator, vec![date, Node::Absent]))
}

/// Checks the constant zone of a date part. A null zone does not make the value null: the date is converted before.
pub(in super::super) fn check(call: &Call<'_, '_>) -> Result<bool> {
    check_zone(call, 1).map(|_| false)
}

/// Returns the local time of the operands; `None` if either is null. The zone of a null date is not read.
fn local(call: &Call<'_, '_>) -> Result<Option<i64>> {
    let Some(date) = call.get_non_null(0)? else { return Ok(None) };
    let millis = instant(date)?;
    Ok(zone(call, 1)?.map(|zone| zone.to_local(millis)))
}

macro_rules! parts {
    ($($name:ident, $part:expr;)+) => {
        $(pub(in super::super) fn $name<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
            let part: fn(i64) -> i64 = $part;
            match local(call)? {
                Some(local) => value(part(local) as i32),
                None => null(),
            }
        })+
    };
}

fn days(local: i64) -> i64 {
    local.div_euclid(DAY)
}

parts! {
    year, |local| Civil::from_local(local).year;
    month, |local| Civil::from_local(local).month;
    day_of_month, |local| Civil::from_local(local).day;
    hour, |local| Civil::from_local(local).hour;
    minute, |local| Civil::from_local(local).minute;
    second, |local| Civil::from_local(local).second;
    millisecond, |local| Civil::from_local(local).milli;
    day_of_week, |local| calendar::weekday(days(local)) + 1;
    day_of_year, |local| calendar::day_of_year(days(local));
    week, |local| calendar::week_of_year(days(local));
    iso_week, |local| calendar::iso(days(local)).week;
    iso_day_of_week, |local| calendar::iso(days(local)).weekday;
}

/// `$isoWeekYear`: an int64, unlike other parts.
pub(in super::super) fn iso_week_year<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    match local(call)? {
        Some(local) => value(calendar::iso(days(local)).year),
        None => null(),
    }
}

/// The arguments of `$dateToParts` in the order of their evaluation.
pub(in super::super) static TO_PARTS: Named = Named {
    parameters: &[
        required("date", 40522, "Missing 'date' parameter to $dateToParts"),
        optional("timezone"),
        optional("iso8601"),
    ],
    no_object: error_template(40524, "$dateToParts only supports an object as its argument"),
    unknown: error_template(40520, "Unrecognized argument to $dateToParts: {}"),
};

/// `$dateToParts`. Errors: 40521 if `iso8601` is not a boolean.
pub(in super::super) fn to_parts<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let date = call.get_non_null(0)?;
    let Some(zone) = zone(call, 1)? else { return null() };
    let iso = match (call.has_argument(2), call.get_non_null(2)?) {
        (false, _) => false,
        (true, None) => return null(),
        (true, Some(Value::Boolean(iso))) => iso,
        (true, Some(other)) => {
            bail!(40521, "iso8601 must evaluate to a bool, found {}", other.kind().alias());
        }
    };
    let Some(date) = date else { return null() };
    let local = zone.to_local(instant(date)?);
    let time = Civil::from_local(local);
    let mut builder = Builder::new();
    let mut put = |name: &'static CStr, part: i64| {
        builder.append(name, part as i32);
    };
    if iso {
        let date = calendar::iso(days(local));
        put(c"isoWeekYear", date.year);
        put(c"isoWeek", date.week);
        put(c"isoDayOfWeek", date.weekday);
    } else {
        put(c"year", time.year);
        put(c"month", time.month);
        put(c"day", time.day);
    }
    put(c"hour", time.hour);
    put(c"minute", time.minute);
    put(c"second", time.second);
    put(c"millisecond", time.milli);
    call.scope.document(builder)
}

/// Returns one half of a timestamp; null for null.
pub(in super::super) fn timestamp<'a>(call: &Call<'_, 'a>, code: i32, half: fn(u64) -> u64) -> Computed<'a> {
    match call.get_non_null(0)? {
        None => null(),
        Some(Value::Timestamp(time)) => value(half(time) as i64),
        Some(other) => {
            let (name, found) = (call.name(), other.kind().alias());
            let message = format!(" Argument to {name} must be a timestamp, but is {found}");
            Err(Error::new(ErrorCode::Location(code), message))
        }
    }
}

const YEAR: usize = 0;
const HOUR: usize = 3;
const ISO_YEAR: usize = 7;
const ZONE: usize = 10;

/// The arguments of `$dateFromParts`.
pub(in super::super) static ARGUMENTS: Named = Named {
    parameters: &[
        optional("year"),
        optional("month"),
        optional("day"),
        optional("hour"),
        optional("minute"),
        optional("second"),
        optional("millisecond"),
        optional("isoWeekYear"),
        optional("isoWeek"),
        optional("isoDayOfWeek"),
        optional("timezone"),
    ],
    no_object: error_template(40519, "$dateFromParts only supports an object as its argument"),
    unknown: error_template(40518, "Unrecognized argument to $dateFromParts: {}"),
};

/// Parses `$dateFromParts`. Errors: 40516 without any year, 40489 and 40525 for a mix of the two calendars.
pub(in super::super) fn parse_from_parts(
    parser: &mut Parser<'_>,
    operator: &'static Operator,
    argument: Value<'_>,
) -> Result<Node> {
    let node = named::parse(parser, operator, &ARGUMENTS, argument)?;
    let given: Vec<bool> = node.children().map(|child| !matches!(child, Node::Absent)).collect();
    let has = |position: usize| given.get(position).copied().unwrap_or(false);
    if !has(YEAR) && !has(ISO_YEAR) {
        bail!(40516, "$dateFromParts requires either 'year' or 'isoWeekYear' to be present");
    }
    if has(YEAR) && (ISO_YEAR..ZONE).any(has) {
        bail!(40489, "$dateFromParts does not allow mixing natural dates with ISO dates");
    }
    if has(ISO_YEAR) && (1..HOUR).any(has) {
        bail!(40525, "$dateFromParts does not allow mixing ISO dates with natural dates");
    }
    Ok(node)
}

/// Checks the constant zone of `$dateFromParts`; returns whether it is null. Errors: errors of zones.
pub(in super::super) fn check_from_parts(call: &Call<'_, '_>) -> Result<bool> {
    check_zone(call, ZONE)
}

/// Evaluates a part, or returns its default; `None` if it is null.
///
/// Errors: 40515 for a value that is not an int64, 31034 out of range. The range of the year is not checked.
fn part(call: &Call<'_, '_>, position: usize, default: i64) -> Result<Option<i64>> {
    let name = ARGUMENTS.parameters.get(position).map_or("", |parameter| parameter.name);
    if !call.has_argument(position) {
        return Ok(Some(default));
    }
    let Some(found) = call.get_non_null(position)? else { return Ok(None) };
    let Some(integer) = found.as_i64() else {
        let (kind, value) = (found.kind().alias(), show::value(found));
        bail!(40515, "'{name}' must evaluate to an integer, found {kind} with value {value}");
    };
    let is_wide = matches!(name, "year" | "isoWeekYear" | "second" | "millisecond");
    if !is_wide && i16::try_from(integer).is_err() {
        bail!(
            31034,
            "'{name}' must evaluate to a value in the range [-32768, 32767]; value {integer} is not in range"
        );
    }
    Ok(Some(integer))
}

/// Evaluates the parts from the position `first`; `None` at the first null.
fn consecutive<const N: usize>(call: &Call<'_, '_>, first: usize, default: i64) -> Result<Option<[i64; N]>> {
    let mut found = [0; N];
    for (position, slot) in (first..).zip(&mut found) {
        let Some(part) = part(call, position, default)? else { return Ok(None) };
        *slot = part;
    }
    Ok(Some(found))
}

/// Evaluates `$dateFromParts`. The time of day and the zone precede the date, as in MongoDB.
///
/// Errors: errors of the parts and the zone, 40523 and 31095 for the year, DurationOverflow out of range.
pub(in super::super) fn from_parts<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let Some([hour, minute, second, milli]) = consecutive(call, HOUR, 0)? else { return null() };
    let Some(zone) = zone(call, ZONE)? else { return null() };
    let iso = call.has_argument(ISO_YEAR);
    let (first, name, code) = if iso { (ISO_YEAR, "isoWeekYear", 31095) } else { (YEAR, "year", 40523) };
    let Some([year, month, day]) = consecutive(call, first, 1)? else { return null() };
    if !(1..=9999).contains(&year) {
        let message = format!("'{name}' must evaluate to an integer in the range 1 to 9999, found {year}");
        return Err(Error::new(ErrorCode::Location(code), message));
    }
    let civil = if iso {
        let days = calendar::iso_to_days(IsoDate { year, week: month, weekday: day });
        let start = days.and_then(|days| days.checked_mul(DAY)).map(Civil::from_local);
        start.map(|start| Civil { hour, minute, second, milli, ..start })
    } else {
        Some(Civil { year, month, day, hour, minute, second, milli })
    };
    // MongoDB computes in microseconds.
    let local = milli.checked_mul(1000).and(civil).and_then(Civil::to_local).ok_or_else(|| {
        err!(
            DurationOverflow,
            "Overflow casting from a lower-precision duration to a higher-precision duration"
        )
    })?;
    value(Value::DateTime(zone.to_utc(local, 0)))
}

/// Formats `$dateFromParts` as BSON.
pub(in super::super) fn describe_from_parts(call: &CallNode, name: FieldName<'_>, out: &mut Builder) {
    out.begin_document(name);
    for (parameter, node) in ARGUMENTS.parameters.iter().zip(&call.operands) {
        append(node, FieldName::literal(parameter.name), out);
    }
    out.end();
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{check, check_described, check_error, check_parse_error};

    const DATE: &str = "{d: ISODate('2017-01-01T03:04:05.006Z')}";

    #[test]
    fn parts() {
        check("{$year: '$d'}", DATE, "2017");
        check("{$month: ['$d']}", DATE, "1");
        check("{$dayOfMonth: {date: '$d', timezone: 'America/New_York'}}", DATE, "31");
        check("{$dayOfYear: '$d'}", DATE, "1");
        check("{$dayOfWeek: '$d'}", DATE, "1");
        check("{$hour: {date: '$d', timezone: '+0530'}}", DATE, "8");
        check("{$minute: '$d'}", DATE, "4");
        check("{$second: '$d'}", DATE, "5");
        check("{$millisecond: '$d'}", DATE, "6");
        check("{$week: '$d'}", DATE, "1");
        check("{$isoWeek: '$d'}", DATE, "52");
        check("{$isoWeekYear: '$d'}", DATE, "NumberLong(2016)");
        check("{$isoDayOfWeek: '$d'}", DATE, "7");
        check("{$year: null}", "{}", "null");
        check("{$year: {date: '$d', timezone: '$z'}}", DATE, "null");
        check("{$year: ObjectId('58c7cba47bbadf523cf2c313')}", "{}", "2017");
        check_described("{$year: '$d'}", "{$year: {date: '$d'}}");
    }

    #[test]
    fn errors() {
        check_error("{$year: 'x'}", "{}", 16006);
        check_error("{$year: {date: '$d', timezone: 'Nowhere'}}", DATE, 40485);
        check_error("{$year: {date: '$d', timezone: 1}}", DATE, 40517);
        check("{$year: {date: '$d', timezone: '$z'}}", "{z: 'Nowhere'}", "null");
        check_error("{$year: {date: '$d', timezone: '$z'}}", "{d: 'x'}", 16006);
        check_error("{$year: {date: '$d', timezone: null}}", "{d: 'x'}", 16006);
        check_parse_error("{$year: {date: '$d', timezone: 'Nowhere'}}", 40485);
        check_parse_error("{$week: []}", 40536);
        check_parse_error("{$week: {x: 1}}", 40535);
        check_parse_error("{$week: {timezone: 'x'}}", 40539);
    }

    #[test]
    fn all_parts_at_once() {
        check(
            "{$dateToParts: {date: '$d'}}",
            DATE,
            "{year: 2017, month: 1, day: 1, hour: 3, minute: 4, second: 5, millisecond: 6}",
        );
        check(
            "{$dateToParts: {date: '$d', iso8601: true}}",
            DATE,
            "{isoWeekYear: 2016, isoWeek: 52, isoDayOfWeek: 7, hour: 3, minute: 4, second: 5, millisecond: 6}",
        );
        check_error("{$dateToParts: {date: '$d', iso8601: 1}}", DATE, 40521);
        check("{$dateToParts: {date: '$d', timezone: '$z', iso8601: '$i'}}", "{i: 5}", "null");
        check_error("{$dateToParts: {date: '$x', timezone: 'UTC', iso8601: '$i'}}", "{i: 5}", 40521);
        check("{$dateToParts: {date: '$d', timezone: null, iso8601: '$i'}}", "{d: 'x', i: 5}", "null");
        check_parse_error("{$dateToParts: {date: '$d', timezone: 'Nowhere'}}", 40485);
        check_parse_error("{$dateToParts: 1}", 40524);
        check_parse_error("{$dateToParts: {x: 1}}", 40520);
        check_parse_error("{$dateToParts: {}}", 40522);
    }

    #[test]
    fn timestamps() {
        check("{$tsSecond: '$t'}", "{t: Timestamp(7, 3)}", "NumberLong(7)");
        check("{$tsIncrement: '$t'}", "{t: Timestamp(7, 3)}", "NumberLong(3)");
        check_error("{$tsSecond: 1}", "{}", 5687301);
    }

    #[test]
    fn order_and_ranges_of_the_parts() {
        check("{$dateFromParts: {year: '$y', hour: '$h'}}", "{y: 'x', h: null}", "null");
        check("{$dateFromParts: {year: '$y', timezone: '$z'}}", "{y: 'x'}", "null");
        check("{$dateFromParts: {year: '$y', day: null}}", "{y: 0}", "null");
        check_error("{$dateFromParts: {year: '$y', timezone: '$z'}}", "{y: null, z: 'Bad'}", 40485);
        for (part, value, code) in [
            ("year", "NumberLong('1099511627776')", 40523),
            ("isoWeekYear", "NumberLong('1099511627776')", 31095),
            ("isoWeekYear", "0", 31095),
            ("isoWeekYear", "10000", 31095),
            ("year: 1970, month", "NumberLong('1099511627776')", 31034),
            ("year: 1970, hour", "-32769", 31034),
            ("year: 1970, millisecond", "18014398509481984.0", 159),
            ("year: 1970, millisecond", "NumberLong('9223372036854775807')", 159),
            ("year: 1970, millisecond", "18014398509481984000.0", 40515),
        ] {
            check_error(&format!("{{$dateFromParts: {{{part}: '$v'}}}}"), &format!("{{v: {value}}}"), code);
        }
        check(
            "{$toLong: {$dateFromParts: {year: 1970, millisecond: NumberLong('9223372036854775')}}}",
            "{}",
            "NumberLong('9223372036854775')",
        );
    }

    #[test]
    fn dates_from_parts() {
        check(
            "{$dateFromParts: {year: 2017, month: 2, day: 3, hour: 4}}",
            "{}",
            "ISODate('2017-02-03T04:00:00Z')",
        );
        check("{$dateFromParts: {year: 2017, month: 14, day: 0}}", "{}", "ISODate('2018-01-31T00:00:00Z')");
        check("{$dateFromParts: {isoWeekYear: 2017, isoWeek: 53}}", "{}", "ISODate('2018-01-01T00:00:00Z')");
        check(
            "{$dateFromParts: {year: 2017, month: 7, timezone: 'Europe/London'}}",
            "{}",
            "ISODate('2017-06-30T23:00:00Z')",
        );
        // An ambiguous time is standard time.
        check(
            "{$dateFromParts: {year: 2024, month: 10, day: 27, hour: 2, minute: 30, timezone: 'Europe/Paris'}}",
            "{}",
            "ISODate('2024-10-27T01:30:00Z')",
        );
        check("{$dateFromParts: {year: 2017, month: null}}", "{}", "null");
        check_error("{$dateFromParts: {year: 2017, month: 1.5}}", "{}", 40515);
        check_error("{$dateFromParts: {year: 0}}", "{}", 40523);
        check_error("{$dateFromParts: {year: 2017, month: 40000}}", "{}", 31034);
        check_parse_error("{$dateFromParts: {year: '$y', timezone: 'Nowhere'}}", 40485);
        check_parse_error("{$dateFromParts: {month: 1}}", 40516);
        check_parse_error("{$dateFromParts: {year: 1, isoWeek: 1}}", 40489);
        check_parse_error("{$dateFromParts: {isoWeekYear: 1, month: 1}}", 40525);
        check_parse_error("{$dateFromParts: {x: 1}}", 40518);
    }
}
