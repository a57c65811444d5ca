//! Regular expressions as MongoDB means them: PCRE, with its options and a bound on matching.
//!
//! Patterns are compiled once and kept in a bounded cache shared by the process, since drivers
//! send the same pattern again and again and since a filter is parsed for every command. Each
//! match may take a limited number of steps, so that a pathological pattern ends with an error
//! rather than stalling the thread it runs on ([`bounded`]).

mod bounded;
mod cache;
mod literal;
mod needles;
mod pcre;
mod pcre_memory;
mod prefix;
mod search;

pub(crate) use literal::Literals;
pub use search::Searcher;

use crate::Interrupt;
use base::{Result, err};
use bounded::Compiled;
use pcre::{Code, Failure};
use pcre2_sys::{PCRE2_CASELESS, PCRE2_DOTALL, PCRE2_EXTENDED, PCRE2_MULTILINE, PCRE2_UTF};
use std::ops::Range;
use std::sync::Arc;

/// How much memory in KiB backtracking may take where there is no machine code.
const HEAP_LIMIT_KIB: u32 = 64 * 1024;

/// Before searching texts of so many bytes for others, which takes some microseconds, the clock is
/// looked at.
const LONG_SEARCH: usize = 64 * 1024;

/// The longest pattern in bytes: the bound that MongoDB sets since it took to PCRE2 in 6.1; before,
/// PCRE itself refused patterns of about twice the length.
const PATTERN_BYTES_MAX: usize = 16_384;

/// A compiled pattern. Cloning it shares the compiled code.
#[derive(Clone)]
pub struct Regex {
    compiled: Arc<Compiled>,
}

/// Where a pattern matched: byte ranges within the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captures {
    /// The whole match.
    pub whole: Range<usize>,
    /// The groups in the order of their opening brackets; `None` where a group took no part.
    pub groups: Vec<Option<Range<usize>>>,
}

/// The options `i m s x`; `u` is taken and says nothing, as matching is always by code point.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Flags {
    utf: bool,
    caseless: bool,
    multi_line: bool,
    dot_all: bool,
    extended: bool,
}

impl Flags {
    fn parse(options: &str) -> Result<Flags> {
        let mut flags = Flags { utf: true, ..Flags::default() };
        for option in options.chars() {
            match option {
                'i' => flags.caseless = true,
                'm' => flags.multi_line = true,
                's' => flags.dot_all = true,
                'x' => flags.extended = true,
                'u' => {}
                // The blank at the start is MongoDB's: no operator's name stands before it here.
                _ => return Err(err!(51108, " invalid flag in regex options: {option}")),
            }
        }
        Ok(flags)
    }
}

impl Regex {
    /// Compiles a pattern, or finds it among those compiled before.
    ///
    /// Errors: 51091 for a pattern that PCRE refuses, 51108 for an unknown option, BadValue for
    /// a NUL in the pattern.
    pub fn new(pattern: &str, options: &str) -> Result<Regex> {
        if pattern.contains('\0') {
            return Err(err!(BadValue, "Regular expression cannot contain an embedded null byte"));
        }
        if pattern.len() > PATTERN_BYTES_MAX {
            return Err(err!(
                51091,
                "Regular expression is invalid: pattern string is longer than the limit set by the application"
            ));
        }
        let flags = Flags::parse(options)?;
        if let Some(compiled) = cache::get(pattern, flags) {
            return Ok(Regex { compiled });
        }
        let compiled = Arc::new(compile(pattern, flags)?);
        cache::put(pattern, flags, &compiled);
        Ok(Regex { compiled })
    }

    /// Whether the pattern matches anywhere in the text.
    ///
    /// Errors: 51156 where matching takes too many steps. MongoDB's matcher lets such a document
    /// silently not match; an error is the honest answer. What interrupts the operation.
    pub fn is_match(&self, text: &str, interrupt: &dyn Interrupt) -> Result<bool> {
        if let Some(literals) = self.literals() {
            check_before(text.len(), interrupt)?;
            if let Some(matched) = literals.is_match(text.as_bytes()) {
                return Ok(matched);
            }
        }
        self.compiled.search(text, 0, true, None, interrupt)
    }

    /// The texts that the pattern looks for, where it is nothing but these.
    pub(crate) fn literals(&self) -> Option<&Literals> {
        self.compiled.literals()
    }

    /// The first match at or after the byte position `start`, which must lie between characters.
    ///
    /// Errors: as [`is_match`](Self::is_match).
    pub fn find_at(&self, text: &str, start: usize, interrupt: &dyn Interrupt) -> Result<Option<Captures>> {
        self.searcher(text).find_at(start, interrupt)
    }

    /// The text that every match must start with, where the pattern is anchored (`^abc`), and
    /// whether the pattern says nothing beyond it. For index bounds: strings outside
    /// `[prefix, prefix's successor)` cannot match.
    pub fn literal_prefix(pattern: &str, options: &str) -> Option<(String, bool)> {
        prefix::literal_prefix(pattern, options)
    }
}

