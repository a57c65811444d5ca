//! Repeated search within one text.
//!
//! PCRE validates the remaining text as UTF-8 in every search, which makes finding all matches quadratic. For ASCII
//! texts and patterns the mode without UTF gives equal results without validation. Searches after the first therefore
//! use code compiled for that mode.

use super::bounded::Compiled;
use super::pcre::Groups;
use super::{Captures, Regex};
use crate::Interrupt;
use base::Result;
use std::sync::Arc;

/// Minimum text size in bytes for a second compilation.
const TEXT_BYTES_MIN: usize = 1024;

/// Finds matches in one text and reuses the state of earlier searches.
pub struct Searcher<'t> {
    text: &'t str,
    code: Arc<Compiled>,
    /// Positions of a match; allocated for the first search that may succeed.
    locations: Option<Groups>,
    utf: bool,
    searched: bool,
}

impl Regex {
    /// Starts a search of a text.
    pub fn searcher<'t>(&self, text: &'t str) -> Searcher<'t> {
        let code = self.compiled.clone();
        Searcher { text, locations: None, code, utf: true, searched: false }
    }
}

impl Searcher<'_> {
    /// Returns the first match at or after the byte offset `start`, which must be a character boundary.
    ///
    /// Errors: interruption; 51156 for a match with too many steps.
    pub fn find_at(&mut self, start: usize, interrupt: &dyn Interrupt) -> Result<Option<Captures>> {
        if start > self.text.len() {
            return Ok(None);
        }
        if let (Some(literals), Some(rest)) = (self.code.literals(), self.text.as_bytes().get(start..))
            && literals.are_anywhere()
            && literals.is_match(rest) == Some(false)
        {
            return Ok(None);
        }
        if self.searched {
            self.leave_utf();
        }
        self.searched = true;
        let locations = match &mut self.locations {
            Some(locations) => locations,
            none => none.insert(self.code.locations()?),
        };
        if !self.code.search(self.text, start, self.utf, Some(locations), interrupt)? {
            return Ok(None);
        }
        let range = |at| locations.get(at).map(|(from, to)| from..to);
        let groups = (1..locations.len()).map(range).collect();
        Ok(range(0).map(|span| Captures { span, groups }))
    }

    /// Switches to code for bytes, if its results are equal.
    fn leave_utf(&mut self) {
        let is_worth_it = self.utf && self.text.len() >= TEXT_BYTES_MIN;
        if is_worth_it && self.text.is_ascii() && self.code.works_on_bytes() {
            self.utf = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Uninterrupted;

    fn all(pattern: &str, text: &str) -> Vec<(usize, usize)> {
        let regex = Regex::new(pattern, "i").unwrap();
        let mut searcher = regex.searcher(text);
        let (mut start, mut found) = (0, Vec::new());
        while let Some(captures) = searcher.find_at(start, &Uninterrupted).unwrap() {
            found.push((captures.span.start, captures.span.end));
            start = captures.span.end;
        }
        found
    }

    #[test]
    fn long_texts_are_searched_like_short_ones() {
        for pattern in [r"\bfox\b", "[^\u{e9}]ox", r"(?<=f)\x{6f}x", r"\p{L}+x", "f(?=ox)"] {
            let short = all(pattern, "a Fox fox");
            assert_eq!(short.len(), 2, "{pattern}");
            let long = format!("a Fox fox{}", " ".repeat(2 * TEXT_BYTES_MIN));
            assert_eq!(all(pattern, &long), short, "{pattern}");
        }
    }
}
