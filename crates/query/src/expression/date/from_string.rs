//! `$dateFromString`: with a format, or in any of the usual formats ([`free_form`]).
//!
//! ```text
//! {$dateFromString: {dateString: <string>, format: <string>, timezone: <zone>, onError: …, onNull: …}}
//! ```

use super::super::evaluate::{Call, Computed, null, type_name, value};
use super::super::named::{Named, error_template, optional, required};
use super::super::show;
use super::calendar::{self, Civil, DAY, IsoDate, MINUTE};
use super::free_form::{self, Cursor};
use super::to_string::{Piece, for_parsing, month_number};
use super::zone::Zone;
use base::bson::Value;
use base::{Error, Result, bail, err};

/// The arguments in the order of their evaluation.
pub(in super::super) static ARGUMENTS: Named = Named {
    parameters: &[
        required("dateString", 40542, "Missing 'dateString' parameter to $dateFromString"),
        optional("format"),
        optional("timezone"),
        optional("onError"),
        optional("onNull"),
    ],
    no_object: error_template(40540, "$dateFromString only supports an object as an argument, found: {}"),
    unknown: error_template(40541, "Unrecognized argument to $dateFromString: {}"),
};

/// Parsed fields of a date string.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Read {
    pub(super) year: Option<i64>,
    pub(super) month: Option<i64>,
    pub(super) day: Option<i64>,
    pub(super) day_of_year: Option<i64>,
    pub(super) iso_year: Option<i64>,
    pub(super) iso_week: Option<i64>,
    pub(super) iso_weekday: Option<i64>,
    pub(super) hour: Option<i64>,
    pub(super) minute: Option<i64>,
    pub(super) second: Option<i64>,
    pub(super) milli: Option<i64>,
    /// The day of the week, from Sunday as 0, to which the date moves forward.
    pub(super) weekday: Option<i64>,
    /// Milliseconds that are added.
    pub(super) shift: i64,
    pub(super) zone: Option<ZoneRead>,
}

/// A zone within a date string.
#[derive(Clone, Copy, Debug)]
pub(super) struct ZoneRead {
    /// Offset from UTC in milliseconds.
    pub(super) offset: i64,
    /// Whether the zone was a numeric offset rather than a name.
    pub(super) numeric: bool,
    /// The first letter of the name.
    pub(super) name: char,
}

/// Evaluates `$dateFromString`.
///
/// Errors: 40684 if the format is not a string, errors of formats and zones. ConversionFailure, without `onError`, for
/// a value that is not a string or does not parse.
pub(in super::super) fn from_string<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let text = call.get(0)?;
    let format = match call.get_non_null(1)? {
        None => None,
        Some(Value::String(format)) => Some(for_parsing(format)?),
        Some(other) => {
            let (kind, value) = (other.kind().alias(), show::value(other));
            bail!(
                40684,
                "$dateFromString requires that 'format' be a string, found: {kind} with value {value}"
            );
        }
    };
    let zone = super::zone(call, 2)?;
    if text.is_none_or(|text| text.is_nullish()) {
        return if call.has_argument(4) { call.get(4) } else { null() };
    }
    let parsed = match text {
        Some(Value::String(text)) => match &zone {
            _ if call.has_argument(1) && format.is_none() => return null(),
            None => return null(),
            Some(zone) => read(text, format.as_deref(), zone, call.has_argument(2)),
        },
        other => Err(err!(
            ConversionFailure,
            "$dateFromString requires that 'dateString' be a string, found: {} with value {}",
            type_name(other),
            show::optional(other)
        )),
    };
    match parsed {
        Ok(millis) => value(Value::DateTime(millis)),
        Err(_) if call.has_argument(3) => call.get(3),
        Err(error) => Err(error),
    }
}

/// Parses a date string as `$toDate` does.
///
/// Errors: ConversionFailure.
pub(in super::super) fn read_free_form(text: &str) -> Result<i64> {
    // Surrounding zero bytes and no-break spaces are skipped like blanks, as in MongoDB.
    read(text.trim_matches(['\0', '\u{a0}']), None, &Zone::UTC, false)
}

