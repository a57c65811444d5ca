//! `$dateFromParts`: from year, month and day, or from ISO year, week and day.
//!
//! ```text
//! {$dateFromParts: {year: …, month: …, day: …, hour: …, minute: …, second: …, millisecond: …, timezone: <zone>}}
//! {$dateFromParts: {isoWeekYear: …, isoWeek: …, isoDayOfWeek: …, hour: …, …}}
//! ```
//!
//! Only the year is required. Parts out of range carry over.

use super::super::arithmetic::divide::as_int32;
use super::super::evaluate::{Call, Computed, null, value};
use super::super::named::{self, Named, error_template, optional};
use super::super::node::{CallNode, Node};
use super::super::parse::Parser;
use super::super::show;
use super::super::table::Operator;
use super::calendar::{self, Civil, DAY, IsoDate};
use super::zone;
use base::bson::{Builder, FieldName, Value};
use base::{Result, bail, err};

const YEAR: usize = 0;
const ISO_YEAR: usize = 7;
const ZONE: usize = 10;

/// The arguments in the order of their evaluation.
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
pub(in super::super) fn parse(
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
    if has(ISO_YEAR) && (1..3).any(has) {
        bail!(40525, "$dateFromParts does not allow mixing ISO dates with natural dates");
    }
    Ok(node)
}

/// Evaluates a part, or returns its default; `None` if it is null.
///
/// Errors: 40515 for a value that is not an integer, 31034 out of range.
fn part(call: &Call<'_, '_>, position: usize, default: i64) -> Result<Option<i64>> {
    let name = ARGUMENTS.parameters.get(position).map_or("", |parameter| parameter.name);
    if !call.has_argument(position) {
        return Ok(Some(default));
    }
    let Some(found) = call.get_non_null(position)? else { return Ok(None) };
    let wide = matches!(name, "second" | "millisecond");
    let integer = if wide { found.as_i64() } else { as_int32(found).map(i64::from) };
    let Some(integer) = integer else {
        let (kind, value) = (found.kind().alias(), show::value(found));
        bail!(40515, "'{name}' must evaluate to an integer, found {kind} with value {value}");
    };
    if position == YEAR || position == ISO_YEAR {
        if !(1..=9999).contains(&integer) {
            bail!(40523, "'{name}' must evaluate to an integer in the range 1 to 9999, found {integer}");
        }
    } else if !wide && !(-32_768..=32_767).contains(&integer) {
        bail!(
            31034,
            "'{name}' must evaluate to a value in the range [-32768, 32767]; value {integer} is not in range"
        );
    }
    Ok(Some(integer))
}

/// Evaluates `$dateFromParts`. Errors: errors of the parts and the zone; Overflow out of range.
pub(in super::super) fn from_parts<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let iso = call.has_argument(ISO_YEAR);
    let mut read = [0; 7];
    for (index, slot) in read.iter_mut().enumerate() {
        let position = if iso && index < 3 { ISO_YEAR + index } else { index };
        let Some(found) = part(call, position, i64::from(index < 3))? else { return null() };
        *slot = found;
    }
    let Some(zone) = zone(call, ZONE)? else { return null() };
    let [year, month, day, hour, minute, second, milli] = read;
    let civil = if iso {
        let days = calendar::iso_to_days(IsoDate { year, week: month, weekday: day });
        let start = days.and_then(|days| days.checked_mul(DAY)).map(Civil::from_local);
        start.map(|start| Civil { hour, minute, second, milli, ..start })
    } else {
        Some(Civil { year, month, day, hour, minute, second, milli })
    };
    let local = civil
        .and_then(Civil::to_local)
        .ok_or_else(|| err!(DurationOverflow, "$dateFromParts: the date is out of range"))?;
    value(Value::DateTime(zone.to_utc(local)))
}

/// Formats `$dateFromParts` as BSON.
pub(in super::super) fn describe(
    call: &CallNode,
    name: FieldName<'_>,
    out: &mut Builder,
    append: &dyn Fn(&Node, FieldName<'_>, &mut Builder),
) {
    out.begin_document(name);
    for (parameter, node) in ARGUMENTS.parameters.iter().zip(&call.operands) {
        append(node, FieldName::literal(parameter.name), out);
    }
    out.end();
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{check, check_error, check_parse_error};

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
        check("{$dateFromParts: {year: 2017, month: null}}", "{}", "null");
        check_error("{$dateFromParts: {year: 2017, month: 1.5}}", "{}", 40515);
        check_error("{$dateFromParts: {year: 0}}", "{}", 40523);
        check_error("{$dateFromParts: {year: 2017, month: 40000}}", "{}", 31034);
        check_parse_error("{$dateFromParts: {month: 1}}", 40516);
        check_parse_error("{$dateFromParts: {year: 1, isoWeek: 1}}", 40489);
        check_parse_error("{$dateFromParts: {isoWeekYear: 1, month: 1}}", 40525);
        check_parse_error("{$dateFromParts: {x: 1}}", 40518);
    }
}
