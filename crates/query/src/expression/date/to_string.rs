//! `$dateToString`, and the format strings that it shares with `$dateFromString`: literal text and `%` specifiers.
//!
//! ```text
//! {$dateToString: {date: <date>, format: <string>, timezone: <zone>, onNull: <expression>}}
//! ```

use super::super::evaluate::{Call, Computed, null};
use super::super::named::{Named, error_template, optional, required};
use super::super::show;
use super::calendar::{self, Civil, DAY, MINUTE};
use super::instant;
use super::zone;
use super::zone::Zone;
use base::bson::Value;
use base::{Result, bail, err};
use std::fmt::Write;

/// The arguments in the order of their evaluation.
pub(in super::super) static ARGUMENTS: Named = Named {
    parameters: &[
        required("date", 18628, "Missing 'date' parameter to $dateToString"),
        optional("format"),
        optional("timezone"),
        optional("onNull"),
    ],
    no_object: error_template(18629, "$dateToString only supports an object as its argument"),
    unknown: error_template(18534, "Unrecognized argument to $dateToString: {}"),
};

/// Evaluates `$dateToString`.
///
/// Errors: 18533 if the format is not a string, errors of formats, dates and zones; 18537 for a year without four
/// digits.
pub(in super::super) fn to_string<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let date = call.get_non_null(0)?;
    // An invalid format is an error even if the date is null.
    let format = match (call.has_argument(1), call.get_non_null(1)?) {
        (false, _) => Some("%Y-%m-%dT%H:%M:%S.%L"),
        (true, None) => None,
        (true, Some(Value::String(format))) => Some(format),
        (true, Some(other)) => {
            let (kind, value) = (other.kind().alias(), show::value(other));
            bail!(
                18533,
                "$dateToString requires that 'format' be a string, found: {kind} with value {value}"
            );
        }
    };
    let pieces = format.map(for_printing).transpose()?;
    let zone = zone(call, 2)?;
    let Some(date) = date else { return on_null(call) };
    let (Some(pieces), Some(zone)) = (pieces, zone) else { return null() };
    let mut text = print(instant(date)?, &zone, &pieces)?;
    // Without a format, the output marks UTC.
    if !call.has_argument(1) && matches!(zone, Zone::Fixed(0)) {
        text.push('Z');
    }
    call.scope.text(&text)
}

fn on_null<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    if call.has_argument(3) { call.get(3) } else { null() }
}

/// Formats an instant in a zone. Errors: 18537 for a year without four digits.
fn print(millis: i64, zone: &Zone, pieces: &[Piece]) -> Result<String> {
    let local = zone.to_local(millis);
    let offset_minutes = (local.saturating_sub(millis)) / MINUTE;
    let mut out = String::new();
    for piece in pieces {
        match piece {
            Piece::Literal(c) => out.push(*c),
            Piece::Specifier(letter) => print_part(*letter, local, offset_minutes, &mut out)?,
        }
    }
    Ok(out)
}

/// Appends the text of one `%` specifier.
fn print_part(letter: char, local: i64, offset_minutes: i64, out: &mut String) -> Result<()> {
    let (civil, days) = (Civil::from_local(local), local.div_euclid(DAY));
    let iso = calendar::iso(days);
    // Writing to a string cannot fail.
    let _ = match letter {
        'Y' => write!(out, "{:04}", four_digits(civil.year)?),
        'G' => write!(out, "{:04}", four_digits(iso.year)?),
        'm' => write!(out, "{:02}", civil.month),
        'd' => write!(out, "{:02}", civil.day),
        'H' => write!(out, "{:02}", civil.hour),
        'M' => write!(out, "{:02}", civil.minute),
        'S' => write!(out, "{:02}", civil.second),
        'L' => write!(out, "{:03}", civil.milli),
        'j' => write!(out, "{:03}", calendar::day_of_year(days)),
        'w' => write!(out, "{}", calendar::weekday(days) + 1),
        'u' => write!(out, "{}", iso.weekday),
        'U' => write!(out, "{:02}", calendar::week_of_year(days)),
        'V' => write!(out, "{:02}", iso.week),
        'B' => write!(out, "{}", month_name(civil.month)),
        'b' => write!(out, "{}", month_name(civil.month).get(..3).unwrap_or_default()),
        'z' => {
            let (sign, minutes) = (sign(offset_minutes), offset_minutes.abs());
            write!(out, "{sign}{:02}{:02}", minutes / 60, minutes % 60)
        }
        _ => write!(out, "{offset_minutes}"),
    };
    Ok(())
}

fn sign(number: i64) -> char {
    if number < 0 { '-' } else { '+' }
}

