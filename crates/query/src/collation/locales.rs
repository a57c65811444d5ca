//! The locales of MongoDB's documentation and their ICU4X equivalents.
//!
//! MongoDB accepts only locales with data in ICU 57, in canonical spelling (`en_US`, not `en-US`). Its error suggests
//! the canonical spelling.

/// The locale of bytewise comparison.
pub(super) const SIMPLE: &str = "simple";

/// The locale of the root rules, which other locales tailor.
const ROOT: &str = "root";

/// All locales, sorted. Locales of [`UNAVAILABLE`] are known but not supported.
const LOCALES: &[&str] = &[
    "af",
    "am",
    "ar",
    "as",
    "az",
    "be",
    "bg",
    "bn",
    "bs",
    "bs_Cyrl",
    "ca",
    "chr",
    "cs",
    "cy",
    "da",
    "de",
    "de_AT",
    "dsb",
    "ee",
    "el",
    "en",
    "en_US",
    "en_US_POSIX",
    "eo",
    "es",
    "et",
    "fa",
    "fa_AF",
    "fi",
    "fil",
    "fo",
    "fr",
    "fr_CA",
    "ga",
    "gl",
    "gu",
    "ha",
    "haw",
    "he",
    "hi",
    "hr",
    "hsb",
    "hu",
    "hy",
    "id",
    "ig",
    "is",
    "it",
    "ja",
    "ka",
    "kk",
    "km",
    "kn",
    "ko",
    "kok",
    "ky",
    "lb",
    "lo",
    "lt",
    "lv",
    "mk",
    "ml",
    "mn",
    "mr",
    "ms",
    "mt",
    "my",
    "nb",
    "ne",
    "nl",
    "nn",
    "om",
    "or",
    "pa",
    "pl",
    "ps",
    "pt",
    "ro",
    "root",
    "ru",
    "si",
    "sk",
    "sl",
    "sq",
    "sr",
    "sr_Latn",
    "sv",
    "sw",
    "ta",
    "te",
    "th",
    "to",
    "tr",
    "ug",
    "uk",
    "ur",
    "vi",
    "yo",
    "zh",
    "zh_Hant",
    "zu",
];

/// Locales with rules in ICU 57 but not in ICU4X.
const UNAVAILABLE: &[&str] = &["bo", "dz", "kl", "lkt", "ln", "se", "smn", "wae", "yi"];

/// Supported variants: MongoDB's name, the locale, and the BCP 47 name.
const VARIANTS: &[(&str, &str, &str)] = &[
    ("compat", "ar", "compat"),
    ("dictionary", "si", "dict"),
    ("eor", "de", "eor"),
    ("phonebook", "de", "phonebk"),
    ("phonebook", "de_AT", "phonebk"),
    ("stroke", "zh", "stroke"),
    ("traditional", "bn", "trad"),
    ("traditional", "es", "trad"),
    ("traditional", "fi", "trad"),
    ("traditional", "kn", "trad"),
    ("traditional", "vi", "trad"),
    ("unihan", "ja", "unihan"),
    ("unihan", "ko", "unihan"),
    ("unihan", "zh", "unihan"),
    ("zhuyin", "zh", "zhuyin"),
];

/// Variants of MongoDB without rules in ICU4X.
const VARIANTS_UNAVAILABLE: &[&str] = &["big5han", "gb2312han", "phonetic", "reformed", "search", "searchjl"];

/// Locales whose rules require normalization. The option is reported, though ICU4X always normalizes.
const NORMALIZING: &[&str] = &[
    "as", "bn", "fa", "fa_AF", "gu", "he", "hi", "km", "kn", "kok", "lo", "ml", "mr", "my", "ne", "or", "pa",
    "si", "ta", "te", "th", "ur", "vi",
];

/// Locales that keep the root order of ASCII, without contractions.
const PLAIN_ASCII: &[&str] =
    &["de", "de_AT", "en", "en_US", "fr", "fr_CA", "ga", "id", "it", "ms", "nl", "pt", "root", "sw", "zu"];

