//! Date strings without a format: ISO 8601, `July 4th, 2017 11am`, `7/4/17`, RFC 2822 and more.
//!
//! The text is a sequence of dates, times, zones and day names in any order, separated by blanks, points and commas.
//! Each kind may occur once. At each position the format with the longest match applies, of equal matches the first.
//! Relative parts such as `+1 day` and `tomorrow` are refused.

use super::calendar::{self, HOUR, IsoDate, MINUTE, SECOND, to_days};
use super::from_string::{ParseError, Read, ZoneRead, parse_error};
use super::to_string::MONTHS;

/// Result of parsing a part of a date string.
type Step<T> = std::result::Result<T, ParseError>;

/// Abbreviations of zones, with their offset from UTC in minutes. MongoDB takes the first entry of its table, so `IST`
/// is the time of Israel and `KST` is half an hour behind today's.
const ABBREVIATIONS: &[(&str, i64)] = &[
    ("UTC", 0),
    ("GMT", 0),
    ("UCT", 0),
    ("WET", 0),
    ("WEST", 60),
    ("BST", 60),
    ("CET", 60),
    ("CEST", 120),
    ("MET", 60),
    ("MEST", 120),
    ("EET", 120),
    ("EEST", 180),
    ("MSK", 180),
    ("MSD", 240),
    ("IST", 120),
    ("IDT", 180),
    ("CAT", 120),
    ("SAST", 120),
    ("WAT", 60),
    ("WAST", 120),
    ("EAT", 180),
    ("PKT", 300),
    ("PKST", 360),
    ("WIB", 420),
    ("WITA", 480),
    ("WIT", 540),
    ("HKT", 480),
    ("HKST", 540),
    ("AWST", 480),
    ("AWDT", 540),
    ("KST", 510),
    ("JST", 540),
    ("ACST", 570),
    ("ACDT", 630),
    ("AEST", 600),
    ("AEDT", 660),
    ("CHST", 600),
    ("GST", 600),
    ("NZST", 720),
    ("NZDT", 780),
    ("NST", -210),
    ("AST", -240),
    ("ADT", -180),
    ("EST", -300),
    ("EDT", -240),
    ("CST", -360),
    ("CDT", -300),
    ("MST", -420),
    ("MDT", -360),
    ("PST", -480),
    ("PDT", -420),
    ("AKST", -540),
    ("AKDT", -480),
    ("HST", -600),
    ("HDT", -570),
    ("SST", -660),
];

/// Units of relative parts, which are refused.
const UNITS: &[&str] = &[
    "msec",
    "millisecond",
    "microsecond",
    "usec",
    "sec",
    "second",
    "min",
    "minute",
    "hour",
    "day",
    "week",
    "fortnight",
    "forthnight",
    "month",
    "year",
    "weekday",
];

/// Day names from Sunday, which may be abbreviated to three letters or end with `s`.
const WEEKDAYS: [&str; 7] = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];

/// Effect of a matched format.
#[derive(Clone, Copy)]
enum Kind {
    Now,
    Noon,
    Midnight,
    /// Seconds since 1970.
    Instant,
    Time,
    /// Four digits that may be a time: the year after a time.
    TimeOrYear,
    Date,
    /// A date without a year, which resets the year.
    YearlessDate,
    DateTime,
    Year,
    Weekday,
    Zone,
    Relative,
}

