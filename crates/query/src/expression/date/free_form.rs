//! Date strings without a format: ISO 8601, `July 4th, 2017 11am`, `7/4/17`, RFC 2822 and more.
//!
//! The text is a sequence of dates, times, zones and day names in any order, separated by blanks and commas. Each kind
//! may occur once.

use super::calendar::{HOUR, SECOND};
use super::from_string::{ParseError, Read, ZoneRead, parse_error};
use super::to_string::month_number;
use super::zone::parse_offset;

/// Result of parsing a part of a date string.
type Step<T> = std::result::Result<T, ParseError>;

/// Abbreviations of zones, with their offset from UTC in tenths of hours.
const ABBREVIATIONS: &[(&str, i64)] = &[
    ("UTC", 0),
    ("GMT", 0),
    ("WET", 0),
    ("WEST", 10),
    ("BST", 10),
    ("CET", 10),
    ("CEST", 20),
    ("EET", 20),
    ("EEST", 30),
    ("MSK", 30),
    ("IST", 55),
    ("JST", 90),
    ("AEST", 100),
    ("AEDT", 110),
    ("EST", -50),
    ("EDT", -40),
    ("CST", -60),
    ("CDT", -50),
    ("MST", -70),
    ("MDT", -60),
    ("PST", -80),
    ("PDT", -70),
    ("AKST", -90),
    ("AKDT", -80),
    ("HST", -100),
];

/// Day names, which may be abbreviated to three letters.
const WEEKDAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

/// A position in a date string.
pub(super) struct Cursor<'t> {
    text: &'t str,
    position: usize,
}

impl<'t> Cursor<'t> {
    /// Starts at the beginning of the text.
    pub(super) fn new(text: &'t str) -> Cursor<'t> {
        Cursor { text, position: 0 }
    }

    /// The byte position.
    pub(super) fn position(&self) -> usize {
        self.position
    }

    /// Whether the whole text has been read.
    pub(super) fn at_end(&self) -> bool {
        self.position >= self.text.len()
    }

    fn rest(&self) -> &'t str {
        self.text.get(self.position..).unwrap_or("")
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Consumes this character if it is next.
    pub(super) fn take(&mut self, expected: char) -> bool {
        let found = self.peek() == Some(expected);
        if found {
            self.position += expected.len_utf8();
        }
        found
    }

    fn take_any(&mut self, allowed: &str) -> Option<char> {
        let found = self.peek().filter(|c| allowed.contains(*c))?;
        self.position += found.len_utf8();
        Some(found)
    }

    /// Skips blanks and tabs.
    pub(super) fn skip_blanks(&mut self) {
        while self.take_any(" \t").is_some() {}
    }

    fn digits(&mut self, most: usize) -> &'t str {
        let count = self.rest().bytes().take(most).take_while(u8::is_ascii_digit).count();
        let digits = self.rest().get(..count).unwrap_or("");
        self.position += count;
        digits
    }

    /// Reads up to `most` digits as a number; `None` without digits.
    pub(super) fn number(&mut self, most: usize) -> Option<i64> {
        self.digits(most).parse().ok()
    }

    /// Reads a signed number.
    pub(super) fn signed_number(&mut self, most: usize) -> Option<i64> {
        let sign = if self.take_any("+-")? == '-' { -1 } else { 1 };
        self.number(most).map(|number| sign * number)
    }

    /// Reads digits after a decimal point as milliseconds.
    pub(super) fn fraction(&mut self, most: usize) -> Option<i64> {
        let digits = self.digits(most);
        if digits.is_empty() {
            return None;
        }
        format!("{digits:0<3}").get(..3)?.parse().ok()
    }

    /// Reads a run of letters.
    pub(super) fn word(&mut self) -> &'t str {
        let count = self.rest().bytes().take_while(u8::is_ascii_alphabetic).count();
        let word = self.rest().get(..count).unwrap_or("");
        self.position += count;
        word
    }

    /// Reads a zone: `Z`, `CEST`, `GMT+02:00`, `+0330`.
    pub(super) fn zone(&mut self) -> std::result::Result<ZoneRead, &'static str> {
        const UNKNOWN: &str = "The timezone could not be found in the database";
        let start = self.position;
        let word = self.word();
        let signed = matches!(self.peek(), Some('+' | '-'));
        if signed && (word.is_empty() || matches!(word, "GMT" | "UTC")) {
            return self.offset().map(|offset| ZoneRead { offset, numeric: true, name: ' ' }).ok_or(UNKNOWN);
        }
        let name = word.chars().next().ok_or(UNKNOWN)?;
        if self.peek() == Some('/') {
            self.position = start;
            return Err("passing a time zone identifier as part of the string is not allowed");
        }
        let hours = abbreviation(word).ok_or(UNKNOWN)?;
        Ok(ZoneRead { offset: hours * HOUR / 10, numeric: false, name })
    }

    fn offset(&mut self) -> Option<i64> {
        let length = |text: &str| text.bytes().take_while(|b| b.is_ascii_digit() || *b == b':').count();
        let count = 1 + length(self.rest().get(1..)?);
        let offset = parse_offset(self.rest().get(..count)?)?;
        self.position += count;
        Some(offset)
    }
}

