//! Order of ASCII strings without the full collation algorithm.
//!
//! In a locale that keeps the root order of ASCII, each character has one weight and no characters contract. The first
//! characters with different primary weights decide, then the lengths, then the first difference of case. Two small
//! tables replace the lookups of general Unicode text.

use super::locales;
use icu_collator::CollatorBorrowed;
use icu_collator::options::{AlternateHandling, CaseLevel, CollatorOptions, Strength};
use icu_collator::preferences::CollationNumericOrdering;
use std::cmp::Ordering;

/// Number of characters in the tables. The rules ignore most control characters.
const ASCII: usize = 128;

/// Ranks of characters. A primary rank of zero marks a character outside the tables.
pub(super) struct AsciiOrder {
    primary: [u8; ASCII],
    /// Ranks of all differences that the strength distinguishes.
    full: [u8; ASCII],
}

impl AsciiOrder {
    /// Builds the tables, if the locale and its options allow it.
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

    /// Compares two strings; `None` if either has a character outside the tables.
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
                // A following non-ASCII character may combine with this character.
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

/// The root rules at primary strength.
fn primary_rules() -> Option<CollatorBorrowed<'static>> {
    let mut options = CollatorOptions::default();
    options.strength = Some(Strength::Primary);
    CollatorBorrowed::try_new(Default::default(), options).ok()
}

/// Ranks of the characters that the rules distinguish, from one; zero for ignored characters.
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
        if let Some(slot) = ranks.get_mut(character as usize) {
            *slot = rank;
        }
        last = Some(character);
    }
    ranks
}