/// The formats. These characters are elements, other characters match themselves ([`Matcher::all`]):
///
/// ```text
/// Y 2 y       a year of four, two or up to four digits        S X     with a sign: four digits, or five and more
/// m d h i s   numbers of up to two digits                     M D H I L   the same with two digits
/// k           an hour from 1 to 12                            p a     am or pm, with or without blanks before it
/// j v w       day of the year, ISO week, day of the week      t q     an optional or a required T
/// n b o       a month: any form, short, without numerals      e       the name of a day
/// f g         a fraction of a second, g also after a colon    u x     seconds and their fraction
/// c z         a zone: an offset, a name                       r       a relative part
/// ;           a colon or a point                              # +     an optional point or hyphen, hyphen
/// _ , $       separators: optional, required, or the end      ~       optional blanks
/// {word}      this word in any case
/// ```
const FORMATS: &[(Kind, &str)] = &[
    (Kind::Now, "{now}"),
    (Kind::Noon, "{noon}"),
    (Kind::Midnight, "{midnight}"),
    (Kind::Midnight, "{today}"),
    (Kind::Instant, "@u"),
    (Kind::Instant, "@u.x"),
    (Kind::Relative, "@u."),
    (Kind::Time, "kp"),
    (Kind::Time, "k;Ip"),
    (Kind::Time, "k;i;Lp"),
    (Kind::Time, "k:I:Lga"),
    (Kind::Time, "qh"),
    (Kind::Time, "th;i"),
    (Kind::Time, "th;i;s"),
    (Kind::Time, "th;i;sf"),
    (Kind::TimeOrYear, "tHI"),
    (Kind::Time, "tHIL"),
    (Kind::Date, "m/d"),
    (Kind::Date, "m/d/y"),
    (Kind::Date, "Y/M/D"),
    (Kind::Date, "Y/M/D/"),
    (Kind::Date, "Y/m/d"),
    (Kind::Date, "S-M-D"),
    (Kind::Date, "2-M-D"),
    (Kind::Date, "X-M-D"),
    (Kind::Date, "Y-m"),
    (Kind::Date, "y-m-d"),
    (Kind::Date, "d.m.Y"),
    (Kind::Date, "d-m.Y"),
    (Kind::Date, "d.m-Y"),
    (Kind::Date, "d-m-Y"),
    (Kind::Date, "d\tm.Y"),
    (Kind::Date, "d\tm-Y"),
    (Kind::Date, "d.m.2"),
    (Kind::Date, "d\tm.2"),
    (Kind::Date, "d_n_y"),
    (Kind::Date, "n_Y"),
    (Kind::Date, "Y_n"),
    (Kind::Date, "n_d,y"),
    (Kind::YearlessDate, "n_d$"),
    (Kind::Date, "d_n"),
    (Kind::Date, "YMD"),
    (Kind::DateTime, "YMDTh:I:L"),
    (Kind::DateTime, "YMDqHIL"),
    (Kind::DateTime, "Y-M-DTH:I:Lf"),
    (Kind::DateTime, "Y-M-DTH:I:Lfc"),
    (Kind::DateTime, "Y-m-dTh:i:s"),
    (Kind::DateTime, "Y:M:D H:I:L"),
    (Kind::Date, "Y#j"),
    (Kind::Date, "Y+Wvw"),
    (Kind::Date, "Y+Wv-w"),
    (Kind::Date, "Y+Wv"),
    (Kind::Date, "b-D-y"),
    (Kind::Date, "y-b-D"),
    (Kind::DateTime, "d/b/Y:H:I:L ~c"),
    (Kind::Year, "Y"),
    (Kind::Weekday, "e"),
    (Kind::Date, "o"),
    (Kind::Zone, "c"),
    (Kind::Zone, "z"),
    (Kind::DateTime, "n_d$k;Ip"),
    (Kind::DateTime, "n_d$k;i;Lp"),
    (Kind::DateTime, "n_d$th;i"),
    (Kind::DateTime, "n_d$th;i;s"),
    (Kind::DateTime, "n_d$th;i;L~c"),
    (Kind::DateTime, "n_d$th;i;L~z"),
    (Kind::Relative, "r"),
];

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

    /// Reads a zone: `Z`, `CEST`, `(UTC)`, `GMT+02:00`, `+0330`, `+2`.
    pub(super) fn zone(&mut self) -> std::result::Result<ZoneRead, &'static str> {
        const UNKNOWN: &str = "The timezone could not be found in the database";
        while self.take_any(" \t(").is_some() {}
        let start = self.position;
        let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"/_-+".contains(byte);
        let length = self.rest().bytes().take_while(is_name).count();
        let word = self.rest().get(..length).unwrap_or("");
        let read = if word.trim_start_matches("GMT").starts_with(['+', '-']) {
            self.position += if word.starts_with("GMT") { 3 } else { 0 };
            let offset = self.offset().ok_or(UNKNOWN)?;
            ZoneRead { offset, numeric: true, name: ' ' }
        } else if word.contains('/') {
            return Err("passing a time zone identifier as part of the string is not allowed");
        } else {
            let name = word.chars().next().ok_or(UNKNOWN)?;
            let offset = abbreviation(word).ok_or(UNKNOWN)? * MINUTE;
            self.position = start + length;
            ZoneRead { offset, numeric: false, name }
        };
        while self.take(')') {}
        Ok(read)
    }

    /// Reads an offset of hours, minutes and seconds, with or without colons.
    fn offset(&mut self) -> Option<i64> {
        let sign = if self.take_any("+-")? == '-' { -1 } else { 1 };
        let length = self.rest().bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b':').count();
        let digits = self.rest().get(..length)?;
        self.position += length;
        let number = |from: usize, to: usize| digits.get(from..to)?.parse::<i64>().ok();
        let colon = digits.find(':');
        let [hours, minutes, seconds] = match (length, colon) {
            (1 | 2, None) => [number(0, length)?, 0, 0],
            (3 | 4, None) => [number(0, length - 2)?, number(length - 2, length)?, 0],
            (6, None) => [number(0, 2)?, number(2, 4)?, number(4, 6)?],
            (3..=5, Some(colon @ 1..=2)) => [number(0, colon)?, number(colon + 1, length)?, 0],
            (8, Some(2)) => [number(0, 2)?, number(3, 5)?, number(6, 8)?],
            _ => return None,
        };
        Some(sign * (hours * HOUR + minutes * MINUTE + seconds * SECOND))
    }
}