/// Parses a date string. Errors: ConversionFailure, also for a zone in the text together with a zone argument.
fn read(text: &str, format: Option<&[Piece]>, zone: &Zone, zone_given: bool) -> Result<i64> {
    let found = match format {
        Some(pieces) => by_format(text, pieces),
        None => free_form::read(text),
    };
    let found = found.map_err(|ParseError { position, message }| {
        // A C string ends with NUL, which MongoDB's messages show at the end too.
        let c = text.get(position..).and_then(|rest| rest.chars().next()).unwrap_or('\0');
        err!(ConversionFailure, "Error parsing date string '{text}'; {position}: {message} '{c}'")
    })?;
    // UTC may be combined with an offset.
    if let Some(read) = found.zone.filter(|_| zone_given && !matches!(zone, Zone::Fixed(0))) {
        return Err(if read.numeric {
            err!(
                ConversionFailure,
                "you cannot pass in a date/time string with GMT offset together with a timezone argument"
            )
        } else {
            let name = read.name;
            err!(
                ConversionFailure,
                "you cannot pass in a date/time string with time zone information ('{name}') together with a timezone argument"
            )
        });
    }
    resolve(text, &found, zone)
}

/// Parse error of a date string: the byte position and MongoDB's message.
#[derive(Debug)]
pub(super) struct ParseError {
    pub(super) position: usize,
    pub(super) message: &'static str,
}

/// Returns an error at this position.
pub(super) fn parse_error<T>(position: usize, message: &'static str) -> std::result::Result<T, ParseError> {
    Err(ParseError { position, message })
}

/// Parses a date string by a format. Calendar dates and ISO week dates cannot be mixed.
fn by_format(text: &str, pieces: &[Piece]) -> std::result::Result<Read, ParseError> {
    // A NUL ends text and format, as in the library that MongoDB uses.
    let text = text.split('\0').next().unwrap_or(text);
    let pieces = pieces.split(|piece| *piece == Piece::Literal('\0')).next().unwrap_or(pieces);
    let mut cursor = Cursor::new(text);
    let mut read = Read::default();
    for piece in pieces {
        if cursor.at_end() {
            return parse_error(cursor.position(), "Data missing");
        }
        let position = cursor.position();
        match piece {
            Piece::Literal(literal) => {
                if !cursor.take(*literal) {
                    return parse_error(position, "Format literal not found");
                }
            }
            Piece::Specifier(letter) => specifier(*letter, &mut cursor, &mut read)?,
        }
    }
    if !cursor.at_end() {
        return parse_error(cursor.position(), "Trailing data");
    }
    let natural = read.year.is_some() || read.month.is_some() || read.day.is_some();
    let iso = read.iso_year.is_some() || read.iso_week.is_some() || read.iso_weekday.is_some();
    if natural && iso {
        return parse_error(text.len(), "Mixing of ISO dates with natural dates is not allowed");
    }
    if iso && read.iso_year.is_none() {
        return parse_error(text.len(), "The parsed date was invalid");
    }
    Ok(read)
}

/// Parses the text of one `%` specifier.
fn specifier(letter: char, cursor: &mut Cursor<'_>, read: &mut Read) -> std::result::Result<(), ParseError> {
    let position = cursor.position();
    let digits = |most: usize, message: &'static str, cursor: &mut Cursor<'_>| {
        cursor.number(most).map(Some).ok_or(ParseError { position, message })
    };
    let two_digits = |message: &'static str, cursor: &mut Cursor<'_>| {
        let number = cursor.number(2).filter(|_| cursor.position() == position + 2);
        number.map(Some).ok_or(ParseError { position, message })
    };
    match letter {
        'Y' => read.year = digits(4, "A four digit year could not be found", cursor)?,
        'm' => read.month = digits(2, "A two digit month could not be found", cursor)?,
        'd' => read.day = digits(2, "A two digit day could not be found", cursor)?,
        'j' if read.year.is_none() => {
            return parse_error(position, "A 'day of year' can only come after a year has been found");
        }
        'j' => read.day_of_year = digits(3, "A three digit day-of-year could not be found", cursor)?,
        'G' => read.iso_year = digits(4, "A four digit ISO year could not be found", cursor)?,
        'V' => read.iso_week = digits(2, "A two digit ISO week could not be found", cursor)?,
        'u' => read.iso_weekday = digits(1, "A single digit ISO weekday could not be found", cursor)?,
        'H' => read.hour = digits(2, "A two digit hour could not be found", cursor)?,
        'M' => read.minute = two_digits("A two digit minute could not be found", cursor)?,
        'S' => read.second = two_digits("A two digit second could not be found", cursor)?,
        'L' => {
            read.milli =
                Some(cursor.fraction(3).ok_or(ParseError {
                    position,
                    message: "A three digit millisecond could not be found",
                })?);
        }
        'b' | 'B' => {
            let month = month_number(cursor.word());
            read.month =
                Some(month.ok_or(ParseError { position, message: "A textual month could not be found" })?);
        }
        'Z' => {
            let minutes = cursor.signed_number(4);
            let minutes =
                minutes.ok_or(ParseError { position, message: "The timezone offset could not be found" })?;
            read.zone = Some(ZoneRead { offset: minutes * MINUTE, numeric: true, name: ' ' });
        }
        _ => {
            let zone = cursor.zone().map_err(|message| ParseError { position, message })?;
            read.zone = Some(zone);
        }
    }
    Ok(())
}

