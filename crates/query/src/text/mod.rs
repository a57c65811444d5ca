//! Text search: the matches of `$text`, their scores, and the terms of text indexes.
//!
//! - [`Language`]: stop words and stemming, by Snowball.
//! - [`fold`]: letters without case and diacritics, and word delimiters.
//! - [`tokens`]: the words of a text as index terms, or for comparison in a search.
//! - [`TextSpec`]: the searched strings of a document, with languages and weights.
//! - [`score`]: the words of a document and their scores.
//! - [`TextQuery`] and [`Search`]: `$text` as given, and its terms for one index.
//! - [`matching`]: whether a document with one of the terms has the phrases and no negated words.
//!
//! Terms and scores equal MongoDB's to the last digit, so the order of results is equal too.

mod language;
mod query;
mod score;
mod spec;
mod tokens;

#[cfg(test)]
mod tests;

pub use language::{Language, Version};
pub use query::{Search, TextQuery};
pub use score::Scores;
pub use spec::TextSpec;
