//! Interruptible matching for any pattern and any length of text.
//!
//! PCRE limits the steps from one starting position (its match limit). Its machine code counts only some of them: a
//! repeat that scans the text and backtracks counts nothing. A hostile pattern over some kilobytes can therefore take
//! minutes without interruption.
//!
//! A first attempt has a small step limit, which suffices for all but hostile patterns. Matching then continues in
//! windows of starting positions. Each window is a separate search with its own step limit, and interruption is checked
//! between windows. The pattern of a window is preceded by a lazy repeat of any character (see [`windowed`]).
//!
//! [`pcre`](super::pcre) compiles and matches. The constants below are measured on hostile patterns; the test at the
//! end of this file prints the times.

use super::literal::Literals;
use super::pcre::{Code, Failure, Groups};
use super::{Flags, build, matching_error};
use crate::Interrupt;
use base::Result;
use parking_lot::Mutex;
use std::ops::RangeInclusive;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// PCRE's error code for a match with too many steps.
const TOO_MANY_STEPS: i32 = -47;

/// Work limit of one window: counted steps times bytes of text, because each step may scan the entire text. Some
/// hundred milliseconds in the worst case.
const WINDOW_WORK: usize = 300_000_000;

/// A window grows if the last one took less than this. Only a search shows the cost of a pattern from one position.
const WINDOW_GROWS_BELOW: Duration = Duration::from_micros(200);
/// A window shrinks if the last one took longer than this.
const WINDOW_SHRINKS_ABOVE: Duration = Duration::from_millis(2);

/// Bytes that the first window may scan, if each position scans to the end of the text.
const FIRST_WINDOW_BYTES: usize = 1 << 22;

/// Minimum step limit for texts up to this size in bytes. A repeated group takes some steps for each repetition, and
/// each of these steps scans little.
const GROUP_STEPS: usize = 65_536;

/// Upper limit of steps: the default of PCRE, and so of MongoDB.
const STEPS_MAX: usize = 10_000_000;

/// Maximum size of a short text in bytes. Short texts may take more steps in the first attempt.
const SHORT_TEXT_MAX: usize = 256;
/// Step limit of the first attempt on a short text.
const SHORT_STEPS: usize = 16_384;

/// Maximum size in bytes of a text that is first searched without windows. Patterns with a bounded extent have no
/// limit.
const LONG_TEXT_MIN: usize = 8192;
/// Step limit of the first attempt on other texts.
const LONG_STEPS: usize = 64;

/// Bounds of the maximum number of starting positions in a window. The maximum is one for every 256 bytes of text.
/// PCRE's repeats end at 65,535.
const WINDOW_MAX: RangeInclusive<usize> = 4096..=32_768;

/// Prefixes of the settings that a pattern may start with. Other verbs are part of the pattern.
const SETTINGS: [&str; 9] = ["ANY", "BSR_", "CR", "LF", "LIMIT_", "NO", "NUL", "UCP", "UTF"];

/// Minimum size in bytes of a text for an interruption check before its search.
const CHECKED_TEXT_MIN: usize = 1024;

/// Number of cached variants of a pattern.
const VARIANTS_MAX: usize = 12;

/// A pattern with its compiled variants.
pub(super) struct Compiled {
    pattern: String,
    flags: Flags,
    extent: Extent,
    /// The searched texts, if the pattern consists only of plain texts.
    literals: Option<Literals>,
    /// Compiled at once, unless the pattern consists only of plain texts.
    short: OnceLock<Code>,
    variants: Mutex<Vec<(Variant, Arc<Code>)>>,
}

/// Length of text that a pattern may scan from one starting position.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// At most the pattern's length.
    Bounded,
    /// To the end of the text, from its start only.
    Anchored,
    /// To the end of the text.
    Unbounded,
}

/// A compiled form of a pattern: with or without UTF, with a step limit, and for a window.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Variant {
    utf: bool,
    steps: usize,
    /// Number of starting positions, if the variant matches within a window.
    window: Option<usize>,
}

impl Compiled {
    /// Compiles a pattern. Errors: PCRE's, for patterns that it refuses.
    pub(super) fn new(pattern: &str, flags: Flags) -> std::result::Result<Compiled, Failure> {
        let compiled = Compiled {
            pattern: pattern.to_string(),
            flags,
            extent: extent(pattern, flags),
            literals: Literals::read(pattern, flags),
            short: OnceLock::new(),
            variants: Mutex::default(),
        };
        if compiled.literals.is_none() {
            compiled.short()?;
        }
        Ok(compiled)
    }