/// Result of a locale lookup.
pub(super) enum Found {
    /// A supported locale with its BCP 47 tag.
    Tag(String),
    /// A locale that MongoDB supports but this server does not.
    Unavailable,
    /// An unknown locale, with a suggestion.
    Unknown(Option<String>),
}

/// Looks up a locale by MongoDB's name, `language[_Script][_REGION][@collation=variant]`.
pub(super) fn find(name: &str) -> Found {
    let (locale, keywords) = match name.split_once('@') {
        Some((locale, keywords)) => (locale, Some(keywords)),
        None => (name, None),
    };
    if UNAVAILABLE.contains(&locale) {
        return Found::Unavailable;
    }
    if LOCALES.binary_search(&locale).is_err() {
        return Found::Unknown(nearest(locale));
    }
    match keywords {
        None => Found::Tag(tag(locale)),
        Some(keywords) => match keywords.strip_prefix("collation=") {
            Some(variant) => find_variant(locale, variant),
            None => Found::Unknown(Some(locale.to_string())),
        },
    }
}

fn find_variant(locale: &str, variant: &str) -> Found {
    let found = VARIANTS.iter().find(|(name, of, _)| *name == variant && *of == locale);
    match found {
        Some((_, _, short)) => Found::Tag(format!("{}-u-co-{short}", tag(locale))),
        None if VARIANTS_UNAVAILABLE.contains(&variant) => Found::Unavailable,
        None => Found::Unknown(Some(locale.to_string())),
    }
}

/// Returns the BCP 47 tag of a locale.
fn tag(locale: &str) -> String {
    match locale {
        ROOT => "und".to_string(),
        "en_US_POSIX" => "en-US-posix".to_string(),
        _ => locale.replace('_', "-"),
    }
}

/// Returns the locale that ICU would fall back to: the canonical spelling, or a less specific locale.
fn nearest(name: &str) -> Option<String> {
    let parts: Vec<&str> = name.split(['_', '-']).collect();
    (1..=parts.len()).rev().find_map(|length| {
        let shorter = parts.get(..length)?.join("_");
        LOCALES.iter().find(|known| known.eq_ignore_ascii_case(&shorter)).map(|known| known.to_string())
    })
}

/// Whether the locale's rules ask for normalization.
pub(super) fn normalizes(name: &str) -> bool {
    let locale = name.split('@').next().unwrap_or(name);
    NORMALIZING.binary_search(&locale).is_ok()
}

/// Whether ASCII strings may be compared without contractions and similar rules.
pub(super) fn has_plain_ascii(name: &str) -> bool {
    PLAIN_ASCII.binary_search(&name).is_ok()
}

/// Returns all supported locales.
#[cfg(test)]
pub(super) fn all() -> &'static [&'static str] {
    LOCALES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_sorted() {
        for table in [LOCALES, UNAVAILABLE, VARIANTS_UNAVAILABLE, NORMALIZING, PLAIN_ASCII] {
            assert!(table.windows(2).all(|pair| pair[0] < pair[1]), "{table:?}");
        }
        assert!(VARIANTS.windows(2).all(|pair| (pair[0].0, pair[0].1) < (pair[1].0, pair[1].1)));
    }

    #[test]
    fn names_are_taken_only_as_mongodb_spells_them() {
        let shown = |name: &str| match find(name) {
            Found::Tag(tag) => tag,
            Found::Unavailable => "unavailable".to_string(),
            Found::Unknown(nearest) => format!("? {}", nearest.unwrap_or_default()),
        };
        assert_eq!(shown("en_US"), "en-US");
        assert_eq!(shown("de@collation=phonebook"), "de-u-co-phonebk");
        assert_eq!(shown("en-US"), "? en_US");
        assert_eq!(shown("en_GB"), "? en");
        assert_eq!(shown("EN"), "? en");
        assert_eq!(shown("en@collation=phonebook"), "? en");
        assert_eq!(shown("de@collation=search"), "unavailable");
        assert_eq!(shown("dz"), "unavailable");
        for invalid in ["x_invalid", "i-invalid", "xx_invalid", ""] {
            assert_eq!(shown(invalid), "? ");
        }
    }
}
