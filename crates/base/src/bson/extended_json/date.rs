//! Dates as ISO 8601 text, in the proleptic Gregorian calendar.

const DAY_MILLIS: i64 = 86_400_000;

/// `2024-02-29T12:34:56.789Z`, milliseconds left out where zero; `None` outside the years 1 to
/// 9999, which that form cannot hold.
pub fn format_millis(millis: i64) -> Option<String> {
    let (day, rest) = (millis.div_euclid(DAY_MILLIS), millis.rem_euclid(DAY_MILLIS));
    let (year, month, day) = civil_from_days(day);
    if !(1..=9999).contains(&year) {
        return None;
    }
    let (seconds, fraction) = (rest / 1000, rest % 1000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let fraction = if fraction == 0 { String::new() } else { format!(".{fraction:03}") };
    Some(format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z"))
}

/// Reads `YYYY-MM-DD`, optionally followed by `T` or a space, `HH:MM`, `:SS`, a fraction of which
/// three digits count, and `Z` or an offset. Milliseconds since 1970; `None` where it is no date.
pub fn parse_millis(text: &str) -> Option<i64> {
    let mut reader = Reader(text.as_bytes());
    let year = reader.digits(4)?;
    reader.expect(b'-')?;
    let month = reader.digits(2).filter(|month| (1..=12).contains(month))?;
    reader.expect(b'-')?;
    let day = reader.digits(2).filter(|&day| day >= 1 && day <= days_in_month(year, month))?;
    let mut millis = days_from_civil(year, month, day) * DAY_MILLIS;
    if reader.skip(b'T') || reader.skip(b' ') {
        millis += reader.time()?;
        millis -= reader.offset()?;
    }
    reader.0.is_empty().then_some(millis)
}

struct Reader<'t>(&'t [u8]);

impl Reader<'_> {
    fn digits(&mut self, count: usize) -> Option<i64> {
        let (digits, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        digits
            .iter()
            .try_fold(0, |number, byte| byte.is_ascii_digit().then(|| number * 10 + i64::from(byte - b'0')))
    }

    fn skip(&mut self, byte: u8) -> bool {
        let found = self.0.first() == Some(&byte);
        if found {
            self.0 = &self.0[1..];
        }
        found
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        self.skip(byte).then_some(())
    }

    fn time(&mut self) -> Option<i64> {
        let hour = self.digits(2).filter(|&hour| hour < 24)?;
        self.expect(b':')?;
        let minute = self.digits(2).filter(|&minute| minute < 60)?;
        let second = if self.skip(b':') { self.digits(2).filter(|&second| second < 60)? } else { 0 };
        let fraction = if self.skip(b'.') { self.fraction()? } else { 0 };
        Some((hour * 3600 + minute * 60 + second) * 1000 + fraction)
    }

    fn fraction(&mut self) -> Option<i64> {
        let count = self.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let kept = self.digits(count.min(3)).filter(|_| count > 0)?;
        self.digits(count.saturating_sub(3).min(15))?;
        Some(kept * 10i64.pow(3 - count.min(3) as u32))
    }

    /// The offset from UTC in milliseconds.
    fn offset(&mut self) -> Option<i64> {
        if self.0.is_empty() || self.skip(b'Z') {
            return Some(0);
        }
        let sign = if self.skip(b'-') { -1 } else { i64::from(self.skip(b'+')) };
        let hours = self.digits(2)?;
        self.skip(b':');
        let minutes = if self.0.is_empty() { 0 } else { self.digits(2)? };
        (sign != 0).then_some(sign * (hours * 60 + minutes) * 60_000)
    }
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Days since 1970 of a date; years start in March here, so that the leap day comes last.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = (shifted + 2) % 12 + 1;
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day_of_year - (153 * shifted + 2) / 5 + 1)
}
