//! How much each of a document's words counts.

use super::TextSpec;
use super::spec::Text;
use super::tokens::{self, Options};
use base::Result;
use base::bson::Document;
use std::collections::{BTreeMap, HashMap};

/// How often a word stands in one string: at all, and with each time counting half the one before.
#[derive(Default)]
struct Frequency {
    count: u32,
    next: f64,
    sum: f64,
}

impl TextSpec {
    /// The words of a document, and how much each counts.
    ///
    /// Errors: 17261 and 17262 for fields that name no language.
    pub fn scores(&self, document: Document<'_>) -> Result<BTreeMap<String, f64>> {
        let mut scores = BTreeMap::new();
        self.any(document, &mut |text| {
            self.add(text, &mut scores);
            false
        })?;
        Ok(scores)
    }

    fn add(&self, text: Text<'_>, scores: &mut BTreeMap<String, f64>) {
        let mut words: HashMap<String, Frequency, foldhash::fast::FixedState> = HashMap::default();
        let mut count = 0u32;
        tokens::any(text.text, (text.language, self.version), Options::INDEXED, &mut |word| {
            count += 1;
            match words.get_mut(word) {
                Some(frequency) => frequency.add(),
                None => {
                    let mut frequency = Frequency { next: 1.0, ..Frequency::default() };
                    frequency.add();
                    words.insert(word.to_string(), frequency);
                }
            }
            false
        });
        for (word, frequency) in words {
            let share = (0.5 * f64::from(frequency.count) / f64::from(count)) + 0.5;
            // A string that is nothing but the word counts a little more.
            let alone = text.text.eq_ignore_ascii_case(&word);
            let adjustment = if alone { 1.0 + 0.1 } else { 1.0 };
            *scores.entry(word).or_insert(0.0) += text.weight * frequency.sum * share * adjustment;
        }
    }
}

impl Frequency {
    fn add(&mut self) {
        self.count += 1;
        self.sum += self.next;
        self.next /= 2.0;
    }
}
