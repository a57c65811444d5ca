//! Regular expressions with MongoDB's semantics: PCRE with its options and a limit on matching.
//!
//! Compiled patterns stay in a bounded cache of the process. Drivers send equal patterns repeatedly, and a filter is
//! parsed for every command. A match has a limited number of steps. A pathological pattern therefore ends with an error
//! instead of stalling its thread ([`bounded`]).

mod bounded;
mod literal;
mod pcre;
mod prefix;
mod search;

use crate::Interrupt;
use base::{Result, bail, err};
use bounded::Compiled;
pub(crate) use literal::Literals;
use parking_lot::Mutex;
use pcre::{Code, Failure};
use pcre2_sys::{PCRE2_CASELESS, PCRE2_DOTALL, PCRE2_EXTENDED, PCRE2_MULTILINE, PCRE2_UTF};
pub use search::Searcher;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

/// Maximum memory of backtracking without machine code, in KiB.
const HEAP_LIMIT_KIB: u32 = 64 * 1024;

/// Text size in bytes from which the clock is checked before a search, which then takes some microseconds.
const LONG_SEARCH: usize = 64 * 1024;

/// Maximum length of a pattern in bytes, as in MongoDB since 6.1 (PCRE2). PCRE itself refused patterns of about twice
/// this length before.
const PATTERN_BYTES_MAX: usize = 16_384;

/// A compiled pattern. Clones share the compiled code.
#[derive(Clone)]
pub struct Regex {
    compiled: Arc<Compiled>,
}

/// Match positions: byte ranges within the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captures {
    /// The whole match.
    pub span: Range<usize>,
    /// The groups in the order of their opening brackets; `None` for a group that took no part.
    pub groups: Vec<Option<Range<usize>>>,
}

/// The options `i m s x`. `u` is accepted without effect, because matching always uses code points.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Flags {
    utf: bool,
    caseless: bool,
    multi_line: bool,
    dot_all: bool,
    extended: bool,
}

impl Flags {
    /// Parses MongoDB's options. Errors: 51108 for an unknown option.
    fn parse(options: &str) -> Result<Flags> {
        let mut flags = Flags { utf: true, ..Flags::default() };
        for option in options.chars() {
            match option {
                'i' => flags.caseless = true,
                'm' => flags.multi_line = true,
                's' => flags.dot_all = true,
                'x' => flags.extended = true,
                'u' => {}
                // The leading blank is MongoDB's: its message has no operator name here.
                _ => bail!(51108, " invalid flag in regex options: {option}"),
            }
        }
        Ok(flags)
    }
}

impl Regex {
    /// Compiles a pattern, or returns it from the cache.
    ///
    /// Errors: 51091 for a pattern that PCRE refuses, 51108 for an unknown option, BadValue for a NUL in the pattern.
    pub fn new(pattern: &str, options: &str) -> Result<Regex> {
        if pattern.contains('\0') {
            bail!(BadValue, "Regular expression cannot contain an embedded null byte");
        }
        if pattern.len() > PATTERN_BYTES_MAX {
            bail!(
                51091,
                "Regular expression is invalid: pattern string is longer than the limit set by the application"
            );
        }
        let flags = Flags::parse(options)?;
        if let Some(compiled) = cached(pattern, flags) {
            return Ok(Regex { compiled });
        }
        let compiled = Arc::new(compile(pattern, flags)?);
        add_to_cache(pattern, flags, &compiled);
        Ok(Regex { compiled })
    }

    /// Whether the pattern matches anywhere in the text.
    ///
    /// Errors: interruption; 51156 for a match with too many steps. MongoDB's matcher silently skips a document in this
    /// case; an error is the honest answer.
    pub fn is_match(&self, text: &str, interrupt: &dyn Interrupt) -> Result<bool> {
        if let Some(literals) = self.literals() {
            check_before(text.len(), interrupt)?;
            if let Some(matched) = literals.is_match(text.as_bytes()) {
                return Ok(matched);
            }
        }
        self.compiled.search(text, 0, true, None, interrupt)
    }

    /// The texts that the pattern searches for, if it consists only of plain texts.
    pub(crate) fn literals(&self) -> Option<&Literals> {
        self.compiled.literals()
    }