impl std::fmt::Debug for Regex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Regex({:?})", self.compiled.pattern())
    }
}

fn compile(pattern: &str, flags: Flags) -> Result<Compiled> {
    Compiled::new(pattern, flags).map_err(|failure| match failure.is_for_memory() {
        true => no_memory(),
        false => err!(51091, "Regular expression is invalid: {}", failure.message()),
    })
}

/// Compiles a pattern that may take so many steps from one starting position.
fn build(pattern: &str, flags: Flags, steps: usize) -> std::result::Result<Code, Failure> {
    let options = [
        (flags.utf, PCRE2_UTF),
        (flags.caseless, PCRE2_CASELESS),
        (flags.multi_line, PCRE2_MULTILINE),
        (flags.dot_all, PCRE2_DOTALL),
        (flags.extended, PCRE2_EXTENDED),
    ];
    let options = options.iter().filter(|(is_set, _)| *is_set).fold(0, |all, (_, option)| all | option);
    Code::new(&format!("(*LIMIT_MATCH={steps})(*LIMIT_HEAP={HEAP_LIMIT_KIB}){pattern}"), options)
}

/// Looks at the clock before a text so long that searching it shows.
pub(crate) fn check_before(bytes: usize, interrupt: &dyn Interrupt) -> Result<()> {
    if bytes >= LONG_SEARCH { interrupt.check_now(false) } else { Ok(()) }
}

fn matching_error(failure: Failure) -> base::Error {
    match failure.is_for_memory() {
        true => no_memory(),
        false => {
            let number = failure.number();
            err!(51156, "Error occurred while executing the regular expression. Result code: {number}")
        }
    }
}

fn no_memory() -> base::Error {
    err!(ExceededMemoryLimit, "the system has no memory for a regular expression")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Uninterrupted;

    fn matches(pattern: &str, options: &str, text: &str) -> bool {
        Regex::new(pattern, options).unwrap().is_match(text, &Uninterrupted).unwrap()
    }

    #[test]
    fn options_mean_what_perl_means_by_them() {
        assert!(matches("ab", "", "xABab"));
        assert!(!matches("^ab", "", "xab"));
        assert!(matches("AB", "i", "xab"));
        assert!(matches("^b$", "m", "a\nb\nc"));
        assert!(!matches("^b$", "", "a\nb\nc"));
        assert!(matches("a.b", "s", "a\nb"));
        assert!(matches("a b # comment", "x", "ab"));
        assert!(matches("ab", "u", "ab"));
        // Before a final newline too, as PCRE has it.
        assert!(matches("b$", "", "ab\n"));
    }

    #[test]
    fn text_is_code_points_and_classes_are_ascii() {
        assert!(matches("^.$", "", "é"));
        assert!(matches("É", "i", "é"));
        assert!(!matches(r"^\w$", "", "é"));
        assert!(matches(r"(*UCP)^\w$", "", "é"));
    }

    #[test]
    fn errors_have_mongodbs_codes() {
        let error = Regex::new("[)", "").unwrap_err();
        assert_eq!(error.code().number(), 51091);
        assert_eq!(
            error.message(),
            "Regular expression is invalid: missing terminating ] for character class"
        );
        assert_eq!(Regex::new("a", "z").unwrap_err().code().number(), 51108);
        assert_eq!(Regex::new("a\0", "").unwrap_err().code().number(), 2);
        assert_eq!(Regex::new("a", "\0i").unwrap_err().code().number(), 51108);
        assert_eq!(Regex::new(&"c".repeat(16_385), "").unwrap_err().code().number(), 51091);
        assert!(matches(&"c".repeat(16_384), "", &"c".repeat(16_384)));
    }

    #[test]
    fn a_pathological_pattern_ends_with_an_error() {
        let regex = Regex::new("^(a+)+$", "").unwrap();
        let error = regex.is_match(&format!("{}b", "a".repeat(60)), &Uninterrupted).unwrap_err();
        assert_eq!(error.code().number(), 51156);
    }

    #[test]
    fn an_innocent_pattern_works_on_long_text() {
        assert!(matches("^(a|b)*c", "", &format!("{}c", "ab".repeat(10_000))));
        assert!(!matches("(.|\\n)*foo", "", &"x\n".repeat(5_000)));
    }

    #[test]
    fn captures_are_byte_ranges() {
        let regex = Regex::new("(é)|(b)", "").unwrap();
        let first = regex.find_at("xéb", 0, &Uninterrupted).unwrap().unwrap();
        assert_eq!((first.whole, first.groups), (1..3, vec![Some(1..3), None]));
        let second = regex.find_at("xéb", 3, &Uninterrupted).unwrap().unwrap();
        assert_eq!((second.whole, second.groups), (3..4, vec![None, Some(3..4)]));
        assert_eq!(regex.find_at("xéb", 4, &Uninterrupted).unwrap(), None);
        assert_eq!(regex.find_at("xéb", 5, &Uninterrupted).unwrap(), None);
    }
}