/// Combines the parsed fields.
fn resolve(text: &str, read: &Read, zone: &Zone) -> Result<i64> {
    let days = day(read).ok_or_else(|| {
        err!(
            ConversionFailure,
            "an incomplete date/time string has been found, with elements missing: \"{text}\""
        )
    })?;
    let invalid = |part: &str| -> Error {
        err!(
            ConversionFailure,
            "Error parsing date string '{text}'; {}: The parsed {part} was invalid '\0'",
            text.len()
        )
    };
    let fits = |part: Option<i64>, range: std::ops::RangeInclusive<i64>| {
        part.is_none_or(|part| range.contains(&part))
    };
    if !(fits(read.hour, 0..=23) && fits(read.minute, 0..=59) && fits(read.second, 0..=59)) {
        return Err(invalid("time"));
    }
    let days = days.ok_or_else(|| invalid("date"))?;
    let days = days + read.weekday.map_or(0, |weekday| (weekday - calendar::weekday(days)).rem_euclid(7));
    let start = Civil::from_local(days.checked_mul(DAY).ok_or_else(|| invalid("date"))?);
    let or_zero = |part: Option<i64>| part.unwrap_or(0);
    let local = Civil {
        hour: or_zero(read.hour),
        minute: or_zero(read.minute),
        second: or_zero(read.second),
        milli: or_zero(read.milli),
        ..start
    };
    let local =
        local.to_local().and_then(|local| local.checked_add(read.shift)).ok_or_else(|| invalid("date"))?;
    Ok(match read.zone {
        Some(zone) => local - zone.offset,
        None => zone.to_utc(local, 0),
    })
}

