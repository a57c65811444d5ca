//! Patterns that are nothing but text, searched without PCRE.
//!
//! Most patterns that applications send are words, a few of them with `|` in between, perhaps behind `^`
//! or before `$`, and often with the option `i`. Where a reader as cautious as [`prefix`](super::prefix)
//! finds that a pattern is no more than that, its texts are searched as bytes. Without UTF-8's help: no
//! character's bytes occur within another's. Letters of ASCII are folded as PCRE folds them, which is
//! with two characters that are not ASCII; where these occur PCRE is asked.

use super::Flags;
use super::needles::Needles;

/// The characters that PCRE takes for `k` and `s`, whatever the case: the sign for Kelvin and the long s.
const FOLDED_TO_ASCII: [&str; 2] = ["\u{212A}", "\u{17F}"];

/// One of the texts that a pattern looks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Branch {
    /// In lower case where the pattern ignores case.
    pub(super) text: String,
    /// Whether it is at the text's start only.
    at_start: bool,
    at_end: End,
}

/// What stands behind a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Anything.
    Open,
    /// The text's end, or a newline and the end.
    Line,
    /// The text's end.
    Text,
}

/// A pattern read as a set of texts, any of which is to be found.
#[derive(Debug)]
pub(crate) struct Literals {
    branches: Vec<Branch>,
    has_anchors: bool,
    caseless: bool,
    /// Whether a character that is not ASCII may match a letter of these texts.
    folds: bool,
    anywhere: Needles,
}

impl Literals {
    /// Reads a pattern; `None` where it isn't plain.
    pub(super) fn read(pattern: &str, flags: Flags) -> Option<Literals> {
        if flags.extended || (flags.multi_line && pattern.contains(['^', '$'])) {
            return None;
        }
        let mut branches = read_branches(pattern)?;
        if flags.caseless {
            if branches.iter().any(|branch| !branch.text.is_ascii()) {
                return None;
            }
            branches.iter_mut().for_each(|branch| branch.text.make_ascii_lowercase());
        }
        Some(Literals::new(branches, flags.caseless))
    }

    fn new(branches: Vec<Branch>, caseless: bool) -> Literals {
        let anywhere = branches.iter().filter(|branch| branch.is_anywhere()).map(|branch| &*branch.text);
        let anywhere = Needles::new(anywhere.collect(), caseless);
        let folds = caseless && branches.iter().any(|branch| branch.text.contains(['k', 's']));
        let has_anchors = !branches.iter().all(Branch::is_anywhere);
        Literals { branches, has_anchors, caseless, folds, anywhere }
    }

    /// The texts of several patterns as of one, if all treat case alike.
    pub(crate) fn union<'l>(all: impl Iterator<Item = Option<&'l Literals>>) -> Option<Literals> {
        let all: Vec<&Literals> = all.collect::<Option<_>>()?;
        let caseless = all.first()?.caseless;
        if all.iter().any(|literals| literals.caseless != caseless) {
            return None;
        }
        let branches = all.iter().flat_map(|literals| literals.branches.iter().cloned()).collect();
        Some(Literals::new(branches, caseless))
    }

    /// Whether the text has a match; `None` where only PCRE can tell.
    #[inline]
    pub(crate) fn is_match(&self, text: &[u8]) -> Option<bool> {
        let found = self.anywhere.occur_in(text) || (self.has_anchors && self.anchored_matches(text));
        match !found && self.folds && may_fold(text) {
            true => None,
            false => Some(found),
        }
    }

    fn anchored_matches(&self, text: &[u8]) -> bool {
        let mut anchored = self.branches.iter().filter(|branch| !branch.is_anywhere());
        anchored.any(|branch| branch.matches_anchored(text, self.caseless))
    }

    /// Whether each match may be anywhere, so that a text's rest has those that begin there.
    pub(super) fn are_anywhere(&self) -> bool {
        !self.has_anchors
    }
}