    /// Returns the code for short texts.
    fn short(&self) -> std::result::Result<&Code, Failure> {
        if let Some(code) = self.short.get() {
            return Ok(code);
        }
        let code = build(&self.pattern, self.flags, SHORT_STEPS)?;
        Ok(self.short.get_or_init(|| code))
    }

    pub(super) fn literals(&self) -> Option<&Literals> {
        self.literals.as_ref()
    }

    pub(super) fn pattern(&self) -> &str {
        &self.pattern
    }

    /// Whether ASCII texts can be matched by code without UTF.
    pub(super) fn works_on_bytes(&self) -> bool {
        let variant = Variant { utf: false, steps: LONG_STEPS, window: None };
        self.pattern.is_ascii() && self.variant(variant).is_ok()
    }

    /// Allocates the groups of a match.
    ///
    /// Errors: the errors of a deferred compilation.
    pub(super) fn locations(&self) -> Result<Groups> {
        let code = self.short().map_err(matching_error)?;
        code.groups().map_err(matching_error)
    }

    /// Whether the text matches at or after `start`. `locations`, if given, receive the match. `utf` may be false if
    /// text and pattern are ASCII.
    ///
    /// Errors: interruption; 51156 for a match with too many steps.
    pub(super) fn search(
        &self,
        text: &str,
        start: usize,
        utf: bool,
        mut locations: Option<&mut Groups>,
        interrupt: &dyn Interrupt,
    ) -> Result<bool> {
        if text.len() >= CHECKED_TEXT_MIN {
            interrupt.check_now(false)?;
        }
        if text.len() <= LONG_TEXT_MIN || self.extent != Extent::Unbounded {
            let outcome = if text.len() <= SHORT_TEXT_MAX && utf {
                self.short().and_then(|code| run(code, text, start, &mut locations))
            } else {
                let steps = match self.extent {
                    Extent::Anchored if text.len() > LONG_TEXT_MIN => steps_for(text.len(), false),
                    _ if text.len() <= SHORT_TEXT_MAX => SHORT_STEPS,
                    _ => LONG_STEPS,
                };
                match self.variant(Variant { utf, steps, window: None }) {
                    Ok(code) => run(&code, text, start, &mut locations),
                    Err(error) => Err(error),
                }
            };
            match outcome {
                Err(error) if error.number() == TOO_MANY_STEPS => {}
                outcome => return outcome.map_err(matching_error),
            }
        }
        self.search_windows(text, (start, utf), locations, interrupt)
    }

    /// Searches window by window, with an interruption check before each. A window with too many steps is divided; a
    /// single position with too many steps is an error.
    fn search_windows(
        &self,
        text: &str,
        (start, utf): (usize, bool),
        mut locations: Option<&mut Groups>,
        interrupt: &dyn Interrupt,
    ) -> Result<bool> {
        // A caller that searches one text repeatedly passes `utf` as false if the text is ASCII.
        let utf = utf && !(text.is_ascii() && self.works_on_bytes());
        let steps = steps_for(text.len(), utf);
        let most = (text.len() / 256).clamp(*WINDOW_MAX.start(), *WINDOW_MAX.end());
        let most = (steps / 4).clamp(1, most);
        // Powers of four keep the number of variants small. If PCRE validates the text again for each window, few
        // windows are better than short ones.
        let first = if utf { most } else { (FIRST_WINDOW_BYTES / text.len().max(1)).clamp(1, most) };
        let (mut window, mut from) = (1 << (first.ilog2() & !1), start);
        loop {
            interrupt.check_now(true)?;
            let begun = Instant::now();
            let Ok(code) = self.variant(Variant { utf, steps, window: Some(window) }) else {
                return self.search_unwindowed(text, start, steps, locations);
            };
            match run(&code, text, from, &mut locations) {
                Ok(true) => return Ok(true),
                Ok(false) => {
                    let Some(skipped) = text.get(from..).and_then(|rest| skip(rest, window, utf)) else {
                        return Ok(false);
                    };
                    from += skipped;
                    match begun.elapsed() {
                        _ if utf => {}
                        took if took < WINDOW_GROWS_BELOW && 4 * window <= most => window *= 4,
                        took if took > WINDOW_SHRINKS_ABOVE => window = (window / 4).max(1),
                        _ => {}
                    }
                }
                Err(error) if error.number() == TOO_MANY_STEPS && window > 1 => window = (window / 16).max(1),
                Err(error) => return Err(matching_error(error)),
            }
        }
    }