/// Returns the offset from UTC in minutes of an abbreviation or of a military time zone letter.
fn abbreviation(word: &str) -> Option<i64> {
    let upper = word.to_ascii_uppercase();
    if let [letter] = upper.as_bytes() {
        let hours = match letter {
            b'A'..=b'I' => i64::from(letter - b'A' + 1),
            b'K'..=b'M' => i64::from(letter - b'K' + 10),
            b'N'..=b'Y' => -i64::from(letter - b'N' + 1),
            b'Z' => 0,
            _ => return None,
        };
        return Some(hours * 60);
    }
    ABBREVIATIONS.iter().find(|(name, _)| *name == upper).map(|(_, minutes)| *minutes)
}

/// Fields of one matched format.
#[derive(Clone, Copy, Default)]
struct Fields {
    read: Read,
    week: Option<(i64, i64)>,
    afternoon: Option<bool>,
    /// Whether seconds since 1970 have a minus sign.
    negative: bool,
    /// The position of a zone.
    zone: Option<usize>,
}

/// Receives the end and the fields of each match.
type Found<'f> = &'f mut dyn FnMut(usize, Fields);

/// Matches formats in a text.
struct Matcher<'t> {
    text: &'t [u8],
}

impl Matcher<'_> {
    fn byte(&self, at: usize) -> u8 {
        self.text.get(at).copied().unwrap_or(0)
    }

    /// Returns the length of a run of bytes.
    fn run(&self, at: usize, of: impl Fn(u8) -> bool) -> usize {
        self.text.iter().skip(at).take_while(|byte| of(**byte)).count()
    }

    fn starts_with(&self, at: usize, word: &str) -> bool {
        let found = self.text.get(at..at + word.len());
        found.is_some_and(|found| found.eq_ignore_ascii_case(word.as_bytes()))
    }

    /// Returns the length of blanks of one kind at a position.
    fn blanks(&self, at: usize) -> usize {
        let length = self.run(at, |byte| matches!(byte, b' ' | b'\t'));
        let wide = |space: &str| {
            let rest = self.text.get(at..).unwrap_or_default();
            rest.chunks(space.len()).take_while(|chunk| *chunk == space.as_bytes()).count() * space.len()
        };
        length.max(wide("\u{a0}")).max(wide("\u{202f}"))
    }

    /// Whether a format may match: a quick check of its first number and the separator after it.
    fn may_match(&self, format: &str, at: usize, digits: usize) -> bool {
        if format.starts_with('t') && digits == 0 && !matches!(self.byte(at), b'T' | b't') {
            return false;
        }
        let mut elements = format.bytes().skip_while(|first| *first == b't' && digits > 0);
        let (first, second) = (elements.next().unwrap_or(0), elements.next().unwrap_or(0));
        if b"{nboeqz@".contains(&first) {
            return digits == 0;
        }
        if b"SX".contains(&first) {
            return matches!(self.byte(at), b'+' | b'-') || first == b'S' && digits == 4;
        }
        if !b"Yy2mdkhi".contains(&first) {
            return true;
        }
        let after = self.byte(at + if first == b'Y' { digits.min(4) } else { digits });
        let fits = match second {
            b';' => matches!(after, b':' | b'.'),
            b'-' | b'/' | b':' | b'.' => after == second || first == b'd' && after.is_ascii_alphabetic(),
            _ => true,
        };
        digits > 0 && fits
    }

    /// Calls `found` for each match of a format's elements, the longest numbers first. The format's length bounds the
    /// recursion.
    fn all(&self, format: &str, at: usize, fields: Fields, found: Found<'_>) {
        let Some(element) = format.chars().next() else { return found(at, fields) };
        let (rest, next) = (format.get(1..).unwrap_or(""), self.byte(at));
        let mut go = |length: usize, fields: Fields| self.all(rest, at + length, fields, found);
        match element {
            '{' => {
                let word = rest.trim_end_matches('}');
                if self.starts_with(at, word) {
                    found(at + word.len(), fields);
                }
            }
            't' | 'q' => {
                if matches!(next, b'T' | b't') {
                    go(1, fields);
                } else if element == 't' {
                    go(0, fields);
                }
            }
            ';' => {
                if matches!(next, b':' | b'.') {
                    go(1, fields);
                }
            }
            '~' => go(self.blanks(at), fields),
            '_' => go(self.run(at, |byte| b" \t.-".contains(&byte)), fields),
            ',' | '$' => {
                let length = self.run(at, |byte| b",.stndrh\t ".contains(&byte));
                if length > 0 || element == '$' && at >= self.text.len() {
                    go(length, fields);
                }
            }
            '#' | '+' => {
                if next == b'-' || element == '#' && next == b'.' {
                    go(1, fields);
                }
                go(0, fields);
            }
            'u' | 'x' | 'f' | 'g' => self.digits(element, at, fields, &mut go),
            'p' | 'a' => self.meridian(element, at, fields, &mut go),
            'c' | 'z' => self.zone(element, at, fields, &mut go),
            'n' | 'b' | 'o' => self.month(element, at, fields, &mut go),
            'e' => self.weekday(at, fields, &mut go),
            'r' => self.relative(at, fields, &mut go),
            'S' | 'X' => {
                let signed = matches!(next, b'+' | b'-');
                let skipped = usize::from(signed);
                let length = self.run(at + skipped, |byte| byte.is_ascii_digit());
                if length == 4 && element == 'S' || (5..=15).contains(&length) && element == 'X' && signed {
                    let mut fields = fields;
                    let year = self.value(at + skipped, length);
                    fields.read.year = Some(if next == b'-' { -year } else { year });
                    go(skipped + length, fields);
                }
            }
            _ if self.number(element, at, fields, &mut go) => {}
            _ if u32::from(element) == u32::from(next) => go(1, fields),
            _ => {}
        }
    }

    /// Returns the number of some digits, which fit into 18.
    fn value(&self, at: usize, length: usize) -> i64 {
        let digits = self.text.get(at..at + length.min(18)).unwrap_or_default();
        digits.iter().fold(0, |value, digit| value * 10 + i64::from(digit.wrapping_sub(b'0')))
    }

    /// Matches a number of a date or time. Returns false if the element is no such number.
    fn number(&self, element: char, at: usize, fields: Fields, go: Found<'_>) -> bool {
        let (least, most, range) = match element {
            'Y' => (4, 4, 0..=9999),
            'y' => (1, 4, 0..=9999),
            '2' => (2, 2, 0..=99),
            'm' => (1, 2, 0..=12),
            'M' => (2, 2, 0..=12),
            'd' => (1, 2, 0..=31),
            'D' => (2, 2, 0..=31),
            'h' => (1, 2, 0..=24),
            'H' => (2, 2, 0..=24),
            'k' => (1, 2, 1..=12),
            'i' => (1, 2, 0..=59),
            'I' => (2, 2, 0..=59),
            's' => (1, 2, 0..=60),
            'L' => (2, 2, 0..=60),
            'j' => (3, 3, 1..=366),
            'v' => (2, 2, 1..=53),
            'w' => (1, 1, 0..=7),
            _ => return false,
        };
        let digits = self.run(at, |byte| byte.is_ascii_digit());
        for length in (least..=most.min(digits)).rev() {
            let value = self.value(at, length);
            if !range.contains(&value) {
                continue;
            }
            let mut fields = fields;
            let read = &mut fields.read;
            match element {
                'Y' | 'y' | '2' => read.year = Some(year_of_century(value, length)),
                'm' | 'M' => read.month = Some(value),
                'd' | 'D' => read.day = Some(value),
                'h' | 'H' | 'k' => read.hour = Some(value),
                'i' | 'I' => read.minute = Some(value),
                's' | 'L' => read.second = Some(value),
                'j' => (read.month, read.day) = (Some(1), Some(value)),
                'v' => fields.week = Some((value, 1)),
                _ => fields.week = fields.week.map(|(week, _)| (week, value)),
            }
            let suffix = |suffix: &&str| {
                self.text.get(at + length..).is_some_and(|rest| rest.starts_with(suffix.as_bytes()))
            };
            if element == 'd' && ["st", "nd", "rd", "th"].iter().any(suffix) {
                go(length + 2, fields);
            }
            go(length, fields);
        }
        true
    }

    /// Matches digits of any number: seconds, and fractions of a second with or without their point.
    fn digits(&self, element: char, at: usize, mut fields: Fields, go: Found<'_>) {
        let next = self.byte(at);
        let skipped = match element {
            'u' => usize::from(next == b'-'),
            'x' => 0,
            _ if next == b'.' || element == 'g' && next == b':' => 1,
            _ => return,
        };
        let length = self.run(at + skipped, |byte| byte.is_ascii_digit());
        if element == 'u' {
            let seconds = self.value(at + skipped, length);
            fields.negative = skipped > 0;
            fields.read.second = Some(if fields.negative { -seconds } else { seconds });
            if (1..=15).contains(&length) {
                go(skipped + length, fields);
            }
        } else if length > 0 {
            let length = if element == 'x' { length.min(6) } else { length };
            let thousandths =
                (0..3).map(|digit| if digit < length { self.byte(at + skipped + digit) } else { b'0' });
            // Instants before 1970 are rounded down.
            let more = fields.negative && length > 3 && self.value(at + skipped + 3, length - 3) > 0;
            let milli = thousandths.fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
            fields.read.milli = Some(milli + i64::from(more));
            go(skipped + length, fields);
        }
    }

    /// Matches `am`, `p.m.` and so on before a blank or the end; blanks may precede `p`.
    fn meridian(&self, element: char, at: usize, mut fields: Fields, go: Found<'_>) {
        let mut end = at + if element == 'p' { self.blanks(at) } else { 0 };
        fields.afternoon = match self.byte(end) {
            b'a' | b'A' => Some(false),
            b'p' | b'P' => Some(true),
            _ => return,
        };
        end += 1 + usize::from(self.byte(end + 1) == b'.');
        if !matches!(self.byte(end), b'm' | b'M') {
            return;
        }
        end += 1 + usize::from(self.byte(end + 1) == b'.');
        if matches!(self.byte(end), 0 | b'\t' | b' ') {
            go(end.min(self.text.len()) - at, fields);
        }
    }

    /// Matches an offset, or for `z` the name of a zone.
    fn zone(&self, element: char, at: usize, mut fields: Fields, go: Found<'_>) {
        fields.zone = Some(at);
        if element == 'c' {
            let start =
                at + if self.text.get(at..).is_some_and(|rest| rest.starts_with(b"GMT")) { 3 } else { 0 };
            if matches!(self.byte(start), b'+' | b'-') {
                let mut end = 0;
                for format in ["h", "hi", "h:i", "HIL", "H:I:L"] {
                    self.all(format, start + 1, Fields::default(), &mut |at, _| end = end.max(at));
                }
                if end > 0 {
                    go(end - at, fields);
                }
            }
            return;
        }
        let letters = |at: usize| self.run(at, |byte| byte.is_ascii_alphabetic());
        let open = usize::from(self.byte(at) == b'(');
        let mut end = at + open + letters(at + open).min(6);
        if end > at + open {
            end += usize::from(self.byte(end) == b')');
            go(end - at, fields);
        }
        // A name with a slash, which is refused as a whole.
        let mut end = at + letters(at);
        while end > at && matches!(self.byte(end), b'_' | b'/' | b'-') && letters(end + 1) > 0 {
            end += 1 + letters(end + 1);
            go(end - at, fields);
        }
    }

    /// Matches a month's name; for `n` also a Roman numeral, for `b` only an abbreviation.
    fn month(&self, element: char, at: usize, mut fields: Fields, go: Found<'_>) {
        const ROMAN: [&str; 12] = ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"];
        for ((month, name), roman) in (1..).zip(MONTHS).zip(ROMAN) {
            fields.read.month = Some(month);
            if self.starts_with(at, name.get(..3).unwrap_or(name)) {
                if element != 'b' && self.starts_with(at, name) {
                    go(name.len(), fields);
                }
                if month == 9 && self.starts_with(at, "sept") {
                    go(4, fields);
                }
                go(3, fields);
            }
            if element == 'n' && self.text.get(at..).is_some_and(|rest| rest.starts_with(roman.as_bytes())) {
                go(roman.len(), fields);
            }
        }
    }

    /// Matches the name of a day, in full, in the plural or abbreviated.
    fn weekday(&self, at: usize, mut fields: Fields, go: Found<'_>) {
        for (number, name) in (0..).zip(WEEKDAYS) {
            fields.read.weekday = Some(number);
            if self.starts_with(at, name) {
                go(name.len() + usize::from(self.starts_with(at + name.len(), "s")), fields);
            } else if self.starts_with(at, name.get(..3).unwrap_or(name)) {
                go(3, fields);
            }
        }
    }

    /// Matches a relative part: signs, a number, and a unit or the name of a day.
    fn relative(&self, at: usize, fields: Fields, go: Found<'_>) {
        let mut end = at + self.run(at, |byte| matches!(byte, b'+' | b'-'));
        end += self.run(end, |byte| matches!(byte, b' ' | b'\t'));
        let digits = self.run(end, |byte| byte.is_ascii_digit());
        end += digits;
        end += self.blanks(end);
        let units =
            UNITS.iter().chain(&WEEKDAYS).filter(|unit| self.starts_with(end, unit)).map(|unit| unit.len());
        let short = WEEKDAYS.iter().any(|day| self.starts_with(end, day.get(..3).unwrap_or(day)));
        let length = units.max().or(short.then_some(3)).unwrap_or(0);
        if digits > 0 && length > 0 {
            go(end + length - at, fields);
        }
    }
}

