//! The order of ASCII strings without the full algorithm.
//!
//! Where a locale leaves ASCII where the root rules put it, each character has one weight of its
//! own and none contracts with another. Then the first characters whose primary weights differ
//! decide, after them the lengths, and last the first difference of case: two small tables in
//! place of the lookups that any Unicode text needs.

use super::locales;
use icu_collator::CollatorBorrowed;
use icu_collator::options::{AlternateHandling, CaseLevel, CollatorOptions, Strength};
use icu_collator::preferences::CollationNumericOrdering;
use std::cmp::Ordering;

/// Characters below this are ignored by the rules, except white space.
const ASCII: usize = 128;

/// Ranks of characters. A primary rank of zero is a character that the tables say nothing of.
pub(super) struct AsciiOrder {
    primary: [u8; ASCII],
    /// Ranks of all differences that the strength asks for.
    full: [u8; ASCII],
}

impl AsciiOrder {
    /// The tables, where the locale and its options allow for them.
    pub(super) fn of(locale: &str, rules: &CollatorBorrowed<'_>) -> Option<AsciiOrder> {
        let options = rules.resolved_options();
        let plain = options.alternate_handling == AlternateHandling::NonIgnorable
            && options.numeric == CollationNumericOrdering::False
            && locales::has_plain_ascii(locale);
        if !plain {
            return None;
        }
        let cased = options.strength >= Strength::Tertiary || options.case_level == CaseLevel::On;
        let primary = ranks(&primary_rules()?);
        let full = if cased { ranks(rules) } else { primary };
        Some(AsciiOrder { primary, full })
    }

    /// The order of two strings; `None` where either has a character that the tables don't know.
    #[inline]
    pub(super) fn compare(&self, a: &[u8], b: &[u8]) -> Option<Ordering> {
        let common = a.len().min(b.len());
        let mut by_case = Ordering::Equal;
        for (x, y) in a.iter().zip(b) {
            let (x, y) = (usize::from(*x), usize::from(*y));
            let (first, second) = (*self.primary.get(x)?, *self.primary.get(y)?);
            if first == 0 || second == 0 {
                return None;
            }
            if first != second {
                // What follows may combine with this character, unless it is ASCII, too.
                return (a.is_ascii() && b.is_ascii()).then(|| first.cmp(&second));
            }
            if by_case.is_eq() {
                by_case = self.full.get(x)?.cmp(self.full.get(y)?);
            }
        }
        let known = |rest: &[u8]| {
            rest.iter().all(|byte| self.primary.get(usize::from(*byte)).is_some_and(|rank| *rank > 0))
        };
        if !known(a.get(common..)?) || !known(b.get(common..)?) {
            return None;
        }
        Some(a.len().cmp(&b.len()).then(by_case))
    }
}

/// The root rules, to the first level.
fn primary_rules() -> Option<CollatorBorrowed<'static>> {
    let mut options = CollatorOptions::default();
    options.strength = Some(Strength::Primary);
    CollatorBorrowed::try_new(Default::default(), options).ok()
}

/// The place of each character among those that the rules tell apart, from one; zero for what
/// they ignore.
fn ranks(rules: &CollatorBorrowed<'_>) -> [u8; ASCII] {
    let mut ranks = [0; ASCII];
    let mut characters: Vec<char> = (0..ASCII as u8).map(char::from).collect();
    characters.retain(|character| rules.compare(&character.to_string(), "").is_ne());
    characters.sort_by(|a, b| rules.compare(&a.to_string(), &b.to_string()));
    let mut rank = 0;
    let mut last: Option<char> = None;
    for character in characters {
        let same = last.is_some_and(|last| rules.compare(&last.to_string(), &character.to_string()).is_eq());
        rank += u8::from(!same);
        if let Some(place) = ranks.get_mut(character as usize) {
            *place = rank;
        }
        last = Some(character);
    }
    ranks
}
