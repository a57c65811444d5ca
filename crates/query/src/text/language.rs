//! Languages of text search, by the names that each index version knows.

use rust_stemmers::Algorithm;

/// Version of a text index, which determines word boundaries and known languages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// Words end at ASCII punctuation, and only ASCII letters have case. A document has one language. Unknown languages
    /// mean no language.
    V1 = 1,
    /// As version 1, but parts of a document may have different languages.
    V2 = 2,
    /// Words end at Unicode delimiters. Case and diacritics of all letters are folded.
    V3 = 3,
}

impl Version {
    /// Returns the version with this number.
    pub fn of(number: i64) -> Option<Version> {
        match number {
            1 => Some(Version::V1),
            2 => Some(Version::V2),
            3 => Some(Version::V3),
            _ => None,
        }
    }
}

/// A language, which determines stemming and stop words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Language {
    /// The English name, which selects the stop words; empty for a name with stemming only.
    name: &'static str,
    stems: Option<Algorithm>,
}

/// Each language's name, its two-letter code, and the three-letter codes of version 1.
const LANGUAGES: &[(Algorithm, &str, &str, &[&str])] = &[
    (Algorithm::Danish, "danish", "da", &["dan"]),
    (Algorithm::Dutch, "dutch", "nl", &["dut", "nld"]),
    (Algorithm::English, "english", "en", &["eng"]),
    (Algorithm::Finnish, "finnish", "fi", &["fin"]),
    (Algorithm::French, "french", "fr", &["fra", "fre"]),
    (Algorithm::German, "german", "de", &["deu", "ger"]),
    (Algorithm::Hungarian, "hungarian", "hu", &["hun"]),
    (Algorithm::Italian, "italian", "it", &["ita"]),
    (Algorithm::Norwegian, "norwegian", "nb", &["no", "nor"]),
    (Algorithm::Portuguese, "portuguese", "pt", &["por"]),
    (Algorithm::Romanian, "romanian", "ro", &["ron", "rum"]),
    (Algorithm::Russian, "russian", "ru", &["rus"]),
    (Algorithm::Spanish, "spanish", "es", &["esl", "spa"]),
    (Algorithm::Swedish, "swedish", "sv", &["swe"]),
    (Algorithm::Turkish, "turkish", "tr", &["tur"]),
];

impl Language {
    /// No stemming and no stop words.
    pub const NONE: Language = Language { name: "none", stems: None };

    /// Returns the language of a name in an index version; `None` if unknown.
    pub fn named(name: &str, version: Version) -> Option<Language> {
        if version == Version::V1 {
            return Some(Language::legacy(name));
        }
        let name = name.to_ascii_lowercase();
        if name == "none" {
            return Some(Language::NONE);
        }
        let found = LANGUAGES.iter().find(|(_, full, code, _)| *full == name || *code == name);
        found.map(|(stems, full, ..)| Language { name: full, stems: Some(*stems) })
    }

    /// Returns the language of a name in version 1. It knows all of Snowball's names, treats codes as names without
    /// stop words, and maps unknown names to none.
    fn legacy(name: &str) -> Language {
        if let Some((stems, full, ..)) = LANGUAGES.iter().find(|(_, full, ..)| *full == name) {
            return Language { name: full, stems: Some(*stems) };
        }
        let by_code = |(_, full, code, codes): &&(Algorithm, &str, &str, &[&str])| {
            (*code == name && *full != "norwegian") || codes.contains(&name)
        };
        match LANGUAGES.iter().find(by_code) {
            Some((stems, ..)) => Language { name: "", stems: Some(*stems) },
            None => Language::NONE,
        }
    }

    /// A unique number of each language, and of each language with stemming only.
    pub(super) fn number(self) -> u8 {
        let stems = self.stems.map_or(0, |stems| 1 + stems as u8);
        stems * 2 + u8::from(self.name.is_empty())
    }

    /// The language's English name; empty for a code of version 1, which has stemming only.
    pub(super) fn name(self) -> &'static str {
        self.name
    }

    pub(super) fn is_english(self) -> bool {
        self.name == "english"
    }

    pub(super) fn is_turkish(self) -> bool {
        self.name == "turkish"
    }

    /// The Snowball stemming algorithm.
    pub(super) fn algorithm(self) -> Option<Algorithm> {
        self.stems
    }
}