/// Returns the day: `None` if fields are missing, `Some(None)` if the day does not exist.
fn day(read: &Read) -> Option<Option<i64>> {
    if let Some(year) = read.iso_year {
        let (week, weekday) = (read.iso_week.unwrap_or(1), read.iso_weekday.unwrap_or(1));
        let valid = (1..=53).contains(&week) && (1..=7).contains(&weekday);
        return Some(calendar::iso_to_days(IsoDate { year, week, weekday }).filter(|_| valid));
    }
    let year = read.year?;
    if let Some(day) = read.day_of_year {
        // MongoDB 8.2 counts from 0 here, and from 1 in $dateToString. Greater numbers are days of the next years.
        return Some(calendar::to_days(year, 1, day + 1));
    }
    let (month, day) = (read.month?, read.day?);
    let valid = (1..=12).contains(&month) && (1..=calendar::days_in_month(year, month)).contains(&day);
    Some(calendar::to_days(year, month, day).filter(|_| valid))
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{check, check_error, check_parse_error};

    fn reads(arguments: &str, expected: &str) {
        check(&format!("{{$dateFromString: {{{arguments}}}}}"), "{}", &format!("ISODate('{expected}')"));
    }

    fn refuses(arguments: &str, code: i32) {
        check_error(&format!("{{$dateFromString: {{{arguments}}}}}"), "{}", code);
    }

    #[test]
    fn by_format() {
        reads("dateString: '05 12 1988', format: '%d %m %Y'", "1988-12-05T00:00:00Z");
        reads(
            "dateString: '1992 % 04', format: '%Y %% %m', onError: ISODate('2000-01-01T00:00:00Z')",
            "2000-01-01T00:00:00Z",
        );
        reads("dateString: '4/26/1992:+0445', format: '%m/%d/%Y:%z'", "1992-04-25T19:15:00Z");
        reads("dateString: '4/26/1992:+285', format: '%m/%d/%Y:%Z'", "1992-04-25T19:15:00Z");
        reads("dateString: '2017, Week 53', format: '%G, Week %V'", "2018-01-01T00:00:00Z");
        reads("dateString: '53.7.2017', format: '%V.%u.%G'", "2018-01-07T00:00:00Z");
        reads("dateString: '2020 060', format: '%Y %j'", "2020-03-01T00:00:00Z");
        reads("dateString: '2021 900', format: '%Y %j'", "2023-06-20T00:00:00Z");
        for zone in ["+2", "GMT+2", " +02:00", "(+2)", "+2:00", "+02:00:00", "GMT+0200"] {
            reads(&format!("dateString: '2017 7 4 {zone}', format: '%Y %m %d %z'"), "2017-07-03T22:00:00Z");
        }
        reads("dateString: '2017 7 4(UTC)', format: '%Y %m %d%z'", "2017-07-04T00:00:00Z");
        for (text, format) in [("1:2", "%H:%M"), ("1:02:3", "%H:%M:%S"), ("060", "%j")] {
            refuses(&format!("dateString: '{text} 2017 1 1', format: '{format} %Y %m %d'"), 241);
        }
        reads("dateString: '4 July 2017', format: '%d %B %Y'", "2017-07-04T00:00:00Z");
        reads(
            "dateString: '2017-07-04T11:56.02.8', format: '%Y-%m-%dT%H:%M.%S.%L', timezone: 'Europe/London'",
            "2017-07-04T10:56:02.800Z",
        );
        reads(
            "dateString: '2017-07-14T12:02:44.771 GMT+02', format: '%Y-%m-%dT%H:%M:%S.%L%z'",
            "2017-07-14T10:02:44.771Z",
        );
    }

    #[test]
    fn free_form() {
        let cases = [
            ("2017-07-04T11:56:02Z", "2017-07-04T11:56:02Z"),
            ("2017-07-04T11:56:02.81Z", "2017-07-04T11:56:02.810Z"),
            ("2017-07-04T11:56.02.813", "2017-07-04T11:56:02.813Z"),
            ("2017-07-06 11:36:54", "2017-07-06T11:36:54Z"),
            ("2017-07-06", "2017-07-06T00:00:00Z"),
            ("20170706T113654", "2017-07-06T11:36:54Z"),
            ("2017-07-14T12:02:44.771 GMT+02:00", "2017-07-14T10:02:44.771Z"),
            ("2017-07-14T12:02:44.771+0330", "2017-07-14T08:32:44.771Z"),
            ("2017-07-14T12:02:44.771 CEST", "2017-07-14T10:02:44.771Z"),
            ("2017-07-14T12:02:44.771 A", "2017-07-14T11:02:44.771Z"),
            ("2017-07-14T12:02:44.771 P", "2017-07-14T15:02:44.771Z"),
            ("July 4th, 2017", "2017-07-04T00:00:00Z"),
            ("July 4th, 2017 12:39:30 BST", "2017-07-04T11:39:30Z"),
            ("July 4th, 2017 11am", "2017-07-04T11:00:00Z"),
            ("July 4th, 2017 12pm", "2017-07-04T12:00:00Z"),
            ("7/4/17", "2017-07-04T00:00:00Z"),
            ("04-07-2017", "2017-07-04T00:00:00Z"),
            ("2017-Jul-04 noon", "2017-07-04T12:00:00Z"),
            ("2017-07-04 12:48:07 GMT+0545", "2017-07-04T07:03:07Z"),
            ("Tue, 04 Jul 2017 12:00:00 +0000", "2017-07-04T12:00:00Z"),
            ("@1499169362", "2017-07-04T11:56:02Z"),
            ("@1499169362.5", "2017-07-04T11:56:02.500Z"),
            ("@-1.2505", "1969-12-31T23:59:58.749Z"),
            ("17-07-04", "2017-07-04T00:00:00Z"),
            ("17-7-4", "2017-07-04T00:00:00Z"),
            ("04.07.70", "1970-07-04T00:00:00Z"),
            ("4-Jul-17", "2017-07-04T00:00:00Z"),
            ("July 4, 17", "2017-07-04T00:00:00Z"),
            ("4 VII 2017", "2017-07-04T00:00:00Z"),
            ("2017jul 1230 PDT", "2017-07-01T19:30:00Z"),
            ("2017W27", "2017-07-03T00:00:00Z"),
            ("2017W272", "2017-07-04T00:00:00Z"),
            ("2017-W01-1", "2017-01-02T00:00:00Z"),
            ("2017:07:04 12:30:00", "2017-07-04T12:30:00Z"),
            ("04/Jul/2017:12:30:00 +0200", "2017-07-04T10:30:00Z"),
            ("Tuesday, 04-Jul-17 12:30:00 UTC", "2017-07-04T12:30:00Z"),
            ("Tue Jul  4 12:30:00 2017", "2017-07-04T12:30:00Z"),
            ("Jul 4 11:30am 2017", "2017-07-04T11:30:00Z"),
            ("2017-07-04 4:08 a.m.", "2017-07-04T04:08:00Z"),
            ("2017-07-04 04:08:37:81412am", "2017-07-04T04:08:37.814Z"),
            ("2017-07-04T12.30 GMT", "2017-07-04T12:30:00Z"),
            ("2017-07-04 1156", "2017-07-04T11:56:00Z"),
            ("2017-07-04 12:30 today", "2017-07-04T00:00:00Z"),
            // The date moves forward to the day of the week, which resets the time before it.
            ("Mon, 04 Jul 2017 12:00:00 +0000", "2017-07-10T12:00:00Z"),
            ("2017-07-04 12:00 Tuesday", "2017-07-04T00:00:00Z"),
            ("2017-07-04 12:00 +2", "2017-07-04T10:00:00Z"),
            ("2017-07-04 12:00 +2:30", "2017-07-04T09:30:00Z"),
            ("2017-07-04 12:00 GMT+2", "2017-07-04T10:00:00Z"),
            ("2017-07-04 12:00 +02:30:15", "2017-07-04T09:29:45Z"),
            ("2017-07-04 12:00 (UTC)", "2017-07-04T12:00:00Z"),
            ("2017-07-04 12:00 IST", "2017-07-04T10:00:00Z"),
            ("2017-07-04 12:00 NZST", "2017-07-04T00:00:00Z"),
            ("2017-07-04 12:00 HKT", "2017-07-04T04:00:00Z"),
        ];
        for (text, expected) in cases {
            reads(&format!("dateString: '{text}'"), expected);
        }
        reads("dateString: '2017-07-04T11:56.02', timezone: 'Europe/London'", "2017-07-04T10:56:02Z");
        reads("dateString: '2024-10-27T01:30:00', timezone: 'Europe/London'", "2024-10-27T01:30:00Z");
    }

    #[test]
    fn null_and_errors() {
        check("{$dateFromString: {dateString: null}}", "{}", "null");
        check("{$dateFromString: {dateString: '$x', onNull: 1}}", "{}", "1");
        check("{$dateFromString: {dateString: 'x', onError: 2}}", "{}", "2");
        check("{$dateFromString: {dateString: 7, onError: 2}}", "{}", "2");
        check("{$dateFromString: {dateString: '2017-07-04', format: '$x'}}", "{}", "null");
        check("{$dateFromString: {dateString: '2017-07-04', timezone: '$x'}}", "{}", "null");
        for text in
            ["July 4th", "12:50:53", "2017, 12:50:53", "60.Monday1770/06:59", "nonsense", "2017-13-01"]
        {
            refuses(&format!("dateString: '{text}'"), 241);
        }
        for text in ["2017-07-04;12:30", "2017-07-04T11:56:02,813Z", "4.7.17", "2017-07-04 12:00 Z +02:00"] {
            refuses(&format!("dateString: '{text}'"), 241);
        }
        // Relative parts, which MongoDB computes.
        for text in
            ["2017-07-04 +1 day", "2017-07-04 tomorrow", "2017-07-04 +2 sat", "first day of July 2017"]
        {
            refuses(&format!("dateString: '{text}'"), 241);
        }
        refuses("dateString: 5", 241);
        refuses("dateString: '2017-07-12T22:23:55 GMT+02:00', timezone: 'Europe/Amsterdam'", 241);
        refuses("dateString: '2017-07-12T22:23:55Z', timezone: 'Europe/Amsterdam'", 241);
        refuses("dateString: '2017-07-12T22:23:55 America/New_York'", 241);
        refuses("dateString: '2018-01', format: '%Y-%m-%d'", 241);
        refuses("dateString: '2018-01', format: '%Y'", 241);
        refuses("dateString: 'ISO Day 6', format: 'ISO Day %u'", 241);
        refuses("dateString: '12/31/2018', format: '%m/%d/%G'", 241);
        refuses("dateString: '1992', format: '%n'", 18536);
        refuses("dateString: '4/26/1992', format: 5", 40684);
        check_parse_error("{$dateFromString: 'no-object'}", 40540);
        check_parse_error("{$dateFromString: {unknown: 1}}", 40541);
        check_parse_error("{$dateFromString: {}}", 40542);
    }
}
