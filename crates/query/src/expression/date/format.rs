//! Format strings of `$dateToString` and `$dateFromString`: literal text and `%` specifiers.

use base::{Result, bail};

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
