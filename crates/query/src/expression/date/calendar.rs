//! The proleptic Gregorian calendar in integers: days, weeks and times of day, and the units of time.
//!
//! Local times are milliseconds since 1970 by the local clock, so this module needs no time zones. Years far beyond
//! four digits are supported.

use super::super::evaluate::Call;
use base::bson::Value;
pub(crate) use base::calendar::{days_in_month, from_days, to_days};
use base::{Error, ErrorCode, Result, bail, err};

/// Milliseconds of a second, a minute, an hour, a day.
pub(crate) const SECOND: i64 = 1000;
pub(crate) const MINUTE: i64 = 60 * SECOND;
pub(crate) const HOUR: i64 = 60 * MINUTE;
pub(crate) const DAY: i64 = 24 * HOUR;

/// The fields of a local time. Fields out of range carry over in the conversion back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub(crate) struct Civil {
    pub year: i64,
    /// From 1.
    pub month: i64,
    /// From 1.
    pub day: i64,
    pub hour: i64,
    pub minute: i64,
    pub second: i64,
    pub milli: i64,
}

/// A date of the ISO week calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub(crate) struct IsoDate {
    pub year: i64,
    /// From 1.
    pub week: i64,
    /// From 1, which is Monday.
    pub weekday: i64,
}

impl Civil {
    /// Splits a local time into its fields.
    pub(crate) fn from_local(local: i64) -> Civil {
        let (days, time) = (local.div_euclid(DAY), local.rem_euclid(DAY));
        let (year, month, day) = from_days(days);
        Civil {
            year,
            month,
            day,
            hour: time / HOUR,
            minute: time / MINUTE % 60,
            second: time / SECOND % 60,
            milli: time % SECOND,
        }
    }

    /// Returns the local time; `None` if out of range.
    pub(crate) fn to_local(self) -> Option<i64> {
        let days = to_days(self.year, self.month, self.day)?;
        let add = |sum: Option<i64>, count: i64, unit: i64| sum?.checked_add(count.checked_mul(unit)?);
        let sum = add(Some(0), days, DAY);
        let sum = add(add(sum, self.hour, HOUR), self.minute, MINUTE);
        add(add(sum, self.second, SECOND), self.milli, 1)
    }
}

/// Returns the day of the week; 0 is Sunday.
pub(crate) fn weekday(days: i64) -> i64 {
    (days + 4).rem_euclid(7)
}

/// Returns the day of the year, from 1.
pub(crate) fn day_of_year(days: i64) -> i64 {
    let (year, _, _) = from_days(days);
    days - to_days(year, 1, 1).unwrap_or(days) + 1
}

/// Returns the week of the year. Weeks start on Sunday; days before the first Sunday are in week 0.
pub(crate) fn week_of_year(days: i64) -> i64 {
    (day_of_year(days) + 6 - weekday(days)) / 7
}

/// Returns the date in the ISO calendar.
pub(crate) fn iso(days: i64) -> IsoDate {
    let weekday = (days + 3).rem_euclid(7) + 1;
    // A week belongs to the year of its Thursday.
    let thursday = days - weekday + 4;
    let (year, _, _) = from_days(thursday);
    IsoDate { year, week: (day_of_year(thursday) - 1) / 7 + 1, weekday }
}

/// Returns the day of an ISO date; weeks and days out of range carry over.
pub(crate) fn iso_to_days(date: IsoDate) -> Option<i64> {
    // January 4 is always in week 1.
    let fourth = to_days(date.year, 1, 4)?;
    let monday = fourth - (fourth + 3).rem_euclid(7);
    monday.checked_add((date.week - 1).checked_mul(7)?)?.checked_add(date.weekday - 1)
}

/// A unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub(crate) enum Unit {
    Year,
    Quarter,
    Month,
    Week,
    Day,
    Hour,
    Minute,
    Second,
    Millisecond,
}

/// Length of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// A number of months.
    Months(i64),
    /// A number of calendar days.
    Days(i64),
    /// A number of milliseconds of elapsed time.
    Millis(i64),
}