    /// Searches without windows, for the rare pattern that [`windowed`] refuses.
    fn search_unwindowed(
        &self,
        text: &str,
        start: usize,
        steps: usize,
        mut locations: Option<&mut Groups>,
    ) -> Result<bool> {
        let steps = (steps / text.len().max(1)).max(LONG_STEPS);
        self.variant(Variant { utf: self.flags.utf, steps, window: None })
            .and_then(|code| run(&code, text, start, &mut locations))
            .map_err(matching_error)
    }

    /// Returns the compiled variant from the cache, or compiles it and evicts the oldest.
    fn variant(&self, requested: Variant) -> std::result::Result<Arc<Code>, Failure> {
        let mut variants = self.variants.lock();
        if let Some((_, code)) = variants.iter().find(|(variant, _)| *variant == requested) {
            return Ok(code.clone());
        }
        let flags = Flags { utf: requested.utf, ..self.flags };
        let code = Arc::new(match requested.window {
            None => build(&self.pattern, flags, requested.steps)?,
            Some(window) => build(&windowed(&self.pattern, flags, window)?, flags, requested.steps)?,
        });
        if variants.len() >= VARIANTS_MAX {
            variants.remove(0);
        }
        variants.push((requested, code.clone()));
        Ok(code)
    }
}

/// Runs one search, with match positions if requested.
fn run(
    code: &Code,
    text: &str,
    start: usize,
    locations: &mut Option<&mut Groups>,
) -> std::result::Result<bool, Failure> {
    match locations {
        None => code.is_match_at(text, start),
        Some(locations) => code.find_at(text, start, locations),
    }
}

/// Returns the step limit of a window, as a power of two to keep the number of variants small. If PCRE validates the
/// whole text again for each window, fewer windows with more steps are better.
fn steps_for(length: usize, utf: bool) -> usize {
    let steps = (WINDOW_WORK / length.max(1)).clamp(LONG_STEPS, STEPS_MAX);
    let checked_again = if utf { length / 64 } else { 0 };
    let groups = if length <= GROUP_STEPS { GROUP_STEPS } else { 0 };
    steps.max(checked_again).max(groups).next_power_of_two().min(STEPS_MAX)
}

/// Returns the size of `characters` characters in bytes; `None` if the text ends earlier.
fn skip(text: &str, characters: usize, utf: bool) -> Option<usize> {
    match utf {
        false => (characters <= text.len()).then_some(characters),
        true if characters == 0 => Some(0),
        true => text.char_indices().nth(characters - 1).map(|(at, c)| at + c.len_utf8()),
    }
}

/// Returns the pattern after up to `window - 1` characters that are not part of the match.
///
/// Errors: a pattern that cannot be embedded, because it recurses into itself or contains settings.
fn windowed(pattern: &str, flags: Flags, window: usize) -> std::result::Result<String, Failure> {
    let mut rest = pattern;
    while let Some((verb, behind)) = rest.strip_prefix("(*").and_then(|verb| verb.split_once(')')) {
        if !SETTINGS.iter().any(|setting| verb.starts_with(setting)) {
            break;
        }
        rest = behind;
    }
    let (verbs, rest) = pattern.split_at(pattern.len() - rest.len());
    let unclosed = rest.rfind("\\Q") > rest.rfind("\\E");
    let refused = ["(*", "\\G", "(?R", "(?0", "\\g<", "\\g'"].iter().any(|part| rest.contains(part));
    let end = if flags.extended { "\n" } else { "" };
    let skipped = format!("(?s:.{{0,{}}}?)", window - 1);
    match refused || unclosed {
        // Refused by PCRE, to return its own error.
        true => build("(", flags, 1).map(|_| String::new()),
        false => Ok(format!("{verbs}\\G{skipped}\\K(?:{rest}{end})")),
    }
}

