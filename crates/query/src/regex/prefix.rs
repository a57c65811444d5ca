//! Prefix of every match of an anchored pattern, for index bounds.
//!
//! The parser reads only plain parts of a pattern. The prefix ends at the first construct that it does not understand.
//! This can widen the bounds but never makes them wrong.

/// Implements [`Regex::literal_prefix`](super::Regex::literal_prefix).
pub(super) fn literal_prefix(pattern: &str, options: &str) -> Option<(String, bool)> {
    let (anchored_at_start_only, rest) = match pattern.strip_prefix("\\A") {
        Some(rest) => (true, rest),
        None => (false, pattern.strip_prefix('^')?),
    };
    let mut extended = false;
    for option in options.chars() {
        match option {
            // With m, ^ also matches after a newline, so only \A anchors.
            'm' if anchored_at_start_only => {}
            's' | 'u' => {}
            'x' => extended = true,
            _ => return None,
        }
    }
    if may_alternate(rest) {
        return None;
    }
    let (prefix, is_complete) = Reader { rest, extended, prefix: String::new() }.read();
    (!prefix.is_empty()).then_some((prefix, is_complete))
}

/// Whether the pattern contains an unescaped `|`. In a pattern with quoting, any `|` counts.
fn may_alternate(pattern: &str) -> bool {
    if pattern.contains("\\Q") {
        return pattern.contains('|');
    }
    let mut escaped = false;
    for c in pattern.chars() {
        if c == '|' && !escaped {
            return true;
        }
        escaped = c == '\\' && !escaped;
    }
    false
}

/// The remaining pattern, and the prefix so far.
struct Reader<'p> {
    rest: &'p str,
    extended: bool,
    prefix: String,
}

impl Reader<'_> {
    /// Reads the plain prefix. Returns it, and whether the pattern ends with it.
    fn read(mut self) -> (String, bool) {
        while let Some(c) = self.next() {
            match c {
                // The preceding character is optional, or its repetition may be zero.
                '*' | '?' | '{' => return self.without_last(),
                // Ignored text may stand between a character and its quantifier.
                '\\' if self.rest.starts_with('E') => return self.without_last(),
                '(' if self.rest.starts_with("?#") => return self.without_last(),
                '#' if self.extended => return self.without_last(),
                '\\' => {
                    if !self.escape() {
                        return (self.prefix, false);
                    }
                }
                '^' | '$' | '.' | '[' | '(' | ')' | '+' => return (self.prefix, false),
                c if self.extended && is_ignored(c) => {}
                c => self.prefix.push(c),
            }
        }
        (self.prefix, true)
    }

    fn without_last(mut self) -> (String, bool) {
        self.prefix.pop();
        (self.prefix, false)
    }

    fn next(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let c = chars.next()?;
        self.rest = chars.as_str();
        Some(c)
    }

    /// Parses an escape; false if it is not plain text.
    fn escape(&mut self) -> bool {
        match self.next() {
            Some('Q') => {
                let (quoted, rest) = self.rest.split_once("\\E").unwrap_or((self.rest, ""));
                self.prefix.push_str(quoted);
                self.rest = rest;
                true
            }
            Some(c) if !c.is_ascii_alphanumeric() => {
                self.prefix.push(c);
                true
            }
            _ => false,
        }
    }
}

/// Returns true for the white space that PCRE2 ignores with the option `x`. Other spaces are literal.
fn is_ignored(c: char) -> bool {
    matches!(c, '\t'..='\r' | ' ' | '\u{85}' | '\u{200E}' | '\u{200F}' | '\u{2028}' | '\u{2029}')
}

#[cfg(test)]
mod tests {
    use super::literal_prefix;

    fn check(pattern: &str, options: &str, expected: Option<(&str, bool)>) {
        let found = literal_prefix(pattern, options);
        assert_eq!(
            found.as_ref().map(|(text, is_complete)| (text.as_str(), *is_complete)),
            expected,
            "/{pattern}/{options}"
        );
    }

    #[test]
    fn plain_text_after_the_anchor_is_the_prefix() {
        check("^abc", "", Some(("abc", true)));
        check("\\Aabc", "m", Some(("abc", true)));
        check("^abc", "m", None);
        check("^abc", "i", None);
        check("^abc", "s", Some(("abc", true)));
        check("abc", "", None);
        check("^", "", None);
        check("^a\\.b", "", Some(("a.b", true)));
        check("^\\Qa.b\\Ec", "", Some(("a.bc", true)));
        check("^a b", "x", Some(("ab", true)));
        check("^a\u{200E}b", "x", Some(("ab", true)));
        check("^a\u{A0}b", "x", Some(("a\u{A0}b", true)));
    }

    #[test]
    fn an_optional_part_ends_the_prefix() {
        check("^abc*", "", Some(("ab", false)));
        check("^abé?", "", Some(("ab", false)));
        check("^abc{0,2}", "", Some(("ab", false)));
        check("^abc+", "", Some(("abc", false)));
        check("^ab.*", "", Some(("ab", false)));
        check("^ab\\d", "", Some(("ab", false)));
        check("^ab$", "", Some(("ab", false)));
        check("^a|b", "", None);
        check("^a\\|b", "", Some(("a|b", true)));
        check("^\\\\|b", "", None);
        check("^\\Qa|b\\E", "", None);
        check("^a?", "", None);
        check("^ab#c\n*", "x", Some(("a", false)));
        check("^ab(?#c)*", "", Some(("a", false)));
        check("^ab\\E*", "", Some(("a", false)));
    }
}
