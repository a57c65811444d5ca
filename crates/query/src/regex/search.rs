//! Searching one text for match after match.
//!
//! For every search PCRE checks again that the rest of the text is UTF-8, which makes finding all
//! matches take the square of the text's length. Where text and pattern are ASCII the mode without
//! UTF finds the same and checks nothing, so searches after the first use code compiled for it.

use super::bounded::Compiled;
use super::pcre::Groups;
use super::{Captures, Regex};
use crate::Interrupt;
use base::Result;
use std::sync::Arc;

/// Shorter texts aren't worth compiling the pattern once more.
const TEXT_BYTES_MIN: usize = 1024;

/// Finds matches in one text, keeping between them what a search needs.
pub struct Searcher<'t> {
    text: &'t str,
    code: Arc<Compiled>,
    /// Room for what is found; made for the first search that may find anything.
    locations: Option<Groups>,
    utf: bool,
    searched: bool,
}

impl Regex {
    /// Begins to search a text.
    pub fn searcher<'t>(&self, text: &'t str) -> Searcher<'t> {
        let code = self.compiled.clone();
        Searcher { text, locations: None, code, utf: true, searched: false }
    }
}

impl Searcher<'_> {
    /// The first match at or after the byte position `start`, which must lie between characters.
    ///
    /// Errors: 51156 where matching takes too many steps; what interrupts the operation.
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
        Ok(range(0).map(|whole| Captures { whole, groups }))
    }

    /// Goes on with code for bytes, where that finds the same.
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
            found.push((captures.whole.start, captures.whole.end));
            start = captures.whole.end;
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