/// Classifies a pattern by its characters, escaped or not. A pattern with an unknown construct is unbounded.
fn extent(pattern: &str, flags: Flags) -> Extent {
    let recurses =
        ["(?R", "(?&", "(?P", "(*", "\\g", "\\k", "\\X", "\\R"].iter().any(|part| pattern.contains(part));
    let digit_follows = |sign: &str| {
        pattern.match_indices(sign).any(|(at, _)| {
            pattern.as_bytes().get(at + sign.len()).is_some_and(|next| b"+-0123456789".contains(next))
        })
    };
    let optional = pattern.matches('?').count() - pattern.matches("(?").count();
    let repeats = pattern.contains(['*', '+', '{']) || optional > 4;
    if !repeats && !recurses && !digit_follows("\\") && !digit_follows("(?") {
        return Extent::Bounded;
    }
    let anchored = pattern.starts_with('^') || pattern.starts_with("\\A");
    match anchored && !flags.multi_line && !recurses && !pattern.contains('|') && !pattern.contains("(?") {
        true => Extent::Anchored,
        false => Extent::Unbounded,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Regex;
    use super::*;
    use crate::context::Uninterrupted;
    use base::err;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    fn first(pattern: &str, text: &str) -> Option<(usize, usize)> {
        let regex = Regex::new(pattern, "").unwrap();
        let found = regex.find_at(text, 0, &Uninterrupted).unwrap();
        assert_eq!(regex.is_match(text, &Uninterrupted).unwrap(), found.is_some(), "{pattern}");
        found.map(|captures| (captures.span.start, captures.span.end))
    }

    #[test]
    fn windows_equal_one_search() {
        for filler in ["x", "\u{e9}"] {
            let text = format!("{}foo 12 foo{}", filler.repeat(20_000), filler.repeat(300));
            let at = 20_000 * filler.len();
            assert_eq!(first("fo+", &text), Some((at, at + 3)));
            assert_eq!(first(r"(\w)\1 \d+", &text), Some((at + 1, at + 6)));
            assert_eq!(first(r"(?<=o) .*?o+", &text), Some((at + 3, at + 10)));
            assert_eq!(first("(?m)^fo+", &text), None);
            assert_eq!(first(".*nothing", &text), None);
            assert_eq!(first("z*$", &text), Some((text.len(), text.len())));
            assert_eq!(first(&format!("^{filler}+fo+"), &text), Some((0, at + 3)));
            assert_eq!(first("(?i)FO+ # c", &text), None);
            assert_eq!(first("(?x) FO+ | fo+ # c", &text), Some((at, at + 3)));
            assert_eq!(first("(*UCP)fo+", &text), Some((at, at + 3)));
            assert_eq!(first(r"\Qfoo\E+", &text), Some((at, at + 3)));
            assert_eq!(first(r"o+\Qfoo", &text), None);
            assert_eq!(first(r"f\Ko+", &text), Some((at + 1, at + 3)));
            assert_eq!(first(r"\Gfo+", &text), None);
            assert_eq!(first("(*UCP)(*ANYCRLF)fo+", &text), Some((at, at + 3)));
            assert_eq!(first(r"(o)\g{1} 1+", &text), Some((at + 1, at + 5)));
        }
    }

    /// Interrupts at the third check.
    struct Third(AtomicU32);

    impl Interrupt for Third {
        fn check(&self) -> Result<()> {
            match self.0.fetch_add(1, Relaxed) {
                0..2 => Ok(()),
                _ => Err(err!(Interrupted, "operation was interrupted")),
            }
        }
    }

    #[test]
    fn hostile_patterns_are_interrupted_or_end() {
        for length in [300, 5_000, 100_000, 1_000_000] {
            for pattern in [
                "a*a*a*[cd]",
                "(?:a*+b|a)*c",
                "(a+)+$",
                "(a|b)*e?c",
                "a*[cd]",
                &"(a|a)".repeat(60),
                "(?R)?a*a*a*c",
            ] {
                let text = format!("{}b.cd", "a".repeat(length));
                let begun = Instant::now();
                let outcome = Regex::new(pattern, "").unwrap().is_match(&text, &Third(AtomicU32::new(0)));
                let taken = begun.elapsed();
                eprintln!("{pattern:.20} over {length}: {taken:?} {outcome:?}");
                assert!(taken < Duration::from_secs(20), "{pattern} over {length}: {taken:?}");
            }
        }
    }
}