impl Unit {
    /// Parses a unit. Errors: FailedToParse for an unknown unit.
    pub(crate) fn parse(name: &str) -> Result<Unit> {
        Ok(match name {
            "year" => Unit::Year,
            "quarter" => Unit::Quarter,
            "month" => Unit::Month,
            "week" => Unit::Week,
            "day" => Unit::Day,
            "hour" => Unit::Hour,
            "minute" => Unit::Minute,
            "second" => Unit::Second,
            "millisecond" => Unit::Millisecond,
            other => bail!(FailedToParse, "unknown time unit value: {other}"),
        })
    }

    /// Returns the name of the unit.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Unit::Year => "year",
            Unit::Quarter => "quarter",
            Unit::Month => "month",
            Unit::Week => "week",
            Unit::Day => "day",
            Unit::Hour => "hour",
            Unit::Minute => "minute",
            Unit::Second => "second",
            Unit::Millisecond => "millisecond",
        }
    }

    /// Returns the length of the unit.
    pub(crate) fn length(self) -> Length {
        match self {
            Unit::Year => Length::Months(12),
            Unit::Quarter => Length::Months(3),
            Unit::Month => Length::Months(1),
            Unit::Week => Length::Days(7),
            Unit::Day => Length::Days(1),
            Unit::Hour => Length::Millis(HOUR),
            Unit::Minute => Length::Millis(MINUTE),
            Unit::Second => Length::Millis(SECOND),
            Unit::Millisecond => Length::Millis(1),
        }
    }

    /// Returns the length in milliseconds in UTC, if it is constant.
    pub(crate) fn milliseconds(self) -> Option<i64> {
        match self.length() {
            Length::Millis(millis) => Some(millis),
            Length::Days(days) => Some(days * DAY),
            Length::Months(_) => None,
        }
    }
}

/// Evaluates a unit operand; `None` for null.
///
/// Errors: 5439013 for a value that is not a string, FailedToParse for an unknown unit.
pub(super) fn operand(call: &Call<'_, '_>, position: usize) -> Result<Option<Unit>> {
    let name = call.name();
    match call.get_non_null(position)? {
        None => Ok(None),
        Some(Value::String(text)) => Unit::parse(text)
            .map(Some)
            .map_err(|error| error.context(&format!("{name} parameter 'unit' value parsing failed"))),
        Some(other) => {
            Err(err!(5439013, "{name} requires 'unit' to be a string, but got {}", other.kind().alias()))
        }
    }
}

/// Evaluates a first day of the week, with Monday as 0; Sunday by default, `None` for null.
///
/// Errors: 5439015 for a value that is not a string, 5439016 for an unknown day of the week.
pub(super) fn start_of_week(call: &Call<'_, '_>, position: usize) -> Result<Option<i64>> {
    const DAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
    if !call.has_argument(position) {
        return Ok(Some(6));
    }
    let name = call.name();
    let error = |code, message| Error::new(ErrorCode::Location(code), message);
    let text = match call.get_non_null(position)? {
        None => return Ok(None),
        Some(Value::String(text)) => text,
        Some(other) => {
            let found = other.kind().alias();
            return Err(error(
                5439015,
                format!("{name} requires 'startOfWeek' to be a string, but got {found}"),
            ));
        }
    };
    let lower = text.to_ascii_lowercase();
    let found = DAYS.iter().position(|day| *day == lower || (lower.len() == 3 && day.starts_with(&lower)));
    found.map(|day| Some(day as i64)).ok_or_else(|| {
        error(
            5439016,
            format!("{name} parameter 'startOfWeek' value cannot be recognized as a day of a week: {text}"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_back() {
        for days in (-1_000_000..1_000_000).step_by(97) {
            assert_eq!(iso_to_days(iso(days)), Some(days));
        }
    }

    #[test]
    fn weeks() {
        let day = |y, m, d| to_days(y, m, d).unwrap();
        assert_eq!(weekday(day(2017, 1, 1)), 0);
        assert_eq!(week_of_year(day(2017, 1, 1)), 1);
        assert_eq!(week_of_year(day(2016, 1, 2)), 0);
        assert_eq!(iso(day(2017, 1, 1)), IsoDate { year: 2016, week: 52, weekday: 7 });
        assert_eq!(iso(day(2018, 12, 31)), IsoDate { year: 2019, week: 1, weekday: 1 });
    }
}
