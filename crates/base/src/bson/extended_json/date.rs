//! Dates as ISO 8601 text, in the proleptic Gregorian calendar.

use crate::calendar::{days_in_month, from_days, to_days};

const DAY_MILLIS: i64 = 86_400_000;

/// Formats `2024-02-29T12:34:56.789Z`, without milliseconds if they are zero. `None` outside the years 1 to 9999, which
/// this format cannot hold.
pub fn format_millis(millis: i64) -> Option<String> {
    let (day, rest) = (millis.div_euclid(DAY_MILLIS), millis.rem_euclid(DAY_MILLIS));
    let (year, month, day) = from_days(day);
    if !(1..=9999).contains(&year) {
        return None;
    }
    let (seconds, fraction) = (rest / 1000, rest % 1000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let fraction = if fraction == 0 { String::new() } else { format!(".{fraction:03}") };
    Some(format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z"))
}

/// Parses a date and returns milliseconds since 1970; `None` if the text is not a date.
///
/// The format is `YYYY-MM-DD`, optionally followed by `T` or a space, `HH:MM`, `:SS`, a fraction of which three digits
/// count, and `Z` or an offset.
pub fn parse_millis(text: &str) -> Option<i64> {
    let mut reader = Reader(text.as_bytes());
    let year = reader.digits(4)?;
    reader.expect(b'-')?;
    let month = reader.digits(2).filter(|month| (1..=12).contains(month))?;
    reader.expect(b'-')?;
    let day = reader.digits(2).filter(|&day| day >= 1 && day <= days_in_month(year, month))?;
    let mut millis = to_days(year, month, day)? * DAY_MILLIS;
    if reader.skip(b'T') || reader.skip(b' ') {
        millis += reader.time()?;
        millis -= reader.offset()?;
    }
    reader.0.is_empty().then_some(millis)
}

/// Reads a date string from the front.
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
        let value = self.digits(count.min(3)).filter(|_| count > 0)?;
        self.digits(count.saturating_sub(3).min(15))?;
        Some(value * 10i64.pow(3 - count.min(3) as u32))
    }

    /// Parses the offset from UTC and returns milliseconds.
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