fn month_name(month: i64) -> &'static str {
    usize::try_from(month - 1).ok().and_then(|index| MONTHS.get(index)).copied().unwrap_or_default()
}

fn four_digits(year: i64) -> Result<i64> {
    if (0..=9999).contains(&year) {
        return Ok(year);
    }
    Err(err!(18537, "$dateToString is only defined on year 0-9999, tried to use year {year}"))
}

/// A piece of a format string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// Literal text.
    Literal(char),
    /// `%` followed by this letter.
    Specifier(char),
}

/// The letters that both operators accept.
const BOTH: &str = "bBdGHjLmMSuVYzZ";

/// Splits a format for printing, which also accepts `%U` and `%w`.
///
/// Errors: 18535 for a lone `%` at the end, 18536 for an unknown letter.
pub(super) fn for_printing(format: &str) -> Result<Vec<Piece>> {
    pieces(format, |letter| BOTH.contains(letter) || matches!(letter, 'U' | 'w'))
}

/// Splits a format for parsing.
///
/// Errors: as [`for_printing`].
pub(super) fn for_parsing(format: &str) -> Result<Vec<Piece>> {
    pieces(format, |letter| BOTH.contains(letter))
}

/// Splits a format; `known` decides which letters are allowed.
fn pieces(format: &str, known: impl Fn(char) -> bool) -> Result<Vec<Piece>> {
    let mut pieces = Vec::new();
    let mut rest = format.chars();
    while let Some(c) = rest.next() {
        if c != '%' {
            pieces.push(Piece::Literal(c));
            continue;
        }
        pieces.push(match rest.next() {
            None => bail!(18535, "Unmatched '%' at end of format string"),
            Some('%') => Piece::Literal('%'),
            Some(letter) if known(letter) => Piece::Specifier(letter),
            Some(letter) => bail!(18536, "Invalid format character '%{letter}' in format string"),
        });
    }
    Ok(pieces)
}

/// The months' names, from January.
pub(super) const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// Returns the number of a month by its name or its first three letters.
pub(super) fn month_number(name: &str) -> Option<i64> {
    let found = MONTHS.iter().position(|month| {
        let short = month.get(..3).unwrap_or(month);
        month.eq_ignore_ascii_case(name)
            || short.eq_ignore_ascii_case(name)
            || (*month == "September" && name.eq_ignore_ascii_case("sept"))
    })?;
    Some(found as i64 + 1)
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{check, check_error, check_parse_error};

    const DATE: &str = "{d: ISODate('2017-01-01T03:04:05.006Z')}";

    #[test]
    fn every_specifier() {
        check("{$dateToString: {date: '$d'}}", DATE, "'2017-01-01T03:04:05.006Z'");
        check("{$dateToString: {date: '$d', timezone: '+02'}}", DATE, "'2017-01-01T05:04:05.006'");
        check(
            "{$dateToString: {date: '$d', format: '%Y/%m/%d %H:%M:%S.%L %%'}}",
            DATE,
            "'2017/01/01 03:04:05.006 %'",
        );
        check(
            "{$dateToString: {date: '$d', format: '%G-%V-%u %j %U %w %b %B'}}",
            DATE,
            "'2016-52-7 001 01 1 Jan January'",
        );
        check(
            "{$dateToString: {date: '$d', format: '%z %Z', timezone: 'America/New_York'}}",
            DATE,
            "'-0500 -300'",
        );
        check("{$dateToString: {date: '$d', format: '%Z', timezone: '+0045'}}", DATE, "'45'");
        check("{$dateToString: {date: '$d', format: '%Z', timezone: 'UTC'}}", DATE, "'0'");
    }

    #[test]
    fn null_and_errors() {
        check("{$dateToString: {date: '$x'}}", DATE, "null");
        check("{$dateToString: {date: '$x', onNull: 'none'}}", DATE, "'none'");
        check("{$dateToString: {date: '$d', format: '$x'}}", DATE, "null");
        check("{$dateToString: {date: '$d', timezone: '$x'}}", DATE, "null");
        check_error("{$dateToString: {date: '$d', format: 1}}", DATE, 18533);
        check_error("{$dateToString: {date: '$d', format: '%n'}}", DATE, 18536);
        check_error("{$dateToString: {date: '$d', format: '%'}}", DATE, 18535);
        check_error("{$dateToString: {date: 'x'}}", DATE, 16006);
        check_parse_error("{$dateToString: 1}", 18629);
        check_parse_error("{$dateToString: {format: '%Y'}}", 18628);
        check_parse_error("{$dateToString: {date: 1, x: 1}}", 18534);
    }
}
