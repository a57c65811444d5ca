//! Units of time, where windows and rates count in them.

use base::{Result, err};

/// A unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Milliseconds(i64),
    Months(i64),
}

const SECOND: i64 = 1000;
const DAY: i64 = 24 * 60 * 60 * SECOND;

impl Unit {
    /// Errors: FailedToParse for an unknown unit.
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
            other => return Err(err!(FailedToParse, "unknown time unit value: {other}")),
        })
    }

    /// The milliseconds of one, where all are equally long.
    pub(crate) fn milliseconds(self) -> Option<i64> {
        match self {
            Unit::Milliseconds(length) => Some(length),
            Unit::Months(_) => None,
        }
    }

    /// The date so many units later (UTC; the last day of a month where there is no such day).
    /// `None` beyond the range of dates.
    pub(crate) fn add(self, date: i64, amount: i64) -> Option<i64> {
        match self {
            Unit::Milliseconds(length) => date.checked_add(length.checked_mul(amount)?),
            Unit::Months(length) => add_months(date, length.checked_mul(amount)?),
        }
    }
}

fn add_months(date: i64, months: i64) -> Option<i64> {
    let (year, month, day) = civil_from_days(date.div_euclid(DAY));
    let count = year.checked_mul(12)?.checked_add(month - 1)?.checked_add(months)?;
    let (year, month) = (count.div_euclid(12), count.rem_euclid(12) + 1);
    let days = days_from_civil(year, month, day.min(days_in_month(year, month)))?;
    days.checked_mul(DAY)?.checked_add(date.rem_euclid(DAY))
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days of 400 years, in which the calendar repeats; 1970-01-01 is day 719,468 from 0000-03-01.
const ERA_DAYS: i64 = 146_097;
const EPOCH_SHIFT: i64 = 719_468;

/// Year, month and day of a day counted from 1970 (years begin in March while computing).
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + EPOCH_SHIFT;
    let (era, day_of_era) = (shifted.div_euclid(ERA_DAYS), shifted.rem_euclid(ERA_DAYS));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

fn days_from_civil(year: i64, month: i64, day: i64) -> Option<i64> {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let shifted_month = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * shifted_month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era.checked_mul(ERA_DAYS)?.checked_add(day_of_era - EPOCH_SHIFT)
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
        for days in (-1_000_000..1_000_000).step_by(997) {
            let (year, month, day) = civil_from_days(days);
            assert_eq!(days_from_civil(year, month, day), Some(days));
        }
    }
}
