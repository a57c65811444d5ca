//! FETCH: the documents of the records that an index found.

use super::{Explainer, IdStream, PATIENCE, Record, RecordStream, Stats, Surroundings};
use base::Result;
use query::matcher::Matcher;
use std::sync::Arc;

/// Reads each record's document and yields it if it matches.
pub(crate) struct Fetch {
    surroundings: Arc<Surroundings>,
    input: Box<dyn IdStream>,
    /// `None` where being found proves that it matches.
    filter: Option<Arc<Matcher>>,
    stats: Stats,
    examined: u64,
}

impl Fetch {
    pub(crate) fn new(
        surroundings: &Arc<Surroundings>,
        input: Box<dyn IdStream>,
        filter: Option<Arc<Matcher>>,
    ) -> Fetch {
        Fetch { surroundings: surroundings.clone(), input, filter, stats: Stats::default(), examined: 0 }
    }
}

impl Fetch {
    /// The next document that matches, among so many; `None` where none of these does.
    fn search(&mut self, mut patience: u64) -> Result<Option<Option<Record>>> {
        while let Some(id) = self.input.next()? {
            self.examined += 1;
            self.surroundings.examine_document()?;
            let value = self.surroundings.fetch(id)?;
            let matched = match &self.filter {
                Some(filter) => self.surroundings.matches(filter, &value)?,
                None => true,
            };
            if matched {
                self.stats.advance();
                return Ok(Some(Some(Record::stored(id, &value))));
            }
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

impl RecordStream for Fetch {
    fn next(&mut self) -> Result<Option<Record>> {
        if let Some(found) = self.search(PATIENCE)? {
            return Ok(found);
        }
        let operation = self.surroundings.operation.clone();
        operation.at_length(|| self.search(u64::MAX).map(Option::flatten))
    }

    fn explain(&self, out: &mut Explainer) {
        let filter = self.filter.as_ref().map(|filter| filter.describe());
        out.stage("FETCH", filter.as_ref(), &self.stats);
        out.docs(self.examined);
        out.count("alreadyHasObj", 0);
        out.input(|out| self.input.explain(out));
    }
}
