//! Units of time, from milliseconds to years, and the days of the week.

use super::super::evaluate::Call;
use super::super::show;
use super::calendar::{HOUR, MINUTE, SECOND};
use base::bson::Value;
use base::{Error, ErrorCode, Result, err};

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
    /// Parses a unit.
    pub(crate) fn parse(name: &str) -> Option<Unit> {
        Some(match name {
            "year" => Unit::Year,
            "quarter" => Unit::Quarter,
            "month" => Unit::Month,
            "week" => Unit::Week,
            "day" => Unit::Day,
            "hour" => Unit::Hour,
            "minute" => Unit::Minute,
            "second" => Unit::Second,
            "millisecond" => Unit::Millisecond,
            _ => return None,
        })
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
}

/// Evaluates a unit operand; `None` for null.
///
/// Errors: 5439013 for a value that is not a string, 5439014 for an unknown unit.
pub(super) fn operand(call: &Call<'_, '_>, position: usize) -> Result<Option<Unit>> {
    let name = call.name();
    match call.get_non_null(position)? {
        None => Ok(None),
        Some(Value::String(text)) => Unit::parse(text).map(Some).ok_or_else(|| {
            err!(5439014, "{name} parameter 'unit' value cannot be recognized as a time unit: {text}")
        }),
        Some(other) => {
            let found = other.kind().alias();
            Err(err!(5439013, "{name} requires 'unit' to be a string, but got {found}"))
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
            let found = show::value(other);
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