/// Returns the offset from UTC in tenths of hours of an abbreviation or of a military time zone letter.
fn abbreviation(word: &str) -> Option<i64> {
    let upper = word.to_ascii_uppercase();
    if let [letter] = upper.as_bytes() {
        return Some(match letter {
            b'A'..=b'I' => i64::from(letter - b'A' + 1) * 10,
            b'K'..=b'M' => i64::from(letter - b'K' + 10) * 10,
            b'N'..=b'Y' => -i64::from(letter - b'N' + 1) * 10,
            b'Z' => 0,
            _ => return None,
        });
    }
    ABBREVIATIONS.iter().find(|(name, _)| *name == upper).map(|(_, hours)| *hours)
}

/// Parses a date string.
pub(super) fn read(text: &str) -> Step<Read> {
    let mut cursor = Cursor::new(text);
    let mut read = Read::default();
    while let Some(next) = cursor.peek() {
        let position = cursor.position;
        match next {
            ' ' | '\t' | ',' | ';' | '\n' => cursor.position += 1,
            '@' => unix_time(&mut cursor, &mut read)?,
            '0'..='9' => number(&mut cursor, &mut read)?,
            'T' | 't' if cursor.rest().as_bytes().get(1).is_some_and(u8::is_ascii_digit) => {
                cursor.position += 1;
                time(&mut cursor, &mut read)?;
            }
            '+' | '-' if read.year.is_none() && has_signed_date(cursor.rest()) => {
                let year = cursor.signed_number(4).unwrap_or_default();
                year_first(&mut cursor, &mut read, year, '-')?;
            }
            '+' | '-' => zone(&mut cursor, &mut read)?,
            'a'..='z' | 'A'..='Z' => word(&mut cursor, &mut read)?,
            _ => return parse_error(position, "Unexpected character"),
        }
        if cursor.position == position {
            return parse_error(position, "Unexpected character");
        }
    }
    Ok(read)
}

/// Whether text starts with a date whose year has a sign: `-0001-01-01`.
fn has_signed_date(text: &str) -> bool {
    let parts = text.as_bytes().get(1..11).map(|date| date.split(|byte| *byte == b'-'));
    let digits = |part: &[u8]| if part.iter().all(u8::is_ascii_digit) { part.len() } else { 0 };
    parts.is_some_and(|parts| parts.map(digits).eq([4, 2, 2]))
}

/// Parses seconds since 1970 after `@`.
fn unix_time(cursor: &mut Cursor<'_>, read: &mut Read) -> Step<()> {
    let position = cursor.position;
    cursor.position += 1;
    let sign = if cursor.take('-') { -1 } else { 1 };
    match cursor.number(15) {
        Some(seconds) => {
            read.instant = Some(sign * seconds * SECOND);
            Ok(())
        }
        None => parse_error(position, "Unexpected character"),
    }
}

fn zone(cursor: &mut Cursor<'_>, read: &mut Read) -> Step<()> {
    let position = cursor.position;
    if read.zone.is_some() {
        return parse_error(position, "Double timezone specification");
    }
    read.zone = Some(cursor.zone().map_err(|message| ParseError { position, message })?);
    Ok(())
}

/// Parses text that starts with a letter: a day name, `noon`, `midnight`, a month name or a zone. Day names are
/// ignored.
fn word(cursor: &mut Cursor<'_>, read: &mut Read) -> Step<()> {
    let start = cursor.position;
    let word = cursor.word().to_ascii_lowercase();
    if WEEKDAYS.iter().any(|day| *day == word || (word.len() >= 3 && day.starts_with(&word))) {
        cursor.take('.');
        return Ok(());
    }
    if let Some(hour) = match &*word {
        "noon" => Some(12),
        "midnight" => Some(0),
        _ => None,
    } {
        return set_time(read, start, [hour, 0, 0, 0]);
    }
    if let Some(month) = month_number(&word) {
        cursor.take('.');
        return month_first(cursor, read, month);
    }
    cursor.position = start;
    zone(cursor, read)
}

