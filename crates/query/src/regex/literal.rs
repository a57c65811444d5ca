//! Patterns of plain text, searched without PCRE.
//!
//! Most patterns of applications are words, sometimes with `|` in between, `^` before or `$` after, often with the
//! option `i`. A parser as conservative as [`prefix`](super::prefix) detects these, and their texts are searched as
//! bytes. The search needs no UTF-8 decoding, because no character's bytes occur within another character's bytes.
//! ASCII letters are folded as in PCRE, which folds two non-ASCII characters to ASCII letters. PCRE handles texts with
//! these characters.
//!
//! The search uses SIMD instructions if the machine has them. Short texts are scanned for a rare letter of the needle,
//! in both cases. Longer texts are converted to lower case piece by piece, which is faster than a case-insensitive
//! search. Each piece is searched for every needle. Many needles are searched together.

use super::Flags;
use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use memchr::memmem::Finder;
use std::cell::RefCell;

/// The characters that PCRE folds to `k` and `s`: the Kelvin sign and the long s.
const FOLDED_TO_ASCII: [&str; 2] = ["\u{212A}", "\u{17F}"];

/// One of the alternatives of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Branch {
    /// The text; in lower case if the pattern ignores case.
    pub(super) text: String,
    /// Whether it matches only at the start of the text.
    at_start: bool,
    at_end: End,
}

/// Condition after a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// No condition.
    Open,
    /// The end of the text, or a newline before the end.
    Line,
    /// The end of the text.
    Text,
}

/// A pattern as a set of alternative texts.
#[derive(Debug)]
pub(crate) struct Literals {
    branches: Vec<Branch>,
    has_anchors: bool,
    caseless: bool,
    /// Whether a non-ASCII character may match a letter of these texts.
    folds: bool,
    anywhere: Needles,
}

impl Literals {
    /// Parses a pattern; `None` if it is not plain text.
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

    /// Combines the texts of several patterns, if all of them treat case alike.
    pub(crate) fn union<'l>(all: impl Iterator<Item = Option<&'l Literals>>) -> Option<Literals> {
        let all: Vec<&Literals> = all.collect::<Option<_>>()?;
        let caseless = all.first()?.caseless;
        if all.iter().any(|literals| literals.caseless != caseless) {
            return None;
        }
        let branches = all.iter().flat_map(|literals| literals.branches.iter().cloned()).collect();
        Some(Literals::new(branches, caseless))
    }

    /// Whether the text matches; `None` if only PCRE can decide.
    #[inline]
    pub(crate) fn is_match(&self, text: &[u8]) -> Option<bool> {
        let matches = self.anywhere.occur_in(text) || (self.has_anchors && self.anchored_matches(text));
        match !matches && self.folds && may_fold(text) {
            true => None,
            false => Some(matches),
        }
    }

    fn anchored_matches(&self, text: &[u8]) -> bool {
        let mut anchored = self.branches.iter().filter(|branch| !branch.is_anywhere());
        anchored.any(|branch| branch.matches_anchored(text, self.caseless))
    }

    /// Whether a match may be anywhere, so the remaining text can be searched by itself.
    pub(super) fn are_anywhere(&self) -> bool {
        !self.has_anchors
    }
}

/// Whether the text contains characters that an ASCII letter may match.
fn may_fold(text: &[u8]) -> bool {
    !text.is_ascii()
        && FOLDED_TO_ASCII.iter().any(|character| memchr::memmem::find(text, character.as_bytes()).is_some())
}

impl Branch {
    fn is_anywhere(&self) -> bool {
        !self.at_start && self.at_end == End::Open
    }

    /// Whether an anchored branch matches the text at its start, its end, or both.
    fn matches_anchored(&self, text: &[u8], caseless: bool) -> bool {
        let literal = self.text.as_bytes();
        let equal = |part: Option<&[u8]>| match (part, caseless) {
            (Some(part), true) => part.eq_ignore_ascii_case(literal),
            (part, _) => part == Some(literal),
        };
        let ends_at = |end: usize| match self.at_start {
            true => end == literal.len() && equal(text.get(..end)),
            false => end.checked_sub(literal.len()).is_some_and(|start| equal(text.get(start..end))),
        };
        match self.at_end {
            End::Open => equal(text.get(..literal.len())),
            End::Text => ends_at(text.len()),
            End::Line => ends_at(text.len()) || (text.last() == Some(&b'\n') && ends_at(text.len() - 1)),
        }
    }
}

