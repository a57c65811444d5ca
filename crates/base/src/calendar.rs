//! The proleptic Gregorian calendar: conversion between days since 1970 and year, month and day.
//!
//! BSON dates exceed the range of jiff, which is the years -9999 to 9999.

/// Days in 400 years, the period of the calendar.
const ERA_DAYS: i64 = 146_097;
/// Days from 0000-03-01 to 1970-01-01.
const EPOCH_SHIFT: i64 = 719_468;

/// Returns the days since 1970-01-01. Months and days out of range carry over. `None` if the year is out of range.
pub fn to_days(year: i64, month: i64, day: i64) -> Option<i64> {
    let months = year.checked_mul(12)?.checked_add(month.checked_sub(1)?)?;
    let (year, month) = (months.div_euclid(12), months.rem_euclid(12) + 1);
    if year.abs() > 400_000_000 {
        return None;
    }
    // In years that start in March, the leap day is the last day.
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let month_from_march = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * month_from_march + 2) / 5;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    (era * ERA_DAYS + day_of_era - EPOCH_SHIFT).checked_add(day.checked_sub(1)?)
}

/// Returns year, month and day of a day counted from 1970-01-01.
pub fn from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + EPOCH_SHIFT;
    let (era, day_of_era) = (shifted.div_euclid(ERA_DAYS), shifted.rem_euclid(ERA_DAYS));
    let year = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

/// Returns the number of days in a month.
pub fn days_in_month(year: i64, month: i64) -> i64 {
    match (to_days(year, month, 1), to_days(year, month + 1, 1)) {
        (Some(first), Some(next)) => next - first,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_back() {
        for days in (-1_000_000..1_000_000).step_by(97) {
            let (year, month, day) = from_days(days);
            assert_eq!(to_days(year, month, day), Some(days));
        }
        assert_eq!(to_days(1970, 1, 1), Some(0));
        assert_eq!(to_days(2000, 14, 1), to_days(2001, 2, 1));
        assert_eq!(to_days(2001, 0, 1), to_days(2000, 12, 1));
        assert_eq!(days_in_month(2000, 2), 29);
        assert_eq!(days_in_month(1900, 2), 28);
    }
}