/// Parses the text after a month's name: `4th, 2017`, `4`, `2017`.
fn month_first(cursor: &mut Cursor<'_>, read: &mut Read, month: i64) -> Step<()> {
    while cursor.take_any(" \t.-").is_some() {}
    let digits = cursor.digits(4);
    let number = digits.parse().ok();
    if digits.len() == 4 {
        return set_date(read, cursor.position, number, month, Some(1));
    }
    ordinal(cursor);
    let end = cursor.position;
    while cursor.take_any(" \t,.-").is_some() {}
    let year = year_only(cursor);
    if year.is_none() {
        cursor.position = end;
    }
    set_date(read, end, year, month, number)
}

/// Skips `st`, `nd`, `rd`, `th` after a day.
fn ordinal(cursor: &mut Cursor<'_>) {
    let start = cursor.position;
    if !matches!(&*cursor.word().to_ascii_lowercase(), "st" | "nd" | "rd" | "th") {
        cursor.position = start;
    }
}

/// Reads a four-digit year that is not a time of day.
fn year_only(cursor: &mut Cursor<'_>) -> Option<i64> {
    let start = cursor.position;
    let digits = cursor.digits(5);
    if digits.len() == 4 && cursor.peek() != Some(':') {
        return digits.parse().ok();
    }
    cursor.position = start;
    None
}

/// Parses text that starts with digits: a date, a time, or a day before a month's name.
fn number(cursor: &mut Cursor<'_>, read: &mut Read) -> Step<()> {
    let start = cursor.position;
    let digits = cursor.digits(15);
    let (length, value) = (digits.len(), digits.parse::<i64>().unwrap_or(0));
    match (length, cursor.peek()) {
        (8, _) => {
            let (year, rest) = (value / 10_000, value % 10_000);
            return set_date(read, start, Some(year), rest / 100, Some(rest % 100));
        }
        (14, _) => {
            let (date, clock) = (value / 1_000_000, value % 1_000_000);
            set_date(read, start, Some(date / 10_000), date / 100 % 100, Some(date % 100))?;
            return set_time(read, start, [clock / 10_000, clock / 100 % 100, clock % 100, 0]);
        }
        (4, Some(separator @ ('-' | '/' | '.'))) => return year_first(cursor, read, value, separator),
        (1 | 2, Some('/')) => return month_day_year(cursor, read, value),
        (1 | 2, Some('-' | '.')) => return day_first(cursor, read, value),
        (1 | 2, Some(':')) => {
            cursor.position = start;
            return time(cursor, read);
        }
        (1 | 2, _) => {}
        (4, _) => return lone_four_digits(read, start, value),
        _ => return parse_error(start, "Unexpected character"),
    }
    let after = cursor.position;
    if meridiem(cursor).is_some() {
        cursor.position = start;
        return time(cursor, read);
    }
    cursor.position = after;
    ordinal(cursor);
    named_month_after_day(cursor, read, value, start)
}

/// Parses four lone digits: the year if only it is missing, otherwise a time of day.
fn lone_four_digits(read: &mut Read, start: usize, value: i64) -> Step<()> {
    if read.month.is_some() && read.year.is_none() {
        read.year = Some(value);
        return Ok(());
    }
    // A year before a time leads to an error that is reported for the time, as in MongoDB.
    set_time(read, start, [value / 100, value % 100, 0, 0])
}

/// Parses `4 July 2017`, `04-Jul-2017`.
fn named_month_after_day(cursor: &mut Cursor<'_>, read: &mut Read, day: i64, start: usize) -> Step<()> {
    while cursor.take_any(" \t-.").is_some() {}
    let Some(month) = month_number(cursor.word()) else { return parse_error(start, "Unexpected character") };
    let end = cursor.position;
    while cursor.take_any(" \t-.,").is_some() {}
    let year = year_only(cursor);
    if year.is_none() {
        cursor.position = end;
    }
    set_date(read, end, year, month, Some(day))
}

/// Parses `2017-07-04`, `2017/07/04`, `2017-Jul-04`, `2017-07`, `2017-W27-2`.
fn year_first(cursor: &mut Cursor<'_>, read: &mut Read, year: i64, separator: char) -> Step<()> {
    cursor.position += 1;
    let position = cursor.position;
    if cursor.take('W') {
        let Some(week) = cursor.number(2) else { return parse_error(position, "Unexpected character") };
        cursor.take('-');
        (read.iso_year, read.iso_week, read.iso_weekday) = (Some(year), Some(week), cursor.number(1));
        return Ok(());
    }
    let month = match cursor.number(2) {
        Some(month) => Some(month),
        None => month_number(cursor.word()),
    };
    let Some(month) = month else { return parse_error(position, "Unexpected character") };
    let day = if cursor.take(separator) {
        let position = cursor.position;
        Some(cursor.number(2).ok_or(ParseError { position, message: "Unexpected character" })?)
    } else {
        Some(1)
    };
    set_date(read, position, Some(year), month, day)
}