/// Parses the branches of a pattern, or of the single group that it consists of.
fn read_branches(pattern: &str) -> Option<Vec<Branch>> {
    let (starts, inner) = strip_start(pattern);
    if let Some(group) = inner.strip_prefix("(?:").or_else(|| inner.strip_prefix('(')) {
        let (group, behind) = group.split_once(')')?;
        let at_end = read_end(behind)?;
        // `read_alternatives` drops a `.*` at an edge. An anchor outside of the group would then hold for the rest.
        let leaves_anchor = |branch: &str| {
            starts && branch.starts_with(".*") || at_end != End::Open && branch.ends_with(".*")
        };
        if group.split('|').any(leaves_anchor) {
            return None;
        }
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

/// Parses branches separated by `|`; `None` if one is not plain text.
fn read_alternatives(pattern: &str) -> Option<Vec<Branch>> {
    let mut branches = Vec::new();
    let mut rest = pattern;
    loop {
        let (at_start, sequence) = strip_start(rest);
        // A leading `.*` has no effect, unless an anchor must be reached.
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

/// Parses plain text. Returns it with the remaining pattern: the end, `|`, `$` or an operator.
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

/// Number of needles from which they are searched together.
const MANY: usize = 12;

/// Maximum size of a short text in bytes.
const SHORT: usize = 48;

/// Bytes converted to lower case at a time; fits the first-level cache.
const PIECE: usize = 16 * 1024;

thread_local! {
    static LOWERED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The needles, in lower case if case is ignored.
#[derive(Debug)]
pub(super) struct Needles {
    few: Vec<Needle>,
    many: Option<AhoCorasick>,
    caseless: bool,
    longest: usize,
    shortest: usize,
}

/// A text to search, with its searcher.
#[derive(Debug)]
struct Needle {
    finder: Finder<'static>,
    /// Position of the needle's rarest letter.
    rare: usize,
}

impl Needles {
    pub(super) fn new(texts: Vec<&str>, caseless: bool) -> Needles {
        let longest = texts.iter().map(|text| text.len()).max().unwrap_or(0);
        let shortest = texts.iter().map(|text| text.len()).min().unwrap_or(usize::MAX);
        let many = (texts.len() >= MANY).then(|| together(&texts)).flatten();
        let few = if many.is_some() { Vec::new() } else { texts.into_iter().map(Needle::new).collect() };
        Needles { few, many, caseless, longest, shortest }
    }

    /// Whether a needle occurs in the text.
    #[inline]
    pub(super) fn occur_in(&self, text: &[u8]) -> bool {
        if text.len() < self.shortest {
            return false;
        }
        match self.caseless {
            false => self.occur_exactly(text),
            true if self.many.is_none() && text.len() <= SHORT => {
                self.few.iter().any(|needle| needle.occurs_whatever_case(text))
            }
            true => self.occur_lowered(text),
        }
    }

    fn occur_exactly(&self, text: &[u8]) -> bool {
        match &self.many {
            Some(many) => many.is_match(text),
            None => self.few.iter().any(|needle| needle.finder.find(text).is_some()),
        }
    }

    /// Searches lower-case pieces, which overlap so that no match between them is lost.
    fn occur_lowered(&self, text: &[u8]) -> bool {
        LOWERED.with_borrow_mut(|lowered| {
            let mut rest = text;
            loop {
                let piece = rest.get(..PIECE + self.longest).unwrap_or(rest);
                lowered.clear();
                lowered.extend_from_slice(piece);
                lowered.make_ascii_lowercase();
                if self.occur_exactly(lowered) {
                    return true;
                }
                match rest.get(PIECE..).filter(|_| piece.len() < rest.len()) {
                    Some(more) => rest = more,
                    None => return false,
                }
            }
        })
    }
}

/// Builds an automaton for all needles; `None` if they exceed its limits.
fn together(texts: &[&str]) -> Option<AhoCorasick> {
    let kind = Some(AhoCorasickKind::ContiguousNFA).filter(|_| texts.len() > 1000);
    AhoCorasick::builder().match_kind(MatchKind::Standard).kind(kind).build(texts).ok()
}

impl Needle {
    fn new(text: &str) -> Needle {
        let finder = Finder::new(text).into_owned();
        let rare = (0..text.len()).min_by_key(|at| frequency(text.as_bytes().get(*at).copied())).unwrap_or(0);
        Needle { finder, rare }
    }

    fn occurs_whatever_case(&self, text: &[u8]) -> bool {
        let needle = self.finder.needle();
        let Some(last) = text.len().checked_sub(needle.len()) else { return false };
        let Some(&rare) = needle.get(self.rare) else { return true };
        let Some(candidates) = text.get(self.rare..=last + self.rare) else { return false };
        memchr::memchr2_iter(rare, rare.to_ascii_uppercase(), candidates)
            .any(|at| text.get(at..at + needle.len()).is_some_and(|part| part.eq_ignore_ascii_case(needle)))
    }
}

/// Approximate frequency of a character in texts and names.
fn frequency(byte: Option<u8>) -> usize {
    const FROM_FREQUENT: &[u8] = b" eatoinsrlcdumhpgfyb0w.1v2-3_k/:,xj5q48z679";
    let rank = FROM_FREQUENT.iter().position(|frequent| Some(*frequent) == byte);
    rank.map_or(0, |rank| FROM_FREQUENT.len() - rank)
}
