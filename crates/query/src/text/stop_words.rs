//! Words too frequent to be searched for: Snowball's lists.
//!
//! Most of MongoDB's are the same, but for a few words in German, Finnish, Hungarian, Norwegian and Russian. Its
//! French list has some ninety words more, and for Romanian it has one, spelt without diacritics, where Snowball has
//! none. Its Turkish list, which isn't Snowball's either, reached it in a broken encoding; here it is PostgreSQL's.
//! Those lists are MongoDB's own work, so they aren't taken.

use super::Language;
use std::collections::HashSet;
use std::sync::LazyLock;

pub(super) type Words = HashSet<&'static str, foldhash::fast::FixedState>;

macro_rules! lists {
    ($($name:literal),+) => {
        /// The words of a language; none where it has no list.
        pub(super) fn of(language: Language) -> Option<&'static Words> {
            match language.name() {
                $($name => {
                    static WORDS: LazyLock<Words> = LazyLock::new(|| {
                        include_str!(concat!("stop_words/", $name, ".txt")).split_whitespace().collect()
                    });
                    Some(&WORDS)
                })+
                _ => None,
            }
        }
    };
}

lists!(
    "danish",
    "dutch",
    "english",
    "finnish",
    "french",
    "german",
    "hungarian",
    "italian",
    "norwegian",
    "portuguese",
    "russian",
    "spanish",
    "swedish",
    "turkish"
);