/// Parses `7/4/2017`, `7/4/17`: the American order.
fn month_day_year(cursor: &mut Cursor<'_>, read: &mut Read, month: i64) -> Step<()> {
    cursor.position += 1;
    let position = cursor.position;
    let Some(day) = cursor.number(2) else { return parse_error(position, "Unexpected character") };
    let year = if cursor.take('/') { year_of_century(cursor) } else { None };
    set_date(read, position, year, month, Some(day))
}

/// Parses `04-07-2017`, `4.7.2017`, `04-Jul-2017`: the day first.
fn day_first(cursor: &mut Cursor<'_>, read: &mut Read, day: i64) -> Step<()> {
    let start = cursor.position;
    cursor.position += 1;
    let Some(month) = cursor.number(2) else {
        cursor.position = start;
        return named_month_after_day(cursor, read, day, start);
    };
    if cursor.take_any("-.").is_none() {
        return parse_error(start, "Unexpected character");
    }
    let year = year_of_century(cursor);
    set_date(read, start, year, month, Some(day))
}

/// Reads a year of four digits, or of two digits from 1970 to 2069.
fn year_of_century(cursor: &mut Cursor<'_>) -> Option<i64> {
    let digits = cursor.digits(4);
    let year: i64 = digits.parse().ok()?;
    Some(match (digits.len(), year) {
        (1 | 2, 70..) => year + 1900,
        (1 | 2, _) => year + 2000,
        _ => year,
    })
}

/// Reads `am` or `pm` after blanks.
fn meridiem(cursor: &mut Cursor<'_>) -> Option<i64> {
    let start = cursor.position;
    cursor.skip_blanks();
    let word = cursor.rest().get(..2).map(str::to_ascii_lowercase);
    let afternoon = match word.as_deref() {
        Some("am") => 0,
        Some("pm") => 12,
        _ => {
            cursor.position = start;
            return None;
        }
    };
    cursor.position += 2;
    if cursor.peek().is_some_and(|c| c.is_ascii_alphabetic()) {
        cursor.position = start;
        return None;
    }
    Some(afternoon)
}

/// Parses `11:56`, `11:56:02.813`, `11:56.02`, `1156`, `11am`, each optionally with `am` or `pm`.
fn time(cursor: &mut Cursor<'_>, read: &mut Read) -> Step<()> {
    let position = cursor.position;
    let digits = cursor.digits(6);
    let value: i64 = digits.parse().unwrap_or(0);
    let [mut hour, mut minute, mut second, mut milli] = match digits.len() {
        1 | 2 => [value, 0, 0, 0],
        4 => [value / 100, value % 100, 0, 0],
        6 => [value / 10_000, value / 100 % 100, value % 100, 0],
        _ => return parse_error(position, "Unexpected character"),
    };
    if digits.len() <= 2 && cursor.take(':') {
        minute = cursor
            .number(2)
            .ok_or(ParseError { position: cursor.position, message: "Unexpected character" })?;
        if cursor.take_any(":.").is_some() {
            second = cursor
                .number(2)
                .ok_or(ParseError { position: cursor.position, message: "Unexpected character" })?;
        }
    }
    if cursor.take_any(".,").is_some() {
        milli = cursor
            .fraction(9)
            .ok_or(ParseError { position: cursor.position, message: "Unexpected character" })?;
    }
    if let Some(afternoon) = meridiem(cursor) {
        hour = hour % 12 + afternoon;
    }
    set_time(read, position, [hour, minute, second, milli])
}

fn set_time(read: &mut Read, position: usize, [hour, minute, second, milli]: [i64; 4]) -> Step<()> {
    if read.hour.is_some() {
        return parse_error(position, "Double time specification");
    }
    (read.hour, read.minute, read.second, read.milli) = (Some(hour), Some(minute), Some(second), Some(milli));
    Ok(())
}

fn set_date(read: &mut Read, position: usize, year: Option<i64>, month: i64, day: Option<i64>) -> Step<()> {
    if read.month.is_some() {
        return parse_error(position, "Double date specification");
    }
    (read.year, read.month, read.day) = (year.or(read.year), Some(month), day);
    Ok(())
}
