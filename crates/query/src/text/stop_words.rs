//! Words too frequent to be searched for: Snowball's lists, which are MongoDB's too.
//!
//! Two differ. MongoDB has no list for Romanian, so there is none here. Its Turkish list isn't
//! Snowball's, which has none, and reached it in a broken encoding; here it is PostgreSQL's.

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
