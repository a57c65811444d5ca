//! Search for one of several texts, with SIMD instructions if the machine has them.
//!
//! Short texts are scanned for a rare letter of the needle, in both cases. Longer texts are converted to lower case
//! piece by piece, which is faster than a case-insensitive search. Each piece is searched for every needle. Many
//! needles are searched together.

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use memchr::memmem::Finder;
use std::cell::RefCell;

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