/// Completes a year of up to two digits: 1970 to 2069.
fn year_of_century(year: i64, digits: usize) -> i64 {
    match year {
        _ if digits >= 4 => year,
        70..100 => year + 1900,
        0..70 => year + 2000,
        _ => year,
    }
}

/// Parsing state: the fields so far, and which kinds have occurred.
#[derive(Default)]
struct Parsing {
    read: Read,
    has_date: bool,
    times: usize,
    has_zone: bool,
}

/// Parses a date string.
pub(super) fn read(text: &str) -> Step<Read> {
    let text = text.trim_matches(|c: char| c.is_ascii_whitespace() || c == '\u{b}');
    let matcher = Matcher { text: text.as_bytes() };
    let mut parsing = Parsing::default();
    let mut at = 0;
    while at < text.len() {
        let mut best: Option<(usize, Kind, Fields)> = None;
        let digits = matcher.run(at, |byte| byte.is_ascii_digit());
        for (kind, format) in FORMATS.iter().filter(|(_, format)| matcher.may_match(format, at, digits)) {
            matcher.all(format, at, Fields::default(), &mut |end, fields| {
                if best.is_none_or(|(longest, ..)| end > longest) {
                    best = Some((end, *kind, fields));
                }
            });
        }
        at = match best {
            Some((end, kind, fields)) => {
                let zone = fields.zone.map(|zone| {
                    let part = text.get(zone..end).unwrap_or("");
                    Cursor::new(part).zone().map_err(|message| ParseError { position: at, message })
                });
                parsing.apply(kind, fields, zone, at)?;
                end
            }
            None if matches!(matcher.byte(at), b'.' | b',' | b'\n' | 0) => at + 1,
            None if matcher.blanks(at) > 0 => at + matcher.blanks(at),
            None => return parse_error(at, "Unexpected character"),
        };
    }
    Ok(parsing.read)
}

