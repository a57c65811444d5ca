//! The languages that texts are searched in, by the names that each version of index knows.

use rust_stemmers::Algorithm;

/// How a text index tells words apart and which languages it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// Words end at ASCII punctuation, only ASCII has cases; a document has one language; unknown
    /// languages are none.
    V1 = 1,
    /// As version 1, but parts of a document may have languages of their own.
    V2 = 2,
    /// Words end where Unicode says; case and diacritics of all letters are folded.
    V3 = 3,
}

impl Version {
    /// The version of this number.
    pub fn of(number: i64) -> Option<Version> {
        match number {
            1 => Some(Version::V1),
            2 => Some(Version::V2),
            3 => Some(Version::V3),
            _ => None,
        }
    }
}

/// A language, which says what its words' stems are and which words are passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Language {
    /// Its name in English, as stop words go by; empty for a name that only has stems.
    name: &'static str,
    stems: Option<Stems>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stems {
    Danish,
    Dutch,
    English,
    Finnish,
    French,
    German,
    Hungarian,
    Italian,
    Norwegian,
    Portuguese,
    Romanian,
    Russian,
    Spanish,
    Swedish,
    Turkish,
}

/// Each language's name, its code of two letters, and the codes of three that version 1 knows.
const LANGUAGES: &[(Stems, &str, &str, &[&str])] = &[
    (Stems::Danish, "danish", "da", &["dan"]),
    (Stems::Dutch, "dutch", "nl", &["dut", "nld"]),
    (Stems::English, "english", "en", &["eng"]),
    (Stems::Finnish, "finnish", "fi", &["fin"]),
    (Stems::French, "french", "fr", &["fra", "fre"]),
    (Stems::German, "german", "de", &["deu", "ger"]),
    (Stems::Hungarian, "hungarian", "hu", &["hun"]),
    (Stems::Italian, "italian", "it", &["ita"]),
    (Stems::Norwegian, "norwegian", "nb", &["no", "nor"]),
    (Stems::Portuguese, "portuguese", "pt", &["por"]),
    (Stems::Romanian, "romanian", "ro", &["ron", "rum"]),
    (Stems::Russian, "russian", "ru", &["rus"]),
    (Stems::Spanish, "spanish", "es", &["esl", "spa"]),
    (Stems::Swedish, "swedish", "sv", &["swe"]),
    (Stems::Turkish, "turkish", "tr", &["tur"]),
];

impl Language {
    /// No stems, and no word is passed over.
    pub const NONE: Language = Language { name: "none", stems: None };

    /// The language of this name for a version of index; `None` where it knows none so named.
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

    /// Version 1 knows all of Snowball's names, codes without stop words, and takes others for none.
    fn legacy(name: &str) -> Language {
        if let Some((stems, full, ..)) = LANGUAGES.iter().find(|(_, full, ..)| *full == name) {
            return Language { name: full, stems: Some(*stems) };
        }
        let by_code = |(_, full, code, codes): &&(Stems, &str, &str, &[&str])| {
            (*code == name && *full != "norwegian") || codes.contains(&name)
        };
        match LANGUAGES.iter().find(by_code) {
            Some((stems, ..)) => Language { name: "", stems: Some(*stems) },
            None => Language::NONE,
        }
    }

    /// A number of its own for each language, and for each that has stems alone.
    pub(super) fn number(self) -> u8 {
        let stems = self.stems.map_or(0, |stems| 1 + stems as u8);
        stems * 2 + u8::from(self.name.is_empty())
    }

    /// The language's name in English; empty for a code of version 1, which has stems alone.
    pub(super) fn name(self) -> &'static str {
        self.name
    }

    pub(super) fn is_english(self) -> bool {
        self.name == "english"
    }

    pub(super) fn is_turkish(self) -> bool {
        self.name == "turkish"
    }

    /// What finds the stems of its words.
    pub(super) fn algorithm(self) -> Option<Algorithm> {
        Some(match self.stems? {
            Stems::Danish => Algorithm::Danish,
            Stems::Dutch => Algorithm::Dutch,
            Stems::English => Algorithm::English,
            Stems::Finnish => Algorithm::Finnish,
            Stems::French => Algorithm::French,
            Stems::German => Algorithm::German,
            Stems::Hungarian => Algorithm::Hungarian,
            Stems::Italian => Algorithm::Italian,
            Stems::Norwegian => Algorithm::Norwegian,
            Stems::Portuguese => Algorithm::Portuguese,
            Stems::Romanian => Algorithm::Romanian,
            Stems::Russian => Algorithm::Russian,
            Stems::Spanish => Algorithm::Spanish,
            Stems::Swedish => Algorithm::Swedish,
            Stems::Turkish => Algorithm::Turkish,
        })
    }
}
