//! Searching one text for match after match.
//!
//! For every search PCRE checks again that the rest of the text is UTF-8, which makes finding all
//! matches take the square of the text's length. Where text and pattern are ASCII the mode without
//! UTF finds the same and checks nothing, so searches after the first use code compiled for it.

use super::{Captures, Flags, Regex, build, matching_error};
use base::Result;
use pcre2::bytes::CaptureLocations;
use std::sync::Arc;

/// Shorter texts aren't worth compiling the pattern once more.
const TEXT_BYTES_MIN: usize = 1024;

/// Finds matches in one text, keeping between them what a search needs.
pub struct Searcher<'t> {
    text: &'t str,
    code: Arc<pcre2::bytes::Regex>,
    locations: CaptureLocations,
    flags: Flags,
    searched: bool,
}

impl Regex {
    /// Begins to search a text.
    pub fn searcher<'t>(&self, text: &'t str) -> Searcher<'t> {
        let code = self.compiled.clone();
        Searcher { text, locations: code.capture_locations(), code, flags: self.flags, searched: false }
    }
}

impl Searcher<'_> {
    /// The first match at or after the byte position `start`, which must lie between characters.
    ///
    /// Errors: 51156 where matching takes too many steps.
    pub fn find_at(&mut self, start: usize) -> Result<Option<Captures>> {
        if start > self.text.len() {
            return Ok(None);
        }
        if self.searched {
            self.leave_utf();
        }
        self.searched = true;
        let found = self
            .code
            .captures_read_at(&mut self.locations, self.text.as_bytes(), start)
            .map_err(|error| matching_error(&error))?;
        let range = |at| self.locations.get(at).map(|(from, to)| from..to);
        Ok(found.map(|whole| Captures {
            whole: whole.start()..whole.end(),
            groups: (1..self.locations.len()).map(range).collect(),
        }))
    }

    /// Goes on with code for bytes, where that finds the same.
    fn leave_utf(&mut self) {
        let is_worth_it = self.flags.utf && self.text.len() >= TEXT_BYTES_MIN;
        if !is_worth_it || !self.text.is_ascii() || !self.code.as_str().is_ascii() {
            return;
        }
        self.flags.utf = false;
        // A pattern that needs UTF to be understood stays with it.
        if let Ok(code) = build(self.code.as_str(), self.flags) {
            self.locations = code.capture_locations();
            self.code = Arc::new(code);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(pattern: &str, text: &str) -> Vec<(usize, usize)> {
        let regex = Regex::new(pattern, "i").unwrap();
        let mut searcher = regex.searcher(text);
        let (mut start, mut found) = (0, Vec::new());
        while let Some(captures) = searcher.find_at(start).unwrap() {
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