impl Parsing {
    /// Applies a matched format. Errors: a kind that occurs twice, an unknown zone, a relative part.
    fn apply(&mut self, kind: Kind, fields: Fields, zone: Option<Step<ZoneRead>>, at: usize) -> Step<()> {
        match kind {
            Kind::Now => {}
            Kind::Noon => self.reset_time(12),
            Kind::Midnight => self.reset_time(0),
            Kind::Weekday => {
                self.reset_time(0);
                self.read.weekday = fields.read.weekday;
            }
            Kind::Instant => {
                self.add_zone(at)?;
                let (seconds, millis) = (fields.read.second.unwrap_or(0), fields.read.milli.unwrap_or(0));
                self.reset_time(0);
                self.has_date = false;
                (self.read.year, self.read.month, self.read.day) = (Some(1970), Some(1), Some(1));
                self.read.shift += seconds * SECOND + if fields.negative { -millis } else { millis };
                self.read.zone = Some(ZoneRead { offset: 0, numeric: true, name: ' ' });
            }
            Kind::TimeOrYear if self.times == 1 => {
                self.times = 2;
                let digits = |high: Option<i64>, low: Option<i64>| high.unwrap_or(0) * 100 + low.unwrap_or(0);
                self.read.year = Some(digits(fields.read.hour, fields.read.minute));
            }
            Kind::Time | Kind::TimeOrYear => self.set_time(fields, at)?,
            Kind::Date => self.set_date(fields, at)?,
            Kind::YearlessDate => {
                self.set_date(fields, at)?;
                self.read.year = None;
            }
            Kind::DateTime => {
                self.set_time(fields, at)?;
                self.set_date(fields, at)?;
            }
            Kind::Year => self.read.year = fields.read.year,
            Kind::Zone => self.add_zone(at)?,
            Kind::Relative => return parse_error(at, "Unexpected character"),
        }
        if let Some(zone) = zone {
            self.read.zone = Some(zone?);
        }
        Ok(())
    }

