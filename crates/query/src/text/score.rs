//! How much each of a document's words counts.

use super::TextSpec;
use super::spec::Text;
use super::tokens::{self, Options};
use base::Result;
use base::bson::Document;
use std::ops::Range;

/// So many words at least are gathered before those that are the same are added up.
const MERGED_AT: usize = 1024;

/// The words of a document in their order, each once, and how much each counts.
#[derive(Debug, Default)]
pub struct Scores {
    words: String,
    scores: Vec<(Range<usize>, f64)>,
}

impl Scores {
    /// The words and how much each counts.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, f64)> {
        self.scores.iter().map(|(word, score)| (slice(&self.words, word), *score))
    }

    fn push(&mut self, word: &str, score: f64) {
        let start = self.words.len();
        self.words.push_str(word);
        self.scores.push((start..self.words.len(), score));
    }

    /// Adds up what several strings give to a word, in the order of the strings.
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

/// How often words stand in one string.
#[derive(Default)]
struct Counts {
    words: String,
    /// The first so many are in order, each once.
    counts: Vec<Counted>,
    merged: usize,
}

struct Counted {
    /// The first letters, by which most words are told apart, as a number that compares as they do.
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
            self.let_go();
        }
    }

    /// Puts the words in order, each once.
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

    /// Lets go of the letters of words that are there more than once.
    fn let_go(&mut self) {
        let mut kept = String::with_capacity(self.words.len() / 2);
        for Counted { word, .. } in &mut self.counts {
            let start = kept.len();
            kept.push_str(slice(&self.words, word));
            *word = start..kept.len();
        }
        self.words = kept;
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
    /// The words of a document, and how much each counts.
    ///
    /// Errors: 17261 and 17262 for fields that name no language.
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
            // A string that is nothing but the word counts a little more.
            let alone = text.text.eq_ignore_ascii_case(word);
            let adjustment = if alone { 1.0 + 0.1 } else { 1.0 };
            scores.push(word, text.weight * frequency(*times) * share * adjustment);
        }
    }
}

/// How much a word counts that stands in a string so many times: each time half as much as the one before.
fn frequency(times: u32) -> f64 {
    /// From here on nothing is added any more.
    const LAST: u32 = 64;
    let (mut sum, mut next) = (0.0, 1.0);
    for _ in 0..times.min(LAST) {
        sum += next;
        next /= 2.0;
    }
    sum
}
