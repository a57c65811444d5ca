//! Searching for text: what `$text` finds, how well, and what a text index has to know for it.
//!
//! - [`Language`]: whose stop words and whose stems; by Snowball.
//! - [`fold`]: letters without case and diacritics, and what separates words.
//! - [`tokens`]: a text's words as an index has them, or as a search compares them.
//! - [`TextSpec`]: which strings of a document are searched, in which languages, with which weights.
//! - [`score`]: a document's words and how much each counts.
//! - [`TextQuery`] and [`Search`]: `$text` as it was written, and its words by one index.
//! - [`matching`]: whether a document that has one of the words has the phrases, and none of what is negated.
//!
//! Terms and scores are MongoDB's to the last digit, so that their order is, too.

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