    /// Returns the first match at or after the byte offset `start`, which must be a character boundary.
    ///
    /// Errors: as [`is_match`](Self::is_match).
    pub fn find_at(&self, text: &str, start: usize, interrupt: &dyn Interrupt) -> Result<Option<Captures>> {
        self.searcher(text).find_at(start, interrupt)
    }

    /// Returns the prefix of every match of an anchored pattern (`^abc`), and whether the pattern consists only of this
    /// prefix. Index bounds use it: strings outside `[prefix, prefix's successor)` cannot match.
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

/// Compiles a pattern with a step limit per starting position.
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

/// Checks for interruption before a text that takes noticeable time to search.
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

/// Maximum number of cached patterns.
const CAPACITY: usize = 256;

/// Longer patterns are not cached, because they are rare and their code is large.
const CACHED_BYTES_MAX: usize = 1024;

/// The cache of the process.
static CACHE: LazyLock<Mutex<Cache>> = LazyLock::new(|| Mutex::new(Cache::default()));

/// Compiled patterns by pattern and options.
#[derive(Default)]
struct Cache {
    entries: HashMap<(Box<str>, Flags), Entry>,
    /// Number of look-ups, the time unit of `used`.
    clock: u64,
}

/// A compiled pattern and the time of its last use, in look-ups.
struct Entry {
    compiled: Arc<Compiled>,
    used: u64,
}

/// Returns the cached code of a pattern.
fn cached(pattern: &str, flags: Flags) -> Option<Arc<Compiled>> {
    let mut cache = CACHE.lock();
    cache.clock += 1;
    let now = cache.clock;
    let entry = cache.entries.get_mut(&(Box::from(pattern), flags))?;
    entry.used = now;
    Some(entry.compiled.clone())
}

/// Caches the code of a pattern and evicts the least recently used pattern if the cache is full.
fn add_to_cache(pattern: &str, flags: Flags, compiled: &Arc<Compiled>) {
    if pattern.len() > CACHED_BYTES_MAX {
        return;
    }
    let mut cache = CACHE.lock();
    if cache.entries.len() >= CAPACITY {
        let oldest = cache.entries.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| key.clone());
        if let Some(key) = oldest {
            cache.entries.remove(&key);
        }
    }
    let used = cache.clock;
    cache.entries.insert((pattern.into(), flags), Entry { compiled: compiled.clone(), used });
    debug_assert!(cache.entries.len() <= CAPACITY);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Uninterrupted;

    fn matches(pattern: &str, options: &str, text: &str) -> bool {
        Regex::new(pattern, options).unwrap().is_match(text, &Uninterrupted).unwrap()
    }

    #[test]
    fn options_follow_perl() {
        assert!(matches("ab", "", "xABab"));
        assert!(!matches("^ab", "", "xab"));
        assert!(matches("AB", "i", "xab"));
        assert!(matches("^b$", "m", "a\nb\nc"));
        assert!(!matches("^b$", "", "a\nb\nc"));
        assert!(matches("a.b", "s", "a\nb"));
        assert!(matches("a b # comment", "x", "ab"));
        assert!(matches("ab", "u", "ab"));
        // Also before a final newline, as in PCRE.
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
        assert_eq!((first.span, first.groups), (1..3, vec![Some(1..3), None]));
        let second = regex.find_at("xéb", 3, &Uninterrupted).unwrap().unwrap();
        assert_eq!((second.span, second.groups), (3..4, vec![None, Some(3..4)]));
        assert_eq!(regex.find_at("xéb", 4, &Uninterrupted).unwrap(), None);
        assert_eq!(regex.find_at("xéb", 5, &Uninterrupted).unwrap(), None);
    }

    #[test]
    fn the_same_pattern_is_compiled_once_and_the_cache_stays_bounded() {
        let first = Regex::new("cached once", "i").unwrap();
        let second = Regex::new("cached once", "i").unwrap();
        assert!(std::sync::Arc::ptr_eq(&first.compiled, &second.compiled));
        let other = Regex::new("cached once", "").unwrap();
        assert!(!std::sync::Arc::ptr_eq(&first.compiled, &other.compiled));
        for number in 0..super::CAPACITY * 2 {
            Regex::new(&format!("filler {number}"), "").unwrap();
        }
        assert!(super::CACHE.lock().entries.len() <= super::CAPACITY);
    }
}
