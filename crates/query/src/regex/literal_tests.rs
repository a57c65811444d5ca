//! Tests that plain patterns match as PCRE does.

use super::super::{Flags, Regex};
use super::Literals;
use crate::context::Uninterrupted;
use proptest::prelude::*;

fn literals(pattern: &str, options: &str) -> Option<Literals> {
    Literals::read(pattern, Flags::parse(options).unwrap())
}

/// Matches by PCRE: an atomic group does not change the pattern, but makes it not plain.
fn by_pcre(pattern: &str, options: &str, text: &str) -> bool {
    let left_alone = Regex::new(&format!("(?>{pattern})"), options).unwrap();
    assert!(left_alone.literals().is_none());
    left_alone.is_match(text, &Uninterrupted).unwrap()
}

#[track_caller]
fn agree(pattern: &str, options: &str, text: &str) {
    let expected = by_pcre(pattern, options, text);
    let regex = Regex::new(pattern, options).unwrap();
    assert_eq!(regex.is_match(text, &Uninterrupted).unwrap(), expected, "/{pattern}/{options} in {text:?}");
    let found = regex.find_at(text, 0, &Uninterrupted).unwrap();
    assert_eq!(found.is_some(), expected, "/{pattern}/{options} in {text:?}");
}

#[test]
fn patterns_of_applications_are_plain() {
    for pattern in [
        "abc",
        "abc|def",
        "^abc",
        "^abc$",
        "abc$",
        "^(abc|def)",
        "(abc|def)$",
        "(?:abc|def)",
        ".*abc.*",
        "a\\.b",
        "\\Aabc\\z",
        "john@example\\.com",
        "",
        "a|",
        "^abc.*",
        "foo bar-baz_1",
        "ab{",
        "a}b]",
    ] {
        let plain = literals(pattern, "").is_some();
        assert_eq!(plain, pattern != "ab{", "{pattern}");
        assert_eq!(literals(pattern, "i").is_some(), plain, "{pattern}");
        assert!(literals(pattern, "x").is_none());
    }
    for pattern in [
        "a.c", "a+", "[ab]", "a\\d", "(a)(b)", "a(b|c)", "(?i)a", "^.*a", "a.*b", "a.*$", "\\Qa\\E", "a|(b)",
        "(*UCP)a", "(^a)$x", "a^", "$a", "(a$)$", ".*", "^^a", ")", "a)",
    ] {
        let read = literals(pattern, "");
        assert!(read.is_none() || pattern == ".*", "{pattern}: {read:?}");
    }
    assert!(literals("é", "").is_some() && literals("é", "i").is_none());
    assert!(literals("^a", "m").is_none() && literals("a", "m").is_some());
}

#[test]
fn short_patterns_with_anchors_and_groups_equal_pcre() {
    let mut patterns = vec![String::new()];
    let mut shorter = 0..1;
    for _ in 0..6 {
        for number in shorter.clone() {
            for part in ["a", ".*", "|", "^", "$", "(", ")"] {
                patterns.push(format!("{}{part}", patterns[number]));
            }
        }
        shorter = shorter.end..patterns.len();
    }
    let plain = patterns.iter().filter(|pattern| literals(pattern, "").is_some());
    for pattern in plain {
        for text in ["", "a", "b", "ba", "ab", "b\na", "a\n", "a\nb"] {
            agree(pattern, "", text);
        }
    }
    assert!(literals("^(a|b.*)", "").is_some() && literals("(.*a|b)$", "").is_some());
    assert!(literals("^(.*a)", "").is_none() && literals("^(a|b.*)$", "").is_none());
}

#[test]
fn letters_fold_as_in_pcre() {
    for letter in (0x20..0x7F).map(char::from) {
        let pattern: String =
            if letter.is_ascii_alphanumeric() { letter.into() } else { format!("\\{letter}") };
        for code in (1..0x3000)
            .chain(0xA640..0xAC00)
            .chain(0xFB00..0xFFFF)
            .chain(0x1_0400..0x1_0500)
            .chain(0x1_E900..0x1_E950)
        {
            let Some(character) = char::from_u32(code) else { continue };
            let text = character.to_string();
            let folded = literals(&pattern, "i").unwrap().is_match(text.as_bytes());
            let expected = character.eq_ignore_ascii_case(&letter);
            assert!(folded == Some(expected) || folded.is_none(), "{letter} {character}");
            if folded.is_none() {
                assert!(super::FOLDED_TO_ASCII.contains(&text.as_str()));
            }
        }
        // PCRE matches a text of all characters that may fold to ASCII, and more.
        let all: String = (0x80..0x1_F000).filter_map(char::from_u32).collect();
        let folds = by_pcre(&pattern, "i", &all);
        assert_eq!(folds, matches!(letter.to_ascii_lowercase(), 'k' | 's'), "{letter}");
        agree(&pattern, "i", &all);
    }
}

#[test]
fn many_texts_and_long_ones() {
    let words: Vec<String> = (0..50).map(|number| format!("Word{number}x")).collect();
    for pattern in [words.join("|"), words[..5].join("|")] {
        for text in ["word3X", "WORD49X and more", "word3", "", "wor\u{212A}d"] {
            for before in [0, 10, 16_380, 16_390, 33_000] {
                let text = format!("{}{text}{}", "é-".repeat(before / 3), "Wor".repeat(before / 5));
                agree(&pattern, "i", &text);
                agree(&pattern, "", &text);
            }
        }
    }
}

/// Patterns of few characters, so they often match, with many edge cases.
fn pattern() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        8 => proptest::sample::select(vec!["a", "B", "k", "K", "s", "S", "x", " ", "-", "é", "\\.", "\\|", "\\$", "\n", "ß"]),
        2 => proptest::sample::select(vec!["|", "|", "^", "$", ".*", "(", ")", "(?:", "\\A", "\\z", "\\Z", ".", "ss", "K"]),
    ];
    proptest::collection::vec(part, 0..7).prop_map(|parts| parts.concat())
}

fn text() -> impl Strategy<Value = String> {
    let part = proptest::sample::select(vec![
        "a",
        "A",
        "b",
        "B",
        "k",
        "K",
        "\u{212A}",
        "s",
        "S",
        "\u{17F}",
        "x",
        " ",
        "-",
        "é",
        "É",
        ".",
        "|",
        "$",
        "\n",
        "\r\n",
        "ß",
        "ẞ",
        "\u{2028}",
        "\u{1F600}",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    ]);
    proptest::collection::vec(part, 0..12).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn plain_patterns_equal_pcre(pattern in pattern(), text in text(), options in "[imsu]{0,2}") {
        if Regex::new(&pattern, &options).is_ok() && Regex::new(&format!("(?>{pattern})"), &options).is_ok() {
            agree(&pattern, &options, &text);
        } else {
            prop_assert!(literals(&pattern, &options).is_none(), "PCRE refuses {pattern}");
        }
    }
}