/// Whether characters occur that a letter of ASCII may match.
fn may_fold(text: &[u8]) -> bool {
    !text.is_ascii()
        && FOLDED_TO_ASCII.iter().any(|character| memchr::memmem::find(text, character.as_bytes()).is_some())
}

impl Branch {
    fn is_anywhere(&self) -> bool {
        !self.at_start && self.at_end == End::Open
    }

    fn matches_anchored(&self, text: &[u8], caseless: bool) -> bool {
        let wanted = self.text.as_bytes();
        let equal = |part: Option<&[u8]>| match (part, caseless) {
            (Some(part), true) => part.eq_ignore_ascii_case(wanted),
            (part, _) => part == Some(wanted),
        };
        let ends_at = |end: usize| match self.at_start {
            true => end == wanted.len() && equal(text.get(..end)),
            false => end.checked_sub(wanted.len()).is_some_and(|start| equal(text.get(start..end))),
        };
        match self.at_end {
            End::Open => equal(text.get(..wanted.len())),
            End::Text => ends_at(text.len()),
            End::Line => ends_at(text.len()) || (text.last() == Some(&b'\n') && ends_at(text.len() - 1)),
        }
    }
}

/// The branches of a pattern, or of the one group that it is.
fn read_branches(pattern: &str) -> Option<Vec<Branch>> {
    let (starts, inner) = strip_start(pattern);
    if let Some(group) = inner.strip_prefix("(?:").or_else(|| inner.strip_prefix('(')) {
        let (group, behind) = group.split_once(')')?;
        let at_end = read_end(behind)?;
        let mut branches = read_alternatives(group)?;
        for branch in &mut branches {
            if branch.at_start && !starts || branch.at_end != End::Open && at_end != End::Open {
                return None;
            }
            branch.at_start |= starts;
            branch.at_end = if at_end == End::Open { branch.at_end } else { at_end };
        }
        return Some(branches);
    }
    read_alternatives(pattern)
}

fn strip_start(pattern: &str) -> (bool, &str) {
    match pattern.strip_prefix('^').or_else(|| pattern.strip_prefix("\\A")) {
        Some(rest) => (true, rest),
        None => (false, pattern),
    }
}

fn read_end(behind: &str) -> Option<End> {
    match behind {
        "" | ".*" => Some(End::Open),
        "$" | "\\Z" => Some(End::Line),
        "\\z" => Some(End::Text),
        _ => None,
    }
}

fn read_alternatives(pattern: &str) -> Option<Vec<Branch>> {
    let mut branches = Vec::new();
    let mut rest = pattern;
    loop {
        let (at_start, sequence) = strip_start(rest);
        // What may be anything, or nothing, says nothing, unless it has to reach an anchor.
        let sequence = if at_start { sequence } else { sequence.strip_prefix(".*").unwrap_or(sequence) };
        let (text, behind) = read_text(sequence)?;
        let (end, next) = match behind.split_once('|') {
            Some((end, next)) => (end, Some(next)),
            None => (behind, None),
        };
        branches.push(Branch { text, at_start, at_end: read_end(end)? });
        match next {
            Some(next) => rest = next,
            None => return Some(branches),
        }
    }
}

/// Text as far as it is plain, and what stands behind: the end, `|`, `$` or what follows a match.
fn read_text(sequence: &str) -> Option<(String, &str)> {
    let mut text = String::new();
    let mut rest = sequence;
    loop {
        let mut chars = rest.chars();
        let Some(first) = chars.next() else { return Some((text, rest)) };
        match first {
            '|' | '$' => return Some((text, rest)),
            '.' if chars.as_str().starts_with('*') => return Some((text, rest)),
            '\\' => match chars.next()? {
                'z' | 'Z' => return Some((text, rest)),
                escaped if escaped.is_ascii_alphanumeric() => return None,
                escaped => text.push(escaped),
            },
            '.' | '*' | '+' | '?' | '(' | ')' | '[' | '{' | '^' => return None,
            plain => text.push(plain),
        }
        rest = chars.as_str();
    }
}

#[cfg(test)]
#[path = "literal_tests.rs"]
mod tests;
