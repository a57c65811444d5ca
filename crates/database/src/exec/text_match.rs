//! TEXT_MATCH: of the documents that have a term of a search those that have its phrases, and nothing
//! of what it negates.

use super::{Explainer, Record, RecordStream, Stats, Surroundings, patiently};
use crate::index::{IndexSpec, TextIndex};
use base::Result;
use base::bson::DocumentBuf;
use query::Interrupt;
use query::text::Search;
use std::sync::Arc;

/// Yields the documents that answer a search.
pub(crate) struct TextMatch {
    surroundings: Arc<Surroundings>,
    input: Box<dyn RecordStream>,
    search: Arc<Search>,
    index: Arc<TextIndex>,
    name: String,
    /// The values of the fields in front of the text, for explain.
    prefix: DocumentBuf,
    stats: Stats,
    rejected: u64,
}

impl TextMatch {
    pub(crate) fn new(
        surroundings: &Arc<Surroundings>,
        input: Box<dyn RecordStream>,
        search: &Arc<Search>,
        (spec, index): (&IndexSpec, &Arc<TextIndex>),
        prefix: DocumentBuf,
    ) -> TextMatch {
        TextMatch {
            surroundings: surroundings.clone(),
            input,
            search: search.clone(),
            index: index.clone(),
            name: spec.name.clone(),
            prefix,
            stats: Stats::default(),
            rejected: 0,
        }
    }

    /// The next document that answers, among so many; `None` where none of these does.
    fn answer(&mut self, mut patience: u64) -> Result<Option<Option<Record>>> {
        let by_terms = self.search.is_by_terms_alone();
        while let Some(record) = self.input.next()? {
            if by_terms || self.search.matches(record.document.view(), &self.index.spec)? {
                self.stats.advance();
                return Ok(Some(Some(record)));
            }
            self.surroundings.operation.check()?;
            self.rejected += 1;
            self.stats.need_time();
            patience -= 1;
            if patience == 0 {
                return Ok(None);
            }
        }
        self.stats.end();
        Ok(Some(None))
    }
}

impl RecordStream for TextMatch {
    fn next(&mut self) -> Result<Option<Record>> {
        patiently(self, |stage| &stage.surroundings.operation, Self::answer)
    }

    fn explain(&self, out: &mut Explainer) {
        let builder = out.stage("TEXT_MATCH", None, &self.stats);
        builder.append(c"indexPrefix", &self.prefix).append(c"indexName", self.name.as_str());
        builder.begin_document(c"parsedTextQuery");
        self.search.describe(builder);
        builder.end();
        builder.append(c"textIndexVersion", self.index.spec.version as i32);
        out.count(c"docsRejected", self.rejected);
        out.input(|out| self.input.explain(out));
    }
}
