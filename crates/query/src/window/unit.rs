//! Units of time, for windows and rates.

use base::calendar::{days_in_month, from_days, to_days};
use base::{Result, bail};

/// A unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Milliseconds(i64),
    Months(i64),
}

const SECOND: i64 = 1000;
const DAY: i64 = 24 * 60 * 60 * SECOND;

impl Unit {
    /// Parses a unit. Errors: FailedToParse for an unknown unit.
    pub(crate) fn parse(name: &str) -> Result<Unit> {
        Ok(match name {
            "millisecond" => Unit::Milliseconds(1),
            "second" => Unit::Milliseconds(SECOND),
            "minute" => Unit::Milliseconds(60 * SECOND),
            "hour" => Unit::Milliseconds(60 * 60 * SECOND),
            "day" => Unit::Milliseconds(DAY),
            "week" => Unit::Milliseconds(7 * DAY),
            "month" => Unit::Months(1),
            "quarter" => Unit::Months(3),
            "year" => Unit::Months(12),
            other => bail!(FailedToParse, "unknown time unit value: {other}"),
        })
    }

    /// Milliseconds of the unit, if its length is constant.
    pub(crate) fn milliseconds(self) -> Option<i64> {
        match self {
            Unit::Milliseconds(length) => Some(length),
            Unit::Months(_) => None,
        }
    }

    /// Adds `amount` units to a date (UTC; the last day of the month if the day does not exist). `None` beyond the
    /// range of dates.
    pub(crate) fn add(self, date: i64, amount: i64) -> Option<i64> {
        match self {
            Unit::Milliseconds(length) => date.checked_add(length.checked_mul(amount)?),
            Unit::Months(length) => add_months(date, length.checked_mul(amount)?),
        }
    }
}

fn add_months(date: i64, months: i64) -> Option<i64> {
    let (year, month, day) = from_days(date.div_euclid(DAY));
    let count = year.checked_mul(12)?.checked_add(month - 1)?.checked_add(months)?;
    let (year, month) = (count.div_euclid(12), count.rem_euclid(12) + 1);
    let days = to_days(year, month, day.min(days_in_month(year, month)))?;
    days.checked_mul(DAY)?.checked_add(date.rem_euclid(DAY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_keep_the_day_where_there_is_one() {
        const JANUARY_31_2024: i64 = 1_706_659_200_000;
        const FEBRUARY_29_2024: i64 = 1_709_164_800_000;
        assert_eq!(Unit::Months(1).add(JANUARY_31_2024, 1), Some(FEBRUARY_29_2024));
        assert_eq!(Unit::Months(12).add(FEBRUARY_29_2024, -1), Some(1_677_542_400_000));
        assert_eq!(Unit::Months(1).add(-1, 0), Some(-1));
        assert_eq!(Unit::Milliseconds(DAY).add(0, 2), Some(2 * DAY));
        assert_eq!(Unit::Months(12).add(i64::MAX, i64::MAX), None);
    }
}
