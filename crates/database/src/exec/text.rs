//! TEXT_OR: the records of any term of a search, each once, with their scores.

use super::ixscan::IndexScan;
use super::prefetch::ReadAhead;
use super::{ExecContext, IdStream, RecordStream, Report, Stats, stored};
use crate::index::TextIndex;
use crate::keys::RecordId;
use base::Result;
use query::{DocumentMetadata, Row};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use storage::Value;

/// Reads all terms' keys and adds up their scores. It then yields the documents in the collection's
/// order, each with its score. MongoDB guarantees no order.
pub(crate) struct TextOr {
    exec_context: Arc<ExecContext>,
    index: Arc<TextIndex>,
    /// A scan of each term's keys, and the position of the score in its keys.
    terms: Vec<(IndexScan, usize)>,
    /// The records with their scores after the keys have been read, the next one last.
    scores: Option<Vec<(RecordId, f64)>>,
    documents: ReadAhead,
    stats: Stats,
    examined: u64,
}

impl TextOr {
    pub(crate) fn new(
        exec_context: &Arc<ExecContext>,
        index: &Arc<TextIndex>,
        terms: impl Iterator<Item = (IndexScan, usize)>,
    ) -> TextOr {
        let (exec_context, index) = (exec_context.clone(), index.clone());
        TextOr {
            exec_context,
            index,
            terms: terms.collect(),
            scores: None,
            documents: ReadAhead::default(),
            stats: Stats::default(),
            examined: 0,
        }
    }

    /// Adds up the scores of all records.
    fn gather(&mut self) -> Result<Vec<(RecordId, f64)>> {
        let mut positions: HashMap<RecordId, usize, foldhash::fast::FixedState> = HashMap::default();
        let mut scores: Vec<(RecordId, f64)> = Vec::new();
        for (scan, behind_term) in &mut self.terms {
            while let Some(id) = scan.next()? {
                self.stats.need_time();
                let key = scan.key().map_or(&[][..], |key| &key.key_string);
                let score = self.index.score(key, *behind_term)?;
                let position = *positions.entry(id).or_insert(scores.len());
                match scores.get_mut(position) {
                    Some((_, sum)) => *sum += score,
                    None => scores.push((id, score)),
                }
            }
        }
        scores.sort_unstable_by_key(|(id, _)| Reverse(*id));
        Ok(scores)
    }

    /// Returns the document of the record that was just removed from the list.
    fn document(&mut self, id: RecordId) -> Result<Option<Value>> {
        let left = self.scores.as_deref().unwrap_or_default();
        self.documents.document(&self.exec_context, id, left.iter().rev().map(|(id, _)| *id))
    }
}

impl RecordStream for TextOr {
    fn next(&mut self) -> Result<Option<Row>> {
        if self.scores.is_none() {
            let operation = self.exec_context.operation.clone();
            self.scores = Some(operation.run_long(|| self.gather())?);
        }
        while let Some((id, score)) = self.scores.as_mut().and_then(Vec::pop) {
            self.examined += 1;
            self.exec_context.examine_document()?;
            // After a read of entries from an earlier state, the document may be gone.
            let Some(value) = self.document(id)? else { continue };
            self.stats.advance();
            let metadata = DocumentMetadata { text_score: Some(score), ..DocumentMetadata::default() };
            return Ok(Some(Row { metadata: Some(Box::new(metadata)), ..stored(id, value.to_shared()) }));
        }
        self.stats.end();
        Ok(None)
    }

    fn report(&self, report: &mut Report) {
        report.node(&self.stats).docs(self.examined);
        self.terms.iter().for_each(|(scan, _)| scan.report(report));
    }
}
