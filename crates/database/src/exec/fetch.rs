//! FETCH: the documents of the records that an index found.

use super::{Explainer, IdStream, Record, RecordStream, Stats, Surroundings};
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

impl RecordStream for Fetch {
    fn next(&mut self) -> Result<Option<Record>> {
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
                return Ok(Some(Record::stored(id, &value)));
            }
            self.stats.need_time();
        }
        self.stats.end();
        Ok(None)
    }

    fn explain(&self, out: &mut Explainer) {
        let filter = self.filter.as_ref().map(|filter| filter.describe());
        out.stage("FETCH", filter.as_ref(), &self.stats);
        out.docs(self.examined);
        out.count("alreadyHasObj", 0);
        out.input(|out| self.input.explain(out));
    }
}