    fn add_zone(&mut self, at: usize) -> Step<()> {
        if std::mem::replace(&mut self.has_zone, true) {
            return parse_error(at, "Double timezone specification");
        }
        Ok(())
    }

    /// Sets the hour, so that another time may follow, except after noon.
    fn reset_time(&mut self, hour: i64) {
        self.times = usize::from(hour > 0);
        let read = &mut self.read;
        (read.hour, read.minute, read.second, read.milli) = (Some(hour), Some(0), Some(0), Some(0));
    }

    fn set_time(&mut self, fields: Fields, at: usize) -> Step<()> {
        if self.times > 0 {
            return parse_error(at, "Double time specification");
        }
        let from = fields.read;
        let hour = from.hour.unwrap_or(0);
        let hour = fields.afternoon.map_or(hour, |afternoon| hour % 12 + if afternoon { 12 } else { 0 });
        self.reset_time(hour);
        self.times = 1;
        let or_zero = |part: Option<i64>| Some(part.unwrap_or(0));
        (self.read.minute, self.read.second) = (or_zero(from.minute), or_zero(from.second));
        self.read.milli = or_zero(from.milli);
        Ok(())
    }

    fn set_date(&mut self, fields: Fields, at: usize) -> Step<()> {
        if std::mem::replace(&mut self.has_date, true) {
            return parse_error(at, "Double date specification");
        }
        let from = fields.read;
        self.read.year = from.year.or(self.read.year);
        self.read.month = from.month.or(self.read.month);
        self.read.day = from.day.or(self.read.day);
        if let (Some(year), Some((week, weekday))) = (from.year, fields.week) {
            let day = calendar::iso_to_days(IsoDate { year, week, weekday });
            let shift = day.unwrap_or(0) - to_days(year, 1, 1).unwrap_or(0);
            self.read.shift += shift * calendar::DAY;
            (self.read.month, self.read.day) = (Some(1), Some(1));
        } else if from.year.is_some() && from.month.is_some() && from.day.is_none() {
            self.read.day = Some(1);
        }
        Ok(())
    }
}
