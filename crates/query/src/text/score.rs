//! Scores of a document's words.

use super::TextSpec;
use super::spec::Text;
use super::tokens::{self, Options};
use base::Result;
use base::bson::Document;
use std::ops::Range;

/// Minimum number of collected words before duplicates are merged.
const MERGED_AT: usize = 1024;

/// The distinct words of a document, sorted, with their scores.
#[derive(Debug, Default)]
pub struct Scores {
    words: String,
    scores: Vec<(Range<usize>, f64)>,
}

impl Scores {
    /// Returns the words and their scores.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, f64)> {
        self.scores.iter().map(|(word, score)| (slice(&self.words, word), *score))
    }

    fn push(&mut self, word: &str, score: f64) {
        let start = self.words.len();
        self.words.push_str(word);
        self.scores.push((start..self.words.len(), score));
    }

    /// Sums a word's scores of several strings, in the order of the strings.
    fn merge(&mut self) {
        let Scores { words, scores } = self;
        scores.sort_by(|(a, _), (b, _)| slice(words, a).cmp(slice(words, b)));
        scores.dedup_by(|(later, score), (word, sum)| {
            let same = slice(words, later) == slice(words, word);
            *sum += if same { *score } else { 0.0 };
            same
        });
    }
}

/// Word counts of one string.
#[derive(Default)]
struct Counts {
    words: String,
    /// Number of leading words that are sorted and distinct.
    counts: Vec<Counted>,
    merged: usize,
}

/// A word of a string, and the number of its occurrences.
struct Counted {
    /// The first letters as a number that compares equally. It decides most comparisons of words.
    first: u64,
    word: Range<usize>,
    times: u32,
}

impl Counts {
    fn add(&mut self, word: &str) {
        let start = self.words.len();
        self.words.push_str(word);
        self.counts.push(Counted { first: first(word), word: start..self.words.len(), times: 1 });
        if self.counts.len() > MERGED_AT.max(self.merged * 2) {
            self.merge();
            self.compact();
        }
    }

    /// Sorts the words and merges duplicates.
    fn merge(&mut self) {
        let Counts { words, counts, .. } = self;
        counts.sort_unstable_by(|a, b| {
            a.first.cmp(&b.first).then_with(|| slice(words, &a.word).cmp(slice(words, &b.word)))
        });
        counts.dedup_by(|later, word| {
            let same = later.first == word.first && slice(words, &later.word) == slice(words, &word.word);
            word.times += if same { later.times } else { 0 };
            same
        });
        self.merged = counts.len();
    }

    /// Drops the letters of duplicate words.
    fn compact(&mut self) {
        let mut compacted = String::with_capacity(self.words.len() / 2);
        for Counted { word, .. } in &mut self.counts {
            let start = compacted.len();
            compacted.push_str(slice(&self.words, word));
            *word = start..compacted.len();
        }
        self.words = compacted;
    }
}

fn first(word: &str) -> u64 {
    let mut bytes = [0; 8];
    word.bytes().zip(&mut bytes).for_each(|(from, to)| *to = from);
    u64::from_be_bytes(bytes)
}

fn slice<'w>(words: &'w str, word: &Range<usize>) -> &'w str {
    words.get(word.clone()).unwrap_or_default()
}

impl TextSpec {
    /// Returns the words of a document and their scores.
    ///
    /// Errors: 17261 and 17262 for invalid language fields.
    pub fn scores(&self, document: Document<'_>) -> Result<Scores> {
        let mut scores = Scores::default();
        let mut texts = 0;
        self.any(document, &mut |text| {
            self.add(text, &mut scores);
            texts += 1;
            false
        })?;
        if texts > 1 {
            scores.merge();
        }
        Ok(scores)
    }

    fn add(&self, text: Text<'_>, scores: &mut Scores) {
        let mut counts = Counts::default();
        let mut count = 0u32;
        tokens::any(text.text, (text.language, self.version), Options::INDEXED, &mut |word| {
            count += 1;
            counts.add(word);
            false
        });
        counts.merge();
        for Counted { word, times, .. } in &counts.counts {
            let word = slice(&counts.words, word);
            let share = (0.5 * f64::from(*times) / f64::from(count)) + 0.5;
            // A string that consists of the word alone scores slightly more.
            let alone = text.text.eq_ignore_ascii_case(word);
            let adjustment = if alone { 1.0 + 0.1 } else { 1.0 };
            scores.push(word, text.weight * frequency(*times) * share * adjustment);
        }
    }
}

/// Returns the weight of a word that occurs `times` times in a string. Each occurrence adds half as much as the
/// previous one.
fn frequency(times: u32) -> f64 {
    /// Further occurrences add nothing beyond this.
    const LAST: u32 = 64;
    let (mut sum, mut next) = (0.0, 1.0);
    for _ in 0..times.min(LAST) {
        sum += next;
        next /= 2.0;
    }
    sum
}
